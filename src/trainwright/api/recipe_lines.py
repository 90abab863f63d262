"""The comparison with a published recipe, in words."""

from collections.abc import Iterator

from trainwright.report.limits import CAUSES
from trainwright.report.tables import render_risk
from trainwright.search.recipe_comparison import RecipeComparison
from trainwright.units import render_bytes, render_duration

_NOTABLE = 0.01  # share of the recipe's step from which a cause is named
_MOST_CAUSES = 3
_EQUAL = 0.0005  # gain below which two steps are shown as equally long


def recipe_lines(found: RecipeComparison) -> tuple[str, ...]:
    """Which recipe, what is predicted of it here, and how the best plan compares."""
    return (_case(found), _prediction(found), *_own_state(found), *_gain(found), *_left_out(found))


def today_line(found: RecipeComparison, step_s: float) -> str:
    """How a step of what is in use compares with the recipe."""
    gain = found.step_s / step_s - 1.0
    if abs(gain) < _EQUAL:
        return "What is in use is predicted to be as fast as the recipe."
    return (
        f"What is in use is predicted to be {abs(gain):.1%} {'faster' if gain > 0.0 else 'slower'} than it."
    )


def _case(found: RecipeComparison) -> str:
    case = "the same case" if not found.differences else "the nearest case: " + "; ".join(found.differences)
    return f"{found.name} ({found.citation}), {case}."


def _prediction(found: RecipeComparison) -> str:
    return (
        f"Here it is {found.strategy}: {render_duration(found.step_s)} per step, "
        f"{found.tokens_per_s_per_device:,.0f} tok/s/device, {render_bytes(found.total_bytes)}, "
        f"OOM risk {render_risk(found.oom_risk)}."
    )


def _own_state(found: RecipeComparison) -> Iterator[str]:
    if found.taken:
        yield f"That is with its own optimizer state, which our plans take: {found.taken}."
    if own := found.own:
        yield (
            f"That is with the state of our plans; with its own ({own.words}): "
            f"{render_duration(own.step_s)} per step, {render_bytes(own.total_bytes)}, "
            f"OOM risk {render_risk(own.oom_risk)}."
        )


def _gain(found: RecipeComparison) -> Iterator[str]:
    if abs(found.gain) < _EQUAL:
        yield "The best plan is predicted to be as fast as the recipe."
    elif found.gain < 0.0:
        slower = f"{-found.gain:.1%} slower than the recipe"
        yield f"The best plan is predicted to be {slower}, {_excluded(found)}."
    elif not found.is_bold:
        yield f"The best plan is predicted to be {found.gain:.1%} faster than the recipe."
    else:
        kind = "tuned for speed" if found.tuned else "a default to start from"
        yield (
            f"The best plan claims to be {found.gain:.1%} faster than the recipe, which is {kind}. "
            f"{_why(found)}"
        )


def _excluded(found: RecipeComparison) -> str:
    if not found.is_candidate:
        return "which a fixed or bounded knob excludes"
    return "which " + (
        "is not the best by the objective" if found.is_within_limit else "is above the memory limit"
    )


def _why(found: RecipeComparison) -> str:
    """The parts of the step that differ most, as shares of the recipe's step."""
    ranked = sorted(found.saved.items(), key=lambda item: -abs(item[1]))
    named = [(name, share) for name, share in ranked if abs(share) >= _NOTABLE]
    less = [f"{CAUSES[name][0]} ({share:.0%})" for name, share in named if share > 0.0][:_MOST_CAUSES]
    more = [f"{CAUSES[name][0]} ({-share:.0%})" for name, share in named if share < 0.0][:_MOST_CAUSES]
    text = f"Of the recipe's step it saves {', '.join(less)}"
    return f"{text}, and adds {', '.join(more)}." if more else f"{text}."


def _left_out(found: RecipeComparison) -> Iterator[str]:
    if found.left_out:
        names = ", ".join(name.replace("_", " ") for name in found.left_out)
        yield f"Settings of the recipe that its prediction leaves out: {names} (docs/recipes.md)."
