"""What plans beyond knobs start from: degrees, which may differ from layer to layer, and a schedule."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from trainwright.model.flow import wire
from trainwright.model.graph import Graph, is_layer, segment_parameters
from trainwright.plan.stages import layer_names
from trainwright.plan.strategy import PRECISIONS, SCHEDULES, Strategy
from trainwright.plan.zoo.layers import layer_number
from trainwright.program.setting import Setting
from trainwright.search.blocks import MODES
from trainwright.search.space import Space, layer_count, legal_strategies

_PLAIN = Strategy()
_HUGE_VOCABULARY = 2.0  # times a mean layer's parameters
_MOST_NARROWER = 2  # times the devices that share a layer where most replicas are
Range = tuple[int, Strategy]  # the first layer, and how the layers from there on are split


@dataclass(frozen=True, slots=True, kw_only=True)
class Freedoms:
    """What a search may use beyond degrees: modes of layers, schedules, and the largest degrees."""

    modes: tuple[str, ...] = MODES
    uniform: bool = False  # all layers in one mode
    chunks: bool = True  # layers in serial parts
    per_layer: bool = True  # layers of different kinds with different degrees
    wide_vocabulary: bool = True  # a huge one over all devices of its stage, however layers are split
    interlaced: bool = True  # a huge vocabulary over the devices of all stages
    offload: bool = True  # the optimizer's state on the host
    recycles: bool = True  # pipelines of models that have several passes (3F1B)
    fixed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # degrees, and what they may be
    most: Mapping[str, int] = field(default_factory=lambda: {"tp": 8, "cp": 8, "micro_batch": 4})


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """Degrees, a microbatch, and a schedule: all but stages and modes.

    `strategy` is that of all layers; or, where `ranges` has several, the one with most replicas. With
    `wide_vocabulary` what is split on a vocabulary has a part on every device of its stage, or of all stages
    if the schedule is interlaced.
    """

    strategy: Strategy
    schedule: str = "1f1b"
    ranges: tuple[Range, ...] = ()
    wide_vocabulary: bool = False

    @property
    def is_interlaced(self) -> bool:
        """Whether vocabularies are split over all rows."""
        return self.schedule == "interlaced"

    @property
    def all_ranges(self) -> tuple[Range, ...]:
        """The ranges of layers, at least one."""
        return self.ranges or ((0, self.strategy),)

    def spans(self, layers: int) -> Iterator[tuple[int, int, Strategy]]:
        """Of each range, its first layer, the one after its last, and how they are split."""
        ends = [*(first for first, _ in self.all_ranges[1:]), layers]
        for (first, strategy), end in zip(self.all_ranges, ends, strict=True):
            yield first, end, strategy

    @property
    def row_devices(self) -> int:
        """The devices of a stage."""
        return self.strategy.devices // self.strategy.pp


def skeletons(setting: Setting, batch: int, freedoms: Freedoms) -> Iterator[Skeleton]:
    """All skeletons with equal degrees, with sequence parallelism wherever tensors are split."""
    graph = setting.graph
    for strategy in _strategies(setting, batch, freedoms):
        for schedule in _schedules(graph, strategy, freedoms):
            wide = schedule == "interlaced"
            yield Skeleton(strategy=strategy, schedule=schedule, wide_vocabulary=wide)
        if freedoms.wide_vocabulary and _is_worth_widening(graph, strategy):
            yield Skeleton(strategy=strategy, wide_vocabulary=True)


def _strategies(setting: Setting, batch: int, freedoms: Freedoms) -> Iterator[Strategy]:
    plain = SCHEDULES.index("1f1b")
    fixed = {
        "schedule": (plain,), "vpp": (1,), "recompute": (0,), "offload": (0,), "cp_kind": (0,),
        "precision": (PRECISIONS.index(setting.precision),), "zero": (0,), "shard": (0,),
        "ep": (1,), "etp": (1,),  # which `plan_parameters` does not write
    }  # fmt: skip
    space = Space(
        graph=setting.graph, devices=setting.cluster.count, seq=setting.seq, global_batch=batch, fixed=fixed,
        most=freedoms.most,
    )  # fmt: skip
    found = legal_strategies(space)
    for each in (found[index] for index in range(len(found))):
        allowed = all(getattr(each, knob) in values for knob, values in freedoms.fixed.items())
        if each.sp != (each.tp > 1) or not allowed:
            continue
        copies = each.dp * each.cp
        for zero in (1, 3) if copies > 1 and each.pp == 1 else (1,) if copies > 1 else (0,):
            yield replace(each, zero=zero)
            if freedoms.offload:
                yield replace(each, zero=zero, offload="optimizer")


def _schedules(graph: Graph, strategy: Strategy, freedoms: Freedoms) -> Iterator[str]:
    if strategy.pp == 1:
        yield "1f1b"
    elif graph.passes > 1:
        if freedoms.recycles:
            yield "3f1b"
    else:
        yield "1f1b"
        wide = strategy.tp * strategy.pp
        if freedoms.interlaced and has_huge_vocabulary(graph) and graph.sizes["vocab"] % wide == 0:
            yield "interlaced"


def _is_worth_widening(graph: Graph, strategy: Strategy) -> bool:
    """Whether copies of a huge vocabulary can be traded for parts of it."""
    plain = strategy.pp == 1 and strategy.zero < 3 and strategy.dp * strategy.cp > 1
    return plain and has_huge_vocabulary(graph) and graph.sizes["vocab"] % strategy.devices == 0


def has_huge_vocabulary(graph: Graph) -> bool:
    """Whether an embedding outweighs layers, so that it unbalances a pipeline."""
    if not graph.sizes.get("vocab"):
        return False
    layers = [each for each in graph.segments if is_layer(each.block)]
    mean = sum(segment_parameters(graph, each) for each in layers) / layer_count(graph)
    return graph.sizes["vocab"] * graph.sizes["hidden"] > _HUGE_VOCABULARY * mean


def kinds(graph: Graph) -> list[int]:
    """The layers at which another size begins; none if layers cannot be told apart by their number."""
    numbers = [layer_number(name) for name in layer_names(wire(graph))]
    if numbers != list(range(len(numbers))):
        return []
    layers = [each for each in graph.segments if is_layer(each.block)]
    starts = accumulate(each.count for each in layers)
    return [
        at
        for at, (a, b) in zip(starts, pairwise(layers), strict=False)
        if (a.seq, a.sizes) != (b.seq, b.sizes)
    ]


def with_ranges(listed: Sequence[Skeleton], at: Sequence[int]) -> Iterator[Skeleton]:
    """Of each two skeletons with the same pipeline and microbatches: layers split as in one, then the other.

    The widest may have up to so many times the replicas of the other, whose devices then share more samples.
    """
    for one in listed:
        for other in listed:
            ratio, rest = divmod(one.strategy.dp, other.strategy.dp)
            if rest or not _go_together(one, other) or not 1 <= ratio <= _MOST_NARROWER:
                continue
            narrow = replace(other.strategy, micro_batch=ratio * one.strategy.micro_batch)
            for first in at:
                yield replace(one, ranges=((0, one.strategy), (first, narrow)))
                if ratio > 1:
                    yield replace(one, ranges=((0, narrow), (first, one.strategy)))


def _go_together(one: Skeleton, other: Skeleton) -> bool:
    same = all(
        getattr(one.strategy, knob) == getattr(other.strategy, knob)
        for knob in ("pp", "micro_batch", "offload")
    )
    degrees = (one.strategy.tp, one.strategy.cp) != (other.strategy.tp, other.strategy.cp)
    plain = one.schedule == other.schedule and not (one.wide_vocabulary or other.wide_vocabulary)
    return same and degrees and plain and max(one.strategy.zero, other.strategy.zero) < 3


def plan_parameters(skeleton: Skeleton, counts: Sequence[int]) -> dict[str, object]:
    """What the zoo's `mixed` is told of a skeleton and its stages: only what differs from its defaults."""
    strategy, degrees = skeleton.strategy, _degrees(skeleton, sum(counts))
    names = (*(() if degrees else ("tp", "sp", "cp")), "pp", "zero", "micro_batch", "offload")
    found: dict[str, object] = {
        name: getattr(strategy, name) for name in names if getattr(strategy, name) != getattr(_PLAIN, name)
    }
    found |= {"degrees": degrees} if degrees else {}
    if strategy.pp > 1:
        found |= {"schedule": skeleton.schedule, "counts": ":".join(map(str, counts))}
    return found


def _degrees(skeleton: Skeleton, layers: int) -> str:
    """Degrees that differ, as `mixed` reads them; nothing if all are alike."""
    widens = skeleton.wide_vocabulary and not skeleton.is_interlaced
    if not skeleton.ranges and not widens:
        return ""
    words = []
    for first, end, strategy in skeleton.spans(layers):
        split = "".join(f"{name}{n}" for name in ("tp", "cp") if (n := getattr(strategy, name)) > 1)
        last = "" if end == layers else str(end - 1)
        words.append(f"{first}-{last}:{split or f'dp{strategy.dp}'}{'sp' if strategy.sp else ''}")
    return ",".join([*words, *([f"vocab:tp{skeleton.row_devices}"] if widens else [])])
