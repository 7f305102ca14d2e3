"""Training tensors of several processes: every process writes its part, and any number of processes reads them.

Written through torch.distributed.checkpoint, as safetensors with a JSON index instead of its pickles.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from lwd.errors import InputError
from lwd.io.files import sha256
from lwd.io.tensors import DTYPES, write_safetensors
from lwd.training.devices import Replica, local
from lwd.training.formats import StoredTensor, TensorIndex

INDEX, PART = "training.json", "training-{:05}.safetensors"


@dataclass(frozen=True)
class Piece:
    """A block of a tensor: `data` starts at `offsets` of a tensor of this `shape`."""

    data: Tensor
    shape: tuple[int, ...]
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> "Piece":
        """This process's part of a tensor: its shard, or all of it."""
        if not isinstance(tensor, DTensor):
            return cls(tensor.detach(), tuple(tensor.shape), (0,) * tensor.ndim)
        (chunk,) = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]
        return cls(local(tensor.detach()), tuple(tensor.shape), tuple(chunk.offsets))

    @property
    def chunk(self) -> ChunkStorageMetadata:
        return ChunkStorageMetadata(torch.Size(self.offsets), self.data.shape)


def owners(sizes: Sequence[int], count: int) -> list[int]:
    """Divide tensors of these sizes among `count` copies of the weights, as evenly as possible."""
    loads, owner = [0] * count, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        owner[i] = min(range(count), key=loads.__getitem__)
        loads[owner[i]] += sizes[i]
    return owner


def staged(tensors: Mapping[str, Tensor], replica: Replica) -> dict[str, Piece]:
    """Copy what this process has to write to the CPU, so that training can go on.

    One copy of the weights writes a tensor: all processes that share it, or the first if it is not sharded.
    """
    chosen = owners([tensor.numel() * tensor.element_size() for tensor in tensors.values()], replica.count)
    pieces: dict[str, Piece] = {}
    for (name, tensor), owner in zip(tensors.items(), chosen, strict=True):
        if owner == replica.index and (replica.first or isinstance(tensor, DTensor)):
            piece = Piece.of(tensor)
            pieces |= {name: piece} if piece.data.numel() else {}
    copies = host_copies([piece.data for piece in pieces.values()])
    return {name: replace(piece, data=data) for (name, piece), data in zip(pieces.items(), copies, strict=True)}


def host_copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors to the CPU, waiting for the device once."""
    pinned = torch.cuda.is_available()
    copies = [torch.empty(t.shape, dtype=t.dtype, pin_memory=pinned).copy_(t, non_blocking=True) for t in tensors]
    if pinned:
        torch.cuda.synchronize()
    return copies


class _Planner(SavePlanner):
    """Every process writes the pieces that it was given."""

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        del storage_meta, is_coordinator
        self.pieces: Mapping[str, Piece] = state_dict

    def create_local_plan(self) -> SavePlan:
        return SavePlan([_item(name, piece) for name, piece in self.pieces.items()])

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        return create_default_global_save_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        return self.pieces[write_item.index.fqn].data


def _item(name: str, piece: Piece) -> WriteItem:
    about = TensorWriteData(piece.chunk, TensorProperties(dtype=piece.data.dtype), torch.Size(piece.shape))
    return WriteItem(MetadataIndex(name, torch.Size(piece.offsets)), WriteItemType.SHARD, tensor_data=about)


class _Writer(StorageWriter):
    """One safetensors file per process, and an index by the main process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        del checkpoint_id

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        del is_coordinator, args, kwargs

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [replace(plan, storage_data=PART.format(rank)) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        done: Future[list[WriteResult]] = Future()
        tensors = {item.index.fqn: planner.resolve_data(item) for item in plan.items}
        file = self.folder / plan.storage_data
        write_safetensors(file, tensors)  # type: ignore[arg-type]
        stored = (file.name, sha256(file))
        done.set_result([WriteResult(item.index, item.tensor_storage_size() or 0, stored) for item in plan.items])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        # The position is not part of an index's equality, so name and offset find it again.
        where = {result.index: result.storage_data for part in results for result in part}
        tensors = {}
        for name, about in metadata.state_dict_metadata.items():
            assert isinstance(about, TensorStorageMetadata)
            files = {c.offsets: where[MetadataIndex(name, c.offsets)][0] for c in about.chunks}
            parts = [(files[c.offsets], tuple(c.offsets), tuple(c.sizes)) for c in about.chunks]
            tensors[name] = StoredTensor(
                shape=tuple(about.size), dtype=DTYPES[about.properties.dtype], parts=tuple(parts)
            )
        TensorIndex(tensors=tensors, sha256=dict(where.values())).write(self.folder / INDEX)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        del checkpoint_id
        return True


def write_parts(folder: Path, pieces: Mapping[str, Piece], group: dist.ProcessGroup | None) -> None:
    """Write the pieces of all processes of the group (a collective call); raises an error on all if one fails."""
    try:
        save(dict(pieces), storage_writer=_Writer(folder), planner=_Planner(), process_group=group)
    except CheckpointException as error:
        rank, (reason, _) = next(iter(error.failures.items()))
        raise InputError(f"process {rank} cannot save: {str(reason).splitlines()[0]}") from error


class Stored:
    """The training tensors of a checkpoint: one file, or parts with an index. Only what is asked for is read."""

    def __init__(self, folder: Path, index: TensorIndex) -> None:
        self.folder, self.index = folder, index
        self.shapes = {name: tuple(about.shape) for name, about in index.tensors.items()}

    @classmethod
    def single(cls, path: Path) -> "Stored":
        """The tensors of one safetensors file."""
        tensors = {}
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118
                view = file.get_slice(name)
                shape = tuple(view.get_shape())
                parts = ((path.name, (0,) * len(shape), shape),)
                tensors[name] = StoredTensor(shape=shape, dtype=view.get_dtype(), parts=parts)
        return cls(path.parent, TensorIndex(tensors=tensors, sha256={}))

    def tensor(self, name: str) -> Tensor:
        """Read a full tensor."""
        about = self.index.tensors[name]
        kind = {text: dtype for dtype, text in DTYPES.items()}[about.dtype]
        data = torch.empty(about.shape, dtype=kind)
        self.fill({name: Piece(data, tuple(about.shape), (0,) * data.ndim)})
        return data

    @torch.no_grad()
    def fill(self, pieces: Mapping[str, Piece]) -> None:
        """Copy the blocks of tensors by name, wherever they are stored, into the data of these pieces."""
        wanted: dict[str, list[tuple[str, Tensor, list[slice]]]] = {}
        for name, piece in pieces.items():
            for file, target, rows in self._blocks(name, piece):
                wanted.setdefault(file, []).append((name, target, rows))
        for file, blocks in wanted.items():
            with _opened(self.folder / Path(file).name) as content:
                for name, target, rows in blocks:
                    view = content.get_slice(name)
                    target.copy_(view[tuple(rows)] if rows else content.get_tensor(name))

    def _blocks(self, name: str, piece: Piece) -> Iterator[tuple[str, Tensor, list[slice]]]:
        about = self.index.tensors[name]
        chunks = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for _, offsets, sizes in about.parts]
        stored = TensorStorageMetadata(TensorProperties(), torch.Size(about.shape), chunks)
        files = {torch.Size(offsets): file for file, offsets, _ in about.parts}
        for item in create_read_items_for_chunk_list(name, stored, [piece.chunk]):
            target = piece.data
            for axis, (start, length) in enumerate(zip(item.dest_offsets, item.lengths, strict=True)):
                target = target.narrow(axis, start, length)
            rows = [slice(a, a + n) for a, n in zip(item.storage_offsets, item.lengths, strict=True)]
            assert item.storage_index.offset is not None
            yield files[item.storage_index.offset], target, rows


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, "pt")
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a complete safetensors file ({error})") from error
