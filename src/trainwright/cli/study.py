"""`trainwright study`: published comparisons, reproduced; each with options of its own."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.api.study_requests import STUDY_REQUESTS
from trainwright.cli import pages
from trainwright.cli.command_parser import CommandParser
from trainwright.cli.refusal import refuse_given
from trainwright.cli.request_options import add_fields, read_request
from trainwright.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from trainwright.api.study import StudyFindings

_CSV = {"scaling": "points", "flexible-plans": "cases"}  # studies with `--csv`, and the table that it writes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The name of a study; what follows is the study's."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="which one (default: list them)")
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="its options: trainwright study NAME --help"
    )


def study_parser(name: str) -> CommandParser:
    """The parser of a study's options."""
    from trainwright.study import STUDIES

    if name not in STUDIES:
        raise UnknownName("study", name, STUDIES)
    line = STUDIES[name]
    parser = CommandParser(prog=f"trainwright study {name}", description=line[0].upper() + line[1:] + ".")
    add_fields(parser, STUDY_REQUESTS[name])
    parser.add_argument(
        "--out", metavar="DIR",
        help="tables (CSV, JSON), figures (HTML, PNG) and an index; a study that takes long resumes from it",
    )  # fmt: skip
    if name in _CSV:
        parser.add_argument(
            "--csv",
            nargs="?",
            const="-",
            metavar="FILE",
            help="rows as CSV, to a file or standard output",
        )
    if name == "subnetworks":
        shown = "what each algorithm loses, as TOML: the table that plan shows"
        parser.add_argument("--risk", metavar="FILE", help=shown)
    pages.add_arguments(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """List the studies, or run one."""
    from trainwright.study import STUDIES

    if not options.name:
        for name, line in STUDIES.items():
            print(f"{name}: {line}")
        return 0
    return _run(options.name, options.rest)


def _run(name: str, words: Sequence[str]) -> int:
    """Run a study, show it, and write what was asked for."""
    options = study_parser(name).parse_options(words)
    if name in _CSV and options.json is not None and options.json == options.csv:
        raise BadInput("--csv", options.csv, "has the JSON already", "name another file for one of them")
    if name == "subnetworks" and options.data:
        refuse_given(options, ("risk",), "is of our own data, and --data names others", "leave out one")
    from trainwright.api.study import StudyInterrupted, answer_study
    from trainwright.output_file import make_folder

    request = read_request(options, STUDY_REQUESTS[name])
    folder = Path(options.out) if options.out else None
    if folder:
        make_folder(folder)
    try:
        findings = answer_study(request, _report_progress, folder)
    except StudyInterrupted as interrupted:
        print("trainwright: interrupted; what is below is what was done", file=sys.stderr)
        _write(name, options, interrupted.findings)
        return 130
    except KeyboardInterrupt:
        kept = f"; the same command continues from what {folder} has" if folder else ""
        print(f"\ntrainwright: interrupted{kept}", file=sys.stderr)
        return 130
    _write(name, options, findings)
    return 0


def _report_progress(done: int, planned: int, what: str) -> None:
    print(f"{done}/{planned} {what}", file=sys.stderr, flush=True)


def _write(name: str, options: argparse.Namespace, findings: "StudyFindings") -> None:
    from trainwright.cli.study_shown import show_study
    from trainwright.output_file import save_text
    from trainwright.report.files import render_csv, render_json

    notes = findings.save_folder(options.out) if options.out else []
    notes += pages.save_reports(options, findings)
    if name == "subnetworks" and options.risk:
        save_text(Path(options.risk), _risks(findings, quick=options.quick))
        notes.append(f"Written: {options.risk}")
    texts: dict[str, str] = {}
    if options.json is not None:
        texts[options.json] = render_json(findings.values)
    if name in _CSV and options.csv is not None:
        rows = findings.tables[_CSV[name]]
        texts[options.csv] = render_csv(list(rows[0]), rows)
    for target, text in texts.items():
        if target == "-":
            print(text, end="")
        else:
            save_text(Path(target), text)
    if "-" not in texts:
        show_study(name, findings.study, findings.figures())
        for line in notes:
            print(line)


def _risks(findings: "StudyFindings", *, quick: bool) -> str:
    from datetime import UTC, datetime

    from trainwright.algorithm.risk import render_risks
    from trainwright.study.subnetworks_tables import risks

    day = datetime.now(tz=UTC).date().isoformat()
    command = f"trainwright study subnetworks{' --quick' if quick else ''}"
    head = (
        "Loss above exact data parallelism's after as many steps, measured on small networks.\n"
        f"Written by `{command} --risk FILE`, not by hand."
    )
    return render_risks(risks(findings.study, f"{command}, {day}"), head)
