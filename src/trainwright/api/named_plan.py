"""A plan as a user names it: a file, a strategy, or a plan of the zoo with parameters."""

import json
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from trainwright.api.subject import Subject
from trainwright.errors import BadInput
from trainwright.model.flow import wire
from trainwright.plan.expand import count_microbatches, expand
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import ALIASES, PRECISIONS, SCHEDULES, Strategy, parse_strategy
from trainwright.plan.text import parse_plan
from trainwright.plan.zoo import ZOO, build_zoo, parse_zoo
from trainwright.search.usual import check_precision
from trainwright.simulate.whole import check_size

_NUMBERED = (*ALIASES, "full", *Strategy.__dataclass_fields__)
_FORMS = 'name a file, write a strategy like "dp8 tp4 pp2 mb1 zero1 1f1b", or a plan like "co-shard tp=2"'


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPlan:
    """A plan, and the strategy that it is of, if it is of one."""

    plan: Plan
    strategy: Strategy | None = None


def is_file(text: str) -> bool:
    """Whether a text names a file that is there."""
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):  # longer than names can be, or with a zero byte
        return False


def load_plan(path: Path, algorithm: str | None = None) -> Plan:
    """The plan of a file; one without a name is called as its file.

    Of an answer of `trainwright plan --algorithm --json`, that of the algorithm.
    """
    try:
        text = path.read_text(encoding="utf-8")
        plan = parse_plan(_plan_of_answer(path, text, algorithm) if path.suffix == ".json" else text)
    except OSError as error:
        raise BadInput("plan", str(path), f"cannot be read ({error.strerror})", "check the file") from None
    except UnicodeDecodeError:
        raise BadInput("plan", str(path), "is not text in UTF-8", "check the file") from None
    return plan if plan.name else replace(plan, name=path.stem)


def _plan_of_answer(path: Path, text: str, algorithm: str | None) -> str:
    """The text of a plan of islands in an answer: of the only algorithm, or of the one that is named."""
    try:
        found = {str(each["name"]): str(each["plan"]) for each in json.loads(text)["algorithms"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        rule = "is no answer of trainwright plan --algorithm"
        raise BadInput("plan", str(path), rule, "name a file that plan --algorithm --json wrote") from None
    name = (algorithm or "").split(" ")[0]
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        rule = f"has plans for {', '.join(found) or 'no algorithm'}"
        raise BadInput("plan", str(path), rule, "name one of them with --algorithm")
    return found[name]


def parse_named(text: str, subject: Subject, batch: int) -> NamedPlan:
    """The plan of a strategy or of the zoo, for so many sequences a step."""
    words = text.split()
    if not words:
        raise BadInput("plan", text, "is empty", _FORMS)
    if is_zoo(words):
        return NamedPlan(plan=_of_zoo(text, subject, batch))
    if len(words) > 1 or _is_knob(words[0]):
        return _of_strategy(text, subject, batch)
    raise BadInput("plan", text, "is no file, no strategy and no plan of the zoo", _FORMS)


def is_zoo(words: list[str]) -> bool:
    """Whether words are meant for the zoo; some names are words of strategies too, so the others decide."""
    name, *others = words
    if name in ZOO:
        return name not in SCHEDULES or not any(map(_is_knob, others))
    near = not others and bool(get_close_matches(name, ZOO))
    return not _is_knob(name) and (near or any("=" in word for word in others))


def _is_knob(word: str) -> bool:
    return word[-1].isdigit() and word.rstrip("0123456789") in _NUMBERED


def _of_strategy(text: str, subject: Subject, batch: int) -> NamedPlan:
    strategy = parse_strategy(text, unfused=subject.stack.attention == "unfused")
    if not set(PRECISIONS) & set(text.split()):
        strategy = replace(strategy, precision=subject.cluster.device.usual_precision)
    count = subject.cluster.count
    if strategy.devices > count:
        raise BadInput(
            "plan", text, f"is for {strategy.devices} devices, and the cluster has {count}",
            "lower a degree, or use a larger cluster",
        )  # fmt: skip
    check_size(len(wire(subject.graph)), count_microbatches(strategy, batch))
    stack = subject.stack
    plan = expand(strategy, subject.graph, batch, balanced=stack.balanced_stages)
    return NamedPlan(plan=plan, strategy=strategy)


def _of_zoo(text: str, subject: Subject, batch: int) -> Plan:
    name, parameters = parse_zoo(text)
    device, count = subject.cluster.device, subject.cluster.count
    precision = device.usual_precision
    if precision != "bf16":
        parameters = {"precision": precision} | parameters
    each = int(parameters.get("micro_batch", 1))
    check_size(len(wire(subject.graph)), batch // max(count * each, 1))
    return build_zoo(name, subject.graph, count, batch, **parameters)


def check_rate(plan: Plan, subject: Subject) -> None:
    """Raise for a precision that the device has no rate for."""
    check_precision(plan.precision, subject.cluster.device, f'plan "{plan.name}" precision')
