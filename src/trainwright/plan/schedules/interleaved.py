"""Interleaved 1F1B: several chunks of layers on a row (Narayanan et al., 2021, arXiv 2104.04473), ordered as
in Megatron-core."""

from itertools import chain

from trainwright.errors import BadInput
from trainwright.plan.action import Action
from trainwright.plan.schedules.one_f_one_b import one_f_one_b
from trainwright.plan.schedules.types import Schedule, check_counts

Turn = tuple[int, int]  # chunk, microbatch


def interleaved(pp: int, microbatches: int, *, vpp: int = 2, group: int | None = None) -> Schedule:
    """Stage c·p + i is chunk c of row i; the bubble is (p−1)(F+B)/v, with F and B those of all v chunks.

    `group` microbatches visit a chunk before it is the next chunk's turn. As in Megatron-core, a last,
    smaller group must still have p microbatches; without a size given, it is the smallest for which that
    holds. Row i holds 2(p−i−1) + (v−1)·group + 1 chunks' activations at most. With fewer than p microbatches,
    all forwards come first.
    """
    check_counts(pp=pp, microbatches=microbatches, vpp=vpp)
    if vpp == 1:
        return one_f_one_b(pp, microbatches)
    size = _group_size(pp, microbatches, group)
    turns = _turns(microbatches, vpp, size)
    ahead = [2 * (pp - row - 1) + (vpp - 1) * size for row in range(pp)]
    if microbatches < pp:
        ahead = [len(turns)] * pp
    rows = tuple(_row(row, pp, turns, min(ahead[row], len(turns))) for row in range(pp))
    return Schedule(rows=rows, routes=(tuple(range(pp)) * vpp,))


def _group_size(pp: int, microbatches: int, group: int | None) -> int:
    if group is None:
        sizes = range(pp, microbatches + 1)
        return next((size for size in sizes if _even(pp, microbatches, size)), pp)
    if group < pp:
        raise BadInput("interleaved group", group, f"smaller than pp {pp}", f"use {pp} or more")
    if not _even(pp, microbatches, group) and microbatches >= pp:
        rule = f"leaves {microbatches % group} of {microbatches} microbatches, fewer than pp {pp}"
        raise BadInput("interleaved group", group, rule, "choose a size that divides them, or leave it out")
    return group


def _even(pp: int, microbatches: int, size: int) -> bool:
    return not 0 < microbatches % size < pp


def _turns(microbatches: int, vpp: int, size: int) -> list[Turn]:
    return [
        (chunk, each)
        for first in range(0, microbatches, size)
        for chunk in range(vpp)
        for each in range(first, min(first + size, microbatches))
    ]


def _row(row: int, pp: int, turns: list[Turn], ahead: int) -> tuple[Action, ...]:
    """Forwards of `ahead` turns, then pairs of a forward and a backward, then the backwards left."""
    last = turns[-1][0]
    forwards = [Action("F", chunk * pp + row, each) for chunk, each in turns]
    backwards = [Action("B", (last - chunk) * pp + row, each) for chunk, each in turns]
    pairs = zip(forwards[ahead:], backwards, strict=False)
    return (*forwards[:ahead], *chain.from_iterable(pairs), *backwards[len(turns) - ahead :])
