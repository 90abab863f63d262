"""Degrees layer by layer, as a parameter names them: `0-3:cp4,4-:tp4sp,vocab:tp8`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.errors import BadInput
from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Graph
from trainwright.plan.expand import Axes, Axis, op_axes
from trainwright.plan.stages import block_homes, layer_names
from trainwright.plan.strategy import Strategy
from trainwright.plan.zoo.layers import layer_number, parse_range
from trainwright.plan.zoo.structured import fill

_DEGREES = re.compile(r"(?:(?:tp|cp|dp)\d+)+(?:sp)?$", re.ASCII)
_DEGREE = re.compile(r"(tp|cp|dp)(\d+)", re.ASCII)
_FORM = "write 0-3:tp4dp2,4-:tp2dp4"
_VOCABULARY = "vocab"  # in the place of a range: what is split on a vocabulary, wherever it stands


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """The strategies of ranges of layers on equally many devices, and that of vocabularies if it differs."""

    ranges: Sequence[tuple[range, Strategy]]
    vocabulary: Strategy | None = None

    @property
    def widest(self) -> Strategy:
        """The one with most replicas: a microbatch has as many samples as it asks for."""
        return max((strategy for _, strategy in self.ranges), key=lambda each: each.dp)


def parse_degrees(text: str, devices: int, knobs: Mapping[str, Any]) -> Degrees:
    """Each range with its degrees on so many devices; dp is what the others leave."""
    words = [word.partition(":")[::2] for word in text.split(",")]
    found = [(where, _strategy(where, degrees, devices, knobs)) for where, degrees in words]
    ranges = [(parse_range(where), strategy) for where, strategy in found if where != _VOCABULARY]
    if not ranges:
        raise BadInput("layers", text, "names no range of layers", _FORM)
    return Degrees(ranges=ranges, vocabulary=dict(found).get(_VOCABULARY))


def _strategy(where: str, degrees: str, devices: int, knobs: Mapping[str, Any]) -> Strategy:
    if not _DEGREES.match(degrees):
        raise BadInput("layers", f"{where}:{degrees}", "lacks its degrees", _FORM)
    found = {name: int(degree) for name, degree in _DEGREE.findall(degrees)}
    dp = found.pop("dp", 0)
    strategy = fill(devices, **(dict(knobs) | found | {"sp": degrees.endswith("sp")}))
    if dp and dp != strategy.dp:
        rule = f"{devices} devices leave dp{strategy.dp}"
        raise BadInput("layers", f"{where}:{degrees}", rule, "let the product of degrees be the devices")
    return strategy


def degree_axes(graph: Graph, degrees: Degrees) -> Axes:
    """How operators are split: ends as the layers beside them, or, if they share weights, as the first."""
    strategies = _by_block(graph, degrees)

    def axes(instance: Instance) -> tuple[Axis, ...]:
        wide = degrees.vocabulary if instance.op.region == "vocab" else None
        return op_axes(wide or strategies[instance.block], instance.op)

    return axes


def _by_block(graph: Graph, degrees: Degrees) -> dict[str, Strategy]:
    instances = wire(graph)
    names = layer_names(instances)
    found = []
    for name in names:
        mine = [strategy for where, strategy in degrees.ranges if layer_number(name) in where]
        if len(mine) != 1:
            raise BadInput("layers", name, "is in two ranges" if mine else "is in no range", _FORM)
        found += mine
    homes = block_homes(instances, [[name] for name in names])
    shared = {each.block for each in instances for weight in each.op.weights if weight.name in graph.tied}
    return {block: found[0 if block in shared else home] for block, home in homes.items()}
