"""One case of closure: the best plans of a model on a cluster under a stack, exported and read back."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainwright.api.configured import build_job, legality_notes, read_configured
from trainwright.api.fields import pair_texts
from trainwright.api.plan_problem import build_problem
from trainwright.api.plan_request import PlanRequest
from trainwright.api.requests import AdviseRequest
from trainwright.cost.constants import Stack
from trainwright.errors import TrainwrightError
from trainwright.estimate.types import Job
from trainwright.export.canonical import canonical
from trainwright.library import export
from trainwright.model.features import model_features
from trainwright.model.load import load_model
from trainwright.plan.strategy import Strategy
from trainwright.search.recipe_search import find_with_recipe
from trainwright.stack.capability import Capability, missing_features
from trainwright.stack.load import capability_of, stack_entries

MODELS = (
    "gpt2", "gpt3-1.3b", "gpt3-6.7b", "gpt3-175b", "megatron-22b", "mt-nlg-530b", "llama-7b", "llama2-13b",
    "llama2-70b", "llama3.2-1b", "llama3-8b", "llama3-70b", "llama3-405b", "mistral-7b", "mistral-large-123b",
    "yi-34b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-0.6b", "qwen3-14b", "qwen3-32b", "qwen3-30b-a3b",
    "qwen3-235b-a22b", "mixtral-8x7b", "mixtral-8x22b", "deepseek-v2-lite", "deepseek-v3", "kimi-k2",
    "gpt-oss-20b", "gpt-oss-120b",
)  # fmt: skip
CLUSTERS = ("h100:32", "h100:256", "h100:2048")
TOP = 10
SUFFIXES = {
    "megatron": "sh", "nemo": "py", "torchtitan": "py", "torchtitan-toml": "toml", "deepspeed": "json",
    "trainwright": "plan",
}  # fmt: skip
# Formats that do not hold the model, or hold its name only where the tool has one: advise is told it.
MODEL_ELSEWHERE = ("nemo", "deepspeed", "accelerate")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosureCase:
    """A question to `trainwright plan`."""

    model: str
    cluster: str
    stack: str
    stated: Mapping[str, Any] = field(default_factory=dict)  # further fields of the request

    @property
    def capability(self) -> Capability:
        """What the stack can run."""
        return capability_of(self.stack)

    def __str__(self) -> str:
        return " ".join((self.model, self.cluster, self.stack, *pair_texts(self.stated)))

    @property
    def request(self) -> PlanRequest:
        """The question."""
        return PlanRequest(self.model, self.cluster, stack=self.stack, top=TOP, **self.stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosureResult:
    """What came of a case: plans found, exported and read back, and every failure in words."""

    case: ClosureCase
    plans: int = 0
    exported: int = 0
    valid: int = 0
    read_back: int = 0
    failures: tuple[str, ...] = ()


def stack_names() -> list[str]:
    """Every stack and release that plans are exported to."""
    return [
        entry.name if release in ("", entry.capability.release) else f"{entry.name}@{release}"
        for entry in stack_entries().values()
        for release in (list(entry.releases) or [""])
        if capability_of(f"{entry.name}@{release}" if release else entry.name).target
    ]


def can_train(model: str, stack: str) -> bool:
    """Whether a stack has settings for all of a model."""
    arch = load_model(model)
    return not list(missing_features(capability_of(stack), arch.name, arch.kind, model_features(arch)))


def closure_cases() -> list[ClosureCase]:
    """Every model on every cluster under every stack that can train it."""
    return [
        ClosureCase(model=model, cluster=cluster, stack=stack)
        for model in MODELS
        for cluster in CLUSTERS
        for stack in stack_names()
        if can_train(model, stack)
    ]


# Of a text for a target: arguments that the tool does not have; None if that is not known.
Validity = Callable[[str, str], list[str] | None]


def run_case(case: ClosureCase, invalid: Validity | None = None) -> ClosureResult:
    """The case by the functions behind `trainwright plan`, `export` and `advise`."""
    try:
        search = find_with_recipe(build_problem(case.request).question)
    except TrainwrightError as error:
        return ClosureResult(case=case, failures=(f"{case}: plan: {error}",))
    found, job = search.found, replace(search.question.job, global_batch=search.question.batches[0])
    result = ClosureResult(case=case, plans=min(TOP, len(found.best)))
    for index in range(result.plans):
        result = _followed(result, found.best.strategies[index], job, invalid)
    return result


def _followed(result: ClosureResult, strategy: Strategy, job: Job, invalid: Validity | None) -> ClosureResult:
    """The result with one more plan exported and read back."""
    case = result.case
    label = f"{case}: {strategy}"
    try:
        text = exported(case, strategy, job)
    except TrainwrightError as error:
        return replace(result, failures=(*result.failures, f"{label}: export: {error}"))
    result = replace(result, exported=result.exported + 1)
    unknown = invalid(text, case.capability.target) if invalid else None
    if unknown:
        result = replace(result, failures=(*result.failures, f"{label}: arguments: {'; '.join(unknown)}"))
    elif unknown is not None:
        result = replace(result, valid=result.valid + 1)
    wrong = list(differences(case, text, strategy, job))
    if wrong:
        return replace(result, failures=(*result.failures, f"{label}: advise: {'; '.join(wrong)}"))
    return replace(result, read_back=result.read_back + 1)


def exported(case: ClosureCase, strategy: Strategy, job: Job) -> str:
    """What `trainwright export` writes for a plan, to its own stack."""
    target, model, cluster = case.capability.target, case.model, case.cluster
    optimizer, grad_dtype = state_of(job.stack)
    return export(
        str(strategy), target, model=model, cluster=cluster, batch=int(job.global_batch), seq=job.seq,
        optimizer=optimizer or None, grad_dtype=grad_dtype or None,
    ).text  # fmt: skip


def state_of(stack: Stack) -> tuple[str, str]:
    """Optimizer and gradient dtype as options state them; empty where they are the stack's own."""
    return stack.optimizer.name if stack.optimizer else "", stack.grad_dtype


def differences(case: ClosureCase, text: str, strategy: Strategy, job: Job) -> Iterator[str]:
    """What `trainwright advise` reads from an export otherwise than it was."""
    target = case.capability.target
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"export.{SUFFIXES.get(target, 'yaml')}"
        path.write_text(text, encoding="utf-8")
        request = AdviseRequest(
            path, case.cluster, model=case.model if target in MODEL_ELSEWHERE else None,
            seq=job.seq if target in ("deepspeed", "accelerate") else None,
        )  # fmt: skip
        try:
            configured = read_configured(request)
            subject, read = build_job(request, configured)
        except TrainwrightError as error:
            yield str(error)
            return
    if canonical(configured.strategy) != canonical(strategy):
        yield f"read as {configured.strategy}"
    if (int(read.global_batch), read.seq) != (job.global_batch, job.seq):
        yield f"batch {read.global_batch} of {read.seq} tokens for {job.global_batch} of {job.seq}"
    if state_of(read.stack) != state_of(job.stack):
        yield f"optimizer and gradients {state_of(read.stack)} for {state_of(job.stack)}"
    for note in (*configured.notes, *legality_notes(configured, subject, read)):
        if "considered" in note or "refuse" in note or "predicted" in note:
            yield note
    if configured.stack.partition("@")[0] != case.stack.partition("@")[0]:
        yield f"stack {configured.stack}"
