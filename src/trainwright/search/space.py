"""The space of legal strategies of a model on a cluster, as arrays."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import chain, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput, UnknownName
from trainwright.model.dlrm import check_layers
from trainwright.model.graph import Graph, is_layer
from trainwright.plan.strategy import (
    ACTIVATION_OFFLOADS,
    ALIASES,
    CHOICES,
    CP_KINDS,
    EVERY_LAYER,
    OFFLOADS,
    PRECISIONS,
    RECOMPUTES,
    SCHEDULES,
    Strategies,
    Strategy,
    join_strategies,
)
from trainwright.search.recompute_choices import recompute_choices
from trainwright.units import WHOLE

Ints = NDArray[np.int64]
Grid = Mapping[tuple[str, ...], Sequence[tuple[int, ...]]]  # knobs that go together, and their values
KNOBS = tuple(field.name for field in fields(Strategy))
_FLAGS = {"1": 1, "on": 1, "true": 1, "0": 0, "off": 0, "false": 0}
_FEW = 4  # microbatches of a share, so few that no other size of them is near
_LARGE = 64  # sequences of a micro batch beyond which its size hardly matters
_FROM_ZERO = (
    "zero",
    "shard",
    "recompute_layers",
    "offload_layers",
)  # the numbers that may be 0; the others start at 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is searched: a model on so many devices, with some knobs fixed or bounded.

    `fixed` maps a knob to the values it may take; `most` to the largest one. `recomputes` are the
    recomputations, by number, that are considered where `fixed` states none; without them, those of unknown
    software. `counts_offloaded_layers` is whether the software can offload activations of a number of layers,
    so that the fewest are looked for. With `span`, the least and the most sequences per step, a strategy is
    legal if it is so at a batch between them, and micro batches are some of those that are: `even_sizes`.
    """

    graph: Graph
    devices: int
    seq: int
    global_batch: int
    fixed: Mapping[str, tuple[int, ...]]
    most: Mapping[str, int]
    check_divisors: bool = True
    recomputes: tuple[int, ...] = ()
    counts_offloaded_layers: bool = False
    span: tuple[int, int] | None = None


def knob_name(text: str) -> str:
    """The knob that a text names: `mb` is `micro_batch`."""
    name = ALIASES.get(text, text)
    if name not in KNOBS:
        raise UnknownName("knob", text, [*KNOBS, *ALIASES])
    return name


def knob_value(knob: str, text: str) -> int:
    """The number that a knob's text stands for: `full` of `recompute` is its index."""
    name = knob_name(knob)
    if name == "recompute":
        return RECOMPUTES.index(text)
    if name in CHOICES:
        if text not in CHOICES[name]:
            raise UnknownName(f"value of {knob}", text, CHOICES[name])
        return CHOICES[name].index(text)
    if name in ("sp", "overlap"):
        if text.lower() not in _FLAGS:
            raise BadInput(f"value of {knob}", text, "is neither on nor off", f"write it like {knob}=on")
        return _FLAGS[text.lower()]
    if not WHOLE.fullmatch(text):
        raise BadInput(f"value of {knob}", text, "is not a whole number", f"write it like {knob}=4")
    if int(text) < 1 and name not in _FROM_ZERO:
        raise BadInput(f"value of {knob}", text, "is less than 1", f"write it like {knob}=4")
    if name == "zero" and int(text) > 3:
        raise BadInput(f"value of {knob}", text, "stages are 0, 1, 2 and 3", "use one of them")
    return int(text)


def legal_strategies(space: Space) -> Strategies:
    """Every legal strategy of the space, in a stable order."""
    return join_strategies(strategy_blocks(space))


def strategy_blocks(space: Space, size: int = 1 << 17) -> Iterator[Strategies]:
    """Every legal strategy, in blocks of about `size`, so that a space of any size takes bounded memory."""
    check_layers(space.graph)
    pending: list[Grid] = []
    count = 0
    for grid in grids(space):
        pending.append(grid)
        count += grid_size(grid)
        if count >= size:
            yield strategies_of(pending)
            pending, count = [], 0
    if pending:
        yield strategies_of(pending)


def count_strategies(space: Space) -> int:
    """The number of legal strategies, without building them."""
    return sum(map(grid_size, grids(space)))


def grids(space: Space) -> Iterator[Grid]:
    """One grid per legal set of degrees; an error if there is none."""
    empty = True
    for degrees in _degrees(space):
        grid = _grid(space, *degrees)
        if all(grid.values()):
            empty = False
            yield grid
    if empty:
        raise BadInput(
            "search", f"{space.graph.name} on {space.devices} devices at batch {space.global_batch}",
            "no strategy satisfies the constraints", "relax --fix and --max, or change the batch",
        )  # fmt: skip


def layer_count(graph: Graph) -> int:
    """Layers that pipeline stages divide: all blocks but the ends."""
    return sum(s.count for s in graph.segments if is_layer(s.block))


def recomputations(space: Space) -> list[tuple[int, int]]:
    """Allowed (recompute, recompute_layers): a number of layers goes with full recomputation only."""
    return [
        (choice, count)
        for choice in space.fixed.get("recompute", space.recomputes or recompute_choices(space.graph))
        if choice <= space.most.get("recompute", choice)
        for count in space.fixed.get("recompute_layers", (EVERY_LAYER,))
        if count == EVERY_LAYER or RECOMPUTES[choice] == "full"
    ]


def layers_per_stage(graph: Graph, pp: int) -> int:
    """Layers of the fullest stage."""
    return -(-layer_count(graph) // pp)


def offloads(space: Space) -> list[tuple[int, int]]:
    """Allowed (offload, offload_layers): a number of layers goes with activations on the host only."""
    return [
        (choice, count)
        for choice in _allowed(space, "offload", range(len(OFFLOADS)))
        for count in space.fixed.get("offload_layers", (EVERY_LAYER,))
        if count == EVERY_LAYER or OFFLOADS[choice] in ACTIVATION_OFFLOADS
    ]


def _allowed(space: Space, knob: str, values: Sequence[int]) -> list[int]:
    kept = [v for v in values if v <= space.most.get(knob, v)]
    if knob in space.fixed:
        wanted = space.fixed[knob]
        return [v for v in wanted if v in kept] if space.check_divisors else list(wanted)
    return kept


@cache
def _divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def _degrees(space: Space) -> Iterator[tuple[int, int, int, int]]:
    """Legal (tp, cp, pp, dp): heads and ffn divide by tp, the sequence by 2·cp, the batch by dp."""
    sizes, layers = space.graph.sizes, layer_count(space.graph)
    divisors = _divisors(space.devices)
    tps = [t for t in divisors if _splits_tensor(sizes, t)]
    cps = [c for c in divisors if c == 1 or space.seq % (2 * c) == 0]
    pps = [p for p in divisors if p <= layers]
    choices = (_allowed(space, knob, each) for knob, each in (("tp", tps), ("cp", cps), ("pp", pps)))
    for tp, cp, pp in product(*choices):
        if space.devices % (tp * cp * pp):
            continue
        for dp in _allowed(space, "dp", [space.devices // (tp * cp * pp)]):
            divides = _has_multiple(space, dp) or not space.check_divisors
            if dp * tp * cp * pp == space.devices and divides:
                yield tp, cp, pp, dp


def _splits_tensor(sizes: Mapping[str, int], tp: int) -> bool:
    heads = sizes["heads"] % tp == 0 and (sizes["kv_heads"] % tp == 0 or tp % sizes["kv_heads"] == 0)
    return heads and all(sizes[dim] % tp == 0 for dim in ("ffn", "shared_ffn") if dim in sizes)


def _grid(space: Space, tp: int, cp: int, pp: int, dp: int) -> Grid:
    """The axes whose product is every strategy of one set of degrees; knobs that go together share one."""
    return {
        ("dp", "tp", "cp", "pp"): [(dp, tp, cp, pp)],
        ("schedule", "vpp", "micro_batch"): _pipelines(space, pp, dp),
        ("ep", "etp"): _expert_splits(space, tp, cp, dp),
        ("zero", "shard"): _sharding(space, cp, pp, dp),
        ("sp",): _single(space, "sp", [0, 1] if tp > 1 and space.seq % (tp * cp) == 0 else [0]),
        ("cp_kind",): _single(space, "cp_kind", range(len(CP_KINDS)) if cp > 1 else [0]),
        ("recompute", "recompute_layers"): [
            each for each in recomputations(space) if each[1] <= layers_per_stage(space.graph, pp)
        ],
        ("offload", "offload_layers"): [
            each for each in offloads(space) if each[1] <= layers_per_stage(space.graph, pp)
        ],
        ("precision",): _single(space, "precision", [PRECISIONS.index("bf16")], open_ended=True),
        ("overlap",): _single(space, "overlap", [1], open_ended=True),
        ("order",): _single(space, "order", [0], open_ended=True),
    }


def _single(space: Space, knob: str, values: Sequence[int], *, open_ended: bool = False) -> list[tuple[int]]:
    """The allowed values of a knob; an open-ended one has a default that any stated values replace."""
    if open_ended and knob in space.fixed:
        return [(value,) for value in space.fixed[knob]]
    return [(value,) for value in _allowed(space, knob, values)]


def grid_size(grid: Grid) -> int:
    """How many strategies a grid has."""
    return prod(len(values) for values in grid.values())


def strategies_of(listed: Sequence[Grid]) -> Strategies:
    """The products of the axes of each grid, the last axis fastest, one grid after another."""
    sizes = [grid_size(grid) for grid in listed]
    inner = sizes.copy()
    columns: dict[str, Ints] = {}
    for names in listed[0]:
        axes = [grid[names] for grid in listed]
        counts = [len(axis) for axis in axes]
        inner = [size // count for size, count in zip(inner, counts, strict=True)]
        # Of each grid, its values; each of them `inner` times, and all of that as often as the grid needs.
        for name, values in zip(names, zip(*chain.from_iterable(axes), strict=True), strict=True):
            columns[name] = _repeated(np.array(values, dtype=np.int64), counts, inner, sizes)
    return Strategies(**columns)


def _repeated(values: Ints, counts: list[int], inner: list[int], sizes: list[int]) -> Ints:
    """The column of a knob, with its values repeated by the size of each grid."""
    if (values == values[0]).all():
        return np.broadcast_to(values[:1], sum(sizes))
    if max(counts) == 1:
        return np.repeat(values, sizes)
    column = np.empty(sum(sizes), dtype=np.int64)
    start = at = 0
    for count, each, size in zip(counts, inner, sizes, strict=True):
        part = column[start : start + size].reshape(-1, count, each)
        part[...] = values[at : at + count, None]
        start, at = start + size, at + count
    return column


def _pipelines(space: Space, pp: int, dp: int) -> list[tuple[int, int, int]]:
    """(schedule, vpp, micro batch): interleaving needs microbatches in whole rounds of the stages."""
    sizes = _allowed(space, "micro_batch", _micro_batches(space, dp))
    return [
        (schedule, vpp, size)
        for (schedule, vpp), size in product(_schedules(space, pp), sizes)
        if vpp == 1 or _has_multiple(space, dp * size * pp) or not space.check_divisors
    ]


def _micro_batches(space: Space, dp: int) -> Sequence[int]:
    """The micro batches that a replica's share of the batch divides by."""
    if space.span is None:
        return _divisors(max(space.global_batch // dp, 1))
    low, high = space.span
    shares = (-(-low // dp), (low + high) // 2 // dp, high // dp)
    few = {share // count for share in shares for count in range(1, _FEW + 1)}
    sizes = {*even_sizes(high // dp), *(size for size in few if size <= _LARGE)} - {0}
    stated = space.fixed.get("micro_batch", sorted(sizes))
    return [size for size in stated if _has_multiple(space, dp * size)]


def _has_multiple(space: Space, unit: int) -> bool:
    """Whether the batch, or one of those between two, is a multiple of so many sequences."""
    low, high = space.span or (space.global_batch, space.global_batch)
    return high // unit * unit >= low


@cache
def even_sizes(most: int) -> tuple[int, ...]:
    """Numbers up to a largest one, by about a quarter apart: 1 to 6, 8, 10, 12, 16, 20, 24, 32 ..."""
    powers = [1 << power for power in range(most.bit_length())]
    return tuple(sorted({each for p in powers for each in (p, p * 5 // 4, p * 3 // 2) if each <= most}))


def batch_unit(strategies: Strategies) -> Ints:
    """The sequences of which the global batch of each strategy is a multiple."""
    rounds = np.where(strategies.vpp > 1, strategies.pp, 1)
    return np.asarray(strategies.dp * strategies.micro_batch * rounds, dtype=np.int64)


def _schedules(space: Space, pp: int) -> list[tuple[int, int]]:
    """(schedule, vpp): one chunk per stage, or interleaved where layers (or layers and ends) divide."""
    one_by_one = SCHEDULES.index("1f1b")
    if pp == 1:
        whole = 1 in space.fixed.get("vpp", (1,)) and one_by_one in space.fixed.get("schedule", (one_by_one,))
        return [(one_by_one, 1)] if whole or not space.check_divisors else []
    layers = layer_count(space.graph)
    most = (layers + 2) // pp
    chunks = [v for v in range(2, most + 1) if layers % (pp * v) == 0 or (layers + 2) % (pp * v) == 0]
    vpps = _allowed(space, "vpp", [1, *chunks])
    interleaved = SCHEDULES.index("interleaved")
    plain = [SCHEDULES.index(name) for name in ("gpipe", "1f1b", "zb")]
    every = [(s, 1) for s in plain if 1 in vpps] + [(interleaved, v) for v in vpps if v > 1]
    allowed = _allowed(space, "schedule", list(range(len(SCHEDULES))))
    return [(s, v) for s, v in every if s in allowed]


def _expert_splits(space: Space, tp: int, cp: int, dp: int) -> list[tuple[int, int]]:
    """(ep, etp): experts over the ranks of a stage, each expert over etp of them."""
    experts = space.graph.sizes.get("experts", 0)
    if not experts:
        dense = all(1 in space.fixed.get(knob, (1,)) for knob in ("ep", "etp"))
        return [(1, 1)] if dense or not space.check_divisors else []
    width = space.graph.sizes["expert_ffn"]
    splits = []
    for etp in _allowed(space, "etp", [e for e in _divisors(tp) if width % e == 0]):
        ranks = tp * cp * dp // etp
        degrees = [e for e in _divisors(ranks) if experts % e == 0]
        splits += [(ep, etp) for ep in _allowed(space, "ep", degrees)]
    return splits


def _sharding(space: Space, cp: int, pp: int, dp: int) -> list[tuple[int, int]]:
    """(zero, shard): stages 0 to 3, the third also within smaller groups.

    Groups that are stated leave the third stage alone.
    """
    ranks = dp * cp
    zeros = _allowed(space, "zero", [0, 1, 2, 3])
    if ranks == 1:
        zeros = zeros[:1]  # nothing to share with: all stages are alike
    groups = [0, *(g for g in _divisors(ranks) if 1 < g < ranks)]
    shards = _allowed(space, "shard", groups)
    return [(z, s) for z in zeros for s in shards if z == 3 or s == 0]
