"""Who writes which part of a weight: every element once, whoever else holds it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from zlib import crc32

from trainwright.runtime.work import Span

Box = tuple[Span, ...]  # from and to, of each dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a process has of a weight: elements `first` to `last` of a box of it, row by row."""

    rank: int
    key: str
    box: Box
    first: int
    last: int


def claimed_boxes(claims: Sequence[Claim], rank: int) -> Iterator[tuple[Claim, Box]]:
    """What one process is to write: its claims, without what another one writes."""
    by_key: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_key[claim.key].append(claim)
    for key in sorted(by_key):
        yield from (each for each in _divided(by_key[key]) if each[0].rank == rank)


def _divided(claims: Sequence[Claim]) -> Iterator[tuple[Claim, Box]]:
    """The boxes of one weight, each with the claim that it is written for; no two overlap."""
    by_box: dict[Box, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_box[claim.box].append(claim)
    taken: list[Box] = []
    for box in sorted(by_box):
        free = [box]
        for other in taken:
            free = [part for each in free for part in without(each, other)]
        taken.append(box)
        for claim, low in _in_turn(by_box[box]):
            for part in flat_boxes(box, low, claim.last):
                yield from ((claim, shared) for each in free if (shared := overlap(part, each)))


def _in_turn(claims: Sequence[Claim]) -> Iterator[tuple[Claim, int]]:
    """Claims on one box that add to those before, and from where; equal ones fall to ranks by turns."""
    turn = crc32(claims[0].key.encode())
    count = max(claim.rank for claim in claims) + 1
    at = 0
    for claim in sorted(claims, key=lambda each: (each.first, -each.last, (each.rank + turn) % count)):
        if claim.last > at:
            yield claim, max(claim.first, at)
            at = claim.last


def flat_boxes(box: Box, first: int, last: int) -> Iterator[Box]:
    """The boxes that a range of a box's elements, row by row, is made of, in that order."""
    if not box:
        yield from [()] * (last - first)
        return
    (start, _), inner = box[0], prod(high - low for low, high in box[1:])
    while first < last:
        row, within = divmod(first, inner)
        if within == 0 and last - first >= inner:
            rows = (last - first) // inner
            yield (start + row, start + row + rows), *box[1:]
            first += rows * inner
        else:
            end = min(last - row * inner, inner)
            yield from (((start + row, start + row + 1), *rest) for rest in flat_boxes(box[1:], within, end))
            first = row * inner + end


def overlap(one: Box, other: Box) -> Box | None:
    """What two boxes have in common."""
    found = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return found if all(low < high for low, high in found) else None


def without(box: Box, other: Box) -> Iterator[Box]:
    """Boxes that make up one box without another."""
    shared = overlap(box, other)
    if shared is None:
        yield box
        return
    for dim, ((low, high), (start, end)) in enumerate(zip(box, shared, strict=True)):
        before, after = shared[:dim], box[dim + 1 :]
        if low < start:
            yield *before, (low, start), *after
        if end < high:
            yield *before, (end, high), *after
