"""`make calibrate`: fit the constants to published runs, judge them on what was left out, write both down."""

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainwright.cost.load import CALIBRATION, PRIOR, load_constants, save_constants
from trainwright.errors import TrainwrightError
from trainwright.output_file import save_text
from trainwright.validate.accuracy import Evidence, render_accuracy
from trainwright.validate.calibrate import time_problem, timed, with_generic
from trainwright.validate.collective_fit import judge_fabrics
from trainwright.validate.collective_rows import load_collectives
from trainwright.validate.dataset import build_dataset, load_rows, predict
from trainwright.validate.held_out import hold_out, intervals
from trainwright.validate.memory_fit import fit_memory, leave_out_memory
from trainwright.validate.memory_spread import memory_spreads
from trainwright.validate.problem import solve, with_values


def main(arguments: list[str] | None = None) -> int:
    """Fit, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m trainwright.validate.maintain", description=__doc__)
    parser.add_argument(
        "tables", type=Path, help="folder with runs_v2.csv, oom_v2.csv, gemm.csv and collectives.csv"
    )
    parser.add_argument("--rounds", type=int, default=8, help="most steps of the fit (default 8)")
    parser.add_argument(
        "--start", type=Path, help="constants to start from, which saves time (default: the prior)"
    )
    parser.add_argument("--out", type=Path, default=CALIBRATION, help="where the constants go")
    parser.add_argument(
        "--page", type=Path, default=Path("docs/accuracy.md"), help="where the tables of errors go"
    )
    options = parser.parse_args(arguments)
    try:
        calibrate(options)
    except TrainwrightError as error:
        print(f"calibrate: {error}", file=sys.stderr)
        return 1
    return 0


def calibrate(options: argparse.Namespace) -> None:
    """Fit the constants to the tables of a folder and write them, with the page on their accuracy."""
    tables, out, page = options.tables, options.out, options.page
    start = load_constants(options.start) if options.start else None
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {text}", file=sys.stderr, flush=True)

    prior = load_constants(PRIOR)
    collectives = judge_fabrics(load_collectives(tables / "collectives.csv"), prior.fabrics)
    prior = replace(prior, fabrics=collectives.fabrics)
    say(f"{len(collectives.rows)} collectives on {len(collectives.fabrics)} fabrics")
    dataset = build_dataset(load_rows(tables / "runs_v2.csv"), prior.stack)
    say(f"{len(dataset.rows)} runs in {len(dataset.groups)} groups")
    outcomes = build_dataset((*dataset.rows, *load_rows(tables / "oom_v2.csv")), prior.stack)
    sized = fit_memory(outcomes, prior, say, start)
    rows = timed(dataset)
    whole = solve(time_problem(dataset, sized, rows), options.rounds, say, start)
    fitted = with_generic(with_values(sized, whole.parameters, whole.x), dataset, rows)
    held = hold_out(dataset, outcomes, partial(leave_out_memory, outcomes, prior, sized), whole, say)
    sized_bytes = predict(outcomes, fitted.stack, fitted.efficiency).memory_bytes
    spreads = memory_spreads(outcomes, sized_bytes, held.memory_bytes)
    constants = replace(fitted, intervals=intervals(dataset, held), memory_spreads=spreads)
    save_constants(out, constants)
    evidence = Evidence(
        dataset=dataset,
        outcomes=outcomes,
        constants=constants,
        held=held,
        tables=tables,
        collectives=collectives,
    )
    save_text(page, render_accuracy(evidence))
    say(f"wrote {out} and {page}")


if __name__ == "__main__":
    raise SystemExit(main())
