"""What a device sends and receives for a step that communicates: collectives, or messages one by one."""

from collections.abc import Iterator
from typing import NamedTuple

from trainwright.program.exchange import exchange_messages
from trainwright.program.lower import Program
from trainwright.program.moves import ACROSS, LOCAL, Move, groups
from trainwright.program.step import Step
from trainwright.program.traffic import sent_bytes

_PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


class Collective(NamedTuple):
    """A collective among devices; `size_bytes` as ASTRA-sim counts: what each puts in."""

    kind: str
    members: tuple[int, ...]
    size_bytes: float


class Message(NamedTuple):
    """So many bytes from one device to another."""

    source: int
    target: int
    size_bytes: float


def collective_of(program: Program, route: int, step: Step, device: int) -> Collective | None:
    """The collective that a device takes part in for a step; None if it is none."""
    if step.kind not in _PASSES:
        return None
    listed = step.groups if step.state else tuple(senders for senders, _ in groups(_move(step)))
    members = next((group for group in listed if device in group), ())
    if len(members) < 2:
        return None
    sent = sent_bytes(program, route, step)
    return Collective(step.kind, tuple(members), put_in_bytes(step.kind, len(members), sent))


def put_in_bytes(kind: str, ranks: int, sent: float) -> float:
    """What each of the ranks puts in, if a ring has each send so many bytes.

    Each sends all but its own part, once, or twice of an all-reduce: of what it puts in, or in an all-gather
    of what all put in.
    """
    if kind == "all_gather":
        return sent / (ranks - 1)
    return sent * ranks / (ranks - 1) / _PASSES[kind]


def sent_of(kind: str, ranks: int, size_bytes: float) -> float:
    """What a ring has each of the ranks send; the inverse of `put_in_bytes`."""
    if kind == "all_gather":
        return size_bytes * (ranks - 1)
    return size_bytes * (ranks - 1) / ranks * _PASSES[kind]


def messages_of(program: Program, route: int, step: Step) -> Iterator[Message]:
    """The messages of a step that is no collective, among all of its devices."""
    if step.move is None or step.kind in _PASSES or step.kind in LOCAL:
        return
    move = step.move
    if move.fallback:
        names = [value.name.removeprefix("d:") for value in step.reads]
        shape = program.routes[route].shapes[names[0]]
        total = sum(program.routes[route].shapes[name].total_bytes for name in names)
        scale = shape.element_bytes * total / shape.total_bytes
        for source, target, size in exchange_messages(move.source, move.target, shape.dims, scale):
            yield Message(source, target, size)
        return
    assert move.kind in (*ACROSS, "permute")
    for senders, receivers in groups(move):
        yield from _between(senders, receivers, step.bytes)


def _between(senders: tuple[int, ...], receivers: tuple[int, ...], sent: float) -> Iterator[Message]:
    """One to one, one to many or many to one; each sender sends as many bytes in all."""
    if len(senders) == len(receivers):
        pairs = list(zip(senders, receivers, strict=True))
    else:
        pairs = [(source, target) for source in senders for target in receivers]
    share = sent * len(senders) / len(pairs)
    for source, target in pairs:
        if source != target:
            yield Message(source, target, share)


def _move(step: Step) -> Move:
    assert step.move is not None
    return step.move
