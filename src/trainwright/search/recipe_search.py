"""A search that may take the optimizer state of a published recipe of its case.

Plans have the stack's own optimizer state where a user states none. A vendor that publishes a recipe with
another state accepts it for that case, the same software, model, device, device count, sequence length and
precision: gradients in bf16, moments in 16 bits, but not another optimizer. Such a state is taken only where
it is needed: if a recipe with its own state is within the memory limit and better than every plan that was
found, the search runs once more with the recipe's optimizer and gradient dtype, as far as the stack has
them, and the better answer counts. A user who states an optimizer or a gradient dtype keeps what is stated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from trainwright.cost.chosen_optimizer import with_optimizer
from trainwright.cost.constants import Stack
from trainwright.model.load import load_entry
from trainwright.plan.strategy import Strategy
from trainwright.search.find import Found, Question, find_plans, published_plans
from trainwright.search.rank import Candidates, join_candidates
from trainwright.search.recipe_defaults import fill_defaults
from trainwright.search.recipe_plan import RecipePlan, recipe_plans, with_recipe
from trainwright.search.recipe_state import recipe_stack, state_options
from trainwright.search.variants import first_plan

_ROUNDING = 1e-9  # share of a score below which two are equal


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenState:
    """The optimizer state of a recipe that a search took; `gain` is by how much the best plan is better."""

    recipe: str
    optimizer: str  # "": the stack's own
    grad_dtype: str
    gain: float | None  # 0.1: a tenth; None if nothing fits without it

    @property
    def words(self) -> str:
        """The state in words."""
        parts = [f"optimizer {self.optimizer}"] if self.optimizer else []
        return ", ".join(parts + ([f"gradients in {self.grad_dtype}"] if self.grad_dtype else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSearch:
    """What a search found, its question with the state that was searched, and the recipe of its case."""

    question: Question
    found: Found
    recipe: RecipePlan | None
    taken: TakenState | None = None  # None: the state is the question's own


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeRival:
    """A recipe with its own state: the stack with what options state of it, and what fits of it."""

    recipe: str
    strategy: Strategy
    stack: Stack
    plans: Candidates

    @property
    def score(self) -> float:
        """The best score of the recipe with its own state."""
        return float(self.plans.score.min())


def find_with_recipe(question: Question) -> RecipeSearch:
    """The best strategies for a question, never worse than a recipe of its case with the recipe's own state.

    That holds where the recipe is within the memory limit with its optimizer and gradient dtype alone:
    kernels of the loss, scaling of weights and balanced routing of a recipe are no settings of our plans.
    """
    question, nearest = with_recipe(question)
    plain = best = RecipeSearch(question=question, found=find_plans(question), recipe=nearest)
    rivals = sorted(recipe_rivals(question), key=lambda each: each.score)
    tried = []
    for rival in rivals:
        if _score(best.found) <= rival.score * (1.0 + _ROUNDING):
            break
        if rival.stack not in tried:
            tried.append(rival.stack)
            best = min(best, _taking(plain, rival), key=lambda each: _score(each.found))
    return replace(best, found=_with_limit(best.found, rivals))


def find_recipe_winner(question: Question) -> tuple[RecipeSearch, Candidates]:
    """What such a search finds, and the first plan of its ranking: empty if nothing fits."""
    search = find_with_recipe(replace(question, top=1, families=min(question.families, 1)))
    return search, first_plan(search.question, search.found)


def recipe_rivals(question: Question) -> Iterator[RecipeRival]:
    """Recipes of the same case with their own state, where that is another than the stack's and they fit.

    None if the question states an optimizer or a gradient dtype.
    """
    stack, family = question.job.stack, question.job.cluster.device.family
    if stack.optimizer or stack.grad_dtype:
        return
    for each in recipe_plans(question, same_case=True):
        if not each.is_candidate:
            continue
        filled = fill_defaults(each.recipe, load_entry(each.recipe.model).architecture)[0]
        options = state_options(filled, stack)
        if not any(options):
            continue
        stated, asked = with_optimizer(stack, *options), replace(question, published=each.strategy)
        # With all that the recipe sets, and with what of it our plans can have.
        stacks = (recipe_stack(filled, stack, family), stated)
        plans = [one for own in stacks for one in published_plans(_with_stack(asked, own)) if len(one)]
        if plans:
            yield RecipeRival(
                recipe=each.recipe.name, strategy=each.strategy, stack=stated, plans=join_candidates(plans)
            )


def _taking(plain: RecipeSearch, rival: RecipeRival) -> RecipeSearch:
    """The search with a rival's state."""
    question = replace(_with_stack(plain.question, rival.stack), published=rival.strategy)
    found, own = find_plans(question), rival.stack.optimizer
    gain = _score(plain.found) / _score(found) - 1.0 if len(found.best) and len(plain.found.best) else None
    taken = TakenState(
        recipe=rival.recipe, optimizer=own.name if own else "", grad_dtype=rival.stack.grad_dtype, gain=gain
    )
    return replace(plain, question=question, found=found, taken=taken)


def _score(found: Found) -> float:
    return float(found.best.score[0]) if len(found.best) else inf


def _with_stack(question: Question, stack: Stack) -> Question:
    return replace(question, job=replace(question.job, stack=stack))


def _with_limit(found: Found, rivals: Sequence[RecipeRival]) -> Found:
    """What was found, with the recipes in their own state among what the first plan is not to exceed."""
    held = [found.published] if found.published else []
    listed = [*held, *(each.plans for each in rivals)]
    return replace(found, published=join_candidates(listed)) if listed else found
