"""The best ways to lay a recommender's tables on devices, and the best size of an instance in a cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from trainwright.estimate.laid import Laid
from trainwright.estimate.tables import estimate_tables
from trainwright.estimate.types import Job
from trainwright.model.dlrm import TABLE_ROWS, TABLES, WIDTH
from trainwright.plan.sharding import Shardings

_NARROWEST = 4  # columns of a part of a table: less does not fill a memory transaction


def legal_shardings(job: Job, devices: int, precision: str) -> Shardings:
    """Every way to cut tables over so many devices: degrees whose product they are."""
    sizes = job.graph.sizes
    found = [
        (tables, rows, columns)
        for tables in _divisors(devices)
        if tables <= sizes[TABLES]
        for columns in _divisors(devices // tables)
        if sizes[WIDTH] % columns == 0 and sizes[WIDTH] // columns >= _NARROWEST
        if (rows := devices // tables // columns) <= sizes[TABLE_ROWS]
    ]
    degrees = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return Shardings(tables=degrees[0], rows=degrees[1], columns=degrees[2], precision=precision)


def lay_tables(job: Job, devices: int, samples_per_device: int, precision: str) -> Laid:
    """All shardings of an instance of so many of the cluster's devices; those that fit are first, by time."""
    batch = samples_per_device * devices
    own = replace(job, cluster=replace(job.cluster, count=devices), global_batch=batch)
    shardings = legal_shardings(own, devices, precision)
    estimates = estimate_tables(own, shardings)
    order = np.lexsort((estimates.step_s, ~estimates.feasible))
    return Laid(
        devices=devices, global_batch=batch, instances=job.cluster.count // devices,
        shardings=tuple(shardings[int(index)] for index in order), estimates=estimates, order=order,
        fitting=int(estimates.feasible.sum()),
    )  # fmt: skip


def lay_instances(job: Job, samples_per_device: int, precision: str) -> tuple[Laid, ...]:
    """Instances of 1, 2, 4 ... devices, and of all, that fit: equal parts of the cluster side by side."""
    sizes = dict.fromkeys([*_powers(job.cluster.count), job.cluster.count])
    laid = (lay_tables(job, each, samples_per_device, precision) for each in sizes)
    return tuple(each for each in laid if each.fitting)


def best_instance(laid: Sequence[Laid]) -> Laid | None:
    """The size of instance with most samples a second from the whole cluster."""
    return max(laid, key=lambda each: each.samples_per_s, default=None)


def _powers(most: int) -> Iterator[int]:
    size = 1
    while size <= most:
        yield size
        size *= 2


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
