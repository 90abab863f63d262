"""`make calibrate`: fit the constants to published runs, judge them on what was left out, write both down."""

import argparse
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from trainwright.cost.load import CALIBRATION, PRIOR, Constants, load_constants, save_constants
from trainwright.errors import TrainwrightError, UnknownName
from trainwright.output_file import save_text
from trainwright.validate.accuracy import Evidence, render_accuracy
from trainwright.validate.calibrate import OPTIONAL_SPREAD, STACK_SPREAD, time_problem, timed, with_generic
from trainwright.validate.collective_fit import judge_fabrics
from trainwright.validate.collective_rows import load_collectives
from trainwright.validate.dataset import Dataset, build_dataset, load_rows, predict
from trainwright.validate.held_out import hold_out, intervals
from trainwright.validate.memory_check import hold_out_memory, render_memory_check
from trainwright.validate.memory_fit import filled_shares, fit_memory, leave_out_memory, stacks_of
from trainwright.validate.memory_spread import memory_evidence, memory_spreads
from trainwright.validate.problem import Say, solve, with_values
from trainwright.validate.recipe_rows import tuned_recipe_rows


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
    parser.add_argument(
        "--memory-page",
        type=Path,
        default=Path("docs/memory_accuracy.md"),
        help="where the tables of memory and OOM risk go",
    )
    parser.add_argument(
        "--memory-only", action="store_true", help="fit what memory depends on and keep constants of time"
    )
    parser.add_argument(
        "--only-stacks",
        nargs="+",
        default=(),
        help="fit the constants of time of these stacks and keep all others",
    )
    options = parser.parse_args(arguments)
    try:
        _run(options)
    except TrainwrightError as error:
        print(f"calibrate: {error}", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> None:
    if options.memory_only:
        calibrate_memory(options)
    elif options.only_stacks:
        calibrate_stacks(options)
    else:
        calibrate(options)


def calibrate(options: argparse.Namespace) -> None:
    """Fit the constants to the tables of a folder and write them, with the pages on their accuracy."""
    tables, out, page = options.tables, options.out, options.page
    start, say = load_constants(options.start) if options.start else None, _progress()
    prior = load_constants(PRIOR)
    collectives = judge_fabrics(load_collectives(tables / "collectives.csv"), prior.fabrics)
    prior = replace(prior, fabrics=collectives.fabrics)
    say(f"{len(collectives.rows)} collectives on {len(collectives.fabrics)} fabrics")
    dataset = build_dataset(load_rows(tables / "runs_v2.csv"), prior.stack)
    say(f"{len(dataset.rows)} runs in {len(dataset.groups)} groups")
    outcomes = build_dataset((*dataset.rows, *load_rows(tables / "oom_v2.csv")), prior.stack)
    bounds = build_dataset((*outcomes.rows, *tuned_recipe_rows()), prior.stack)
    sized = fit_memory(bounds, prior, say, start)
    rows = timed(dataset)
    whole = solve(time_problem(dataset, sized, rows), options.rounds, say, start)
    fitted = with_generic(with_values(sized, whole.parameters, whole.x), dataset, rows)
    held = hold_out(dataset, outcomes, partial(leave_out_memory, bounds, prior, sized), whole, say)
    fitted = replace(fitted, intervals=intervals(dataset, held))
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
    tables, say, known = options.tables, _progress(), load_constants(options.start or CALIBRATION)
    prior = _timed_prior(known)
    outcomes = build_dataset(
        (*load_rows(tables / "runs_v2.csv"), *load_rows(tables / "oom_v2.csv"), *tuned_recipe_rows()),
        prior.stack,
    )
    say(f"{len(outcomes.rows)} runs, failures and recipes in {len(outcomes.groups)} groups")
    fitted = fit_memory(outcomes, prior, say, known)
    save_constants(options.out, _with_spreads(outcomes, prior, fitted, options.memory_page, say))
    say(f"wrote {options.out} and {options.memory_page}")


def calibrate_stacks(options: argparse.Namespace) -> None:
    """Fit the constants of time of some stacks from their priors; all others stay as they are."""
    known, say, names = load_constants(options.start or CALIBRATION), _progress(), set(options.only_stacks)
    for name in sorted(names - set(known.stacks)):
        raise UnknownName("stack", name, known.stacks)
    timed_prior = _timed_prior(known, names)
    prior = replace(known, stacks={**known.stacks, **{name: timed_prior.stacks[name] for name in names}})
    dataset = build_dataset(load_rows(options.tables / "runs_v2.csv"), prior.stack)
    rows = timed(dataset) & np.isin(stacks_of(dataset), sorted(names))
    problem = time_problem(dataset, prior, rows)
    own = tuple(each for each in problem.parameters if each.kind == "stack")
    found = solve(replace(problem, parameters=own), options.rounds, say)
    save_constants(options.out, with_values(prior, own, found.x))
    say(f"wrote {options.out}")


def _timed_prior(known: Constants, without: Collection[str] = ()) -> Constants:
    """The prior of memory, with constants of time that were fitted before, except for some stacks."""
    prior, times = load_constants(PRIOR), (*STACK_SPREAD, *OPTIONAL_SPREAD, "runs")
    stacks = dict(prior.stacks)
    for name in (set(stacks) & set(known.stacks)) - set(without):
        stacks[name] = replace(stacks[name], **{each: getattr(known.stacks[name], each) for each in times})
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
