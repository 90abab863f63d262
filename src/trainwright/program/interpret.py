"""A lowered program carried out on arrays: every device with what it holds, and nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainwright.errors import BadInput
from trainwright.program.apply import apply
from trainwright.program.call import Call
from trainwright.program.calls import Caller
from trainwright.program.holdings import Held, Holdings
from trainwright.program.labelled import Array, Part, cut, spread
from trainwright.program.layout import Layout
from trainwright.program.losses import STATISTICS
from trainwright.program.lower import Program
from trainwright.program.numbers import backward, forward, loss_statistics
from trainwright.program.offload import BROUGHT
from trainwright.program.reference import Data, build_data
from trainwright.program.shards import Shards, base_name
from trainwright.program.step import GRADIENT, STATE_GRADIENT, Step, Value

Results = Iterator[tuple[Value, Array]]


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
    """Carry out one step: all microbatches, then what is done once; and the gathers before the next step.

    Microbatches are taken one by one: that orders do not deadlock is the simulation's to say.
    """
    if program.setting.graph.passes > 1:
        raise BadInput("graph", program.setting.graph.name, "recycles", "interpret graphs of one pass")
    routes = range(len(program.routes))
    holdings = tuple(Holdings(program=program, route=number, data=data) for number in routes)
    loss = 0.0
    for number in range(program.plan.microbatches):
        held = holdings[number % len(routes)]
        loss += build_microbatch(program, held, data, number).run()
        held.end_microbatch()
    copies = [dict(each.gradients) for each in holdings]
    for each in holdings:
        _once(program, each, "S", copies)
        each.update()
    copies = [dict(each.weights) for each in holdings]
    for each in holdings:
        _once(program, each, "P", copies)
    return Outcome(loss=loss, holdings=holdings)


def _once(program: Program, held: Holdings, phase: str, copies: Sequence[Held]) -> None:
    """The steps that are done once, of one phase; `copies` are what all routes held before."""
    for step in program.routes[held.route].steps:
        if step.phase == phase:
            (held.finish if phase == "S" else held.renew)(step, copies)


def build_microbatch(program: Program, held: Holdings, data: Data, number: int) -> "Microbatch":
    """A microbatch of which nothing is done yet."""
    shards = Shards(route=program.routes[held.route])
    caller = Caller(data=data, number=number, builder=program.builders[held.route], held=held, shards=shards)
    return Microbatch(held=held, shards=shards, caller=caller)


@dataclass(slots=True, kw_only=True)
class Microbatch:
    """One microbatch on its way through a program."""

    held: Holdings
    shards: Shards
    caller: Caller
    logits: dict[tuple[int, int, int], Part] = field(default_factory=dict)  # by operator, chunk and device
    host: dict[Value, dict[int, Array]] = field(default_factory=dict)
    loss: float = 0.0

    def run(self) -> float:
        """Carry out all steps; the microbatch's share of the mean loss."""
        for step in self.shards.route.steps:
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
            arrays = [self.shards.array(read, device) for device in read.layout.mesh.devices]
            found = apply(step.move, arrays, self.shards.sizes(read.name))
            for device, array in zip(step.move.target.mesh.devices, found, strict=True):
                self.shards.write(written, device, step.scale * array)
            self.shards.seen.add(read)

    def _copy(self, step: Step) -> None:
        """Between a device and its host, which keeps what was copied to it."""
        for value in step.reads:
            devices = value.layout.mesh.devices
            self.host[value] = {device: self.shards.array(value, device) for device in devices}
        for value in step.writes:
            for device, array in self.host[Value(value.name.removesuffix(BROUGHT), value.layout)].items():
                self.shards.write(value, device, array)

    def _join(self, step: Step) -> None:
        """Put serial parts together, each where it belongs."""
        (written,) = step.writes
        for device in step.mesh.devices:
            wanted = self.shards.places(written, device)
            total = np.full([len(places) for places in wanted.values()], np.nan)
            for part in (self.shards.read(value, device) for value in step.reads):
                at = [np.flatnonzero(np.isin(wanted[dim], places)) for dim, places in part.at.items()]
                there = {dim: wanted[dim][where] for dim, where in zip(part.at, at, strict=True)}
                total[np.ix_(*at)] = cut(part, there).values
            self.shards.write(written, device, total)

    def _compute(self, step: Step) -> None:
        work = self._forward if step.phase in "FR" else self._backward
        for device in step.mesh.devices:
            for value, array in list(work(step, device)):
                self.shards.write(value, device, step.scale * array)
        self.shards.seen.update(self.caller.reads(step))

    def _forward(self, step: Step, device: int) -> Results:
        call = self.caller.call(step, device)
        if call.op.kind == "loss":
            yield from self._loss(step, device, call)
            return
        outputs = self.held.data.instances[step.instance].outputs
        made = dict(zip(outputs, forward(call), strict=True))
        for value in step.writes:
            yield value, self.shards.fitted(value, device, made[base_name(value.name)])

    def _loss(self, step: Step, device: int, call: Call) -> Results:
        """The statistics of a part of the vocabulary, or the loss; the logits are kept."""
        if call.inputs[0] is not None:
            self.logits[(step.instance, step.chunk, device)] = call.given()
        for value in step.writes:
            if base_name(value.name).endswith(STATISTICS):
                yield value, self.shards.fitted(value, device, loss_statistics(call))
                continue
            (part,) = forward(call)
            if step.phase == "F" and _is_first(value.layout, device):
                self.loss += float(part.values.sum()) / self.held.data.tokens
            yield value, self.shards.fitted(value, device, part)

    def _backward(self, step: Step, device: int) -> Results:
        call, gradients = self.caller.call(step, device), self.caller.gradients(step, device)
        if call.op.kind == "loss":
            call, gradients = self._loss_call(step, device, call)
        written = [value for value in step.writes if not value.name.startswith(STATE_GRADIENT)]
        if all(each is None for each in gradients):
            for value in written:
                yield value, np.zeros([len(places) for places in self.shards.places(value, device).values()])
            return
        back = backward(call, gradients)
        if len(written) < len(step.writes):
            self._count_weights(step, device, back.weights)
        inputs = self.held.data.instances[step.instance].inputs
        flows = [(name, part) for name, part in zip(inputs, back.inputs, strict=True) if part is not None]
        for value in written:
            at = next(at for at, (name, _) in enumerate(flows) if GRADIENT + name == base_name(value.name))
            yield value, self.shards.fitted(value, device, flows.pop(at)[1])

    def _loss_call(self, step: Step, device: int, call: Call) -> tuple[Call, list[Part | None]]:
        """The backward of a loss starts from its logits, and from one for every answer."""
        logits = self.logits[(step.instance, step.chunk, device)]
        at = {dim: logits.at[dim] for dim in logits.dims[:-1]}
        ones = Part(values=np.ones([len(places) for places in at.values()]), at=at)
        return replace(call, inputs=[logits]), [ones]

    def _count_weights(self, step: Step, device: int, found: Mapping[str, Part]) -> None:
        for tensor in self.held.data.instances[step.instance].op.weights:
            if tensor.name in found and not self.caller.repeats(step, tensor):
                weight = (step.instance, tensor.name)
                whole = spread(found[tensor.name], self.held.places[weight][device])
                self.held.add(weight, device, step.scale * whole.values)


def _is_first(layout: Layout, device: int) -> bool:
    """Whether a device is the first of those that hold the same."""
    at = layout.mesh.coordinates(layout.mesh.devices.index(device))
    return not any(at[axis] for axis in layout.copies())
