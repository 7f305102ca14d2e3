"""The corrected flow objective, its kinetic regulariser, and the two auxiliary terms of the final training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from lwd.compute.constants import constant
from lwd.errors import InputError, nearest
from lwd.groups import Layout

Reduction = Literal["channels", "groups"]
WeightGradient = Literal["exact", "stop", "none"]
KineticAverage = Literal["reduction", "groups"]


@dataclass(frozen=True)
class Losses:
    """The total to minimise, and every term as it enters the total: weighted, and averaged over the batch.

    `errors` and `energies` are l_g and mean |v_g|^2 without any weight.
    """

    total: Tensor
    flow: dict[str, Tensor]
    kinetic: dict[str, Tensor]
    cosine: Tensor
    align: Tensor
    errors: dict[str, Tensor] = field(repr=False)
    energies: dict[str, Tensor] = field(repr=False)

    def tensors(self) -> dict[str, Tensor]:
        """All values by name, detached, on their device."""
        named = {"total": self.total, "cosine": self.cosine, "align": self.align}
        for prefix in ("flow", "kinetic", "errors", "energies"):
            named |= {f"{prefix}/{name}": value for name, value in getattr(self, prefix).items()}
        return {name: value.detach() for name, value in named.items()}


@dataclass(frozen=True)
class FlowObjective:
    """sum_g c_g (w_g rate_g l_g + kinetic rate_g^2 mean|v_g|^2) + cosine D + align A.

    reduction: "channels" is the paper's global mean over channels, c_g = C_g / C; "groups" has c_g = 1.
    weight_gradient: how the correction omega_g = rate_g (Eq. invariant-weights) teaches the schedule.
        "exact" keeps its gradient, so that the total gradient is that of the local-time objective;
        "stop" is the paper's stop-gradient (Eq. corrected-weights); "none" is omega = 1, no correction.
    kinetic_average: "reduction" averages energies as errors, so that a group's ratio of kinetic to flow is the same
        lambda / w_g in both reductions; "groups" has c_g = 1 for energies, the scale of lambda before version 0.2.
    """

    layout: Layout
    weights: Mapping[str, float] = field(default_factory=dict)
    reduction: Reduction = "channels"
    weight_gradient: WeightGradient = "exact"
    kinetic: float = 0.0
    cosine: float = 0.0
    align: float = 0.0
    kinetic_average: KineticAverage = "reduction"

    def __post_init__(self) -> None:
        for name in self.weights:
            if name not in self.layout.names:
                raise InputError(f"weights name an unknown group {name!r}; {nearest(name, self.layout.names)}")
        numbers = {f"weight of {name}": value for name, value in self.weights.items()}
        numbers |= {name: getattr(self, name) for name in ("kinetic", "cosine", "align")}
        for name, value in numbers.items():
            if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
                raise InputError(f"{name} must be a finite number >= 0, got {value!r}")
        kinds = {"reduction": Reduction, "weight_gradient": WeightGradient, "kinetic_average": KineticAverage}
        for name, words in ((name, get_args(kind)) for name, kind in kinds.items()):
            if (value := getattr(self, name)) not in words:
                raise InputError(f"there is no {name} {value!r}; {nearest(str(value), words)}")
        object.__setattr__(self, "weights", {name: float(self.weights.get(name, 1)) for name in self.layout.names})

    def shares(self) -> dict[str, float]:
        """c_g: the part of the average that each group has."""
        if self.reduction == "groups":
            return dict.fromkeys(self.layout.names, 1.0)
        return {group.name: group.channels / self.layout.channels for group in self.layout}

    def weigh(self, errors: Tensor, energies: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
        """Flow and kinetic terms by group (Eq. corrected-flow-objective-expanded, Eq. reg).

        errors l_g, energies mean |v_g|^2, rates: (*b, n) each -> two (*b, n). The only place that applies the weights:
        training batches, tabulated surfaces and closed forms all use it.
        """
        rates = rates.to(errors.dtype)
        omega = {"exact": rates, "stop": rates.detach(), "none": torch.ones_like(rates)}[self.weight_gradient]
        shares = constant(tuple(self.shares().values()), errors.dtype, errors.device)
        products = tuple(share * self.weights[name] for name, share in self.shares().items())
        scales = constant(products, errors.dtype, errors.device)
        kinetic = self.kinetic * (shares if self.kinetic_average == "reduction" else 1.0)
        return scales * omega * errors, kinetic * rates.square() * energies

    def __call__(
        self,
        velocity: Tensor,
        target: Tensor,
        rates: Tensor,
        projected: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Losses:
        """velocity, target: (b, c, ...); rates: (b, n); projected, features: (b, d, ...), needed when align > 0."""
        if velocity.shape != target.shape:
            raise InputError(f"velocity has shape {tuple(velocity.shape)}, target {tuple(target.shape)}")
        if rates.shape != (len(velocity), len(self.layout)):
            raise InputError(f"rates must be ({len(velocity)}, {len(self.layout)}), got {tuple(rates.shape)}")
        velocity, target = _at_least_float32(velocity), _at_least_float32(target)
        errors = self.layout.means((velocity - target).square())
        energies = self.layout.means(velocity.square())
        flow, kinetic = (term.mean(0) for term in self.weigh(errors, energies, rates))
        zero = flow.new_zeros(())
        cosine = self.cosine * misdirection(velocity, target).mean() if self.cosine else zero
        align = self._align(projected, features, zero)
        return Losses(
            total=flow.sum() + kinetic.sum() + cosine + align,
            flow=self._by_group(flow),
            kinetic=self._by_group(kinetic),
            cosine=cosine,
            align=align,
            errors=self._by_group(errors.detach().mean(0)),
            energies=self._by_group(energies.detach().mean(0)),
        )

    def _align(self, projected: Tensor | None, features: Tensor | None, zero: Tensor) -> Tensor:
        if not self.align:
            if projected is not None or features is not None:
                raise InputError("features were given but align is 0, so they would have no effect; set align > 0")
            return zero
        if projected is None or features is None:
            raise InputError(f"align={self.align} needs both projected and features")
        if projected.shape != features.shape:
            raise InputError(f"projected {tuple(projected.shape)} and features {tuple(features.shape)} differ in shape")
        return self.align * misdirection(_at_least_float32(projected), _at_least_float32(features)).mean()

    def _by_group(self, values: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.layout.names, values.unbind(), strict=True))


def misdirection(a: Tensor, b: Tensor) -> Tensor:
    """1 - cosine over the channels of all groups, averaged over positions: (b, d, ...) -> (b,).

    The norm of a prediction is floored at a tenth of its target's. Without the floor the gradient grows as 1 / |a|: for
    a network initialised to zero it is 1e8, which stays in Adam's second moment for ten thousand steps.
    """
    length = torch.linalg.vector_norm(b, dim=1)
    floored = torch.maximum(torch.linalg.vector_norm(a, dim=1), 0.1 * length)
    cosine = (a * b).sum(1) / (floored * length).clamp(min=1e-12)
    return (1 - cosine).reshape(len(a), -1).mean(1)


def _at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
