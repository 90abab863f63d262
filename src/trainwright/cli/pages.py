"""Files that a command writes of its result: `--json`, `--report FILE` and `--figures DIR`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwright.api.result import ReportedResult
    from trainwright.report.page import Page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that write them."""
    add_json(parser)
    add_reports(parser)


def add_reports(parser: argparse.ArgumentParser) -> None:
    """The options that write a report and pictures."""
    parser.add_argument("--report", metavar="FILE", help="all of it as one HTML file that opens offline")
    parser.add_argument("--figures", metavar="DIR", help="its figures as PNG and SVG")


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that prints or writes JSON."""
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output"
    )


def save_result(options: argparse.Namespace, result: "ReportedResult") -> list[str]:
    """Write the files that are asked for; a line for each that people should be told of."""
    lines = []
    if options.report:
        result.save_report(options.report)
        lines.append(f"Written: {options.report}")
    if options.figures:
        saved = result.save_figures(options.figures)
        lines.append(f"Written: {len(saved)} pictures in {options.figures}")
    if options.json and options.json != "-":
        result.save_json(options.json)
    return lines


def save_pages(options: argparse.Namespace, page: "Page") -> list[str]:
    """Write a report and its figures, if they are asked for; a line for each."""
    from trainwright.output_file import save_text
    from trainwright.report.figures import save_pictures
    from trainwright.report.page import render_page

    lines = []
    if options.report:
        save_text(Path(options.report), render_page(page))
        lines.append(f"Written: {options.report}")
    if options.figures:
        saved = save_pictures(Path(options.figures), page.figures)
        lines.append(f"Written: {len(saved)} pictures in {options.figures}")
    return lines


def wanted(options: argparse.Namespace) -> bool:
    """Whether there is anything to write."""
    return bool(options.report or options.figures)
