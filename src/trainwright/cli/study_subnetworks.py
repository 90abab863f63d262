"""`trainwright study subnetworks`: independent subnetworks against what users would pick instead."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli import pages
from trainwright.cli.needs_torch import check_torch
from trainwright.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.api.findings import Findings, Tell
    from trainwright.study.subnetworks import Setting, Study

_TITLE = "Independent subnetworks against what users would pick instead"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the study."""
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer methods, steps and rates: a minute instead of several")
    add(
        "--data", metavar="FILE.npz",
        help="the MLP's part, on samples of yours: arrays `inputs` (a row a sample) and `labels`",
    )  # fmt: skip
    add(
        "--out", metavar="DIR",
        help="tables (CSV, JSON), figures and an index; runs are kept there, and not run again",
    )  # fmt: skip
    pages.add_reports(parser)
    add("--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output")
    add("--risk", metavar="FILE", help="what each algorithm loses, as TOML: the table that plan shows")


def run(options: argparse.Namespace) -> int:
    """Run what is not kept, tell, and write what was asked for."""
    from trainwright.output_file import make_folder
    from trainwright.study.subnetworks import run_study

    check_torch("study subnetworks")
    settings = _settings(options)
    folder = Path(options.out) if options.out else None
    if folder:
        make_folder(folder)
    try:
        study = run_study(settings, folder, _tell_progress)
    except KeyboardInterrupt:
        kept = f"; the same command goes on from what {folder} has" if folder else ""
        print(f"\ntrainwright: interrupted{kept}", file=sys.stderr)
        return 130
    _write(study, options)
    return 0


def found(options: argparse.Namespace, tell: "Tell") -> "Findings":
    """What the study finds, for whoever shows it in another way."""
    from trainwright.study.subnetworks import run_study

    check_torch("study subnetworks")
    if options.data:
        raise BadInput("--data", options.data, "is a file, which only a terminal may name", "ask there")
    return _findings(run_study(_settings(options), None, tell))


def _settings(options: argparse.Namespace) -> "Sequence[Setting]":
    """What is compared on."""
    from trainwright.study.subnetworks import FULL, QUICK, given_settings

    if not options.data:
        return QUICK if options.quick else FULL
    for name in ("quick", "risk"):
        if getattr(options, name):
            rule = f"does not go with --{name}, which is of our own data"
            raise BadInput("--data", options.data, rule, "leave one out")
    from trainwright.algorithm.samples import given_samples

    return given_settings(given_samples(options.data))


def _tell_progress(done: int, planned: int, what: str) -> None:
    print(f"{done}/{planned} {what}", file=sys.stderr, flush=True)


def _findings(study: "Study") -> "Findings":
    from trainwright.api.findings import Findings
    from trainwright.study.subnetworks_figures import study_figures
    from trainwright.study.subnetworks_tables import study_lines, study_tables

    tables = study_tables(study)
    lines = study_lines(study)
    return Findings(
        title=_TITLE,
        tables=tables,
        tree={"lines": lines, **tables},
        figures=study_figures(study),
        lines=lines,
    )


def _write(study: "Study", options: argparse.Namespace) -> None:
    from trainwright.cli.study_folder import save_findings
    from trainwright.output_file import save_text
    from trainwright.report.files import render_json
    from trainwright.study.subnetworks_tables import study_lines, study_tables

    notes = save_findings(options, lambda: _findings(study))
    if options.risk:
        save_text(Path(options.risk), _risks(study, options))
        notes.append(f"Written: {options.risk}")
    if options.json is not None:
        text = render_json({"lines": study_lines(study), **study_tables(study)})
        if options.json == "-":
            print(text, end="")
            return
        save_text(Path(options.json), text)
    _tell(study, notes)


def _risks(study: "Study", options: argparse.Namespace) -> str:
    from datetime import UTC, datetime

    from trainwright.algorithm.risk import render_risks
    from trainwright.study.subnetworks_tables import risks

    day = datetime.now(tz=UTC).date().isoformat()
    command = f"trainwright study subnetworks{' --quick' if options.quick else ''}"
    head = (
        "Loss above exact data parallelism's after as many steps, measured on small networks.\n"
        f"Written by `{command} --risk FILE`, not by hand."
    )
    return render_risks(risks(study, f"{command}, {day}"), head)


def _tell(study: "Study", notes: list[str]) -> None:
    from trainwright.report import tables as printed
    from trainwright.study import subnetworks_tables as tables
    from trainwright.study.subnetworks_coupling import coupling_table

    console = printed.open_console()
    for setting in study.settings:
        printed.show(console, tables.result_table(study, setting.network, setting.workers))
    if study.estimates:
        printed.show(console, coupling_table(study))
    if study.places:
        printed.show(console, tables.map_table(study))
    for line in tables.study_lines(study):
        printed.show(console, printed.indented(console, line))
    for line in notes:
        printed.show(console, line)
