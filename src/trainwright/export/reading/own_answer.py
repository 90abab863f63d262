"""A plan from an answer of `trainwright plan --json`."""

from collections.abc import Mapping
from typing import Any

from trainwright.errors import BadInput, TrainwrightError
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.model.load import load_entry
from trainwright.plan.strategy import parse_strategy


def is_own_answer(tree: Mapping[str, Any]) -> bool:
    """Whether an object is what `trainwright plan` writes."""
    return isinstance(tree.get("plans"), list) and "model" in tree and "cluster" in tree


def read_own_answer(tree: Mapping[str, Any], source: str, stated: StatedSettings) -> Configured:
    """The best plan of an answer, with its batch and length."""
    try:
        best = tree["plans"][0]
        strategy = parse_strategy(str(best["strategy"]["text"]))
        batch, seq = int(best["global_batch"]), int(best["seq"])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        rule = "is no answer of trainwright plan with a plan in it"
        raise BadInput("configuration", source, rule, "name a file that plan --json wrote") from None
    check_open(source, stated)
    return Configured(
        strategy=strategy, global_batch=batch, seq=seq, stack=str(tree.get("stack") or ""),
        model=_known_model(str(tree["model"])), notes=("The first plan of the answer is taken.",),
        optimizer=str(tree.get("optimizer") or ""), grad_dtype=str(tree.get("grad_dtype") or ""),
        expert_imbalance=str(tree.get("expert_imbalance") or ""),
    )  # fmt: skip


def _known_model(name: str) -> str | None:
    try:
        load_entry(name)
    except TrainwrightError:
        return None
    return name


def check_open(source: str, stated: StatedSettings) -> None:
    """Raise for what a user states and a complete plan does not leave open."""
    for name, value in (("--micro-batch", stated.micro_batch), ("--precision", stated.precision)):
        if value:
            rule = f"{source} is a complete plan, which says it"
            raise BadInput(name, str(value), rule, f"leave {name} out")
