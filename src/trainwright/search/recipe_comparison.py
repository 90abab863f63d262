"""A plan compared with a published recipe on the same question: time, memory, and where the time differs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainwright.cost.memory_risk import MemorySpread
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.load import load_entry
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.search.find import fit_micro_batch, runs, unbounded
from trainwright.search.published_recipe import PublishedRecipe
from trainwright.search.recipe_defaults import fill_defaults
from trainwright.search.recipe_plan import RecipePlan
from trainwright.search.recipe_state import recipe_stack, render_state

BOLD_GAIN = 0.10  # from which a claim to beat a published recipe says why


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnState:
    """What a recipe needs with the optimizer and the dtypes that it sets itself, not the question's."""

    words: str
    step_s: float
    total_bytes: float
    oom_risk: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeComparison:
    """A published recipe as predicted for a question, and how much faster a plan is.

    `differences` say how the recipe's own case differs; none if it is the same case. `saved` is, by part of
    the step, what the plan needs less than the recipe, as a share of the recipe's step. `left_out` are
    settings of the recipe that the prediction does not count, by name. Times and memory are with the
    optimizer state of the plan, so that both are compared alike: the question's, or `taken`, the recipe's.
    """

    name: str
    citation: str
    tuned: bool  # published for its speed
    model: str
    device: str
    devices: int | None
    differences: tuple[str, ...]
    strategy: Strategy
    global_batch: int
    step_s: float
    tokens_per_s_per_device: float
    total_bytes: float
    oom_risk: float
    is_candidate: bool  # no knob that is fixed or bounded excludes it
    is_within_limit: bool  # of memory
    gain: float  # 0.1: the plan trains a tenth more tokens per second
    saved: Mapping[str, float]
    left_out: Mapping[str, str]
    taken: str = ""  # the recipe's optimizer and gradient dtype, in words, where the plan has them
    own: OwnState | None = None  # of the recipe, where the question states no optimizer

    @property
    def is_bold(self) -> bool:
        """Whether the plan claims to beat the recipe by so much that it has to say why."""
        return self.gain > BOLD_GAIN


def compare_with_recipe(
    job: Job,
    found: RecipePlan,
    plan: Strategy,
    *,
    spread: MemorySpread,
    filled_share: float = 1.0,
    taken: str = "",
) -> RecipeComparison | None:
    """The comparison at the job's batch; None if the recipe's replicas do not divide it.

    `taken` is the recipe's state in words, where the job has it without a user's stating it.
    """
    strategy = fit_micro_batch(found.strategy, int(job.global_batch))
    if strategy is None:
        return None
    result = estimate(unbounded(job), stack_strategies([strategy, plan]))
    step_s, plan_s = float(result.step_s[0]), float(result.step_s[1])
    needed_bytes, usable_bytes = float(result.total_bytes[0]), job.cluster.capacity_bytes
    recipe = found.recipe
    return RecipeComparison(
        name=recipe.name, citation=recipe.citation, tuned=recipe.tuned, model=recipe.model,
        device=recipe.device, devices=recipe.devices, differences=found.differences,
        strategy=strategy, global_batch=int(job.global_batch), step_s=step_s,
        tokens_per_s_per_device=int(job.global_batch) * job.seq / step_s / job.cluster.count,
        total_bytes=needed_bytes, oom_risk=spread.oom_risk(needed_bytes, usable_bytes),
        is_candidate=found.is_candidate,
        is_within_limit=bool(result.feasible[0]) and needed_bytes <= filled_share * usable_bytes,
        gain=step_s / plan_s - 1.0,
        saved={name: float(each[0] - each[1]) / step_s for name, each in result.time_s.items()},
        left_out={each.name: each.value for each in found.unexpressed},
        taken=taken, own=_own_state(job, recipe, strategy, spread),
    )  # fmt: skip


def _own_state(
    job: Job, recipe: PublishedRecipe, strategy: Strategy, spread: MemorySpread
) -> OwnState | None:
    """The recipe with its own state; None if the user states one, or the question's software lacks it."""
    if job.stack.optimizer or job.stack.grad_dtype:
        return None
    filled = fill_defaults(recipe, load_entry(recipe.model).architecture)[0]
    stack = recipe_stack(filled, job.stack, job.cluster.device.family)
    own, chosen = replace(job, stack=stack), stack_strategies([strategy])
    if not runs(own, chosen)[0]:
        return None
    result = estimate(unbounded(own), chosen, detail=False)
    needed_bytes = float(result.total_bytes[0])
    return OwnState(
        words=render_state(filled), step_s=float(result.step_s[0]), total_bytes=needed_bytes,
        oom_risk=spread.oom_risk(needed_bytes, job.cluster.capacity_bytes),
    )  # fmt: skip
