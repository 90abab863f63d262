"""What anchoring gains: published runs predicted without and with one run of each of their kinds as anchor.

For each source of a table, one random run of each (stack, device, precision) is the anchor, and the others
are predicted with it. Printed are the median over sources of each source's median error, without and with
the anchor, and sources that get worse; and the variances that the anchor rests on, from the same residuals.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import exp, log
from pathlib import Path

import numpy as np

from trainwright.cost.anchor import Anchor, AnchorRun, anchor_job, is_same_model
from trainwright.cost.load import Constants, Interval, load_constants, rests_on
from trainwright.validate.anchor_runs import row_conditions
from trainwright.validate.dataset import (
    PUBLISHED,
    build_dataset,
    load_rows,
    measured,
    predict,
    stack_name,
)

_LIMIT = 0.5  # of a logarithm, where variances are estimated
_MOST_PAIRED = 300  # runs of a source of which all pairs are taken
_ALIKE, _DIFFER = "shared, one model", "shared, one condition differs, one model"
FIGURES = ("step time", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", type=Path, default=PUBLISHED, help="runs, as docs/validation.md")
    parser.add_argument(
        "--draws", type=int, default=10, help="random choices of anchors, of which the mean counts"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    constants = load_constants()
    by_source, known, ranges = _runs(options.table, constants)
    for figure in FIGURES:
        timed = {
            source: own
            for source, runs in by_source.items()
            if len(own := [each for each in runs if _log(each, figure) is not None]) > 1
        }
        _print_variances(figure, "all", timed)
        unknown = {source: [each for each in own if not known[each.id]] for source, own in timed.items()}
        _print_variances(figure, "stack or device unknown", unknown)
        _print_gain(figure, timed, known, options.draws, np.random.default_rng(options.seed))
    _print_coverage(by_source, known, ranges, options.draws, np.random.default_rng(options.seed))


def _runs(
    path: Path, constants: Constants
) -> tuple[dict[str, list[AnchorRun]], dict[str, bool], dict[str, Interval]]:
    """The runs of each source; and by name of a run, whether device and stack are known, and its range."""
    rows = load_rows(path)
    dataset = build_dataset(rows, constants.stack)
    predictions, truth = predict(dataset, constants.stack, constants.efficiency), measured(dataset)
    found: dict[str, list[AnchorRun]] = defaultdict(list)
    known: dict[str, bool] = {}
    ranges: dict[str, Interval] = {}
    for index, (row, case) in enumerate(zip(rows, dataset.cases, strict=True)):
        if case is None or not np.isfinite(predictions.step_s[index]):
            continue
        name = f"{index}"
        step_s, peak = truth["step_s"][index], truth["memory_bytes"][index]
        run = AnchorRun(
            id=name, model=case.graph.name, conditions=row_conditions(row, case),
            step_s=float(step_s) if np.isfinite(step_s) else None,
            predicted_step_s=float(predictions.step_s[index]),
            memory_bytes=float(peak) if np.isfinite(peak) else None,
            predicted_memory_bytes=float(predictions.memory_bytes[index]),
        )  # fmt: skip
        found[case.source].append(run)
        stack = constants.stack(stack_name(case))
        efficiency = constants.efficiency(case.cluster.device)
        known[name] = rests_on(efficiency, stack) == "both"
        ranges[name] = constants.interval(efficiency, stack)
    return found, known, ranges


def _log(run: AnchorRun, figure: str) -> float | None:
    if figure == "step time":
        return log(run.step_s / run.predicted_step_s) if run.step_s and run.predicted_step_s else None
    assert figure == "memory", figure
    found, predicted = run.memory_bytes, run.predicted_memory_bytes
    return log(found / predicted) if found and predicted else None


def _print_variances(figure: str, which: str, by_source: Mapping[str, Sequence[AnchorRun]]) -> None:
    """The variances of `cost/anchor.py`, as this table has them."""
    kinds: dict[str, list[float]] = defaultdict(list)
    pairs: list[tuple[float, float]] = []  # of sources that have both kinds
    for runs in filter(None, by_source.values()):
        means = {kind: float(np.mean(each)) for kind, each in _products(figure, runs).items() if each}
        if _ALIKE in means and _DIFFER in means:
            pairs.append((means[_ALIKE], means[_DIFFER]))
        for kind, value in means.items():
            kinds[kind].append(value)
    print(f"{figure}, {which}: variances of log(measured / predicted), means over sources")
    for kind, values in sorted(kinds.items()):
        print(f"  {kind:42} {np.mean(values):7.4f}  ({len(values)} sources)")
    if pairs:
        alike, differ = np.mean(pairs, axis=0)
        print(f"  kept where one condition differs: {differ / alike:.2f}  ({len(pairs)} sources with both)")


def _products(figure: str, runs: Sequence[AnchorRun]) -> Mapping[str, list[float]]:
    """Products of the logarithms of pairs of a source's runs, by what the pair shares."""
    chosen = list(runs)
    if len(chosen) > _MOST_PAIRED:
        picked = np.random.default_rng(0).choice(len(chosen), _MOST_PAIRED, replace=False)
        chosen = [chosen[index] for index in picked]
    found: dict[str, list[float]] = defaultdict(list)
    logs = [(each.conditions, _log(each, figure)) for each in chosen]
    limited = [(own, min(max(value, -_LIMIT), _LIMIT)) for own, value in logs if value is not None]
    found["total"] = [value**2 for _, value in limited]
    for (a, x), (b, y) in combinations(limited, 2):
        if (a.stack, a.family) != (b.stack, b.family):
            continue
        model = "one model" if is_same_model(a, b) else "two models"
        differ = (a.device != b.device) + (a.precision != b.precision) + (a.release != b.release)
        if differ <= 1:
            found[f"{('shared', 'shared, one condition differs')[differ]}, {model}"].append(x * y)
        if not differ and model == "one model":
            found["scatter of single runs"].append((x - y) ** 2 / 2)
    return found


def _print_gain(
    figure: str, by_source: Mapping[str, Sequence[AnchorRun]], known: Mapping[str, bool], draws: int,
    chance: np.random.Generator,
) -> None:  # fmt: skip
    """Errors without and with the anchor: the mean over draws of each source's median."""
    errors: dict[str, list[tuple[float, float]]] = defaultdict(list)
    overall: list[tuple[float, float]] = []
    for _ in range(draws):
        drawn: list[tuple[float, float]] = []
        for source, runs in by_source.items():
            anchors = _draw(runs, chance)
            others = [each for each in runs if each not in anchors]
            if others:
                found = _errors(figure, anchors, others, known)
                errors[source].append(found)
                drawn.append(found)
        overall.append((_median(each for each, _ in drawn), _median(each for _, each in drawn)))
    rows = {source: np.mean(values, axis=0) for source, values in errors.items()}
    without, anchored = np.mean(overall, axis=0)
    print(f"{figure}: median error of each source's other runs, mean of {draws} draws")
    for source, (before, after) in sorted(rows.items(), key=lambda each: each[1][0] - each[1][1]):
        print(f"  {before:6.1%} -> {after:6.1%}  ({len(by_source[source])} runs)  {source}")
    worse = [source for source, (before, after) in rows.items() if after > before + 0.01]
    print(f"{figure}: median over {len(rows)} sources {without:.1%} without, {anchored:.1%} with an anchor")
    print(f"{figure}: {len(worse)} sources worse by more than 1 point")
    single = [after - before for values in errors.values() for before, after in values]
    worse_draws, better_draws = sum(each > 0.01 for each in single), sum(each < -0.01 for each in single)
    print(
        f"{figure}: of {len(single)} single draws of a source, {worse_draws} are worse and {better_draws} "
        "better by more than 1 point"
    )
    print()


def _print_coverage(
    by_source: Mapping[str, Sequence[AnchorRun]], known: Mapping[str, bool],
    ranges: Mapping[str, Interval], draws: int, chance: np.random.Generator,
) -> None:  # fmt: skip
    """How many step times lie in their ranges, and how wide these are, without and with the anchor."""
    inside: dict[str, list[tuple[float, float]]] = defaultdict(list)
    widths: list[tuple[float, float]] = []
    for _ in range(draws):
        for source, runs in by_source.items():
            timed = [each for each in runs if each.step_s]
            anchors = _draw(timed, chance)
            anchor = Anchor(name="drawn", runs=tuple(anchors))
            covered: list[tuple[float, float]] = []
            for run in timed[:_MOST_PAIRED]:
                if run in anchors:
                    continue
                ratio, usual = exp(_log(run, "step time") or 0.0), ranges[run.id]
                found = anchor_job(anchor, run.conditions, known=known[run.id]).step_time
                factor, own = (found.factor, found.narrow(usual)) if found else (1.0, usual)
                is_inside = usual.low <= ratio <= usual.high, own.low <= ratio / factor <= own.high
                covered.append((float(is_inside[0]), float(is_inside[1])))
                widths.append((usual.high / usual.low, own.high / own.low))
            if covered:
                inside[source].append(tuple(np.mean(covered, axis=0)))
    shares = np.median([np.mean(values, axis=0) for values in inside.values()], axis=0)
    high_low = np.median(widths, axis=0)
    print(f"in range: median over sources {shares[0]:.1%} without, {shares[1]:.1%} with an anchor")
    print(f"high / low: median {high_low[0]:.2f} without, {high_low[1]:.2f} with an anchor")


def _draw(runs: Sequence[AnchorRun], chance: np.random.Generator) -> list[AnchorRun]:
    """One run of each stack, device and precision."""
    groups: dict[object, list[AnchorRun]] = defaultdict(list)
    for run in runs:
        own = run.conditions
        groups[own.stack, own.device, own.precision].append(run)
    return [own[int(chance.integers(len(own)))] for own in groups.values()]


def _errors(
    figure: str, anchors: Sequence[AnchorRun], others: Sequence[AnchorRun], known: Mapping[str, bool]
) -> tuple[float, float]:
    anchor = Anchor(name="drawn", runs=tuple(anchors))
    factors: dict[object, float] = {}
    before, after = [], []
    for run in others:
        key = (run.conditions, known[run.id])
        if key not in factors:
            found = anchor_job(anchor, run.conditions, known=known[run.id])
            correction = found.step_time if figure == "step time" else found.memory
            factors[key] = correction.factor if correction else 1.0
        ratio = exp(-(_log(run, figure) or 0.0))  # predicted over measured
        before.append(abs(ratio - 1.0))
        after.append(abs(factors[key] * ratio - 1.0))
    return _median(before), _median(after)


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


if __name__ == "__main__":
    main()
