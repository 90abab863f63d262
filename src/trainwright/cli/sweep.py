"""`trainwright sweep`: run a sweep, ask its dataset, draw it."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.api.requests import SweepRequest
from trainwright.cli import pages
from trainwright.cli.refusal import flag_of, refuse_given, refuse_others
from trainwright.cli.request_options import add_fields, read_request
from trainwright.errors import BadInput

if TYPE_CHECKING:
    from trainwright.api.sweep import Swept
    from trainwright.sweep.dataset import Manifest

_TAKEN = {  # options of each thing that the first word can say; of a file, `run`
    "run": ("out", "workers", "ray", "json", "report", "figures"),
    "query": ("json", "csv"),
    "plot": ("out", "x", "y", "z", "color", "best", "where", "log"),
    "check": (),
    "example": (),
}
_EPILOG = """\
trainwright sweep SWEEP.toml --out DIR        run it, or go on with it where it was interrupted
trainwright sweep query DIR "SQL"             ask the dataset: its table is points
trainwright sweep plot DIR --x A --y B        lines, or with --z a heat map, as HTML and PNG
trainwright sweep check DIR                   whether every file is as it was written
trainwright sweep example [NAME]              a sweep to start from"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.epilog, parser.formatter_class = _EPILOG, argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add_fields(parser, SweepRequest)
    add("rest", metavar="DIR", nargs="*", help="of query, plot and check: the folder of a sweep, and SQL")
    add("--json", action="store_true", help="the manifest, or a query's rows, as JSON")
    add("--csv", action="store_true", help="a query's rows as CSV")
    pages.add_reports(parser)
    group = parser.add_argument_group("plot")
    group.add_argument("--x", metavar="COLUMN")
    group.add_argument("--y", metavar="COLUMN")
    group.add_argument("--z", metavar="COLUMN", help="a heat map of this over --x and --y")
    group.add_argument("--color", metavar="COLUMN", help="a line for each of its values")
    group.add_argument(
        "--best", default="min", metavar="WAY", help="of points at one place: min, max or mean"
    )
    group.add_argument("--where", default="feasible", metavar="SQL", help="which points (default: feasible)")
    group.add_argument("--log", action="store_true", help="a logarithmic x")


def run(options: argparse.Namespace) -> int:
    """Do what the first word says; a word that is none of the actions is a file."""
    actions: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "query": _query, "plot": _plot, "check": _check, "example": _example,
    }  # fmt: skip
    action = actions.get(options.what)
    if action is None and options.rest:
        raise BadInput("sweep", options.what, "is none of query, plot, check, example", "see --help")
    check_options(options)
    return (action or _run)(options)


def check_options(options: argparse.Namespace) -> None:
    """Raise for an option that what the first word says does not have."""
    verb = options.what if options.what in _TAKEN else "run"
    taken = _TAKEN[verb]
    listed = (
        " and ".join(flag_of(each) for each in taken) if len(taken) < 3 else ", ".join(map(flag_of, taken))
    )
    rule = f"is not for sweep {verb}, which takes {listed or 'no options'}"
    if verb == "run":
        rule = f"is not for running a sweep, which takes {listed}"
    refuse_others(options, taken, rule)
    if verb == "query" and options.json:
        refuse_given(options, ("csv",), "does not go with --json", "choose one of them")


def _run(options: argparse.Namespace) -> int:
    from trainwright.api.sweep import answer_sweep
    from trainwright.cli.show import Show

    try:
        with Show(patient=True) as show:
            swept = answer_sweep(read_request(options, SweepRequest), show.report_progress)
    except KeyboardInterrupt:
        import sys

        folder = options.out or "the folder with the sweep's name"
        text = f"interrupted; what is finished is in {folder}: run the same command again to resume"
        print(f"trainwright: {text}", file=sys.stderr)
        return 130
    written = pages.save_reports(options, swept)
    if options.json:
        print(swept.to_json(), end="")
        return 0
    _show(swept)
    for line in written:
        print(line)
    return 0


def _show(swept: "Swept") -> None:
    from trainwright.report import tables

    console, manifest = tables.open_console(), swept.manifest
    size = sum(part.bytes for part in manifest.parts) / 1e6
    counted = f"{swept.row_count:,} rows of {manifest.points:,} points"
    tables.show(console, f"{swept.sweep.name}: {counted}, {size:,.1f} MB in {swept.folder}")
    found = swept.fastest() if swept.row_count else []
    if found:
        rows, columns = [[_cell(each) for each in row.values()] for row in found], list(found[0])
        tables.show(console, tables.table("The fastest", columns, rows, left=len(columns) - 2))
    if swept.row_count:
        tables.show(console, *swept.infeasible_lines())
        tables.show(console, f'Ask on: trainwright sweep query {swept.folder} "select ... from points"')


def _query(options: argparse.Namespace) -> int:
    from trainwright.report import tables
    from trainwright.report.files import render_csv, render_json
    from trainwright.sweep.query import query

    folder, sql = _words(options, "a folder and a query", 2)
    _load_manifest(folder)
    answer = query(Path(folder), sql)
    if options.json:
        print(render_json(list(answer.records())), end="")
    elif options.csv:
        print(render_csv(answer.columns, answer.records()), end="")
    else:
        rows = [[_cell(each) for each in row] for row in answer.rows]
        console = tables.open_console()
        tables.show(console, tables.table("", answer.columns, rows, left=len(answer.columns)))
    return 0


def _plot(options: argparse.Namespace) -> int:
    from trainwright.sweep.plot import Ask, plot

    (folder,) = _words(options, "a folder", 1)
    for name in ("x", "y"):
        if not getattr(options, name):
            raise BadInput(f"sweep plot --{name}", "", "is missing", f"name a column: --{name} step_s")
    if options.z:
        refuse_given(options, ("color", "log"), "is for lines, and --z asks for a heat map", "leave out one")
    ask = Ask(
        x=options.x, y=options.y, z=options.z or "", color=options.color or "", best=options.best,
        where=options.where, log=options.log,
    )  # fmt: skip
    _load_manifest(folder)
    for path in plot(Path(folder), ask, Path(options.out or ".")):
        print(f"Written: {path}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from trainwright.sweep.dataset import check_parts

    (folder,) = _words(options, "a folder", 1)
    manifest = _load_manifest(folder)
    check_parts(Path(folder), manifest)
    state = (
        "finished" if manifest.finished else f"{manifest.planned - len(manifest.parts)} are still to be made"
    )
    print(f"{len(manifest.parts)} of {manifest.planned} parts are as they were written; {state}")
    return 0


def _load_manifest(folder: str) -> "Manifest":
    """The manifest of a folder; says so if nothing can be said of whether it is as it was written."""
    import sys

    from trainwright.sweep.dataset import MANIFEST, load_manifest

    manifest = load_manifest(Path(folder))
    if not manifest.sealed:
        text = f"{Path(folder) / MANIFEST} has no checksum (an earlier version wrote it): it is not verified"
        print(f"trainwright: {text}", file=sys.stderr)
    return manifest


def _example(options: argparse.Namespace) -> int:
    from trainwright.errors import UnknownName
    from trainwright.sweep.load import EXAMPLES

    names = sorted(path.stem for path in EXAMPLES.glob("*.toml"))
    if len(options.rest) > 1:
        _words(options, "one name at most", 1)
    name = options.rest[0] if options.rest else "memory-and-network"
    if name not in names:
        raise UnknownName("sweep example", name, names)
    print((EXAMPLES / f"{name}.toml").read_text(encoding="utf-8"), end="")
    return 0


def _words(options: argparse.Namespace, wanted: str, count: int) -> list[str]:
    if len(options.rest) != count:
        raise BadInput(f"sweep {options.what}", " ".join(options.rest), f"needs {wanted}", "see --help")
    return list(options.rest)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
