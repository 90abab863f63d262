"""The spaces of plans that known systems search, as published."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.estimate.types import Job
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, RECOMPUTES, SCHEDULES
from trainwright.program.setting import Setting
from trainwright.search.find import Question
from trainwright.search.flexible import best_strategy, tried_recipes
from trainwright.search.recipes import Drafts, Freedoms
from trainwright.search.trial import Trial

Fixed = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Knobs that a system has, and whether it cuts stages by dynamic programming."""

    fixed: Fixed
    most: Mapping[str, int]
    cuts_stages: bool = False


def _indices(known: tuple[str, ...], *names: str) -> tuple[int, ...]:
    return tuple(known.index(name) for name in names)


SYSTEMS: Mapping[str, System] = {
    # dp, tp inside a node, pp in equal stages; sequence parallelism, selective and full recomputation.
    "megatron": System(
        fixed={
            "schedule": _indices(SCHEDULES, "1f1b", "interleaved"), "offload": _indices(OFFLOADS, "none"),
            "zero": (0, 1), "cp": (1,),
        },
        most={"tp": 8, "vpp": 16},
    ),
    # ZeRO-3 alone, or in groups of devices; activations recomputed, optimizer state on the host if need be.
    "deepspeed": System(
        fixed={
            "tp": (1,), "pp": (1,), "cp": (1,), "zero": (3,),
            "offload": _indices(OFFLOADS, "none", "optimizer"),
        },
        most={},
    ),
    # Operators split over samples, tokens or widths; stages cut by dynamic programming; full recomputation.
    "alpa": System(
        fixed={
            "schedule": _indices(SCHEDULES, "gpipe", "1f1b"), "offload": _indices(OFFLOADS, "none"),
            "zero": (0, 1, 2, 3), "vpp": (1,), "recompute": _indices(RECOMPUTES, "none", "full"),
        },
        most={},
        cuts_stages=True,
    ),
    # Any strategy that the knobs can say, whoever could run it.
    "knobs": System(fixed={}, most={"vpp": 16}),
}  # fmt: skip


def best_of(system: System, setting: Setting, batch: int, *, most: int = 3) -> Trial | None:
    """The best plan of a system's space in simulation; None if none fits."""
    question = _question(system, setting, batch)
    best = best_strategy(question, setting, most=most)
    if system.cuts_stages:
        freedoms = Freedoms(modes=("none", "full"), chunks=False, interlaced=False, recycles=False)
        drafts = Drafts(setting=setting, batch=batch, freedoms=freedoms)
        trials = [each for each in (best, *tried_recipes(drafts, drafts.best(4), 2, best)) if each]
        best = min(trials, key=lambda each: each.step_s, default=None)
    return best


def _question(system: System, setting: Setting, batch: int) -> Question:
    job = Job(
        graph=setting.graph, cluster=setting.cluster, stack=setting.stack, efficiency=setting.efficiency,
        seq=setting.seq, global_batch=batch,
    )  # fmt: skip
    fixed = {**system.fixed, "precision": _indices(PRECISIONS, setting.precision)}
    if setting.graph.passes > 1:
        fixed["pp"] = (1,)  # their schedules have no forward without a backward
    return Question(job=job, batches=(batch,), fixed=fixed, most=system.most, top=1)


__all__ = ["SYSTEMS", "System", "best_of"]
