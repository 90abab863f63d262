"""The spaces of plans that systems of 2022 searched, as published, and that of all knobs of today."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwright.estimate.types import Job
from trainwright.plan.strategy import EVERY_LAYER, OFFLOADS, PRECISIONS, RECOMPUTES, SCHEDULES
from trainwright.search.find import Question
from trainwright.search.findings import Findings
from trainwright.search.flexible import best_strategy, tried_recipes
from trainwright.search.recipes import Drafts
from trainwright.search.skeletons import Freedoms
from trainwright.search.trial import Trial

Fixed = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Knobs that a system has, and what it may do beyond knobs, if it cuts stages by dynamic programming."""

    fixed: Fixed
    most: Mapping[str, int]
    freedoms: Freedoms | None = None
    dim: str = ""  # of the models that it is for; for all, if there is none


def _indices(known: Sequence[str], *names: str) -> tuple[int, ...]:
    return tuple(known.index(name) for name in names)


# Of a system of 2022: all layers recomputed or none, no context parallelism, no sharding in groups.
_THEN: Fixed = {
    "recompute": _indices(RECOMPUTES, "none", "full"), "recompute_layers": (EVERY_LAYER,), "shard": (0,),
    "cp": (1,), "sp": (0,), "offload": _indices(OFFLOADS, "none"),
}  # fmt: skip
SYSTEMS: Mapping[str, System] = {
    # dp, tp inside a node, pp in equal stages, with the optimizer's state shared out or not.
    "megatron-2022": System(
        fixed={**_THEN, "schedule": _indices(SCHEDULES, "1f1b", "interleaved"), "zero": (0, 1)},
        most={"tp": 8, "vpp": 16},
    ),
    # ZeRO with Megatron's tensor parallelism, state on the host if need be. (With a pipeline it has no more
    # than ZeRO-1, which is in the space above.)
    "deepspeed-2022": System(
        fixed={**_THEN, "pp": (1,), "zero": (0, 1, 2, 3), "offload": _indices(OFFLOADS, "none", "optimizer")},
        most={"tp": 8},
    ),
    # Operators split over samples and widths (norms also over tokens), each kind of layers in its own way;
    # stages cut by dynamic programming.
    "alpa-2022": System(
        fixed={
            **_THEN, "sp": (0, 1), "schedule": _indices(SCHEDULES, "gpipe", "1f1b"), "zero": (0, 1, 2, 3),
            "vpp": (1,),
        },
        most={},
        freedoms=Freedoms(
            modes=("none", "full"), uniform=True, chunks=False, interlaced=False, recycles=False,
            offload=False, most={"tp": 16, "cp": 1, "micro_batch": 4},
        ),
    ),
    # Dynamic axial parallelism: alignments and pairs split over residues, beside data parallelism.
    "dap-2022": System(
        fixed={
            **{knob: values for knob, values in _THEN.items() if knob != "cp"}, "tp": (1,), "pp": (1,),
            "zero": (0, 1),
        },
        most={}, dim="rows",
    ),
    # Any strategy that the knobs can say, whoever could run it.
    "knobs": System(fixed={}, most={"vpp": 16}),
}  # fmt: skip


def best_of(system: System, findings: Findings, batch: int, *, most: int = 3) -> Trial | None:
    """The best plan of a system's space in simulation; None if none fits, or the model is not for it."""
    if system.dim and system.dim not in findings.setting.graph.sizes:
        return None
    best = best_strategy(question_of(system, findings, batch), findings)
    if system.freedoms is None:
        return best
    drafts = Drafts(batch=batch, freedoms=system.freedoms, findings=findings)
    trials = [each for each in (best, *tried_recipes(drafts, drafts.best(), most, best)) if each]
    return min(trials, key=lambda each: each.step_s, default=None)


def question_of(system: System, findings: Findings, batch: int) -> Question:
    """The question whose answers are the strategies of a system."""
    setting = findings.setting
    job = Job(
        graph=setting.graph, cluster=setting.cluster, stack=setting.stack, efficiency=setting.efficiency,
        seq=setting.seq, global_batch=batch,
    )  # fmt: skip
    fixed = {**system.fixed, "precision": _indices(PRECISIONS, setting.precision)}
    if setting.graph.passes > 1:
        fixed["pp"] = (1,)  # their schedules have no forward without a backward
    return Question(job=job, batches=(batch,), fixed=fixed, most=system.most, top=1)


__all__ = ["SYSTEMS", "System", "best_of", "question_of"]
