"""`trainwright study flexible-plans`: plans beyond knobs against the best of known systems."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli import cost, pages
from trainwright.cli.refusal import refuse_given
from trainwright.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from trainwright.api.findings import Findings, Tell
    from trainwright.study.flexible_plans import Case, Outcome

_TITLE = "Flexible plans against systems of 2022 and the knobs of today"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the study."""
    parser.add_argument("--model", action="append", metavar="FAMILY", help="like swin (default: all)")
    parser.add_argument("--device", action="append", metavar="NAME", help="v100 or h100 (default: both)")
    parser.add_argument("--devices", metavar="N,N", default="8,16,32", help="how many (default: 8,16,32)")
    parser.add_argument(
        "--sensitivity",
        action="store_true",
        help="other memory and links on V100s instead, for one N (default: 8)",
    )
    cost.add_arguments(parser, "calibrated")
    parser.add_argument("--out", metavar="DIR", help="keep each case there, and do not run what it has")
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output"
    )
    parser.add_argument("--csv", metavar="FILE", help="the table as CSV")
    pages.add_reports(parser)


def run(options: argparse.Namespace) -> int:
    """Run the cases: each is told and kept as it ends, so that it can be interrupted."""
    from trainwright.study.flexible_plans import run_cases

    cases = _cases(options)
    _tell_sources(cases)
    folder = _folder(options.out)
    outcomes: list[Outcome] = []
    try:
        for outcome in run_cases(cases, folder, lambda line: print(line, file=sys.stderr, flush=True)):
            outcomes.append(outcome)
    except KeyboardInterrupt:
        print("trainwright: interrupted; what is below is what was done", file=sys.stderr)
        _write(options, outcomes)
        return 130
    _write(options, outcomes)
    return 0


def found(options: argparse.Namespace, tell: "Tell") -> "Findings":
    """What the study finds, for whoever shows it in another way."""
    from trainwright.study.flexible_plans import run_cases

    cases, outcomes = _cases(options), []
    for number, outcome in enumerate(run_cases(cases, None)):
        outcomes.append(outcome)
        tell(number + 1, len(cases), outcome.case.name)
    return _findings(outcomes)


def _findings(outcomes: "list[Outcome]") -> "Findings":
    from trainwright.api.findings import Findings
    from trainwright.study.flexible_table import outcome_figures, reasons, row_of

    return Findings(
        title=_TITLE, tables={"cases": [row_of(each) for each in outcomes]}, tree=outcomes,
        figures=outcome_figures(outcomes), lines=reasons(outcomes),
    )  # fmt: skip


def _cases(options: argparse.Namespace) -> "list[Case]":
    from trainwright.study.flexible_plans import DEVICES, FAMILIES, published_cases, sensitivity_cases
    from trainwright.units import parse_whole

    for kind, chosen, known in (("model", options.model, FAMILIES), ("device", options.device, DEVICES)):
        for name in chosen or ():
            if name not in known:
                raise UnknownName(f"study {kind}", name, known)
    if options.sensitivity:
        refuse_given(
            options, ("device",), "does not go with --sensitivity, which is of V100s", "leave out one"
        )
    counts = [parse_whole(word, "--devices") for word in options.devices.split(",")]
    for count in counts:
        if count not in (sizes := FAMILIES["swin"]):
            listed = ", ".join(map(str, sizes))
            raise BadInput(
                "--devices", count, f"models are published for {listed} devices", "use one of them"
            )
    if options.sensitivity and "devices" in options.given and len(counts) > 1:
        rule = "are several counts, and --sensitivity takes one"
        raise BadInput("--devices", options.devices, rule, "state one")
    cases = (
        sensitivity_cases(counts[0])
        if options.sensitivity
        else published_cases(options.device or DEVICES, counts)
    )
    chosen = [case for case in cases if case.family in (options.model or FAMILIES)]
    return [replace(case, cost=options.cost or "") for case in chosen]


def _tell_sources(cases: "list[Case]") -> None:
    """Where operator times come from, if that was asked for: on standard error, before the work begins."""
    from trainwright.study.flexible_plans import source_of

    asked = [case for case in cases if case.cost]
    for note in dict.fromkeys(note for case in asked for note in source_of(case).notes):
        print(note, file=sys.stderr, flush=True)


def _folder(text: str | None) -> Path | None:
    if not text:
        return None
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = f"cannot be made ({error.strerror})"
        raise BadInput("--out", text, rule, "choose another folder") from None
    return Path(text)


def _write(options: argparse.Namespace, outcomes: "list[Outcome]") -> None:
    from trainwright.api.pages import findings_page
    from trainwright.cli.pages import save_pages, wanted
    from trainwright.output_file import save_text
    from trainwright.report import tables
    from trainwright.report.files import render_csv, render_json
    from trainwright.study.flexible_table import COLUMNS, case_table, reasons, row_of

    rows = [row_of(each) for each in outcomes]
    notes = save_pages(options, findings_page(_findings(outcomes), options.asked)) if wanted(options) else []
    if options.csv:
        save_text(Path(options.csv), render_csv(COLUMNS, rows))
    if options.json == "-":
        print(render_json(outcomes), end="")
        return
    if options.json:
        save_text(Path(options.json), render_json(outcomes))
    console = tables.open_console()
    tables.show(console, case_table(outcomes))
    for line in reasons(outcomes):
        tables.show(console, tables.indented(console, line))
    for line in notes:
        tables.show(console, line)
