"""Lowering of the forward pass: every operator's parts, and the moves that bring them their inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from trainwright.model.graph import Tensor
from trainwright.program.builder import Builder, chunk_name
from trainwright.program.layout import Layout
from trainwright.program.step import Step, Value
from trainwright.program.values import Store

Cell = tuple[int, int]  # an operator, and which of its serial parts


def cells(builder: Builder) -> list[Cell]:
    """Operators in order; those of a region with equal serial splits part by part, so that each part ends
    before the next begins.
    """
    found: list[Cell] = []
    for run in _runs(builder):
        chunks = builder.placed[run[0]].serial[1]
        found += [(index, chunk) for chunk in range(chunks) for index in run]
    return found


def _runs(builder: Builder) -> Iterator[list[int]]:
    """Neighbours in one block that are split into equally many serial parts; others alone."""
    run: list[int] = []
    for index, placed in enumerate(builder.placed):
        joins = (
            run
            and placed.serial[1] > 1
            and builder.placed[run[-1]].serial == placed.serial
            and builder.instances[run[-1]].block == builder.instances[index].block
        )
        if run and not joins:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


@dataclass(slots=True, kw_only=True)
class Forward:
    """A pass through operators: what it has made, under names with a suffix of its own."""

    builder: Builder
    phase: str = "F"
    suffix: str = ""
    store: Store = field(default_factory=Store)
    kept: Store = field(default_factory=Store)  # what the backward will find
    passes: int = 0
    weights: tuple[Value, ...] = ()  # of the block at work, where they are gathered for it
    crossing: frozenset[str] = frozenset()  # results that are kept though they are made by what is recomputed

    def run(self, cell: Cell, after: Sequence[int] = ()) -> int:
        """Add one operator's part with the moves that it needs; the number of its step."""
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        first = len(b.steps)
        reads = b.fetch(self.store, list(self._inputs(cell)), index, self.phase)
        beside = self._streamed(first, index)
        writes = tuple(self._outputs(cell))
        time = b.time(index)
        step = b.add(
            Step(
                name=instance.name, phase=self.phase, kind="compute", cause=_CAUSES.get(instance.op.kind, "streaming"),
                mesh=placed.mesh, stage=b.stages[index], block=instance.block, instance=index, chunk=chunk,
                reads=(*(v for v in reads if v not in beside), *(self.weights if instance.op.weights else ())),
                writes=writes, after=tuple(after), beside=tuple(dict.fromkeys(beside.values())),
                seconds=float(time.forward_s[0]) + self._ring_s(beside),
                uneven_s={d: float(t.forward_s[0]) for d, t in b.device_times(index).items()},
                kernels=time.kernels, passes=self.passes,
            )
        )  # fmt: skip
        for value in writes:
            self.store.add(value.name, value.layout, step)
        if self.phase == "F":
            self._keep(cell, reads, writes, step)
        return step

    def _inputs(self, cell: Cell) -> Iterator[tuple[str, Layout]]:
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        for name, tensor in zip(instance.inputs, instance.op.inputs, strict=True):
            if name.startswith("input/"):
                continue
            own = self._version(chunk_name(name, instance.op, tensor, placed, chunk))
            if own not in self.store:
                own = self._version(name)  # written whole: a part of it is at hand
            if own not in self.store:
                self._join(name, cell)
            yield own, b.layout(index, tensor, "read", b.written_dims[own])

    def _version(self, name: str) -> str:
        """The name under which this pass has made a value, or the plain one if it came from before."""
        return name + self.suffix if name + self.suffix in self.store else name

    def _join(self, name: str, cell: Cell) -> None:
        """Parts that were made one after another become the value that they are parts of."""
        b, index = self.builder, cell[0]
        parts = [each for each in self.store.versions if each.partition("#")[0] == name and "#" in each]
        assert parts, f"{name} is read before it is made"
        layout = self.store.layouts(parts[0])[-1]
        b.shapes[name] = replace(
            b.shapes[parts[0]],
            element_bytes=b.shapes[parts[0]].element_bytes * len(parts),
            total_bytes=b.shapes[parts[0]].total_bytes * len(parts),
        )
        b.written_dims[name] = b.written_dims[parts[0]]
        step = b.add(
            Step(
                name=name, phase=self.phase, kind="join", cause="streaming", mesh=layout.mesh,
                stage=b.stages[index], block=b.instances[index].block, instance=index,
                reads=tuple(Value(each, layout) for each in parts), writes=(Value(name, layout),),
            )
        )  # fmt: skip
        self.store.add(name, layout, step)

    def _outputs(self, cell: Cell) -> Iterator[Value]:
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        op = instance.op
        for name, tensor in zip(instance.outputs, (op.output, *op.extra_outputs), strict=True):
            own = chunk_name(name, op, tensor, placed, chunk) + self.suffix
            b.name_shape(own, tensor, instance, placed.serial[1] if "#" in own else 1)
            yield Value(own, b.layout(index, tensor, "written"))

    def _streamed(self, first: int, index: int) -> dict[Value, int]:
        """Gathers since step `first` that arrive while the operator works, by the value that they make."""
        b = self.builder
        if not b.placed[index].stream:
            return {}
        return {
            value: number
            for number in range(first, len(b.steps))
            for value in b.steps[number].writes
            if b.steps[number].cause == "cp"
        }

    def _ring_s(self, beside: dict[Value, int]) -> float:
        """The cost of cutting an operator into one kernel per member of the ring."""
        b = self.builder
        sizes = [len(b.steps[number].mesh.devices) for number in beside.values()]
        if not sizes:
            return 0.0
        move = b.steps[next(iter(beside.values()))].move
        assert move is not None
        ring = 1
        for axis in move.axes:
            ring *= move.source.mesh.axes[axis]
        return 2.0 * (ring - 1) * b.setting.efficiency.kernel_s

    def _keep(self, cell: Cell, reads: Sequence[Value], writes: Sequence[Value], step: int) -> None:
        """What the backward may read: results as they are made, and what products have gathered."""
        b, index = self.builder, cell[0]
        for value in writes:
            if not b.placed[index].recompute or value.name in self.crossing:
                self.kept.add(value.name, value.layout, step)
        again = b.placed[index].recompute or b.instances[index].op.kind == "attention"
        for value in reads:
            known = self.kept.layouts(value.name)
            if again and known and known[0].mesh.devices == value.layout.mesh.devices:
                continue  # gathered again
            if known and value.layout not in known:
                for writer in self.store.versions[value.name][value.layout]:
                    self.kept.add(value.name, value.layout, writer)


_CAUSES = {"matmul": "matmul", "grouped_matmul": "matmul", "attention": "attention"}


def sides(builder: Builder, index: int) -> Iterator[tuple[str, Tensor]]:
    """What an operator keeps for its backward that no operator writes: statistics, masks, routes."""
    instance = builder.instances[index]
    named = {tensor.name for tensor in (*instance.op.inputs, instance.op.output, *instance.op.extra_outputs)}
    for tensor in instance.op.saved:
        if tensor.name not in named:
            yield f"{instance.name}!{tensor.name}", tensor
