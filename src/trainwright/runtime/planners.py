"""Parts of tensors as torch.distributed.checkpoint asks for them, to write or to fill."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from trainwright.checksum import DigestWriter
from trainwright.runtime.chunks import Box
from trainwright.runtime.stored_chunks import StoredChunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A box of a whole tensor, by name, and its values."""

    name: str
    sizes: tuple[int, ...]  # of the whole
    box: Box
    values: torch.Tensor

    @property
    def index(self) -> MetadataIndex:
        """Its name and place."""
        return MetadataIndex(self.name, torch.Size(low for low, _ in self.box))

    @property
    def extent(self) -> ChunkStorageMetadata:
        """Its place and shape."""
        return ChunkStorageMetadata(
            offsets=torch.Size(low for low, _ in self.box),
            sizes=torch.Size(high - low for low, high in self.box),
        )


class ChunkSaver(DefaultSavePlanner):
    """Writes the chunks of this process; those of all processes are disjoint."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(flatten_state_dict=False)
        self.chunks = {_place(chunk.index): chunk for chunk in chunks}

    def create_local_plan(self) -> SavePlan:
        """One item for each chunk."""
        self.plan = SavePlan([_write_item(chunk) for chunk in self.chunks.values()])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        """The values of a chunk."""
        return self.chunks[_place(write_item.index)].values.detach().contiguous()


class ChunkLoader(DefaultLoadPlanner):
    """Fills the chunks of this process from those of any plan."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(flatten_state_dict=False)
        self.chunks = {_place(chunk.index): chunk for chunk in chunks}

    def create_local_plan(self) -> LoadPlan:
        """What overlaps each chunk, of all that was written."""
        stored = self.metadata
        assert stored is not None
        return LoadPlan([item for chunk in self.chunks.values() for item in _read_items(stored, chunk)])

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        """The part of a chunk that is to be read."""
        found = self.chunks[_place(read_item.dest_index)].values
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            found = found.narrow(dim, start, length)
        return found


def _place(index: MetadataIndex) -> tuple[str, tuple[int, ...]]:
    return index.fqn, tuple(index.offset or ())


def _write_item(chunk: Chunk) -> WriteItem:
    return WriteItem(
        index=chunk.index,
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=chunk.extent,
            properties=TensorProperties.create_from_tensor(chunk.values),
            size=torch.Size(chunk.sizes),
        ),
    )


def _read_items(metadata: Metadata, chunk: Chunk) -> Any:
    stored = metadata.state_dict_metadata[chunk.name]
    assert isinstance(stored, TensorStorageMetadata)
    return create_read_items_for_chunk_list(chunk.name, stored, [chunk.extent])


class _ChunkDigests:
    """Where a writer gets the stream of each item from: one that has the checksum of what it is given."""

    def __init__(self) -> None:
        self.writers: dict[tuple[str, tuple[int, ...]], DigestWriter] = {}

    def transform_save_stream(self, write_item: WriteItem, raw_stream: Any) -> tuple[Any, list[str]]:
        """A stream for the item, and no transformations that a reader would have to undo."""
        writer = self.writers[_place(write_item.index)] = DigestWriter(raw_stream)
        return writer, []


class _Writer(FileSystemWriter):
    """A writer that has the checksums of its chunks, and tells what the disk said where it fails."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, sync_files=True, overwrite=False)
        self.transforms: Any = _ChunkDigests()
        self.stored: list[StoredChunk] = []

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        try:
            found = super().write_data(plan, planner)
        except RuntimeError as error:  # that the file it was writing is now broken
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        names = {_place(item.index): _chunk_name(item) for item in plan.items}
        self.stored = [self._stored(result, names) for result in found.value()]
        return found

    def _stored(self, result: WriteResult, names: Mapping[Any, str]) -> StoredChunk:
        at, place = result.storage_data, _place(result.index)
        return StoredChunk(
            file=at.relative_path, name=names[place], first=at.offset, last=at.offset + at.length,
            sha256=self.transforms.writers[place].digest,
        )  # fmt: skip


def _chunk_name(item: WriteItem) -> str:
    """The name of a tensor, and which box of it: `weights/head.weight[0:256, 8:16]`."""
    assert item.tensor_data is not None
    extent = item.tensor_data.chunk
    spans = [f"{low}:{low + size}" for low, size in zip(extent.offsets, extent.sizes, strict=True)]
    return f"{item.index.fqn}[{', '.join(spans)}]"


def save_chunks(place: Path, chunks: Sequence[Chunk]) -> tuple[BaseException | None, list[StoredChunk]]:
    """Write what all processes have; what failed on any of them, on all, and what this one has written."""
    writer = _Writer(place)
    try:
        save({}, storage_writer=writer, planner=ChunkSaver(chunks))
    except CheckpointException as error:
        return _cause(error), []
    return None, writer.stored


def load_chunks(place: Path, chunks: Sequence[Chunk]) -> BaseException | None:
    """Fill the chunks of this process; what has failed on any of them, on all."""
    try:
        load({}, storage_reader=FileSystemReader(place), planner=ChunkLoader(chunks))
    except CheckpointException as error:
        return _cause(error)
    return None


def _cause(error: CheckpointException) -> BaseException:
    return next(iter(error.failures.values()))[0]
