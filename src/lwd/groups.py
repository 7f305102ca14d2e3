"""Named groups of channels: which slice of the composite state runs on which clock."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from lwd.errors import InputError, nearest

PAPER_GROUPS = ("texture", "semantic")


@dataclass(frozen=True)
class Group:
    """One representation: a name and its number of channels."""

    name: str
    channels: int

    def __post_init__(self) -> None:
        check_names((self.name,))
        if isinstance(self.channels, bool) or not isinstance(self.channels, int) or not 1 <= self.channels <= 2**20:
            raise InputError(f"group {self.name!r} needs 1 to {2**20} channels (an integer), got {self.channels!r}")


@dataclass(frozen=True)
class Layout:
    """The groups of a composite state z in channel order (the paper: texture first, semantic last)."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        for group in self.groups:
            if not isinstance(group, Group):
                raise InputError(f"Layout takes groups such as Group('texture', 32), got {group!r}")
        check_names(self.names)

    @classmethod
    def of(cls, **channels: int) -> "Layout":
        """`Layout.of(texture=32, semantic=16)`."""
        return cls(tuple(Group(name, count) for name, count in channels.items()))

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """`Layout.parse("texture=32,semantic=16")`, as on the command line."""
        groups = []
        for part in text.split(","):
            name, separator, count = part.strip().partition("=")
            if not separator or not count.strip().isdecimal():
                raise InputError(f"groups are written as texture=32,semantic=16; cannot read {part.strip()!r}")
            groups.append(Group(name.strip(), int(count)))
        return cls(tuple(groups))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(group.name for group in self.groups)

    @property
    def channels(self) -> int:
        """Channels of the composite state."""
        return sum(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(group.channels for group in self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __str__(self) -> str:
        return ",".join(f"{group.name}={group.channels}" for group in self.groups)

    def index(self, name: str) -> int:
        """Column of group `name` in times and rates."""
        return index_of(name, self.names)

    def slice(self, name: str) -> "slice":
        """Channels of group `name`."""
        stops = list(accumulate(self.sizes))
        i = self.index(name)
        return slice(stops[i] - self.sizes[i], stops[i])

    def split(self, z: Tensor) -> dict[str, Tensor]:
        """Views of z (b, c, ...) by group name."""
        self.check(z)
        return dict(zip(self.names, z.split_with_sizes(self.sizes, dim=1), strict=True))

    def join(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Inverse of `split`: concatenate the groups' channels in layout order."""
        if set(parts) != set(self.names):
            raise InputError(f"join needs exactly the groups {', '.join(self.names)}, got {', '.join(parts)}")
        for name, size in zip(self.names, self.sizes, strict=True):
            if parts[name].ndim < 2 or parts[name].shape[1] != size:
                raise InputError(f"group {name!r} has {size} channels, got shape {tuple(parts[name].shape)}")
        return torch.cat([parts[name] for name in self.names], dim=1)

    def expand(self, values: Tensor, ndim: int = 4) -> Tensor:
        """One value per group -> one per channel, ready to broadcast: (b, n) -> (b, c, 1, 1) for ndim = 4."""
        if values.ndim != 2 or values.shape[1] != len(self):
            raise InputError(
                f"expand needs one column per group ({', '.join(self.names)}): shape (b, {len(self)}), "
                f"got {tuple(values.shape)}"
            )
        # Not repeat_interleave, which would copy the sizes to the device and synchronise.
        columns = [values[:, i : i + 1].expand(-1, size) for i, size in enumerate(self.sizes)]
        return torch.cat(columns, dim=1).reshape(len(values), self.channels, *(1,) * (ndim - 2))

    def means(self, x: Tensor) -> Tensor:
        """Mean over each group's channels and positions (the paper's norm on squares): (b, c, ...) -> (b, n)."""
        return torch.stack([part.flatten(1).mean(1) for part in self.split(x).values()], dim=1)

    def check(self, z: Tensor) -> None:
        """Raise an error if the channel axis of `z` does not fit this layout."""
        if z.ndim < 2 or z.shape[1] != self.channels:
            raise InputError(f"layout {self} needs a state (b, {self.channels}, ...), got {tuple(z.shape)}")


def index_of(name: str, names: Sequence[str]) -> int:
    """Return the position of `name` in `names`, or raise an error that lists them."""
    if name not in names:
        raise InputError(f"there is no group {name!r}; {nearest(str(name), names)}")
    return list(names).index(name)


def default_lead(groups: Sequence[str]) -> str:
    """Return the group that leads by default: semantic as in the paper, or the last group if there is no semantic."""
    return "semantic" if "semantic" in groups else groups[-1]


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return group names as a tuple after checking them: at least one, each a word, no duplicates."""
    if isinstance(names, str):
        raise InputError(f"groups must be a sequence of names such as ('texture', 'semantic'), got the text {names!r}")
    names = tuple(names)
    if not names:
        raise InputError("at least one group is needed, for example ('texture', 'semantic')")
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[^\W\d]\w*", name):
            raise InputError(f"a group name must be a word of letters, digits and underscores, got {name!r}")
    if len(set(names)) != len(names):
        raise InputError(f"group names must differ, got {', '.join(names)}")
    return names
