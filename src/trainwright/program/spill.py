"""What expanded memory adds to the blocks of a program, where some of its tensors lie there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.operators import op_traffic_bytes, table_traffic_bytes
from trainwright.cost.tiers import TABLES, Expansion, Shares, added_s, tier_traffic_bytes, with_working
from trainwright.program.buffers import Buffer
from trainwright.program.bundles import Bundle
from trainwright.program.entries import Entries, Entry, Group, Writer
from trainwright.program.lower import Program
from trainwright.program.state import bundle_optimizer_bytes, state_bytes, widths
from trainwright.program.step import Step
from trainwright.program.table import FROM_THE_START
from trainwright.program.tensors import local_sizes

Array = NDArray[np.float64]
Home = tuple[int, str, int]  # route, block, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Spilled:
    """Where tensors lie on the places that need more than their own memory."""

    expansion: Expansion
    shares: Mapping[int, Shares]  # by place
    traffic_bytes: dict[int, list[float]] = field(default_factory=dict)  # by place: of a step, by tier


def tier_entries(
    program: Program,
    spilled: Spilled,
    entries: Entries,
    writers: Sequence[Writer],
    buffers: Sequence[Buffer],
) -> dict[int, Entry]:
    """By the entry that each follows: what a block waits for what is far, forward and backward."""
    kept = _kept_bytes(entries, writers, buffers)
    found: dict[int, Entry] = {}
    for writer in writers:
        state = _state_of_blocks(program, writer)
        for home, phases in _phases(writer).items():
            if home[2] not in spilled.shares:
                continue
            for group, steps in phases.items():
                _add(program, spilled, entries, writer, (home, group, steps), (kept, state), found)
    return found


def _add(
    program: Program,
    spilled: Spilled,
    entries: Entries,
    writer: Writer,
    where: tuple[Home, Group, Sequence[int]],
    known: tuple[Mapping[Home, float], Mapping[tuple[str, int], Mapping[str, float]]],
    found: dict[int, Entry],
) -> None:
    (route, block, place), group, numbers = where
    steps = [program.routes[route].steps[number] for number in numbers]
    own = known[1].get((block, place), {"weights": 0.0, "gradients": 0.0})
    reads = len({step.phase for step in steps if step.phase != "W" and _reads_weights(program, step)})
    back = any(step.phase in "IW" for step in steps)
    touched = {
        "weights": np.array([reads * own["weights"]]),
        "gradients": np.array([2.0 * own["gradients"] if back else 0.0]),
        TABLES: np.array([sum(_looked_up_bytes(program, route, step) for step in steps)]),
        "kept": np.array([known[0].get((route, block, place), 0.0) if group[1][0] != "N" else 0.0]),
    }
    device = writer.places.devices[place][0]
    computed = [step for step in steps if step.kind == "compute"]
    busy_s = sum(step.uneven_s.get(device, step.seconds) for step in computed)
    moved = np.array([sum(_moved_bytes(program, route, step) for step in computed)])
    shares = spilled.shares[place]
    runs = len(range(route, program.plan.microbatches, len(program.routes)))
    every = tier_traffic_bytes(shares, with_working(touched, moved))
    _count(spilled, place, [runs * float(each[0]) for each in every])
    seconds = float(added_s(spilled.expansion, shares, np.array([busy_s]), moved, touched)[0])
    if seconds > 0.0:
        last = next(number for number in reversed(numbers) if _is_in(entries, writer, number, group))
        found[entries.end[(route, last, place)]] = Entry(
            group=group, lane="main", label=f"{block} tiers {group[1][0]}", cause="tiers", seconds=seconds
        )


def _is_in(entries: Entries, writer: Writer, number: int, group: Group) -> bool:
    end = entries.end.get((writer.route, number, group[3]))
    return end is not None and entries.listed[end].group == group and entries.listed[end].lane == "main"


def _count(spilled: Spilled, place: int, moved: Sequence[float]) -> None:
    before = spilled.traffic_bytes.get(place, [0.0] * len(moved))
    spilled.traffic_bytes[place] = [a + b for a, b in zip(before, moved, strict=True)]


def _phases(writer: Writer) -> dict[Home, dict[Group, list[int]]]:
    """The steps of each block by pass: forwards apart, all of the backward together, what is done again too.

    The backward stands under the group of its gradients of inputs.
    """
    found: dict[Home, dict[Group, list[int]]] = {}
    for (group, block, _), numbers in writer.blocks.items():
        route, phase, stage, place = group
        shown = (route, "I", stage, place) if phase == "W" else group
        found.setdefault((route, block, place), {}).setdefault(shown, []).extend(numbers)
    return {
        home: {group: sorted(numbers) for group, numbers in phases.items()} for home, phases in found.items()
    }


def _reads_weights(program: Program, step: Step) -> bool:
    """Whether a step reads matrices, which are most of a block's weights."""
    return step.kind == "compute" and program.instances[step.instance].op.kind in ("matmul", "grouped_matmul")


def _moved_bytes(program: Program, route: int, step: Step) -> float:
    """Bytes that an operator's part moves between memory and chip; a backward's are with its inputs'."""
    if step.phase == "W":
        return 0.0
    builder, instance = program.builders[route], program.instances[step.instance]
    sizes = local_sizes(builder.placed[step.instance], instance.op, builder.sizes(instance))
    both = op_traffic_bytes(instance.op, sizes, program.setting.machine)
    return float(np.asarray(both[step.phase == "I"]).reshape(-1)[0])


def _looked_up_bytes(program: Program, route: int, step: Step) -> float:
    """Bytes of tables that an operator's part meets, in one direction."""
    if step.kind != "compute" or not program.instances[step.instance].op.sparse:
        return 0.0
    builder, instance = program.builders[route], program.instances[step.instance]
    sizes = local_sizes(builder.placed[step.instance], instance.op, builder.sizes(instance))
    both = table_traffic_bytes(instance.op, sizes, program.setting.machine.element_bytes)
    return float(both[step.phase == "I"].reshape(-1)[0])


def _state_of_blocks(program: Program, writer: Writer) -> dict[tuple[str, int], dict[str, float]]:
    """Bytes of weights and gradients of each block on each place; not of tables that are looked up in."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    builder = program.builders[writer.route]
    for bundle in program.routes[writer.route].bundles:
        if all(program.instances[index].op.kind == "gather" for index in bundle.instances):
            continue
        size = state_bytes(builder, bundle)
        for place in writer.places.covered(bundle.mesh.devices):
            sums = found.setdefault((bundle.block, place), {"weights": 0.0, "gradients": 0.0})
            for what in sums:
                sums[what] += size[what]
    return found


def _kept_bytes(entries: Entries, writers: Sequence[Writer], buffers: Sequence[Buffer]) -> dict[Home, float]:
    """Bytes that each block's forward leaves for a backward, of one microbatch."""
    blocks: dict[int, tuple[int, str]] = {}
    for writer in writers:
        steps = writer.program.routes[writer.route].steps
        for marks in (entries.begin, entries.end):
            blocks |= {
                number: (route, steps[step].block)
                for (route, step, _), number in marks.items()
                if route == writer.route
            }
    found: dict[Home, float] = {}
    for buffer in buffers:
        if buffer.writer == FROM_THE_START or buffer.category != "activations":
            continue
        later = any(entries.listed[reader].group[1] in "BIW" for reader in buffer.readers)
        if later and entries.listed[buffer.writer].group[1] == "F" and buffer.writer in blocks:
            home = (*blocks[buffer.writer], buffer.place)
            found[home] = found.get(home, 0.0) + buffer.size_bytes
    return found


def update_more_s(program: Program, spilled: Spilled, place: int, held: Sequence[Bundle]) -> float:
    """What expanded memory adds to the update of a place's bundles."""
    if place not in spilled.shares:
        return 0.0
    touched = {name: np.array([size]) for name, size in _updated(program, held)}
    every = np.array([sum(float(each[0]) for each in touched.values())])
    moved = tier_traffic_bytes(spilled.shares[place], touched)
    _count(spilled, place, [float(each[0]) for each in moved])
    return float(added_s(spilled.expansion, spilled.shares[place], np.zeros(1), every, touched)[0])


def _updated(program: Program, held: Sequence[Bundle]) -> Iterator[tuple[str, float]]:
    """Bytes that a device reads and writes in its update, by class of tensors."""
    width = widths(program.builders[0])
    shares = [
        (bundle, bundle.elements / len(bundle.sharded("optimizer")))
        for bundle in held
        if "optimizer" not in bundle.offloads and not bundle.rows and bundle.trained
    ]
    kept = sum(share for _, share in shares)
    builder = program.builders[0]
    yield (
        "optimizer",
        2.0 * sum(bundle_optimizer_bytes(builder, bundle) * share for bundle, share in shares),
    )
    yield "gradients", 2.0 * width.gradient * kept
    yield "weights", width.weight * kept


__all__ = ["Spilled", "tier_entries", "update_more_s"]
