"""`make calibrate`: fit the constants to published runs, judge them on what was left out, write both down."""

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainwright.cost.load import CALIBRATION, PRIOR, Constants, load_constants, save_constants
from trainwright.errors import TrainwrightError
from trainwright.output_file import save_text
from trainwright.validate.accuracy import Evidence, render_accuracy
from trainwright.validate.calibrate import fit_times, timed, with_forks, with_runs
from trainwright.validate.collective_fit import judge_fabrics
from trainwright.validate.collective_rows import load_collectives
from trainwright.validate.dataset import Dataset, build_dataset, load_rows, predict
from trainwright.validate.held_out import hold_out, with_ranges
from trainwright.validate.hierarchy import TIME_FIELDS
from trainwright.validate.kernel_rates import with_kernel_rates
from trainwright.validate.memory_check import hold_out_memory, render_memory_check
from trainwright.validate.memory_fit import filled_shares, fit_memory, leave_out_memory, with_memory_of
from trainwright.validate.memory_spread import memory_evidence, memory_spreads
from trainwright.validate.recipe_rows import tuned_recipe_rows
from trainwright.validate.robust_fit import Say


def main(arguments: list[str] | None = None) -> int:
    """Fit, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m trainwright.validate.maintain", description=__doc__)
    parser.add_argument(
        "tables", type=Path, help="folder with runs_v2.csv, oom_v2.csv, gemm.csv and collectives.csv"
    )
    parser.add_argument("--rounds", type=int, default=6, help="most rounds of the fit (default 6)")
    parser.add_argument("--out", type=Path, default=CALIBRATION, help="where the constants go")
    parser.add_argument(
        "--page", type=Path, default=Path("docs/accuracy.md"), help="where the tables of errors go"
    )
    parser.add_argument(
        "--memory-page",
        type=Path,
        default=Path("docs/memory_accuracy.md"),
        help="where the tables of memory and OOM risk go",
    )
    parser.add_argument(
        "--memory-only", action="store_true", help="fit what memory depends on and keep constants of time"
    )
    options = parser.parse_args(arguments)
    try:
        (calibrate_memory if options.memory_only else calibrate)(options)
    except TrainwrightError as error:
        print(f"calibrate: {error}", file=sys.stderr)
        return 1
    return 0


def calibrate(options: argparse.Namespace) -> None:
    """Fit the constants to the tables of a folder and write them, with the pages on their accuracy."""
    tables, out, page, say = options.tables, options.out, options.page, _progress()
    prior = load_constants(PRIOR)
    collectives = judge_fabrics(load_collectives(tables / "collectives.csv"), prior.fabrics)
    prior = replace(prior, fabrics=collectives.fabrics)
    say(f"{len(collectives.rows)} collectives on {len(collectives.fabrics)} fabrics")
    prior = with_kernel_rates(prior, tables / "gemm.csv")
    dataset = build_dataset(load_rows(tables / "runs_v2.csv"), prior.stack)
    say(f"{len(dataset.rows)} runs in {len(dataset.groups)} groups")
    outcomes = build_dataset((*dataset.rows, *load_rows(tables / "oom_v2.csv")), prior.stack)
    bounds = build_dataset((*outcomes.rows, *tuned_recipe_rows()), prior.stack)
    sized = fit_memory(bounds, prior, say, load_constants(CALIBRATION))
    model, near = fit_times(dataset, with_forks(sized, dataset), options.rounds, say)
    fitted = with_runs(model.hierarchy.constants(near.x), dataset, timed(dataset))
    held = hold_out(outcomes, partial(leave_out_memory, bounds, prior, sized), model, near, say)
    fitted = with_ranges(fitted, dataset, held)
    constants = _with_spreads(bounds, prior, fitted, options.memory_page, say)
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
    say(f"wrote {out}, {page} and {options.memory_page}")


def calibrate_memory(options: argparse.Namespace) -> None:
    """Fit the constants of memory and their spread again; those of time stay as they are."""
    tables, say, known = options.tables, _progress(), load_constants(CALIBRATION)
    prior = _timed_prior(known)
    outcomes = build_dataset(
        (*load_rows(tables / "runs_v2.csv"), *load_rows(tables / "oom_v2.csv"), *tuned_recipe_rows()),
        prior.stack,
    )
    say(f"{len(outcomes.rows)} runs, failures and recipes in {len(outcomes.groups)} groups")
    sized = fit_memory(outcomes, prior, say, known)
    fitted = replace(with_memory_of(known, sized), memory_spreads=sized.memory_spreads)
    save_constants(options.out, _with_spreads(outcomes, prior, fitted, options.memory_page, say))
    say(f"wrote {options.out} and {options.memory_page}")


def _timed_prior(known: Constants) -> Constants:
    """The prior of memory, with the constants of time that were fitted before."""
    stacks = {
        name: replace(each, **{field: getattr(known.stacks[name], field) for field in TIME_FIELDS})
        if name in known.stacks
        else each
        for name, each in load_constants(PRIOR).stacks.items()
    }
    return replace(known, stacks=stacks)


def _with_spreads(outcomes: Dataset, prior: Constants, fitted: Constants, page: Path, say: Say) -> Constants:
    """The constants with the spread of memory, and the page on it written."""
    held = hold_out_memory(outcomes, prior, fitted, say)
    found = predict(outcomes, fitted.stack, fitted.efficiency)
    own = memory_evidence(outcomes, found.memory_bytes, filled_shares(outcomes, found))
    spreads = memory_spreads(outcomes, own, memory_evidence(outcomes, held.memory_bytes, held.filled))
    save_text(page, render_memory_check(outcomes, held, spreads))
    return replace(fitted, memory_spreads=spreads)


def _progress() -> Say:
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {text}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    raise SystemExit(main())
