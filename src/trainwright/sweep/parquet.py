"""Rows of results as the bytes of a Parquet file: the same rows, the same bytes."""

import importlib
import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput
from trainwright.plan.strategy import CHOICES
from trainwright.sweep.columns import OF_POINTS, RESULTS
from trainwright.sweep.evaluate import Rows
from trainwright.sweep.load import result_columns
from trainwright.sweep.points import labels
from trainwright.sweep.types import Sweep

HOW_TO_GET = "pip install 'trainwright[sweep]'"
_GROUP_ROWS = 1 << 17


def load_arrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise BadInput("sweep", "pyarrow", "is not installed", HOW_TO_GET) from None


def schema_of(sweep: Sweep) -> Any:
    """The columns of a sweep's dataset with their types."""
    arrow, _ = load_arrow()
    text = arrow.dictionary(arrow.int32(), arrow.string())
    kinds = {"float": arrow.float64(), "int": arrow.int64(), "bool": arrow.bool_(), "text": text}
    columns = [("point", arrow.int64())]
    for axis in sweep.axes:
        kind = {"i": "int", "f": "float"}.get(labels(axis).dtype.kind, "text")
        columns.append((axis.name, kinds[kind]))
    names = {axis.name for axis in sweep.axes}
    columns += [(name, kinds[RESULTS[name]]) for name in result_columns(sweep) if name not in names]
    return arrow.schema(columns)


def encode(sweep: Sweep, parts: Iterable[Rows]) -> tuple[bytes, int]:
    """The file that holds some rows, and their number; best rows are sorted by point."""
    arrow, parquet = load_arrow()
    schema, target, count = schema_of(sweep), io.BytesIO(), 0
    with parquet.ParquetWriter(
        target, schema, compression="zstd", compression_level=1, version="2.6", data_page_version="1.0",
        use_dictionary=_dictionaries(schema, arrow), write_statistics=True, store_schema=True,
    ) as writer:  # fmt: skip
        for table in _tables(sweep, schema, parts):
            writer.write_table(table, row_group_size=_GROUP_ROWS)
            count += table.num_rows
    return target.getvalue(), count


def _dictionaries(schema: Any, arrow: Any) -> list[str]:
    """Columns of few values; numbers that hardly repeat are not worth a dictionary."""
    return [field.name for field in schema if field.type != arrow.float64() and field.name != "point"]


def _tables(sweep: Sweep, schema: Any, parts: Iterable[Rows]) -> Iterator[Any]:
    """Rows as tables of about `_GROUP_ROWS`; all of them as one, in order of points, if each has one row."""
    arrow, _ = load_arrow()
    pending: list[Any] = []
    for rows in parts:
        if len(rows):
            pending.append(_table(schema, rows))
        if sweep.rows == "all" and sum(each.num_rows for each in pending) >= _GROUP_ROWS:
            yield arrow.concat_tables(pending).unify_dictionaries()
            pending = []
    if pending:
        whole = arrow.concat_tables(pending).unify_dictionaries()
        yield whole.sort_by("point") if sweep.rows == "best" and len(pending) > 1 else whole


def _table(schema: Any, rows: Rows) -> Any:
    arrow, _ = load_arrow()
    columns = [_column(arrow, field, rows) for field in schema]
    return arrow.table(columns, schema=schema)


def _column(arrow: Any, field: Any, rows: Rows) -> Any:
    values = rows.columns[field.name]
    is_result = field.name in RESULTS and field.name not in (*OF_POINTS, "feasible")
    missing = rows.missing if is_result and rows.missing.any() else None
    if field.name == "feasible":
        return arrow.array(values & ~rows.missing)
    if not arrow.types.is_dictionary(field.type):
        return arrow.array(np.ascontiguousarray(values), type=field.type, mask=missing)
    if field.name == "strategy" and rows.texts is not None:
        return _dictionary(arrow, values, rows.texts, missing)
    if field.name in CHOICES and values.dtype.kind == "i":
        return _dictionary(arrow, values, CHOICES[field.name], missing)
    known, codes = np.unique(values.astype(str), return_inverse=True)
    return _dictionary(arrow, codes, known.tolist(), missing)


def _dictionary(arrow: Any, codes: NDArray[Any], known: Iterable[str], missing: Any) -> Any:
    indices = arrow.array(codes.astype(np.int32), mask=missing)
    return arrow.DictionaryArray.from_arrays(indices, arrow.array(list(known), type=arrow.string()))


def read_points(paths: Iterable[str]) -> Any:
    """The dataset of some files, unread."""
    load_arrow()
    return importlib.import_module("pyarrow.dataset").dataset(list(paths), format="parquet")
