"""Plans that no strategy can say, drafted from what layers take and keep."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from trainwright.cost.network import level_links
from trainwright.model.graph import Graph, is_layer, segment_parameters, segment_sizes
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import PRECISIONS, SCHEDULES, Strategy
from trainwright.plan.zoo import build_zoo
from trainwright.program.network import Network
from trainwright.program.setting import Setting
from trainwright.search.blocks import (
    CHUNKED,
    MODES,
    Floats,
    Parts,
    Profile,
    measure_blocks,
    memory_parameters,
    mode_of,
)
from trainwright.search.cuts import Cut, Rooms, best_cut
from trainwright.search.space import Space, layer_count, legal_strategies

_LARGE_WORK = 0.35  # of a device's memory: what a layer at work takes before co-shard is worth a try
_HUGE_VOCABULARY = 2.0  # times a mean layer's parameters
_SMALL_SAMPLE = 0.03  # of it: what a layer keeps of a sample that shares its microbatch with others
_PLAIN = Strategy()
_DATA_EXPOSED = 0.5  # of the sum of gradients, as a guess for ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class Freedoms:
    """What a search may use beyond degrees: modes of layers, schedules, and the largest degrees."""

    modes: tuple[str, ...] = MODES
    chunks: bool = True  # layers in serial parts
    interlaced: bool = True
    recycles: bool = True  # pipelines of models that have several passes (3F1B)
    fixed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # degrees, and what they may be
    most: Mapping[str, int] = field(default_factory=lambda: {"tp": 8, "cp": 2, "micro_batch": 4})


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """Degrees, a microbatch, and a schedule: all but stages and modes."""

    strategy: Strategy
    schedule: str = "1f1b"

    @property
    def is_shared(self) -> bool:
        """Whether vocabularies are split over all rows."""
        return self.schedule == "interlaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A skeleton with its stages and modes, and the step that is expected of it."""

    skeleton: Skeleton
    cut: Cut
    parts: Parts | None
    expected_s: float
    shared_bytes: float  # of state and work on every row beside the stages

    @property
    def bytes_by_row(self) -> tuple[float, ...]:
        """What each row is expected to allocate."""
        return tuple((self.cut.used_bytes + self.shared_bytes).tolist())

    @property
    def modes(self) -> tuple[str, ...]:
        """The mode of each layer, serial parts told apart."""
        return tuple(mode_of(mode, layer, self.parts) for layer, mode in enumerate(self.cut.modes))


def skeletons(setting: Setting, batch: int, freedoms: Freedoms) -> Iterator[Skeleton]:
    """All skeletons of a model on a cluster, with sequence parallelism wherever tensors are split."""
    graph = setting.graph
    plain = SCHEDULES.index("1f1b")
    fixed = {
        "schedule": (plain,), "vpp": (1,), "recompute": (0,), "offload": (0,), "cp_kind": (0,),
        "precision": (PRECISIONS.index(setting.precision),), "zero": (0,), "shard": (0,),
    }  # fmt: skip
    space = Space(
        graph=graph, devices=setting.cluster.count, seq=setting.seq, global_batch=batch, fixed=fixed,
        most=freedoms.most,
    )  # fmt: skip
    found = legal_strategies(space)
    for each in (found[index] for index in range(len(found))):
        allowed = all(getattr(each, knob) in values for knob, values in freedoms.fixed.items())
        if each.sp != (each.tp > 1) or not allowed:
            continue
        strategy = replace(each, zero=1 if each.dp * each.cp > 1 else 0)
        for schedule in _schedules(graph, strategy, freedoms):
            yield Skeleton(strategy=strategy, schedule=schedule)


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


def has_huge_vocabulary(graph: Graph) -> bool:
    """Whether an embedding outweighs layers, so that it unbalances a pipeline."""
    if not graph.sizes.get("vocab"):
        return False
    layers = [each for each in graph.segments if is_layer(each.block)]
    mean = sum(segment_parameters(graph, each) for each in layers) / layer_count(graph)
    return graph.sizes["vocab"] * graph.sizes["hidden"] > _HUGE_VOCABULARY * mean


@dataclass(slots=True, kw_only=True)
class Drafts:
    """Recipes for one model on one cluster; what was measured is kept."""

    setting: Setting
    batch: int
    freedoms: Freedoms
    _profiles: dict[tuple[object, ...], tuple[Profile, Parts | None]] = field(default_factory=dict)
    _bounds: dict[tuple[object, ...], float] = field(default_factory=dict)

    def best(self, most_splits: int) -> list[Recipe]:
        """Recipes that are expected to fit, fastest first, of the splits with the least compute."""
        most = (
            dict(self.freedoms.most)
            if self._has_small_samples()
            else {**self.freedoms.most, "micro_batch": 1}
        )
        listed = list(skeletons(self.setting, self.batch, replace(self.freedoms, most=most)))
        splits = sorted({self._bound_s(each): None for each in listed})[:most_splits]
        recipes = (self.draft(each) for each in listed if self._bound_s(each) in splits)
        return sorted((each for each in recipes if each is not None), key=lambda each: each.expected_s)

    def draft(self, skeleton: Skeleton, margin_bytes: Sequence[float] = ()) -> Recipe | None:
        """The best stages and modes of a skeleton; None if none fit, each stage having some margin less."""
        profile, parts = self._profile(skeleton)
        rooms = self._rooms(skeleton, profile, margin_bytes)
        cut = best_cut(profile.costs, self._state_bytes(skeleton, profile), rooms)
        if cut is None:
            return None
        shared_s = self._microbatches(skeleton) * profile.shared_s
        expected_s = self._pipeline_s(skeleton, cut) + shared_s + self._data_s(skeleton, profile, cut)
        return Recipe(
            skeleton=skeleton, cut=cut, parts=parts, expected_s=expected_s,
            shared_bytes=_shared_bytes(skeleton, profile),
        )  # fmt: skip

    def plan(self, recipe: Recipe) -> Plan:
        """The plan of a recipe."""
        return build_zoo(
            "mixed",
            self.setting.graph,
            self.setting.cluster.count,
            self.batch,
            **parameters_of(self.setting, recipe),
        )

    def _has_small_samples(self) -> bool:
        """Whether layers keep so little of a sample that several go into a microbatch."""
        strategy = Strategy(precision=self.setting.precision)
        profile = measure_blocks(self.setting, strategy, MODES[:1])
        capacity = self.setting.cluster.device.memory[0].capacity_bytes
        return bool(profile.costs["none"].kept_bytes.max() < _SMALL_SAMPLE * capacity)

    def _bound_s(self, skeleton: Skeleton) -> float:
        """A step without bubbles, sums of gradients, or anything done again."""
        strategy = skeleton.strategy
        key = (strategy.tp, strategy.cp, strategy.micro_batch)
        if key not in self._bounds:
            alone = replace(strategy, pp=1)
            profile = measure_blocks(self.setting, alone, MODES[:1])
            per_sample = profile.costs["none"].time_s.sum() / strategy.micro_batch
            devices = self.setting.cluster.count / (strategy.tp * strategy.cp)
            self._bounds[key] = float(per_sample * self.batch / devices)
        return self._bounds[key]

    def _profile(self, skeleton: Skeleton) -> tuple[Profile, Parts | None]:
        strategy, shared = skeleton.strategy, skeleton.is_shared
        key = (
            strategy.tp,
            strategy.cp,
            strategy.micro_batch,
            shared,
            strategy.pp if shared else strategy.pp > 1,
        )
        if key not in self._profiles:
            profile = measure_blocks(self.setting, strategy, self.freedoms.modes, shared=shared)
            parts = self._parts(strategy, profile) if self.freedoms.chunks else None
            if parts:
                again = [mode for mode in self.freedoms.modes if mode in CHUNKED]
                more = measure_blocks(self.setting, strategy, again, parts=parts, shared=shared)
                profile = replace(profile, costs={**profile.costs, **more.costs})
            self._profiles[key] = (profile, parts)
        return self._profiles[key]

    def _parts(self, strategy: Strategy, profile: Profile) -> Parts | None:
        """Serial parts for the layers whose work is large, enough of them to bring it down."""
        capacity = self.setting.cluster.device.memory[0].capacity_bytes
        work = np.max([each.work_bytes for each in profile.costs.values()], axis=0)
        large = frozenset(np.flatnonzero(work > _LARGE_WORK * capacity).tolist())
        legal = [parts for parts in (2, 4, 8, 16) if _divides(self.setting.graph, strategy.tp * parts)]
        if not large or not legal:
            return None
        enough = [parts for parts in legal if work.max() / parts <= _LARGE_WORK * capacity]
        return Parts(layers=large, chunks=(enough or legal[-1:])[0])

    def _rooms(self, skeleton: Skeleton, profile: Profile, margin_bytes: Sequence[float]) -> Rooms:
        strategy, setting = skeleton.strategy, self.setting
        capacity = setting.cluster.device.memory[0].capacity_bytes
        usable = (capacity - setting.stack.context_bytes) / (1.0 + setting.stack.fragmentation)
        usable -= _shared_bytes(skeleton, profile)
        margins = np.array(margin_bytes or [0.0] * strategy.pp)
        held = [_held(skeleton, stage, self._microbatches(skeleton)) for stage in range(strategy.pp)]
        return Rooms(limit_bytes=usable - margins, held=held)

    def _state_bytes(self, skeleton: Skeleton, profile: Profile) -> Floats:
        copies = skeleton.strategy.dp * skeleton.strategy.cp
        state = profile.state_bytes
        return np.asarray(state["weights"] + state["gradients"] + state["optimizer"] / copies)

    def _microbatches(self, skeleton: Skeleton) -> int:
        return self.batch // (skeleton.strategy.dp * skeleton.strategy.micro_batch)

    def _pipeline_s(self, skeleton: Skeleton, cut: Cut) -> float:
        """The slowest stage for every microbatch, and the others once."""
        slowest = float(cut.time_s.max())
        once = 1.0 / self.setting.graph.passes if self.setting.graph.passes > 1 else 1.0
        return self._microbatches(skeleton) * slowest + once * (float(cut.time_s.sum()) - slowest)

    def _data_s(self, skeleton: Skeleton, profile: Profile, cut: Cut) -> float:
        """A guess at what the sum of gradients adds."""
        strategy, setting = skeleton.strategy, self.setting
        inner = strategy.tp
        group = tuple(range(0, strategy.dp * strategy.cp * inner, inner))
        if len(group) == 1:
            return 0.0
        ends = np.cumsum(cut.counts)
        weights = np.add.reduceat(profile.state_bytes["weights"], [0, *ends[:-1]]).max()
        network = Network(links=level_links(setting.cluster, setting.efficiency, setting.stack))
        return _DATA_EXPOSED * network.seconds("all_reduce", group, float(weights))


def _shared_bytes(skeleton: Skeleton, profile: Profile) -> float:
    shared, copies = profile.shared_bytes, skeleton.strategy.dp * skeleton.strategy.cp
    return shared["weights"] + shared["gradients"] + shared["optimizer"] / copies + shared["work"]


def _held(skeleton: Skeleton, stage: int, microbatches: int) -> int:
    """Microbatches whose activations a stage holds at once."""
    later = skeleton.strategy.pp - stage
    return min(ceil(1.5 * later) if skeleton.is_shared and later > 1 else later, microbatches)


def _divides(graph: Graph, parts: int) -> bool:
    """Whether heads and widths of all layers can be cut into so many parts."""
    sizes = [segment_sizes(graph, each) for each in graph.segments if is_layer(each.block)]
    return all(
        each[dim] % parts == 0 for each in sizes for dim in ("heads", "kv_heads", "ffn") if dim in each
    )


def parameters_of(setting: Setting, recipe: Recipe) -> dict[str, object]:
    """What the zoo's `mixed` is told: only what differs from its defaults."""
    strategy, cut = recipe.skeleton.strategy, recipe.cut
    found: dict[str, object] = {
        name: getattr(strategy, name)
        for name in ("tp", "sp", "cp", "pp", "zero", "micro_batch")
        if getattr(strategy, name) != getattr(_PLAIN, name)
    }
    if strategy.pp > 1:
        found |= {"schedule": recipe.skeleton.schedule, "counts": ":".join(map(str, cut.counts))}
    chunks = recipe.parts.chunks if recipe.parts else 1
    return found | memory_parameters(setting, recipe.modes, chunks) | {"precision": strategy.precision}
