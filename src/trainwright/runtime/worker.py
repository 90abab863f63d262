"""One process of a run: its own turns of a program's step, one after another."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from trainwright.model.flow import recycled
from trainwright.program.layout import region
from trainwright.program.losses import STATISTICS
from trainwright.program.lower import Program
from trainwright.program.moves import groups
from trainwright.program.offload import BROUGHT
from trainwright.program.sequence import Turn, sequence, takes_part
from trainwright.program.shards import base_name
from trainwright.program.step import GRADIENT, Step, Value
from trainwright.runtime.compute import Computer
from trainwright.runtime.frame import Frame
from trainwright.runtime.groups import Groups, build_groups, start_gather, start_scatter
from trainwright.runtime.kernels.experts import choose
from trainwright.runtime.operation import Assembler, Operation
from trainwright.runtime.parcels import Parcel, build_parcels, key_of
from trainwright.runtime.ring import Ring, Stop, Stops, begin_round, build_ring, find_rings
from trainwright.runtime.ring_attention import split_home
from trainwright.runtime.routed import RoutedTransfer, build_routed, is_routed
from trainwright.runtime.transfer import Arrival, Transfer, build_transfer
from trainwright.runtime.values import read
from trainwright.runtime.work import Kernel

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Microbatch:
    """What a model is given, and what it should answer, by name; whole tensors of one microbatch."""

    given: Mapping[str, torch.Tensor]
    targets: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One step as this process carries it out."""

    step: Step
    operation: Operation | None = None
    transfers: tuple[tuple[tuple[Value, ...] | None, Value | None, Transfer | RoutedTransfer], ...] = ()
    stop: Stop | None = None
    parcels: tuple[Parcel, ...] = ()
    members: tuple[tuple[int, ...], ...] = ()  # of the group of each parcel
    reads: tuple[Value, ...] = ()


class Observer(Protocol):
    """Told of each turn that a process takes, and of what it starts that others will wait for."""

    def taking(self, turn: Turn) -> AbstractContextManager[None]:
        """Holds while a turn is taken."""

    def following(self, arrival: Arrival) -> Arrival:
        """What a turn has started, to be waited for instead."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """The state of one process: parcels, and the turns that it takes."""

    program: Program
    device: int
    torch_device: torch.device
    parcels: Mapping[tuple[str, ...], Parcel]
    deeds: Mapping[tuple[int, int], Deed]
    turns: tuple[Turn, ...]
    groups: Groups
    computer: Computer
    reads: Mapping[int, Counter[Value]]  # by route, how often each value is read here
    frames: dict[int, Frame] = field(default_factory=dict)
    pending: list[tuple[Arrival, Parcel | None]] = field(default_factory=list)
    observer: Observer | None = None
    stale: bool = False  # whether weights must be gathered before they are used

    def run_step(self, batch: Sequence[Microbatch], *, forward_only: bool = False) -> float:
        """Forward and backward of all microbatches; gradients are reduced after it. This device's loss."""
        self.computer.loss = 0.0
        self.computer.forgets = forward_only
        for number, microbatch in enumerate(batch):
            route = number % len(self.program.routes)
            self.frames[number] = Frame(
                number, dict(microbatch.given), dict(microbatch.targets), reads_left=dict(self.reads[route])
            )
        for parcel in self.parcels.values() if not forward_only else ():
            parcel.forget_gradients()
        once = Frame(-1, {}, {})
        for turn in self.turns:
            deed = self.deeds[(turn.route, turn.step)]
            if forward_only and deed.step.phase not in "PFN":
                continue
            with self.observer.taking(turn) if self.observer else nullcontext():
                self._do(deed, self.frames.get(turn.microbatch, once))
        self._settle()
        self.frames.clear()
        self.stale = False
        return self.computer.loss

    def _do(self, deed: Deed, frame: Frame) -> None:
        step = deed.step
        if step.state:
            self._state(deed, frame)
        elif deed.operation is not None:
            if deed.operation.op.name == "dispatch" and step.phase in "FN":
                self._tell_routes(deed.operation, frame)
            self.computer.run(deed.operation, frame)
        elif deed.stop is not None:
            self._round(deed, deed.stop, frame)
        elif step.kind == "join":
            self._join(deed, frame)
        elif step.kind == "copy":
            self._copy(deed, frame)
        else:
            self._move(deed, frame)
        for value in deed.reads:
            frame.release(value)

    def _move(self, deed: Deed, frame: Frame) -> None:
        for candidates, written, transfer in deed.transfers:
            tensor = frame.read(candidates) if candidates is not None else None
            if isinstance(transfer, RoutedTransfer):
                arrival = transfer.start(tensor, frame)
            else:
                arrival = transfer.start(tensor, frame.microbatch)
            if deed.step.scale != 1.0:
                arrival = _scaled(arrival, deed.step.scale)
            if written is not None:
                frame.arrive(written, self._followed(arrival))
            else:
                self.pending.append((arrival, None))

    def _round(self, deed: Deed, stop: Stop, frame: Frame) -> None:
        """Send keys and values round their ring, or take in what has become of their gradients."""
        if stop.sources:
            keys, values = (frame.read(each) for each in stop.sources)
            stride = self.program.plan.microbatches + 1
            begun = begin_round(stop.ring, keys, values, stop.tag + frame.microbatch, stride)
            begun.arrival = self._followed(begun.arrival)
            frame.rounds[stop.attention] = begun
            return
        home = self._followed(frame.homing.pop(stop.attention))
        for value, arrival in zip(deed.step.writes, split_home(stop.ring, home), strict=True):
            frame.arrive(value, arrival)

    def _tell_routes(self, operation: Operation, frame: Frame) -> None:
        """Let all devices of an operator know the experts of all tokens."""
        given, op = operation.inputs[1], operation.op
        sizes, layout = (
            operation.sizes,
            self.program.builders[0].layout(operation.step.instance, op.output, "written"),
        )
        shape = [sizes[dim] for dim in ("batch", "seq", "top_k")]
        chosen = choose(read(given, frame), shape[-1])
        whole = chosen.new_zeros(shape)
        members = tuple(sorted(operation.step.mesh.devices))
        parts = [chosen]
        if len(members) > 1:
            parts = [torch.empty_like(chosen) for _ in members]
            dist.all_gather(parts, chosen, group=self.groups.of(members))
        for device, part in zip(members, parts, strict=True):
            held = region(
                layout, dict(zip(("batch", "seq"), shape, strict=False)), layout.mesh.devices.index(device)
            )
            (a, b), (c, d) = held["batch"], held["seq"]
            whole[a:b, c:d] = part
        frame.routes[operation.step.block] = whole

    def _followed(self, arrival: Arrival) -> Arrival:
        return self.observer.following(arrival) if self.observer else arrival

    def _join(self, deed: Deed, frame: Frame) -> None:
        (written,) = deed.step.writes
        parts = [frame.read((value,)) for value in sorted(deed.step.reads, key=_part_number)]
        dim = deed.step.reads[0].name.partition("#")[2].partition(".")[0]
        dims = list(self.program.routes[0].shapes[base_name(written.name)].dims)
        axis = dims.index(dim if dim in dims else "kv_heads")
        frame.write(written, torch.cat(parts, dim=axis))

    def _copy(self, deed: Deed, frame: Frame) -> None:
        """Between a device and its host, which keeps what was copied to it."""
        for value in deed.step.reads:
            frame.host[value] = frame.read((value,)).to("cpu")
        for value in deed.step.writes:
            kept = frame.host[Value(value.name.removesuffix(BROUGHT), value.layout)]
            frame.write(value, kept.to(self.torch_device))

    def _state(self, deed: Deed, frame: Frame) -> None:
        step = deed.step
        for parcel, members in zip(deed.parcels, deed.members, strict=True):
            if step.phase == "P":
                if self.stale:
                    self._renew(parcel, members)
            elif step.kind == "all_gather":
                self._gather(step, parcel, members, frame)
            elif step.phase == "S":
                self._reduce(step, parcel, members)
            else:
                self._scatter(parcel, members, frame)

    def _renew(self, parcel: Parcel, members: tuple[int, ...]) -> None:
        own = parcel.own_weights().clone()
        start_gather(parcel.weights, own, self.groups.of(members)).wait()

    def _gather(self, step: Step, parcel: Parcel, members: tuple[int, ...], frame: Frame) -> None:
        whole = parcel.weights.new_empty(parcel.size)
        work = start_gather(whole, parcel.weights, self.groups.of(members))
        for value in step.writes:
            arrival = self._followed(Arrival([work], lambda: whole))
            frame.gathered.setdefault(value.name, {})[parcel.key] = arrival

    def _scatter(self, parcel: Parcel, members: tuple[int, ...], frame: Frame) -> None:
        fresh = frame.fresh.pop(parcel.key, None)
        if fresh is None:
            fresh = parcel.gradients.new_zeros(parcel.size)
        out = torch.empty_like(parcel.gradients)
        work = start_scatter(out, fresh, self.groups.of(members))
        arrival = Arrival([work], lambda: parcel.gradients.add_(out), [fresh])
        self._settle(keep=2)
        self.pending.append((self._followed(arrival), parcel))

    def _settle(self, keep: int = 0) -> None:
        """Wait for what was sent, scattered and reduced; the last few may still be on their way."""
        while len(self.pending) > keep:
            self.pending.pop(0)[0].wait()

    def _reduce(self, step: Step, parcel: Parcel, members: tuple[int, ...]) -> None:
        for arrival in [arrival for arrival, about in self.pending if about is parcel]:
            arrival.wait()  # one sum after another
        self.pending = [each for each in self.pending if each[1] is not parcel]
        group = self.groups.of(members)
        if step.kind == "reduce_scatter":
            own = parcel.own_gradients()
            out = torch.empty_like(own)
            work = start_scatter(out, parcel.gradients, group)
            arrival = Arrival([work], lambda: own.copy_(out))
        else:
            work = dist.all_reduce(parcel.gradients, group=group, async_op=True)
            arrival = Arrival([work], lambda: None)
        self.pending.append((self._followed(arrival), parcel))

    def whole_loss(self, loss: float) -> float:
        """The loss of the step, over all processes."""
        total = torch.tensor(loss, dtype=torch.float64, device=self.torch_device)
        dist.all_reduce(total)
        return float(total)


def _part_number(value: Value) -> int:
    return int(value.name.partition("#")[2].split(".")[1])


def _scaled(arrival: Arrival, scale: float) -> Arrival:
    def finish() -> torch.Tensor | None:
        came = arrival.finish()
        return None if came is None else came * scale

    return Arrival(arrival.works, finish, arrival.kept)


def build_worker(
    program: Program,
    device: int,
    kernels: Mapping[str, Kernel],
    torch_device: torch.device,
    timeout: timedelta = timedelta(minutes=5),
) -> Worker:
    """The worker of one device; every process must build one for the same program."""
    made = build_groups(_members(program), timeout)
    parcels = build_parcels(program, device)
    dtype = DTYPES[program.plan.precision]
    for parcel in parcels.values():
        parcel.allocate(dtype, torch_device)
    by_weight = {slot.key: parcel for parcel in parcels.values() for slot in parcel.slots}
    maker = _Maker(
        program=program, device=device, made=made, parcels=by_weight,
        like=torch.empty(0, dtype=dtype, device=torch_device), dtypes=_dtypes(program, kernels),
    )  # fmt: skip
    deeds = {(r, n): deed for r in range(len(program.routes)) for n, deed in maker.deeds(r)}
    return Worker(
        program=program, device=device, torch_device=torch_device, parcels=parcels, deeds=deeds, groups=made,
        turns=tuple(turn for turn in sequence(program) if (turn.route, turn.step) in deeds),
        computer=Computer(
            kernels=kernels, names=[each.name for each in program.instances], like=maker.like,
            read_values=[each.inputs for each in program.instances], dtypes=maker.dtypes,
        ),
        reads={r: maker.counts(r, deeds) for r in range(len(program.routes))},
    )  # fmt: skip


def _dtypes(program: Program, kernels: Mapping[str, Kernel]) -> dict[str, torch.dtype]:
    """The dtype of each value whose kernel states it; all others are of the dtype of computation."""
    return {
        value: dtype
        for each in program.instances
        for value, dtype in zip(each.outputs, getattr(kernels.get(each.name), "dtypes", ()), strict=False)
    }


def _members(program: Program) -> Iterator[tuple[int, ...]]:
    """All groups of devices that any step communicates in."""
    for route in program.routes:
        for step in route.steps:
            if step.state:
                yield from step.groups
            elif step.move is not None:
                yield from (senders for senders, _ in groups(step.move))
            elif step.instance >= 0 and program.instances[step.instance].op.name == "dispatch":
                yield step.mesh.devices


@dataclass(slots=True, kw_only=True)
class _Maker:
    """Builds what one device does for each step."""

    program: Program
    device: int
    made: Groups
    parcels: Mapping[str, Parcel]
    like: torch.Tensor
    dtypes: Mapping[str, torch.dtype]
    reduced: set[tuple[object, ...]] = field(default_factory=set)

    def deeds(self, number: int) -> Iterator[tuple[int, Deed]]:
        """The steps of a route that this device takes part in."""
        route = self.program.routes[number]
        assembler = Assembler(
            program=self.program, route=route, builder=self.program.builders[number], device=self.device,
            parcels=self.parcels, recycled=recycled(self.program.instances),
        )  # fmt: skip
        rings = find_rings(self.program, route)
        stops = {move: each for each in rings.values() for move in (each.gather, each.scatter)}
        for index, step in enumerate(route.steps):
            if not takes_part(step, self.device):
                continue
            if step.state:
                deed = self._state(step)
            elif step.kind == "compute":
                ring = (
                    build_ring(route, route.steps[rings[index].gather], self.device)
                    if index in rings
                    else None
                )
                deed = self._compute(step, assembler, ring)
            elif index in stops:
                deed = self._stop(number, stops[index], index, assembler)
            elif step.move is not None:
                deed = self._move(number, index, step, assembler)
            else:
                reads = tuple(step.reads)
                deed = Deed(step=step, reads=reads)
            if deed is not None:
                yield index, deed

    def _compute(self, step: Step, assembler: Assembler, ring: Ring | None) -> Deed:
        operation = assembler.build(step if ring is None else step.set(beside=()))
        operation = replace(operation, ring=ring)
        reads = tuple(value for each in operation.reads for value in each)
        return Deed(step=step, operation=operation, reads=reads)

    def _move(self, number: int, index: int, step: Step, assembler: Assembler) -> Deed:
        assert step.move is not None
        found = []
        reads: list[Value] = []
        route, tag = self.program.routes[number], self._tag(number, index)
        for at, (source, written) in enumerate(zip(step.reads, step.writes, strict=True)):
            dims = route.shapes[source.name.removeprefix(GRADIENT)].dims
            sends = self.device in step.move.source.mesh.devices
            receives = self.device in step.move.target.mesh.devices
            like = self._like(base_name(source.name))
            first = tag + at * (self.program.plan.microbatches + 1)
            transfer: Transfer | RoutedTransfer
            if is_routed(dims):
                transfer = build_routed(step.move, source.name, dims, self.device, first, like)
            else:
                transfer = build_transfer(step.move, dims, self.device, self.made, first, like)
            candidates = assembler.candidates(source) if sends else None
            reads += candidates or ()
            found.append((candidates, written if receives else None, transfer))
        return Deed(step=step, transfers=tuple(found), reads=tuple(reads))

    def _like(self, name: str) -> torch.Tensor:
        """A tensor of the dtype in which a value or its gradient is sent."""
        if name.endswith(STATISTICS):
            return self.like.double()
        return self.like.to(self.dtypes.get(name.removeprefix(GRADIENT), self.like.dtype))

    def _tag(self, number: int, index: int) -> int:
        """The first tag of a step's messages; each of its values has one per microbatch."""
        steps = max(len(route.steps) for route in self.program.routes)
        most = max((len(step.reads) for route in self.program.routes for step in route.steps), default=1)
        return (number * steps + index) * max(most, 8) * (self.program.plan.microbatches + 1)

    def _stop(self, number: int, stops: Stops, index: int, assembler: Assembler) -> Deed:
        """A move of a ring; of the gradients, the messages are the attention's."""
        route = self.program.routes[number]
        step, gather = route.steps[index], route.steps[stops.gather]
        ring = build_ring(route, gather, self.device)
        assert ring is not None
        sources = tuple(assembler.candidates(each) for each in gather.reads) if step is gather else ()
        stop = Stop(
            ring=ring, attention=route.steps[stops.attention].instance, sources=sources,
            tag=self._tag(number, index),
        )  # fmt: skip
        return Deed(step=step, stop=stop, reads=tuple(value for each in sources for value in each))

    def _state(self, step: Step) -> Deed | None:
        """Weights or gradients that are gathered or reduced; what another place does too is done once."""
        parcels: dict[tuple[str, ...], Parcel] = {}
        for weight in step.state:
            parcel = self.parcels.get(key_of(self.program, weight))
            if parcel is not None:
                parcels[parcel.key] = parcel
        members = tuple(sorted(next(each for each in step.groups if self.device in each)))
        listed = []
        for parcel in parcels.values():
            key = (step.phase, step.kind, members, parcel.key)
            if step.phase in "PS" and key in self.reduced:
                continue
            if len(members) > 1:
                self.reduced.add(key)
                listed.append(parcel)
        if not listed:
            return None
        return Deed(step=step, parcels=tuple(listed), members=(members,) * len(listed))

    def counts(self, number: int, deeds: Mapping[tuple[int, int], Deed]) -> Counter[Value]:
        """How often this device reads each value of a microbatch."""
        found: Counter[Value] = Counter()
        for (route, _), deed in deeds.items():
            if route == number:
                found.update(deed.reads)
        return found
