"""How many design points a sweep evaluates per second and core: a point is one cluster with one strategy.

The sweep is GPT-3 175B on 1,024 A100 whose rates, memory and links vary, with about a thousand strategies on
each cluster, from the sweep file to the last byte of the dataset. The reference, measured in the same run, is
`estimate` asked cluster by cluster, which must give the same step times to the last bit. Rates are per second
of processor time. With `--full`, ten million points on two processes: by the clock, and the most memory of
any process of the sweep.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from trainwright.estimate.fleet import at
from trainwright.estimate.step import estimate
from trainwright.search.find import fits, space_of
from trainwright.search.space import legal_strategies
from trainwright.sweep.load import parse_sweep
from trainwright.sweep.part import Maker, points_per_part
from trainwright.sweep.points import points
from trainwright.sweep.query import query
from trainwright.sweep.ready import build_ready
from trainwright.sweep.run import run_sweep
from trainwright.sweep.types import Sweep

SPACE = """
model = "gpt3-175b"
cluster = "a100:1024"
batch = 1536
search = "every"
[strategy]
cp = 1
sp = true
micro_batch = [1, 2, 4]
schedule = "1f1b"
zero = [0, 1, 3]
hsdp = [0, 8]
offload = "none"
max_tp = 16
"""
AXES = {
    "compute": ("compute", "ratio", (0.5, 4.0)),
    "capacity": ("cluster.device.memory.0.capacity", "ratio", (0.5, 8.0)),
    "memory_rate": ("cluster.device.memory.0.bandwidth", "ratio", (0.5, 4.0)),
    "inner": ("cluster.levels.0.bandwidth", "ratio", (0.5, 4.0)),
    "outer": ("cluster.levels.1.bandwidth", "ratio", (0.5, 4.0)),
}
MOST_GIB = 1.0
LEAST_RATIO = 5.0  # against clusters one by one


def build_sweep(counts: tuple[int, ...], rows: str = "best") -> Sweep:
    """So many values along each of the axes."""
    text = f'rows = "{rows}"\n' + SPACE
    for count, (name, (field, way, (low, high))) in zip(counts, AXES.items(), strict=True):
        values = np.round(np.geomspace(low, high, count), 4).tolist()
        text += f'[[axis]]\nfield = "{field}"\nname = "{name}"\n{way} = {values}\n'
    return parse_sweep(text, "benchmark")


def measure_sweep(sweep: Sweep, parts: int) -> tuple[float, int]:
    """Seconds of processor time for some parts of a sweep, and the points in them."""
    size = points_per_part(sweep)
    maker = Maker(sweep, size)
    maker.make(0)  # what is found once: the space, the imports
    start_s = time.process_time()
    for number in range(parts):
        maker.make(number)
    took_s = time.process_time() - start_s
    return took_s, min(parts * size, len(sweep)) * strategies_of(sweep)


def strategies_of(sweep: Sweep) -> int:
    question = build_ready(sweep, {}).question
    return len(legal_strategies(space_of(question, question.batches[0])))


def measure_one_by_one(sweep: Sweep, count: int) -> tuple[float, list[float]]:
    """Seconds of processor time for some clusters one by one, and their best step times."""
    ready = build_ready(sweep, {})
    job = ready.job(points(sweep, 0, count))
    strategies = legal_strategies(space_of(ready.question, ready.question.batches[0]))
    best, start_s = [], time.process_time()
    for row in range(count):
        own = at(job, np.int64(row))
        result = estimate(own, strategies, detail=False)
        within = fits(own, result, ready.question.filled_share)
        best.append(float(result.step_s[within].min()) if within.any() else np.nan)
    return time.process_time() - start_s, best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=2, help="parts of the sweep that are measured")
    parser.add_argument("--clusters", type=int, default=60, help="clusters that the reference evaluates")
    parser.add_argument("--full", action="store_true", help="also ten million points on two processes")
    parser.add_argument(
        "--least-ratio", type=float, default=LEAST_RATIO, help="to the reference; else it fails"
    )
    options = parser.parse_args()
    sweep = build_sweep((10, 10, 10, 10, 10))
    size = strategies_of(sweep)
    plain_s, best = measure_one_by_one(sweep, options.clusters)
    plain = options.clusters * size / plain_s
    print(f"strategies on each cluster        {size:>12,}")
    print(f"clusters one by one               {plain:>12,.0f}  points per second and core")
    rates = {}
    for rows in ("best", "all"):
        took_s, count = measure_sweep(replace(sweep, rows=rows), options.parts if rows == "best" else 4)
        rates[rows] = count / took_s
        print(f"sweep, rows = {rows!r:<6}              {rates[rows]:>12,.0f}  points per second and core")
    print(f"ratio                             {rates['best'] / plain:>12.1f}")
    off = largest_difference(sweep, best)
    print(f"largest difference of best steps  {off:>12.1e}")
    most_gib = run_full() if options.full else 0.0
    fine = most_gib < MOST_GIB and off == 0.0 and rates["best"] / plain >= options.least_ratio
    return 0 if fine else 1


def largest_difference(sweep: Sweep, best: list[float]) -> float:
    """Between a dataset of the first clusters and those one by one."""
    with tempfile.TemporaryDirectory() as folder:
        some = replace(sweep, constraints=(), points_per_chunk=len(best))
        content = Maker(some, len(best)).make(0).content
        (Path(folder) / "part.parquet").write_bytes(content)
        import pyarrow.parquet

        column = pyarrow.parquet.read_table(Path(folder) / "part.parquet")["step_s"].to_pylist()
    found = np.array([np.nan if each is None else each for each in column])
    wanted = np.array(best)
    if not np.array_equal(np.isnan(found), np.isnan(wanted)):
        return np.inf
    return float(np.nanmax(np.abs(found / wanted - 1.0)))


def run_full() -> float:
    """Ten million points, from the file to the dataset, on two processes; the most GiB of one."""
    sweep = build_sweep((10, 10, 8, 4, 4))
    total = len(sweep) * strategies_of(sweep)
    with tempfile.TemporaryDirectory() as folder:
        start_s = time.perf_counter()
        run_sweep(sweep, Path(folder) / "out", workers=2)
        took_s = time.perf_counter() - start_s
        rows = next(query(Path(folder) / "out", "select count(*) from points").rows)[0]
    own, others = (
        resource.getrusage(who).ru_maxrss / 2**20 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(f"ten million: {total:,} points, {rows:,} clusters, {took_s:.1f} s on two processes,")
    print(f"  {total / took_s:,.0f} points per second; {own:.2f} GiB at most here, {others:.2f} in a worker")
    return max(own, others)


if __name__ == "__main__":
    sys.exit(main())
