"""Weights as one device holds them: those that lie alike in one flat tensor, whole or a shard of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm, prod

import torch

from trainwright.program.bundles import Bundle
from trainwright.program.layout import Region, region
from trainwright.program.lower import Program
from trainwright.program.reference import weight_key
from trainwright.program.step import Weight
from trainwright.runtime.groups import Members


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One weight inside a parcel: its part of the whole weight, and where that lies in the flat tensor."""

    key: str  # under which the weight is stored, at whichever place of the model
    dims: tuple[str, ...]
    sizes: tuple[int, ...]  # of the whole weight
    region: Region
    start: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return tuple(high - low for low, high in self.region.values())

    @property
    def end(self) -> int:
        """Where the next one starts."""
        return self.start + prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Devices that share a flat tensor, each with an equal part; all of it if a device is alone."""

    members: Members
    me: int

    def span(self, size: int) -> tuple[int, int]:
        """The part of this device."""
        each = size // len(self.members)
        at = self.members.index(self.me)
        return at * each, (at + 1) * each


@dataclass(slots=True, kw_only=True, eq=False)
class Parcel:
    """Weights that are gathered, reduced and updated together on one device.

    `weights` is what is at hand of the flat tensor in the dtype of computation: all, or this device's shard.
    `gradients` likewise, from the first backward of a step to the next step. `owned` are the elements that
    this device updates, whose values in full precision are `master`.
    """

    slots: tuple[Slot, ...]
    size: int  # elements, filled up so that all devices have equal shards
    weight_sharing: Sharing
    gradient_sharing: Sharing
    update_sharing: Sharing
    trained: bool = True  # whether they have gradients and are updated
    weights: torch.Tensor = field(init=False)
    master: torch.Tensor = field(init=False)
    key: tuple[str, ...] = field(init=False)  # of all its weights: what tells it from others on its device
    _places: dict[str, tuple[int, int, tuple[int, ...]]] = field(init=False)
    _gradients: torch.Tensor | None = None
    _views: dict[str, torch.Tensor] = field(default_factory=dict)  # of the weights that are at hand

    def __post_init__(self) -> None:
        self.key = tuple(slot.key for slot in self.slots)
        self._places = {slot.key: (slot.start, slot.end, slot.shape) for slot in self.slots}

    @property
    def owned(self) -> tuple[int, int]:
        """The elements that this device updates."""
        return self.update_sharing.span(self.size)

    @property
    def shards_weights(self) -> bool:
        """Whether this device has but a shard of the weights."""
        return len(self.weight_sharing.members) > 1

    @property
    def shards_gradients(self) -> bool:
        """Whether gradients are scattered after each microbatch."""
        return len(self.gradient_sharing.members) > 1

    def allocate(self, dtype: torch.dtype, device: torch.device) -> None:
        """Room for weights and what is updated, all zero."""
        low, high = self.weight_sharing.span(self.size)
        self.weights = torch.zeros(high - low, dtype=dtype, device=device)
        self._views.clear()
        self.master = self.own_weights()
        if dtype != torch.float32 and self.trained:
            self.master = torch.zeros_like(self.master, dtype=torch.float32)

    @property
    def gradients(self) -> torch.Tensor:
        """What is at hand of the gradients: zeros when they are first asked for in a step."""
        if self._gradients is None:
            low, high = self.gradient_sharing.span(self.size)
            self._gradients = torch.zeros(high - low, dtype=torch.float32, device=self.weights.device)
        return self._gradients

    def forget_gradients(self) -> None:
        """Free them; the next ones start from zero."""
        self._gradients = None

    def own_weights(self) -> torch.Tensor:
        """The elements of the weights that this device updates."""
        return self._own(self.weights, self.weight_sharing)

    def own_gradients(self) -> torch.Tensor:
        """The elements of the gradients that this device updates from."""
        return self._own(self.gradients, self.gradient_sharing)

    def _own(self, flat: torch.Tensor, sharing: Sharing) -> torch.Tensor:
        (low, high), (start, _) = self.owned, sharing.span(self.size)
        return flat[low - start : high - start]

    def publish(self) -> None:
        """Take over what was updated in full precision."""
        own = self.own_weights()
        if own.data_ptr() != self.master.data_ptr():
            own.copy_(self.master)

    def view(self, flat: torch.Tensor, key: str) -> torch.Tensor:
        """One of the weights inside a whole flat tensor."""
        if flat is self.weights and key in self._views:
            return self._views[key]
        start, end, shape = self._places[key]
        found = flat[start:end].view(shape)
        if flat is self.weights:
            self._views[key] = found
        return found

    def pieces(self) -> Iterator[tuple[Slot, int, int, torch.Tensor]]:
        """What this device updates of each weight: from and to, within its part, and the values."""
        low, high = self.owned
        for slot in self.slots:
            first, last = max(slot.start, low), min(slot.end, high)
            if first < last:
                yield slot, first - slot.start, last - slot.start, self.master[first - low : last - low]


def key_of(program: Program, weight: Weight) -> str:
    """The name under which a weight is stored; a tied one has the same at all of its places."""
    instance = program.instances[weight[0]]
    tensor = next(each for each in instance.op.weights if each.name == weight[1])
    return weight_key(program.setting.graph, instance, tensor)


def build_parcels(program: Program, device: int) -> dict[tuple[str, ...], Parcel]:
    """The parcels of a device by their keys; one that two routes have is one parcel."""
    found: dict[tuple[str, ...], Parcel] = {}
    for number, route in enumerate(program.routes):
        for bundle in route.bundles:
            for weights in _apart(program, bundle) if device in bundle.mesh.devices else ():
                parcel = _parcel(program, number, bundle, weights, device)
                found.setdefault(parcel.key, parcel)
    return found


def _apart(program: Program, bundle: Bundle) -> Iterator[tuple[Weight, ...]]:
    """The weights of a bundle; a tied one alone, since at its other places it lies among others."""
    tied = [weight for weight in bundle.weights if weight[1] in program.setting.graph.tied]
    others = tuple(weight for weight in bundle.weights if weight not in tied)
    if others:
        yield others
    yield from ((weight,) for weight in tied)


def _parcel(program: Program, route: int, bundle: Bundle, weights: Sequence[Weight], device: int) -> Parcel:
    slots = tuple(_slots(program, route, weights, device))
    parts = lcm(len(bundle.group), len(bundle.sharded("weights")), len(bundle.sharded("gradients")))
    size = -(-slots[-1].end // parts) * parts
    gradients = _sharing(bundle.sharding("gradients"), device)
    gathered = _sharing(bundle.sharding("weights"), device)
    alone = Sharing(members=(device,), me=device)
    update = gradients if len(gradients.members) > 1 else gathered
    if len(update.members) == 1 and "optimizer" in bundle.shards:
        update = _sharing(bundle.groups, device)
    return Parcel(
        slots=slots, size=size, weight_sharing=gathered, gradient_sharing=gradients,
        update_sharing=update if len(update.members) > 1 else alone, trained=bundle.trained,
    )  # fmt: skip


def _sharing(groups: Sequence[Sequence[int]], device: int) -> Sharing:
    members = next((tuple(sorted(each)) for each in groups if device in each), (device,))
    return Sharing(members=members, me=device)


def _slots(program: Program, route: int, weights: Sequence[Weight], device: int) -> Iterator[Slot]:
    start = 0
    for index, name in weights:
        instance = program.instances[index]
        tensor = next(each for each in instance.op.weights if each.name == name)
        slot = Slot(
            key=key_of(program, (index, name)), dims=tensor.dims,
            sizes=tuple(program.builders[route].sizes(instance)[dim] for dim in tensor.dims),
            region=weight_region(program, route, (index, name), device), start=start,
        )  # fmt: skip
        yield slot
        start = slot.end


def weight_region(program: Program, route: int, weight: Weight, device: int) -> Region:
    """The part of a weight that a device has."""
    (index, name), builder = weight, program.builders[route]
    instance = program.instances[index]
    tensor = next(each for each in instance.op.weights if each.name == name)
    layout = builder.layout(index, tensor, "read")
    sizes: Mapping[str, int] = {dim: builder.sizes(instance)[dim] for dim in tensor.dims}
    return region(layout, sizes, layout.mesh.devices.index(device))
