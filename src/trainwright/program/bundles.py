"""The weights of a block by the devices that must agree on them: what is gathered, reduced and updated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from trainwright.model.graph import elements
from trainwright.program.builder import Builder
from trainwright.program.layout import Layout, Mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Weights of one block that lie alike: `elements` on each device, the same on every device of a group.

    `group` are the devices, of the first device's group, whose gradients are summed. `summed_first` are those
    whose gradients must be added before because an axis that splits activations copies these weights (norms
    under sequence parallelism).
    """

    block: str
    stage: int
    mesh: Mesh
    group: tuple[int, ...]
    summed_first: tuple[int, ...]
    elements: float
    instances: tuple[int, ...]
    shards: Mapping[str, int]
    offloads: frozenset[str]
    experts: bool = False

    def sharded(self, what: str) -> tuple[int, ...]:
        """The devices that share one copy of some state; just the first if it is not sharded."""
        if what not in self.shards:
            return self.group[:1]
        ranks = self.shards[what] or len(self.group)
        return self.group[: min(ranks, len(self.group))]

    def replicas(self, what: str) -> tuple[int, ...]:
        """The devices that hold the same shard."""
        return self.group[:: len(self.sharded(what))]


def group_along(mesh: Mesh, axes: Sequence[int]) -> tuple[int, ...]:
    """The devices that differ from the first only along some axes, in order."""
    ranges = [range(size) if axis in axes else range(1) for axis, size in enumerate(mesh.axes)]
    strides = [prod(mesh.axes[axis + 1 :]) for axis in range(len(mesh.axes))]
    return tuple(
        mesh.devices[sum(at * stride for at, stride in zip(place, strides, strict=True))]
        for place in product(*ranges)
    )


def bundles(builder: Builder) -> dict[str, list[Bundle]]:
    """The bundles of every block; a tied weight counts where it stands first, if both places share devices."""
    found: dict[str, list[Bundle]] = {}
    tied: dict[tuple[str, tuple[int, ...]], None] = {}
    known: dict[tuple[int, int], list[tuple[str, tuple[int, ...], float]]] = {}
    rows: dict[tuple[str, int, tuple[int, ...]], tuple[float, list[int]]] = {}
    for index, instance in enumerate(builder.instances):
        placed = builder.placed[index]
        key = (id(instance.op), id(placed))
        if key not in known:
            known[key] = list(_weights(builder, index))
        for name, group, size in known[key]:
            if name in builder.setting.graph.tied:
                if (name, placed.mesh.devices) in tied:
                    continue
                tied[(name, placed.mesh.devices)] = None
            row = (instance.block, id(placed.mesh.devices), group)
            amount, members = rows.get(row, (0.0, []))
            rows[row] = (amount + size, [*members, index])
    for (block, _, group), (amount, members) in rows.items():
        found.setdefault(block, []).append(_bundle(builder, block, group, amount, members))
    return {block: _with_first_sums(each) for block, each in found.items()}


def _weights(builder: Builder, index: int) -> list[tuple[str, tuple[int, ...], float]]:
    """Of each weight: its name, the group that sums its gradients, and its elements on one device."""
    instance, placed = builder.instances[index], builder.placed[index]
    sizes = builder.sizes(instance)
    result = []
    for weight in instance.op.weights:
        layout: Layout = builder.layout(index, weight, "gradient of read")
        size = float(elements(weight, sizes))
        for dim, _ in layout.splits:
            size /= layout.parts(dim)
        result.append((weight.name, group_along(placed.mesh, layout.partial), size))
    return result


def _bundle(
    builder: Builder, block: str, group: tuple[int, ...], amount: float, members: Sequence[int]
) -> Bundle:
    placed = builder.placed[members[0]]
    return Bundle(
        block=block, stage=builder.stages[members[0]], mesh=placed.mesh, group=group, summed_first=(),
        elements=amount, instances=tuple(dict.fromkeys(members)), shards=placed.shards, offloads=placed.offloads,
        experts=builder.instances[members[0]].op.kind == "grouped_matmul",
    )  # fmt: skip


def _with_first_sums(listed: list[Bundle]) -> list[Bundle]:
    """Small bundles whose group contains that of a larger one join it, after a sum over the rest."""
    main = max((each for each in listed if not each.experts), key=lambda each: each.elements, default=listed[0])
    result = []
    for each in listed:
        larger = set(each.group) > set(main.group) and each.elements < main.elements and not each.experts
        if larger and each.group[0] == main.group[0]:
            rest = tuple(d for d in each.group if d == each.group[0] or d not in main.group)
            extra = len(each.group) // max(len(main.group), 1)
            result.append(replace(each, group=main.group, summed_first=rest[:extra]))
        else:
            result.append(each)
    return result
