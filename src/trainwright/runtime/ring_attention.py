"""Attention to keys and values that come round a ring, and the way back."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch

from trainwright.model.graph import query_dim
from trainwright.runtime.context import trace
from trainwright.runtime.frame import Frame
from trainwright.runtime.kernels.meeting import Online, back_meet
from trainwright.runtime.operation import Operation
from trainwright.runtime.ring import Ring
from trainwright.runtime.transfer import Arrival
from trainwright.runtime.values import incoming, read, write, write_all
from trainwright.runtime.work import Meet, Span


class Made(Protocol):
    """An attention's kernel at work on one block of keys."""

    def __call__(
        self, inputs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], *, keys: Span, meet: Meet
    ) -> tuple[torch.Tensor, ...]:
        """What it makes."""


def attend(operation: Operation, frame: Frame, made: Made, *, forgets: bool) -> None:
    """Attend to one block after another; keep what the backward starts from, unless it is done again."""
    ring, query, online = _ring(operation), read(operation.inputs[0], frame), Online()
    found: tuple[torch.Tensor, ...] = ()
    with torch.no_grad():
        for place, keys, values in frame.rounds.pop(operation.step.instance).blocks():
            if _meets(operation, ring.spans[place]):
                found = made([query, keys, values], [], keys=ring.spans[place], meet=online.meet)
    phase = operation.step.phase
    if phase == "R" or (phase == "F" and not operation.recompute and not forgets):
        frame.contexts[operation.cell] = (query, online.mean, online.level)
    write_all(operation, frame, found)


def attend_back(operation: Operation, frame: Frame, made: Made, *, forgets: bool) -> None:
    """The gradient of queries; those of keys and values are summed as they follow their block home."""
    assert not forgets
    ring, given = _ring(operation), incoming(operation, frame)
    query, mean, level = frame.contexts.pop(operation.cell)
    to_query, arrival = torch.zeros_like(query, dtype=torch.float32), None
    here, meet = frame.rounds.pop(operation.step.instance), back_meet(mean, level)
    for hops, (place, keys, values) in enumerate(here.blocks()):
        total = torch.zeros_like(torch.cat((keys.reshape(-1), values.reshape(-1))))
        span = ring.spans[place]
        if _meets(operation, span):
            run = partial(made, keys=span, meet=meet)
            _, context = trace(run, [query, keys, values], [])
            (gradient, *others), _ = context.back(given)
            if gradient is not None:
                to_query += gradient
            for part, each in zip(ring.unpacked(total, place), others, strict=True):
                if each is not None:
                    part += each
        came = None if arrival is None else arrival.wait()
        total = total if came is None else came.add_(total)
        arrival = ring.hand_on(total, hops, here.tag + here.stride)
    assert arrival is not None
    frame.homing[operation.step.instance] = arrival
    write(next(each for each in operation.writes if each.index == 0), frame, to_query.to(query.dtype))


def split_home(ring: Ring, arrival: Arrival) -> tuple[Arrival, Arrival]:
    """The gradients of this device's own keys, and of its values, once they are back."""
    came: list[torch.Tensor] = []

    def part(which: int) -> torch.Tensor:
        if not came:
            flat = arrival.wait()
            assert flat is not None
            came.extend(ring.unpacked(flat, ring.at))
        return came[which]

    return Arrival((), lambda: part(0), arrival.kept), Arrival((), lambda: part(1), arrival.kept)


def _ring(operation: Operation) -> Ring:
    assert operation.ring is not None
    return operation.ring


def _meets(operation: Operation, keys: Span) -> bool:
    """Whether any query that is here may look at any of some keys."""
    op, (low, high) = operation.op, operation.at[query_dim(operation.op)]
    if not op.causal:
        return True
    return keys[0] < high and (not op.window or keys[1] > low - op.window + 1)
