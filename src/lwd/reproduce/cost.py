"""What a job costs: operations of the network, memory of a training, bytes on disk."""

from dataclasses import dataclass

from lwd.models.lightningdit import LightningDiTConfig
from lwd.models.operations import forward_operations, parameters

BF16_PEAK, FP32_PEAK = 989e12, 67e12
"""Operations per second of the assumed GPU (H100 SXM): training in bf16 autocast, sampling in float32."""
UTILISATION = 0.4
"""Assumed share of the peak; it was not measured."""
DOPRI5_NFE = 100
"""Assumed evaluations per sample of dopri5, which chooses its own steps."""
STATE, TRAINING_CHECKPOINT, KEPT = 20, 16, 4
"""Bytes per parameter: in memory (weights, gradients, two moments, average), in a checkpoint, in a kept model."""


@dataclass(frozen=True)
class Cost:
    """Operations of training and of sampling, bytes on disk, bytes of GPU memory without activations."""

    training: float = 0.0
    sampling: float = 0.0
    disk: float = 0.0
    memory: float = 0.0

    @property
    def gpu_hours(self) -> float:
        """Hours of one assumed GPU."""
        return (self.training / BF16_PEAK + self.sampling / FP32_PEAK) / UTILISATION / 3600

    def __add__(self, other: "Cost") -> "Cost":
        """Jobs run one after the other: memory is the largest of both."""
        return Cost(
            self.training + other.training,
            self.sampling + other.sampling,
            self.disk + other.disk,
            max(self.memory, other.memory),
        )


def training_cost(c: LightningDiTConfig, steps: int, batch: int, checkpoints: int, kept: int) -> Cost:
    """A backward pass takes twice the operations of a forward pass."""
    count = parameters(c)
    disk = count * (TRAINING_CHECKPOINT * checkpoints + KEPT * kept)
    return Cost(3 * forward_operations(c) * batch * steps, 0.0, disk, count * STATE)


def sampling_cost(operations: float, count: int, nfe: int, size: int) -> Cost:
    """operations: of one evaluation of the model and its guide. The set is stored twice while it is assembled."""
    return Cost(0.0, operations * nfe * count, 2.0 * count * 3 * size**2)
