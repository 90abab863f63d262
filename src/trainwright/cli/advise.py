"""`trainwright advise`: how good is what is configured today, and what should be changed."""

import argparse
from typing import TYPE_CHECKING

from trainwright.api.requests import AdviseRequest
from trainwright.cli.pages import add_json, write_json
from trainwright.cli.request_options import add_fields, read_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.api.advise import ConfigurationAdvice
    from trainwright.search.advice import Change, Rated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_fields(parser, AdviseRequest)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Read, predict, compare; show or write it."""
    from trainwright.api.advise import answer_advise

    found = answer_advise(read_request(options, AdviseRequest))
    if not write_json(options, found):
        _show(found)
    return 0


def _show(found: "ConfigurationAdvice") -> None:
    from trainwright.api.recipe_lines import recipe_lines, today_line
    from trainwright.report import tables
    from trainwright.report.tables import render_risk
    from trainwright.units import render_bytes, render_duration

    configured, subject, advice = found.configured, found.subject, found.advice
    console = tables.open_console()
    tokens = configured.global_batch * subject.seq / subject.cluster.count
    capacity = subject.cluster.device.memory[0].usable_bytes

    def figures(each: "Rated") -> list[str]:
        fit = "" if each.total_bytes <= capacity else " (does not fit)"
        return [
            render_duration(each.step_s), f"{tokens / each.step_s:,.0f}",
            render_bytes(each.total_bytes) + fit, render_risk(each.oom_risk),
        ]  # fmt: skip

    def rows(changes: "Sequence[Change]") -> list[list[str]]:
        return [
            [each.idea, _words(each), f"{each.gain:+.1%}" if each.before.fits else "fits",
             *figures(each.after)]
            for each in changes
        ]  # fmt: skip

    headers = ["change", "to", "speed", "step", "tok/s/dev", "memory", "OOM risk"]
    tables.show(console, *found.notes, "")
    today = ["today", str(configured.strategy), "", *figures(advice.today)]
    tables.show(console, tables.table("Today", headers, [today], left=2))
    if not advice.today.fits:
        tables.show(console, f"It does not fit: devices have {render_bytes(capacity)}.", "")
    if not advice.alone:
        tables.show(console, "No single change makes it faster.", "")
    else:
        tables.show(console, tables.table("Each change alone", headers, rows(advice.alone), left=2))
    if advice.steps:
        title = "One after another, to the best that the software can run"
        tables.show(console, tables.table(title, headers, rows(advice.steps), left=2))
    if advice.best is not None:
        gain = advice.today.step_s / advice.best.step_s - 1.0
        better = f"{gain:+.1%}" if advice.today.fits else "fits"
        last = ["best of all", str(advice.best.strategy), better, *figures(advice.best)]
        tables.show(console, tables.table("All of them", headers, [last], left=2))
    if advice.published:
        said = (*recipe_lines(advice.published), today_line(advice.published, advice.today.step_s))
        tables.show(console, "Published recipe", *(tables.indented(console, line) for line in said), "")


def _words(change: "Change") -> str:
    """The knobs that differ."""
    before, after = str(change.before.strategy).split(), str(change.after.strategy).split()
    gone = [word for word in before if word not in after and not _number(word, after)]
    new = [word for word in after if word not in before]
    return " ".join([*new, *(f"(no {word})" for word in gone)])


def _number(word: str, words: list[str]) -> bool:
    """Whether the same knob is among some words with another number."""
    name = word.rstrip("0123456789")
    return name != word and any(each.rstrip("0123456789") == name for each in words)
