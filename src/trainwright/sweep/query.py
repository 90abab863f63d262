"""SQL over the dataset of a sweep: its finished points are the view `points`. Nothing can be written."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput
from trainwright.sweep.dataset import check_parts, load_manifest
from trainwright.sweep.parquet import HOW_TO_GET, read_points

_BATCH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The columns of an answer, and its rows as they come."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Each row by column."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)


def query(folder: Path, sql: str) -> Answer:
    """The answer to a query over what is finished of a sweep, also while it goes on."""
    manifest = load_manifest(folder)
    if not manifest.parts:
        raise BadInput("sweep", str(folder), "has no finished points yet", "run the sweep first")
    check_parts(folder, manifest)
    duckdb = load_duckdb()
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    connection.register("points", read_points(str(folder / part.file) for part in manifest.parts))
    for setting in ("enable_external_access = false", "lock_configuration = true"):
        connection.execute(f"SET {setting}")
    try:
        connection.execute(sql)
        if connection.description is None:
            raise BadInput("query", sql, "has no result", 'write a select, like "select * from points"')
        columns = tuple(each[0] for each in connection.description)
        return Answer(columns=columns, rows=_rows(connection, duckdb, sql))
    except (duckdb.Error, OSError) as error:
        raise _refused(sql, error) from None


def _rows(connection: Any, duckdb: Any, sql: str) -> Iterator[tuple[Any, ...]]:
    try:
        while rows := connection.fetchmany(_BATCH):
            yield from rows
    except (duckdb.Error, OSError) as error:
        raise _refused(sql, error) from None


def _refused(sql: str, error: Exception) -> BadInput:
    reason = " ".join(str(error).split())[:300]
    return BadInput("query", sql, reason, 'the table is "points"; its columns: "describe points"')


def load_duckdb() -> Any:
    """The module duckdb."""
    try:
        return importlib.import_module("duckdb")
    except ImportError:
        raise BadInput("sweep query", "duckdb", "is not installed", HOW_TO_GET) from None
