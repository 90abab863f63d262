"""A program as a table of tasks: the steps of one microbatch stamped out for all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput
from trainwright.plan.action import Action
from trainwright.plan.plan import Order, Plan
from trainwright.program.buffers import Buffer, find_buffers
from trainwright.program.entries import (
    LANES,
    Entries,
    Entry,
    Group,
    Writer,
    entries_of,
    find_link_ends,
    in_groups,
    launch_s,
    weights_share,
)
from trainwright.program.links import Between, Ends, Span
from trainwright.program.lower import Program
from trainwright.program.places import Places, find_places
from trainwright.program.spill import Spilled, tier_entries, update_more_s
from trainwright.program.state import update_s
from trainwright.program.table import (
    CATEGORIES,
    COMMUNICATION,
    COMPUTE,
    COPY,
    FROM_THE_START,
    ONCE,
    Table,
)

Ids = NDArray[np.int64]

_UNITS = (COMPUTE, COMMUNICATION, COMMUNICATION, COMMUNICATION, COPY, COPY)  # of each place
_UNIT_OF_LANE = (0, 0, 1, 2, 2, 3, 4, 5)  # gathers go before scatters
_AHEAD = ("data", "back")  # lanes of what an action needs before it begins
_ONCE_PHASES = ("P", "S")


def tabulate(program: Program, spilled: Spilled | None = None) -> Table:
    """The tasks of a whole step, with what tensors in expanded memory add to them."""
    plan = program.plan
    orders = orders_of(program)
    places = find_places(
        (each for route in program.routes for each in dict.fromkeys(route.placed)),
        [o.devices for o in orders],
    )
    entries, writers = entries_of(program, places, merged=is_merged(orders))
    buffers = find_buffers(program, places, entries, writers)
    far = tier_entries(program, spilled, entries, writers, buffers) if spilled else {}
    _add_launches(program, entries, writers)
    _insert(entries, far)
    _add_ends(program, places, entries, spilled)
    stamps = Stamps.of(program, entries)
    rows = _rows(orders, places, plan)
    ends = find_link_ends(entries, writers)
    return _table(stamps, entries, rows, buffers, places, ends)


def orders_of(program: Program) -> tuple[Order, ...]:
    """What each device does in which order: as the plan says, or microbatch by microbatch."""
    return program.plan.orders or (_default_order(program),)


def is_merged(orders: Sequence[Order]) -> bool:
    """Whether weight gradients go with those of inputs, not in actions of their own."""
    return not any(action.phase == "W" for order in orders for action in order.actions)


def _default_order(program: Program) -> Order:
    stages = range(max(program.stages) + 1)
    passes = range(program.setting.graph.passes - 1)
    actions = []
    for microbatch in range(program.plan.microbatches):
        actions += [Action("N", stage, microbatch, each) for each in passes for stage in stages]
        actions += [Action("F", stage, microbatch) for stage in stages]
        actions += [Action("B", stage, microbatch) for stage in reversed(stages)]
    return Order(devices=tuple(range(program.plan.devices)), actions=tuple(actions))


def _rows(orders: Sequence[Order], places: Places, plan: Plan) -> list[tuple[Action, ...]]:
    """The actions of each place."""
    by_place: dict[int, tuple[Action, ...]] = {}
    for order in orders:
        for device in order.devices:
            place = places.of.get(device)
            if place is not None and by_place.setdefault(place, order.actions) != order.actions:
                raise BadInput("plan: device", device, "has two orders", "give each device one")
    for place, devices in enumerate(places.devices):
        if place not in by_place:
            raise BadInput("plan: device", devices[0], "has no order", "add one, or leave out all of them")
    return [by_place[place] for place in range(len(places.devices))]


def _add_launches(program: Program, entries: Entries, writers: Sequence[Writer]) -> None:
    """The host's floor of every block: what launching adds, after the block's last entry on the main lane."""
    after: dict[int, Entry] = {}
    op_s = program.setting.stack.op_s
    for writer in writers:
        route = program.routes[writer.route]
        for (group, block, kind), numbers in writer.blocks.items():
            if group[1] == "W":
                _shorten_weights(program, entries, writer, (group, block, kind))
                continue
            floor = launch_s(route, numbers, op_s)
            if floor <= 0.0:
                continue
            last = entries.end[(writer.route, numbers[-1], group[3])]
            phase = "R" if kind else group[1][0]
            after[last] = Entry(
                group=group, lane="main", label=f"{block} launch {phase}", cause="launch", seconds=floor
            )
    _insert(entries, after)


def _shorten_weights(program: Program, entries: Entries, writer: Writer, key: tuple[Group, str, str]) -> None:
    """Weight gradients that are put off take less where launching, not the device, sets the pace."""
    (route, _, stage, place), block, kind = key
    inputs = writer.blocks.get(((route, "I", stage, place), block, kind), [])
    numbers = writer.blocks[key]
    share = (
        weights_share(program.routes[route], inputs, numbers, program.setting.stack.op_s) if inputs else 1.0
    )
    for number in numbers if share < 1.0 else ():
        entry = entries.listed[entries.end[(route, number, place)]]
        entry.seconds *= share


def _insert(entries: Entries, after: Mapping[int, Entry]) -> None:
    """Put entries behind others; they queue there, so they need no inputs."""
    for at, entry in after.items():
        number = entries.add(entry)
        entries.position[number] = entries.position.get(at, float(at)) + 0.5


def _add_ends(program: Program, places: Places, entries: Entries, spilled: Spilled | None) -> None:
    """The update of every place once all gradients are reduced, and what a step costs besides."""
    stack = program.setting.stack
    reduced = [number for number, entry in enumerate(entries.listed) if entry.group[1] == "S"]
    for place in range(len(places.devices)):
        held = [
            bundle
            for route in program.routes
            for bundle in route.bundles
            if place in places.covered(bundle.mesh.devices)
        ]
        group: Group = (0, "S", -1, place)
        update = Entry(
            group=group, lane="main", label="optimizer update S", cause="optimizer",
            seconds=update_s(program.builders[0], held), inputs=list(reduced),
        )  # fmt: skip
        number = entries.add(update)
        more_s = update_more_s(program, spilled, place, held) if spilled else 0.0
        if more_s > 0.0:
            far = Entry(
                group=group,
                lane="main",
                label="update tiers S",
                cause="tiers",
                seconds=more_s,
                inputs=[number],
            )
            number = entries.add(far)
        entries.add(
            Entry(group=group, lane="main", label="step overhead S", cause="overhead", seconds=stack.step_s,
                  inputs=[number])
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """Where the copies of each entry lie: number = base + copy · stride, copies being microbatches."""

    base: Ids  # by entry
    stride: Ids
    copies: Ids
    once: NDArray[np.bool_]  # whether an entry is the step's, not a microbatch's
    groups: Mapping[Group, list[int]]  # entries in queue order
    total: int
    routes: int

    @staticmethod
    def of(program: Program, entries: Entries) -> "Stamps":
        """Numbers for the copies of all entries, group by group, microbatch by microbatch."""
        groups = in_groups(entries.listed)
        count = len(entries.listed)
        base, stride, copies = (np.zeros(count, dtype=np.int64) for _ in range(3))
        once = np.zeros(count, dtype=bool)
        total, routes = 0, len(program.routes)
        for group, members in groups.items():
            once[members] = group[1] in _ONCE_PHASES
            runs = 1 if group[1] in _ONCE_PHASES else len(range(group[0], program.plan.microbatches, routes))
            base[members] = total + np.arange(len(members))
            stride[members] = len(members)
            copies[members] = runs
            total += runs * len(members)
        return Stamps(
            base=base, stride=stride, copies=copies, once=once, groups=groups, total=total, routes=routes
        )


def _table(
    stamps: Stamps,
    entries: Entries,
    rows: Sequence[tuple[Action, ...]],
    buffers: Sequence[Buffer],
    places: Places,
    ends: Mapping[Group, Ends],
) -> Table:
    first_queued, queue, held_back = _queues(stamps, entries, rows, ends)
    first_input, inputs = _with(_inputs(stamps, entries), held_back)
    columns = _columns(stamps, entries)
    count = len(places.devices)
    return Table(
        **columns,
        first_input=first_input,
        inputs=inputs.astype(np.int32),
        first_queued=first_queued,
        queue=queue.astype(np.int32),
        lane_unit=np.array(
            [place * len(_UNITS) + unit for place in range(count) for unit in _UNIT_OF_LANE], dtype=np.int32
        ),
        unit_place=np.repeat(np.arange(count), len(_UNITS)).astype(np.int32),
        unit_kind=np.tile(np.array(_UNITS), count).astype(np.int32),
        **_buffer_columns(stamps, buffers),
        places=places.devices,
    )


def _columns(stamps: Stamps, entries: Entries) -> dict[str, Any]:
    """Seconds, lanes and labels of all tasks."""
    names: dict[tuple[str, str], int] = {}
    rows = []
    for entry in entries.listed:
        label = names.setdefault((entry.label, entry.cause), len(names))
        lane = entry.group[3] * len(LANES) + LANES.index(entry.lane)
        rows.append((entry.seconds, entry.slows, lane, label))
    table = np.array(rows)
    order, microbatch = _tiled(stamps)
    chosen = table[order]
    return {
        "seconds": chosen[:, 0].copy(),
        "slows": chosen[:, 1].copy(),
        "lane": chosen[:, 2].astype(np.int32),
        "label": chosen[:, 3].astype(np.int32),
        "microbatch": microbatch.astype(np.int32),
        "labels": tuple(label for label, _ in names),
        "causes": tuple(cause for _, cause in names),
    }


def _tiled(stamps: Stamps) -> tuple[Ids, Ids]:
    """The entry and the microbatch of every task."""
    order, microbatch = [], []
    for group, members in stamps.groups.items():
        copies = int(stamps.copies[members[0]])
        order.append(np.tile(np.array(members), copies))
        once = group[1] in _ONCE_PHASES
        numbers = np.full(1, ONCE) if once else group[0] + np.arange(copies) * stamps.routes
        microbatch.append(np.repeat(numbers, len(members)))
    return np.concatenate(order), np.concatenate(microbatch)


def _inputs(stamps: Stamps, entries: Entries) -> tuple[Ids, Ids]:
    """Inputs of every task: of the same microbatch; of the step; or, for the step's own, of all of them."""
    counts, listed = [], []
    for group, members in stamps.groups.items():
        inputs = [entries.listed[member].inputs for member in members]
        flat = np.array([other for each in inputs for other in each], dtype=np.int64)
        sizes = np.array([len(each) for each in inputs], dtype=np.int64)
        if group[1] in _ONCE_PHASES:
            runs = stamps.copies[flat]
            owner = np.repeat(np.arange(len(members)), sizes)
            copy = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
            listed.append(np.repeat(stamps.base[flat], runs) + copy * np.repeat(stamps.stride[flat], runs))
            counts.append(np.bincount(owner, weights=runs, minlength=len(members)).astype(np.int64))
            continue
        copies = np.arange(int(stamps.copies[members[0]]))
        moves = np.where(stamps.once[flat], 0, stamps.stride[flat])
        listed.append((stamps.base[flat][None, :] + copies[:, None] * moves[None, :]).ravel())
        counts.append(np.tile(sizes, len(copies)))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return starts, np.concatenate(listed)


def _with(inputs: tuple[Ids, Ids], more: Sequence[tuple[int, int]]) -> tuple[Ids, Ids]:
    """Inputs with some further ones: pairs of a task and what it waits for."""
    if not more:
        return inputs
    starts, listed = inputs
    tasks, others = np.array(more, dtype=np.int64).T
    counts = np.diff(starts) + np.bincount(tasks, minlength=len(starts) - 1)
    at = np.argsort(
        np.concatenate([np.repeat(np.arange(len(starts) - 1), np.diff(starts)), tasks]), kind="stable"
    )
    return np.concatenate([[0], np.cumsum(counts)]), np.concatenate([listed, others])[at]


def _queues(
    stamps: Stamps, entries: Entries, rows: Sequence[tuple[Action, ...]], link_ends: Mapping[Group, Ends]
) -> tuple[Ids, Ids, list[tuple[int, int]]]:
    """The tasks of every lane in order: what precedes all microbatches, the actions, what follows them.

    Also what is held back: the first gather of an action, and the first copy back from the host, wait until
    the action before it begins; and what shares links waits for each other.
    """
    by_lane = {group: _by_lane(entries, members) for group, members in stamps.groups.items()}
    found: list[list[Ids]] = [[] for _ in range(len(rows) * len(LANES))]
    used: set[Group] = set()
    held_back: list[tuple[int, int]] = []
    stages = sorted({group[2] for group in stamps.groups})
    for place, actions in enumerate(rows):
        main, *ahead = (found[place * len(LANES) + LANES.index(lane)] for lane in ("main", *_AHEAD))
        ends: list[int] = []  # the last task of each action
        between = Between(waits=held_back)
        for group in [(r, "P", s, place) for r in range(stamps.routes) for s in stages]:
            _queue(stamps, by_lane, group, 0, place, found, used)
        for action in actions:
            route, copy = action.microbatch % stamps.routes, action.microbatch // stamps.routes
            before = [len(each) for each in ahead]
            for phase in action_phases(action):
                group = (route, phase, action.stage, place)
                _queue(stamps, by_lane, group, copy, place, found, used)
                if group in link_ends:
                    between.follow(_copy_of(stamps, link_ends[group], copy))
            for each, count in zip(ahead, before, strict=True):
                if len(each) > count and len(ends) > 1:
                    held_back.append((int(each[count][0]), ends[-2]))
            if main and int(main[-1][-1]) not in ends[-1:]:  # a stage may have nothing to do
                ends.append(int(main[-1][-1]))
        for group in [(r, "S", s, place) for s in (*stages[:0:-1], stages[0]) for r in range(stamps.routes)]:
            _queue(stamps, by_lane, group, 0, place, found, used)
    _check_used(stamps, used, rows)
    joined = [np.concatenate(each) if each else np.zeros(0, dtype=np.int64) for each in found]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in joined])]).astype(np.int64)
    return starts, np.concatenate(joined), held_back


def _copy_of(stamps: Stamps, ends: Ends, copy: int) -> Ends:
    """The tasks of one microbatch."""

    def tasks(spans: Sequence[Span]) -> tuple[Span, ...]:
        return tuple(
            (int(stamps.base[a] + copy * stamps.stride[a]), int(stamps.base[b] + copy * stamps.stride[b]))
            for a, b in spans
        )

    return Ends(
        first_gathers=tasks(ends.first_gathers), last_gathers=tasks(ends.last_gathers),
        last_scatters=tasks(ends.last_scatters),
    )  # fmt: skip


def action_phases(action: Action) -> tuple[str, ...]:
    """The phases of steps that an action runs, one after another."""
    if action.phase == "N":
        return (f"N{action.pass_}",)
    return ("B", "I", "W") if action.phase == "B" else (action.phase,)


def _queue(
    stamps: Stamps,
    by_lane: Mapping[Group, list[Ids]],
    group: Group,
    copy: int,
    place: int,
    found: list[list[Ids]],
    used: set[Group],
) -> None:
    if group not in by_lane:
        return
    used.add(group)
    for lane, members in enumerate(by_lane[group]):
        if len(members):
            found[place * len(LANES) + lane].append(stamps.base[members] + copy * stamps.stride[members[0]])


def _by_lane(entries: Entries, members: Sequence[int]) -> list[Ids]:
    ordered = sorted(members, key=lambda number: entries.position.get(number, float(number)))
    return [
        np.array([n for n in ordered if entries.listed[n].lane == lane], dtype=np.int64) for lane in LANES
    ]


def _check_used(stamps: Stamps, used: set[Group], rows: Sequence[tuple[Action, ...]]) -> None:
    for group in stamps.groups:
        if group not in used:
            raise BadInput(
                f"plan: stage {group[2]}", group[1], "has work on devices whose order does not name it",
                "add its actions to their order",
            )  # fmt: skip


def _buffer_columns(stamps: Stamps, buffers: Sequence[Buffer]) -> dict[str, Any]:
    """Buffers of every microbatch; those of equally many together."""
    by_copies: dict[int, list[Buffer]] = {}
    for buffer in buffers:
        lasting = buffer.writer == FROM_THE_START
        by_copies.setdefault(0 if lasting else int(stamps.copies[buffer.writer]), []).append(buffer)
    parts = [_stamped(stamps, each, copies) for copies, each in by_copies.items()]
    place, size, category, start, counts, readers = (
        np.concatenate(each) for each in zip(*parts, strict=True)
    )
    return {
        "buffer_place": place.astype(np.int32),
        "buffer_bytes": size.astype(float),
        "buffer_category": category.astype(np.int32),
        "buffer_from": start.astype(np.int32),
        "first_reader": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "readers": readers.astype(np.int32),
    }


def _stamped(stamps: Stamps, buffers: Sequence[Buffer], copies: int) -> tuple[NDArray[np.generic], ...]:
    """Columns of some buffers, once for each of so many microbatches; 0: from before the step."""
    runs = np.arange(max(copies, 1))
    writers = np.array([buffer.writer for buffer in buffers], dtype=np.int64)
    readers = (
        np.array([n for buffer in buffers for n in buffer.readers], dtype=np.int64) if copies else writers[:0]
    )
    start = np.full(len(buffers), FROM_THE_START)
    if copies:
        start = (stamps.base[writers][None, :] + runs[:, None] * stamps.stride[writers][None, :]).ravel()
    moves = np.where(stamps.once[readers], 0, stamps.stride[readers])
    return (
        np.tile([buffer.place for buffer in buffers], len(runs)),
        np.tile([buffer.size_bytes for buffer in buffers], len(runs)),
        np.tile([CATEGORIES.index(buffer.category) for buffer in buffers], len(runs)),
        start,
        np.tile([len(buffer.readers) if copies else 0 for buffer in buffers], len(runs)),
        (stamps.base[readers][None, :] + runs[:, None] * moves[None, :]).ravel(),
    )
