"""`make recipe-winners`: whether the first plan for a recipe's question is predicted slower than the recipe.

The question is what `plan` asks by default: the recipe's model, devices, software, sequence length, batch and
precision, with the software's default optimizer state, at the default OOM risk. The recipe is compared twice:
with the same state as the plan, and with the state that it sets itself, which a user has to ask for with
`--optimizer` and `--grad-dtype`.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainwright.cost.load import load_constants
from trainwright.cost.memory_risk import DEFAULT_RISK
from trainwright.errors import TrainwrightError
from trainwright.plan.strategy import PRECISIONS, stack_strategies
from trainwright.search.find import Question, evaluate
from trainwright.search.published_recipe import PublishedRecipe, load_recipes
from trainwright.search.recipe_job import RecipeJob, build_recipe_job, predict_recipe
from trainwright.search.recipe_plan import with_recipe
from trainwright.search.usual import able_knobs, check_precision
from trainwright.search.variants import find_winner
from trainwright.stack.load import stack_name

_FAMILIES = 10  # rows that `plan` ranks by default
_EQUAL = 1e-6  # share of a step below which two are equally long


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerCheck:
    """A recipe against the first plan for its question; `winner` is empty if none fits."""

    recipe: PublishedRecipe
    recipe_s: float  # with the state of the plan
    is_allowed: bool  # its software runs it so, within the memory limit
    own_s: float  # with its own state
    is_own_allowed: bool
    winner: str
    winner_s: float

    @property
    def is_slower(self) -> bool:
        """Whether the first plan is predicted slower than a recipe that is allowed."""
        return self.is_allowed and self._loses(self.recipe_s)

    @property
    def is_slower_than_own(self) -> bool:
        """Whether it is slower than the recipe with the recipe's own state, if that is allowed."""
        return self.is_own_allowed and self._loses(self.own_s)

    def _loses(self, recipe_s: float) -> bool:
        return not self.winner or self.winner_s > recipe_s * (1.0 + _EQUAL)


def recipe_question(found: RecipeJob) -> Question:
    """What `plan` asks by default about the case of a recipe."""
    stack = load_constants().stack(stack_name(found.recipe.stack))
    check_precision(found.strategy.precision, found.job.cluster.device)
    job = replace(found.job, stack=stack)
    return Question(
        job=job, batches=(int(job.global_batch),), mappings=True, top=_FAMILIES, families=_FAMILIES,
        fixed={**able_knobs(stack), "precision": (PRECISIONS.index(found.strategy.precision),)},
        most={"vpp": stack.capability.most_vpp}, filled_share=found.spread.filled_share(DEFAULT_RISK),
    )  # fmt: skip


def check_winner(found: RecipeJob) -> WinnerCheck:
    """The first plan for a recipe's question, compared with the recipe at the question's state."""
    question, _ = with_recipe(recipe_question(found))
    own, fits = evaluate(question, question.job, stack_strategies([found.strategy]))
    first, set_by_itself = find_winner(question)[1], predict_recipe(found)
    within = set_by_itself.total_bytes <= question.filled_share * set_by_itself.usable_bytes
    return WinnerCheck(
        recipe=found.recipe, recipe_s=float(own.step_s[0]), is_allowed=bool(fits[0]),
        own_s=set_by_itself.step_s,
        is_own_allowed=within and not set_by_itself.broken and not set_by_itself.is_discouraged,
        winner=str(first.strategies[0]) if len(first) else "",
        winner_s=float(first.step_s[0]) if len(first) else 0.0,
    )  # fmt: skip


def check_winners(recipes: Iterable[PublishedRecipe]) -> Iterator[WinnerCheck]:
    """The checks of recipes that are jobs on a device which has their precision; frozen weights are none."""
    for recipe in recipes:
        if recipe.workload == "lora":
            continue
        try:
            found = build_recipe_job(recipe)
            recipe_question(found)
        except TrainwrightError:
            continue
        yield check_winner(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every recipe, or each nth; 1 if any first plan is slower."""
    parser = argparse.ArgumentParser(prog="python -m trainwright.validate.recipe_winner", description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="check each Nth recipe only")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="from the Nth recipe on")
    options = parser.parse_args(arguments)
    checked = []
    for each in check_winners(load_recipes()[options.first :: options.every]):
        checked.append(each)
        print(_line(each), flush=True)
    slower, allowed = sum(each.is_slower for each in checked), sum(each.is_allowed for each in checked)
    own, able = sum(each.is_slower_than_own for each in checked), sum(each.is_own_allowed for each in checked)
    print(f"{len(checked)} questions")
    print(f"same state: {allowed} recipes within the limit, {slower} first plans slower")
    print(f"the recipe's own state: {able} recipes within the limit, {own} first plans slower")
    return 1 if slower else 0


def _line(each: WinnerCheck) -> str:
    """One check: the plan's gain over the recipe with the same state, and with the recipe's own."""
    words = []
    for seconds, allowed, slower in (
        (each.recipe_s, each.is_allowed, each.is_slower),
        (each.own_s, each.is_own_allowed, each.is_slower_than_own),
    ):
        gain = f"{seconds / each.winner_s - 1.0:+.1%}" if each.winner else "none"
        words.append(f"{gain} {'SLOWER' if slower else 'ok' if allowed else 'over limit'}")
    return f"{words[0]:18} own {words[1]:18} {each.recipe.name}: {each.winner or 'nothing fits'}"


if __name__ == "__main__":
    raise SystemExit(main())
