"""The training loop of both stages: draw, step, average, log, save; it resumes even after a kill."""

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lwd.checkpoints.directory import write_checkpoint
from lwd.compute.order import mix
from lwd.errors import InputError
from lwd.io.files import check_writable, write_json
from lwd.io.locks import alone
from lwd.io.tensors import write_safetensors
from lwd.latents.ahead import Ahead
from lwd.latents.base import Latents
from lwd.latents.reader import Batch, StoredBatch
from lwd.models.lightningdit import LightningDiT
from lwd.objective import Losses
from lwd.path import interpolate
from lwd.representations.encoders import resize_map
from lwd.schedule.fixed import Synchronous
from lwd.training import snapshot, state
from lwd.training.config import Config, OptimizerSettings
from lwd.training.devices import full_copy
from lwd.training.draws import Draws, draw
from lwd.training.ema import EMA
from lwd.training.formats import LogSums, RunFile
from lwd.training.interrupts import interrupts
from lwd.training.journal import Averages, Journal
from lwd.training.task import RunOptions, Task, prepare
from lwd.version import __version__

CHECKPOINTS, KEPT = "checkpoints", "kept"
AHEAD = 4
"""Steps whose batches are read in advance."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: finished, or interrupted with everything saved."""

    step: int
    finished: bool
    skipped: int
    """Number of steps skipped because a loss or gradient was not finite."""


def adamw(settings: OptimizerSettings, weights: Sequence[Tensor]) -> torch.optim.AdamW:
    """The optimizer of the denoiser, in both stages."""
    sharded, betas = any(isinstance(weight, DTensor) for weight in weights), (settings.beta1, settings.beta2)
    return torch.optim.AdamW(
        weights, lr=settings.lr, betas=betas, weight_decay=settings.weight_decay, fused=not sharded
    )


class Trainer:
    """One run in one directory."""

    def __init__(
        self, config: Config, data: Latents, out: str | os.PathLike[str], task: Task, options: RunOptions | None = None
    ) -> None:
        self.options, self.devices = prepare(options, config)
        self.config, self.data, self.out = config, data, Path(out)
        self.schedule, self.objective, self.probe, self.inner = task.schedule, task.objective, task.rho, task.network
        self.provenance = dict(task.provenance)
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
        self.step, self.bad, self.skipped, self.rollbacks = 0, 0, 0, 0
        self.journal = Journal(self.out, self.devices, config.to_dict(), self.options.wandb)
        self.averages = Averages()
        self.last_line: dict[str, float] = {}
        self._ahead = Ahead(self._gather)

    def _prepare_folder(self, network: nn.Module) -> None:
        size = sum(p.numel() * p.element_size() for p in network.parameters())
        if self.devices.main:
            check_writable(self.out)
            state.check_space(self.out, 5 * size)  # weights, EMA, two moments, and a margin

    def run(self) -> Outcome:
        """Train to the last step, from the newest checkpoint if there is one."""
        with alone(self.out) if self.devices.main else nullcontext():
            return self._run()

    def _run(self) -> Outcome:
        if self.devices.main:
            state.sweep(self.out / CHECKPOINTS)
        self.resume()
        started, first = time.monotonic(), self.step
        with interrupts() as stop:
            while self.step < self.config.run.steps:
                before = self.step
                self.advance()
                if self.step <= before:  # returned to a checkpoint
                    continue
                if self.step % self.config.run.log_every == 0 or self.step == self.config.run.steps:
                    self._log(time.monotonic() - started, first)
                if self.options.on_step is not None:
                    self.options.on_step(self)
                leave = self.devices.any(stop.asked)
                if leave or (self._is_due() and not self.bad):
                    self.save()
                if leave and self.step < self.config.run.steps:
                    break
        self._ahead.close()
        self.journal.close()
        return Outcome(self.step, self.step >= self.config.run.steps, self.skipped)

    def _is_due(self) -> bool:
        run = self.config.run
        every = (run.save_every, *((run.sample_every,) if run.sample_every else ()))
        return self.step == run.steps or self.step in run.keep_at or any(self.step % n == 0 for n in every)

    def is_kept(self, step: int) -> bool:
        """Whether the averaged weights of a step are kept for good."""
        run = self.config.run
        return step in run.keep_at or bool(step and run.keep_every and step % run.keep_every == 0)

    def advance(self) -> None:
        """Take one step: forward and backward over all parts, then the optimizer unless something is not finite."""
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
        # This synchronises once per step: a non-finite update could not be undone later.
        if not bool(torch.isfinite(norm)):
            self._skip()
            return
        self.bad = 0
        if self.config.optimizer.clip:
            scale = (self.config.optimizer.clip / norm).clamp(max=1.0)
            torch._foreach_mul_([w.grad for w in self.weights if w.grad is not None], scale)
        self.optimizer.step()
        self.ema.update(self.step)
        if self.probe is not None:
            steps = self.config.run.steps
            self.probe.update(self.step, self.step % max(1, steps // 100) == 0 or self.step == steps)
        for term in terms:
            self.averages.add(term, 1 / self.parts)
        self.averages.add({"gradient norm": norm})
        self.averages.count += 1

    def losses(self, batch: Batch, draws: Draws) -> Losses:
        """The objective on one batch (Eq. flow-objective; with a probe, Eq. rho-objective)."""
        latents, labels = (x.to(self.devices.device, non_blocking=True) for x in (batch.latents, batch.labels))
        times, rates = draws.clocks(self.schedule)
        z, target = interpolate(latents, draws.noise, times, self.data.layout)
        if self.config.run.labels and self.config.run.label_drop:
            labels = torch.where(draws.dropped, torch.full_like(labels, self.data.classes), labels)
        if not self.objective.align:
            return self.objective(self.network(z, times, labels), target, rates)
        if batch.features is None:
            raise InputError("objective.align needs features of the images; encode them, or set it to 0")
        features = batch.features.to(self.devices.device, non_blocking=True)
        velocity, projected = self.network(z, times, labels, features=True)
        features = resize_map(features, *projected.shape[2:])
        return self.objective(velocity, target, rates, projected, features)

    def _draws(self, part: int, share: int) -> Draws:
        run, first = self.config.run, (part * self.devices.world + self.devices.rank) * share
        shape = (run.batch, self.data.layout.channels, *self.data.size)
        key, rows = (run.seed, self.rollbacks, self.step), slice(first, first + share)
        groups = 0 if self.schedule is not None else len(self.data.layout)
        return draw(key, shape, rows, run.tau, run.label_drop, self.devices.device, groups)

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
        norm = nn.utils.get_total_norm([w.grad for w in self.weights if w.grad is not None])
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        if self.probe is None:
            return norm
        rho = self.probe.schedule.rho
        if rho.grad is None:
            raise InputError("the loss does not depend on the schedule, so there is nothing to learn")
        # A few numbers, averaged here because rho is not part of the wrapped network.
        rho.grad = self.devices.mean(rho.grad)
        return norm + 0 * rho.grad.float().norm()  # only passes on NaN and infinity

    def _skip(self) -> None:
        self.bad, self.skipped = self.bad + 1, self.skipped + 1
        if self.bad < self.config.run.max_bad:
            self.journal.say(f"step {self.step}: loss or gradient is not finite; the step is skipped")
            return
        if self.rollbacks >= self.config.run.max_rollbacks:
            raise InputError(
                f"step {self.step}: {self.bad} steps in a row were not finite, also after {self.rollbacks} returns to "
                "a checkpoint; lower optimizer.lr, set optimizer.clip=1, or check the data"
            )
        attempt, skipped, failed = self.rollbacks + 1, self.skipped, self.step
        self.resume()
        self.rollbacks, self.skipped, self.bad = attempt, skipped, 0
        self.journal.say(
            f"step {failed}: {self.config.run.max_bad} steps in a row were not finite; back to the checkpoint of step "
            f"{self.step} with other random numbers (return {attempt} of {self.config.run.max_rollbacks})"
        )

    def _log(self, seconds: float, first: int) -> None:
        count = self.averages.count
        numbers = self.averages.means(self.devices)
        self.averages = Averages()
        numbers |= {"lr": float(self.optimizer.param_groups[0]["lr"]), "steps": count, "skipped": self.skipped}
        numbers["steps per second"] = (self.step - first) / max(seconds, 1e-9)
        self.journal.write(self.step, numbers)
        self.last_line = numbers

    def save(self) -> None:
        """Write a checkpoint with the complete state of the run, independent of the number of processes."""
        keep = self.devices.main
        average = {name: full_copy(shadow, keep) for name, shadow in zip(self.names, self.ema.shadow, strict=True)}
        tensors = snapshot.of_network(self.names, self.weights, self.optimizer, keep)
        numbers: dict[str, Any] = {"bad": self.bad, "skipped": self.skipped, "rollbacks": self.rollbacks}
        numbers |= {
            "updates": snapshot.updates(self.optimizer),
            "averages": LogSums(**self.averages.sums_over(self.devices)),
        }
        if self.probe is not None:
            tensors |= snapshot.of_rho(self.probe)
            numbers |= {"averaged": self.probe.average.count, "rho_updates": snapshot.updates(self.probe.optimizer)}
        numbers |= {"config": self.config.to_dict(), "lwd": __version__} | self._about()
        if self.devices.main:
            folder = self.out / CHECKPOINTS
            with state.writing(folder, self.step, tensors, numbers) as target:
                if isinstance(self.inner, LightningDiT):
                    record = {"step": self.step} | self.provenance
                    curve = self.schedule or Synchronous(self.data.layout.names)
                    record |= {"any_schedule": True} if self.schedule is None else {}
                    write_checkpoint(
                        target, self.inner.config, average, curve, self.data.statistics, record, self.config.sampling
                    )
                else:
                    write_safetensors(target / state.MODEL, average)
            if self.is_kept(self.step):
                state.keep_model(folder / f"{self.step:08}", self.out / KEPT)
            state.prune(folder, self.config.run.keep_last, self.out / KEPT, self.is_kept)
            if self.options.after_save is not None:
                self.options.after_save(folder / f"{self.step:08}", self.step)
        self.devices.wait()

    def _newest(self) -> state.Saved | None:
        """Read the newest intact checkpoint; the main process chooses it, so that all processes use the same."""
        folder = self.out / CHECKPOINTS
        found = state.newest(folder, self.journal.say) if self.devices.main else None
        step = self.devices.from_main(-1 if found is None else found.step)
        if step < 0 or found is not None:
            return found
        path = folder / f"{step:08}"
        if not path.is_dir():
            raise InputError(f"{path} is not on this machine; all nodes must share the directory of the run")
        return state.read(path, verify=False)

    def _about(self) -> dict[str, Any]:
        """Data and schedule, which affect the result in addition to the settings."""
        fixed = self.schedule.to_dict() if self.schedule is not None and not self.probe else None
        return {"data": self.data.fingerprint, "schedule": fixed}

    def resume(self) -> None:
        """Restore the newest intact checkpoint; a new run writes its first one, to fail early if it cannot."""
        found = self._newest()
        if found is not None:
            snapshot.check_same_run(found, self.config, self._about(), self.probe is not None)
        if self.devices.main:
            alone = getattr(self.data, "shards_fingerprint", "")
            record = RunFile(config=self.config.to_dict(), data=self.data.fingerprint, latents=alone)
            write_json(self.out / "run.json", record.to_dict())
        if found is None:
            self.journal.rewind(-1)
            if self.probe is not None:
                self.probe.record(0)
            self.save()
            return
        snapshot.restore_network(found, self.names, self.weights, self.ema.shadow, self.optimizer)
        if self.probe is not None:
            snapshot.restore_rho(found, self.probe)
        self.step, self.bad = found.step, found.state.bad
        self.skipped, self.rollbacks = found.state.skipped, found.state.rollbacks
        if self.devices.main and self.is_kept(self.step):  # killed after saving, before keeping
            state.keep_model(found.path, self.out / KEPT)
        self.journal.rewind(self.step)
        self.averages = Averages.of(found.state.averages, self.devices)
