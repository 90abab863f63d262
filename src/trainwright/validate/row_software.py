"""What a row of a table of runs tells of its software besides a strategy's knobs: release, kernels, state."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from trainwright.model.load import load_entry
from trainwright.search.published_recipe import PublishedRecipe, load_recipes
from trainwright.search.recipe_defaults import fill_defaults
from trainwright.search.recipe_state import optimizer_name
from trainwright.stack.load import capability_of

Row = Mapping[str, str]

_FIGURES = (
    ("allocated", r"allocated|peak printed"),
    ("reserved", r"reserved"),
    ("device", r"-smi|of hbm|\bmem (?:printed )?\d+/\d+"),
)  # what words of a row's notes say that its memory counts
_FUSED_LOSS = r"fused (?:cross[- ]entropy|ce\b)|chunked (?:cross[- ]entropy|ce\b|loss)"
_EAGER = r"\beager\b"
_RECIPE_STACKS = ("megatron-bridge", "nemo")  # NVIDIA's, whose tables leave out what their recipes state


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSoftware:
    """What is known of a run's software; empty or None where nothing is."""

    figure: str = ""  # what its memory counts, one of MEMORY_FIGURES
    fused_loss: bool | None = None
    is_eager: bool = False  # unfused kernels, where the stack compiles or fuses
    expandable_segments: bool = False  # of PyTorch's allocator
    optimizer: str = ""
    grad_dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeState:
    """What recipes say of state and loss; empty where their software's default holds."""

    optimizer: str = ""
    grad_dtype: str = ""
    fused_loss: bool = False
    expandable_segments: bool = False


def row_software(row: Row, framework: str, model: str) -> RowSoftware:
    """What a row states, or the recipes of the software it names for the same model."""
    notes = " ".join(row.get(name) or "" for name in ("notes", "other_knobs", "inferred")).lower()
    optimizer, grad_dtype = ((row.get(name) or "").strip().lower() for name in ("optimizer", "grad_dtype"))
    stack = _recipe_stack(row)
    usual = recipe_state(stack, model) if stack else RecipeState()
    fused = _fused_loss(framework, notes, release_date(row.get("release") or ""))
    return RowSoftware(
        figure=next((name for name, words in _FIGURES if re.search(words, notes)), ""),
        fused_loss=fused or usual.fused_loss or fused,
        is_eager=re.search(_EAGER, notes) is not None,
        expandable_segments=usual.expandable_segments and not _ran_without_segments(row),
        optimizer=optimizer or usual.optimizer,
        grad_dtype=grad_dtype or usual.grad_dtype,
    )


def release_date(release: str) -> str:
    """The year and month that a release's text states, as `2025-06` (`2025` without a month), or nothing.

    NVIDIA's containers are named by both: NeMo 26.02.01, dgxc v25.05.
    """
    found = re.search(r"(20\d\d)(?:-?(0[1-9]|1[0-2]))?(?!\d{3})", release)
    if not found:
        container = re.search(r"\b(?:nemo|pytorch|dgxc) v?(2\d)\.(0[1-9]|1[0-2])\b", release.lower())
        return f"20{container[1]}-{container[2]}" if container else ""
    return f"{found[1]}-{found[2]}" if found[2] else found[1]


def _fused_loss(framework: str, notes: str, date: str) -> bool | None:
    if re.search(_FUSED_LOSS, notes):
        return True
    capability = capability_of(framework)
    return capability.has_fused_loss(date) if date and capability.fused_loss_since else None


def _ran_without_segments(row: Row) -> bool:
    """Whether a failure passes with expandable segments, as its table says: it ran without them."""
    return "expandable_segments" in (row.get("outcome") or "")


def _recipe_stack(row: Row) -> str:
    """Which software's recipes state what a row leaves out; empty if none."""
    words = " ".join(row.get(name) or "" for name in ("framework", "source", "citation")).lower()
    return next((name for name in _RECIPE_STACKS if name in words), "")


@cache
def recipe_state(stack: str, model: str) -> RecipeState:
    """What most recipes of a stack and a model say, or most of all the stack's."""
    recipes = [each for each in load_recipes() if each.stack == stack and each.workload != "lora"]
    own = [each for each in recipes if each.model == model] or recipes
    states = [_state(each) for each in own]
    return max(set(states), key=lambda state: (states.count(state), state.optimizer, state.grad_dtype))


def _state(recipe: PublishedRecipe) -> RecipeState:
    filled, _ = fill_defaults(recipe, load_entry(recipe.model).architecture)
    return RecipeState(
        optimizer=optimizer_name(filled),
        grad_dtype=filled.grad_dtype,
        fused_loss=filled.other.get("cross_entropy") == "te",
        expandable_segments=filled.other.get("expandable_segments") == "1",
    )
