"""What the steps of a program hold in memory, from which entry to which."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.model.graph import Op
from trainwright.model.totals import is_quantized
from trainwright.program.bundles import weight_elements
from trainwright.program.entries import Entries, Writer
from trainwright.program.lower import Program
from trainwright.program.moves import LOCAL
from trainwright.program.places import Places
from trainwright.program.sides import side_bytes
from trainwright.program.state import state_bytes, widths
from trainwright.program.step import GRADIENT, STATE_GRADIENT, Step, Value
from trainwright.program.table import FROM_THE_START
from trainwright.program.values import held_bytes

AXIS_CAUSES = ("tp", "pp", "cp", "ep", "dp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Bytes on a place from the start of one entry to the end of the last of its readers."""

    place: int
    size_bytes: float
    category: str
    writer: int
    readers: tuple[int, ...] = ()


def find_buffers(
    program: Program, places: Places, entries: Entries, writers: Sequence[Writer]
) -> list[Buffer]:
    """All buffers of a step: state for all of it, values while they are needed, side results of operators."""
    found = list(_state(program, places))
    for writer in writers:
        found += _values(program, places, entries, writer)
        found += _whole_gradients(program, places, entries, writer)
        found += _side_results(program, places, entries, writer)
    return found


def _state(program: Program, places: Places) -> Iterator[Buffer]:
    """Weights, gradients and optimizer state; the last not where it lives on the host."""
    sums: dict[tuple[int, str], float] = {}
    for number, route in enumerate(program.routes):
        for bundle in route.bundles:
            for place in places.covered(bundle.mesh.devices):
                for what, size in state_bytes(program.builders[number], bundle).items():
                    if what == "optimizer" and what in bundle.offloads:
                        continue
                    sums[(place, what)] = sums.get((place, what), 0.0) + size
    for (place, what), size in sums.items():
        yield Buffer(place=place, size_bytes=size, category=what, writer=FROM_THE_START)
    stack, causes = program.setting.stack, _causes(program, places)
    for place in range(len(places.devices)):
        size = stack.context_bytes + stack.communicator_bytes * len(causes.get(place, ()))
        yield Buffer(place=place, size_bytes=size, category="buffers", writer=FROM_THE_START)


def _causes(program: Program, places: Places) -> dict[int, set[str]]:
    """For which parallel axes each place communicates."""
    found: dict[int, set[str]] = {}
    if not program.setting.stack.communicator_bytes:
        return found
    seen: set[tuple[str, int]] = set()
    for route in program.routes:
        for step in route.steps:
            devices = step.mesh.devices
            moves = step.cause in AXIS_CAUSES and step.kind not in LOCAL
            if not moves or len(devices) < 2 or (step.cause, id(devices)) in seen:
                continue
            seen.add((step.cause, id(devices)))
            for place in places.covered(devices):
                found.setdefault(place, set()).add(step.cause)
    return found


def _values(program: Program, places: Places, entries: Entries, writer: Writer) -> Iterator[Buffer]:
    route = program.routes[writer.route]
    made: dict[Value, list[int]] = {}
    read: dict[Value, list[int]] = {}
    for number, step in enumerate(route.steps):
        for value in step.writes:
            made.setdefault(value, []).append(number)
        for value in step.reads:
            while value in route.aliases:
                value = route.aliases[value]
            read.setdefault(value, []).append(number)
        for move in step.beside:
            for value in route.steps[move].writes:
                read.setdefault(value, []).append(number)
    shared = _shared_gradients(program, writer.route)
    for value, steps in made.items():
        if value.name.startswith(STATE_GRADIENT) or value in shared or route.steps[steps[0]].kind in LOCAL:
            continue
        size, category = _size(program, writer.route, value, route.steps[steps[0]], read.get(value, ()))
        if not size:
            continue
        for place in places.covered(value.layout.mesh.devices):
            at = next(
                (k for n in steps if (k := entries.begin.get((writer.route, n, place))) is not None), None
            )
            if at is None:
                at = _sender(entries, writer.route, steps[0], route.steps[steps[0]], places)
            ends = [
                entries.end[(writer.route, n, p)]
                for n in read.get(value, steps)
                for p in _where(places, route.steps[n], place)
            ]
            yield Buffer(place=place, size_bytes=size, category=category, writer=at, readers=tuple(ends))


def _shared_gradients(program: Program, route: int) -> set[Value]:
    """Gradients without memory of their own: those of a sum's terms are all the gradient of the first."""
    found: set[Value] = set()
    for step in program.routes[route].steps:
        if step.phase == "I" and step.kind == "compute" and _is_sum(program.instances[step.instance].op):
            found.update(value for value in step.writes[1:] if value.name.startswith(GRADIENT))
    return found


def _is_sum(op: Op) -> bool:
    alike = all(tensor.dims == op.output.dims for tensor in op.inputs)
    return op.kind == "elementwise" and alike and not (op.saved or op.extra_outputs or op.weights)


def _whole_gradients(program: Program, places: Places, entries: Entries, writer: Writer) -> Iterator[Buffer]:
    """Gradients of weights of which each device keeps a shard, from their making until they are scattered."""
    builder, route = program.builders[writer.route], program.routes[writer.route]
    made = {value: n for n, step in reversed(list(enumerate(route.steps))) for value in step.writes}
    index = {each.name: number for number, each in enumerate(program.instances)}
    for number, step in enumerate(route.steps):
        if step.kind != "reduce_scatter" or step.phase != "W":
            continue
        for value in dict.fromkeys(step.reads):
            size = weight_elements(builder, index[value.name.removeprefix(STATE_GRADIENT)])
            for place in places.covered(step.mesh.devices):
                yield Buffer(
                    place=place, size_bytes=size * widths(builder).reduced, category="gradients",
                    writer=entries.begin[(writer.route, made[value], place)],
                    readers=(entries.end[(writer.route, number, place)],),
                )  # fmt: skip


def _where(places: Places, step: Step, place: int) -> tuple[int, ...]:
    covered = places.covered(step.mesh.devices)
    return (place,) if place in covered else covered


def _sender(entries: Entries, route: int, number: int, step: Step, places: Places) -> int:
    return entries.end[(route, number, places.covered(step.mesh.devices)[0])]


def _size(
    program: Program, route: int, value: Value, step: Step, readers: Sequence[int]
) -> tuple[float, str]:
    """Bytes of a value on a device, as the stack keeps it, and what they count as."""
    shape = program.routes[route].shapes[value.name.removeprefix(GRADIENT)]
    stack, size = program.setting.stack, held_bytes(shape, value.layout)
    if value.name.startswith("weights/"):
        return size, "weights"
    if "vocab" in shape.dims:
        # Of logits the stack keeps copies in several precisions; they are counted once, at the logits.
        plain = not value.name.startswith(GRADIENT)
        return (
            size * stack.live_logits_bytes / program.setting.machine.element_bytes if plain else 0.0
        ), "activations"
    saved = any(program.routes[route].steps[n].phase in "IWR" for n in readers)
    if not saved or value.name.startswith(GRADIENT):
        return size, "activations"
    if step.kind == "all_gather" and step.cause == "tp":
        part = (
            size * step.bytes / max(step.bytes + size, 1.0)
            if not step.move
            else held_bytes(shape, step.move.source)
        )
        size = stack.gathered_inputs * size + (1.0 - stack.gathered_inputs) * min(part, size)
    more = stack.routed_imbalance if "top_k" in shape.dims else 1.0
    return size * more * stack.activations * _width(program, route, readers), "activations"


def _width(program: Program, route: int, readers: Sequence[int]) -> float:
    """How wide a kept value is, relative to the compute dtype: fp8 and fp4 linears keep inputs quantized."""
    machine = program.setting.machine
    if not machine.quantizes_inputs:
        return 1.0
    steps = [program.routes[route].steps[n] for n in readers]
    later = [step for step in steps if step.phase in "IWR"]
    low = [step.phase == "W" and is_quantized(program.instances[step.instance].op) for step in later]
    return float(not all(low)) + machine.kept_input_width * any(low)


def _side_results(program: Program, places: Places, entries: Entries, writer: Writer) -> Iterator[Buffer]:
    """Statistics, masks and matrices of scores that an operator keeps for its own backward."""
    builder, route = program.builders[writer.route], program.routes[writer.route]
    back: dict[tuple[int, int], int] = {}
    for number, step in enumerate(route.steps):
        if step.phase == "I" and step.kind == "compute":
            back[(step.instance, step.chunk)] = number
    for number, step in enumerate(route.steps):
        if step.kind != "compute" or step.phase not in "FR" or (step.instance, step.chunk) not in back:
            continue
        if step.phase == "F" and route.placed[step.instance].recompute:
            continue
        size = side_bytes(builder, step.instance) * program.setting.stack.activations
        for place in places.covered(step.mesh.devices) if size else ():
            yield Buffer(
                place=place, size_bytes=size, category="activations",
                writer=entries.begin[(writer.route, number, place)],
                readers=(entries.end[(writer.route, back[(step.instance, step.chunk)], place)],),
            )  # fmt: skip
