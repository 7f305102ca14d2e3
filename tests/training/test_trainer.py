"""The loop: resumption to the bit, accumulation, guards, checkpoints that survive, bad input."""

import json
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file

import lwd
from lwd.errors import InputError
from lwd.io.locks import alone
from lwd.probing.joint import probe
from lwd.training import state
from lwd.training.journal import Averages, read_metrics
from lwd.training.train import train
from messages import says
from train_data import cpu, images, settings

DATA = images()


def tensors(run, step):
    folder = run / "checkpoints" / f"{step:08}"
    return load_file(folder / "training.safetensors") | {
        f"ema.{k}": v for k, v in load_file(folder / "model.safetensors").items()
    }


def same(a, b):
    assert a.keys() == b.keys()
    return all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("stage", ["train", "probe"])
def test_stopping_and_resuming_changes_no_bit(tmp_path, stage):
    """Oracle: 2n steps == n + resume + n, with EMA, Adam's moments, rho and its average."""
    run = {"train": train, "probe": probe}[stage]
    run(settings(), DATA, tmp_path / "whole", cpu())
    run(settings(run={"steps": 5}), DATA, tmp_path / "parts", cpu())
    run(settings(), DATA, tmp_path / "parts", cpu())
    assert same(tensors(tmp_path / "whole", 8), tensors(tmp_path / "parts", 8))
    lines = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "parts")]
    whole, parts = ([(line["step"], line["total"]) for line in run] for run in lines)
    assert whole == parts


def test_accumulated_parts_equal_one_large_batch(tmp_path):
    """Oracle: the gradient of a mean is the mean of the gradients; only rounding differs."""
    train(settings(), DATA, tmp_path / "one", cpu())
    train(settings(run={"accumulate": 4}), DATA, tmp_path / "four", cpu())
    one, four = tensors(tmp_path / "one", 8), tensors(tmp_path / "four", 8)
    for name in one:
        if name.startswith("exp_avg."):
            assert (one[name] - four[name]).abs().max() <= 1e-6, name
    losses = [[line["total"] for line in read_metrics(tmp_path / name / "metrics.jsonl")] for name in ("one", "four")]
    assert torch.tensor(losses[0]).sub(torch.tensor(losses[1])).abs().max() <= 1e-6


def test_the_average_is_the_written_out_recursion(tmp_path):
    """Oracle: ema_k = d ema_(k-1) + (1 - d) w_k from the weights after each step."""
    decay = 0.7
    train(settings(optimizer={"ema": decay}, run={"save_every": 1, "keep_last": 99}), DATA, tmp_path, cpu())
    expected = {k[8:]: v.double() for k, v in tensors(tmp_path, 0).items() if k.startswith("weights.")}
    for step in range(1, 9):
        weights = tensors(tmp_path, step)
        expected = {k: decay * v + (1 - decay) * weights[f"weights.{k}"].double() for k, v in expected.items()}
    for name, value in expected.items():
        torch.testing.assert_close(weights[f"ema.{name}"].double(), value, atol=1e-6, rtol=1e-5)


def test_a_checkpoint_samples_by_itself(tmp_path):
    """Oracle: lwd.load gives the averaged weights, schedule and layout of the run."""
    train(settings(), DATA, tmp_path, cpu())
    model = lwd.load(tmp_path / "checkpoints" / "00000008")
    assert model.schedule == lwd.Offset(0.3)
    assert str(model.layout) == "texture=4,semantic=2"
    assert torch.equal(model.velocity.x_embedder.proj.weight, tensors(tmp_path, 8)["ema.x_embedder.proj.weight"])
    assert model.provenance["step"] == 8


@pytest.mark.parametrize("harm", ["truncate", "flip", "missing", "state", "latest"])
def test_a_damaged_checkpoint_is_skipped_with_a_message(tmp_path, capsys, harm):
    """Oracle: the run goes on from the one before, and ends with the same bits."""
    train(settings(), DATA, tmp_path / "whole", cpu())
    run = tmp_path / "hurt"
    train(settings(run={"steps": 6}), DATA, run, cpu())
    newest = run / "checkpoints" / "00000006"
    content = (newest / "training.safetensors").read_bytes()
    if harm == "truncate":
        (newest / "training.safetensors").write_bytes(content[:-7])
    elif harm == "flip":
        (newest / "training.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif harm == "missing":
        (newest / "model.safetensors").unlink()
    elif harm == "state":
        (newest / "state.json").write_text("{")
    else:
        (run / "checkpoints" / "latest").write_bytes(b"../../etc")
    train(settings(), DATA, run, cpu())
    assert same(tensors(tmp_path / "whole", 8), tensors(run, 8))
    assert ("00000006" in capsys.readouterr().err) == (harm != "latest")


def test_the_last_few_and_every_so_many_are_kept(tmp_path):
    train(settings(run={"steps": 9, "save_every": 1, "keep_last": 2, "keep_every": 3}), DATA, tmp_path, cpu())
    names = {
        folder: sorted(p.name for p in (tmp_path / folder).iterdir() if p.is_dir())
        for folder in ("checkpoints", "kept")
    }
    assert names == {"checkpoints": ["00000008", "00000009"], "kept": ["00000003", "00000006", "00000009"]}
    assert (tmp_path / "checkpoints" / "latest").read_text() == "00000009"


class Poisoned:
    """Data with a NaN at some positions of the endless sequence, on the first attempt only."""

    def __init__(self, data, steps):
        self.data, self.steps = data, steps

    def __getattr__(self, name):
        return getattr(self.data, name)

    def batch(self, step, batch, seed, rank=0, world=1, flip=None):
        found = self.data.batch(step, batch, seed, rank, world, flip)
        if seed == 0 and step in self.steps:
            found.latents[0, 0, 0, 0] = float("nan")
        return found


def test_a_step_that_is_not_finite_is_skipped_and_counted(tmp_path, capsys):
    """Oracle: weights, moments and average after the bad step are those before it."""
    seen = {}

    def keep(trainer):
        moments = [part for entry in trainer.optimizer.state.values() for part in entry.values()]
        seen[trainer.step] = [part.detach().clone() for part in (*trainer.weights, *trainer.ema.shadow, *moments)]

    outcome = train(settings(), Poisoned(DATA, {3}), tmp_path, cpu(on_step=keep))
    assert outcome.skipped == 1
    assert all(torch.equal(a, b) for a, b in zip(seen[3], seen[4], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(seen[4], seen[5], strict=True))
    assert says("step 4").search(capsys.readouterr().err)
    assert read_metrics(tmp_path / "metrics.jsonl")[-1]["skipped"] == 1


def test_many_bad_steps_in_a_row_go_back_to_the_last_checkpoint(tmp_path, capsys):
    """Oracle: the run returns to step 4, draws other numbers, and finishes with finite weights."""
    config = settings(run={"steps": 12, "max_bad": 3})
    outcome = train(config, Poisoned(DATA, {5, 6, 7}), tmp_path, cpu())
    assert outcome.finished
    assert outcome.skipped == 3
    assert all(torch.isfinite(value).all() for value in tensors(tmp_path, 12).values())
    assert says("step 4", 1).search(capsys.readouterr().err)


def test_hopeless_runs_stop_with_advice(tmp_path):
    config = settings(run={"max_bad": 2, "max_rollbacks": 1})
    poisoned = Poisoned(DATA, set(range(99)))
    poisoned.batch = lambda step, batch, seed, *rest: _nan(DATA.batch(step, batch, seed, *rest))
    with pytest.raises(InputError, match=says("step 2", "optimizer.clip=1")):
        train(config, poisoned, tmp_path, cpu())
    assert (tmp_path / "checkpoints" / "00000000").is_dir()


def _nan(batch):
    batch.latents.fill_(float("nan"))
    return batch


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"optimizer": {"lr": 2e-3}}, "optimizer.lr"),
        ({"run": {"batch": 32}}, "run.batch"),
        ({"schedule": "synchronous"}, "schedule"),
        ({"network": {"width": 64}}, "network.width"),
    ],
)
def test_another_run_is_not_continued(tmp_path, changes, facts):
    train(settings(run={"steps": 4}), DATA, tmp_path, cpu())
    with pytest.raises(InputError, match=says(facts)):
        train(settings(**changes), DATA, tmp_path, cpu())


def test_other_data_are_not_continued(tmp_path):
    train(settings(run={"steps": 4}), DATA, tmp_path, cpu())
    with pytest.raises(InputError, match=says("data")):
        train(settings(), images(seed=1), tmp_path, cpu())


def test_a_disk_that_is_too_small_is_found_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(InputError, match=says("GB")):
        train(settings(), DATA, tmp_path, cpu())


def test_a_full_disk_later_loses_nothing(tmp_path, monkeypatch):
    """Oracle: the run stops with one sentence, and continues to the same bits when there is room again."""
    train(settings(), DATA, tmp_path / "whole", cpu())
    real = state.write_safetensors

    def full(path, content):
        if "00000004" in str(path) or "00000008" in str(path):
            raise OSError(28, "No space left on device")
        real(path, content)

    monkeypatch.setattr(state, "write_safetensors", full)
    with pytest.raises(InputError, match=says("No space left on device")):
        train(settings(), DATA, tmp_path / "full", cpu())
    monkeypatch.undo()
    train(settings(), DATA, tmp_path / "full", cpu())
    assert same(tensors(tmp_path / "whole", 8), tensors(tmp_path / "full", 8))
    assert not list((tmp_path / "full" / "checkpoints").glob(".0*"))


def test_metrics_survive_a_line_that_was_cut(tmp_path):
    train(settings(run={"steps": 4}), DATA, tmp_path, cpu())
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "tot')
    train(settings(), DATA, tmp_path, cpu())
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 9))


def test_training_needs_a_schedule(tmp_path):
    with pytest.raises(InputError, match=says("schedule", "offset:0.3", "synchronous")):
        train(settings(schedule=""), DATA, tmp_path, cpu())


def test_a_line_over_several_steps_is_the_same_after_an_interruption(tmp_path):
    """Oracle: means over 4 steps, stopped at step 6 in the middle of a window."""
    config = {"run": {"log_every": 4, "save_every": 100}}
    train(settings(**config), DATA, tmp_path / "whole", cpu())
    stopped = train(
        settings(**config),
        DATA,
        tmp_path / "parts",
        cpu(on_step=lambda t: t.step == 6 and signal.raise_signal(signal.SIGTERM)),
    )
    assert (stopped.step, stopped.finished) == (6, False)
    train(settings(**config), DATA, tmp_path / "parts", cpu())
    whole, parts = (read_metrics(tmp_path / name / "metrics.jsonl")[-1] for name in ("whole", "parts"))
    assert (whole["step"], whole["steps"], whole["total"]) == (parts["step"], parts["steps"], parts["total"])


def test_damaged_checkpoints_are_put_aside_and_never_outlive_good_ones(tmp_path):
    """Oracle: with one to keep, the new one stays although a damaged one has a higher step."""
    run = {"keep_last": 1, "save_every": 2}
    train(settings(run=run | {"steps": 6}), DATA, tmp_path, cpu())
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(checkpoints / "00000006", checkpoints / "00000004")
    value = json.loads((checkpoints / "00000004" / "state.json").read_text()) | {"step": 4}
    (checkpoints / "00000004" / "state.json").write_text(json.dumps(value))
    (checkpoints / "00000006" / "config.json").unlink()
    (checkpoints / "00000006" / "state.json").unlink()
    train(settings(run=run | {"steps": 5}), DATA, tmp_path, cpu())
    assert (checkpoints / "latest").read_text() == "00000005"
    assert (checkpoints / "00000005").is_dir()
    assert len(list(checkpoints.glob("damaged-00000006-*"))) == 1


def test_a_run_of_another_version_is_not_begun_anew(tmp_path):
    """Oracle: nothing is overwritten, not even the metrics."""
    train(settings(), DATA, tmp_path, cpu())
    for path in (tmp_path / "checkpoints").glob("0*/state.json"):
        path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match=says("checkpoints")):
        train(settings(), DATA, tmp_path, cpu())
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_two_processes_do_not_share_a_directory(tmp_path):
    with alone(tmp_path), pytest.raises(InputError, match=says(tmp_path)):
        train(settings(), DATA, tmp_path, cpu())
    train(settings(), DATA, tmp_path, cpu())


def test_a_tap_without_alignment_is_left_out_and_resumes(tmp_path):
    """Oracle: the model has no projector, and the second half runs."""
    train(settings(network={"tap": 1}, run={"steps": 4}), DATA, tmp_path, cpu())
    train(settings(network={"tap": 1}), DATA, tmp_path, cpu())
    assert not any("repa_projector" in name for name in tensors(tmp_path, 8))


def test_alignment_without_features_is_refused(tmp_path):
    with pytest.raises(InputError, match=says("objective.align", "features")):
        train(settings(network={"tap": 1}, objective={"align": 1.0}), DATA, tmp_path, cpu())


def test_going_back_leaves_no_second_line_and_no_new_checkpoint_in_a_bad_streak(tmp_path):
    """Oracle: steps in the metrics rise strictly; the checkpoint at 8, inside the streak, is not written."""
    config = settings(run={"steps": 12, "max_bad": 4, "save_every": 4, "keep_last": 99, "log_every": 1})
    train(config, Poisoned(DATA, {6, 7, 8, 9}), tmp_path, cpu())
    steps = [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert steps == sorted(set(steps))
    assert json.loads((tmp_path / "checkpoints" / "00000008" / "state.json").read_text())["rollbacks"] == 1


def test_numbers_for_the_log_are_reduced_on_the_device_in_one_exchange():
    """Oracle: NCCL takes no tensor on a CPU, and one collective per term would be slow."""
    seen = []

    class Fake:
        device = torch.device("meta")
        world = 2

        def mean(self, value):
            seen.append(value.device.type)
            return torch.zeros(value.shape)

    averages = Averages()
    averages.add([{"a": torch.ones(()), "b": torch.ones(())}])
    averages.count = 1
    assert averages.means(Fake()) == {"a": 0.0, "b": 0.0}
    assert seen == ["meta"]


def test_memory_readers_check_labels_and_know_their_layout():
    other = lwd.MemoryReader(DATA.latents, DATA.labels, lwd.Layout.of(texture=3, semantic=3))
    assert other.fingerprint != DATA.fingerprint
    with pytest.raises(InputError, match=says("labels", "0..1", 2)):
        lwd.MemoryReader(DATA.latents, DATA.labels, DATA.layout, classes=2)
