"""`trainwright study`: published comparisons, run anew; each with options of its own."""

import argparse
import importlib

from trainwright.errors import UnknownName


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The name of a study; what follows is the study's."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="which one (default: list them)")
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="its options: trainwright study NAME --help"
    )
    parser.set_defaults(parser_class=type(parser))  # with errors of one line


def run(options: argparse.Namespace) -> int:
    """List the studies, or run one."""
    from trainwright.study import STUDIES

    if not options.name:
        for name, line in STUDIES.items():
            print(f"{name}: {line}")
        return 0
    if options.name not in STUDIES:
        raise UnknownName("study", options.name, STUDIES)
    line = STUDIES[options.name]
    study = importlib.import_module(f"trainwright.cli.study_{options.name.replace('-', '_')}")
    parser = options.parser_class(
        prog=f"trainwright study {options.name}", description=line[0].upper() + line[1:] + "."
    )
    study.add_arguments(parser)
    asked = parser.parse_args(options.rest)
    asked.asked = options.asked
    return int(study.run(asked))
