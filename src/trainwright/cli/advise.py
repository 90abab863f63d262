"""`trainwright advise`: how good is what is configured today, and what should be changed."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainwright.cli import expert_imbalance, memory_limit, optimizer

if TYPE_CHECKING:
    from trainwright.cli.subject import Subject
    from trainwright.export.reading.configured import Configured
    from trainwright.search.advice import Advice, Change, Rated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        help="a file of Megatron-LM's arguments (or the script around them), torchtitan's TOML, Python "
        "(FILE.py:FUNCTION) or flags, Megatron-Bridge's Python, DeepSpeed's JSON, YAML of accelerate, "
        "MaxText or nanotron, a plan that export wrote, an answer of trainwright plan --json, or a strategy "
        '("dp8 tp4 pp2 mb1 zero1 1f1b")',
    )
    parser.add_argument("cluster", metavar="CLUSTER", help='"h100:512", "h100:512@aws-p5", or a TOML file')
    parser.add_argument(
        "--model", metavar="MODEL", help="a catalog name, a config.json, or a TOML file (default: by CONFIG)"
    )
    parser.add_argument("--batch", metavar="N", help="sequences per step (default: that of CONFIG)")
    parser.add_argument("--seq", metavar="N", help="tokens per sequence (default: that of CONFIG)")
    parser.add_argument(
        "--micro-batch", metavar="N", help="sequences per microbatch (default: that of CONFIG)"
    )
    parser.add_argument("--precision", metavar="NAME", help="bf16, fp16, fp8, … (default: that of CONFIG)")
    parser.add_argument(
        "--vocab",
        metavar="N",
        help="entries of the vocabulary (default: by CONFIG or --model)",
    )
    parser.add_argument(
        "--set", action="append", metavar="NAME=VALUE",
        help="a variable of a script, before what it sets itself; 1=VALUE for $1; repeatable",
    )  # fmt: skip
    parser.add_argument("--stack", metavar="NAME", help="software (default: that of CONFIG)")
    parser.add_argument("--cost", metavar="SOURCE", help="operator times, as in trainwright simulate")
    optimizer.add_arguments(parser)
    expert_imbalance.add_arguments(parser)
    memory_limit.add_arguments(parser)
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output"
    )


class Advised(NamedTuple):
    """What was advised on, with which notes."""

    notes: tuple[str, ...]
    configured: "Configured"
    subject: "Subject"
    advice: "Advice"
    allowed_bytes: float  # that a plan may be predicted to fill, at the stated risk


def run(options: argparse.Namespace) -> int:
    """Read, predict, compare; show or write it."""
    from trainwright.report.files import render_json

    found = advised(options)
    save_advised(options, found)
    if options.json == "-":
        print(render_json(_tree(found)), end="")
    else:
        _show(found)
    return 0


def advised(options: argparse.Namespace) -> Advised:
    """Advice on the configuration that the options name."""
    from trainwright.cli.configured import legality_notes, parse_configured, parse_job
    from trainwright.search.advice import MemoryLimit, advise

    configured = parse_configured(options)
    subject, job = parse_job(options, configured)
    configured = replace(configured, global_batch=int(job.global_batch))
    refused = legality_notes(configured, subject, job)
    share, limited = memory_limit.parse_filled_share(options, subject.memory_spread)
    notes = (subject.title, *_notes(options, configured, subject), *refused, limited, *subject.basis)
    limit = MemoryLimit(spread=subject.memory_spread, filled_share=share)
    advice = advise(job, configured.strategy, limit=limit)
    return Advised(notes, configured, subject, advice, share * job.cluster.capacity_bytes)


def save_advised(options: argparse.Namespace, found: Advised) -> None:
    """Write the file that the options name, if any."""
    from trainwright.output_file import save_text
    from trainwright.report.files import render_json

    if options.json and options.json != "-":
        save_text(Path(options.json), render_json(_tree(found)))


def _notes(options: argparse.Namespace, configured: "Configured", subject: "Subject") -> tuple[str, ...]:
    from trainwright.cli.batch import batch_note

    return (
        f"{options.config}: {configured.strategy}",
        batch_note(configured.global_batch, subject.seq, f"of {options.config}"),
        *configured.notes,
    )


def _tree(found: Advised) -> Mapping[str, object]:
    configured, advice = found.configured, found.advice

    def change(each: "Change") -> dict[str, object]:
        return {"idea": each.idea, "gain": each.gain, "before": each.before, "after": each.after}

    return {
        "notes": found.notes, "configured": configured.strategy, "global_batch": configured.global_batch,
        "allowed_bytes": found.allowed_bytes,
        "today": advice.today, "alone": [change(each) for each in advice.alone],
        "steps": [change(each) for each in advice.steps], "best": advice.best,
        "published_recipe": advice.published,
    }  # fmt: skip


def _show(found: Advised) -> None:
    from trainwright.cli.recipe_lines import recipe_lines, today_line
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

    def rows(changes: "tuple[Change, ...]") -> list[list[str]]:
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
