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
from trainwright.plan.recompute_modules import selective_of
from trainwright.plan.strategy import RECOMPUTES, SCHEDULES, Strategies, join_strategies
from trainwright.search.space import Space, legal_strategies
from trainwright.stack.load import stack_name as catalog_stack
from trainwright.validate.row_experts import with_experts
from trainwright.validate.rows import Case, Row, parse_case

Array = NDArray[np.float64]
# Without fused or compiled kernels a gated feed-forward keeps silu(gate) too: 164 instead of 136 KiB per
# token and layer of Llama 3 8B.
EAGER_ACTIVATIONS = 1.2
PUBLISHED = (
    Path(__file__).parents[1] / "catalog" / "published.csv"
)  # a few hundred published runs, each cited
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

    `memory_bytes` is what the row's source would quote, `needed_bytes` what the device must hold.
    """

    step_s: Array
    memory_bytes: Array
    needed_bytes: Array
    fits: NDArray[np.bool_]
    chosen: NDArray[np.int64]


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
    """Every strategy that agrees with what the case states; the rest is what the stack's users choose."""
    fixed = dict(case.fixed)
    fixed.setdefault("cp", (1,))
    fixed.setdefault("etp", (1,))
    fixed.setdefault("shard", (0,))
    split = fixed.get("tp", (2,))[0] > 1
    fixed.setdefault("sp", (int(stack.sequence_parallel and split),))
    fixed.setdefault("zero", (stack.zero,))
    unfused = stack.attention == "unfused"
    recomputes = stack.usual_recomputes or stack.capability.recomputes or ("none", "selective", "full")
    fixed.setdefault(
        "recompute", tuple(RECOMPUTES.index(selective_of(name, unfused=unfused)) for name in recomputes)
    )
    fixed.setdefault("offload", (0,))
    fixed |= {"overlap": (1,), "cp_kind": (0,)}
    able = [name for name in ("1f1b", "interleaved") if name in stack.capability.schedules]
    fixed["schedule"] = tuple(SCHEDULES.index(name) for name in able or ("1f1b",))
    if fixed.get("pp") == (1,):
        fixed["vpp"] = (1,)
    parallel = prod(fixed[knob][0] for knob in ("tp", "pp", "cp") if knob in fixed)
    space = Space(
        graph=case.graph, devices=max(case.cluster.count // parallel, 1) * parallel,
        seq=case.seq,
        global_batch=case.global_batch, fixed=fixed,
        most={"vpp": stack.capability.most_vpp}, check_divisors=False,
    )  # fmt: skip
    return legal_strategies(space)


def predict(
    dataset: Dataset, stack_of: StackOf, efficiency_of: EfficiencyOf, groups: Iterable[int] | None = None
) -> Predictions:
    """Predictions for all rows, or for those of some groups (the others are not a number)."""
    step = np.full(len(dataset.rows), np.nan)
    memory, needed = np.full(len(dataset.rows), np.nan), np.full(len(dataset.rows), np.nan)
    fits = np.zeros(len(dataset.rows), dtype=bool)
    chosen = np.zeros(len(dataset.rows), dtype=np.int64)
    for index in range(len(dataset.groups)) if groups is None else groups:
        group = dataset.groups[index]
        indices = list(group.indices)
        job = group_job(group, stack_of(group.stack), efficiency_of(group.case.cluster.device))
        result, best = _best_candidates(group, job)
        step[indices], fits[indices], chosen[indices] = result.step_s[best], result.feasible[best], best
        needed[indices] = result.total_bytes[best]
        memory[indices] = as_reported(result, group.case.figure or job.stack.reports)[best]
    return Predictions(step_s=step, memory_bytes=memory, needed_bytes=needed, fits=fits, chosen=chosen)


def group_job(group: Group, stack: Stack, efficiency: Efficiency) -> Job:
    """What is asked of an estimate for all candidates of a group."""
    case = group.case
    stack = replace(
        stack,
        attention=case.attention,  # type: ignore[arg-type]
        fused_loss=stack.fused_loss if case.fused_loss is None else case.fused_loss,
        expandable_segments=case.expandable_segments,
        activations=stack.activations * (EAGER_ACTIVATIONS if case.is_eager else 1.0),
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
