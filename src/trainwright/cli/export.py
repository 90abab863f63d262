"""`trainwright export`: a plan for the tool that will run it."""

import argparse
import sys

from trainwright.api.requests import ExportRequest
from trainwright.cli.request_options import add_fields, read_request
from trainwright.errors import BadInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_fields(parser, ExportRequest)
    parser.add_argument(
        "--out", default="-", metavar="PATH", help="the file, or directory of chakra (default: print)"
    )


def run(options: argparse.Namespace) -> int:
    """Write the plan in the target's words."""
    from trainwright.api.export import answer_export

    if options.to == "chakra" and options.out == "-":
        rule = "needs a model, a cluster and a directory"
        raise BadInput("--to", "chakra", rule, "state --model, --cluster and --out")
    found = answer_export(read_request(options, ExportRequest))
    if found.program is not None:
        traces = 0
        for name in found.save_files(options.out):
            traces += name.endswith(".et")
            if sys.stderr.isatty():
                print(f"\r{traces} traces", end="", file=sys.stderr, flush=True)
        print(f"{options.out}: {traces} traces of {found.title}")
    elif options.out == "-":
        print(found.text, end="")
    else:
        found.save(options.out)
        print(f"{options.out}: {found.title}")
    return 0
