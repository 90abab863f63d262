"""Which piece of a tensor goes from which device to which, for a move between two layouts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainwright.program.layout import Layout, Region, region, share
from trainwright.program.moves import SUMS, Move, groups

Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of what `sender` holds that `receiver` needs, and where each of them has it."""

    sender: int
    receiver: int
    there: Box
    here: Box
    adds: bool  # to what other pieces bring to the same places


@dataclass(frozen=True, slots=True)
class _Ends:
    """The regions that devices have before and after a move."""

    move: Move
    dims: Mapping[str, int]

    def before(self, device: int) -> Region:
        """What a device holds of the source."""
        layout = self.move.source
        return region(layout, self.dims, layout.mesh.devices.index(device))

    def after(self, device: int) -> Region:
        """What a device is to hold of the target."""
        layout = self.move.target
        return region(layout, self.dims, layout.mesh.devices.index(device))


def pieces(move: Move, dims: Mapping[str, int]) -> Iterator[Piece]:
    """All pieces of a move that is carried out message by message; a device may send to itself."""
    ends = _Ends(move, dims)
    for senders, receivers in groups(move):
        for number, receiver in enumerate(receivers):
            for adds, holders in _holders(move, senders, receiver):
                yield from _cover(ends, holders, receiver, number, adds)


def _holders(move: Move, senders: Sequence[int], receiver: int) -> Iterator[tuple[bool, list[int]]]:
    """The devices that hold a value together, once for each share that is to be added."""
    if move.kind in SUMS:
        yield from ((number > 0, [sender]) for number, sender in enumerate(senders))
        return
    if move.kind != "exchange":
        yield False, list(senders)
        return
    if _share(move.target, receiver):
        return  # the first share has the value, the others zeros
    shares: dict[int, list[int]] = {}
    for sender in senders:
        shares.setdefault(_share(move.source, sender), []).append(sender)
    yield from ((number > 0, held) for number, held in enumerate(shares.values()))


def _share(layout: Layout, device: int) -> int:
    return share(layout, layout.mesh.devices.index(device))[0]


def _cover(ends: _Ends, holders: Sequence[int], receiver: int, number: int, adds: bool) -> Iterator[Piece]:
    """Pieces that together are all that the receiver wants: its own where it has them."""
    wanted = ends.after(receiver)
    held: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for device in holders:
        held.setdefault(tuple(ends.before(device).values()), []).append(device)
    for spans, devices in held.items():
        overlap = [
            (max(a, low), min(b, high)) for (a, b), (low, high) in zip(spans, wanted.values(), strict=True)
        ]
        if any(low >= high for low, high in overlap):
            continue
        sender = receiver if receiver in devices else devices[number % len(devices)]
        yield Piece(
            sender=sender, receiver=receiver, adds=adds,
            there=box(overlap, spans), here=box(overlap, tuple(wanted.values())),
        )  # fmt: skip


def box(overlap: Sequence[tuple[int, int]], part: Sequence[tuple[int, int]]) -> Box:
    """Where an overlap lies inside a part."""
    return tuple(
        slice(low - start, high - start) for (low, high), (start, _) in zip(overlap, part, strict=True)
    )


def overlap_of(one: Region, two: Region) -> list[tuple[int, int]] | None:
    """What two regions have in common; None if that is nothing."""
    found = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(one.values(), two.values(), strict=True)]
    return None if any(low >= high for low, high in found) else found
