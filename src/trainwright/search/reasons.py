"""Why one plan is faster than another, in a sentence made from where their time goes."""

from collections.abc import Mapping

from trainwright.search.trial import Trial
from trainwright.units import render_bytes, render_duration

_WORDS: Mapping[str, str] = {
    "tp": "communication inside layers",
    "cp": "communication of sequences",
    "pp": "sends between stages",
    "dp": "communication of weights and gradients",
    "offload": "copies to the host",
    "tiers": "reading expanded memory",
    "bubble": "idle time",
    "recompute": "recomputation",
    "optimizer": "the optimizer's update",
    "matmul": "matrix products",
    "attention": "attention",
    "streaming": "element-wise work",
    "launch": "launches",
}
_NOTABLE = 0.01  # of the slower step
_MOST = 3  # causes that are named


def explain(trial: Trial, rival: Trial | None) -> str:
    """What shrank from the rival to the trial, what grew, and what both need."""
    memory = f"{render_bytes(trial.total_bytes)} of {render_bytes(trial.capacity_bytes)}"
    if rival is None:
        return f"Nothing of the space compared fits; this needs {memory}."
    changes = {
        cause: trial.time_s.get(cause, 0.0) - rival.time_s.get(cause, 0.0)
        for cause in {**rival.time_s, **trial.time_s}
    }
    notable = _NOTABLE * max(trial.step_s, rival.step_s)
    shrunk = sorted((each for each in changes if changes[each] < -notable), key=lambda each: changes[each])
    grown = sorted((each for each in changes if changes[each] > notable), key=lambda each: -changes[each])
    parts = [f"less {_listed(shrunk, trial, rival)}"] if shrunk else []
    parts += [f"at the price of more {_listed(grown, trial, rival)}"] if grown else []
    ratio = f"{rival.step_s / trial.step_s:.2f}x"
    why = ", ".join(parts) or "a little of everything"
    return f"{ratio}: {why}; {memory}, where the other needs {render_bytes(rival.total_bytes)}."


def _listed(causes: list[str], trial: Trial, rival: Trial) -> str:
    return ", ".join(
        f"{_WORDS.get(cause, cause)} ({render_duration(rival.time_s.get(cause, 0.0))} to "
        f"{render_duration(trial.time_s.get(cause, 0.0))})"
        for cause in causes[:_MOST]
    )
