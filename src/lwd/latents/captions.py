"""Shards whose images are described by captions instead of class labels, for text-to-image networks."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from lwd.errors import InputError
from lwd.groups import Layout
from lwd.latents.batch import Batch, StoredBatch
from lwd.latents.reader import LatentReader
from lwd.latents.shards import CAPTIONS
from lwd.latents.statistics import unit_statistics
from lwd.models.sefi import Prompts
from lwd.representations.text import TextEncoder


class CaptionReader(LatentReader):
    """A directory of shards whose batches have embedded captions as conditions, in `labels`.

    layout: that of the network, which takes latents as its encoders give them, so that they are not normalised.
    captions: false uses the empty prompt for all images.
    """

    def __init__(
        self, directory: str | os.PathLike[str], layout: Layout, encoder: TextEncoder, captions: bool = True
    ) -> None:
        super().__init__(directory, layout.names, unit_statistics(layout))
        if self.layout != layout:
            raise InputError(f"{directory} has the groups {self.layout}, but the network {layout}")
        self.encoder, self.texts = encoder, self.captions if captions else [""] * len(self)
        if not self.texts:
            raise InputError(
                f"{self.directory / CAPTIONS} does not exist, and a text-to-image network needs captions; encode with "
                "captions, or set run.labels=false to train with the empty prompt"
            )
        self.shards_fingerprint = self._fingerprint
        """Of the latents without the captions."""
        about = "\n".join((self._fingerprint, encoder.fingerprint(), *self.texts))
        self._fingerprint = hashlib.sha256(about.encode()).hexdigest()[:16]

    @cached_property
    def null(self) -> Prompts:
        """The condition of dropped captions: the empty prompt."""
        return self.encoder([""])

    def prepare(self, rank: int = 0, world: int = 1, say: Callable[[str], object] | None = None) -> None:
        """Embed the captions of this process's share once, unless they are embedded while training.

        It resumes after an interruption: every embedding is a file of the cache.
        """
        if self.encoder.cache is None:
            return
        # Divided before it is looked up: other processes are writing.
        missing = self.encoder.missing(list(dict.fromkeys(["", *self.texts]))[rank::world])
        if missing and say is not None:
            say(f"embedding {len(missing)} captions into {self.encoder.cache}")
        self.encoder.fill(missing)
        self.encoder.free()

    def gather(self, index: np.ndarray[Any, Any], flip: np.ndarray[Any, Any]) -> Batch:
        """Return the images `index` (b,), mirrored where `flip`, with their embedded captions."""
        return replace(super().gather(index, flip), labels=self._prompts(index.tolist()))

    def gather_stored(self, index: np.ndarray[Any, Any], flip: np.ndarray[Any, Any], pin: bool = False) -> StoredBatch:
        """Return the same images as they are stored, with their embedded captions."""
        prompts = self._prompts(index.tolist())
        if pin and prompts.embeddings.device.type == "cpu":
            prompts = Prompts(prompts.embeddings.pin_memory(), prompts.positions)
        return replace(super().gather_stored(index, flip, pin), labels=prompts)

    def _prompts(self, index: Sequence[int]) -> Prompts:
        return self.encoder([self.texts[i] for i in index])
