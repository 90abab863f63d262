"""Moves between layouts, carried out by collectives and messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist

from trainwright.program.layout import Region, region
from trainwright.program.moves import WITHIN, Move, groups
from trainwright.runtime.groups import Groups, Members, start_gather, start_scatter
from trainwright.runtime.pieces import Box, Piece, box, overlap_of, pieces


@dataclass(slots=True)
class Arrival:
    """A tensor that is on its way: what to wait for, and how it is made from what came."""

    works: Sequence[dist.Work]
    finish: Callable[[], torch.Tensor | None]
    kept: Sequence[torch.Tensor] = ()  # what is being sent must not be freed

    def wait(self) -> torch.Tensor | None:
        """The tensor, once it is there; None on a device that only sends."""
        for work in self.works:
            work.wait()
        return self.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One move of one tensor as one device takes part in it; starts it, given what the device holds."""

    start: Callable[[torch.Tensor | None, int], Arrival]


def build_transfer(
    move: Move, dims: Mapping[str, int], me: int, made: Groups, tag: int, like: torch.Tensor
) -> Transfer:
    """The transfer of a tensor of some dims, of the dtype and on the device that `like` has.

    Tags from `tag` on, one for each microbatch, tell its messages from others.
    """
    if move.kind == "slice":
        return _local(_slice_of(move, dims, me))
    if move.kind == "zero":
        return _local(_keeps(move, me))
    if move.kind in WITHIN and move.kind != "permute":
        members = next(senders for senders, _ in groups(move) if me in senders)
        exchange = _Exchange(move=move, dims=dims, me=me, members=tuple(sorted(members)), made=made)
        return Transfer(start=getattr(exchange, move.kind))
    listed = [each for each in pieces(move, dims) if me in (each.sender, each.receiver)]
    shape = None
    if me in move.target.mesh.devices:
        shape = _shape(region(move.target, dims, move.target.mesh.devices.index(me)))
    return Transfer(start=_Messages(pieces=listed, me=me, shape=shape, tag=tag, like=like).start)


def _local(change: Callable[[torch.Tensor], torch.Tensor]) -> Transfer:
    def start(tensor: torch.Tensor | None, microbatch: int) -> Arrival:
        assert tensor is not None
        return Arrival((), lambda: change(tensor))

    return Transfer(start=start)


def _slice_of(move: Move, dims: Mapping[str, int], me: int) -> Callable[[torch.Tensor], torch.Tensor]:
    before, after = (region(each, dims, each.mesh.devices.index(me)) for each in (move.source, move.target))
    where = box(list(after.values()), list(before.values()))
    return lambda tensor: tensor[where]


def _keeps(move: Move, me: int) -> Callable[[torch.Tensor], torch.Tensor]:
    at = move.target.mesh.coordinates(move.target.mesh.devices.index(me))
    if any(at[axis] for axis in move.axes):
        return torch.zeros_like
    return lambda tensor: tensor


def _shape(held: Region) -> tuple[int, ...]:
    return tuple(high - low for low, high in held.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """A collective among the devices of a group."""

    move: Move
    dims: Mapping[str, int]
    me: int
    members: Members
    made: Groups

    def _before(self, device: int) -> Region:
        layout = self.move.source
        return region(layout, self.dims, layout.mesh.devices.index(device))

    def _after(self, device: int) -> Region:
        layout = self.move.target
        return region(layout, self.dims, layout.mesh.devices.index(device))

    def all_reduce(self, tensor: torch.Tensor | None, microbatch: int) -> Arrival:
        """Sum over the group; everyone has the result."""
        assert tensor is not None
        total = tensor.clone(memory_format=torch.contiguous_format)
        work = dist.all_reduce(total, group=self.made.of(self.members), async_op=True)
        return Arrival([work], lambda: total)

    def reduce_scatter(self, tensor: torch.Tensor | None, microbatch: int) -> Arrival:
        """Sum over the group; everyone has a part of the result."""
        assert tensor is not None
        own = list(self._before(self.me).values())
        wanted = [self._after(device) for device in self.members]
        most = max(prod(_shape(each)) for each in wanted)
        sent = tensor.new_zeros(len(self.members), most)
        for row, each in zip(sent, wanted, strict=True):
            part = tensor[box(list(each.values()), own)]
            row[: part.numel()].view(part.shape).copy_(part)
        shape = _shape(self._after(self.me))
        out = tensor.new_empty(most)
        work = start_scatter(out, sent.view(-1), self.made.of(self.members))
        return Arrival([work], lambda: out[: prod(shape)].view(shape), [sent])

    def all_gather(self, tensor: torch.Tensor | None, microbatch: int) -> Arrival:
        """Everyone has the parts of all."""
        assert tensor is not None
        shapes = [_shape(self._before(device)) for device in self.members]
        most = max(map(prod, shapes))
        sent = tensor.contiguous().view(-1)
        if sent.numel() < most:
            sent = torch.nn.functional.pad(sent, (0, most - sent.numel()))
        out = tensor.new_empty(len(self.members) * most)
        work = start_gather(out, sent, self.made.of(self.members))

        def finish() -> torch.Tensor:
            rows = out.view(len(self.members), most)
            parts = [row[: prod(shape)].view(shape) for row, shape in zip(rows, shapes, strict=True)]
            return self._joined(parts)

        return Arrival([work], finish, [sent])

    def _joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The wanted part, from what all members hold."""
        wanted = self._after(self.me)
        listed = [self._before(device) for device in self.members]
        split = [dim for dim in wanted if any(each[dim] != wanted[dim] for each in listed)]
        if len(split) == 1:
            starts = [each[split[0]] for each in listed]
            ends = [wanted[split[0]][0], *(high for _, high in starts)]
            if [low for low, _ in starts] == ends[:-1] and ends[-1] == wanted[split[0]][1]:
                return torch.cat(list(parts), dim=list(wanted).index(split[0]))
        found = parts[0].new_empty(_shape(wanted))
        for held, part in zip(listed, parts, strict=True):
            common = overlap_of(held, wanted)
            if common is not None:
                found[box(common, list(wanted.values()))] = part[box(common, list(held.values()))]
        return found

    def all_to_all(self, tensor: torch.Tensor | None, microbatch: int) -> Arrival:
        """Everyone gets from everyone what it lacks, and gives up what it need not keep."""
        assert tensor is not None
        mine, wanted = self._before(self.me), self._after(self.me)
        sent = [self._part(tensor, mine, self._after(device)) for device in self.members]
        boxes = [overlap_of(self._before(device), wanted) for device in self.members]
        sizes = [prod(high - low for low, high in each) if each else 0 for each in boxes]
        out = tensor.new_empty(sum(sizes))
        given = torch.cat(sent)
        work = dist.all_to_all_single(
            out,
            given,
            sizes,
            [each.numel() for each in sent],
            group=self.made.of(self.members),
            async_op=True,
        )

        def finish() -> torch.Tensor:
            found = tensor.new_empty(_shape(wanted))
            for part, common in zip(torch.split(out, sizes), boxes, strict=True):
                if common is not None:
                    where = found[box(common, list(wanted.values()))]
                    where.copy_(part.view(where.shape))
            return found

        return Arrival([work], finish, [given])

    def _part(self, tensor: torch.Tensor, held: Region, wanted: Region) -> torch.Tensor:
        common = overlap_of(held, wanted)
        return tensor.new_empty(0) if common is None else tensor[box(common, list(held.values()))].reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Messages:
    """A move message by message."""

    pieces: Sequence[Piece]
    me: int
    shape: tuple[int, ...] | None  # of what this device is to hold
    tag: int
    like: torch.Tensor

    def start(self, tensor: torch.Tensor | None, microbatch: int) -> Arrival:
        """Begin to send and receive."""
        operations: list[dist.P2POp] = []
        kept: list[torch.Tensor] = []
        came: list[tuple[Box, torch.Tensor, bool]] = []
        tag = self.tag + microbatch
        for piece in self.pieces:
            if piece.sender == self.me == piece.receiver:
                assert tensor is not None
                came.append((piece.here, tensor[piece.there], piece.adds))
            elif piece.sender == self.me:
                assert tensor is not None
                kept.append(tensor[piece.there].contiguous())
                operations.append(dist.P2POp(dist.isend, kept[-1], piece.receiver, tag=tag))
            else:
                part = self.like.new_empty([each.stop - each.start for each in piece.here])
                came.append((piece.here, part, piece.adds))
                operations.append(dist.P2POp(dist.irecv, part, piece.sender, tag=tag))
        works = dist.batch_isend_irecv(operations) if operations else []
        return Arrival(works, lambda: self._made(came), kept)

    def _made(self, came: Sequence[tuple[Box, torch.Tensor, bool]]) -> torch.Tensor | None:
        if self.shape is None:
            return None
        if len(came) == 1 and tuple(came[0][1].shape) == self.shape:
            return came[0][1]
        found = self.like.new_zeros(self.shape)
        for where, part, adds in came:
            found[where] = found[where] + part if adds else part
        return found
