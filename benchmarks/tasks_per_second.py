"""How many tasks of a pipelined step the event engine simulates per second and core.

The reference is `trainwright.simulate.reference`, the same semantics in plain Python, measured in the same
run; both must give the same bytes. Rates are per second of processor time, conversion of the table included.
"""

import argparse
import sys
import time

import numpy as np

from pipeline_table import pipeline_table
from trainwright.program.table import Table
from trainwright.simulate import engine, reference
from trainwright.simulate.breakdown import breakdown
from trainwright.simulate.critical import critical_path
from trainwright.simulate.memory import peaks
from trainwright.simulate.simulate import simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=16)
    parser.add_argument("--microbatches", type=int, default=128)
    parser.add_argument("--layers", type=int, default=20, help="layers of a stage, of four tasks each way")
    parser.add_argument("--sample", type=int, default=8, help="microbatches that the reference simulates")
    parser.add_argument("--repeat", type=int, default=5, help="runs, of which the fastest counts")
    options = parser.parse_args()

    table = pipeline_table(options.stages, options.microbatches, options.layers)
    small = pipeline_table(options.stages, options.sample, options.layers)
    ours = engine.run(small)  # compiles, or loads what was compiled
    start_s = time.process_time()
    theirs = reference.run(small)
    plain = len(small) / (time.process_time() - start_s)

    best_s = np.inf
    for _ in range(options.repeat):
        start_s = time.process_time()
        engine.run(table)
        best_s = min(best_s, time.process_time() - start_s)
    rate = len(table) / best_s
    print(f"tasks                    {len(table):>12,}  ({len(small):,} by the reference)")
    print(f"engine                   {rate:>12,.0f}  tasks per second and core")
    print(f"plain reference          {plain:>12,.0f}  tasks per second and core")
    print(f"ratio                    {rate / plain:>12.0f}")
    report_summaries(table)
    if any(a.tobytes() != b.tobytes() for a, b in zip(ours, theirs, strict=True)):
        print("engine and reference disagree", file=sys.stderr)
        return 1
    return 0


def report_summaries(table: Table) -> None:
    """How long the questions to a timeline take."""
    timeline = simulate(table)
    for question in (breakdown, peaks, critical_path):
        start_s = time.process_time()
        question(timeline)
        print(f"{question.__name__:24} {time.process_time() - start_s:>12.3f}  s")


if __name__ == "__main__":
    sys.exit(main())
