"""Strategies worth simulating: in the closed form's order, without those whose layers would not fit."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster
from trainwright.plan.stages import balanced_counts, even_counts, stage_counts
from trainwright.plan.strategy import ACTIVATION_OFFLOADS, EVERY_LAYER, Strategy
from trainwright.program.setting import Setting
from trainwright.search.blocks import Costs, Floats
from trainwright.search.find import Question, find_plans
from trainwright.search.findings import Findings
from trainwright.search.recipes import stack_room_bytes
from trainwright.search.space import layer_count

Ints = NDArray[np.int64]
_ROOMS = (1.3, 1.1, 0.95, 0.8, 0.6, 0.45, 0.3)  # times the memory that there is, for the closed form
_TOLERANCE = 1.08  # what is expected to need so much more than there is may yet fit
_MOST_MEASURED = 14  # splits, for each round of the closed form
_TOP = 1024  # strategies that the closed form is asked for


@dataclass(slots=True, kw_only=True)
class Shortlist:
    """Strategies of a question whose layers are expected to fit, with the time that is expected of each.

    The closed form counts bytes as if layers were alike, so it is asked with more memory than there is, then
    with less and less; layers as they were measured decide which of its answers can fit.
    """

    question: Question
    findings: Findings
    _listed: set[object] = field(default_factory=set)  # strategies, and groups of which one is sure to fit
    _too_large: dict[tuple[object, ...], int] = field(default_factory=dict)  # by split: a microbatch

    def rooms(self) -> Iterator[tuple[float, list[tuple[float, Strategy]]]]:
        """With less and less memory: the closed form's least time, and strategies with the time that is
        expected of them, fastest first, that were not listed before.
        """
        for room in _ROOMS:
            job = replace(self.question.job, cluster=_with_memory(self.question.job.cluster, room))
            best = find_plans(replace(self.question, job=job, top=_TOP)).best
            if not len(best):
                return
            found = ((float(best.step_s[index]), best.strategies[index]) for index in range(len(best)))
            listed = sorted(self._expected(found), key=lambda pair: (pair[0], str(pair[1])))
            yield float(best.step_s[0]), listed

    def _expected(self, listed: Iterable[tuple[float, Strategy]]) -> Iterator[tuple[float, Strategy]]:
        """Those that may fit, the first of a group; a step is as much longer as the slowest row is than the
        mean one. Only so many splits are measured that were not before.
        """
        usable = stack_room_bytes(self.findings.setting)
        most = self.findings.measured + _MOST_MEASURED
        for step_s, strategy in listed:
            if not self._listed.isdisjoint((strategy, _group(strategy))) or self._is_too_large(strategy):
                continue
            if self.findings.measured >= most and not self.findings.has(strategy, _modes(strategy)):
                continue
            rows = _Rows.of(self.findings, strategy, self.question.batches[0])
            used = rows.used_bytes.max()
            if used <= _TOLERANCE * usable:
                self._listed.add(_group(strategy) if used * _TOLERANCE <= usable else strategy)
                yield step_s * float(rows.time_s.max() / rows.time_s.mean()), strategy
            elif rows.work_bytes > _TOLERANCE * usable:
                self._too_large[_split(strategy)] = strategy.micro_batch

    def _is_too_large(self, strategy: Strategy) -> bool:
        """Whether a microbatch is no smaller than one of which not even one layer's work fits."""
        return strategy.micro_batch >= self._too_large.get(_split(strategy), strategy.micro_batch + 1)


def _split(strategy: Strategy) -> tuple[object, ...]:
    return strategy.tp, strategy.sp, strategy.cp, strategy.cp_kind, strategy.recompute


def _group(each: Strategy) -> tuple[object, ...]:
    """What strategies have in common that differ only in how state is shared or layers chunked."""
    return (
        each.tp, each.sp, each.cp, each.pp, each.micro_batch, each.recompute, each.offload,
        each.offload_layers, each.zero // 3,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What each row of a strategy's pipeline is expected to take and hold."""

    time_s: Floats
    used_bytes: Floats
    work_bytes: float  # the most that one layer works with

    @staticmethod
    def of(findings: Findings, strategy: Strategy, batch: int) -> "_Rows":
        """From the costs of its layers, each in the strategy's mode."""
        counted, modes = strategy.recompute_layers != EVERY_LAYER, _modes(strategy)
        profile = findings.profile(strategy, modes)
        row, first = _rows_of_layers(findings.setting, strategy)
        again = first < strategy.recompute_layers if counted else np.ones(len(row), dtype=bool)
        costs = _mixed(profile.costs[modes[-1]], profile.costs[modes[0]], again)
        state = _state_bytes(strategy, profile.state_bytes)
        microbatches = max(batch // (strategy.dp * strategy.micro_batch), 1)
        kept = costs.kept_bytes
        if strategy.offload in ACTIVATION_OFFLOADS:
            every = strategy.offload_layers == EVERY_LAYER
            kept = kept * (0.0 if every else first >= strategy.offload_layers)
        mine = [row == each for each in range(strategy.pp)]
        held = [_held(strategy, each, microbatches) for each in range(strategy.pp)]
        peaks = [float((np.cumsum(kept[at]) + costs.work_bytes[at]).max()) for at in mine]
        used = [
            (n - 1.0) * float(kept[at].sum()) + peak for n, at, peak in zip(held, mine, peaks, strict=True)
        ]
        return _Rows(
            time_s=np.array([costs.time_s[at].sum() for at in mine]),
            used_bytes=np.array([state[at].sum() for at in mine]) + np.array(used),
            work_bytes=float(costs.work_bytes.max()),
        )


def _modes(strategy: Strategy) -> tuple[str, ...]:
    """The modes of a strategy's layers, what is done again last."""
    return ("none", "full") if strategy.recompute_layers != EVERY_LAYER else (strategy.recompute,)


def _rows_of_layers(setting: Setting, strategy: Strategy) -> tuple[Ints, Ints]:
    """The row of each layer, and its number there."""
    layers, pp = layer_count(setting.graph), strategy.pp
    balanced = setting.stack.balanced_stages
    rows = balanced_counts(layers, pp, setting.graph) if balanced else even_counts(layers, pp, strategy.vpp)
    route = [*range(pp)] * strategy.vpp
    row = np.repeat(route, stage_counts(rows, route))
    number = np.array([np.count_nonzero(row[:at] == row[at]) for at in range(len(row))])
    return row, number


def _mixed(again: Costs, plain: Costs, where: NDArray[np.bool_]) -> Costs:
    """Costs of layers of which some are in one mode, the others in another."""
    return Costs(
        time_s=np.where(where, again.time_s, plain.time_s),
        kept_bytes=np.where(where, again.kept_bytes, plain.kept_bytes),
        work_bytes=np.where(where, again.work_bytes, plain.work_bytes),
    )


def _state_bytes(strategy: Strategy, state: Mapping[str, Floats]) -> Floats:
    """By layer: what ZeRO shares out, and without what lives on the host."""
    ranks = strategy.shard or strategy.dp * strategy.cp
    share = {"optimizer": 1, "gradients": 2, "weights": 3}
    total = np.zeros(len(state["weights"]))
    for what, stage in share.items():
        if what == "optimizer" and strategy.offload in ("optimizer", "both"):
            continue
        total += state[what] / (ranks if strategy.zero >= stage else 1)
    return total


def _held(strategy: Strategy, row: int, microbatches: int) -> float:
    """Microbatches that a row holds at once, counted in all of its layers."""
    later = strategy.pp - row
    if strategy.schedule == "gpipe":
        return microbatches
    if strategy.schedule == "interleaved":
        ahead = 2 * (later - 1) + (strategy.vpp - 1) * strategy.pp + 1
        return min(ahead / strategy.vpp, microbatches)
    return min(later, microbatches)


def _with_memory(cluster: Cluster, room: float) -> Cluster:
    """The cluster with so many times its memory."""
    own, *others = cluster.device.memory
    memory = (replace(own, capacity_bytes=room * own.capacity_bytes), *others)
    return replace(cluster, device=replace(cluster.device, memory=memory))
