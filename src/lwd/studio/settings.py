"""Settings and limits of the studio; importing them does not load torch."""

from typing import Annotated

from pydantic import Field

from lwd.io.records import Record

COUNT, COMPARED, STEPS, KNOTS = 64, 2000, 250, 200
"""Most images of a sample and of a comparison, most steps of a solver, most points of a schedule."""
VALUES, LETTERS = 5_000, 200_000
"""Most numbers and texts in a schedule; most characters of a request."""
SECONDS, WAITING = 600, 16
"""Longest computation; most computations that run or wait, of all users."""


class StudioSettings(Record):
    """What the studio shows, and where."""

    models: Annotated[tuple[str, ...], Field(min_length=1)] = ("fashion",)
    """Models to choose from: names, run or checkpoint directories, a demo's directory."""
    surfaces: str | None = None
    """Loss surfaces of models that have none of their own."""
    decoder: str | None = None
    """Texture autoencoder of models that have none of their own."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port to listen on (default: the first free one from 7860)."""
    share: bool = False
    """Also open a public link for a week, through Gradio's servers."""
    threads: Annotated[int, Field(ge=1)] = 2
    """CPU threads."""
