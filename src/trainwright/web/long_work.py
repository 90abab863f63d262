"""What jobs do: studies and sweeps, by the functions of their commands."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput

Tell = Callable[[int, int, str], None]
MOST_POINTS = 200_000
_MOST_ROWS = 5_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(:\d+)?(@[A-Za-z0-9][A-Za-z0-9._+-]*)?")
_FILE = re.compile(r"\.(toml|json|py|plan)$|^[~/.]|\.\.|\\", re.IGNORECASE)


def study(asked: Sequence[Any], tell: Tell) -> bytes:
    """The findings of a study, whose request is the one thing asked."""
    from trainwright.api.study import answer_study
    from trainwright.report.page import compact_json

    tell(0, 0, "under way")
    findings = answer_study(asked[0], tell)
    tables = {name: list(rows)[:_MOST_ROWS] for name, rows in findings.tables.items() if rows}
    return compact_json(
        {"title": findings.title, "lines": findings.lines, "figures": findings.figures(), "tables": tables}
    ).encode()


def sweep(words: Sequence[str], tell: Tell) -> bytes:
    """The rows of a sweep, whose TOML is the one word."""
    from trainwright.report.page import compact_json
    from trainwright.sweep import parse_sweep, run_sweep
    from trainwright.sweep.query import query

    _check_names(words[0])
    space = parse_sweep(words[0])
    if len(space) > MOST_POINTS:
        rule = f"has more than {MOST_POINTS:,} points"
        raise BadInput("sweep", len(space), rule, "run it with trainwright sweep")
    folder = Path("sweep")
    run_sweep(space, folder, progress=tell)
    found = query(folder, f"select * from points limit {_MOST_ROWS}")
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    axes = [axis.name for axis in space.axes]
    return compact_json({"name": space.name, "points": len(space), "axes": axes, "rows": rows}).encode()


def _check_names(text: str) -> None:
    """Raise if anything in a sweep could be the name of a file."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return  # told by whoever parses it
    for key in ("model", "cluster"):
        if isinstance(table.get(key), str) and not _NAME.fullmatch(table[key]):
            raise BadInput(f"sweep {key}", table[key], "is no name of the catalog", "use one of the catalog")
    for each in _texts(table):
        if _FILE.search(each):
            raise BadInput("sweep", each, "could be a file", "name what the catalog has")
    for axis in table.get("axis", ()):
        if isinstance(axis, dict) and axis.get("field") in (
            "model",
            "cluster",
            "cluster.device",
            "cluster.network",
        ):
            for each in _texts(axis):
                if not _NAME.fullmatch(each):
                    raise BadInput("sweep axis", each, "is no name of the catalog", "use one of the catalog")


def _texts(value: Any) -> list[str]:
    """Every text in a tree."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []


KINDS: Mapping[str, Callable[[Sequence[Any], Tell], bytes]] = {"study": study, "sweep": sweep}
