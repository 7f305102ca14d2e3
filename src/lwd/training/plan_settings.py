"""Settings of a plan; importing them does not load torch."""

from typing import Annotated

from pydantic import Field

from lwd.io.records import Record


class PlanSettings(Record):
    """The machine and the data of a plan."""

    gpus: Annotated[int, Field(gt=0)] = 8
    """Number of GPUs."""
    memory: Annotated[float, Field(gt=0)] = 80.0
    """Memory of a GPU in GB."""
    peak: Annotated[float, Field(gt=0)] = 989.0
    """Peak TFLOP/s of a GPU in dense bf16; an H100 has 989."""
    utilisation: Annotated[float, Field(gt=0, le=1)] = 0.4
    """Assumed share of the peak (MFU); `lwd train` logs the real one."""
    images: Annotated[int, Field(gt=0)] = 1_281_167
    """Images of the data set."""
    classes: Annotated[int, Field(gt=0)] = 1000
    """Classes of the data set."""
    side: Annotated[int, Field(gt=0)] = 16
    """Height and width of the latents."""
    layout: str = "texture=32,semantic=16"
    """Channels of the latents by group."""
