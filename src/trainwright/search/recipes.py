"""Plans that no strategy can say, drafted from what layers take and keep."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from trainwright.model.graph import Graph, is_layer, segment_sizes
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import Strategy
from trainwright.plan.zoo import build_zoo
from trainwright.program.setting import Setting
from trainwright.search.blocks import (
    CHUNKED,
    MODES,
    Costs,
    Floats,
    Parts,
    Profile,
    memory_parameters,
    mode_of,
)
from trainwright.search.cuts import Cut, Rooms, best_cut
from trainwright.search.findings import Findings, joined
from trainwright.search.seconds import move_seconds, state_seconds
from trainwright.search.skeletons import Freedoms, Skeleton, kinds, plan_parameters, skeletons, with_ranges
from trainwright.search.space import layer_count

_LARGE_WORK = 0.35  # of a device's memory: what a layer at work takes before co-shard is worth a try
_SMALL_SAMPLE = 0.03  # of it: what a layer keeps of a sample that shares its microbatch with others
_MOST_SPLITS = 14  # that layers are drafted in, all of them alike
_MOST_MIXED = 48  # plans with different degrees that are drafted


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A skeleton with its stages and modes, and the step that is expected of it."""

    skeleton: Skeleton
    cut: Cut
    parts: Parts | None
    expected_s: float
    apart_bytes: float  # on every row beside the stages: a vocabulary, weights that are gathered

    @property
    def bytes_by_row(self) -> tuple[float, ...]:
        """What each row is expected to allocate."""
        return tuple((self.cut.used_bytes + self.apart_bytes).tolist())

    @property
    def modes(self) -> tuple[str, ...]:
        """The mode of each layer, serial parts told apart."""
        return tuple(mode_of(mode, layer, self.parts) for layer, mode in enumerate(self.cut.modes))


@dataclass(slots=True, kw_only=True)
class Drafts:
    """Recipes for one model on one cluster."""

    batch: int
    freedoms: Freedoms
    findings: Findings
    _whole: dict[Skeleton, tuple[Profile, Parts | None]] = field(default_factory=dict)

    @property
    def setting(self) -> Setting:
        """The model on its cluster."""
        return self.findings.setting

    def best(self) -> list[Recipe]:
        """Recipes that are expected to fit, fastest first, of the splits with the least compute.

        Then those with different degrees that would be faster if they needed to do nothing again.
        """
        listed = list(skeletons(self.setting, self.batch, self._within()))
        bounds = {each: self._bound_s(each) for each in listed}
        plain: list[Recipe] = []
        for bound_s in sorted(set(bounds.values()))[:_MOST_SPLITS]:
            if bound_s > min((each.expected_s for each in plain), default=float("inf")):
                break
            plain += self._drafted([each for each in listed if bounds[each] == bound_s])
        return sorted([*plain, *self._mixed(listed, plain)], key=lambda each: each.expected_s)

    def _within(self) -> Freedoms:
        """What is free, one sample to a microbatch unless samples are small."""
        most = self.freedoms.most
        return replace(self.freedoms, most=most if self._has_small_samples() else {**most, "micro_batch": 1})

    def _mixed(self, listed: Sequence[Skeleton], plain: Sequence[Recipe]) -> list[Recipe]:
        """The best recipe of each pair of splits, at the best place to change from one to the other."""
        if not self.freedoms.per_layer:
            return []
        limit_s = min((each.expected_s for each in plain), default=float("inf"))
        bounds = {each: self._bound_s(each) for each in with_ranges(listed, kinds(self.setting.graph))}
        promising = sorted((each for each in bounds if bounds[each] < limit_s), key=lambda each: bounds[each])
        best: dict[object, Recipe] = {}
        for each in self._drafted(promising[:_MOST_MIXED]):
            ranges = [(one.tp, one.cp, one.micro_batch) for _, one in each.skeleton.ranges]
            key = (each.skeleton.strategy.pp, each.skeleton.schedule, *ranges)
            if key not in best or each.expected_s < best[key].expected_s:
                best[key] = each
        return list(best.values())

    def _drafted(self, listed: Sequence[Skeleton]) -> list[Recipe]:
        return [recipe for each in listed if (recipe := self.draft(each)) is not None]

    def draft(self, skeleton: Skeleton, margin_bytes: Sequence[float] = ()) -> Recipe | None:
        """The best stages and modes of a skeleton; None if none fit, each stage having some margin less."""
        profile, parts = self._profile(skeleton)
        apart_bytes = _apart_bytes(skeleton, profile) + _gathered_bytes(skeleton, profile)
        rooms = self._rooms(skeleton, apart_bytes, margin_bytes)
        cut = self._cut(skeleton, profile, rooms)
        if cut is None:
            return None
        apart_s = profile.apart_s / (skeleton.strategy.pp if skeleton.is_interlaced else 1)
        beside_s = state_seconds(self.setting, skeleton, profile, cut, self._microbatches(skeleton))
        return Recipe(
            skeleton=skeleton, cut=cut, parts=parts, apart_bytes=apart_bytes,
            expected_s=self._pipeline_s(skeleton, cut) + self._microbatches(skeleton) * apart_s + beside_s,
        )  # fmt: skip

    def _cut(self, skeleton: Skeleton, profile: Profile, rooms: Rooms) -> Cut | None:
        """The best cut; the best of one mode for all layers, if they are to be alike."""
        state = _state_bytes(skeleton, profile)
        if not self.freedoms.uniform:
            return best_cut(profile.costs, state, rooms)
        found = [best_cut({mode: each}, state, rooms) for mode, each in profile.costs.items()]
        return min((each for each in found if each), key=lambda each: each.time_s.max(), default=None)

    def plan(self, recipe: Recipe) -> Plan:
        """The plan of a recipe."""
        setting, chunks = self.setting, recipe.parts.chunks if recipe.parts else 1
        parameters = plan_parameters(recipe.skeleton, recipe.cut.counts)
        memory = memory_parameters(setting, recipe.modes, chunks)
        return build_zoo(
            "mixed", setting.graph, setting.cluster.count, self.batch, **parameters, **memory,
            precision=setting.precision,
        )  # fmt: skip

    def _has_small_samples(self) -> bool:
        """Whether layers keep so little of a sample that several go into a microbatch."""
        profile = self.findings.profile(Strategy(precision=self.setting.precision), MODES[:1])
        capacity = self.setting.cluster.device.memory[0].usable_bytes
        return bool(profile.costs["none"].kept_bytes.max() < _SMALL_SAMPLE * capacity)

    def _bound_s(self, skeleton: Skeleton) -> float:
        """A step without bubbles, sums of gradients, or anything done again, at one sample a microbatch."""
        total = 0.0
        for first, end, each in skeleton.spans(layer_count(self.setting.graph)):
            alone = self.findings.profile(replace(each, micro_batch=1), MODES[:1], apart=False)
            total += float(alone.costs["none"].time_s[first:end].sum()) * each.tp * each.cp
        return total * self.batch / self.setting.cluster.count

    def _joined(self, skeleton: Skeleton, modes: Sequence[str], parts: Parts | None = None) -> Profile:
        """What the layers take, each in its range's split; moves from one range to the next included."""
        firsts, strategies = zip(*skeleton.all_ranges, strict=True)
        apart = skeleton.wide_vocabulary
        listed = [self.findings.profile(each, modes, parts=parts, apart=apart) for each in strategies]
        whole = joined(listed, firsts)
        if len(firsts) == 1:
            return whole
        moved_s = np.zeros(len(whole.state_bytes["weights"]))
        moved_s[list(firsts[1:])] = [move_seconds(self.setting, skeleton, first) for first in firsts[1:]]
        costs = {m: replace(each, time_s=each.time_s + moved_s) for m, each in whole.costs.items()}
        return replace(whole, costs=costs)

    def _profile(self, skeleton: Skeleton) -> tuple[Profile, Parts | None]:
        """What the layers take in each mode; large ones in serial parts where something is done again."""
        key = replace(skeleton, schedule="interlaced" if skeleton.is_interlaced else "1f1b")
        if key not in self._whole:
            profile = self._joined(skeleton, self.freedoms.modes)
            parts = self._parts(skeleton, profile) if self.freedoms.chunks else None
            if parts:
                again = [mode for mode in self.freedoms.modes if mode in CHUNKED]
                more: dict[str, Costs] = dict(self._joined(skeleton, again, parts).costs)
                profile = replace(profile, costs={**profile.costs, **more})
            self._whole[key] = (profile, parts)
        return self._whole[key]

    def _parts(self, skeleton: Skeleton, profile: Profile) -> Parts | None:
        """Serial parts for the layers whose work is large, enough of them to bring it down."""
        capacity = self.setting.cluster.device.memory[0].usable_bytes
        work = np.max([each.work_bytes for each in profile.costs.values()], axis=0)
        large = frozenset(np.flatnonzero(work > _LARGE_WORK * capacity).tolist())
        tp = max(each.tp for _, each in skeleton.all_ranges)
        legal = [parts for parts in (2, 4, 8, 16) if _divides(self.setting.graph, tp * parts)]
        if not large or not legal:
            return None
        enough = [parts for parts in legal if work.max() / parts <= _LARGE_WORK * capacity]
        return Parts(layers=large, chunks=(enough or legal[-1:])[0])

    def _rooms(self, skeleton: Skeleton, apart_bytes: float, margin_bytes: Sequence[float]) -> Rooms:
        setting, pp = self.setting, skeleton.strategy.pp
        margins = np.array(margin_bytes or [0.0] * pp)
        held = [_held(skeleton, stage, self._microbatches(skeleton)) for stage in range(pp)]
        return Rooms(limit_bytes=stack_room_bytes(setting) - apart_bytes - margins, held=held)

    def _microbatches(self, skeleton: Skeleton) -> int:
        return self.batch // (skeleton.strategy.dp * skeleton.strategy.micro_batch)

    def _pipeline_s(self, skeleton: Skeleton, cut: Cut) -> float:
        """The slowest stage for every microbatch, and the others once."""
        slowest = float(cut.time_s.max())
        once = 1.0 / self.setting.graph.passes
        return self._microbatches(skeleton) * slowest + once * (float(cut.time_s.sum()) - slowest)


def stack_room_bytes(setting: Setting) -> float:
    """What the stack leaves of a device's memory."""
    capacity = setting.cluster.device.memory[0].usable_bytes
    return (capacity - setting.stack.context_bytes) / (1.0 + setting.stack.reserve_share)


def _state_bytes(skeleton: Skeleton, profile: Profile) -> Floats:
    """By layer, with the optimizer's state shared by the copies of its range."""
    state = profile.state_bytes
    copies = np.ones(len(state["weights"]))
    for first, strategy in skeleton.all_ranges:
        copies[first:] = skeleton.row_devices / strategy.tp
    whole = (state["weights"] + state["gradients"]) / (copies if skeleton.strategy.zero == 3 else 1)
    here = skeleton.strategy.offload == "none"
    return np.asarray(whole + here * state["optimizer"] / copies)


def _gathered_bytes(skeleton: Skeleton, profile: Profile) -> float:
    """Of sharded weights: those of the block at work and of the next one, and gradients before their sum."""
    if skeleton.strategy.zero < 3:
        return 0.0
    return float(2.0 * profile.state_bytes["weights"].max() + profile.state_bytes["gradients"].max())


def _apart_bytes(skeleton: Skeleton, profile: Profile) -> float:
    """What a wide vocabulary takes on every device: split over all rows, or over the copies of one."""
    if not skeleton.wide_vocabulary:
        return 0.0
    beside, copies = profile.apart_bytes, skeleton.row_devices / skeleton.strategy.tp
    whole = beside["weights"] + beside["gradients"]
    optimizer = beside["optimizer"] * (skeleton.strategy.offload == "none")
    if skeleton.is_interlaced:
        return (whole + optimizer / copies + beside["work"]) / skeleton.strategy.pp
    return (whole + optimizer) / copies + beside["work"]


def _held(skeleton: Skeleton, stage: int, microbatches: int) -> int:
    """Microbatches whose activations a stage holds at once."""
    later = skeleton.strategy.pp - stage
    return min(ceil(1.5 * later) if skeleton.is_interlaced and later > 1 else later, microbatches)


def _divides(graph: Graph, parts: int) -> bool:
    """Whether heads and widths of all layers can be cut into so many parts."""
    sizes = [segment_sizes(graph, each) for each in graph.segments if is_layer(each.block)]
    return all(
        each[dim] % parts == 0 for each in sizes for dim in ("heads", "kv_heads", "ffn") if dim in each
    )
