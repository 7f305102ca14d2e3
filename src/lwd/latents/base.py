"""The interface of latents that training reads."""

from typing import Protocol

from lwd.groups import Layout
from lwd.latents.batch import Batch
from lwd.latents.statistics import Statistics


class Latents(Protocol):
    """Latents for training: shards (`LatentReader`) or tensors in memory (`MemoryReader`)."""

    @property
    def layout(self) -> Layout: ...

    @property
    def size(self) -> tuple[int, ...]: ...

    @property
    def classes(self) -> int: ...

    @property
    def mirrored(self) -> bool: ...

    @property
    def statistics(self) -> Statistics | None: ...

    @property
    def fingerprint(self) -> str: ...

    def __len__(self) -> int: ...

    def batch(
        self, step: int, batch: int, seed: int, rank: int = 0, world: int = 1, flip: bool | None = None
    ) -> Batch: ...
