"""Files that a command writes of its result: `--json`, `--report FILE` and `--figures DIR`."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwright.api.result import ReportedResult, Result


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


def write_json(options: argparse.Namespace, result: "Result") -> bool:
    """Print or write JSON, if it is asked for; whether it was printed, and nothing else should be."""
    if options.json == "-":
        print(result.to_json(), end="")
        return True
    if options.json:
        result.save_json(options.json)
    return False


def save_reports(options: argparse.Namespace, result: "ReportedResult") -> list[str]:
    """Write a report and pictures, if they are asked for; a line for each."""
    lines = []
    if options.report:
        result.save_report(options.report)
        lines.append(f"Written: {options.report}")
    if options.figures:
        saved = result.save_figures(options.figures)
        lines.append(f"Written: {len(saved)} pictures in {options.figures}")
    return lines
