"""Settings of evaluation; importing them loads no torch."""

from typing import Annotated

from pydantic import Field

from lwd.io.records import Record


class EvaluateSettings(Record):
    """Which features to compare, and how."""

    size: Annotated[int, Field(ge=0)] = 0
    """Crop and scale the reference to this many pixels (a folder of photographs); 0 takes it as it is."""
    encoder: str = ""
    """Also compute a Fréchet distance on this encoder (DINOv2, ...)."""
    skip_inception: bool = False
    """Compute only the encoder's metrics."""
    shuffle: bool = False
    """Shuffle the samples before the Inception Score, which is of consecutive rows."""
    batch: Annotated[int, Field(ge=1)] = 25
    """Images at once."""
    threads: Annotated[int, Field(ge=1)] = 2
    """CPU threads; affects the last bits."""
