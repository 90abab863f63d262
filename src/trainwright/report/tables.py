"""Tables for people: rich on a terminal, plain text elsewhere."""

import sys
from collections.abc import Sequence
from textwrap import fill
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainwright.report.run_lines import render_range, run_lines, speed_line
from trainwright.report.summary import Summary
from trainwright.report.whatif import WhatIf
from trainwright.units import render_bytes, render_duration

PLAIN_WIDTH = 100  # where there is no terminal to ask
LONG_WORD = len("offload-activations")  # of a strategy: longer ones get the room between columns


def open_console(file: IO[str] | None = None) -> Console:
    """A console that is as wide as the terminal, or 100 columns of plain text without one."""
    stream = file or sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Table:
    """A table whose first `left` columns are text and the rest numbers."""
    result = Table(
        title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold"
    )
    for index, header in enumerate(headers):
        result.add_column(
            header, justify="left" if index < left else "right", no_wrap=index >= left, overflow="fold"
        )
    for row in rows:
        result.add_row(*(Text(cell) for cell in row))
    return result


def families_table(summaries: Sequence[Summary], variants: Sequence[int]) -> Table:
    """The best strategies as `plans_table` has them, with the number of equivalent variants below each."""
    counts = [f"{count} variants within 1 %" if count > 1 else "" for count in variants]
    return plans_table(summaries, below=counts)


def plans_table(
    summaries: Sequence[Summary], variants: Sequence[int] = (), *, below: Sequence[str] = ()
) -> Table:
    """The best strategies, one row each; with the number of variants of each in a column, or words below."""
    several = len({each.global_batch for each in summaries}) > 1
    headers = [
        "#",
        "strategy",
        *(["batch"] if several else []),
        "step",
        "low–high",
        "tok/s/dev",
        "MFU",
        "HFU",
        "memory",
        "OOM risk",
        *(["variants"] if variants else []),
    ]
    counts = list(map(str, variants)) or [""] * len(summaries)
    added = [f"\n{words}" if words else "" for words in below] or [""] * len(summaries)
    rows = [
        [
            str(rank),
            f"{each.strategy}{words}",
            *([str(each.global_batch)] if several else []),
            render_duration(each.step_s),
            render_range(each.low_s, each.high_s),
            f"{each.tokens_per_s_per_device:,.0f}",
            f"{each.mfu:.1%}",
            f"{each.hfu:.1%}",
            render_bytes(each.total_bytes),
            render_risk(each.oom_risk),
            *([count] if variants else []),
        ]
        for rank, (each, count, words) in enumerate(zip(summaries, counts, added, strict=True), start=1)
    ]
    result = table("", headers, rows, left=2)
    longest = max((len(word) for each in summaries for word in str(each.strategy).split()), default=0)
    result.collapse_padding = longest > LONG_WORD
    return result


def render_risk(risk: float) -> str:
    """A probability in whole percent; very small ones as a bound."""
    return "<1%" if risk < 0.005 else f"{risk:.0%}"


def front_table(front: Sequence[Summary]) -> Table:
    """The Pareto front, without points that need less than 2 % fewer bytes than the one before."""
    shown: list[Summary] = []
    for each in front:
        if not shown or each.total_bytes < 0.98 * shown[-1].total_bytes:
            shown.append(each)
    return plans_table(shown)


def breakdown_table(summary: Summary) -> Table:
    """Where the step's time goes: the exposed time of each cause, and of communication also the total."""
    rows = []
    for name, value in sorted(summary.time_s.items(), key=lambda item: -item[1]):
        whole = summary.communication_s.get(name)
        if value > 1e-6 * summary.step_s or whole:
            rows.append(
                [
                    name,
                    render_duration(value),
                    f"{value / summary.step_s:.1%}",
                    render_duration(whole) if whole else "",
                ]
            )
    return table("Time of a step", ["part", "exposed", "share", "total"], rows)


def memory_table(summary: Summary) -> Table:
    """What fills the fullest device."""
    parts = sorted(summary.memory_bytes.items(), key=lambda item: -item[1])
    rows = [
        [name, render_bytes(value), f"{value / summary.capacity_bytes:.1%}"]
        for name, value in parts
        if value > 0
    ]
    rows.append(
        ["total", render_bytes(summary.total_bytes), f"{summary.total_bytes / summary.capacity_bytes:.1%}"]
    )
    if summary.host_bytes:
        rows.append(["on the host", render_bytes(summary.host_bytes), ""])
    return table("Memory of the fullest device", ["part", "bytes", "of capacity"], rows)


def tiers_table(summary: Summary) -> Table:
    """What lies in which expanded tier, and what a step moves to and from it."""
    names = ("weights", "gradients", "optimizer", "activations")
    rows = [
        [
            tier,
            *(render_bytes(parts[name]) if parts[name] else "" for name in names),
            render_bytes(sum(parts[name] for name in names)),
            render_bytes(parts["traffic"]),
        ]
        for tier, parts in summary.tiers.items()
    ]
    spent = render_duration(summary.time_s["tiers"]) if summary.time_s["tiers"] else "nothing"
    return table(
        f"In expanded memory (adds {spent} to a step)", ["tier", *names, "total", "moved a step"], rows
    )


def what_if_table(answers: Sequence[WhatIf], winners: Sequence[str], compared: int) -> Table:
    """How much faster each improvement makes training, and with which of the best plans compared.

    `winners` are the best plan and those equivalent to it: one of them is the same plan.
    """
    rows = [
        [
            each.resource,
            f"{each.faster:+.1%}",
            "the same" if str(each.strategy) in winners else str(each.strategy),
        ]
        for each in answers
    ]
    among = f"among the {compared} best plans" if compared > 1 else "with the best plan"
    result = table(f"What if 25 % better ({among})", ["", "faster", "best plan then"], rows)
    result.columns[2].justify, result.columns[2].no_wrap = "left", False
    return result


def show(console: Console, *parts: object) -> None:
    """Print tables and lines; where there is no terminal, without trailing blanks."""
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    lines = [line.rstrip() for line in captured.get().splitlines()]
    console.file.write("\n".join(lines) + "\n")


def indented(console: Console, line: str) -> str:
    """A sentence inside the console's width, with its further lines set in."""
    return fill(
        line, width=console.width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )


def headline(summary: Summary) -> tuple[str, ...]:
    """The winner in a few lines: speed and utilisation; what the run takes; energy; interruptions."""
    return (speed_line(summary), *run_lines(summary))
