"""The plan of a run, as the options name it: for the processes that there are, in a precision they have."""

import argparse
from dataclasses import replace
from pathlib import Path

from trainwright.api.named_plan import is_file, is_zoo, load_plan, parse_named
from trainwright.api.subject import Subject
from trainwright.cost.load import Interval
from trainwright.cost.memory_risk import UNKNOWN_SPREAD
from trainwright.errors import BadInput
from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import PRECISIONS
from trainwright.runtime.elastic import replan
from trainwright.runtime.machine import build_setting
from trainwright.runtime.process import has_gpu
from trainwright.search.usual import MOST_BATCH
from trainwright.units import parse_whole

_MOST_PROCESSES = 65_536
_BATCH = 8


def parse_precision(options: argparse.Namespace) -> str:
    """The precision that a plan will have: the one asked for, the one in it, else what suits the device."""
    text = " ".join(options.plan)
    if options.precision or is_file(text):
        return str(options.precision or load_plan(Path(text)).precision)
    stated = [_precision(word) for word in text.split() if _precision(word) in PRECISIONS]
    return stated[-1] if stated else _usual()


def _precision(word: str) -> str:
    return word.removeprefix("precision=")


def _usual() -> str:
    return "bf16" if has_gpu() else "fp32"


def parse_plan(options: argparse.Namespace, graph: Graph, seq: int, count: int | None) -> Plan:
    """The plan that the options name; if fewer processes are left than it is for, another one."""
    text = " ".join(options.plan)
    plan = _plan_of_file(options, text) if is_file(text) else _named_plan(options, text, graph, seq, count)
    _check_processes(options, plan)
    if options.elastic and count is not None and count < plan.devices:
        return replan(graph, count, plan.batch * plan.microbatches, seq, plan.precision)
    return plan


def _check_processes(options: argparse.Namespace, plan: Plan) -> None:
    """Raise if processes are asked for that the plan has no work for, or too few for it."""
    if options.processes is None:
        return
    asked = parse_whole(options.processes, "--processes", most=_MOST_PROCESSES)
    if asked != plan.devices:
        rule = f"is not the {plan.devices} that the plan is for"
        raise BadInput("--processes", options.processes, rule, "leave it out, or change the plan")


def _plan_of_file(options: argparse.Namespace, text: str) -> Plan:
    plan = load_plan(Path(text))
    own = plan.batch * plan.microbatches
    if options.batch and parse_whole(options.batch, "--batch", most=MOST_BATCH) != own:
        rule = f"the plan has batch x microbatches = {own}"
        raise BadInput("--batch", options.batch, rule, "leave it out, or change the file")
    return replace(plan, precision=options.precision or plan.precision)


def _named_plan(options: argparse.Namespace, text: str, graph: Graph, seq: int, count: int | None) -> Plan:
    """The plan of a strategy or of the zoo."""
    zoo = bool(text.split()) and is_zoo(text.split())
    if options.processes:
        count = parse_whole(options.processes, "--processes", most=_MOST_PROCESSES)
    if zoo and count is None:
        raise BadInput("plan", text, "does not say on how many processes", "state --processes")
    subject = _subject(graph, seq, count if zoo and count else _MOST_PROCESSES)
    batch = parse_whole(options.batch, "--batch", most=MOST_BATCH) if options.batch else _BATCH
    parse_named(text, subject, batch)  # what is wrong with it is said in the user's own words
    return parse_named(_with_precision(options, text, zoo=zoo), subject, batch).plan


def _with_precision(options: argparse.Namespace, text: str, *, zoo: bool) -> str:
    """The name of a plan with a precision: the one asked for, the one in it, else what suits the device."""
    words = text.split()
    stated = [word for word in words if _precision(word) in PRECISIONS]
    if stated and not options.precision:
        return text
    precision = options.precision or _usual()
    kept = [word for word in words if word not in stated]
    return " ".join([*kept, f"precision={precision}" if zoo else precision])


def _subject(graph: Graph, seq: int, count: int) -> Subject:
    """A model on processes of this machine, as commands name their plans for it."""
    setting = build_setting(graph, count, seq, "fp32")
    return Subject(
        graph=graph, cluster=setting.cluster, stack=setting.stack, efficiency=setting.efficiency, seq=seq,
        interval=Interval(low=1.0, high=1.0), memory_spread=UNKNOWN_SPREAD, title=graph.name, basis=(),
    )  # fmt: skip
