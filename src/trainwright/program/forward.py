"""Lowering of the forward pass: every operator's parts, and the moves that bring them their inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from trainwright.plan.recompute_modules import repeated_share
from trainwright.plan.rules import split_dim
from trainwright.program.builder import Builder, chunk_name
from trainwright.program.layout import Layout
from trainwright.program.losses import splits_vocabulary, statistics_layout, statistics_of
from trainwright.program.offload import BROUGHT
from trainwright.program.step import Step, Value
from trainwright.program.values import Store

CARRIED = ("probabilities",)  # travel with the tokens that they weigh
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
    """Neighbours in one block that are split into equally many serial parts; others alone.

    What stands between them without reading from them comes before them.
    """
    run: list[int] = []
    for index, placed in enumerate(builder.placed):
        if run and _goes_before(builder, index, run):
            yield [index]
            continue
        joins = (
            run
            and placed.serial[1] > 1
            and builder.placed[run[-1]].serial == placed.serial
            and builder.instances[run[-1]].block == builder.instances[index].block
            and all(map(partial(_in_parts, builder, index), run))
        )
        if run and not joins:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


def _in_parts(builder: Builder, index: int, writer: int) -> bool:
    """Whether all that an operator reads of another one is there as soon as that one's serial part is."""
    made, instance, (dim, _) = (
        builder.instances[writer],
        builder.instances[index],
        builder.placed[index].serial,
    )
    alike = builder.placed[writer].parts(dim) == builder.placed[index].parts(dim)
    for name, tensor in zip(made.outputs, (made.op.output, *made.op.extra_outputs), strict=True):
        for other, used in zip(instance.inputs, instance.op.inputs, strict=True):
            parted = None not in (split_dim(made.op, tensor, dim), split_dim(instance.op, used, dim))
            if name == other and not (alike and parted):
                return False
    return True


def _goes_before(builder: Builder, index: int, run: Sequence[int]) -> bool:
    if not builder.placed[index].serial[1] == 1 < builder.placed[run[-1]].serial[1]:
        return False
    instance, last = builder.instances[index], builder.instances[run[-1]]
    made = {name for each in run for name in builder.instances[each].outputs}
    return instance.block == last.block and made.isdisjoint(instance.inputs)


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
    recycled: dict[str, str] = field(default_factory=dict)  # inputs that the pass before has made
    before: int = 0  # the number of that pass

    def run(self, cell: Cell, after: Sequence[int] = ()) -> int:
        """Add one operator's part with the moves that it needs; the number of its step."""
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        first = len(b.steps)
        reads = b.fetch(self.store, list(self._inputs(cell)), index, self.phase)
        if self.passes or self.recycled:
            self._count_passes(first, index)
        beside = self._streamed(first, index)
        writes = tuple(self._outputs(cell))
        time, share = b.time(index), 1.0
        if self.phase == "R" and placed.freed:
            share = repeated_share(instance.op, placed.freed, b.sizes(instance))
        step = b.add(
            Step(
                name=instance.name, phase=self.phase, kind="compute",
                cause=_CAUSES.get(instance.op.kind, "streaming"),
                mesh=placed.mesh, stage=b.stages[index], block=instance.block, instance=index, chunk=chunk,
                reads=(
                    *(v for v in reads if v not in beside), *(self.weights if instance.op.weights else ()),
                ),
                writes=writes, after=tuple(after), beside=tuple(dict.fromkeys(beside.values())),
                seconds=share * float(time.forward_s[0]) + self._ring_s(beside),
                uneven_s={d: share * float(t.forward_s[0]) for d, t in b.device_times(index).items()},
                kernels=float(time.kernels[0]), passes=self.passes,
            )
        )  # fmt: skip
        for value in writes:
            self.store.add(value.name, value.layout, step)
            b.homes.setdefault(value.name.removesuffix(self.suffix), value.layout)
        if splits_vocabulary(b, index):
            return self._close_loss(cell, step)
        if self.phase == "F":
            self._keep(cell, reads, writes, step)
        return step

    def _close_loss(self, cell: Cell, step: int) -> int:
        """Once all parts of the vocabulary are there: sum their statistics, which the loss is made from."""
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        op, (dim, chunks) = instance.op, placed.serial
        if self.phase == "R" or (dim in op.contracted and chunk + 1 < chunks):
            return step
        (name,) = (value.name for value in b.steps[step].writes)
        whole = replace(statistics_layout(b, index), partial=())
        reads = b.fetch(self.store, [(name, whole)], index, self.phase)
        self.kept.versions[name] = {whole: self.store.versions[name][whole]}
        output = chunk_name(instance.outputs[0], op, op.output, placed, chunk) + self.suffix
        value = Value(output, b.layout(index, op.output, "written"))
        close = b.steps[step].set(
            reads=reads, writes=(value,), seconds=0.0, uneven_s={}, kernels=0.0, after=(), beside=()
        )
        number = b.add(close)
        self.store.add(value.name, value.layout, number)
        return number

    def _count_passes(self, first: int, index: int) -> None:
        """Let moves since step `first` be of this pass; what the pass before sends it, of that one."""
        b = self.builder
        for number in range(first, len(b.steps)):
            step = b.steps[number]
            sent = step.stage != b.stages[index] and step.reads[0].name in self.recycled.values()
            changes = {"phase": "N", "passes": self.before} if sent else {"passes": self.passes}
            b.steps[number] = step.set(**changes)

    def _inputs(self, cell: Cell) -> Iterator[tuple[str, Layout]]:
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        for name, tensor in zip(instance.inputs, instance.op.inputs, strict=True):
            if name.startswith("input/"):
                if name in self.recycled:
                    own = self.recycled[name]
                    yield own, b.layout(index, tensor, "read", b.written_dims[own])
                continue
            if tensor.name in CARRIED:
                continue
            own = self._version(chunk_name(name, instance.op, tensor, placed, chunk))
            if own not in self.store:
                own = self._version(name)  # written whole: a part of it is at hand
            if own not in self.store:
                own = self.join(name, cell)
            yield own, b.layout(index, tensor, "read", b.written_dims[own])

    def _version(self, name: str) -> str:
        """The name under which this pass has made a value, or the plain one if it came from before."""
        versions = (name + self.suffix, name + BROUGHT)
        return next((each for each in versions if each in self.store), name)

    def join(self, name: str, cell: Cell) -> str:
        """Parts that were made one after another become the value that they are parts of."""
        b, index = self.builder, cell[0]
        found = [each for each in self.store.versions if each.partition("#")[0] == name and "#" in each]
        parts = [each for each in found if each.endswith(self.suffix)] or found
        whole, name = name, name + self.suffix
        b.shapes.setdefault(name, b.shapes[whole])
        b.written_dims.setdefault(name, b.written_dims[whole])
        assert parts, f"{name} is read before it is made"
        layout = self.store.layouts(parts[0])[0]
        step = b.add(
            Step(
                name=name, phase=self.phase, kind="join", cause="streaming", mesh=layout.mesh,
                stage=b.stages[index], block=b.instances[index].block, instance=index,
                reads=tuple(Value(each, layout) for each in parts), writes=(Value(name, layout),),
                passes=self.passes,
            )
        )  # fmt: skip
        self.store.add(name, layout, step)
        return name

    def _outputs(self, cell: Cell) -> Iterator[Value]:
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        op = instance.op
        listed = list(zip(instance.outputs, (op.output, *op.extra_outputs), strict=True))
        sums = splits_vocabulary(b, index)
        if sums:
            tensor = statistics_of(op)
            listed += [(f"{instance.block}/{tensor.name}", tensor)]
        for name, tensor in listed:
            own = chunk_name(name, op, tensor, placed, chunk) + self.suffix
            b.name_shape(name + self.suffix, tensor, instance)
            if "#" in own:
                part = split_dim(op, tensor, placed.serial[0]), placed.serial[1]
                b.name_shape(own, tensor, instance, part)  # type: ignore[arg-type]
            if not sums:
                if self.phase != "R" or not placed.freed or tensor.name in placed.freed:
                    yield Value(own, b.layout(index, tensor, "written"))
            elif tensor is not op.output and self.phase != "R":
                yield Value(own, statistics_layout(b, index))

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
        for value, name in zip(writes, b.instances[index].outputs, strict=True):
            stays = not b.placed[index].recompute or not frees(b, index, name)
            if stays or value.name.partition("#")[0] in self.crossing:
                self.kept.add(value.name, value.layout, step)
        recompute, attention = b.placed[index].recompute, b.instances[index].op.kind == "attention"
        for value in reads:
            known = self.kept.layouts(value.name)
            here = known and known[0].mesh.devices == value.layout.mesh.devices
            again = recompute or (attention and here and not is_no_larger(value.layout, known[0]))
            if again and here and not known[0].partial:
                continue  # gathered again; what was summed, or traded for as much, is kept
            if known and value.layout not in known:
                for writer in self.store.versions[value.name][value.layout]:
                    self.kept.add(value.name, value.layout, writer)


def frees(builder: Builder, index: int, name: str) -> bool:
    """Whether a result of an operator that is done again is not kept."""
    instance, freed = builder.instances[index], builder.placed[index].freed
    op = instance.op
    made = zip(instance.outputs, (op.output, *op.extra_outputs), strict=True)
    return freed is None or any(name == own and tensor.name in freed for own, tensor in made)


def is_no_larger(layout: Layout, other: Layout) -> bool:
    """Whether a device holds no more of a value in a layout than in another."""
    one, two = (prod(each.parts(dim) for dim, _ in each.splits) for each in (layout, other))
    return one >= two


_CAUSES = {"matmul": "matmul", "grouped_matmul": "matmul", "attention": "attention"}
