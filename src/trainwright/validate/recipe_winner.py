"""`make recipe-winners`: whether the first plan for a recipe's question is predicted slower than the recipe.

The question is what `plan` asks by default: the recipe's model, devices, software, sequence length, batch and
precision, at the default OOM risk, with no optimizer state stated. The recipe is compared three times:

- with the software's default optimizer state;
- with its own optimizer and gradient dtype, as far as `--optimizer` and `--grad-dtype` can state them for the
  software: the search may take them (`recipe_search.py`);
- with all that it sets, also kernels of the loss, scaling of weights and balanced routing, which are no
  settings of our plans: Megatron-LM, for one, refuses Transformer Engine's cross entropy.

A recipe above the memory limit is no rival.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainwright.cost.chosen_optimizer import with_optimizer
from trainwright.cost.constants import Stack
from trainwright.cost.load import load_constants
from trainwright.cost.memory_risk import DEFAULT_RISK
from trainwright.errors import TrainwrightError
from trainwright.model.load import load_entry
from trainwright.plan.strategy import PRECISIONS, stack_strategies
from trainwright.search.find import Question, evaluate
from trainwright.search.published_recipe import PublishedRecipe, load_recipes
from trainwright.search.recipe_defaults import fill_defaults
from trainwright.search.recipe_job import RecipeJob, build_recipe_job, predict_recipe
from trainwright.search.recipe_search import find_recipe_winner
from trainwright.search.recipe_state import state_options
from trainwright.search.usual import able_knobs, check_precision
from trainwright.stack.load import stack_name

_FAMILIES = 10  # rows that `plan` ranks by default
# States of a recipe, in words.
_STATES = {
    "same": "the software's default state",
    "own": "the recipe's optimizer and gradient dtype",
    "whole": "also its kernels of the loss, scaling of weights and routing",
}
_EQUAL = 1e-6  # share of a step below which two are equally long


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRecipe:
    """A step of a recipe in one state; it is allowed if its software runs it so, within the memory limit."""

    step_s: float
    is_allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerCheck:
    """A recipe against the first plan for its question; `winner` is empty if none fits."""

    recipe: PublishedRecipe
    same: PredictedRecipe  # with the software's default state
    own: PredictedRecipe  # with its own optimizer and gradient dtype
    whole: PredictedRecipe  # with all that it sets
    winner: str
    winner_s: float
    taken: str  # state of a recipe that the search took

    def is_slower(self, rival: PredictedRecipe) -> bool:
        """Whether the first plan is predicted slower than the recipe in a state in which it is allowed."""
        loses = not self.winner or self.winner_s > rival.step_s * (1.0 + _EQUAL)
        return rival.is_allowed and loses


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
    """The first plan for a recipe's question, compared with the recipe."""
    question = recipe_question(found)
    stack, model = question.job.stack, load_entry(found.recipe.model).architecture
    options = state_options(fill_defaults(found.recipe, model)[0], stack)
    search, first = find_recipe_winner(question)
    whole = predict_recipe(found)
    within = whole.total_bytes <= question.filled_share * whole.usable_bytes
    return WinnerCheck(
        recipe=found.recipe, same=_rival(question, found, stack),
        own=_rival(question, found, with_optimizer(stack, *options)),
        whole=PredictedRecipe(
            step_s=whole.step_s, is_allowed=within and not whole.broken and not whole.is_discouraged
        ),
        winner=str(first.strategies[0]) if len(first) else "",
        winner_s=float(first.step_s[0]) if len(first) else 0.0,
        taken=search.taken.words if search.taken else "",
    )  # fmt: skip


def _rival(question: Question, found: RecipeJob, stack: Stack) -> PredictedRecipe:
    job = replace(question.job, stack=stack)
    candidates, fits = evaluate(question, job, stack_strategies([found.strategy]))
    return PredictedRecipe(step_s=float(candidates.step_s[0]), is_allowed=bool(fits[0]))


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
    print(f"{len(checked)} questions, {sum(bool(each.taken) for each in checked)} took a recipe's state")
    slower = {name: _count(name, checked) for name in _STATES}
    return 1 if slower["same"] or slower["own"] else 0


def _count(name: str, checked: Sequence[WinnerCheck]) -> int:
    """How many first plans are slower than the recipe in a state; printed with how many are compared."""
    allowed = sum(getattr(each, name).is_allowed for each in checked)
    slower = [each for each in checked if each.is_slower(getattr(each, name))]
    over = sum(not each.own.is_allowed for each in slower)
    without = (
        f" ({over} of these recipes are over the limit without them)" if name == "whole" and slower else ""
    )
    print(f"{_STATES[name]}: {allowed} recipes within the limit, {len(slower)} first plans slower{without}")
    return len(slower)


def _line(each: WinnerCheck) -> str:
    """One check: the plan's gain over the recipe in each state."""
    words = []
    for name in _STATES:
        rival = getattr(each, name)
        gain = f"{rival.step_s / each.winner_s - 1.0:+.1%}" if each.winner else "none"
        outcome = "SLOWER" if each.is_slower(rival) else "ok" if rival.is_allowed else "over limit"
        words.append(f"{name} {gain} {outcome:10}")
    taken = f" ({each.taken})" if each.taken else ""
    return f"{' '.join(words)} {each.recipe.name}: {each.winner or 'nothing fits'}{taken}"


if __name__ == "__main__":
    raise SystemExit(main())
