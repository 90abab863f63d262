"""A published recipe as a job of its own: its model, devices, software, state, sequence length and batch."""

from dataclasses import dataclass
from functools import cache
from math import lcm

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.cost.memory_risk import MemorySpread
from trainwright.errors import BadInput
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.model.load import load_entry
from trainwright.plan.legality import discouraged, plan_facts, violations
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.search.find import unbounded
from trainwright.search.published_recipe import PublishedRecipe
from trainwright.search.recipe_defaults import fill_defaults
from trainwright.search.recipe_state import recipe_stack
from trainwright.search.recipe_strategy import strategy_of
from trainwright.stack.load import stack_name


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeJob:
    """A recipe as a job with a strategy."""

    recipe: PublishedRecipe
    job: Job
    strategy: Strategy
    spread: MemorySpread


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipePrediction:
    """What is predicted of a recipe's own job; `broken` are the rules of its software that it breaks."""

    step_s: float
    total_bytes: float
    state_bytes: float  # of them weights, gradients and optimizer
    activation_bytes: float
    usable_bytes: float
    oom_risk: float
    broken: tuple[str, ...]
    is_discouraged: bool


def recipe_devices(recipe: PublishedRecipe) -> int:
    """The devices that a recipe states, else the fewest that its degrees fill.

    An error where state is sharded over all devices, whose number then decides on memory.
    """
    if recipe.devices:
        return recipe.devices
    if recipe.sharding in ("fsdp", "fsdp2", "megatron-fsdp"):
        thing, rule = f'recipe "{recipe.name}": devices', "shards state over a number that it does not state"
        raise BadInput(thing, "", rule, "pass devices")
    return recipe.pp * lcm(recipe.tp * recipe.cp, recipe.ep * (recipe.etp or 1))


def build_recipe_job(recipe: PublishedRecipe) -> RecipeJob:
    """The job of a recipe with its own state; an error where a part of it is not known."""
    devices = recipe_devices(recipe)
    if not recipe.device:
        raise BadInput(f'recipe "{recipe.name}": device', "", "is not stated", "state one")
    model = load_entry(recipe.model).architecture
    found, filled = strategy_of(recipe, devices), fill_defaults(recipe, model)[0]
    constants, cluster = load_constants(), load_cluster(f"{recipe.device}:{devices}")
    own = constants.stack(stack_name(recipe.stack))
    stack = recipe_stack(filled, own, cluster.device.family)
    job = Job(
        graph=recipe_graph(recipe.model), cluster=cluster, stack=stack,
        efficiency=constants.efficiency(cluster.device), seq=found.seq or model.max_seq,
        global_batch=found.global_batch,
    )  # fmt: skip
    return RecipeJob(recipe=recipe, job=job, strategy=found.strategy, spread=constants.memory_spread(own))


@cache
def recipe_graph(model: str) -> Graph:
    """The graph of a model of the catalog."""
    return build_graph(load_entry(model).architecture)


def predict_recipe(found: RecipeJob) -> RecipePrediction:
    """Step, memory and legality of a recipe's own job."""
    job, strategy = found.job, found.strategy
    chosen = stack_strategies([strategy])
    result = estimate(unbounded(job), chosen, detail=False)
    needed, usable = float(result.total_bytes[0]), job.cluster.capacity_bytes
    parts = {name: float(each[0]) for name, each in result.memory_bytes.items()}
    facts = plan_facts(
        job.graph, seq=job.seq, global_batch=job.global_batch, device_family=job.cluster.device.family,
        optimizer=job.stack.optimizer.name if job.stack.optimizer else "", grad_dtype=job.stack.grad_dtype,
    )  # fmt: skip
    able = job.stack.capability
    return RecipePrediction(
        step_s=float(result.step_s[0]), total_bytes=needed, usable_bytes=usable,
        state_bytes=parts["weights"] + parts["gradients"] + parts["optimizer"],
        activation_bytes=parts["activations"],
        oom_risk=found.spread.oom_risk(needed, usable),
        broken=tuple(f"{each.knob}: {each.reason(strategy)}" for each in violations(able, chosen, facts)),
        is_discouraged=bool(discouraged(able, chosen, facts)[0]),
    )  # fmt: skip
