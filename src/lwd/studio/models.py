"""The models that a studio offers: named on the command line, loaded when first chosen, never found by a request."""

import threading
from dataclasses import dataclass
from pathlib import Path

from lwd.assets import AUTOENCODERS, MODELS
from lwd.checkpoints.published import PUBLISHED
from lwd.demo.plan import FILE as DEMO
from lwd.demo.plan import NAMES, train_folder
from lwd.errors import InputError, nearest
from lwd.images.fashion import CLASSES
from lwd.representations.texture import TextureAutoencoder
from lwd.sampling.pipeline import LWDPipeline, resolve
from lwd.sampling.text import TextPipeline
from lwd.schedule.base import Schedule
from lwd.studio.landscape import Landscape, open_landscape
from lwd.studio.settings import StudioSettings
from lwd.surfaces.files import NAME as SURFACES
from lwd.surfaces.lambda_path import MARGIN, farthest_outside, largest_distance


@dataclass(frozen=True)
class Entry:
    """A model by the name that commands take, and what belongs to it."""

    name: str
    decoder: str | None = None
    surfaces: Path | None = None
    path: Path | None = None
    """A path.json with the best curve for every lambda."""
    guide_only: bool = False
    """Offered as a guide, not as a model."""


@dataclass(frozen=True)
class Model:
    """An opened model."""

    entry: Entry
    pipe: LWDPipeline
    landscape: Landscape | None

    @property
    def groups(self) -> tuple[str, ...]:
        return self.pipe.checkpoint.layout.names

    @property
    def own(self) -> Schedule:
        """The schedule in the model's directory."""
        return self.pipe.checkpoint.schedule

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, or their numbers."""
        c = self.pipe.checkpoint
        return c.class_names or tuple(str(number) for number in range(c.config.classes))

    @property
    def judged(self) -> bool:
        """Whether the shipped judge knows these classes."""
        return self.pipe.checkpoint.class_names == CLASSES and self.pipe.autoencoder is not None

    def trained(self, schedule: Schedule) -> tuple[bool, str]:
        """Whether the network was trained at the local times of a curve, and a sentence about it."""
        checkpoint = self.pipe.checkpoint
        if checkpoint.any_schedule:
            return True, "The network was trained at all local times: it knows every schedule."
        surfaces = self.landscape.surfaces if self.landscape is not None else None
        if getattr(surfaces, "band", None) is not None:
            assert surfaces is not None
            far, what = farthest_outside(schedule, surfaces), "the band of offsets in which the network was measured"
        else:
            far, what = largest_distance(schedule, checkpoint.schedule), "the curve that the network was trained on"
        if far <= MARGIN:
            return True, f"The network was trained here: within {max(far, 0.001):.3f} of {what}."
        return False, f"Not trained here: up to {far:.2f} away from {what}. Expect worse samples."


class Catalog:
    """The models of one studio, by name; each is loaded once."""

    def __init__(self, settings: StudioSettings) -> None:
        self.settings = settings
        self.entries: dict[str, Entry] = {}
        for name in settings.models:
            for entry in _entries(name, settings):
                self.entries.setdefault(entry.name, entry)
        self._opened: dict[str, Model] = {}
        self._locks = {name: threading.Lock() for name in self.entries}

    @property
    def names(self) -> list[str]:
        """The models to choose from."""
        return [name for name, entry in self.entries.items() if not entry.guide_only]

    def guides(self, model: Model) -> list[str]:
        """Names of other models that may guide this one, without loading them."""
        return [name for name in self.entries if name != model.entry.name]

    def open(self, name: str) -> Model:
        """Load a model, or return the one that is loaded; only names of the catalog are known."""
        if not isinstance(name, str) or name not in self.entries:
            raise InputError(f"there is no model {str(name)[:80]!r} here; {nearest(str(name)[:80], self.names)}")
        with self._locks[name]:
            if name not in self._opened:
                self._opened[name] = _load(self.entries[name])
            return self._opened[name]


def _entries(name: str, settings: StudioSettings) -> list[Entry]:
    """A name on the command line as entries: a demo has several models."""
    given = None if settings.surfaces is None else Path(settings.surfaces)
    folder = Path(name)
    if (folder / DEMO).is_file():
        surfaces, path = folder / "surface", folder / "path" / "path.json"
        found = [folder / "surface", *(train_folder(folder, one) for one in NAMES)]
        return [Entry(str(one), str(AUTOENCODERS["fashion"]), surfaces, path) for one in found if one.is_dir()]
    if name in MODELS and not folder.is_dir():
        surfaces = MODELS[name].parent / "surfaces"
        shipped = Entry(name, settings.decoder, given or surfaces, None if given else surfaces / "path.json")
        partner = Entry(f"{name.removesuffix('-weak')}-weak", None, guide_only=True)
        return [shipped] if name == partner.name else [shipped, partner]
    if not folder.is_dir() and name not in PUBLISHED:
        resolve(name)  # a hub id is downloaded; anything else is an error
    own = folder if (folder / SURFACES).is_file() else None
    path = folder / "path" / "path.json"
    return [Entry(name, settings.decoder, own or given, path if path.is_file() else None)]


def _load(entry: Entry) -> Model:
    pipe = LWDPipeline.from_pretrained(entry.name)
    if isinstance(pipe, TextPipeline):
        raise InputError(f"{entry.name} is a text-to-image model; the studio draws models with classes")
    if entry.decoder is not None and pipe.autoencoder is None:
        pipe = pipe.with_decoder(TextureAutoencoder.load(entry.decoder).eval())
    groups = pipe.checkpoint.layout
    landscape = None if entry.surfaces is None else open_landscape(entry.surfaces, entry.path, groups)
    return Model(entry, pipe, landscape)
