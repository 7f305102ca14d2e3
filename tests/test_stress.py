"""Numbers at their limits: each case gives the right answer, or is refused in one line."""

import pytest
import torch
from torch.testing import assert_close

import lwd
from lwd.errors import SolveError
from lwd.io.tensors import read_safetensors
from lwd.latents.memory import MemoryReader
from lwd.latents.shards import write_manifest, write_shard
from lwd.latents.statistics import Statistics
from lwd.latents.verify import verify
from lwd.training.train import train
from messages import says
from train_data import cpu, gaussian, images, settings

PAIR = lwd.Layout.of(texture=4, semantic=2)


def weights(out):
    return read_safetensors(lwd.checkpoints.directory.locate(out) / "model.safetensors")


def finite(out):
    return all(torch.isfinite(value).all() for value in weights(out).values())


def shards(directory, count=24, per=8, classes=2):
    """Three shards of random latents with their manifest."""
    generator, lines = torch.Generator().manual_seed(0), []
    for number in range(count // per):
        parts = {"latents": 4, "latents_sv": 2}
        tensors = {key: torch.randn(per, n, 4, 4, generator=generator) for key, n in parts.items()}
        labels = torch.arange(per) % classes
        lines.append(write_shard(directory / f"shard-{number}.safetensors", tensors | {"labels": labels}))
    ones = {"texture": torch.ones(4), "semantic": torch.ones(2)}
    write_manifest(directory, PAIR, classes, lines, Statistics({n: 0 * v for n, v in ones.items()}, ones))
    return directory


def steep(width):
    """A schedule whose semantic clock runs through [0, 1] in `width` of the global time."""
    return lwd.PiecewiseLinear([0, 0.5, 0.5 + width, 1], {"texture": [0, 0.5, 0.5, 1], "semantic": [0, 0, 1, 1]})


@pytest.mark.parametrize("width", [1e-3, 1e-6, 2e-9])
def test_rates_of_a_million_still_transport_noise_to_data(width):
    """Oracle: for Gaussian data the end of the flow has the data's covariance, whatever the schedule."""
    exact, schedule = gaussian(), steep(width)
    assert float(schedule.rates(0.5)[1]) == pytest.approx(1 / width)
    # The flow of a Gaussian is linear, so the images of the unit vectors are the columns of its matrix.
    units = torch.eye(2, dtype=torch.float64).reshape(2, 2, 1, 1)
    field = lwd.flow_field(exact, schedule, exact.layout, torch.zeros(2, dtype=torch.long))
    matrix = lwd.solve(field, units, "dopri5", rtol=1e-8, atol=1e-10, breakpoints=schedule.breakpoints).z.flatten(1).T
    assert_close(matrix @ matrix.T, exact.covariances[0].double(), atol=1e-6, rtol=0)


def test_kinks_that_no_step_can_separate_are_refused():
    """Oracle: 1e-9 is the documented spacing of knots."""
    with pytest.raises(lwd.InputError, match=says("tau")):
        lwd.PiecewiseLinear([0, 0.5, 0.5 + 5e-10, 1], {"texture": [0, 0.5, 0.5, 1], "semantic": [0, 0, 1, 1]})
    with pytest.raises(lwd.InputError, match=says("delta")):
        lwd.Offset(1e-10)


def test_a_guidance_scale_of_100_is_computed_or_refused():
    """Oracle: a guide of 0.999 times the main velocity gives 1.099 times it; a scale of 1e30 is a SolveError."""
    exact = gaussian()

    def weaker(z, times, label):
        return 0.999 * exact(z, times, label)

    guided = lwd.AutoGuidance(exact, weaker, 100.0, exact.layout)
    z, label = torch.randn(4, 2, 1, 1, dtype=torch.float64), torch.zeros(4, dtype=torch.long)
    times = torch.full((4, 2), 0.4, dtype=torch.float64)
    assert_close(guided(z, times, label), 1.099 * exact(z, times, label), rtol=1e-9, atol=0)
    drawn = lwd.sample(guided, lwd.Offset(0.3), exact.layout, seeds=range(4), size=(1, 1), method="heun", steps=20).z
    assert torch.isfinite(drawn).all()
    runaway = lwd.AutoGuidance(exact, lambda z, t, y: -exact(z, t, y), 1e30, exact.layout)
    with pytest.raises(SolveError) as problem:
        lwd.sample(runaway, lwd.Offset(0.3), exact.layout, seeds=range(4), size=(1, 1), max_nfe=300)
    assert "\n" not in str(problem.value)


def test_latents_of_scale_10000_train_and_keep_their_scale(tmp_path):
    """Oracle: statistics normalise them, so the run equals that of unit latents; without statistics it stays finite."""
    data = images(count=32)
    train(settings(run={"steps": 4}, optimizer={"clip": 1.0}), data, tmp_path / "unit", cpu())
    large = MemoryReader(1e4 * data.latents, data.labels, data.layout)
    train(settings(run={"steps": 4}, optimizer={"clip": 1.0}), large, tmp_path / "large", cpu())
    assert finite(tmp_path / "unit")
    assert finite(tmp_path / "large")
    scale = {"texture": torch.full((4,), 1e4), "semantic": torch.full((2,), 1e4)}
    statistics = Statistics({name: 0 * value for name, value in scale.items()}, scale)
    z = torch.randn(3, 6, 4, 4)
    assert_close(statistics.normalize(statistics.denormalize(z, PAIR), PAIR), z)
    assert float(statistics.denormalize(z, PAIR).abs().max()) > 1e4


def test_a_loss_spike_does_not_spoil_a_clipped_run(tmp_path):
    """Oracle: one latent of scale 1e6 among 32; the update of a step is bounded by the clip, so weights stay near."""
    data = images(count=32)
    data.latents[7] *= 1e6
    outcome = train(settings(run={"steps": 6}, optimizer={"clip": 1.0, "lr": 1e-3}), data, tmp_path / "run", cpu())
    assert outcome.finished
    assert finite(tmp_path / "run")
    assert max(float(value.abs().max()) for value in weights(tmp_path / "run").values()) < 10


def test_a_shard_with_nan_skips_the_steps_that_meet_it(tmp_path, capsys):
    """Oracle: the batches with its images are skipped, counted and named; verify names the shard."""
    folder = shards(tmp_path / "data")
    bad = folder / "shard-1.safetensors"
    tensors = read_safetensors(bad)
    tensors["latents"][0] = float("nan")
    write_shard(bad, tensors)
    assert any(bad.name in problem for problem in verify(folder))
    config = settings(run={"steps": 12, "batch": 4, "save_every": 12, "max_bad": 20})
    outcome = train(config, folder, tmp_path / "run", cpu())
    # 12 batches of 4 from 24 images: two epochs, so the image is met twice.
    assert (outcome.finished, outcome.skipped) == (True, 2)
    assert finite(tmp_path / "run")
    assert "not finite" in capsys.readouterr().err


def test_a_shard_that_shrinks_during_an_epoch_is_named(tmp_path):
    """Oracle: the file is truncated after the reader was opened and before it is first used."""
    folder = shards(tmp_path / "data")
    reader = lwd.LatentReader(folder)
    cut = folder / "shard-2.safetensors"
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(lwd.InputError, match=says(cut.name, "truncated")):
        reader.batch(0, 24, 0)


def test_one_image_of_one_class_trains_and_samples(tmp_path):
    """Oracle: shapes; a batch repeats the image."""
    data = images(count=1, classes=1)
    assert train(settings(run={"steps": 2, "batch": 4}), data, tmp_path / "run", cpu()).finished
    point = lwd.load(tmp_path / "run")
    assert point.config.classes == 1
    options = {"size": (4, 4), "method": "euler", "steps": 4}
    assert torch.isfinite(lwd.sample(point.velocity, point.schedule, PAIR, seeds=range(2), **options).z).all()


def test_a_million_classes_train_load_and_are_bounded(tmp_path):
    """Oracle: the label table has a row per class and one for "any class"; label 999,999 works, 1,000,001 does not."""
    data = images(count=8)
    labels = torch.tensor([0, 1, 2, 3, 999_996, 999_997, 999_998, 999_999])
    many = MemoryReader(data.latents, labels, data.layout, classes=10**6)
    config = settings(
        network={"depth": 1, "width": 8, "heads": 1}, run={"steps": 1, "batch": 4, "save_every": 1, "keep_last": 1}
    )
    assert train(config, many, tmp_path / "run", cpu()).finished
    point = lwd.load(tmp_path / "run")
    assert point.velocity.y_embedder.embedding_table.weight.shape == (10**6 + 1, 8)
    times = torch.zeros(1, 2)
    assert torch.isfinite(point.velocity(data.latents[:1], times, torch.tensor([999_999]))).all()
    with pytest.raises(lwd.InputError, match=says("classes")):
        lwd.LightningDiTConfig(PAIR, depth=1, width=8, heads=1, classes=2**40)
