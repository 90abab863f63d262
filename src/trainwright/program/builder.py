"""The one place where a program grows: steps, and the values that they have made."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainwright.cost.operators import OpTime, op_time
from trainwright.model.flow import Instance
from trainwright.model.graph import Op, Tensor, dim_sizes
from trainwright.plan.plan import Plan
from trainwright.plan.rules import ROUTED, split_dim
from trainwright.program.convert import convert
from trainwright.program.layout import Layout
from trainwright.program.moves import ACROSS, LOCAL, Move
from trainwright.program.network import Network
from trainwright.program.overlap import hiding
from trainwright.program.placed import Placed
from trainwright.program.setting import Setting
from trainwright.program.step import Step, Value
from trainwright.program.tensors import Role, local_sizes, tensor_layout
from trainwright.program.values import Shape, Store, shape_of


@dataclass(slots=True, kw_only=True)
class Builder:
    """Steps of one microbatch as they are found, with what they are found from."""

    setting: Setting
    plan: Plan
    network: Network
    instances: Sequence[Instance]
    placed: Sequence[Placed]
    stages: Sequence[int]  # of each operator
    twins: Sequence[
        Sequence[Placed]
    ] = ()  # on the other routes, whose copies of weights are summed with these
    steps: list[Step] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    written_dims: dict[str, tuple[str, ...]] = field(default_factory=dict)
    homes: dict[str, Layout] = field(default_factory=dict)  # how each value was first written
    aliases: dict[Value, Value] = field(default_factory=dict)  # values that lie the same in two layouts
    _layouts: dict[tuple[int, int, int, Role, tuple[str, ...]], Layout] = field(default_factory=dict)
    _times: dict[tuple[int, int], OpTime] = field(default_factory=dict)
    _sizes: dict[int, dict[str, int]] = field(default_factory=dict)

    def add(self, step: Step) -> int:
        """Append a step; its number."""
        self.steps.append(step)
        return len(self.steps) - 1

    def sizes(self, instance: Instance) -> dict[str, int]:
        """Sizes of all dims around an operator, for one microbatch over all devices."""
        if instance.segment not in self._sizes:
            segment = self.setting.graph.segments[instance.segment]
            sizes = dim_sizes(self.setting.graph, segment, self.plan.batch, self.setting.seq)
            self._sizes[instance.segment] = {**sizes, "statistics": 2}
        return self._sizes[instance.segment]

    def layout(self, index: int, tensor: Tensor, role: Role, dims: tuple[str, ...] = ()) -> Layout:
        """The layout in which an operator has a tensor in some role."""
        instance, placed = self.instances[index], self.placed[index]
        key = (id(instance.op), id(placed), id(tensor), role, dims)
        if key not in self._layouts:
            self._layouts[key] = tensor_layout(placed, instance.op, tensor, role, self.sizes(instance), dims)
        return self._layouts[key]

    def time(self, index: int) -> OpTime:
        """The time of one operator's part on a device."""
        instance, placed = self.instances[index], self.placed[index]
        key = (id(instance.op), id(placed))
        if key not in self._times:
            self._times[key] = self._op_time(instance, placed)
        return self._times[key]

    def device_times(self, index: int) -> dict[int, OpTime]:
        """The times by device, where parts are uneven."""
        instance, placed = self.instances[index], self.placed[index]
        if not placed.uneven:
            return {}
        return {device: self._op_time(instance, placed, device) for device in placed.mesh.devices}

    def _op_time(self, instance: Instance, placed: Placed, device: int = -1) -> OpTime:
        """The time of an operator's part; of experts that are spread over ranks, on the slowest of these."""
        local = local_sizes(placed, instance.op, self.sizes(instance), device)
        found = op_time(instance.op, local, self.setting.machine)
        is_spread = instance.op.region == "experts" and placed.parts(ROUTED) > 1
        return found.scaled(self.setting.stack.expert_slowdown) if is_spread else found

    def name_shape(
        self, name: str, tensor: Tensor, instance: Instance, part: tuple[str, int] = ("", 1)
    ) -> None:
        """Remember what a value is made of, under the dims that it is first written with.

        `part` is the dim of which it has but a part, and the number of those.
        """
        if name not in self.shapes:
            sizes, (dim, parts) = self.sizes(instance), part
            sizes = {**sizes, dim: sizes[dim] // parts} if parts > 1 else sizes
            self.shapes[name] = shape_of(tensor, sizes, self.setting.machine.element_bytes)
            self.written_dims[name] = tensor.dims

    def fetch(
        self, store: Store, wanted: Sequence[tuple[str, Layout]], index: int, phase: str
    ) -> tuple[Value, ...]:
        """The wanted values, moved where they are not yet in the wanted layout; equal moves go together."""
        together: dict[tuple[Layout, Layout], list[str]] = {}
        for name, layout in wanted:
            found = store.layouts(name)
            if layout not in found:
                source = self._nearest(name, found, layout)
                together.setdefault((source, layout), []).append(name)
        for (source, target), names in together.items():
            self._move(store, tuple(dict.fromkeys(names)), source, target, index, phase)
        return tuple(Value(name, layout) for name, layout in wanted)

    def moves(self, name: str, source: Layout, target: Layout) -> tuple[Move, ...]:
        """The moves that take a value from one layout to another."""
        return self._path((name,), source, target)

    def add_up(self, store: Store, name: str, source: Layout, target: Layout, index: int) -> None:
        """Add a gradient that lies as the target does to what is there already."""
        move = Move(kind="slice", source=source, target=target, axes=(), sent_bytes=0.0, seconds=0.0)
        self._move_step(store, (name,), move, (source, target), index, "I")

    def _nearest(self, name: str, found: Sequence[Layout], target: Layout) -> Layout:
        assert found, f"{name} is read before it is made"
        if len(found) == 1:
            return found[0]
        return min(found, key=lambda each: sum(m.seconds for m in self._path((name,), each, target)))

    def _path(self, names: Sequence[str], source: Layout, target: Layout) -> tuple[Move, ...]:
        shape = self.shapes[names[0].removeprefix("d:")]
        total = sum(self.shapes[name.removeprefix("d:")].total_bytes for name in names)
        size = shape.element_bytes * total / shape.total_bytes
        return convert(source, target, shape.dims, size, self.network)

    def _move(
        self, store: Store, names: tuple[str, ...], source: Layout, target: Layout, index: int, phase: str
    ) -> None:
        moves = self._path(names, source, target)
        if not moves:
            for name in names:
                store.alias(name, source, target)
                self.aliases[Value(name, target)] = Value(name, source)
            return
        at = source
        for number, move in enumerate(moves):
            to = target if number == len(moves) - 1 else move.target
            self._move_step(store, names, move, (at, to), index, phase)
            at = to

    def _move_step(
        self,
        store: Store,
        names: tuple[str, ...],
        move: Move,
        ends: tuple[Layout, Layout],
        index: int,
        phase: str,
    ) -> None:
        instance, stack = self.instances[index], self.setting.stack
        cause = move_cause(move, instance.op, "hidden" in self.shapes[names[0].removeprefix("d:")].dims)
        hides = hiding(stack, cause, phase, on=self.plan.overlap, stream=self.placed[index].stream)
        sends = move.kind in ACROSS or (move.fallback and cause == "pp")
        routes = cause == "ep" and any(ROUTED in dict(each.splits) for each in (move.source, move.target))
        seconds = move.seconds * (stack.expert_slowdown if routes else 1.0) + (stack.send_s if sends else 0.0)
        mesh = ends[0].mesh if sends else ends[1].mesh
        here = mesh.devices == self.placed[index].mesh.devices
        step = self.add(
            Step(
                name=names[0], phase=phase, kind=move.kind, cause=cause,
                mesh=mesh,
                stage=self.stages[index] if here else self._writing_stage(store, names[0], ends[0], index),
                block=instance.block, instance=index,
                reads=tuple(Value(name, ends[0]) for name in names),
                writes=tuple(Value(name, ends[1]) for name in names),
                move=move, seconds=seconds * hides.passes, whole_s=seconds, blocking=hides.blocks,
                slows=hides.slows, lane=hides.lane, bytes=move.sent_bytes,
                kernels=0.0 if move.kind in LOCAL or sends else 2.0 if move.kind == "all_reduce" else 1.0,
            )
        )  # fmt: skip
        for name in names:
            store.add(name, ends[1], step)

    def _writing_stage(self, store: Store, name: str, layout: Layout, index: int) -> int:
        writers = store.versions[name].get(layout, ())
        if not writers:
            return self.stages[index]
        made = self.steps[writers[-1]]
        # What was sent there was sent for an operator of that stage.
        came = made.instance >= 0 and made.mesh.devices != layout.mesh.devices
        return self.stages[made.instance] if came else made.stage


def move_cause(move: Move, op: Op, hidden: bool) -> str:
    """What the time of a move is counted as; `hidden` is whether it moves a hidden state, not heads."""
    if move.kind in ACROSS or move.source.mesh.devices != move.target.mesh.devices:
        return "pp"
    before, after = dict(move.source.splits), dict(move.target.splits)
    if before.get(ROUTED) != after.get(ROUTED) or op.region in ("experts", "tables"):
        return "ep"
    if not hidden and any(before.get(dim) != after.get(dim) for dim in ("seq", "seq_enc")):
        return "cp"
    return "tp"


def chunk_name(name: str, op: Op, tensor: Tensor, placed: Placed, chunk: int) -> str:
    """The name of the part of a value that one of an operator's serial parts has; the value's own if whole.

    Serial parts are parts of what each device has, so they are others where other devices have it.
    """
    dim, chunks = placed.serial
    if chunks > 1 and split_dim(op, tensor, dim) is not None:
        return f"{name}#{dim}.{chunk}.{chunks}.{placed.parts(dim)}"
    return name
