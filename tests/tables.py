"""Tables by hand and at random, for tests of what reads them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from trainwright.program.table import (
    CATEGORIES,
    COMMUNICATION,
    COMPUTE,
    COPY,
    FROM_THE_START,
    ONCE,
    Ints,
    Starts,
    Table,
)

CAUSES = ("matmul", "attention", "tp", "pp", "dp", "offload")
PHASES = ("F", "B", "W")
# Times that often meet, and times that never do.
SECONDS = st.one_of(st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0]), st.floats(0.0, 3.0, allow_subnormal=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One task; tasks of a lane run in the order in which they are listed."""

    seconds: float
    lane: int = 0
    inputs: Sequence[int] = ()
    slows: float = 0.0
    label: str = "layer F"
    cause: str = "matmul"
    microbatch: int = ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One buffer."""

    size: float
    start: int = FROM_THE_START
    readers: Sequence[int] = ()
    category: str = "activations"
    place: int = 0


def build_table(
    entries: Sequence[Entry],
    *,
    lanes: Sequence[int] = (0,),
    units: Sequence[tuple[int, int]] = ((0, COMPUTE),),
    buffers: Sequence[Held] = (),
) -> Table:
    """A table of tasks, given the unit of each lane, and the place and kind of each unit."""
    names = list(dict.fromkeys((each.label, each.cause) for each in entries))
    lane = _ints([each.lane for each in entries])
    first_input, inputs = _lists([each.inputs for each in entries])
    first_reader, readers = _lists([each.readers for each in buffers])
    places = max(place for place, _ in units) + 1
    return Table(
        seconds=np.array([each.seconds for each in entries], float),
        slows=np.array([each.slows for each in entries], float),
        lane=lane,
        label=_ints([names.index((each.label, each.cause)) for each in entries]),
        microbatch=_ints([each.microbatch for each in entries]),
        first_input=first_input,
        inputs=inputs,
        first_queued=np.append(0, np.cumsum(np.bincount(lane, minlength=len(lanes)))),
        queue=_ints(np.argsort(lane, kind="stable")),
        lane_unit=_ints(lanes),
        unit_place=_ints([place for place, _ in units]),
        unit_kind=_ints([kind for _, kind in units]),
        buffer_place=_ints([each.place for each in buffers]),
        buffer_bytes=np.array([each.size for each in buffers], float),
        buffer_category=_ints([CATEGORIES.index(each.category) for each in buffers]),
        buffer_from=_ints([each.start for each in buffers]),
        first_reader=first_reader,
        readers=readers,
        labels=tuple(label for label, _ in names),
        causes=tuple(cause for _, cause in names),
        places=tuple((place,) for place in range(places)),
    )


@st.composite
def tables(draw: st.DrawFn, *, lanes_per_unit: int = 3) -> Table:
    """Tables without deadlock: tasks are queued in an order that respects their inputs."""
    kinds = draw(
        st.lists(st.sampled_from([(), (COMMUNICATION,), (COMMUNICATION, COPY)]), min_size=1, max_size=3)
    )
    units = [(place, kind) for place, others in enumerate(kinds) for kind in (COMPUTE, *others)]
    counts = [draw(st.integers(1, lanes_per_unit)) for _ in units]
    lanes = [unit for unit, count in enumerate(counts) for _ in range(count)]
    size = draw(st.integers(0, 40))
    entries = [draw(_entries(task, len(lanes))) for task in range(size)]
    held = [draw(_held(size, len(kinds))) for _ in range(draw(st.integers(0, 10)))]
    return build_table(entries, lanes=lanes, units=units, buffers=held)


@st.composite
def _entries(draw: st.DrawFn, task: int, lanes: int) -> Entry:
    cause = draw(st.sampled_from(CAUSES))
    return Entry(
        seconds=draw(SECONDS), lane=draw(st.integers(0, lanes - 1)), cause=cause,
        inputs=draw(st.lists(st.integers(0, task - 1), max_size=3)) if task else (),
        slows=draw(st.sampled_from([0.0, 0.1, 0.3, 0.7])),
        label=f"{cause} {draw(st.sampled_from(PHASES))}", microbatch=draw(st.integers(ONCE, 3)),
    )  # fmt: skip


@st.composite
def _held(draw: st.DrawFn, tasks: int, places: int) -> Held:
    return Held(
        size=draw(st.sampled_from([1.0, 2.0, 5.0])), start=draw(st.integers(FROM_THE_START, tasks - 1)),
        readers=draw(st.lists(st.integers(0, tasks - 1), max_size=2)) if tasks else (),
        category=draw(st.sampled_from(CATEGORIES)), place=draw(st.integers(0, places - 1)),
    )  # fmt: skip


def with_places(table: Table, order: Sequence[int]) -> Table:
    """The same table, its place `p` called `order[p]`."""
    renamed = np.array(order, np.int32)
    places = [(0,)] * len(order)
    for old, new in enumerate(order):
        places[new] = table.places[old]
    return replace(
        table,
        unit_place=renamed[table.unit_place],
        buffer_place=renamed[table.buffer_place],
        places=tuple(places),
    )


def longest_path_s(table: Table) -> float:
    """The longest chain of inputs, in seconds: tasks of a random table come after their inputs."""
    ends_s: list[float] = []
    for task, seconds in enumerate(table.seconds):
        inputs = table.inputs[table.first_input[task] : table.first_input[task + 1]]
        ends_s.append(seconds + max((ends_s[each] for each in inputs), default=0.0))
    return max(ends_s, default=0.0)


def _ints(values: ArrayLike) -> Ints:
    return np.array(values, np.int32)


def _lists(lists: Sequence[Sequence[int]]) -> tuple[Starts, Ints]:
    lengths: NDArray[np.int64] = np.array([len(each) for each in lists], np.int64)
    return np.append(0, np.cumsum(lengths)), _ints([each for one in lists for each in one])


# A machine of four processes on two cores, as `trainwright profile` writes it, with few numbers.
PROFILE = """
name = "here"
count = 4
at_once = 2
[device]
name = "here"
family = "here"
compute_units = 1
buffer = "1 MiB"
idle_power = "5 W"
peak_power = "15 W"
price_per_hour = "0 $/h"
network = "here"
source = "made up"
peak.fp32 = "70 GFLOP/s"
peak.bf16 = "70 GFLOP/s"
[[device.memory]]
name = "memory"
capacity = "8 GiB"
bandwidth = "10 GB/s"
[network]
name = "here"
host_power = "0 W"
host_bandwidth = "10 GB/s"
source = "made up"
[[network.level]]
name = "node"
bandwidth = "1 GB/s"
latency = "100 us"
[profile]
dtype = "fp32"
software = "PyTorch"
measured = "today"
operator = "50 us"
block = { batch = 2, seq = 256, hidden = 256, ffn = 1024, heads = 8, vocab = 4096 }
kernel = [
  { work = "product.forward", sizes = [512, 256, 256], time = "1 ms", region = true },
  { work = "product.data", sizes = [512, 256, 256], time = "1 ms", region = true },
  { work = "product.weight", sizes = [256, 256, 512], time = "1 ms", region = true },
  { work = "product.forward", sizes = [64, 64, 64], time = "10 us" },
  { work = "attention.forward", sizes = [16, 256, 256, 64], time = "5 ms", region = true },
  { work = "attention.backward", sizes = [16, 256, 256, 64], time = "9 ms", region = true },
  { work = "norm.forward", sizes = [1048576], time = "100 us", region = true },
  { work = "norm.backward", sizes = [1048576], time = "200 us", region = true },
  { work = "add.forward", sizes = [1572864], time = "150 us", region = true },
]
collective = [
  { kind = "all_reduce", members = 2, bytes = 4096, time = "100 us" },
  { kind = "all_reduce", members = 2, bytes = 1048576, time = "1 ms" },
  { kind = "all_gather", members = 2, bytes = 4096, time = "80 us" },
  { kind = "all_gather", members = 2, bytes = 1048576, time = "700 us" },
  { kind = "send", members = 2, bytes = 4096, time = "50 us" },
  { kind = "send", members = 2, bytes = 1048576, time = "600 us" },
]
"""
