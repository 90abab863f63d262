"""The published recipe to compare a question's plans with, as a plan for that question.

Recipes are tried from the nearest on (`nearest_recipe`). The first one is taken that is close enough, and
that the question's software can run on its cluster at one of its batches. The recipe keeps its tensor,
context, pipeline and expert degrees, and data parallelism takes up the change of the device count. Precision,
software and optimizer are the question's. Where the recipe's micro batch does not divide the batch, its
largest divisor that does is taken.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from trainwright.errors import BadInput, UnknownName
from trainwright.estimate.types import Job
from trainwright.model.architecture import Architecture
from trainwright.model.graph import Graph
from trainwright.model.load import load_entry
from trainwright.plan.strategy import CHOICES, PRECISIONS, Strategy, stack_strategies
from trainwright.search.find import Question, fit_micro_batch, runs
from trainwright.search.nearest_recipe import (
    RecipeCase,
    is_close,
    is_same_case,
    ranked_recipes,
)
from trainwright.search.published_recipe import PublishedRecipe, load_recipes
from trainwright.search.recipe_strategy import UnexpressedSetting, strategy_of
from trainwright.search.space import KNOBS, layer_count

_SIZES = ("hidden", "heads", "kv_heads", "ffn", "experts", "top_k", "expert_ffn")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipePlan:
    """A recipe as a plan for a question, and how the recipe's own case differs, in words.

    `is_candidate` is false where the question fixes or bounds a knob otherwise. `unexpressed` are settings of
    the recipe that no prediction counts.
    """

    recipe: PublishedRecipe
    strategy: Strategy
    differences: tuple[str, ...]
    unexpressed: tuple[UnexpressedSetting, ...]
    is_candidate: bool


def recipe_plans(question: Question, *, same_case: bool = False) -> Iterator[RecipePlan]:
    """The recipes that are close enough and plans for a question, the nearest first.

    With `same_case`, only those of the question's software, device, device count, sequence length and
    precision.
    """
    job = question.job
    model = _catalog_model(job.graph)
    if not model:
        return
    precisions = [PRECISIONS[each] for each in question.fixed.get("precision", ())]
    case = RecipeCase(
        model=model, device=job.cluster.device, devices=job.cluster.count, seq=job.seq,
        precision=precisions[0] if precisions else job.cluster.device.usual_precision, stack=job.stack.name,
        global_batch=question.batches[0] if len(question.batches) == 1 else None,
    )  # fmt: skip
    for match in ranked_recipes(case):
        if not is_close(match.recipe, case) or (same_case and not is_same_case(match.recipe, case)):
            continue
        try:
            found = strategy_of(match.recipe, job.cluster.count)
        except BadInput:
            continue
        strategy = found.strategy
        if precisions and strategy.precision not in precisions:
            strategy = replace(strategy, precision=precisions[0])
        if any(_is_legal(job, strategy, batch) for batch in question.batches):
            yield RecipePlan(
                recipe=match.recipe, strategy=strategy, differences=match.differences,
                unexpressed=found.unexpressed, is_candidate=_is_allowed(question, strategy),
            )  # fmt: skip


def with_recipe(question: Question) -> tuple[Question, RecipePlan | None]:
    """The question with the nearest recipe among its candidates, and that recipe."""
    found = next(recipe_plans(question), None)
    if found is None or not found.is_candidate:
        return question, found
    return replace(question, published=found.strategy), found


def _is_legal(job: Job, strategy: Strategy, batch: int) -> bool:
    """Whether the software runs a strategy at a batch."""
    fitted = fit_micro_batch(strategy, batch)
    return fitted is not None and bool(runs(replace(job, global_batch=batch), stack_strategies([fitted]))[0])


def _is_allowed(question: Question, strategy: Strategy) -> bool:
    """Whether no knob of a strategy is fixed or bounded otherwise; its micro batch may become a divisor."""
    meaningless = {"schedule": strategy.pp == 1, "cp_kind": strategy.cp == 1}
    for knob in KNOBS:
        if meaningless.get(knob):
            continue
        value = getattr(strategy, knob)
        number = CHOICES[knob].index(value) if knob in CHOICES else int(value)
        if number not in question.fixed.get(knob, (number,)) or number > question.most.get(knob, number):
            return False
    return True


def _catalog_model(graph: Graph) -> str:
    """The catalog's model with recipes that has a graph's sizes, the one of its name first; empty if none.

    Vocabularies may differ: software pads them.
    """
    try:
        known = load_entry(graph.name).architecture
        if _shape(known) == _graph_shape(graph):
            return known.name
    except UnknownName:
        pass
    return _models_by_shape().get(_graph_shape(graph), "")


@cache
def _models_by_shape() -> Mapping[tuple[int, ...], str]:
    """The models that have recipes."""
    names = sorted({each.model for each in load_recipes()}, reverse=True)
    return {_shape(load_entry(name).architecture): name for name in names}


def _shape(model: Architecture) -> tuple[int, ...]:
    return (model.layers, *(getattr(model, name) for name in _SIZES))


def _graph_shape(graph: Graph) -> tuple[int, ...]:
    return (layer_count(graph), *(graph.sizes.get(name, 0) for name in _SIZES))
