"""Many clusters that differ in figures alone (rates, capacities, prices), estimated together.

A job of a fleet holds an array over clusters wherever they differ: the `bytes_per_s` of its device's memory
may be a thousand numbers. Costs are written over arrays, so a table over shapes becomes one over clusters and
shapes, and NumPy's overhead is paid once for all clusters instead of once for each. This asks of the costs
that they never branch on a rate or capacity (`np.where`, not `if`); a test compares them with one by one.
"""

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.layouts import layout_rows
from trainwright.estimate.picked import altered, at
from trainwright.estimate.shapes import Shapes, distinct_shapes
from trainwright.estimate.spill import tier_keys
from trainwright.estimate.step import (
    CHUNK,
    build_model,
    crowded,
    distinct_recomputes,
    estimate,
    estimate_chunk,
    join_estimates,
)
from trainwright.estimate.types import Estimates, Job
from trainwright.plan.strategy import Strategies

Ints = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """Strategies with their distinct shapes and layouts, found once for all clusters."""

    strategies: Strategies
    shapes: Shapes
    shape: Ints
    rows: Ints  # one strategy of each layout
    layout: Ints

    def __len__(self) -> int:
        return len(self.shape)


def sort_strategies(strategies: Strategies) -> Sorted:
    """The distinct shapes and layouts of strategies, of which there must be some."""
    shapes, shape = distinct_shapes(strategies)
    rows, layout = layout_rows(strategies)
    return Sorted(strategies=strategies, shapes=shapes, shape=shape, rows=rows, layout=layout)


def estimate_all(job: Job, count: int, each: Sorted, *, detail: bool = False) -> Estimates:
    """Every strategy on each of the `count` clusters of a job: cluster after cluster."""
    if _is_measured(job):
        return join_estimates(
            [estimate(at(job, np.int64(i)), each.strategies, detail=detail) for i in range(count)],
            detail,
            tier_keys(job.cluster),
        )
    job = crowded(job)
    shapes, layouts, size = len(each.shapes), len(each.rows), len(each)
    where = np.arange(count)
    model = build_model(
        at(job, np.repeat(where, shapes)),
        at(job, np.repeat(where, layouts)),
        _tiled(each.shapes, count),
        _tiled(each.strategies.take(each.rows), count),
        _each(each.shape[each.rows], shapes, count),
        distinct_recomputes(each.strategies),
    )
    shape, layout = _each(each.shape, shapes, count), _each(each.layout, layouts, count)
    parts = []
    for start in range(0, count * size, CHUNK):
        rows = np.arange(start, min(start + CHUNK, count * size))
        cluster, strategy = rows // size, rows % size
        here = replace(model, job=at(job, cluster))
        batch = np.broadcast_to(np.asarray(job.global_batch, dtype=float), len(rows))
        chosen = each.strategies.take(strategy)
        parts.append(estimate_chunk(here, chosen, shape[rows], layout[rows], batch, detail))
    return join_estimates(parts, detail, tier_keys(job.cluster))


def estimate_each(job: Job, strategies: Strategies, *, detail: bool = True) -> Estimates:
    """The first strategy on the first cluster of a job, the second on the second, and so on."""
    if not len(strategies):
        return join_estimates([], detail)
    if _is_measured(job):
        ones = [
            estimate(at(job, np.int64(i)), strategies.take(slice(i, i + 1)), detail=detail)
            for i in range(len(strategies))
        ]
        return join_estimates(ones, detail, tier_keys(job.cluster))
    job, parts = crowded(job), []
    for start in range(0, len(strategies), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(strategies)))
        here, chosen, own = at(job, rows), strategies.take(rows), np.arange(len(rows))
        shapes = _shapes_of(chosen)
        model = build_model(here, here, shapes, chosen, own, distinct_recomputes(chosen))
        batch = np.broadcast_to(np.asarray(job.global_batch, dtype=float), len(rows))
        parts.append(estimate_chunk(model, chosen, own, own, batch, detail))
    return join_estimates(parts, detail, tier_keys(job.cluster))


def _is_measured(job: Job) -> bool:
    """Whether times come from tables of one machine, which are looked up for one cluster at a time."""
    return job.efficiency.kernels is not None or job.efficiency.table is not None


def _shapes_of(strategies: Strategies) -> Shapes:
    """One shape for each strategy."""
    columns = {f.name: getattr(strategies, f.name).astype(float) for f in fields(Shapes)}
    return Shapes(**(columns | {"precision": strategies.precision, "order": strategies.order}))


def _tiled(columns: T, count: int) -> T:
    """Columns once for each cluster, cluster after cluster."""
    names = [field.name for field in fields(columns)]  # type: ignore[arg-type]
    return type(columns)(**{name: np.tile(getattr(columns, name), count) for name in names})


def _each(index: Ints, size: int, count: int) -> Ints:
    """An index into a table of `size` rows as one into the table of all clusters."""
    return np.asarray((np.arange(count)[:, None] * size + index).ravel())


__all__ = ["Sorted", "altered", "at", "estimate_all", "estimate_each", "sort_strategies"]
