"""`trainwright study scaling`: what more devices give."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli import cost, pages
from trainwright.errors import BadInput

if TYPE_CHECKING:
    from trainwright.api.findings import Findings, Tell
    from trainwright.study.scaling import Asked, Study

_TITLE = "What more devices give"
_MOST = 100_000_000
_MOST_DEVICES = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the study; defaults are those of `Asked`."""
    add = parser.add_argument
    add("--model", metavar="MODEL", help="the subject (default: llama2-7b)")
    add(
        "--device", metavar="DEVICE",
        help="of its clusters, like h100 or h100@aws-p5, or that of a cluster file (default: h100)",
    )  # fmt: skip
    add("--devices", metavar="A:B", help="scales, doubled from A to B, or as a list A,B,C (default: 8:2048)")
    add("--seq", metavar="N", help="tokens of a sequence (default: 4096)")
    add("--local-batch", metavar="N", help="sequences for each device in weak scaling (default: 2)")
    add("--batch", metavar="N,M", help="sequences a step in strong scaling (default: 32,1024)")
    add("--stack", metavar="STACK", help="the software (default: generic)")
    cost.add_arguments(parser, "those of DEVICE if it is such a file, else calibrated")
    add("--models", metavar="M,N", help="to compare by size (default: Llama-2 and its kin, 1.1B to 70B)")
    add("--contexts", metavar="N,M", help="lengths to compare (default: 2048 to 32768)")
    add("--generations", metavar="D,E", help="devices to compare (default: v100,a100,h100,b200)")
    add("--out", metavar="DIR", help="tables (CSV, JSON), figures (HTML, PNG) and an index")
    pages.add_reports(parser)
    add("--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output")
    add("--csv", nargs="?", const="-", metavar="FILE", help="all points as CSV, likewise")


def run(options: argparse.Namespace) -> int:
    """Predict, tell, and write what was asked for."""
    from trainwright.cli.study_folder import save_findings
    from trainwright.study.scaling import run_study

    if options.json is not None and options.json == options.csv:
        raise BadInput("--csv", options.csv, "has the JSON already", "name another file for one of them")
    study = run_study(_asked(options))
    notes = save_findings(options, lambda: _findings(study))
    if not _save_files(study, options):
        _tell(study, notes)
    return 0


def _asked(options: argparse.Namespace) -> "Asked":
    """What the options say, over the defaults."""
    from trainwright.study.scaling import Asked
    from trainwright.units import parse_whole

    stated: dict[str, object] = {
        name: getattr(options, name)
        for name in ("model", "device", "stack", "cost")
        if getattr(options, name)
    }
    for name in ("models", "generations"):
        if text := getattr(options, name):
            stated[name] = tuple(dict.fromkeys(each.strip() for each in text.split(",")))
    for name, key in (("batch", "batches"), ("contexts", "contexts")):
        if text := getattr(options, name):
            stated[key] = _numbers(text, f"--{name}")
    for name in ("seq", "local_batch"):
        if text := getattr(options, name):
            stated[name] = parse_whole(text, f"--{name.replace('_', '-')}", most=_MOST)
    if options.devices:
        stated["devices"] = _scales(options.devices)
    return Asked(**stated)  # type: ignore[arg-type]


def _numbers(text: str, thing: str, most: int = _MOST) -> tuple[int, ...]:
    from trainwright.units import parse_whole

    return tuple(dict.fromkeys(parse_whole(each.strip(), thing, most=most) for each in text.split(",")))


def _scales(text: str) -> tuple[int, ...]:
    first, colon, last = text.partition(":")
    if not colon:
        return _numbers(text, "--devices", _MOST_DEVICES)
    low, high = (_numbers(each, "--devices", _MOST_DEVICES)[0] for each in (first, last))
    return tuple(low << power for power in range((high // low).bit_length()) if low << power <= high)


def found(options: argparse.Namespace, tell: "Tell") -> "Findings":
    """What the study finds, for whoever shows it in another way."""
    from trainwright.study.scaling import run_study

    return _findings(run_study(_asked(options)))


def _findings(study: "Study") -> "Findings":
    from trainwright.api.findings import Findings
    from trainwright.study import scaling_tables as tables
    from trainwright.study.scaling_figures import study_figures

    return Findings(
        title=_TITLE, tables=tables.study_tables(study), tree=tables.study_tree(study),
        figures=study_figures(study), lines=[*tables.head_lines(study), *tables.tail_lines(study)],
    )  # fmt: skip


def _save_files(study: "Study", options: argparse.Namespace) -> bool:
    """JSON and CSV; whether one of them took standard output."""
    from trainwright.output_file import save_text
    from trainwright.report.files import render_csv, render_json
    from trainwright.study.scaling_tables import study_tables, study_tree

    asked: dict[str, str] = {}
    if options.json is not None:
        asked[options.json] = render_json(study_tree(study))
    if options.csv is not None:
        rows = study_tables(study)["points"]
        asked[options.csv] = render_csv(list(rows[0]), rows)
    for target, text in asked.items():
        if target == "-":
            print(text, end="")
        else:
            save_text(Path(target), text)
    return "-" in asked


def _tell(study: "Study", notes: list[str]) -> None:
    from trainwright.report import tables as printed
    from trainwright.study import scaling_tables as tables
    from trainwright.study.scaling_figures import study_figures

    console = printed.open_console()
    parts = (
        tables.weak_table, tables.marginal_table, tables.degree_table, tables.strong_table,
        tables.cases_table,
    )  # fmt: skip
    for line in tables.head_lines(study):
        printed.show(console, printed.indented(console, line))
    for part in parts:
        printed.show(console, part(study))
    for line in tables.tail_lines(study):
        printed.show(console, printed.indented(console, line))
    for figure in study_figures(study):
        told = f"[{figure.verdict}] {figure.claim} {figure.finding}"
        printed.show(console, printed.indented(console, told))
    for line in notes:
        printed.show(console, line)
