"""What a plan says of each operator: its devices as a mesh, what each axis splits, what it keeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from trainwright.errors import BadInput
from trainwright.model.flow import Instance
from trainwright.plan.plan import Assign, Offload, Plan, Recompute, Replicate, Shard, Split, Stream, Transform
from trainwright.plan.rules import LINKED, effect, split_dim, splittable
from trainwright.plan.select import select
from trainwright.program.layout import Mesh


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """One operator's share of a plan; operators of equal shares have the same object."""

    mesh: Mesh
    dims: tuple[str, ...]  # that each axis splits; "" copies
    uneven: Mapping[str, tuple[int, ...]]
    serial: tuple[str, int] = ("", 1)  # the dim of parts that run one after another, and their number
    recompute: bool = False
    freed: frozenset[str] | None = None  # results that are not kept because it is done again; None: all
    stream: bool = False
    late: tuple[int, ...] = ()  # copying axes over which gradients are shares until the end of the step
    shards: Mapping[str, int] = field(default_factory=dict)  # what state is sharded, over how many (0: all)
    offloads: frozenset[str] = frozenset()

    def parts(self, dim: str) -> int:
        """Devices that share a dim."""
        return prod(size for size, each in zip(self.mesh.axes, self.dims, strict=True) if each == dim)


def place(
    plan: Plan, instances: Sequence[Instance], sizes: Sequence[Mapping[str, int]], route: int = 0
) -> list[Placed]:
    """What the plan says of each operator for the microbatches of one route; raises where it is not legal."""
    said = _said(plan, instances)
    devices = _devices(plan, instances, route)
    made: dict[tuple[int, tuple[int, ...], int, int], Placed] = {}
    result: list[Placed] = []
    for index, instance in enumerate(instances):
        key = (id(instance.op), tuple(said[index]), id(devices[index]), instance.segment)
        if key not in made:
            transforms = [plan.transforms[i] for i in said[index]]
            made[key] = _placed(instance, transforms, devices[index], sizes[index])
        result.append(made[key])
    return result


def _said(plan: Plan, instances: Sequence[Instance]) -> list[list[int]]:
    said: list[list[int]] = [[] for _ in instances]
    for number, transform in enumerate(plan.transforms):
        for index in select(instances, transform.ops):
            said[index].append(number)
    return said


def routes(plan: Plan) -> int:
    """Into how many routes the plan deals its microbatches."""
    found = {assign.route[1] for assign in plan.assigns} - {1}
    if len(found) > 1:
        raise BadInput("plan", f"routes {sorted(found)}", "routes disagree", "deal all assigns the same way")
    return found.pop() if found else 1


def _devices(plan: Plan, instances: Sequence[Instance], route: int) -> list[tuple[int, ...]]:
    """The devices of each operator: all of the plan's if nothing is assigned, else each must be, once."""
    if not plan.assigns:
        return [tuple(range(plan.devices))] * len(instances)
    found: list[tuple[int, ...] | None] = [None] * len(instances)
    known: dict[tuple[int, ...], tuple[int, ...]] = {}  # equal ones become one, to be told apart quickly
    for assign in plan.assigns:
        if assign.route[1] > 1 and assign.route[0] != route:
            continue
        _check_devices(plan, assign)
        for index in select(instances, assign.ops):
            if found[index] is not None and found[index] != assign.devices:
                raise BadInput(
                    "plan: op",
                    instances[index].name,
                    "is assigned twice",
                    "assign it to one group of devices",
                )
            found[index] = known.setdefault(assign.devices, assign.devices)
    for index, devices in enumerate(found):
        if devices is None:
            raise BadInput("plan: op", instances[index].name, "is not assigned to a device", "add an assign")
    return [devices for devices in found if devices is not None]


def _check_devices(plan: Plan, assign: Assign) -> None:
    if not assign.devices or len(set(assign.devices)) != len(assign.devices):
        raise BadInput(f"plan: assign {assign.ops}", assign.devices, "names a device twice", "name each once")
    worst = max(assign.devices)
    if worst >= plan.devices:
        raise BadInput(
            f"plan: assign {assign.ops}: device", worst, f"the plan has devices 0 to {plan.devices - 1}",
            "use one of those, or raise `devices`",
        )  # fmt: skip


def _placed(
    instance: Instance, transforms: Sequence[Transform], devices: tuple[int, ...], sizes: Mapping[str, int]
) -> Placed:
    axes: list[int] = []
    dims: list[str] = []
    uneven: dict[str, tuple[int, ...]] = {}
    serial = ("", 1)
    for transform in transforms:
        match transform:
            case Split(serial=True, dim=dim, parts=parts):
                _check_split(instance, transform, sizes)
                _check_serial(instance, dim)
                serial = (dim, parts)
            case Split(dim=dim, parts=parts, sizes=given):
                _check_split(instance, transform, sizes)
                for part in _linked_parts(dim, parts, sizes):
                    axes.append(part)
                    dims.append(dim)
                if given:
                    uneven[dim] = given
            case Replicate(parts=parts):
                axes.append(parts)
                dims.append("")
    if prod(axes) != len(devices):
        raise BadInput(
            "plan: op", instance.name, f"has {prod(axes)} parts for {len(devices)} devices",
            "split or replicate it into as many parts as it has devices",
        )  # fmt: skip
    _check_divides(instance, dims, axes, serial, uneven, sizes)
    again = [each for each in transforms if isinstance(each, Recompute)]
    _check_results(instance, again)
    return Placed(
        mesh=Mesh(devices=devices, axes=tuple(axes)),
        dims=tuple(dims),
        uneven=uneven,
        serial=serial,
        recompute=bool(again),
        freed=None
        if any(each.results is None for each in again)
        else frozenset(name for each in again for name in each.results or ()),
        stream=any(isinstance(each, Stream) for each in transforms),
        shards={each.what: each.ranks for each in transforms if isinstance(each, Shard)},
        offloads=frozenset(each.what for each in transforms if isinstance(each, Offload)),
    )


def _check_results(instance: Instance, again: Sequence[Recompute]) -> None:
    made = [each.name for each in (instance.op.output, *instance.op.extra_outputs)]
    for name in (name for each in again for name in each.results or ()):
        if name not in made:
            raise BadInput(
                f"plan: recompute {instance.name}: result", name, f"it makes {', '.join(made)}",
                "name one of those",
            )  # fmt: skip


def _linked_parts(dim: str, parts: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The axes of one split: two where a linked dim has fewer parts, as when heads share keys and values."""
    for other in LINKED.get(dim, ()):
        size = sizes.get(other, parts)
        if dim == "heads" and size < parts:
            return (size, parts // size) if parts % size == 0 else (1, parts)
    return (parts,)


def _check_split(instance: Instance, split: Split, sizes: Mapping[str, int]) -> None:
    what = effect(instance.op, split.dim)
    where = f"plan: op {instance.name}: split"
    if what in ("shards", "sums"):
        linked = [
            dim for dim in LINKED.get(split.dim, ()) if sizes.get(dim, sizes[split.dim]) != sizes[split.dim]
        ]
        if split.sizes and linked:
            raise BadInput(
                where, f"{split.dim} {':'.join(map(str, split.sizes))}",
                f"{linked[0]} is split with it, into other sizes", "split it evenly",
            )  # fmt: skip
        if split.sizes and sum(split.sizes) != sizes[split.dim]:
            raise BadInput(
                where, f"{split.dim} {':'.join(map(str, split.sizes))}",
                f"the parts add up to {sum(split.sizes)}, the dim to {sizes[split.dim]}", "let them agree",
            )  # fmt: skip
        return
    rule = (
        f"it is not linear in {split.dim}, so parts cannot be summed"
        if what == "frozen"
        else f"it has no dim {split.dim}"
    )
    raise BadInput(
        where, split.dim, rule, f"split it along {', '.join(splittable(instance.op)) or 'nothing'}"
    )


def _check_serial(instance: Instance, dim: str) -> None:
    """Refuse serial parts that would each make all of some result."""
    op = instance.op
    whole = [each.name for each in (op.output, *op.extra_outputs) if split_dim(op, each, dim) is None]
    if effect(op, dim) == "shards" and whole:
        raise BadInput(
            f"plan: op {instance.name}: co-split", dim, f"every part would make all of {whole[0]}",
            "co-split it along a dim that all of its results have",
        )  # fmt: skip


def _check_divides(
    instance: Instance,
    dims: Sequence[str],
    axes: Sequence[int],
    serial: tuple[str, int],
    uneven: Mapping[str, tuple[int, ...]],
    sizes: Mapping[str, int],
) -> None:
    for dim in sorted({*dims, serial[0]} - {""}):
        parts = prod(size for size, each in zip(axes, dims, strict=True) if each == dim)
        parts *= serial[1] if serial[0] == dim else 1
        if dim in uneven:
            if parts != len(uneven[dim]):
                raise BadInput(
                    f"plan: op {instance.name}: split", dim, "is split again beside given sizes",
                    "give sizes to the only split of a dim",
                )  # fmt: skip
        elif dim in sizes and sizes[dim] % parts and dim != "vocab":  # vocabularies are padded
            raise BadInput(
                f"plan: op {instance.name}: split", f"{dim} {parts}",
                f"{sizes[dim]} does not divide into {parts}",
                "choose a divisor, or give sizes like 3:5",
            )  # fmt: skip
