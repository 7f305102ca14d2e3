"""Shards whose alignment features (REPA) are computed from the images while training, instead of being stored."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lwd.errors import InputError
from lwd.images.sources import ImageSource, Pixels, center_crop, leave_out, source_digest
from lwd.io.files import read_json
from lwd.latents.batch import Batch, StoredBatch
from lwd.latents.encode import PARTS
from lwd.latents.reader import LatentReader
from lwd.latents.shards import read_manifest
from lwd.representations.encoders import SemanticEncoder, move, resize_map
from lwd.representations.texture import from_uint8


@dataclass(frozen=True)
class LiveFeatures:
    """How alignment features are computed: the encoder, the images that were encoded, and where."""

    encoder: SemanticEncoder
    source: ImageSource
    size: int | None = None
    """Crop and scale images to this many pixels; None: as recorded with the shards."""
    device: torch.device | str = "cpu"
    bf16: bool = False
    """Run the encoder under bf16 autocast."""
    loaders: int = 8
    """Threads that read images."""


class AlignedReader(LatentReader):
    """A directory of shards with the features of the same images, in the same order and mirrored alike.

    The images must be those of `lwd encode`: same number, same checksum.
    """

    def __init__(
        self, directory: str | os.PathLike[str], live: LiveFeatures, groups: Sequence[str] | None = None
    ) -> None:
        super().__init__(directory, groups)
        self.live = live
        self.source, recorded = _same_images(Path(directory), live.source, len(self))
        if recorded is None and live.size is None:
            raise InputError(
                f"{directory} does not record the size of its images; set the size that lwd encode had",
                argument="alignment.size",
            )
        if None not in (recorded, live.size) and recorded != live.size:
            raise InputError(f"{directory} was encoded at size {recorded}, not {live.size}", argument="alignment.size")
        self.pixels = int(recorded if recorded is not None else live.size or 0)
        self.pool = ThreadPoolExecutor(live.loaders)
        move(live.encoder, live.device)
        self._width = int(self._features(np.zeros(1, np.int64), np.zeros(1, bool)).shape[1])
        self.encoders = {**self.encoders, "align": live.encoder.identity}
        self.shards_fingerprint = self._fingerprint
        """Of the latents without the features."""
        about = (self._fingerprint, live.encoder.identity, source_digest(live.source), self.pixels, live.bf16)
        self._fingerprint = hashlib.sha256("\n".join(map(str, about)).encode()).hexdigest()[:16]

    @property
    def feature_width(self) -> int:
        return self._width

    def gather(self, index: np.ndarray[Any, Any], flip: np.ndarray[Any, Any]) -> Batch:
        """Return the images `index` (b,), mirrored where `flip`, with their features on the encoder's device."""
        found = super().gather(index, flip)
        return Batch(found.latents, found.labels, found.index, self._features(index, flip))

    def gather_stored(self, index: np.ndarray[Any, Any], flip: np.ndarray[Any, Any], pin: bool = False) -> StoredBatch:
        """Return the same images as they are stored, with their features."""
        return replace(super().gather_stored(index, flip, pin), features=self._features(index, flip))

    @torch.no_grad()
    def _features(self, index: np.ndarray[Any, Any], flip: np.ndarray[Any, Any]) -> Tensor:
        rows = list(self.pool.map(self._image, index.tolist(), flip.tolist()))
        if len({row.shape for row in rows}) > 1:
            raise InputError(
                f"the images of {self.source.name} have different sizes; encode them with a size", argument="size"
            )
        device = torch.device(self.live.device)
        pixels = from_uint8(torch.from_numpy(np.stack(rows)).to(device))
        with torch.autocast(device.type, torch.bfloat16, enabled=self.live.bf16):
            features = self.live.encoder(pixels)
        features = resize_map(features.float(), *self.size)
        if not torch.isfinite(features).all():
            raise InputError("alignment features contain NaN or infinity; the encoder failed on some image")
        return features

    def _image(self, number: int, mirror: bool) -> Pixels:
        row = self.source.image(number)
        row = center_crop(row, self.pixels) if self.pixels else row
        return row[:, ::-1] if mirror else row


def _same_images(directory: Path, source: ImageSource, count: int) -> tuple[ImageSource, int | None]:
    """Return the encoded images in the order of the shards, and the recorded size; an error for other images."""
    manifest = read_manifest(directory)
    about = manifest.provenance if manifest else {}
    if "digest" not in about:
        raise InputError(
            f"{directory} does not record which images it was encoded from; features can be computed while training "
            "only for shards written by lwd encode",
            argument="alignment.images",
        )
    left_out = [int(number) for number, _ in about.get("left_out", ())]
    if len(source) - len(left_out) != count:
        raise InputError(
            f"{directory} has {count} of {count + len(left_out)} images, but {source.name} has {len(source)}; "
            "name the images that were encoded",
            argument="alignment.images",
        )
    found = source_digest(source)
    if found != about["digest"]:
        raise InputError(
            f"{source.name} (checksum {found}) is not what {directory} was encoded from ({about['digest']}): "
            "files were added, removed, renamed or changed",
            argument="alignment.images",
        )
    plan = directory / PARTS / "plan.json"
    size = about.get("size", read_json(plan).get("size") if plan.is_file() else None)
    return leave_out(source, left_out), size
