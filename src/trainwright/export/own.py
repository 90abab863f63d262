"""A plan for our own runtime: its strategy as one line, or the plan itself as text."""

from collections.abc import Iterator

from trainwright.export.flags import comment
from trainwright.export.handover import Handover
from trainwright.model.build import build_graph
from trainwright.plan.expand import expand
from trainwright.plan.text import render_plan

NAME = "Trainwright"


def remarks(handover: Handover) -> Iterator[str]:
    """How to run it."""
    yield f"trainwright run {handover.model or 'MODEL'} THIS" + (
        f" --seq {handover.seq}" if handover.seq else ""
    )


def render(handover: Handover, notes: list[str]) -> str:
    """The plan of a known model as text."""
    assert handover.architecture is not None
    graph = build_graph(handover.architecture)
    return comment(notes) + render_plan(expand(handover.strategy, graph, handover.global_batch))
