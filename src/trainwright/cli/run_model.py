"""The model of a run, as its option names it: of the catalog, a file, or a module of the user's own."""

from pathlib import Path

from trainwright.model.load import load_model
from trainwright.runtime.learner import Learner, build_learner


def parse_model(text: str, seq: int | None, seed: int, start: Path | None, precision: str) -> Learner:
    """The model that a text names, for sequences of that length, if one is stated."""
    if ":" in text:
        from trainwright.runtime.own_module import build_own  # which takes a second to import

        return build_own(text, seq, seed, start, precision)
    return build_learner(load_model(text), seq, seed, start)
