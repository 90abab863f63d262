"""What each layer of a model takes and keeps in a plan's split, for each way to trade time for memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.model.flow import Instance, places, wire
from trainwright.model.graph import Graph, Segment
from trainwright.plan.expand import recomputed_instances
from trainwright.plan.plan import Plan
from trainwright.plan.recompute_modules import selective_of
from trainwright.plan.stages import block_homes, block_pattern, layer_names, op_pattern
from trainwright.plan.strategy import Strategy
from trainwright.plan.zoo import build_zoo
from trainwright.plan.zoo.co_shard import region_ops
from trainwright.program.setting import Setting
from trainwright.program.state import state_bytes
from trainwright.program.table import CATEGORIES, COMPUTE, Table
from trainwright.simulate.memory import curve
from trainwright.simulate.whole import Simulated, simulate_plan

Floats = NDArray[np.float64]
# Ways to trade time for memory: nothing is done again, what is cheap, or all of a layer; and the latter two
# with its regions in serial parts, for layers that are too large at work.
MODES = ("none", "selective", "full")
CHUNKED = {"selective": "co-selective", "full": "co-shard"}
_BACKWARD = "BIWR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """By layer, an end counted with the layer beside it: for one microbatch on one device.

    `time_s` is all of its passes and its backward; `kept_bytes` is held from forward to backward, and
    `work_bytes` beside what it and earlier layers keep, while it works.
    """

    time_s: Floats
    kept_bytes: Floats
    work_bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Layers whose regions run in so many parts, one after another, where something is done again."""

    layers: frozenset[int]
    chunks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Costs by mode, what the layers' state takes, and their weights."""

    costs: Mapping[str, Costs]
    state_bytes: Mapping[str, Floats]  # weights, gradients, optimizer: whole on a device
    apart_s: float = 0.0  # of what is counted beside the layers: a vocabulary
    apart_bytes: Mapping[str, float] = field(default_factory=dict)  # its state, and its work


def measure_blocks(
    setting: Setting,
    strategy: Strategy,
    modes: Sequence[str],
    *,
    parts: "Parts | None" = None,
    apart: bool = False,
) -> Profile:
    """One microbatch of a strategy's split simulated in each mode, on the first row of its pipeline.

    Equal layers are measured once; `parts` says which of them run in serial parts where something is done
    again. With `apart`, vocabularies count beside the layers.
    """
    graph = replace(setting.graph, segments=_once_each(setting.graph), tied=_tied(setting, strategy, apart))
    small = replace(setting, graph=graph)
    wide = replace(strategy, pp=1, dp=1, zero=0, schedule="1f1b", vpp=1)
    fold = _Fold.of(setting.graph, graph, apart=apart)
    found = {mode: simulate_plan(small, _plan(small, wide, mode, fold.few(parts))) for mode in modes}
    first = found[modes[0]]
    state, beside = fold.state(first)
    return Profile(
        costs={mode: fold.costs(each) for mode, each in found.items()},
        state_bytes=state,
        apart_s=fold.apart_s(first),
        apart_bytes={**beside, "work": fold.apart_work(first)},
    )


def done_again(instances: Sequence[Instance], blocks: Sequence[str], mode: str, *, unfused: bool) -> str:
    """The operators of some blocks that a mode does again; none if it has none."""
    chosen = set(blocks)
    if mode == "full":
        return block_pattern(blocks)
    if mode == "co-shard":
        return op_pattern(region_ops(instances, chosen))
    if mode == "none":
        return ""
    modules = selective_of(mode.removeprefix("co-"), unfused=unfused)
    again = [each for each, _ in recomputed_instances(modules, instances) if each.block in chosen]
    return op_pattern(again) if again else ""


def _once_each(graph: Graph) -> tuple[Segment, ...]:
    return tuple(replace(segment, count=1) for segment in graph.segments)


def _tied(setting: Setting, strategy: Strategy, apart: bool) -> frozenset[str]:
    """Weights that are stored once: where the ends are on different rows, each has a copy."""
    return setting.graph.tied if apart or strategy.pp == 1 else frozenset()


def mode_of(mode: str, layer: int, parts: Parts | None) -> str:
    """What a mode is on a layer: in serial parts, if it is one of those."""
    return CHUNKED.get(mode, mode) if parts and layer in parts.layers else mode


def memory_parameters(setting: Setting, modes: Sequence[str], chunks: int) -> dict[str, object]:
    """What the zoo's `mixed` is told of the modes of all layers."""
    instances = wire(setting.graph)
    names = layer_names(instances)
    unfused = setting.stack.attention == "unfused"
    blocks = {mode: [name for name, own in zip(names, modes, strict=True) if own == mode] for mode in modes}
    again = [done_again(instances, each, mode, unfused=unfused) for mode, each in blocks.items()]
    chunked = [name for mode in CHUNKED.values() for name in blocks.get(mode, ())]
    found: dict[str, object] = {"again": ",".join(filter(None, again))} if any(again) else {}
    return found | ({"chunked": block_pattern(chunked), "chunks": chunks} if chunked else {})


def _plan(setting: Setting, strategy: Strategy, mode: str, parts: Parts | None) -> Plan:
    layers = len(layer_names(wire(setting.graph)))
    modes = [mode_of(mode, layer, parts) for layer in range(layers)]
    parameters = {
        "tp": strategy.tp, "sp": strategy.sp, "cp": strategy.cp, "cp_kind": strategy.cp_kind,
        "micro_batch": strategy.micro_batch, "precision": strategy.precision,
        **memory_parameters(setting, modes, parts.chunks if parts else 1),
    }  # fmt: skip
    devices = strategy.tp * strategy.cp
    return build_zoo("mixed", setting.graph, devices, strategy.micro_batch, **parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fold:
    """From the blocks of a model with one layer per segment to the layers of the whole model."""

    blocks: Sequence[str]  # of the small model, in order
    layer_of: Mapping[str, int]  # of its blocks: the layer of the small model that they count with
    layers: Sequence[int]  # of the whole model: which layer of the small one each is
    only: Mapping[str, Sequence[int]]  # of ends: the layers of the whole model that they are beside
    vocabulary: frozenset[str]  # operators that count apart

    @staticmethod
    def of(graph: Graph, small: Graph, *, apart: bool) -> "_Fold":
        instances, few = wire(graph), wire(small)
        names, few_names = layer_names(instances), layer_names(few)
        homes = block_homes(instances, [[name] for name in names])
        few_homes = block_homes(few, [[name] for name in few_names])
        segments = {place.segment: few_homes[place.name] for place in places(small)}
        ends = {each.name: [homes[each.name]] for each in places(graph) if each.layer is None}
        return _Fold(
            blocks=list(dict.fromkeys(each.block for each in few)),
            layer_of=few_homes,
            layers=[segments[each.segment] for each in places(graph) if each.layer is not None],
            only=ends,
            vocabulary=frozenset(each.name for each in few if apart and each.op.region == "vocab"),
        )

    def few(self, parts: Parts | None) -> Parts | None:
        """The layers in parts, as those of the small model."""
        return parts and Parts(
            layers=frozenset(self.layers[each] for each in parts.layers), chunks=parts.chunks
        )

    def costs(self, simulated: Simulated) -> Costs:
        table = simulated.timeline.table
        owner, phase = _owners(table)
        time_s, _ = self._apart(_busy_s(simulated, owner))
        kept, _ = self._apart(_kept_bytes(table, owner, phase))
        work = _work_bytes(simulated, owner, self.blocks) | dict.fromkeys(self._apart_blocks(), 0.0)
        return Costs(
            time_s=self._spread(time_s),
            kept_bytes=self._spread(kept),
            work_bytes=self._spread(work, largest=True),
        )

    def apart_s(self, simulated: Simulated) -> float:
        return self._apart(_busy_s(simulated, _owners(simulated.timeline.table)[0]))[1]

    def apart_work(self, simulated: Simulated) -> float:
        work = _work_bytes(simulated, _owners(simulated.timeline.table)[0], self.blocks)
        return max((work[block] for block in self._apart_blocks()), default=0.0)

    def _apart_blocks(self) -> set[str]:
        return {name.partition("/")[0] for name in self.vocabulary}

    def state(self, simulated: Simulated) -> tuple[dict[str, Floats], dict[str, float]]:
        """State by layer, and that of the vocabulary."""
        builder, found = simulated.program.builders[0], {}
        apart: dict[str, float] = {}
        for what in CATEGORIES[:3]:
            sizes: dict[str, float] = {}
            for bundle in simulated.program.routes[0].bundles:
                name = simulated.program.instances[bundle.instances[0]].name
                sizes[name] = sizes.get(name, 0.0) + state_bytes(builder, bundle)[what]
            by_block, apart[what] = self._apart(sizes)
            found[what] = self._spread(by_block)
        return found, apart

    def _apart(self, by_op: Mapping[str, float]) -> tuple[dict[str, float], float]:
        """Sums by block, and that of the vocabulary's operators."""
        sums = dict.fromkeys(self.blocks, 0.0)
        apart = 0.0
        for name, value in by_op.items():
            block = name.partition("/")[0]
            if name in self.vocabulary:
                apart += value
            elif block in sums:
                sums[block] += value
        return sums, apart

    def _spread(self, by_block: Mapping[str, float], *, largest: bool = False) -> Floats:
        """By layer of the whole model: its own, and its ends' on top (or the largest of them)."""
        own = [by_block[name] for name in self.blocks if name not in self.only]
        found = np.array([own[layer] for layer in self.layers])
        for name, (layer, *_) in self.only.items():
            value = by_block[name]
            found[layer] = max(found[layer], value) if largest else found[layer] + value
        return found


def _owners(table: Table) -> tuple[list[str], list[str]]:
    """Of each label, the operator (or block) that it is of, and its phase."""
    words = [label.removeprefix("d:").split() for label in table.labels]
    return [each[0].partition("#")[0].partition("^")[0] for each in words], [each[-1] for each in words]


def _busy_s(simulated: Simulated, owner: Sequence[str]) -> dict[str, float]:
    """Seconds of the compute unit of the first place, by operator."""
    timeline, table = simulated.timeline, simulated.timeline.table
    unit = table.lane_unit[table.lane]
    here = (table.unit_kind[unit] == COMPUTE) & (table.unit_place[unit] == 0)
    spent = np.where(here, timeline.end_s - timeline.start_s, 0.0)
    return _sums(owner, np.bincount(table.label, spent, minlength=len(owner)))


def _kept_bytes(table: Table, owner: Sequence[str], phase: Sequence[str]) -> dict[str, float]:
    """Bytes that a forward leaves for the backward on the first place, by operator."""
    backward = np.array([each in _BACKWARD for each in phase])[table.label]
    readers = np.append(0, np.cumsum(backward[table.readers]))
    is_kept = readers[table.first_reader[1:]] > readers[table.first_reader[:-1]]
    made = table.buffer_from
    forward = np.array([*(each == "F" for each in phase), False])[np.append(table.label, len(phase))[made]]
    chosen = np.flatnonzero(is_kept & forward & (made >= 0) & (table.buffer_place == 0))
    sizes = np.bincount(table.label[made[chosen]], table.buffer_bytes[chosen], minlength=len(owner))
    return _sums(owner, sizes)


def _work_bytes(simulated: Simulated, owner: Sequence[str], blocks: Sequence[str]) -> dict[str, float]:
    """The most that is held while a block is at work, beyond what it and the blocks before it keep."""
    timeline, table = simulated.timeline, simulated.timeline.table
    phase = _owners(table)[1]
    kept: dict[str, float] = {}
    for name, size in _kept_bytes(table, owner, phase).items():
        block = name.partition("/")[0]
        kept[block] = kept.get(block, 0.0) + size
    held = curve(timeline, 0)
    rows = [CATEGORIES.index("activations")]
    total = held.category_bytes[rows].sum(axis=0)
    home = np.array([blocks.index(b) if (b := name.partition("/")[0]) in blocks else -1 for name in owner])
    by_task = home[table.label]
    found, below = {}, 0.0
    for number, block in enumerate(blocks):
        below += kept.get(block, 0.0)
        tasks = np.flatnonzero(by_task == number)
        found[block] = _most_at(timeline.start_s[tasks], held.time_s, total) - below
    return {block: max(value, 0.0) for block, value in found.items()}


def _most_at(start_s: Floats, time_s: Floats, total: Floats) -> float:
    """The most of a curve at some times."""
    at = np.searchsorted(time_s, start_s, side="right") - 1
    return float(total[at].max(initial=0.0))


def _sums(owner: Sequence[str], values: NDArray[Any]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, value in zip(owner, values.tolist(), strict=True):
        if value:
            sums[name] = sums.get(name, 0.0) + value
    return sums
