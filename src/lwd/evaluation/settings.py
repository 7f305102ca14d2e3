"""Settings of evaluation; importing them does not load torch."""

from typing import Annotated

from pydantic import Field

from lwd.io.records import Record


class EvaluateSettings(Record):
    """Which features to compare, and how."""

    size: Annotated[int, Field(ge=0)] = 0
    """Crop and scale the reference (a folder of images) to this many pixels; 0 = keep its size."""
    encoder: str = ""
    """Also compute a Fréchet distance with this encoder (DINOv2, ...)."""
    skip_inception: bool = False
    """Compute only the metrics of the encoder."""
    shuffle: bool = False
    """Shuffle the samples for the Inception Score, which uses splits of consecutive rows."""
    batch: Annotated[int, Field(ge=1)] = 25
    """Images per batch."""
    threads: Annotated[int, Field(ge=1)] = 2
    """CPU threads; affects the last bits."""
