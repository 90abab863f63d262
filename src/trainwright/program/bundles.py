"""The weights of a block by the devices that must agree on them: what is gathered, reduced and updated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from trainwright.errors import BadInput
from trainwright.model.graph import NO_GRADIENT, Tensor, elements, served_results, trained_weights
from trainwright.program.builder import Builder
from trainwright.program.layout import Layout, Mesh
from trainwright.program.step import Weight

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Weights of one block that lie alike: `elements` on each device, the same on every device of a group.

    `groups` are the devices whose gradients are summed, `group` those of the first. `first_groups` are those
    whose gradients must be added before because an axis that splits activations copies these weights (norms
    under sequence parallelism).
    """

    block: str
    stage: int
    mesh: Mesh
    groups: Groups
    first_groups: Groups
    elements: float
    weights: tuple[Weight, ...]
    shards: Mapping[str, int]
    offloads: frozenset[str]
    experts: bool = False
    rows: float = 0.0  # of looked-up tables, whose state is by row; 0 of all other weights
    trained: bool = True  # whether they have gradients; frozen weights are only gathered

    @property
    def group(self) -> tuple[int, ...]:
        """The devices of the first group."""
        return self.groups[0]

    @property
    def summed_first(self) -> tuple[int, ...]:
        """The devices of the first of the groups that add before."""
        return self.first_groups[0] if self.first_groups else ()

    @property
    def instances(self) -> tuple[int, ...]:
        """The operators that own these weights."""
        return tuple(dict.fromkeys(index for index, _ in self.weights))

    def sharding(self, what: str) -> Groups:
        """All groups of devices that share one copy of some state."""
        ranks = len(self.sharded(what))
        return tuple(each[at : at + ranks] for each in self.groups for at in range(0, len(each), ranks))

    def copying(self, what: str) -> Groups:
        """All groups of devices that hold the same shard."""
        ranks = len(self.sharded(what))
        return tuple(each[at::ranks] for each in self.groups for at in range(ranks))

    def sharded(self, what: str) -> tuple[int, ...]:
        """The devices that share one copy of some state; just the first if it is not sharded."""
        if what not in self.shards:
            return self.group[:1]
        ranks = self.shards[what] or len(self.group)
        return self.group[: min(ranks, len(self.group))]

    def replicas(self, what: str) -> tuple[int, ...]:
        """The devices that hold the same shard."""
        return self.group[:: len(self.sharded(what))]


@lru_cache(maxsize=1024)
def groups_along(meshes: tuple[Mesh, ...], axes: tuple[int, ...]) -> Groups:
    """The devices that differ only along some axes, in order; those at equal places of meshes together."""
    found: list[dict[int, None]] = []
    for mesh in meshes:
        fixed = [axis for axis in range(len(mesh.axes)) if axis not in axes]
        grid = np.array(mesh.devices).reshape(mesh.axes).transpose(*fixed, *axes)
        rows = grid.reshape(-1, prod(mesh.axes[axis] for axis in axes)).tolist()
        found = found or [{} for _ in rows]
        for known, row in zip(found, rows, strict=True):
            known |= dict.fromkeys(row)
    return tuple(map(tuple, found))


def bundles(builder: Builder) -> dict[str, list[Bundle]]:
    """The bundles of every block; a tied weight counts where it stands first, if both share devices."""
    found: dict[str, list[Bundle]] = {}
    tied: dict[tuple[str, tuple[int, ...]], None] = {}
    known: dict[tuple[int, int], list[tuple[Tensor, Groups, float]]] = {}
    rows: dict[tuple[object, ...], tuple[Groups, float, list[Weight]]] = {}
    for index, instance in enumerate(builder.instances):
        placed = builder.placed[index]
        key = (id(instance.op), id(placed))
        if key not in known:
            known[key] = list(_weights(builder, index))
        for tensor, groups, size in known[key]:
            name, trained = tensor.name, tensor.element not in NO_GRADIENT
            if name in builder.setting.graph.tied:
                if (name, placed.mesh.devices) in tied:
                    continue
                tied[(name, placed.mesh.devices)] = None
            kept = (*sorted(placed.shards.items()), *sorted(placed.offloads))
            place = (instance.block, builder.stages[index], id(placed.mesh.devices))
            row = (*place, groups[0], kept, trained)
            _, amount, members = rows.get(row, (groups, 0.0, []))
            rows[row] = (groups, amount + size, [*members, (index, name)])
    for groups, amount, members in rows.values():
        bundle = _bundle(builder, groups, amount, members)
        found.setdefault(bundle.block, []).append(bundle)
    return {block: _with_first_sums(builder, each) for block, each in found.items()}


def _weights(builder: Builder, index: int) -> list[tuple[Tensor, Groups, float]]:
    """Of each weight: itself, the groups that sum its gradients, and its elements on one device."""
    instance, placed = builder.instances[index], builder.placed[index]
    sizes = builder.sizes(instance)
    result = []
    for weight in instance.op.weights:
        layout: Layout = builder.layout(index, weight, "gradient of read")
        size = float(elements(weight, sizes))
        uneven = dict(layout.sizes) if instance.op.sparse else {}
        for dim, _ in layout.splits:  # of tables, those of the device that has most
            size *= max(uneven[dim]) / sizes[dim] if dim in uneven else 1.0 / layout.parts(dim)
        summed = tuple(axis for axis in layout.partial if axis in _result_axes(builder, index, weight))
        meshes = (
            placed.mesh,
            *(twin[index].mesh for twin in builder.twins),
            *_other_places(builder, index, weight),
        )
        # In an order on which all copies agree.
        ordered = tuple(sorted(meshes, key=lambda mesh: mesh.devices))
        result.append((weight, groups_along(ordered, summed), size))
    return result


def _other_places(builder: Builder, index: int, weight: Tensor) -> Iterator[Mesh]:
    """The devices of the other copies of a tied weight; all must lie alike, on the same devices or not."""
    own, tied = builder.layout(index, weight, "gradient of read"), weight.name in builder.setting.graph.tied
    for other, instance in enumerate(builder.instances if tied else ()):
        for tensor in instance.op.weights:
            if tensor.name != weight.name or other == index:
                continue
            layout = builder.layout(other, tensor, "gradient of read")
            common = set(own.mesh.devices) & set(layout.mesh.devices)
            alike = replace(layout, mesh=own.mesh) == own if layout.mesh.axes == own.mesh.axes else False
            if not alike or (common and layout.mesh.devices != own.mesh.devices):
                raise BadInput(
                    f"plan: op {builder.instances[index].name}: weight", weight.name,
                    f"is also the weight of {instance.name}, where it is split or placed in another way",
                    "split both alike, on the same devices or on none in common",
                )  # fmt: skip
            if not common:
                yield layout.mesh


def borrowed(builder: Builder, owned: Mapping[str, list[Bundle]]) -> dict[str, list[Bundle]]:
    """The bundles of each block that hold a tied weight of another block too, on the same devices."""
    homes = {weight: bundle for each in owned.values() for bundle in each for weight in bundle.weights}
    places: dict[tuple[str, tuple[int, ...]], Bundle] = {}
    found: dict[str, list[Bundle]] = {}
    for index, instance in enumerate(builder.instances if builder.setting.graph.tied else ()):
        for tensor in instance.op.weights:
            if tensor.name not in builder.setting.graph.tied:
                continue
            key = (tensor.name, builder.placed[index].mesh.devices)
            if (index, tensor.name) in homes:
                places[key] = homes[(index, tensor.name)]
            elif places[key].block != instance.block:
                used = replace(places[key], block=instance.block, stage=builder.stages[index])
                found.setdefault(instance.block, []).append(used)
    return found


def weight_elements(builder: Builder, index: int) -> float:
    """The elements of all weights of an operator on one device."""
    return sum(size for _, _, size in _weights(builder, index))


def _result_axes(builder: Builder, index: int, weight: Tensor) -> set[int]:
    """The axes that split the result that a weight serves, so that devices see parts of its gradient.

    An axis that splits only what is summed over leaves that gradient whole, and a bias with the same
    gradient on every device; so does one that splits queries where keys are copied.
    """
    op = builder.instances[index].op
    layouts = [builder.layout(index, each, "written") for each in served_results(op, weight.name)]
    late = builder.placed[index].late
    return {*late, *(axis for layout in layouts for _, axes in layout.splits for axis in axes)}


def _bundle(builder: Builder, groups: Groups, amount: float, members: Sequence[Weight]) -> Bundle:
    index = members[0][0]
    placed, instance = builder.placed[index], builder.instances[index]
    shards, copies = placed.shards, len(groups[0])
    if "gradients" in shards:  # summed after each microbatch, so on its own route
        copies = sum(device in placed.mesh.devices for device in groups[0])
        shards = {what: min(ranks or copies, copies) for what, ranks in shards.items()}
        if copies == 1:  # nobody on the route to share with: each device keeps all and updates all
            shards = {}
    _check_shards(instance.name, shards, copies)
    trained = any(each.name == members[0][1] for each in trained_weights(instance.op))
    if not trained:  # no gradients, and no optimizer state
        shards = {what: ranks for what, ranks in shards.items() if what == "weights"}
    return Bundle(
        block=instance.block, stage=builder.stages[index], mesh=placed.mesh, groups=groups, first_groups=(),
        elements=amount, weights=tuple(members), shards=shards, offloads=placed.offloads,
        experts=instance.op.kind == "grouped_matmul", rows=_rows(builder, index, amount), trained=trained,
    )  # fmt: skip


def _rows(builder: Builder, index: int, amount: float) -> float:
    """Rows of tables on each device; devices may not hold copies of a table, whose updates would differ."""
    instance = builder.instances[index]
    if not instance.op.sparse:
        return 0.0
    (weight,) = instance.op.weights
    layout = builder.layout(index, weight, "read")
    if copies := prod(layout.mesh.axes[axis] for axis in layout.copies()) - 1:
        raise BadInput(
            f"plan: op {instance.name}", f"{copies + 1} copies",
            "tables are updated row by row, by one device",
            "split it on tables, table_rows or hidden over all devices, as table-parallel does",
        )  # fmt: skip
    return amount / (builder.sizes(instance)[weight.dims[-1]] / layout.parts(weight.dims[-1]))


def _check_shards(name: str, shards: Mapping[str, int], copies: int) -> None:
    """Refuse shards that devices cannot hold evenly, or of which no device has both halves of an update."""
    for what, ranks in shards.items():
        if copies % min(ranks or copies, copies):
            raise BadInput(
                f"plan: op {name}: shard", f"{what} {ranks}", f"its {copies} copies do not divide by {ranks}",
                "choose a divisor of the copies",
            )  # fmt: skip
    both = [min(shards[what] or copies, copies) for what in ("weights", "gradients") if what in shards]
    if len(set(both)) > 1:
        raise BadInput(
            f"plan: op {name}: shard", f"weights {both[0]}, gradients {both[1]}",
            "a device updates the weights whose gradients it has", "shard both over the same number of ranks",
        )  # fmt: skip


def _with_first_sums(builder: Builder, listed: list[Bundle]) -> list[Bundle]:
    """Small bundles whose group contains that of a larger one join it, after a sum over the rest."""
    main = max(
        (each for each in listed if not each.experts and each.trained),
        key=lambda each: each.elements,
        default=listed[0],
    )
    result = []
    for each in listed:
        larger = set(each.group) > set(main.group) and each.elements < main.elements and not each.experts
        larger = larger and each.trained and main.trained
        said, wanted = (builder.placed[bundle.weights[0][0]].shards for bundle in (each, main))
        first = _first_groups(each.groups, main.groups) if larger and said == wanted else None
        joined = replace(each, groups=main.groups, first_groups=first, shards=main.shards) if first else each
        result.append(joined)
    return result


@lru_cache(maxsize=256)
def _first_groups(wide: Groups, narrow: Groups) -> Groups | None:
    """The devices at equal places of the narrow groups inside each wide one; None if those do not fill it."""
    home = {device: number for number, group in enumerate(wide) for device in group}
    inside: list[list[tuple[int, ...]]] = [[] for _ in wide]
    for group in narrow:
        if len({home.get(device, -1) for device in group}) == 1 and group[0] in home:
            inside[home[group[0]]].append(group)
    if any(sum(map(len, parts)) != len(group) for group, parts in zip(wide, inside, strict=True)):
        return None
    return tuple(together for parts in inside for together in zip(*parts, strict=True))
