"""Rows as dataframes of whichever library is installed, and as tables of HTML."""

import importlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from trainwright.errors import BadInput, UnknownName

LIBRARIES = ("polars", "pandas")


def build_frame(rows: Sequence[Mapping[str, object]], library: str | None = None) -> Any:
    """The rows as a dataframe: of polars if it is installed, else of pandas, or of the one asked for."""
    if library is not None and library not in LIBRARIES:
        raise UnknownName("dataframe library", library, LIBRARIES)
    for name in (library,) if library else LIBRARIES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return module.DataFrame([dict(row) for row in rows])
    wanted = library or " or ".join(LIBRARIES)
    raise BadInput("dataframe library", wanted, "is not installed", "pip install polars")


def render_html(title: str, rows: Sequence[Mapping[str, object]]) -> str:
    """A table of some rows, under a title."""
    if not rows:
        return f"<p>{escape(title)}</p>"
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(each)}</td>" for each in row.values()) + "</tr>" for row in rows
    )
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return escape(f"{value:,.4g}" if isinstance(value, float) else str(value))
