"""`lwd surfaces measure`: the surfaces of a network that is already trained, from latents."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lwd.checkpoints.directory import Checkpoint
from lwd.checkpoints.sefi import TextCheckpoint, offset_of
from lwd.compute.order import mix
from lwd.errors import InputError
from lwd.groups import default_lead
from lwd.io.files import check_writable
from lwd.latents.reader import LatentReader
from lwd.latents.statistics import Statistics, unit_statistics
from lwd.models.sefi import Prompts
from lwd.objective import FlowObjective
from lwd.probing.surface import calibrate, error_scale
from lwd.schedule.base import Schedule
from lwd.surfaces.band import Band, parse_band
from lwd.surfaces.files import NAME, save_surfaces
from lwd.surfaces.measure import OffsetRow, Samples, compare_offsets, estimate_band, offset_schedule, tabulate_band
from lwd.surfaces.settings import MeasureSettings
from lwd.surfaces.table import SurfaceTable

Texts = Callable[[list[str]], Prompts]


@dataclass(frozen=True)
class Measured:
    """The surfaces in a band, and the offsets in it compared."""

    table: SurfaceTable
    band: Band
    trained: float | None
    """The offset of the network's own schedule."""
    rows: list[OffsetRow]
    scale: float
    """Measured / predicted error of Euler's method."""

    @property
    def best(self) -> OffsetRow:
        """The offset with the lowest flow loss."""
        return min(self.rows, key=lambda row: row.flow)

    def steps_for(self, tolerance: float, steps: int) -> int:
        """Euler steps with which the error under the best offset is within a tolerance; its error is as 1 / steps."""
        return max(1, int(-(-self.best.error * steps // tolerance)))


def measure_surfaces(
    checkpoint: Checkpoint,
    latents: str | os.PathLike[str],
    out: str | os.PathLike[str],
    settings: MeasureSettings | None = None,
    band: str | None = None,
    texts: Texts | None = None,
    progress: Callable[[int], object] | None = None,
) -> Measured:
    """Measure losses, energies and bends of a network in a band of offsets; writes surfaces.safetensors and .json.

    latents: shards of images that the network was not trained on, if possible, with captions for a text-to-image model
    (without captions, the empty prompt). band: offsets such as "0.05:0.2"; estimated if not given.
    texts: the text encoder of a text-to-image model.
    """
    s = settings or MeasureSettings()
    device = next(checkpoint.velocity.parameters()).device
    samples = open_samples(checkpoint, latents, s, texts, device)
    trained, velocity = offset_of(checkpoint.schedule), checkpoint.velocity
    lead = checkpoint.layout.index(getattr(checkpoint.schedule, "lead", default_lead(checkpoint.layout.names)))
    chosen = parse_band(band, lead) if band is not None else Band(-1.0, 1.0, lead)
    if band is None and not checkpoint.any_schedule and trained is None:
        raise InputError("the model was trained under a curve, not an offset; name a band", argument="band")
    check_writable(out)
    if band is None and not checkpoint.any_schedule and trained is not None:
        chosen = estimate_band(velocity, samples, trained, s, progress)
    table = tabulate_band(velocity, samples, chosen, s, progress)
    scales = {}
    if s.calibration:
        path = own_schedule(checkpoint, chosen)
        first = samples.conditions[torch.arange(min(s.calibration, len(samples.data)))]
        scales = calibrate(velocity, table, first, samples.data.shape[2:], 16, path, device)
    about: dict[str, Any] = {"by": "lwd surfaces measure", "offset": trained, "band": str(chosen)}
    about |= {"estimated": band is None, "samples": len(samples.data), "seed": s.seed, "points": s.points}
    about |= {"model": dict(checkpoint.provenance).get("source", ""), "weights": {}, "reduction": "channels"}
    save_surfaces(table, Path(out) / NAME, {**about, "error_scales": scales})
    scale = error_scale({"error_scales": scales}, 1)
    rows = compare_offsets(table, FlowObjective(table.layout), checkpoint_steps(checkpoint), scale)
    return Measured(table, chosen, trained, rows, scale)


def checkpoint_steps(checkpoint: Checkpoint) -> int:
    """The recorded number of steps, or 50."""
    found = checkpoint.sampling
    return (found.steps if found is not None else None) or 50


def own_schedule(checkpoint: Checkpoint, band: Band) -> Schedule:
    """The network's own schedule if it is an offset in the band, else the offset in the middle of the band."""
    offset = offset_of(checkpoint.schedule)
    if offset is not None and band.low <= offset <= band.high:
        return checkpoint.schedule
    return offset_schedule((band.low + band.high) / 2, checkpoint.layout.names, band.lead)


def open_samples(
    checkpoint: Checkpoint,
    latents: str | os.PathLike[str],
    settings: MeasureSettings,
    texts: Texts | None,
    device: torch.device,
) -> Samples:
    """Draw images of a set of shards, on the scale of the network, with its conditions."""
    layout = checkpoint.layout
    # Without statistics, a network takes latents as its encoders give them.
    statistics: Statistics = checkpoint.statistics or unit_statistics(layout)
    reader = LatentReader(latents, layout.names, statistics)
    if reader.layout != layout:
        raise InputError(f"{latents} has the groups {reader.layout}, but the network {layout}")
    if settings.samples > len(reader):
        raise InputError(f"{latents} has {len(reader)} images, but {settings.samples} were asked for", "samples")
    batch = reader.batch(0, settings.samples, mix(settings.seed, 1) % 2**32, flip=False)
    data = batch.latents.to(device)
    if not isinstance(checkpoint, TextCheckpoint):
        if reader.classes > checkpoint.config.classes:
            raise InputError(f"{latents} has {reader.classes} classes, the network {checkpoint.config.classes}")
        return Samples(data, batch.labels.to(device), layout)
    if texts is None:
        raise InputError("a text-to-image model needs its text encoder to read captions", argument="texts")
    captions = reader.captions
    wanted = [captions[i] if captions else "" for i in batch.index.tolist()]
    return Samples(data, texts(wanted).to(device), layout)
