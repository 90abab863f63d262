"""`docs/recipes.md`: what the table of published recipes has, and what strategies cannot say of it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainwright.errors import BadInput
from trainwright.search.published_recipe import PublishedRecipe
from trainwright.search.recipe_state import OWN_STATE
from trainwright.search.recipe_strategy import SETTINGS, strategy_of
from trainwright.validate.recipe_check import (
    RecipeCheck,
    failed_rows,
    risk_lines,
    summary_lines,
)

_ANY_DEVICES = 512  # that recipes without a device count are tried on


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeStatistic:
    """How many recipes are strategies, and what is missing how often."""

    recipes: int
    strategies: int  # on the recipe's own devices
    complete: int  # of those, without any setting missing
    scaled: int  # that state no devices, and are strategies once some are given
    refused: tuple[tuple[str, str], ...]  # name and reason
    missing: Mapping[str, int]  # strategies by what they lack
    assumed: Mapping[str, int]  # by what was filled in


def summarize_recipes(recipes: Sequence[PublishedRecipe]) -> RecipeStatistic:
    """The statistic of some recipes."""
    counts: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    assumed: Counter[str] = Counter()
    refused = []
    for recipe in recipes:
        try:
            found = strategy_of(recipe, None if recipe.devices else _ANY_DEVICES)
        except BadInput as error:
            reason = f"{error.thing.rpartition(': ')[2]} {error.value}: {error.rule}"
            refused.append((recipe.name, reason))
            continue
        counts["own" if recipe.devices else "scaled"] += 1
        counts["complete"] += not found.unexpressed and recipe.devices is not None
        missing.update(each.name for each in found.unexpressed)
        assumed.update(each.name for each in found.assumed)
    return RecipeStatistic(
        recipes=len(recipes), strategies=counts["own"], complete=counts["complete"], scaled=counts["scaled"],
        refused=tuple(sorted(refused)), missing=missing, assumed=assumed,
    )  # fmt: skip


def render_recipes(
    recipes: Sequence[PublishedRecipe], left_out: Mapping[tuple[str, str], int], check: RecipeCheck
) -> str:
    """The page."""
    found = summarize_recipes(recipes)
    total = found.recipes + sum(left_out.values())
    lines = [
        *_HEAD,
        f"- Recipes read: {total}. Of a model in the catalog, and so in the table: {found.recipes}.",
        f"- A strategy on the devices that they state: {found.strategies}; with nothing missing: "
        f"{found.complete}.",
        f"- No device count stated, and a strategy once one is given: {found.scaled}.",
        f"- Not a strategy: {len(found.refused)}.",
        "",
        *_table(("recipe", "why"), found.refused),
        "",
        f"Settings that a strategy cannot express, of {found.strategies + found.scaled}:",
        "",
        *_table(
            ("setting", "what it is", "recipes", "in the recipe's own job"),
            [
                (name, SETTINGS[name], count, OWN_STATE.get(name, "no"))
                for name, count in _ranked(found.missing)
            ],
        ),
        "",
        "Settings that recipes leave to their software, filled in with a cited default:",
        "",
        *_table(("setting", "recipes"), _ranked(found.assumed)),
        "",
        "Recipes by software, and by device:",
        "",
        *_table(("stack", "recipes"), _ranked(Counter(each.stack for each in recipes))),
        "",
        *_table(("device", "recipes"), _ranked(Counter(each.device or "not stated" for each in recipes))),
        "",
        *_CHECK,
        "",
        *summary_lines(check),
        "",
        *_table(*risk_lines(check)),
        "",
        "Recipes that are not predicted to run, memory in GiB:",
        "",
        *_table(("recipe", "strategy", "needed of usable", "why"), failed_rows(check)),
        "",
        "Recipes that are not checked, besides those that freeze weights:",
        "",
        *_table(("recipe", "why"), check.refused),
        "",
        "## Left out",
        "",
        *_table(("why", "recipes", "models, as recipes name them"), _left_out_rows(left_out)),
    ]
    return "\n".join(lines) + "\n"


def _left_out_rows(left_out: Mapping[tuple[str, str], int]) -> list[tuple[str, int, str]]:
    counts: Counter[str] = Counter()
    models: dict[str, list[str]] = {}
    for (model, reason), count in sorted(left_out.items()):
        counts[reason] += count
        models.setdefault(reason, []).append(f"{model} ({count})")
    return [(reason, count, ", ".join(models[reason])) for reason, count in _ranked(counts)]


def _ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    listed = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in listed]


_HEAD = """# Published recipes

Written by `make recipes`; do not edit. `src/trainwright/catalog/recipes.csv` has the training recipes that
the authors of Megatron-Bridge, NeMo, MaxText, torchtitan and llm-foundry ship: one row each, with the
repository, commit, file and date. The rows are settings, not measurements: they state no speed and no memory,
and some state degrees that do not divide the devices in their name.

- `trainwright.search.published_recipe.load_recipes()` returns every row as a `PublishedRecipe`, with None or
  an empty text where a recipe is silent.
- `trainwright.search.nearest_recipe.nearest_recipe(...)` returns the recipe of the same model for the nearest
  case, and how that case differs. The module states how cases are ranked.
- `trainwright.search.recipe_strategy.strategy_of(recipe, devices)` returns the recipe as a `Strategy`, the
  settings that a strategy cannot express, and the settings that the recipe leaves to its software, each with
  a source. On other devices than its own, a recipe keeps its tensor, context, pipeline and expert degrees,
  and data parallelism takes up the change.

How rows are read:

- Where a pipeline layout and `vpp` disagree, the layout counts, as in Megatron-Core.
- A recipe whose precision could not be resolved from its configuration has the one in its name.
- TPU v7 counts chips. MaxText sees two devices in each, so degrees and batches are converted.
- MaxText states samples per device, the others samples per model replica.

## Statistic

""".splitlines()

_CHECK = """## Legality and memory

Every recipe as a job of its own: its devices, device, sequence length, batch and precision, with its own
optimizer, dtypes of moments and gradients, low-precision weights and cross entropy. The figures rest on the
constants of the day, so run `make recipes` after `make calibrate`. Every recipe that could be checked is
counted, and none is removed for failing. They come without measurements, so some may not run as stated.
A recipe without a device count is not checked where it shards state over all devices, since their number
decides on memory. `report/recipe_risk.csv` has every row.

`make recipe-winners` compares each with the first plan for its question, with the default optimizer state of
its software and with its own optimizer and gradient dtype. `plan` takes these two from a recipe of the same
case (software or a relative of it, model, device, device count, sequence length, precision) if the recipe is
within the memory limit with its own state and faster than every plan with the default state; the answer says
so, and `--optimizer` or `--grad-dtype` forbid it. A recipe above the memory limit is not compared. Kernels of
the loss, scaling of weights and balanced routing of a recipe are no settings of our plans: Megatron-LM
refuses Transformer Engine's cross entropy, without which some recipes of Megatron-Bridge are above the limit.
""".splitlines()
