"""What a device needs to know to carry out one operator's step: which values, which parts, which weights."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from trainwright.model.flow import Instance
from trainwright.model.graph import NO_GRADIENT, Op, Tensor
from trainwright.plan.rules import ROUTED, split_dim
from trainwright.program.builder import Builder
from trainwright.program.call import results
from trainwright.program.layout import Layout, region
from trainwright.program.losses import STATISTICS
from trainwright.program.lower import Program, Route
from trainwright.program.shards import base_name
from trainwright.program.step import GRADIENT, STATE_GRADIENT, Step, Value
from trainwright.runtime.parcels import Parcel, key_of
from trainwright.runtime.ring import Ring
from trainwright.runtime.work import Span

Candidates = tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An input that comes with the data, or a value; the part of it that is worked on."""

    name: str = ""  # of what comes with the data
    candidates: Candidates = ()
    cut: tuple[tuple[int, int, int], ...] = ()  # axis, from, length
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A weight at work: its parcel, and the serial part of it."""

    name: str
    key: str
    parcel: Parcel
    adds: bool
    counts: bool  # whether it has a gradient, which is this serial part's to give
    cut: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A result or a gradient: its value, and where it lies in it if it is but a part."""

    index: int  # of the result, or of the input that it is the gradient of
    value: Value
    spread: tuple[tuple[int, int, int], ...] = ()  # axis, from, whole length


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One compute step on one device."""

    step: Step
    op: Op
    sizes: Mapping[str, int]
    at: Mapping[str, Span]
    inputs: tuple[Given | None, ...]
    weights: tuple[Held, ...]
    sources: tuple[str, ...]  # names under which weights may have been gathered
    writes: tuple[Written, ...]
    incoming: tuple[tuple[Given, ...], ...]  # by result: contributions to its gradient
    counted: tuple[bool, ...]
    statistics: Candidates | None
    writes_statistics: Value | None
    recompute: bool
    reports: bool  # whether this device tells the loss
    reads: tuple[Candidates, ...]
    gives_weights: bool
    keeps_input: bool  # whether the forward of a matmul must keep what its weights' gradients are made from
    rows: Mapping[str, Span]  # of an operator of experts: the part of samples, places and experts
    ring: Ring | None = None  # round which the keys and values of an attention come

    @cached_property
    def cell(self) -> tuple[int, int]:
        """The operator, and which of its serial parts."""
        return self.step.instance, self.step.chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembler:
    """Builds the operations of one route for one device."""

    program: Program
    route: Route
    builder: Builder
    device: int
    parcels: Mapping[str, Parcel]  # by the key of a weight
    recycled: Mapping[str, str]  # what a pass is given by the one before it

    def build(self, step: Step) -> Operation:
        """What a compute step is on this device."""
        instance, placed = self.program.instances[step.instance], self.route.placed[step.instance]
        op, reads = instance.op, list(self._reads(step))
        every = tuple(self.candidates(value) for value in reads)
        incoming = tuple(self._incoming(step, instance, reads)) if step.phase in "IW" else ()
        statistics = [value for value in reads if base_name(value.name).endswith(STATISTICS)]
        made = [value for value in step.writes if base_name(value.name).endswith(STATISTICS)]
        inputs = tuple(self._input(step, instance, index, reads) for index in range(len(op.inputs)))
        return Operation(
            step=step, op=op, sizes=self.builder.sizes(instance), at=self._at(step, instance), inputs=inputs,
            weights=tuple(self._weights(step, instance)), sources=tuple(value.name for value in step.reads),
            writes=tuple(self._writes(step, instance)), incoming=incoming,
            counted=tuple(self._counted(step, op, result) for result in results(op)),
            statistics=self.candidates(statistics[0]) if statistics else None,
            writes_statistics=made[0] if made else None, recompute=placed.recompute,
            reports=self._reports(step, op), reads=every,
            rows=self._rows(step, instance),
            keeps_input=bool(op.inputs) and op.inputs[0].name not in {tensor.name for tensor in op.saved},
            gives_weights=any(value.name.startswith(STATE_GRADIENT) for value in step.writes),
        )  # fmt: skip

    def _rows(self, step: Step, instance: Instance) -> dict[str, Span]:
        if instance.op.kind != "grouped_matmul":
            return {}
        layout = self.builder.layout(step.instance, instance.op.inputs[0], "read")
        dims = {dim: self.builder.sizes(instance)[dim] for dim in ("batch", "seq", ROUTED)}
        return region(layout, dims, layout.mesh.devices.index(self.device))

    def candidates(self, value: Value) -> Candidates:
        """A value, and the values that lie the same in other layouts."""
        found = [value]
        while found[-1] in self.route.aliases:
            found.append(self.route.aliases[found[-1]])
        return tuple(found)

    def _reads(self, step: Step) -> Iterator[Value]:
        yield from step.reads
        names = {value.name for value in step.reads}
        for number in reversed(step.beside):  # the last layout on the way is the one that is read
            for value in self.route.steps[number].writes:
                if value.name not in names:
                    names.add(value.name)
                    yield value

    def _input(self, step: Step, instance: Instance, index: int, reads: list[Value]) -> Given | None:
        tensor, name = instance.op.inputs[index], instance.inputs[index]
        held = self._region(step.instance, self.builder.layout(step.instance, tensor, "read"), tensor)
        cut = self._cut(step, tensor, held)
        shape = [high - low for low, high in held.values()]
        for axis, _, length in cut:
            shape[axis] = length
        if "top_k" in tensor.dims:
            shape = [prod(shape[:-1]), shape[-1]]  # in rows
        for value in reads:
            if base_name(value.name) in (name, self.recycled.get(name)):
                reads.remove(value)
                serial = "#" in value.name
                return Given(
                    candidates=self.candidates(value), cut=() if serial else cut, shape=tuple(shape),
                )  # fmt: skip
        if name.startswith("input/"):
            whole = [(axis, low, high - low) for axis, (low, high) in enumerate(held.values())]
            inner = {axis: (low, length) for axis, low, length in cut}
            spans = tuple(
                (axis, low + inner.get(axis, (0, 0))[0], inner.get(axis, (0, length))[1])
                for axis, low, length in whole
            )
            return Given(name=name, cut=spans, shape=tuple(shape))
        return Given(shape=tuple(shape)) if step.phase in "IW" else None

    def _region(self, index: int, layout: Layout, tensor: Tensor) -> dict[str, Span]:
        sizes = self.builder.sizes(self.program.instances[index])
        return region(
            layout, {dim: sizes[dim] for dim in tensor.dims}, layout.mesh.devices.index(self.device)
        )

    def _cut(self, step: Step, tensor: Tensor, held: Mapping[str, Span]) -> tuple[tuple[int, int, int], ...]:
        """The serial part at work of a tensor that is there as a whole: axis, from, length."""
        op = self.program.instances[step.instance].op
        dim, chunks = self.route.placed[step.instance].serial
        own = split_dim(op, tensor, dim) if chunks > 1 else None
        if own is None or own not in tensor.dims:
            return ()
        low, high = part_of(held[own], step.chunk, chunks)
        return ((tensor.dims.index(own), low - held[own][0], high - low),)

    def _at(self, step: Step, instance: Instance) -> dict[str, Span]:
        found: dict[str, Span] = {}
        op = instance.op
        roles = [(tensor, "written") for tensor in results(op)]
        roles += [(tensor, "read") for tensor in (*op.inputs, *op.weights)]
        for tensor, role in roles:
            held = self._region(step.instance, self.builder.layout(step.instance, tensor, role), tensor)  # type: ignore[arg-type]
            for axis, start, length in self._cut(step, tensor, held):
                dim = tensor.dims[axis]
                held[dim] = (held[dim][0] + start, held[dim][0] + start + length)
            found |= held
        return found

    def _weights(self, step: Step, instance: Instance) -> Iterator[Held]:
        for tensor in instance.op.weights:
            key = key_of(self.program, (step.instance, tensor.name))
            layout = self.builder.layout(step.instance, tensor, "read")
            repeats = self._repeats(step, instance.op, tensor)
            yield Held(
                name=tensor.name, key=key, parcel=self.parcels[key],
                adds=self._adds(step, instance.op, tensor) and not repeats,
                counts=not repeats and tensor.element not in NO_GRADIENT,
                cut=self._cut(step, tensor, self._region(step.instance, layout, tensor)),
            )  # fmt: skip

    def _repeats(self, step: Step, op: Op, weight: Tensor) -> bool:
        """Whether an earlier serial part has dealt with a weight that all parts share, where they sum."""
        dim, _ = self.route.placed[step.instance].serial
        summed = split_dim(op, op.output, dim) is None and split_dim(op, weight, dim) is None
        return step.chunk > 0 and summed

    def _adds(self, step: Step, op: Op, weight: Tensor) -> bool:
        written = self.builder.layout(step.instance, op.output, "written")
        read = self.builder.layout(step.instance, weight, "read")
        return _is_first(written, self.device, _split_axes(read))

    def _counted(self, step: Step, op: Op, result: Tensor) -> bool:
        """Whether the gradient of a result flows on at this device: once among those that share it."""
        if op.kind != "matmul":
            return True
        summed = self.builder.layout(step.instance, op.inputs[0], "gradient of read")
        written = self.builder.layout(step.instance, result, "written")
        late = self.route.placed[step.instance].late
        return _is_first(summed, self.device, _split_axes(written) | set(late))

    def _writes(self, step: Step, instance: Instance) -> Iterator[Written]:
        """Results in order, or gradients of inputs; where a serial part lies in what is written whole."""
        names = instance.outputs if step.phase in "FNR" else [GRADIENT + name for name in instance.inputs]
        tensors = results(instance.op) if step.phase in "FNR" else instance.op.inputs
        role = "written" if step.phase in "FNR" else "gradient of read"
        used: set[int] = set()
        for value in step.writes:
            base = base_name(value.name)
            if base.startswith(STATE_GRADIENT) or base.endswith(STATISTICS):
                continue
            index = next(at for at, name in enumerate(names) if name == base and at not in used)
            used.add(index)
            spread: tuple[tuple[int, int, int], ...] = ()
            if "#" not in value.name:
                layout = self.builder.layout(step.instance, tensors[index], role)  # type: ignore[arg-type]
                held = self._region(step.instance, layout, tensors[index])
                spread = tuple(
                    (axis, low, held[tensors[index].dims[axis]][1] - held[tensors[index].dims[axis]][0])
                    for axis, low, _ in self._cut(step, tensors[index], held)
                )
            yield Written(index=index, value=value, spread=spread)

    def _incoming(self, step: Step, instance: Instance, reads: list[Value]) -> Iterator[tuple[Given, ...]]:
        for name, tensor in zip(instance.outputs, results(instance.op), strict=True):
            layout = self.builder.layout(step.instance, tensor, "gradient of written")
            held = self._region(step.instance, layout, tensor)
            mine = [value for value in reads if base_name(value.name) == GRADIENT + name]
            for value in mine:
                reads.remove(value)
            yield tuple(
                Given(
                    candidates=self.candidates(value),
                    cut=() if "#" in value.name else self._cut(step, tensor, held),
                )
                for value in mine
            )

    def _reports(self, step: Step, op: Op) -> bool:
        if op.kind != "loss" or step.phase != "F" or not step.writes:
            return False
        layout = self.builder.layout(step.instance, op.output, "written")
        at = layout.mesh.coordinates(layout.mesh.devices.index(self.device))
        return not any(at[axis] for axis in layout.copies())


def part_of(span: Span, number: int, parts: int) -> Span:
    """One of so many parts of a span; the first ones are longer where it does not divide."""
    each, more = divmod(span[1] - span[0], parts)
    low = span[0] + number * each + min(number, more)
    return low, low + each + (number < more)


def _split_axes(layout: Layout) -> set[int]:
    return {axis for _, axes in layout.splits for axis in axes}


def _is_first(layout: Layout, device: int, besides: set[int]) -> bool:
    """Whether a device is the first along the axes over which a value is shared out, besides some."""
    at = layout.mesh.coordinates(layout.mesh.devices.index(device))
    return not any(at[axis] for axis in layout.partial if axis not in besides)
