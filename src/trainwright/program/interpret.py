"""A lowered program carried out on arrays: every device with what it holds, and nothing else."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainwright.errors import BadInput
from trainwright.model.graph import Tensor
from trainwright.plan.rules import split_dim
from trainwright.program.apply import apply
from trainwright.program.builder import chunk_name
from trainwright.program.losses import STATISTICS
from trainwright.program.holdings import Held, Holdings
from trainwright.program.labelled import Array, Part, cut, renamed, spread, whole
from trainwright.program.layout import Layout, region
from trainwright.program.lower import Program
from trainwright.program.numbers import Call, backward, forward, loss_statistics, results
from trainwright.program.offload import BROUGHT
from trainwright.program.reference import Data, build_data
from trainwright.program.step import GRADIENT, STATE_GRADIENT, Step, Value

_BASE = re.compile(r"[#~^@]")  # what a name goes on with where it is a part, done again, or from the host


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a program has done: the mean loss, and the state of every route."""

    loss: float
    holdings: tuple[Holdings, ...]


def build_program_data(program: Program, seed: int = 0) -> Data:
    """Random numbers for one step of a program."""
    plan, setting = program.plan, program.setting
    return build_data(setting.graph, program.instances, plan.batch, setting.seq, plan.microbatches, seed)


def interpret(program: Program, data: Data) -> Outcome:
    """Carry out one step: all microbatches, then what is done once; and the gathers before the next step."""
    if program.setting.graph.passes > 1:
        raise BadInput("graph", program.setting.graph.name, "recycles", "interpret graphs of one pass")
    routes = range(len(program.routes))
    holdings = tuple(Holdings(program=program, route=number, data=data) for number in routes)
    loss = 0.0
    for microbatch in range(program.plan.microbatches):
        held = holdings[microbatch % len(routes)]
        loss += _Microbatch(program=program, held=held, data=data, number=microbatch).run()
        held.end_microbatch()
    for phase in "SP":
        copies = [dict(each.gradients if phase == "S" else each.weights) for each in holdings]
        for each in holdings:
            _once(program, each, phase, copies)
        if phase == "S":
            for each in holdings:
                each.update()
    return Outcome(loss=loss, holdings=holdings)


def _once(program: Program, held: Holdings, phase: str, copies: Sequence[Held]) -> None:
    """The steps that are done once, of one phase."""
    for step in program.routes[held.route].steps:
        if step.phase == phase and phase == "S":
            held.finish(step, copies)
        elif step.phase == phase:
            held.renew(step, copies)


@dataclass(slots=True, kw_only=True)
class _Microbatch:
    """The values of one microbatch on all devices."""

    program: Program
    held: Holdings
    data: Data
    number: int
    values: dict[Value, dict[int, Array]] = field(default_factory=dict)
    seen: set[Value] = field(default_factory=set)  # read since they were written
    orders: dict[str, tuple[str, Array]] = field(default_factory=dict)  # of serial parts: their places
    sides: dict[tuple[int, int, int], Part] = field(default_factory=dict)  # logits, by operator, chunk and device
    host: dict[Value, dict[int, Array]] = field(default_factory=dict)
    loss: float = 0.0

    def run(self) -> float:
        """Carry out all steps; the microbatch's share of the mean loss."""
        for step in self.program.routes[self.held.route].steps:
            if step.phase in "PS":
                continue
            if step.state:
                (self.held.gather if step.kind == "all_gather" else self.held.scatter)(step)
            elif step.kind == "compute":
                self._compute(step)
            elif step.kind == "join":
                self._join(step)
            elif step.kind == "copy":
                self._copy(step)
            else:
                self._move(step)
        return self.loss

    def _move(self, step: Step) -> None:
        assert step.move is not None
        for read, written in zip(step.reads, step.writes, strict=True):
            shards = [self._array(read, device) for device in read.layout.mesh.devices]
            found = apply(step.move, shards, self._dims(read.name))
            for device, array in zip(step.move.target.mesh.devices, found, strict=True):
                self._write(written, device, step.scale * array)
            self.seen.add(read)

    def _copy(self, step: Step) -> None:
        """Between a device and its host, which keeps what was copied to it."""
        for value in step.reads:
            self.host[value] = {device: self._array(value, device) for device in value.layout.mesh.devices}
        for value in step.writes:
            for device, array in self.host[Value(value.name.removesuffix(BROUGHT), value.layout)].items():
                self._write(value, device, array)

    def _join(self, step: Step) -> None:
        (written,) = step.writes
        for device in step.mesh.devices:
            wanted = self._places(written, device)
            total = np.full([len(places) for places in wanted.values()], np.nan)
            for read in step.reads:
                part = self._part(read, device)
                at = [np.flatnonzero(np.isin(wanted[dim], places)) for dim, places in part.at.items()]
                total[np.ix_(*at)] = cut(part, {d: wanted[d][a] for d, a in zip(part.at, at, strict=True)}).values
            self._write(written, device, total)

    def _compute(self, step: Step) -> None:
        for device in step.mesh.devices:
            for value, array in self._done(step, device):
                self._write(value, device, step.scale * array)
        self.seen.update(self._all_reads(step))

    def _done(self, step: Step, device: int) -> list[tuple[Value, Array]]:
        if step.phase in "FR":
            return list(self._forward(step, device))
        return list(self._backward(step, device))

    def _forward(self, step: Step, device: int) -> Iterator[tuple[Value, Array]]:
        call = self._call(step, device)
        if call.op.kind == "loss":
            yield from self._loss(step, device, call)
            return
        for value, part in zip(step.writes, forward(call), strict=True):
            yield value, self._placed(value, device, part, step).values

    def _loss(self, step: Step, device: int, call: Call) -> Iterator[tuple[Value, Array]]:
        """Statistics of a split vocabulary, or the loss."""
        if call.inputs[0] is not None:
            self.sides[(step.instance, step.chunk, device)] = call.given()
        if not step.writes:
            return
        (value,) = step.writes
        if value.name.partition("#")[0].rstrip("~@").endswith(STATISTICS):
            yield value, self._placed(value, device, loss_statistics(call), step).values
            return
        (part,) = forward(call)
        if step.phase == "F" and self._counts(value.layout, device):
            self.loss += float(part.values.sum()) / self.data.tokens
        yield value, self._placed(value, device, part, step).values

    def _counts(self, layout: Layout, device: int) -> bool:
        """Whether a device is the first of those that hold the same."""
        at = layout.mesh.coordinates(layout.mesh.devices.index(device))
        return not any(at[axis] for axis in layout.copies())

    def _backward(self, step: Step, device: int) -> Iterator[tuple[Value, Array]]:
        call = self._call(step, device)
        gradients = self._incoming(step, device, call)
        if all(each is None for each in gradients):
            for value in step.writes:
                if not value.name.startswith(STATE_GRADIENT):
                    yield value, np.zeros([len(p) for p in self._places(value, device).values()])
            return
        back = backward(call, gradients)
        op = call.op
        if any(value.name.startswith(STATE_GRADIENT) for value in step.writes):
            for name, part in back.weights.items():
                self._count_weight(step, device, name, part)
        written = [value for value in step.writes if not value.name.startswith(STATE_GRADIENT)]
        flows = [(n, part) for n, part in zip(self._inputs(step), back.inputs, strict=True) if part is not None]
        for value in written:
            at = next(i for i, (n, _) in enumerate(flows) if GRADIENT + n == _BASE.split(value.name)[0])
            _, part = flows.pop(at)
            yield value, self._placed(value, device, part, step).values
        assert op is call.op

    def _inputs(self, step: Step) -> tuple[str, ...]:
        return self.data.instances[step.instance].inputs

    def _count_weight(self, step: Step, device: int, name: str, part: Part) -> None:
        weight = (step.instance, name)
        if self._repeats(step, name):
            return
        full = spread(part, self.held.places[weight][device])
        self.held.add(weight, device, step.scale * full.values)

    def _incoming(self, step: Step, device: int, call: Call) -> list[Part | None]:
        """The gradients of an operator's results, all contributions added."""
        instance = self.data.instances[step.instance]
        found: list[Part | None] = []
        for name, tensor in zip(instance.outputs, results(call.op), strict=True):
            parts = [
                self._chunk(self._part(value, device), tensor, step, call)
                for value in step.reads
                if _BASE.split(value.name)[0] == GRADIENT + name
            ]
            total = parts[0] if parts else None
            for part in parts[1:]:
                assert total is not None
                total = replace(total, values=total.values + cut(part, total.at).values)
            found.append(total)
        if call.op.kind == "loss":
            logits = self.sides[(step.instance, step.chunk, device)]
            at = {dim: logits.at[dim] for dim in logits.dims[:-1]}
            found = [Part(values=np.ones([len(places) for places in at.values()]), at=at)]
        return found

    def _call(self, step: Step, device: int) -> Call:
        """What an operator works on at a device."""
        d, instance = self.data, self.data.instances[step.instance]
        op = instance.op
        reads = list(self._all_reads(step))
        call = Call(op=op, sizes=d.sizes[step.instance])
        parts = [self._input(step, device, reads, i) for i in range(len(op.inputs))]
        dim, chunks = self._serial(step)
        known = self._chunk_places(step, parts) if chunks > 1 else {}
        inputs = [
            None if part is None else self._cut(part, op.inputs[i], step, known, own) for i, (part, own) in enumerate(parts)
        ]
        names = [value.name for value in step.reads]
        weights = {}
        for tensor in op.weights if step.phase != "W" else ():
            part = self.held.part((step.instance, tensor.name), device, names)
            weights[tensor.name] = self._cut(part, tensor, step, known, False)
        if op.kind == "gather" and step.phase == "I":
            assert weights
        statistics = [v for v in reads if v.name.partition("#")[0].rstrip("~@").endswith(STATISTICS)]
        targets = d.targets[self.number].get(instance.name)
        if op.kind == "loss" and step.phase == "I":
            inputs = [self.sides[(step.instance, step.chunk, device)]]
        return replace(
            call, inputs=inputs, weights=weights, adds=self._adds(step, device), counted=self._counted(step, device),
            targets=None if targets is None else whole(targets, op.output.dims),
            statistics=self._part(statistics[0], device) if statistics else None,
        )  # fmt: skip

    def _all_reads(self, step: Step) -> Iterator[Value]:
        """What a step reads, what streams in beside it included."""
        yield from step.reads
        names = {value.name for value in step.reads}
        for number in reversed(step.beside):  # the last layout on the way is the one that is read
            for value in self.program.routes[self.held.route].steps[number].writes:
                if value.name not in names:
                    names.add(value.name)
                    yield value

    def _input(self, step: Step, device: int, reads: list[Value], index: int) -> tuple[Part | None, bool]:
        """An input, and whether it is one of its producer's serial parts."""
        instance = self.data.instances[step.instance]
        tensor, name = instance.op.inputs[index], instance.inputs[index]
        given = self.data.given[self.number].get(name)
        if given is not None:
            layout = self.program.builders[self.held.route].layout(step.instance, tensor, "read")
            rank = layout.mesh.devices.index(device)
            sizes = {dim: self.data.sizes[step.instance][dim] for dim in tensor.dims}
            at = {dim: np.arange(*ends) for dim, ends in region(layout, sizes, rank).items()}
            return cut(whole(given, tensor.dims), at), False
        for value in reads:
            if _BASE.split(value.name)[0] == name:
                reads.remove(value)
                return renamed(self._part(value, device), tensor.dims), "#" in value.name
        return None, False

    def _serial(self, step: Step) -> tuple[str, int]:
        return self.program.routes[self.held.route].placed[step.instance].serial

    def _chunk_places(self, step: Step, parts: Sequence[tuple[Part | None, bool]]) -> dict[str, Array]:
        """The places of the serial part at work, by dim, as inputs that are such parts have them."""
        dim, _ = self._serial(step)
        op = self.data.instances[step.instance].op
        found: dict[str, Array] = {}
        for (part, chunked), tensor in zip(parts, op.inputs, strict=True):
            own = split_dim(op, tensor, dim)
            if part is not None and chunked and own is not None:
                found[own] = part.at[own]
        return found

    def _cut(self, part: Part, tensor: Tensor, step: Step, known: Mapping[str, Array], chunked: bool) -> Part:
        """The serial part at work of something that is there as a whole."""
        (dim, chunks), op = self._serial(step), self.data.instances[step.instance].op
        own = split_dim(op, tensor, dim) if chunks > 1 else None
        if own is None or chunked:
            return part
        return cut(part, {own: known.get(own, np.array_split(part.at[own], chunks)[step.chunk])})

    def _chunk(self, part: Part, tensor: Tensor, step: Step, call: Call) -> Part:
        """The serial part at work of a gradient: it may be the gradient of the whole."""
        (dim, chunks) = self._serial(step)
        own = split_dim(call.op, tensor, dim) if chunks > 1 else None
        if own is None or len(part.at[own]) * chunks <= self._local(step, part, own):
            return part
        base = self.data.instances[step.instance].outputs[results(call.op).index(tensor)]
        order = [at for name, (d, at) in self.orders.items() if name == self._chunk_of(base, step) and d == own]
        here = part.at[own]
        wanted = here[np.isin(here, order[0])] if order else np.array_split(here, chunks)[step.chunk]
        return cut(part, {own: wanted})

    def _chunk_of(self, base: str, step: Step) -> str:
        placed = self.program.routes[self.held.route].placed[step.instance]
        instance = self.data.instances[step.instance]
        return chunk_name(base, instance.op, instance.op.output, placed, step.chunk)

    def _local(self, step: Step, part: Part, own: str) -> int:
        """How many places a device's whole part has along a dim."""
        op = self.data.instances[step.instance].op
        tensor = next(each for each in results(op) if own in each.dims)
        layout = self.program.builders[self.held.route].layout(step.instance, tensor, "gradient of written")
        return self.data.sizes[step.instance][own] // layout.parts(own)

    def _adds(self, step: Step, device: int) -> dict[str, bool]:
        """Of each weight, whether this device and this serial part add it, where results are sums."""
        builder = self.program.builders[self.held.route]
        op = self.data.instances[step.instance].op
        written = builder.layout(step.instance, op.output, "written")
        at = written.mesh.coordinates(written.mesh.devices.index(device))
        found = {}
        for weight in op.weights:
            own = builder.layout(step.instance, weight, "read")
            split = {axis for _, axes in own.splits for axis in axes}
            alone = not any(at[axis] for axis in written.partial if axis not in split)
            found[weight.name] = alone and not self._repeats(step, weight.name)
        return found

    def _repeats(self, step: Step, name: str) -> bool:
        """Whether an earlier serial part has dealt with a weight that all parts share, where they sum."""
        op = self.data.instances[step.instance].op
        dim, chunks = self._serial(step)
        weight = next(each for each in op.weights if each.name == name)
        summed = split_dim(op, op.output, dim) is None and split_dim(op, weight, dim) is None
        return chunks > 1 and step.chunk > 0 and summed

    def _counted(self, step: Step, device: int) -> list[bool]:
        """Of each result, whether its gradient flows on at this device: once among those that share it."""
        builder = self.program.builders[self.held.route]
        op = self.data.instances[step.instance].op
        if op.kind != "matmul":
            return []
        summed = builder.layout(step.instance, op.inputs[0], "gradient of read")
        at = summed.mesh.coordinates(summed.mesh.devices.index(device))
        found = []
        for tensor in results(op):
            split = {a for _, axes in builder.layout(step.instance, tensor, "written").splits for a in axes}
            found.append(not any(at[axis] for axis in summed.partial if axis not in split))
        return found

    def _dims(self, name: str) -> dict[str, int]:
        shapes = self.program.routes[self.held.route].shapes
        return dict(shapes[name.removeprefix(GRADIENT)].dims)

    def _places(self, value: Value, device: int) -> dict[str, Array]:
        """Which places of a tensor a device holds."""
        rank = value.layout.mesh.devices.index(device)
        dims = self._dims(value.name)
        at = {dim: np.arange(*ends) for dim, ends in region(value.layout, dims, rank).items()}
        key = value.name.removeprefix(GRADIENT).rstrip("~@")
        if key in self.orders:
            dim, order = self.orders[key]
            at[dim] = order[at[dim]]
        return at

    def _placed(self, value: Value, device: int, part: Part, step: Step) -> Part:
        """A result as the value's layout says: the same places, under the names that it was written with."""
        dims = tuple(self._dims(value.name))
        part = renamed(part, dims)
        plain = value.name.removeprefix(GRADIENT).rstrip("~@")
        if "#" in value.name and not value.name.startswith(GRADIENT):
            self._order(plain, value, device, part)
        return spread(part, self._places(value, device))

    def _order(self, plain: str, value: Value, device: int, part: Part) -> None:
        """Remember which places a serial part has, from what this device made of it."""
        rank = value.layout.mesh.devices.index(device)
        sizes = self._dims(value.name)
        for dim, (low, high) in region(value.layout, sizes, rank).items():
            name = plain.partition("#")[2].partition(".")[0]
            op = self.data.instances
            if dim == name or (name == "heads" and dim == "kv_heads"):
                _, order = self.orders.setdefault(plain, (dim, np.full(sizes[dim], -1)))
                order[low:high] = part.at[dim]
            assert op is self.data.instances

    def _part(self, value: Value, device: int) -> Part:
        return Part(values=self._array(value, device), at=self._places(value, device))

    def _array(self, value: Value, device: int) -> Array:
        """What a device holds of a value: what was written so, and what lies the same in another layout."""
        found = []
        aliases = self.program.routes[self.held.route].aliases
        at: Value | None = value
        while at is not None:
            if device in self.values.get(at, {}):
                found.append(self.values[at][device])
                self.seen.add(at)
            at = aliases.get(at)
        assert found, f"device {device} reads {value.name} {value.layout} before it is made"
        return np.asarray(sum(found[1:], found[0]))

    def _write(self, value: Value, device: int, array: Array) -> None:
        """A value written again before it is read is the sum of both."""
        if value in self.seen:
            self.seen.discard(value)
            self.values[value] = {}
        held = self.values.setdefault(value, {})
        held[device] = held[device] + array if device in held else array
