"""Weights and their gradients as devices hold them; what a device does not hold is not a number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from trainwright.program.labelled import Array, Part, Places
from trainwright.program.layout import region
from trainwright.program.lower import Program
from trainwright.program.reference import RATE, Data, weight_key
from trainwright.program.step import Step, Weight

Held = dict[Weight, dict[int, Array]]  # by weight and device


@dataclass(slots=True, kw_only=True)
class Holdings:
    """The state of one route of a program: weights, and gradients, those of the microbatch at work apart."""

    program: Program
    route: int
    data: Data
    weights: Held = field(default_factory=dict)
    gradients: Held = field(default_factory=dict)
    fresh: Held = field(default_factory=dict)
    gathered: dict[str, Held] = field(default_factory=dict)  # by the value that a gather writes
    owners: dict[Weight, Weight] = field(default_factory=dict)  # where a tied weight is stored
    places: dict[Weight, dict[int, Mapping[str, Places]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stored: dict[tuple[str, tuple[int, ...]], Weight] = {}
        for index, instance in enumerate(self.data.instances):
            for tensor in instance.op.weights:
                key = weight_key(self.data.graph, instance, tensor)
                weight = (index, tensor.name)
                self._deal(weight, self.data.weights[key])
                devices = self.program.routes[self.route].placed[index].mesh.devices
                self.owners[weight] = stored.setdefault((key, devices), weight)
        for bundle in self.program.routes[self.route].bundles:
            if len(bundle.sharded("weights")) > 1:
                for weight in bundle.weights:
                    self.weights[weight] = _scattered(self.weights[weight], bundle.sharding("weights"))

    def _deal(self, weight: Weight, whole: Array) -> None:
        """Give every device its part of a weight."""
        builder, (index, name) = self.program.builders[self.route], weight
        tensor = next(each for each in self.data.instances[index].op.weights if each.name == name)
        layout = builder.layout(index, tensor, "read")
        sizes = {dim: self.data.sizes[index][dim] for dim in tensor.dims}
        self.weights[weight], self.places[weight], self.gradients[weight] = {}, {}, {}
        for rank, device in enumerate(layout.mesh.devices):
            at = {dim: np.arange(*ends) for dim, ends in region(layout, sizes, rank).items()}
            self.places[weight][device] = at
            self.weights[weight][device] = whole[np.ix_(*at.values())]
            self.gradients[weight][device] = np.zeros_like(self.weights[weight][device])

    def part(self, weight: Weight, device: int, reads: Sequence[str]) -> Part:
        """A device's part of a weight: as gathered in one of the values `reads`, or as it is stored."""
        for name in reads:
            found = self.gathered.get(name, {}).get(self.owners[weight], {}).get(device)
            if found is not None:
                return Part(values=found, at=self.places[weight][device])
        return Part(values=self.weights[self._stored(weight, device)][device], at=self.places[weight][device])

    def _stored(self, weight: Weight, device: int) -> Weight:
        owner = self.owners[weight]
        own, here = self.places[owner][device], self.places[weight][device]
        same = all(np.array_equal(a, b) for a, b in zip(own.values(), here.values(), strict=True))
        assert same, f"{weight[1]} is tied, but lies in two ways on device {device}"
        return owner

    def add(self, weight: Weight, device: int, gradient: Array) -> None:
        """Count a gradient of the microbatch at work."""
        held = self.fresh.setdefault(self._stored(weight, device), {})
        held[device] = held.get(device, 0.0) + gradient

    def end_microbatch(self) -> None:
        """Add what was not scattered to the gradients of the microbatches before."""
        for weight, held in self.fresh.items():
            for device, gradient in held.items():
                self.gradients[weight][device] = self.gradients[weight][device] + gradient
        self.fresh, self.gathered = {}, {}

    def gather(self, step: Step) -> None:
        """Bring shards of weights together, for a block of a microbatch."""
        found = {weight: _collected(self.weights[weight], step.groups, (0.0, 1.0)) for weight in step.state}
        for value in step.writes:
            self.gathered[value.name] = found

    def scatter(self, step: Step) -> None:
        """Sum the gradients of the microbatch at work, each device keeping its shard."""
        for weight in step.state:
            held = self.fresh.pop(weight, None)
            if held is None:
                continue
            for device, gradient in _reduced(held, step).items():
                self.gradients[weight][device] = self.gradients[weight][device] + gradient

    def finish(self, step: Step, copies: Sequence[Held]) -> None:
        """Reduce gradients; `copies` are those of all routes before any of them began to."""
        for weight in step.state:
            if step.kind == "all_gather":
                continue
            held = self._copies(weight, copies) | self.gradients[weight]
            found = _reduced(held, step)
            self.gradients[weight] = {d: found.get(d, old) for d, old in self.gradients[weight].items()}

    def _copies(self, weight: Weight, copies: Sequence[Held]) -> dict[int, Array]:
        """What devices hold of a weight on any route, and at any place if it is tied."""
        index, name = weight
        places = [
            (other, name)
            for other, instance in enumerate(self.data.instances)
            if other == index
            or (name in self.data.graph.tied and any(each.name == name for each in instance.op.weights))
        ]
        return {
            device: array
            for each in copies
            for place in places
            if self.owners[place] == place
            for device, array in each.get(place, {}).items()
        }

    def update(self) -> None:
        """Take the step; a weight whose gradient is elsewhere becomes stale."""
        for weight, held in self.weights.items():
            source = self.gradients[self.owners[weight]]
            for device in held:
                if self.owners[weight] == weight:
                    held[device] = held[device] - RATE * source[device]  # NaN where either is elsewhere

    def renew(self, step: Step, copies: Sequence[Held]) -> None:
        """Gather new weights from the devices that have updated them."""
        for weight in step.state:
            held = self._copies(weight, copies) | self.weights[weight]
            found = _collected(held, step.groups, step.span)
            self.weights[weight] = {d: found.get(d, old) for d, old in self.weights[weight].items()}


def _bounds(size: int, span: tuple[float, float]) -> tuple[int, int]:
    return round(size * span[0]), round(size * span[1])


def _shares(count: int, size: int, span: tuple[float, float]) -> list[slice]:
    low, high = _bounds(size, span)
    ends = [low + (high - low) * number // count for number in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def _scattered(held: Mapping[int, Array], groups: Sequence[Sequence[int]]) -> dict[int, Array]:
    """Each device with its share of what all devices of its group hold."""
    found = dict(held)
    for group in groups:
        members = [device for device in group if device in held]
        if not members:
            continue
        for device, here in zip(
            members, _shares(len(members), held[members[0]].size, (0.0, 1.0)), strict=True
        ):
            kept = np.full(held[device].size, np.nan)
            kept[here] = held[device].ravel()[here]
            found[device] = kept.reshape(held[device].shape)
    return found


def _reduced(held: Mapping[int, Array], step: Step) -> dict[int, Array]:
    """What devices hold after a sum over groups: all of it, or each its share."""
    found = {device: array.copy() for device, array in held.items()}
    for group in step.groups:
        members = [device for device in group if device in held]
        if not members:
            continue
        total = step.scale * np.sum([held[device].ravel() for device in members], axis=0)
        low, high = _bounds(total.size, step.span)
        shares = _shares(len(members), total.size, step.span)
        for device, share in zip(members, shares, strict=True):
            flat = found[device].ravel()
            here = share if step.kind == "reduce_scatter" else slice(low, high)
            flat[low:high] = np.nan
            flat[here] = total[here]
            found[device] = flat.reshape(held[device].shape)
    return found


def _collected(
    held: Mapping[int, Array], groups: Sequence[Sequence[int]], span: tuple[float, float]
) -> dict[int, Array]:
    """What devices hold after a gather over groups: each element from a device that has it."""
    found = {device: array.copy() for device, array in held.items()}
    for group in groups:
        members = [device for device in group if device in held]
        for device in members:
            flat = found[device].ravel()
            low, high = _bounds(flat.size, span)
            for other in members:
                theirs = held[other].ravel()[low:high]
                flat[low:high] = np.where(np.isnan(flat[low:high]), theirs, flat[low:high])
            found[device] = flat.reshape(held[device].shape)
    return found
