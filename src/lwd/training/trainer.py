"""The training loop of both stages: draw, step, average, log, save; it resumes even after a kill."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lwd.compute.conditions import dropped
from lwd.compute.order import mix
from lwd.errors import InputError
from lwd.io.files import check_writable, write_json
from lwd.io.locks import alone
from lwd.latents.ahead import AHEAD, Ahead
from lwd.latents.base import Latents
from lwd.latents.batch import Batch, StoredBatch
from lwd.models.lightningdit import LightningDiT
from lwd.models.operations import forward_operations
from lwd.objective import Losses
from lwd.path import interpolate
from lwd.representations.encoders import resize_map
from lwd.schedule.fixed import Synchronous
from lwd.training import snapshot, state
from lwd.training.config import Config, OptimizerSettings
from lwd.training.devices import local
from lwd.training.draws import Draws, draw
from lwd.training.ema import EMA
from lwd.training.formats import LogSums, RunFile
from lwd.training.guard import Guard
from lwd.training.interrupts import Stop, interrupts
from lwd.training.journal import Averages, Journal
from lwd.training.meter import WINDOW, Meter, Spikes, peak
from lwd.training.saving import KEPT, Saver, averages_on_host, model_writer
from lwd.training.shards import staged
from lwd.training.task import RunOptions, Task, prepare
from lwd.training.text import prepare_data
from lwd.training.watch import Watch
from lwd.version import __version__


@dataclass(frozen=True)
class Outcome:
    """How a run ended: finished, or interrupted with everything saved."""

    step: int
    finished: bool
    skipped: int
    """Number of steps skipped because a loss or gradient was not finite."""


def adamw(settings: OptimizerSettings, weights: Sequence[Tensor]) -> torch.optim.AdamW:
    """The optimizer of the denoiser, in both stages. Fused: it can skip an update without waiting for the device."""
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(weights, lr=settings.lr, betas=betas, weight_decay=settings.weight_decay, fused=True)


class Trainer:
    """One run in one directory."""

    def __init__(
        self, config: Config, data: Latents, out: str | os.PathLike[str], task: Task, options: RunOptions | None = None
    ) -> None:
        self.options, self.devices = prepare(options, config)
        self.config, self.data, self.out = config, data, Path(out)
        self.schedule, self.objective, self.probe, self.inner = task.schedule, task.objective, task.rho, task.network
        self.provenance, self.focus = dict(task.provenance), task.focus
        self.parts = config.run.accumulate
        if config.run.batch % (self.devices.world * self.parts):
            raise InputError(
                f"run.batch must be a multiple of {self.devices.world} processes x {self.parts} parts, "
                f"got {config.run.batch}",
                argument="run.batch",
            )
        self._prepare_folder(self.inner)
        self.network = self.devices.wrap(self.inner)
        self.names = [name for name, _ in self.inner.named_parameters()]
        self.weights = [parameter for _, parameter in self.inner.named_parameters()]
        self.optimizer = adamw(config.optimizer, self.weights)
        self.ema = EMA(self.weights, config.optimizer.ema, config.optimizer.ema_warmup)
        self.step, self.skipped, self.rollbacks = 0, 0, 0
        self.guard = Guard(self.devices.device, config.run.max_bad)
        self.saver = Saver(self.out, self.devices, config.run.keep_last, self.is_kept)
        self.watch = Watch(self.devices, config.run.save_minutes)
        self.meter, self.spikes = self._meter(), Spikes()
        self.journal = Journal(self.out, self.devices, config.to_dict(), self.options.wandb)
        self.averages, self.last_line, self._ahead = Averages(), dict[str, float](), Ahead(self._gather)

    def _prepare_folder(self, network: nn.Module) -> None:
        size = sum(p.numel() * p.element_size() for p in network.parameters())
        if self.devices.main:
            check_writable(self.out)
            state.check_space(self.out, 5 * size)  # weights, EMA, two moments, and a margin

    def run(self) -> Outcome:
        """Train to the last step, from the newest checkpoint if there is one."""
        # The lock is held until the last byte is written, also after an error.
        with alone(self.out) if self.devices.main else nullcontext(), self.saver:
            return self._run()

    def _run(self) -> Outcome:
        if self.devices.main:
            state.sweep(self.saver.folder)
        self.resume()
        prepare_data(self.data, self.devices, self.journal.say)
        with interrupts() as stop:
            while self.step < self.config.run.steps:
                self.advance()
                if self._look_up(stop):
                    break
            self._finish_save()  # another signal must not end it
        self._ahead.close()
        self.journal.close()
        return Outcome(self.step, self.step >= self.config.run.steps, self.skipped)

    def _look_up(self, stop: Stop) -> bool:
        """What happens between two steps: review, log, save. Returns whether to leave; waits for the device rarely."""
        run, last = self.config.run, self.step == self.config.run.steps
        logs, saves, looks = last or self.step % run.log_every == 0, self._is_due(), self.watch.is_due(self.step)
        attentive = logs or saves or looks
        bad = self._review() if attentive else 0
        if bad is None:  # returned to a checkpoint
            return False
        if logs:
            self._log()
        if self.options.on_step is not None:
            self.options.on_step(self)
        if not attentive:
            return False
        look = self.watch.look(self.step, stop.asked, self.saver.busy)
        if self.saver.pending and not look.saving:
            self._finish_save()
        if look.stop or ((saves or look.save) and not bad):
            self.save()
        return look.stop and not last

    def _is_due(self) -> bool:
        run = self.config.run
        every = (run.save_every, *((run.sample_every,) if run.sample_every else ()))
        return self.step == run.steps or self.step in run.keep_at or any(self.step % n == 0 for n in every)

    def is_kept(self, step: int) -> bool:
        """Whether the averaged weights of a step are kept for good."""
        run = self.config.run
        return step in run.keep_at or bool(step and run.keep_every and step % run.keep_every == 0)

    def advance(self) -> None:
        """Take one step: forward and backward over all parts, then an update that is void unless all is finite."""
        with self.meter.waiting():
            batches = self._fetch()
        self.optimizer.zero_grad()
        if self.probe is not None:
            self.probe.optimizer.zero_grad()
        terms: list[dict[str, Tensor]] = []
        for part, batch in enumerate(batches):
            with self.devices.partial(self.network, part == self.parts - 1), self.devices.autocast():
                losses = self.losses(batch, self._draws(part, len(batch.labels)))
            (losses.total / self.parts).backward()  # type: ignore[no-untyped-call]
            terms.append(losses.tensors())
        self._set_rate()
        norm = self._norm()
        self.step += 1
        skip = self.guard.check(norm, self.step)
        if self.config.optimizer.clip:
            scale = (self.config.optimizer.clip / norm).clamp(max=1.0)
            torch._foreach_mul_([local(w.grad) for w in self.weights if w.grad is not None], scale)
        self.optimizer.found_inf = skip  # type: ignore[attr-defined]
        self.optimizer.step()
        self.ema.update(self.step, skip)
        if self.probe is not None:
            steps = self.config.run.steps
            self.probe.update(self.step, self.step % max(1, steps // 100) == 0 or self.step == steps, skip)
        self.averages.add([part | {"gradient norm": norm} for part in terms], 1 - skip)

    def losses(self, batch: Batch, draws: Draws) -> Losses:
        """The objective on one batch (Eq. flow-objective; with a probe, Eq. rho-objective)."""
        labels, (times, rates) = (batch := batch.to(self.devices.device)).labels, draws.clocks(self.schedule)
        z, target = interpolate(batch.latents, draws.noise, times, self.data.layout)
        if self.config.run.labels and self.config.run.label_drop:
            labels = dropped(labels, draws.dropped, getattr(self.data, "null", self.data.classes))
        if not self.objective.align:
            return self.objective(self.network(z, times, labels), target, rates)
        if batch.features is None:
            raise InputError("objective.align needs features of the images; encode them, or set it to 0")
        velocity, projected = self.network(z, times, labels, features=True)
        features = resize_map(batch.features, *projected.shape[2:])
        return self.objective(velocity, target, rates, projected, features)

    def _draws(self, part: int, share: int) -> Draws:
        run, probe, first = self.config.run, self.config.probe, (part * self.devices.world + self.devices.rank) * share
        shape = (run.batch, self.data.layout.channels, *self.data.size)
        key, rows = (run.seed, self.rollbacks, self.step), slice(first, first + share)
        if self.schedule is not None:
            return draw(key, shape, rows, (run.tau, run.tau_mean), run.label_drop, self.devices.device)
        times, groups = (probe.times, probe.times_mean), len(self.data.layout)
        return self.focus(draw(key, shape, rows, times, run.label_drop, self.devices.device, groups), first)

    def _fetch(self) -> list[Batch]:
        """Return the batches of this step, on the device; on a GPU those of the next steps are read meanwhile."""
        now = (self.rollbacks, self.step)
        if self.devices.device.type == "cpu":  # more threads would compete for the same cores
            return [batch.to(self.devices.device) for batch in self._gather(now)]
        following = [(self.rollbacks, self.step + k) for k in range(1, AHEAD + 1)]
        return [batch.to(self.devices.device) for batch in self._ahead.get(now, following)]

    def _gather(self, key: tuple[int, int]) -> Sequence[Batch | StoredBatch]:
        (attempt, step), run, world = key, self.config.run, self.devices.world
        seed = run.seed if not attempt else mix(run.seed, attempt) % 2**32
        flip = run.flip and self.data.mirrored
        ranks = (part * world + self.devices.rank for part in range(self.parts))
        cpu = self.devices.device.type == "cpu"
        read = self.data.batch if cpu else getattr(self.data, "stored", self.data.batch)
        return [read(step, run.batch, seed, rank, self.parts * world, flip) for rank in ranks]

    def _set_rate(self) -> None:
        o, step = self.config.optimizer, self.step
        rate = min(1.0, (step + 1) / o.warmup) if o.warmup else 1.0
        if o.decay == "cosine":
            rate *= 0.5 * (1 + cos(pi * step / self.config.run.steps))
        for group in self.optimizer.param_groups:
            group["lr"] = o.lr * rate

    def _norm(self) -> Tensor:
        """Return the total gradient norm, in float32, equal on all processes."""
        norm = self.devices.norm([w.grad for w in self.weights if w.grad is not None])
        if self.probe is None:
            return norm
        rho = self.probe.schedule.rho
        if rho.grad is None:
            raise InputError("the loss does not depend on the schedule, so there is nothing to learn")
        # A few numbers, averaged here because rho is not part of the wrapped network.
        rho.grad = self.devices.mean(rho.grad)
        return norm + 0 * rho.grad.float().norm()  # only passes on NaN and infinity

    def _review(self) -> int | None:
        """Read what the guard has seen: non-finite steps in a row, or None after a return to a checkpoint."""
        seen = self.guard.review()
        new, self.skipped = seen.skipped - self.skipped, seen.skipped
        if not seen.tripped:
            if new:
                many = f"{new} steps up to step {seen.last}" if new > 1 else f"step {seen.last}"
                self.journal.say(f"{many}: loss or gradient is not finite; the update is skipped")
            return seen.bad
        if self.rollbacks >= self.config.run.max_rollbacks:
            raise InputError(
                f"step {seen.last}: {seen.bad} steps in a row were not finite, also after {self.rollbacks} returns to "
                "a checkpoint; lower optimizer.lr, set optimizer.clip=1, or check the data"
            )
        attempt = self.rollbacks + 1
        self._finish_save()
        self.resume()
        self.rollbacks = attempt
        self._reset_guard(0, seen.skipped)
        self.journal.say(
            f"step {seen.last}: {self.config.run.max_bad} steps in a row were not finite; back to the checkpoint of "
            f"step {self.step} with other random numbers (return {attempt} of {self.config.run.max_rollbacks})"
        )
        return None

    def _reset_guard(self, bad: int, skipped: int) -> None:
        self.guard = Guard(self.devices.device, self.config.run.max_bad, bad, skipped)
        self.skipped = skipped

    def _meter(self) -> Meter:
        device, network = self.devices.device, self.inner
        forward = forward_operations(network.config) if isinstance(network, LightningDiT) else 0.0
        best = peak(device) if self.devices.bf16 else None
        return Meter(device, self.devices.world, 3 * self.config.run.batch * forward, best)

    def _log(self) -> None:
        numbers = self.averages.means(self.devices)
        rate, count = float(self.optimizer.param_groups[0]["lr"]), int(self.averages.count)
        numbers |= {"lr": rate, "steps": count, "skipped": self.skipped, **self.meter.read(self.step)}
        self.averages = Averages()
        if "total" in numbers and self.spikes.is_spike(numbers["total"]):
            self.journal.say(f"step {self.step}: the loss has a spike ({numbers['total']:.4g})")
            numbers["spike"] = 1
        self.journal.write(self.step, numbers)
        self.last_line = numbers

    def save(self) -> None:
        """Start writing a checkpoint with the complete state of the run, independent of the number of processes."""
        self._finish_save()
        tensors = snapshot.of_network(self.names, self.weights, self.optimizer)
        seen, sums = self.guard.review(), LogSums(**self.averages.sums_over(self.devices))
        numbers: dict[str, Any] = {"bad": seen.bad, "skipped": seen.skipped, "rollbacks": self.rollbacks}
        numbers |= {"updates": snapshot.updates(self.optimizer), "averages": sums}
        if self.probe is not None:
            tensors |= snapshot.of_rho(self.probe)
            numbers |= {"averaged": int(self.probe.average.count)}
            numbers |= {"rho_updates": snapshot.updates(self.probe.optimizer)}
        numbers |= {"config": self.config.to_dict(), "lwd": __version__} | self._about()
        record: dict[str, Any] = {"step": self.step} | self.provenance
        record |= {"any_schedule": True} if self.schedule is None else {}
        curve = self.schedule or Synchronous(self.data.layout.names)
        average = averages_on_host(self.names, self.ema.shadow, self.devices)
        write = model_writer(self.inner, average, curve, self.data.statistics, record, self.config)
        self.saver.start(state.Snapshot(self.step, staged(tensors, self.devices.replica), numbers, write))
        self.watch.saved()

    def _finish_save(self) -> None:
        """Wait for the save under way, if any; then draw what belongs to it."""
        step = self.saver.finish()
        if step is None:
            return
        if self.devices.main and self.options.after_save is not None:
            try:
                self.options.after_save(self.saver.folder / f"{step:08}", step)
            except Exception as error:  # a picture is not worth a run
                self.journal.say(f"step {step}: no sample grid ({type(error).__name__}: {error}); training goes on")
        self.devices.wait()

    def _about(self) -> dict[str, Any]:
        """Data and schedule, which affect the result in addition to the settings."""
        curve = self.schedule if self.schedule is not None and not self.probe else self.focus
        return {"data": self.data.fingerprint, "schedule": curve.to_dict()}

    def resume(self) -> None:
        """Restore the newest intact checkpoint; a new run writes its first one, to fail early if it cannot."""
        found = self.saver.newest(self.journal.say)
        if found is not None:
            kind = "joint" if self.probe is not None else "" if self.schedule is not None else "surface"
            snapshot.check_same_run(found, self.config, self._about(), kind)
        if self.devices.main:
            about = {"data": self.data.fingerprint, "latents": getattr(self.data, "shards_fingerprint", "")}
            record = RunFile(config=self.config.to_dict(), **about, wandb=self.journal.wandb)
            write_json(self.out / "run.json", record.to_dict())
        if found is None:
            self.journal.rewind(-1)
            if self.probe is not None:
                self.probe.record(0)
            self.save()
            self._finish_save()
            return
        snapshot.restore_network(found, self.names, self.weights, self.ema.shadow, self.optimizer)
        if self.probe is not None:
            snapshot.restore_rho(found, self.probe)
        self.step, self.rollbacks = found.step, found.state.rollbacks
        self._reset_guard(found.state.bad, found.state.skipped)
        if self.devices.main and self.is_kept(self.step):  # killed after saving, before keeping
            state.keep_model(found.path, self.out / KEPT)
        self.journal.rewind(self.step)
        self.spikes = Spikes(self.journal.losses()[-WINDOW:])
        self.meter.start(self.step)
        self.watch.start(self.step)
        self.averages = Averages.of(found.state.averages, self.devices)
