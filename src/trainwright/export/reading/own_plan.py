"""A plan from the text that `trainwright export --to trainwright` writes."""

import re

from trainwright.errors import BadInput, TrainwrightError
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.own_answer import check_open
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.load import load_entry
from trainwright.plan.expand import expand
from trainwright.plan.strategy import Strategy, parse_strategy
from trainwright.plan.text import parse_plan

_RUN = re.compile(r"^# trainwright run (\S+) THIS(?: --seq (\d{1,9}))?$", re.MULTILINE)
_STATEMENTS = (re.compile(r"^devices \d+$", re.MULTILINE), re.compile(r"^batch \d+$", re.MULTILINE))


def is_own_plan(text: str) -> bool:
    """Whether a text is a plan in statements."""
    return all(each.search(text) for each in _STATEMENTS)


def read_own_plan(text: str, source: str, stated: StatedSettings) -> Configured:
    """The strategy that a plan is named for; its statements must be those of that strategy."""
    check_open(source, stated)
    plan = parse_plan(text)
    strategy, run = _strategy(plan.name, source), _RUN.search(text)
    model = _catalog_model(run[1]) if run else None
    arch = stated.architecture or model
    if arch is None:
        raise BadInput("configuration", source, "does not name a model of the catalog", "state --model")
    batch = plan.batch * plan.microbatches
    if plan != expand(strategy, build_graph(arch), batch):
        rule = f"is not the plan of {strategy} for {arch.name}: it was changed, or is of another model"
        raise BadInput("configuration", source, rule, "state --model, or see trainwright simulate")
    return Configured(
        strategy=strategy, global_batch=batch, stack="trainwright",
        seq=int(run[2]) if run and run[2] else None,
        model=model.name if model and not stated.architecture else None,
    )  # fmt: skip


def _strategy(name: str, source: str) -> Strategy:
    try:
        return parse_strategy(name)
    except TrainwrightError:
        rule = "is a plan that is of no strategy"
        raise BadInput("configuration", source, rule, "see trainwright simulate") from None


def _catalog_model(name: str) -> Architecture | None:
    try:
        return load_entry(name).architecture
    except TrainwrightError:
        return None
