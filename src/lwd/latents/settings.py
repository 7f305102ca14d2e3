"""Settings of encoding; importing them does not load torch."""

from typing import Annotated, Literal

from pydantic import Field

from lwd.io.records import Record


class EncodeSettings(Record):
    """How to encode images; equal settings give equal bytes on the same kind of processor."""

    shard_size: Annotated[int, Field(ge=1)] = 1000
    """Images per shard."""
    batch: Annotated[int, Field(ge=1)] = 50
    """Images per batch."""
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Number format of the latents."""
    features: bool = False
    """Also store the encoder's features, for alignment (REPA)."""
    skip_bad: bool = False
    """Skip images that cannot be read instead of stopping."""
    size: Annotated[int, Field(ge=0)] = 0
    """Crop and scale images to this many pixels; 0 = keep their size."""
    captions: bool | None = None
    """Also store captions, from a text file beside each image (IMAGE.txt for IMAGE.jpg)."""
    workers: Annotated[int, Field(ge=0)] | None = None
    """Processes that read images while the networks compute (default: 4 on a GPU, else 0)."""
    threads: Annotated[int, Field(ge=1)] = 2
    """CPU threads per process; affects the last bits."""
