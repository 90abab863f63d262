"""Rings: keys and values that go from device to device while each attends to what it has (Liu et al. 2023).

A program says that an attention streams what it gathers. Where that is blocks of keys and values, each on one
device of a group, nobody gathers: blocks are handed on, and on the way back the sums of their gradients too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist

from trainwright.model.graph import Op
from trainwright.program.layout import Region, region
from trainwright.program.lower import Program, Route
from trainwright.program.moves import Move, groups
from trainwright.program.shards import base_name
from trainwright.program.step import GRADIENT, Step, Value
from trainwright.runtime.transfer import Arrival
from trainwright.runtime.work import Span

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """The steps of one attention that are a ring: the gather, the attention, the reduction of gradients."""

    gather: int
    attention: int
    scatter: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """A ring as one device sees it: who hands it blocks and takes them, and which block each member has."""

    members: tuple[int, ...]  # in the order of their blocks
    at: int  # this device's place among them
    spans: tuple[Span, ...]  # of the blocks, among all keys
    shapes: tuple[tuple[Shape, Shape], ...]  # of the keys and values of each block

    def place(self, hops: int) -> int:
        """Whose block is here after so many hops."""
        return (self.at - hops) % len(self.members)

    def unpacked(self, flat: torch.Tensor, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a block, from one flat tensor."""
        keys, values = self.shapes[place]
        return flat[: prod(keys)].view(keys), flat[prod(keys) :].view(values)

    def hand_on(self, flat: torch.Tensor, hops: int, tag: int) -> Arrival:
        """Send what is here after so many hops to the next device, and expect what the one before has."""
        expected = flat.new_empty(sum(prod(shape) for shape in self.shapes[self.place(hops + 1)]))
        count = len(self.members)
        after, before = self.members[(self.at + 1) % count], self.members[(self.at - 1) % count]
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, flat, after, tag=tag), dist.P2POp(dist.irecv, expected, before, tag=tag)]
        )
        return Arrival(works, lambda: expected, [flat])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A move of a program that is part of a ring: of which attention, and the messages' first tag."""

    ring: Ring
    attention: int  # its place among operators
    sources: tuple[tuple[Value, ...], ...]  # keys and values, where they begin their round
    tag: int


@dataclass(slots=True, kw_only=True)
class Round:
    """Blocks on their way: the one that is here, and the next."""

    ring: Ring
    own: torch.Tensor  # keys and values of this device
    arrival: Arrival
    tag: int
    stride: int  # to the tag of gradients

    def blocks(self) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Whose block it is, its keys and its values: first this device's own, then as they come."""
        flat, last = self.own, len(self.ring.members) - 1
        for hops in range(last + 1):
            yield self.ring.place(hops), *self.ring.unpacked(flat, self.ring.place(hops))
            if hops < last:
                came = self.arrival.wait()
                assert came is not None
                flat = came
            if hops + 1 < last:
                self.arrival = self.ring.hand_on(flat, hops + 1, self.tag)


def begin_round(ring: Ring, keys: torch.Tensor, values: torch.Tensor, tag: int, stride: int) -> Round:
    """Send this device's block on its way."""
    own = torch.cat((keys.reshape(-1), values.reshape(-1)))
    return Round(ring=ring, own=own, arrival=ring.hand_on(own, 0, tag), tag=tag, stride=stride)


def find_rings(program: Program, route: Route) -> dict[int, Stops]:
    """The rings of a route by the number of the attention's step.

    All steps of an operator are rings, or none: its backward starts from what its forward has left.
    """
    finder = _Finder(program=program, route=route, readers=_readers(route))
    found: dict[int, list[Stops | None]] = {}
    for number, step in enumerate(route.steps):
        if step.kind == "compute" and step.beside and can_ring(program.instances[step.instance].op):
            found.setdefault(step.instance, []).append(finder.stops(number))
    return {
        each.attention: each for listed in found.values() if None not in listed for each in listed if each
    }


def can_ring(op: Op) -> bool:
    """Whether an operator is an attention to keys that may come in any order, a block at a time."""
    return op.kind == "attention" and len(op.inputs) == 3 and not op.weights and (op.causal or not op.window)


def _readers(route: Route) -> dict[Value, set[int]]:
    """The steps that read each value, under its name or as what lies the same."""
    found: dict[Value, set[int]] = {}
    for number, step in enumerate(route.steps):
        for value in step.reads:
            found.setdefault(value, set()).add(number)
            while value in route.aliases:
                value = route.aliases[value]
                found.setdefault(value, set()).add(number)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finder:
    """Looks for rings among the steps of a route."""

    program: Program
    route: Route
    readers: Mapping[Value, set[int]]

    def stops(self, number: int) -> Stops | None:
        """The ring of one attention step, if it is one."""
        step = self.route.steps[number]
        if len(step.beside) != 1 or self.route.placed[step.instance].serial[1] > 1:
            return None
        gather, names = self.route.steps[step.beside[0]], self.program.instances[step.instance].inputs[1:3]
        if gather.kind != "all_gather" or tuple(base_name(value.name) for value in gather.reads) != names:
            return None
        if any(self.readers.get(value, {number}) - {number} for value in gather.writes):
            return None  # another operator wants all of it
        if any(build_ring(self.route, gather, device) is None for device in gather.mesh.devices):
            return None
        if step.phase != "I":
            return Stops(gather=step.beside[0], attention=number)
        scatter = self._scatter(number, tuple(GRADIENT + name for name in names))
        return None if scatter is None else Stops(gather=step.beside[0], attention=number, scatter=scatter)

    def _scatter(self, number: int, names: tuple[str, ...]) -> int | None:
        """The step that sums the gradients of keys and values back into the blocks that were gathered."""
        source = self.route.steps[self.route.steps[number].beside[0]].move
        assert source is not None
        for other, step in enumerate(self.route.steps):
            if step.alongside != number or step.kind != "reduce_scatter" or step.move is None:
                continue
            alike = groups(step.move) == groups(source) and step.scale == 1.0
            if not alike or tuple(base_name(value.name) for value in step.reads) != names:
                continue
            made = all(value in self.route.steps[number].writes for value in step.reads)
            alone = all(self.readers[value] == {other} for value in step.reads)
            home = all(
                _regions(step.move, self.route, value.name, target=True)
                == _regions(source, self.route, value.name)
                for value in step.reads
            )
            return other if made and alone and home else None
        return None


def _regions(move: Move, route: Route, name: str, *, target: bool = False) -> list[Region]:
    layout = move.target if target else move.source
    dims = route.shapes[name.removeprefix(GRADIENT)].dims
    return [region(layout, dims, rank) for rank in range(len(layout.mesh.devices))]


def build_ring(route: Route, gather: Step, device: int) -> Ring | None:
    """A device's ring, if the members' blocks are those of one dim, one after another."""
    move = gather.move
    assert move is not None
    group = next(senders for senders, _ in groups(move) if device in senders)
    held = [[_held(move, route, value, member) for value in gather.reads] for member in group]
    whole = region(
        move.target, route.shapes[gather.reads[0].name].dims, move.target.mesh.devices.index(device)
    )
    cut = [dim for dim in whole if any(each[dim] != whole[dim] for each, _ in held)]
    if len(cut) != 1:
        return None
    order = sorted(range(len(group)), key=lambda each: held[each][0][cut[0]])
    spans = [held[each][0][cut[0]] for each in order]
    ends = [whole[cut[0]][0], *(high for _, high in spans)]
    in_turn = [low for low, _ in spans] == ends[:-1] and ends[-1] == whole[cut[0]][1]
    if not in_turn or any(keys[cut[0]] != values.get(cut[0]) for keys, values in held):
        return None
    members = tuple(group[each] for each in order)
    shapes = [(_shape(held[each][0]), _shape(held[each][1])) for each in order]
    return Ring(members=members, at=members.index(device), spans=tuple(spans), shapes=tuple(shapes))


def _held(move: Move, route: Route, value: Value, device: int) -> Region:
    return region(move.source, route.shapes[value.name].dims, move.source.mesh.devices.index(device))


def _shape(held: Mapping[str, Span]) -> Shape:
    return tuple(high - low for low, high in held.values())
