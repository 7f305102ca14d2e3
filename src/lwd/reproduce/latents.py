"""Jobs that make latents, or check those that the user has."""

from dataclasses import dataclass

from lwd.errors import InputError
from lwd.images.catalog import open_source
from lwd.io.files import model_digest
from lwd.latents.embedded import encode_embedded
from lwd.latents.encode import encode
from lwd.latents.encoders import Encoders
from lwd.latents.reader import LatentReader
from lwd.latents.settings import EncodeSettings
from lwd.latents.shards import MANIFEST, read_manifest
from lwd.representations.encoders import load_encoder
from lwd.representations.fit import fit_pca, fit_texture
from lwd.representations.settings import FitSettings, TextureSettings
from lwd.representations.texture import TextureAutoencoder, locate_autoencoder
from lwd.reproduce.cost import Cost
from lwd.reproduce.jobs import Advance, Job

EMBEDDED, CIFAR, GRID = "fashion", "cifar10/train", (8, 8)
TEXTURE_STEPS, BATCH = 1000, 100


@dataclass(frozen=True, kw_only=True)
class GivenLatents(Job):
    """Latents that the user has."""

    argument: str = "latents"

    def is_done(self) -> bool:
        return True

    def check(self) -> None:
        try:
            LatentReader(self.out)
        except InputError as error:
            raise InputError(f"{self.out} has no latents: {error}", argument=self.argument) from error

    def words(self) -> list[str]:
        return []


@dataclass(frozen=True, kw_only=True)
class EmbeddedLatents(Job):
    """Shards of the embedded data set, with the first `channels` of its semantic latents."""

    channels: int

    def is_done(self) -> bool:
        return (self.out / MANIFEST).is_file()

    def run(self, advance: Advance) -> None:
        record = f"{EMBEDDED} (files {model_digest(locate_autoencoder(EMBEDDED))})"
        encode_embedded("train", TextureAutoencoder.load(EMBEDDED).eval(), self.out, record, self.channels)
        advance(1.0)

    def words(self) -> list[str]:
        words = ["lwd", "encode", "fashion/train", "--texture", EMBEDDED]
        return [*words, "--semantic", f"embedded:{self.channels}", "--out", str(self.out)]

    def cost(self) -> Cost:
        return Cost(disk=12_000 * 16 * (16 + self.channels) * 4)


@dataclass(frozen=True, kw_only=True)
class FitTexture(Job):
    """The texture autoencoder of CIFAR-10 (docs/representations.md)."""

    channels: int

    def is_done(self) -> bool:
        return (self.out / "config.json").is_file()

    def check(self) -> None:
        open_source(CIFAR)

    def run(self, advance: Advance) -> None:
        settings = TextureSettings(channels=self.channels, steps=TEXTURE_STEPS)
        fit_texture(open_source(CIFAR), self.out, settings, progress=_Share(advance, TEXTURE_STEPS))

    def words(self) -> list[str]:
        words = ["lwd", "fit", "texture", CIFAR, "--channels", str(self.channels), "--steps", str(TEXTURE_STEPS)]
        return [*words, "--device", "cpu", "--out", str(self.out)]


@dataclass(frozen=True, kw_only=True)
class FitPCA(Job):
    """A PCA of an encoder's features on CIFAR-10."""

    channels: int
    encoder: str

    @property
    def kind(self) -> str:
        return f"features of {self.encoder}"

    def is_done(self) -> bool:
        return (self.out / "config.json").is_file()

    def check(self) -> None:
        load_encoder(self.encoder)

    def run(self, advance: Advance) -> None:
        source, settings = open_source(CIFAR), FitSettings(channels=self.channels, batch=BATCH)
        batches = -(-(len(source) - settings.held_out) // BATCH)
        fit_pca(source, load_encoder(self.encoder), GRID, self.out, settings, progress=_Share(advance, batches))

    def words(self) -> list[str]:
        words = ["lwd", "fit", "semantic", CIFAR, "--encoder", self.encoder, "--grid", "x".join(map(str, GRID))]
        words += ["--kind", "pca", "--channels", str(self.channels), "--batch", str(BATCH)]
        return [*words, "--device", "cpu", "--out", str(self.out)]


@dataclass(frozen=True, kw_only=True)
class EncodeCifar(Job):
    """Shards of CIFAR-10; needs: the texture autoencoder and the PCA."""

    channels: int
    encoder: str

    def is_done(self) -> bool:
        manifest = read_manifest(self.out)
        if manifest is None:
            return False
        for name, job in zip(("texture", "compressor"), self.needs, strict=True):
            record = manifest.encoders.get(name, "")
            if record and (job.out / "config.json").is_file() and model_digest(job.out) not in record:
                raise InputError(f"{self.out} was encoded with another {name} than {job.out}; use another directory")
        return True

    def run(self, advance: Advance) -> None:
        texture, compressor = (str(job.out) for job in self.needs)
        source = open_source(CIFAR)
        settings = EncodeSettings(batch=BATCH, dtype="float16")
        encoders = Encoders.load(texture, self.encoder, compressor)
        encode(source, self.out, encoders, settings, progress=lambda count: advance(count / len(source)))

    def words(self) -> list[str]:
        texture, compressor = (str(job.out) for job in self.needs)
        words = ["lwd", "encode", CIFAR, "--texture", texture, "--semantic", self.encoder, "--compress", compressor]
        return [*words, "--batch", str(BATCH), "--dtype", "float16", "--device", "cpu", "--out", str(self.out)]

    def cost(self) -> Cost:
        return Cost(disk=2 * 50_000 * 64 * (16 + self.channels) * 2)


class _Share:
    """Turn the step of a fit into the share that was just done."""

    def __init__(self, advance: Advance, total: int) -> None:
        self.advance, self.total, self.last = advance, total, 0

    def __call__(self, step: int, _loss: float) -> None:
        self.advance((step - self.last) / self.total)
        self.last = step
