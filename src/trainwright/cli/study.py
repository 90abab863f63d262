"""`trainwright study`: published comparisons, run anew; each with options of its own."""

import argparse
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainwright.errors import UnknownName

if TYPE_CHECKING:
    from trainwright.cli.findings import Findings, Tell


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
    study, asked = _parse(options.name, options.rest, options.parser_class)
    asked.asked = options.asked
    return int(study.run(asked))


def findings_of(
    name: str, words: Sequence[str], tell: "Tell", parser_class: type[argparse.ArgumentParser]
) -> "Findings":
    """What a study finds, given its options as words; it writes nothing."""
    study, asked = _parse(name, words, parser_class)
    found: Findings = study.found(asked, tell)
    return found


def _parse(
    name: str, words: Sequence[str], parser_class: type[argparse.ArgumentParser]
) -> tuple[Any, argparse.Namespace]:
    """The module of a study, and its options."""
    from trainwright.study import STUDIES

    if name not in STUDIES:
        raise UnknownName("study", name, STUDIES)
    line = STUDIES[name]
    study = importlib.import_module(f"trainwright.cli.study_{name.replace('-', '_')}")
    parser = parser_class(prog=f"trainwright study {name}", description=line[0].upper() + line[1:] + ".")
    study.add_arguments(parser)
    return study, parser.parse_args(list(words))
