"""Moves of what is routed to experts: rows go to the devices of their experts, however many there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist

from trainwright.plan.rules import ROUTED
from trainwright.program.layout import Layout, Region, region
from trainwright.program.moves import Move
from trainwright.runtime.frame import Frame
from trainwright.runtime.pieces import pieces
from trainwright.runtime.transfer import Arrival

_PLACED = ("batch", "seq", "top_k", ROUTED)  # dims that say which rows there are, not what is in them
CARRIER = "/dispatched"  # after the block: the value whose rows carry the probability of their expert


def is_routed(dims: Mapping[str, int]) -> bool:
    """Whether a value lies in rows, one for each choice of a token."""
    return "top_k" in dims


def width_of(name: str, held: Region) -> int:
    """The columns of the rows that a device has of a value."""
    own = prod(high - low for dim, (low, high) in held.items() if dim not in _PLACED)
    return own + name.endswith(CARRIER)


def rows_of(frame: Frame, block: str, held: Region) -> torch.Tensor:
    """Which rows a device has, as numbers over all choices of all tokens of a microbatch."""
    (a, b), (c, d) = held["batch"], held["seq"]
    low, high = held.get(ROUTED, (0, 1 << 30))
    key = (block, a, b, c, d, low, high)
    if key not in frame.rows:
        routes = frame.routes[block]
        number = torch.arange(routes.numel(), device=routes.device).view(routes.shape)[a:b, c:d]
        chosen = routes[a:b, c:d]
        frame.rows[key] = number[(chosen >= low) & (chosen < high)].flatten()
    return frame.rows[key]


def experts_of(frame: Frame, block: str, held: Region) -> torch.Tensor:
    """The expert of each row that a device has, counted from the first of its own."""
    return frame.routes[block].flatten()[rows_of(frame, block, held)] - held.get(ROUTED, (0, 0))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    sender: int
    receiver: int
    common: Region
    adds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTransfer:
    """One move of one value in rows, message by message."""

    block: str
    me: int
    before: Region | None
    after: Region | None
    pieces: Sequence[_Piece]
    width: int
    zero: bool
    tag: int
    like: torch.Tensor

    def start(self, tensor: torch.Tensor | None, frame: Frame) -> Arrival:
        """Begin to send and receive rows."""
        if self.zero and tensor is not None:
            return Arrival((), lambda: torch.zeros_like(tensor))
        operations: list[dist.P2POp] = []
        kept: list[torch.Tensor] = []
        came: list[tuple[torch.Tensor, torch.Tensor, bool]] = []
        for piece in self.pieces:
            rows = rows_of(frame, self.block, piece.common)
            if piece.sender == self.me:
                assert tensor is not None
                assert self.before is not None
                part = tensor[torch.searchsorted(rows_of(frame, self.block, self.before), rows)]
                if piece.receiver == self.me:
                    came.append((rows, part, piece.adds))
                elif len(rows):
                    kept.append(part.contiguous())
                    operations.append(
                        dist.P2POp(dist.isend, kept[-1], piece.receiver, tag=self.tag + frame.microbatch)
                    )
            else:
                part = self.like.new_empty(len(rows), self.width)
                came.append((rows, part, piece.adds))
                if len(rows):
                    operations.append(
                        dist.P2POp(dist.irecv, part, piece.sender, tag=self.tag + frame.microbatch)
                    )
        works = dist.batch_isend_irecv(operations) if operations else []
        return Arrival(works, lambda: self._made(frame, came), kept)

    def _made(
        self, frame: Frame, came: Sequence[tuple[torch.Tensor, torch.Tensor, bool]]
    ) -> torch.Tensor | None:
        if self.after is None:
            return None
        wanted = rows_of(frame, self.block, self.after)
        found = self.like.new_zeros(len(wanted), self.width)
        for rows, part, adds in came:
            at = torch.searchsorted(wanted, rows)
            found[at] = found[at] + part if adds else part
        return found


def build_routed(
    move: Move, name: str, dims: Mapping[str, int], me: int, tag: int, like: torch.Tensor
) -> RoutedTransfer:
    """The transfer of a value in rows as one device takes part in it."""
    before, after = (_held(layout, dims, me) for layout in (move.source, move.target))
    listed: list[_Piece] = []
    zero = False
    if move.kind == "zero":
        at = move.target.mesh.coordinates(move.target.mesh.devices.index(me))
        zero = any(at[axis] for axis in move.axes)
    for each in pieces(move, dims) if not zero else ():
        if me in (each.sender, each.receiver):
            target = _held(move.target, dims, each.receiver)
            assert target is not None
            common = {
                dim: (low + part.start, low + part.stop)
                for (dim, (low, _)), part in zip(target.items(), each.here, strict=True)
            }
            listed.append(_Piece(sender=each.sender, receiver=each.receiver, common=common, adds=each.adds))
    block = name.removeprefix("d:").partition("/")[0]
    held = after or before
    assert held is not None
    return RoutedTransfer(
        block=block, me=me, before=before, after=after, pieces=listed, zero=zero, tag=tag, like=like,
        width=width_of(_plain(name), held),
    )  # fmt: skip


def _plain(name: str) -> str:
    return name.rstrip("~@")


def _held(layout: Layout, dims: Mapping[str, int], device: int) -> Region | None:
    if device not in layout.mesh.devices:
        return None
    return region(layout, dims, layout.mesh.devices.index(device))
