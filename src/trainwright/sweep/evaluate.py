"""Design points made into rows of results."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import TrainwrightError
from trainwright.estimate.fleet import Sorted, at, estimate_all, estimate_each
from trainwright.estimate.types import Job
from trainwright.sweep.choose import (
    Choice,
    batches,
    best_as_planned,
    best_of_every,
    kept_blocks,
    ordered_blocks,
    pairs_of,
)
from trainwright.sweep.columns import RESULTS, needs_detail, result_arrays
from trainwright.sweep.demands import Demands
from trainwright.sweep.load import result_columns
from trainwright.sweep.points import Points, axis_columns, points, result_constraints
from trainwright.sweep.ready import Ready, build_ready, grouped, structure_axes
from trainwright.sweep.types import Axis, Sweep

Columns = dict[str, NDArray[Any]]
_KEPT = 16  # structures whose spaces are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of a result: columns of numbers, flags and text; `missing` says where results are none.

    Where `texts` are given, the column `strategy` holds indices into them.
    """

    columns: Mapping[str, NDArray[Any]]
    missing: NDArray[np.bool_]
    texts: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """What is known of a structure: its question and strategies, or why there are none."""

    ready: Ready | None
    blocks: tuple[Sorted, ...] | None
    texts: tuple[tuple[str, ...], ...]
    why: str = ""


class Evaluator:
    """Makes rows of a sweep's points; remembers the spaces of the structures that it met last."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._structure: Sequence[Axis] = structure_axes(sweep)
        self._names = result_columns(sweep)
        self._constraints = result_constraints(sweep)
        self._spaces: OrderedDict[tuple[int, ...], _Space] = OrderedDict()

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """The rows of the points from one number to another: by structure, then by number."""
        chosen = points(self.sweep, start, stop)
        for values, where in grouped(self.sweep, chosen, self._structure):
            space, some = self._space(values), chosen.take(where)
            if space.ready is None:
                yield self._none(some, space.why)
            elif self.sweep.rows == "best":
                yield self._best(space, some)
            else:
                yield from self._all(space, some)

    def _space(self, values: Mapping[str, int]) -> _Space:
        key = tuple(values.values())
        if key not in self._spaces:
            self._spaces[key] = self._built(values)
            if len(self._spaces) > _KEPT:
                self._spaces.popitem(last=False)
        self._spaces.move_to_end(key)
        return self._spaces[key]

    def _built(self, values: Mapping[str, int]) -> _Space:
        try:
            ready = build_ready(self.sweep, values)
            blocks = kept_blocks(ready.question) if self.sweep.search == "every" else None
        except TrainwrightError as error:
            return _Space(ready=None, blocks=None, texts=(), why=str(error))
        texts: tuple[tuple[str, ...], ...] = ()
        if blocks is not None and self.sweep.rows == "all" and "strategy" in self._names:
            texts = tuple(_texts(block) for block in blocks)
        return _Space(ready=ready, blocks=blocks, texts=texts)

    def _best(self, space: _Space, some: Points) -> Rows:
        ready = space.ready
        assert ready is not None
        job, count = ready.job(some), len(some)
        if self.sweep.search == "plan":
            choice = best_as_planned(ready, job, count)
        else:
            blocks = space.blocks if space.blocks is not None else ordered_blocks(ready.question)
            choice = best_of_every(ready, job, count, blocks, self._demands(some))
        return Rows(columns=self._told(some, ready, job, choice), missing=~choice.found)

    def _told(self, some: Points, ready: Ready, job: Job, choice: Choice) -> Columns:
        """The columns of best strategies; where there is none, the results are zeros."""
        found = np.flatnonzero(choice.found)
        strategies = choice.strategies.take(found)
        here = at(job, found)
        result = estimate_each(here, strategies, detail=needs_detail(self._names))
        told = result_arrays(pairs_of(ready, here, strategies, result), self._names)
        columns = self._point_columns(some)
        for name, values in told.items():
            whole = np.zeros(len(some), dtype=values.dtype)
            whole[found] = values
            columns[name] = whole
        texts = np.full(len(some), "", dtype=object)
        texts[found] = [str(strategies[row]) for row in range(len(found))]
        own = {"strategy": texts, "why": choice.why, "evaluated": choice.evaluated, "fitting": choice.fitting}
        return columns | {name: each for name, each in own.items() if name in self._names}

    def _all(self, space: _Space, some: Points) -> Iterator[Rows]:
        ready = space.ready
        assert ready is not None
        job = ready.job(some)
        blocks = space.blocks if space.blocks is not None else ordered_blocks(ready.question)
        for place, block in enumerate(blocks):
            texts = space.texts[place] if space.texts else _texts(block) if "strategy" in self._names else ()
            for rows in batches(len(some), len(block)):
                yield self._block_rows(ready, at(job, rows), some.take(rows), block, texts)

    def _block_rows(
        self, ready: Ready, job: Job, some: Points, block: Sorted, texts: tuple[str, ...]
    ) -> Rows:
        count, size = len(some), len(block)
        names = frozenset(self._names).union(*(each.names for each in self._constraints))
        result = estimate_all(job, count, block, detail=needs_detail(names))
        cluster, strategy = np.repeat(np.arange(count), size), np.tile(np.arange(size), count)
        pairs = pairs_of(ready, at(job, cluster), block.strategies.take(strategy), result)
        columns = self._point_columns(some.take(cluster)) | result_arrays(pairs, self._names)
        if "strategy" in self._names:
            columns["strategy"] = strategy
        rows = Rows(columns=columns, missing=np.zeros(len(strategy), dtype=bool), texts=texts)
        if not self._constraints:
            return rows
        kept = self._demands(some.take(cluster)).allow(pairs)
        return replace(
            rows, columns={name: each[kept] for name, each in columns.items()}, missing=rows.missing[kept]
        )

    def _none(self, some: Points, why: str) -> Rows:
        """Rows of points without a question: a network is too small, a model does not divide."""
        columns = self._point_columns(some)
        for name in self._names:
            kind = RESULTS[name]
            columns[name] = np.zeros(len(some), dtype={"int": np.int64, "bool": bool}.get(kind, np.float64))
        words = {
            "why": np.full(len(some), why, dtype=object),
            "strategy": np.full(len(some), "", dtype=object),
        }
        columns |= {name: each for name, each in words.items() if name in self._names}
        return Rows(columns=columns, missing=np.ones(len(some), dtype=bool))

    def _demands(self, some: Points) -> Demands:
        return Demands(constraints=self._constraints, axes=axis_columns(self.sweep, some))

    def _point_columns(self, some: Points) -> Columns:
        return {"point": some.number} | axis_columns(self.sweep, some)


def _texts(block: Sorted) -> tuple[str, ...]:
    return tuple(str(block.strategies[row]) for row in range(len(block)))
