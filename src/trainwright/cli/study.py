"""`trainwright study`: published comparisons, run anew; each with options of its own."""

import argparse
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainwright.cli.command_parser import CommandParser
from trainwright.cli.refusal import refuse_given
from trainwright.errors import UnknownName

if TYPE_CHECKING:
    from trainwright.api.findings import Findings, Tell

_WRITTEN = ("out", "json", "csv", "report", "figures", "risk")  # by a study, on a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The name of a study; what follows is the study's."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="which one (default: list them)")
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="its options: trainwright study NAME --help"
    )


def run(options: argparse.Namespace) -> int:
    """List the studies, or run one."""
    from trainwright.study import STUDIES

    if not options.name:
        for name, line in STUDIES.items():
            print(f"{name}: {line}")
        return 0
    study, asked = _parse(options.name, options.rest)
    asked.asked = options.asked
    return int(study.run(asked))


def findings_of(name: str, words: Sequence[str], tell: "Tell") -> "Findings":
    """What a study finds, given its options as words; it writes nothing."""
    study, asked = _parse(name, words)
    _check_unwritten(asked)
    found: Findings = study.found(asked, tell)
    return found


def check_words(name: str, words: Sequence[str]) -> None:
    """Raise, before a study runs, if `findings_of` would not take these words."""
    _check_unwritten(_parse(name, words)[1])


def _check_unwritten(asked: argparse.Namespace) -> None:
    refuse_given(asked, _WRITTEN, "writes files, which only a terminal may name")


def _parse(name: str, words: Sequence[str]) -> tuple[Any, argparse.Namespace]:
    """The module of a study, and its options."""
    from trainwright.study import STUDIES

    if name not in STUDIES:
        raise UnknownName("study", name, STUDIES)
    line = STUDIES[name]
    study = importlib.import_module(f"trainwright.cli.study_{name.replace('-', '_')}")
    parser = CommandParser(prog=f"trainwright study {name}", description=line[0].upper() + line[1:] + ".")
    study.add_arguments(parser)
    return study, parser.parse_options(words)
