"""How many strategies of GPT-3 175B on 1,024 A100 are evaluated per second and core, time and memory.

The reference is `scalar_reference`: the same costs in plain Python, one strategy at a time, measured in the
same run. Both must agree. Rates are per second of processor time, so that other work on the machine does not
count.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import sys
import time

import numpy as np
from numpy.typing import NDArray

from scalar_reference.reference import check_job, reference_estimate
from trainwright.cluster.load import load_cluster
from trainwright.cost.constants import Efficiency, Stack
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.strategy import Strategies
from trainwright.search.space import Space, legal_strategies

Array = NDArray[np.float64]
GLOBAL_BATCH = 1536
TOLERANCE = 1e-9


def build_job() -> Job:
    return Job(
        graph=build_graph(load_model("gpt3-175b")), cluster=load_cluster("a100:1024"),
        stack=Stack(name="plain"), efficiency=Efficiency(), seq=2048, global_batch=GLOBAL_BATCH,
    )  # fmt: skip


def every_strategy(job: Job, most: int) -> Strategies:
    """`most` of all legal strategies, chosen evenly and the same every time."""
    space = Space(
        graph=job.graph, devices=job.cluster.count, seq=job.seq,
        global_batch=GLOBAL_BATCH, fixed={}, most={},
    )  # fmt: skip
    legal = legal_strategies(space)
    order = np.random.default_rng(0).permutation(len(legal))[:most]
    return legal.take(np.sort(order))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000_000, help="strategies to evaluate")
    parser.add_argument("--sample", type=int, default=4_000, help="strategies that the reference evaluates")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the fastest counts")
    options = parser.parse_args()

    job = build_job()
    strategies = every_strategy(job, options.count)
    best_s, best_wall_s = np.inf, np.inf
    for _ in range(options.repeat):
        start_s, wall_s = time.process_time(), time.perf_counter()
        result = estimate(job, strategies, detail=False)
        best_s = min(best_s, time.process_time() - start_s)
        best_wall_s = min(best_wall_s, time.perf_counter() - wall_s)

    chosen = np.random.default_rng(1).choice(
        len(strategies), min(options.sample, len(strategies)), replace=False
    )
    listed = [strategies[int(index)] for index in chosen]
    check_job(job)
    start_s = time.process_time()
    answers = [reference_estimate(job, strategy) for strategy in listed]
    reference_s = time.process_time() - start_s

    rate, plain = len(strategies) / best_s, len(listed) / reference_s
    print(f"strategies evaluated     {len(strategies):>12,}  ({len(listed):,} by the reference)")
    clock = len(strategies) / best_wall_s
    print(
        f"estimate                 {rate:>12,.0f}  strategies per second and core ({clock:,.0f} by the clock)"
    )
    print(f"scalar reference         {plain:>12,.0f}  strategies per second and core")
    print(f"ratio                    {rate / plain:>12.0f}")

    time_off = _disagreement(result.step_s[chosen], [each.step_s for each in answers])
    memory_off = _disagreement(result.total_bytes[chosen], [each.memory.total for each in answers])
    for name, off in (("step time", time_off), ("memory", memory_off)):
        worst = int(np.argmax(off))
        print(f"largest disagreement in {name}: {off[worst]:.1e} at [{listed[worst]}]")
    if max(time_off.max(), memory_off.max()) > TOLERANCE:
        print(f"estimate and reference disagree by more than {TOLERANCE:.0e}", file=sys.stderr)
        return 1
    return 0


def _disagreement(ours: Array, theirs: list[float]) -> Array:
    return np.asarray(np.abs(ours / np.array(theirs) - 1.0))


if __name__ == "__main__":
    sys.exit(main())
