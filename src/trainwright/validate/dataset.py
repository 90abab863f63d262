"""A table of runs ready to be predicted: cases grouped so that one estimate serves many rows."""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster, Device
from trainwright.cost.chosen_optimizer import with_optimizer
from trainwright.cost.constants import Efficiency, Stack
from trainwright.errors import BadInput, TrainwrightError, UnknownName
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Estimates, Job
from trainwright.plan.legality import illegal, plan_facts
from trainwright.plan.recompute_modules import selective_of
from trainwright.plan.strategy import (
    EVERY_LAYER,
    OFFLOADS,
    PRECISIONS,
    RECOMPUTES,
    SCHEDULES,
    Strategies,
    join_strategies,
)
from trainwright.search.recompute_choices import recompute_choices
from trainwright.search.space import Space, layers_per_stage, legal_strategies
from trainwright.stack.capability import AXES, Capability
from trainwright.stack.load import stack_name as catalog_stack
from trainwright.validate.row_experts import with_experts
from trainwright.validate.rows import Case, Row, parse_case

Array = NDArray[np.float64]
# Without fused or compiled kernels a gated feed-forward keeps silu(gate) too: 164 instead of 136 KiB per
# token and layer of Llama 3 8B.
EAGER_ACTIVATIONS = 1.2
# ... and element-wise work is a kernel per operation, each of which reads and writes what fused ones pass on.
EAGER_TRAFFIC = 2.0
PUBLISHED = (
    Path(__file__).parents[1] / "catalog" / "published.csv"
)  # a few hundred published runs, each cited
UNDATED = "0"  # the month of a release that is not stated: before all that are known
RAN = "ran"  # the outcome of a configuration of which nothing else is known
REQUIRED = ("hardware", "gpus", "layers", "hidden", "heads", "seq_len")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Rows, their cases (None where a row could not be read, with the reason), and groups of alike cases."""

    rows: tuple[Row, ...]
    cases: tuple[Case | None, ...]
    reasons: tuple[str, ...]
    groups: tuple["Group", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that differ only in batch and strategy; `counts` candidates of each stand after one another."""

    case: Case
    stack: str
    indices: tuple[int, ...]
    candidates: Strategies
    counts: tuple[int, ...]
    global_batch: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Step time and memory of each row, of its best feasible candidate: `chosen` among its group's.

    `memory_bytes` is what the row's source would quote, `needed_bytes` what the device must hold. `doubt` is
    a factor by which the range of the time is wider on either side: of the case, and of a precision that is
    not stated, where the time is the geometric mean over the precisions in use.
    """

    step_s: Array
    memory_bytes: Array
    needed_bytes: Array
    fits: NDArray[np.bool_]
    chosen: NDArray[np.int64]
    doubt: Array


StackOf = Callable[[str], Stack]
EfficiencyOf = Callable[[Device], Efficiency]


def load_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a CSV file of runs."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = tuple(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput("table", str(path), f"cannot be read as CSV ({error})", "check the file") from None
    if not rows:
        raise BadInput("table", str(path), "has no rows", "give a header line and at least one run")
    missing = [name for name in REQUIRED if name not in rows[0]]
    if missing:
        raise BadInput("table", str(path), "lacks column " + ", ".join(missing), "see docs/validation.md")
    return rows


def build_dataset(rows: Sequence[Row], stack_of: StackOf, own: Cluster | None = None) -> Dataset:
    """Cases of all rows that can be read, grouped; those on the device of an `own` cluster are on that."""
    cases: list[Case | None] = []
    reasons: list[str] = []
    members: dict[object, list[tuple[int, Case, Strategies]]] = defaultdict(list)
    for index, row in enumerate(rows):
        try:
            case = parse_case(row, own)
            stack = stack_of(stack_name(case))
            strategies = candidates(case, stack)
        except TrainwrightError as error:
            cases.append(None)
            reasons.append(str(error))
            continue
        cases.append(case)
        reasons.append("")
        members[_group_key(case)].append((index, case, strategies))
    return Dataset(
        rows=tuple(rows),
        cases=tuple(cases),
        reasons=tuple(reasons),
        groups=tuple(map(_group, members.values())),
    )


def stack_name(case: Case) -> str:
    """The stack of a case: its framework, told apart by age where one name covers years of kernels."""
    framework = _known_name(case.framework)
    if framework == "megatron-lm" and case.attention == "unfused":
        # Sequence parallelism came to Megatron-LM in 2022: a run that states it ran that version or later.
        return "megatron-lm-2022" if "sp" in case.fixed else "megatron-lm"
    if framework == "megatron-lm":
        return "megatron-core"
    if framework == "aleph-alpha-scaling" and case.fused_norms:
        return "aleph-alpha-scaling-rms"
    return framework


@cache
def _known_name(framework: str) -> str:
    """The catalog's name for a framework, or the framework itself where the catalog has none."""
    try:
        return catalog_stack(framework or "generic")
    except UnknownName:
        return framework


def candidates(case: Case, stack: Stack) -> Strategies:
    """Every strategy that agrees with what the case states; the rest is as its stack's capability says."""
    fixed, able = dict(case.fixed), stack.capability
    for axis in ("cp", "etp", *(name for name in AXES if name not in able.axes)):
        fixed.setdefault(axis, (1,))
    fixed.setdefault("shard", (0,))
    split = fixed.get("tp", (2,))[0] > 1
    fixed.setdefault("sp", (int(able.runs_sequence_parallel and split),))
    fixed.setdefault("zero", (able.usual_zero,))
    fixed.setdefault("precision", usual_precisions(case.cluster.device, able))
    if "recompute" not in fixed:
        fixed |= _usual_recomputation(case, stack)
    fixed.setdefault("offload", (0,))
    fixed |= {"overlap": (1,), "cp_kind": (0,)}
    schedules = [name for name in ("1f1b", "interleaved") if name in able.schedules]
    fixed.setdefault("schedule", tuple(SCHEDULES.index(name) for name in schedules or ("1f1b",)))
    if fixed.get("pp") == (1,):
        fixed["vpp"] = (1,)
    parallel = prod(fixed[knob][0] for knob in ("tp", "pp", "cp") if knob in fixed)
    space = Space(
        graph=case.graph, devices=max(case.cluster.count // parallel, 1) * parallel,
        seq=case.seq,
        global_batch=case.global_batch, fixed=fixed,
        most={"vpp": able.most_vpp}, check_divisors=False,
    )  # fmt: skip
    every = legal_strategies(space)
    facts = plan_facts(case.graph, seq=case.seq, global_batch=case.global_batch)
    whole = every.dp * every.micro_batch <= case.global_batch  # at least one microbatch per replica
    # What a run states, it ran: a rule of today's software that it breaks was not one then.
    for kept in (whole & ~illegal(able, every, facts), whole):
        if kept.any():
            return every.take(kept)
    return every


def usual_precisions(device: Device, able: Capability) -> tuple[int, ...]:
    """The precisions in use on a device with a stack: 16 bit, and fewer bits where they are faster."""
    wide = next((name for name in ("bf16", "fp16") if name in able.precisions), "fp32")
    pairs = (("fp8", "bf16"), ("fp4", "fp8"))
    narrow = [name for name, wider in pairs if device.peak(name) > device.peak(wider)]
    return tuple(PRECISIONS.index(each) for each in (wide, *(n for n in narrow if n in able.precisions)))


def _usual_recomputation(case: Case, stack: Stack) -> dict[str, tuple[int, ...]]:
    """The recomputations and offloads of a run that states neither: its stack's usual, else all it has."""
    able, unfused = stack.capability, case.attention == "unfused"
    if able.usual_recomputes:
        names = (selective_of(name, unfused=unfused) for name in able.usual_recomputes)
        return {"recompute": tuple(map(RECOMPUTES.index, names))}
    found: dict[str, tuple[int, ...]] = {
        "recompute": recompute_choices(case.graph, replace(stack, attention=case.attention))  # type: ignore[arg-type]
    }
    layers = layers_per_stage(case.graph, case.fixed.get("pp", (1,))[0])
    some = tuple(sorted({EVERY_LAYER, *(round(layers * quarter / 4) for quarter in (1, 2, 3))}))
    if able.recompute_layers != "every":
        found["recompute_layers"] = some
    if "offload" not in case.fixed and able.counts_offloaded_layers:
        found |= {"offload": (0, OFFLOADS.index("activations")), "offload_layers": some}
    return found


def predict(
    dataset: Dataset, stack_of: StackOf, efficiency_of: EfficiencyOf, groups: Iterable[int] | None = None
) -> Predictions:
    """Predictions for all rows, or for those of some groups (the others are not a number)."""
    step = np.full(len(dataset.rows), np.nan)
    memory, needed = np.full(len(dataset.rows), np.nan), np.full(len(dataset.rows), np.nan)
    fits = np.zeros(len(dataset.rows), dtype=bool)
    chosen = np.zeros(len(dataset.rows), dtype=np.int64)
    doubt = np.array([case.doubt if case else 1.0 for case in dataset.cases])
    for index in range(len(dataset.groups)) if groups is None else groups:
        group = dataset.groups[index]
        indices = list(group.indices)
        job = group_job(group, stack_of(group.stack), efficiency_of(group.case.cluster.device))
        result, best = _best_candidates(group, job)
        mean_s, wider = _over_precisions(group, result, best)
        step[indices], fits[indices], chosen[indices] = mean_s, result.feasible[best], best
        doubt[indices] *= wider
        needed[indices] = result.total_bytes[best]
        memory[indices] = as_reported(result, group.case.figure or job.stack.reports)[best]
    return Predictions(
        step_s=step, memory_bytes=memory, needed_bytes=needed, fits=fits, chosen=chosen, doubt=doubt
    )


def _over_precisions(group: Group, result: Estimates, best: NDArray[np.int64]) -> tuple[Array, Array]:
    """The time of each row, a mean where several precisions are possible, and how far they are apart."""
    step_s, wider = result.step_s[best].copy(), np.ones(len(best))
    ends = np.cumsum(group.counts)
    for row, (end, count) in enumerate(zip(ends, group.counts, strict=True)):
        own = slice(end - count, end)
        precisions = np.unique(group.candidates.precision[own])
        if len(precisions) == 1:
            continue
        fit, times = result.feasible[own], result.step_s[own]
        each = [times[(group.candidates.precision[own] == one) & (fit | ~fit.any())] for one in precisions]
        fastest = np.log([one.min() for one in each if len(one)])
        step_s[row], wider[row] = np.exp(fastest.mean()), np.exp(np.ptp(fastest) / 2)
    return step_s, wider


def group_job(group: Group, stack: Stack, efficiency: Efficiency) -> Job:
    """What is asked of an estimate for all candidates of a group."""
    case = group.case
    stack = replace(
        stack,
        attention=case.attention,  # type: ignore[arg-type]
        fused_loss=stack.fused_loss if case.fused_loss is None else case.fused_loss,
        expandable_segments=case.expandable_segments,
        release=case.release or UNDATED,
        activations=stack.activations * (EAGER_ACTIVATIONS if case.is_eager else 1.0),
        traffic=stack.traffic * (EAGER_TRAFFIC if case.is_eager else 1.0),
    )
    stack = with_experts(with_optimizer(stack, case.optimizer, case.grad_dtype), case.experts)
    return Job(
        graph=case.graph,
        cluster=case.cluster,
        stack=stack,
        efficiency=efficiency,
        seq=case.seq,
        global_batch=group.global_batch,
    )


def _best_candidates(group: Group, job: Job) -> tuple[Estimates, NDArray[np.int64]]:
    """The estimates of a group's candidates, and the best one of each row."""
    result = estimate(job, group.candidates, detail=False)
    starts = np.concatenate([[0], np.cumsum(group.counts)[:-1]])
    # The fastest candidate that fits. If none does, the run needed less memory than we think: the fastest
    # of those that come near the least.
    fit = result.feasible
    least = np.minimum.reduceat(result.total_bytes, starts).repeat(group.counts)
    rank = np.where(
        fit, result.step_s, np.where(result.total_bytes <= 1.15 * least, 1e9 + result.step_s, 1e18)
    )
    best = np.array([a + np.argmin(rank[a : a + n]) for a, n in zip(starts, group.counts, strict=True)])
    return result, best


def as_reported(result: Estimates, figure: str) -> Array:
    """Predicted peak memory as a figure that sources quote counts it."""
    left_out = {"allocated": ("buffers", "reserve"), "reserved": ("buffers",)}.get(figure, ())
    return np.asarray(result.total_bytes - sum((result.memory_bytes[name] for name in left_out), np.zeros(1)))


def _group_key(case: Case) -> object:
    inside = case.cluster.count <= case.cluster.node_size
    levels = case.cluster.network.levels
    return (
        id(case.graph),
        case.cluster.device.name,
        levels,
        inside,
        stack_name(case),
        case.attention,
        case.seq,
        case.optimizer,
        case.grad_dtype,
        case.figure,
        case.fused_loss,
        case.is_eager,
        case.expandable_segments,
        case.release,
        case.experts,
    )


def _group(members: Sequence[tuple[int, Case, Strategies]]) -> Group:
    largest = max((case for _, case, _ in members), key=lambda case: case.cluster.count)
    counts = tuple(len(strategies) for _, _, strategies in members)
    return Group(
        case=largest,
        stack=stack_name(largest),
        indices=tuple(index for index, _, _ in members),
        candidates=join_strategies(strategies for _, _, strategies in members),
        counts=counts,
        global_batch=np.repeat([case.global_batch for _, case, _ in members], counts).astype(np.int64),
    )


def ran(dataset: Dataset) -> NDArray[np.bool_]:
    """Rows of which something was measured, or that are stated to have run."""
    truth = measured(dataset)
    stated = np.array([outcome(row) == RAN for row in dataset.rows])
    return np.asarray(np.isfinite(truth["step_s"]) | np.isfinite(truth["memory_bytes"]) | stated)


def failed(dataset: Dataset) -> NDArray[np.bool_]:
    """Rows that their table reports as out of memory."""
    return np.array(["oom" in outcome(row) for row in dataset.rows])


def outcome(row: Row) -> str:
    """How a configuration ended, in the words of tables that list failures."""
    return (row.get("outcome") or "").lower()


def measured(dataset: Dataset) -> Mapping[str, Array]:
    """Measured step times and memory, not a number where they are not stated."""
    steps = [case.step_time_s if case and case.step_time_s else np.nan for case in dataset.cases]
    memory = [case.memory_gib * 2**30 if case and case.memory_gib else np.nan for case in dataset.cases]
    return {"step_s": np.array(steps, dtype=float), "memory_bytes": np.array(memory, dtype=float)}
