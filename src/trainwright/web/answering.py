"""Arguments to JSON: what a worker does for a question."""

import argparse
import gzip
import json
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cli.command_parser import parse_command
from trainwright.errors import BadInput, InfeasiblePlan, TrainwrightError

if TYPE_CHECKING:
    from trainwright.cli.plan_islands import ApartAnswer
    from trainwright.report.islands import ApartSummary

_UPLOADED = "uploaded"
BAD, NONE_FITS = 422, 409  # statuses of answers that are errors
_LEVEL = 6  # of compression


def packed_answer(kind: str, arguments: Sequence[str], files: Mapping[str, Any]) -> tuple[int, bytes]:
    """An answer as it is kept and sent: compressed, and here, so that the server has only to pass it on."""
    status, body = answer(kind, arguments, files)
    return status, packed(body)


def packed(body: bytes) -> bytes:
    """A body, compressed; the same bytes every time."""
    return gzip.compress(body, _LEVEL, mtime=0)


def answer(kind: str, arguments: Sequence[str], files: Mapping[str, Any]) -> tuple[int, bytes]:
    """The status and body of an answer; `files` are what was uploaded, by the name in the arguments."""
    with tempfile.TemporaryDirectory(prefix="trainwright-") as folder:
        try:
            words = [_stored(each, files, Path(folder)) for each in arguments]
            return 200, _said(kind, arguments, KINDS[kind](words))
        except InfeasiblePlan as error:
            return NONE_FITS, _error(error, folder)
        except TrainwrightError as error:
            return BAD, _error(error, folder)
        except (RecursionError, OverflowError, MemoryError) as error:
            rule = f"is too large ({type(error).__name__})"
            return BAD, _error(BadInput("question", kind, rule, "ask for less"), folder)


def _said(kind: str, arguments: Sequence[str], body: bytes) -> bytes:
    """An answer that tells the command which gives it, if one does."""
    if kind not in _WITH_COMMAND:
        return body
    command = json.dumps(shlex.join(["trainwright", *arguments]), ensure_ascii=False)
    return b'{"command":' + command.encode() + b"," + body[1:]


def _error(error: Exception, folder: str) -> bytes:
    """What was uploaded is called by the name that the user knows, not by where it was put."""
    return json.dumps(
        {"error": str(error).replace(f"{folder}/{_UPLOADED}/", "")}, ensure_ascii=False
    ).encode()


def _stored(word: str, files: Mapping[str, Any], folder: Path) -> str:
    """A word; if it names something uploaded, the path of a file with that."""
    if word not in files:
        return word
    path = folder / _UPLOADED / word  # a configuration is called after its folder
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(_unsealed(files[word])), encoding="utf-8")
    return str(path)


def _unsealed(tree: Any) -> Any:
    """What was uploaded without the checksum of its file, whose bytes are not here: the page verifies it."""
    sealed = isinstance(tree, dict) and str(tree.get("checksum", "")).startswith("sha256:")
    return {key: value for key, value in tree.items() if key != "checksum"} if sealed else tree


def _options(command: str, words: Sequence[str]) -> argparse.Namespace:
    """The options of a command, by its own parser."""
    return parse_command(command, words, asked=shlex.join(["trainwright", command, *words]))


def _plan(words: Sequence[str]) -> bytes:
    from trainwright.cli.plan_answer import plan_answer
    from trainwright.cli.plan_islands import ApartAnswer
    from trainwright.report.page import compact_json

    found = plan_answer(_options("plan", words[1:]), lambda *_: None)
    shown = _island_parts(found) if isinstance(found, ApartAnswer) else {"figures": found.figures()}
    return compact_json({**found.tree(), **shown}).encode()


def _island_parts(found: "ApartAnswer") -> Mapping[str, object]:
    """What the page shows of algorithms, and the figures of exact training if it fits."""
    from trainwright.report.plan_figures import plan_figures

    exact = found.exact
    return {
        "beside": [_beside(each) for each in found.found],
        "island_figures": found.figures(),
        "figures": plan_figures(exact.summaries, exact.front, exact.what_if) if exact else (),
    }


def _beside(found: "ApartSummary") -> Mapping[str, object]:
    """What is told of an algorithm beside its numbers: the nearest measurement, and all of them in words."""
    from trainwright.report.island_tables import is_risky, island_lines
    from trainwright.report.islands import nearest_risk

    risk = nearest_risk(found.risks, found.islands, found.every)
    lines = [line.strip() for line in island_lines(found)]
    return {"name": found.name, "risk": risk, "risky": is_risky(found), "lines": lines}


def _simulate(words: Sequence[str]) -> bytes:
    from trainwright.cli.simulate import json_of, outcome_of
    from trainwright.report.account_figures import account_figures
    from trainwright.report.account_tables import account_lines
    from trainwright.report.blocks import blocks_of
    from trainwright.report.page import compact_json

    outcome = outcome_of(_options("simulate", words[1:]))
    return compact_json(
        {
            **json_of(outcome), "lines": tuple(account_lines(outcome.account)),
            "figures": account_figures(outcome.account), "blocks": blocks_of(outcome.simulated.timeline),
        }
    ).encode()  # fmt: skip


def _trace(words: Sequence[str]) -> bytes:
    from trainwright.cli.simulate import outcome_of
    from trainwright.report.trace import describe, render_trace

    simulated = outcome_of(_options("simulate", words[1:])).simulated
    return "".join(render_trace(simulated.timeline, describe(simulated.program, "predicted"))).encode()


def _compare(words: Sequence[str]) -> bytes:
    from trainwright.cli.compare import tree_of
    from trainwright.report.page import compact_json

    return compact_json(tree_of(Path(words[1]), Path(words[2]))).encode()


def _catalog(words: Sequence[str]) -> bytes:
    from trainwright.cli.catalog import summary_of
    from trainwright.report.page import compact_json

    return compact_json(summary_of()).encode()


_WITH_COMMAND = ("plan", "simulate")
KINDS: Mapping[str, Callable[[Sequence[str]], bytes]] = {
    "plan": _plan,
    "simulate": _simulate,
    "trace": _trace,
    "compare": _compare,
    "catalog": _catalog,
}
