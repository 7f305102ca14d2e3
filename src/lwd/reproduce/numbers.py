"""The numbers that the paper reports, as records; they live in paper.yaml."""

from functools import cache
from importlib import resources

import yaml

from lwd.io.records import Record


class UnguidedNumber(Record):
    """A row of the table of unguided FID."""

    model: str
    steps: int
    fid: float


class GuidedNumber(Record):
    """A row of the system-level table with guidance."""

    method: str
    epochs: int
    parameters: str
    fid: float
    sfid: float | None = None
    inception_score: float
    precision: float
    recall: float


class RobustnessNumber(Record):
    """A row of the table of semantic latents: unguided FID of SFD and of the paper."""

    features: str
    latent: str
    steps: int
    sfd: float
    ours: float


class SweepNumber(Record):
    """What the paper says about one lambda."""

    kinetic: float
    word: str


class Paper(Record):
    """All numbers, and where they are printed."""

    source: str
    unguided: list[UnguidedNumber]
    guided: list[GuidedNumber]
    robustness: list[RobustnessNumber]
    sweep: list[SweepNumber]

    def unguided_fid(self, model: str, steps: int) -> float | None:
        """FID of a model after this many steps, if the paper has it."""
        return next((row.fid for row in self.unguided if (row.model, row.steps) == (model, steps)), None)

    def guided_row(self, method: str, epochs: int) -> GuidedNumber | None:
        """The row of a method, if the paper has it."""
        return next((row for row in self.guided if (row.method, row.epochs) == (method, epochs)), None)


@cache
def load_paper() -> Paper:
    """Read paper.yaml."""
    text = (resources.files("lwd.reproduce") / "paper.yaml").read_text()
    return Paper.parse(yaml.safe_load(text), "paper.yaml")
