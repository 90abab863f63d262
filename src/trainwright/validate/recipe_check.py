"""Published recipes as jobs of their own: whether their software runs them, and their OOM risk."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainwright.errors import TrainwrightError
from trainwright.model.load import load_entry
from trainwright.search.published_recipe import PublishedRecipe
from trainwright.search.recipe_defaults import fill_defaults
from trainwright.search.recipe_job import (
    RecipeJob,
    RecipePrediction,
    build_recipe_job,
    predict_recipe,
)
from trainwright.search.recipe_state import render_state

RISK_LIMIT = 0.5  # from which a recipe that its authors run is not predicted to run
GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRecipe:
    """A recipe with what is predicted of it."""

    found: RecipeJob
    predicted: RecipePrediction

    @property
    def is_passed(self) -> bool:
        """Whether it is legal for its software and has a risk below the limit."""
        return not self.predicted.broken and self.predicted.oom_risk < RISK_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeCheck:
    """All recipes: those that could be checked, and those that could not, with the reason."""

    checked: tuple[CheckedRecipe, ...]
    frozen: int  # LoRA: not predicted as full training
    refused: tuple[tuple[str, str], ...]  # name and reason

    @property
    def passed(self) -> int:
        """How many are legal and have a risk below the limit."""
        return sum(each.is_passed for each in self.checked)


def check_recipes(recipes: Iterable[PublishedRecipe]) -> RecipeCheck:
    """What is predicted of every recipe on its own devices, at its own batch, with its own state."""
    checked, refused, frozen = [], [], 0
    for recipe in recipes:
        if recipe.workload == "lora":
            frozen += 1
            continue
        try:
            found = build_recipe_job(recipe)
            checked.append(CheckedRecipe(found=found, predicted=predict_recipe(found)))
        except TrainwrightError as error:
            refused.append((recipe.name, _reason(error)))
    return RecipeCheck(checked=tuple(checked), frozen=frozen, refused=tuple(sorted(refused)))


def _reason(error: TrainwrightError) -> str:
    """The error without the recipe's name and without a remedy."""
    text = str(error).partition(";")[0]
    return text.partition('": ')[2] if text.startswith("recipe ") else text


def risk_lines(check: RecipeCheck) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Head and rows: recipes by software and kind, how many are legal, and how many pass."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for each in check.checked:
        recipe = each.found.recipe
        key = (recipe.stack, "tuned for speed" if recipe.tuned else "default to start from")
        counts[(*key, "all")] += 1
        counts[(*key, "legal")] += not each.predicted.broken
        counts[(*key, "risk")] += each.predicted.oom_risk < RISK_LIMIT
        counts[(*key, "both")] += each.is_passed
    keys = sorted({key[:2] for key in counts})
    columns = ("all", "legal", "risk", "both")
    rows: list[tuple[object, ...]] = [(*key, *(counts[(*key, name)] for name in columns)) for key in keys]
    return ("stack", "kind", "recipes", "legal", "OOM risk below 50 %", "both"), rows


def failed_rows(check: RecipeCheck) -> list[tuple[object, ...]]:
    """Recipes that do not pass, the largest share of memory first: strategy, state, memory and reason."""
    failed = [each for each in check.checked if not each.is_passed]
    failed.sort(key=lambda each: -each.predicted.total_bytes / each.predicted.usable_bytes)
    return [(each.found.recipe.name, each.found.strategy, _memory(each), _why(each)) for each in failed]


def render_checked(check: RecipeCheck) -> str:
    """Every checked recipe as a row of a table in CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ("recipe", "stack", "device", "devices", "seq", "global_batch", "strategy", "state")
    writer.writerow((*head, "needed_gib", "usable_gib", "oom_risk", "broken"))
    for each in check.checked:
        recipe, job, predicted = each.found.recipe, each.found.job, each.predicted
        case = (recipe.name, recipe.stack, recipe.device, job.cluster.count, job.seq, job.global_batch)
        writer.writerow(
            (*case, each.found.strategy, _state(recipe),
             f"{predicted.total_bytes / GIB:.1f}", f"{predicted.usable_bytes / GIB:.1f}",
             f"{predicted.oom_risk:.3f}", "; ".join(predicted.broken))
        )  # fmt: skip
    return text.getvalue()


def _state(recipe: PublishedRecipe) -> str:
    return render_state(fill_defaults(recipe, load_entry(recipe.model).architecture)[0])


def _memory(each: CheckedRecipe) -> str:
    return f"{each.predicted.total_bytes / GIB:,.0f} of {each.predicted.usable_bytes / GIB:,.0f}"


def _why(each: CheckedRecipe) -> str:
    """The rules that a recipe breaks, or the parts of its memory."""
    if each.predicted.broken:
        return "; ".join(each.predicted.broken)
    state = each.predicted.state_bytes / GIB
    if each.predicted.state_bytes > each.predicted.usable_bytes:
        return f"state alone, with what ZeRO-3 gathers, {state:,.0f}"
    rest = each.predicted.activation_bytes / GIB
    return f"state {state:,.0f}, activations and logits {rest:,.0f}"


def summary_lines(check: RecipeCheck) -> Sequence[str]:
    """The counts in words."""
    total = len(check.checked)
    legal = sum(not each.predicted.broken for each in check.checked)
    low = sum(each.predicted.oom_risk < RISK_LIMIT for each in check.checked)
    partial = sum(each.found.strategy.offload_layers > 0 for each in check.checked)
    share = check.passed / total if total else 0.0
    return (
        f"- Checked: {total}. Legal: {legal}. OOM risk below 50 %: {low}. "
        f"Both: {check.passed} ({share:.1%}).",
        f"- Not checked, as weights are frozen (LoRA): {check.frozen}. "
        f"For another reason: {len(check.refused)}.",
        f"- Activations of some layers offloaded: {partial}.",
    )
