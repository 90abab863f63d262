"""What the study of subnetworks found, as rows for files and lines for people."""

from collections.abc import Mapping
from dataclasses import asdict

from rich.table import Table

from trainwright.algorithm.risk import Risk
from trainwright.report.tables import table
from trainwright.study.algorithm_map import ALONE, STEPS, TOLERANCES, Place, memory_bytes
from trainwright.study.intervals import Interval
from trainwright.study.subnetworks import (
    CONTROLS,
    EXACT,
    METHODS,
    OURS,
    Result,
    Setting,
    Study,
    mean_marks,
)
from trainwright.study.subnetworks_coupling import Row, coupling_lines, coupling_rows
from trainwright.study.subnetworks_times import clocks
from trainwright.units import render_bytes

# What is claimed of subnetworks: so close to exact training with so many times less.
POINTS, LOSS, TIMES = 1.0, 0.01, 4.0


def study_tables(study: Study) -> Mapping[str, list[Row]]:
    """Every table by the name of its file."""
    places = study.places
    return {
        "results": [result_row(each) for each in study.results],
        "quadratics": [asdict(each) | {"agrees": each.agrees} for each in study.endings],
        "coupling": coupling_rows(study),
        "curves": [row for each in study.results for row in curve_rows(each)],
        "times": [row for each in study.results for row in time_rows(each)],
        "map": [row for each in places for row in place_rows(each)],
        "memory": memory_rows() if places else [],
    }


def result_row(result: Result) -> Row:
    """A method in a setting, on the test split."""
    return {
        "network": result.setting.network, "workers": result.setting.workers, "method": result.method.name,
        "setting": result.method.setting(result.setting.steps), "steps": result.setting.steps,
        "rate": result.rate, "rate_at_edge": result.at_edge, "seeds": len(result.curves),
        **_spread("loss", result.loss), **_spread("accuracy", result.accuracy),
        **_spread("excess_loss", result.excess_loss), **_spread("points", result.points),
        "sent_bytes": result.sent_bytes, "times_fewer_bytes": result.fewer,
    }  # fmt: skip


def _spread(name: str, found: Interval) -> dict[str, float]:
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def curve_rows(result: Result) -> list[Row]:
    """Loss and accuracy against steps and bytes, means over seeds."""
    losses, right = (mean_marks(result.curves, "test", each) for each in ("loss", "accuracy"))
    return [
        _names(result)
        | {"step": mark.step, "sent_bytes": mark.sent_bytes, "loss": loss, "accuracy": accuracy}
        for mark, loss, accuracy in zip(result.curves[0].marks, losses, right, strict=True)
    ]


def time_rows(result: Result) -> list[Row]:
    """Loss and accuracy against predicted time on each link."""
    losses, right = (mean_marks(result.curves, "test", each) for each in ("loss", "accuracy"))
    return [
        _names(result) | {"link": clock.link.name, "seconds": at, "loss": loss, "accuracy": accuracy}
        for clock in clocks(result)
        for at, loss, accuracy in zip(clock.seconds, losses, right, strict=True)
    ]


def _names(result: Result) -> dict[str, object]:
    setting = result.setting
    return {"network": setting.network, "workers": setting.workers, "method": result.method.name}


def place_rows(place: Place) -> list[Row]:
    """A choice for each loss that may be added."""
    return [
        {
            "size": place.size, "bandwidth": place.bandwidth, "latency": place.latency,
            "excess_loss_at_most": most, "choice": place.choice[most], "speedup": place.speedup[most],
            "exact_step_s": place.step_s[EXACT], "alone_step_s": place.step_s[ALONE],
            "step_s": place.step_s[place.choice[most]],
        }
        for most in TOLERANCES
    ]  # fmt: skip


def memory_rows() -> list[Row]:
    """What a worker holds in training, by size of model."""
    settings = {each.name: each.setting(STEPS) for each in METHODS if each.kind == "whole"}
    return [
        {"method": name, "size": size, "memory_bytes": held}
        for name, sizes in memory_bytes(settings).items()
        for size, held in sizes.items()
    ]


def risks(study: Study, source: str) -> tuple[Risk, ...]:
    """What a planner may show."""
    return tuple(
        Risk(
            algorithm=each.method.setting(each.setting.steps).split()[0], network=each.setting.network,
            workers=each.setting.workers, excess_loss=round(each.excess_loss.mean, 4),
            low=round(each.excess_loss.low, 4), high=round(each.excess_loss.high, 4),
            accuracy_points=round(each.points.mean, 2), seeds=len(each.curves), source=source,
            setting=each.method.setting(each.setting.steps), steps=each.setting.steps,
        )
        for each in study.results
        if each.method.kind == "whole" and each.method.name != EXACT
    )  # fmt: skip


def study_lines(study: Study) -> list[str]:
    """What to say first: what is claimed of subnetworks, where they lose, and whether that was foretold."""
    agreeing = sum(each.agrees for each in study.endings)
    lines = [f"Quadratics: theory and simulation agree in {agreeing} of {len(study.endings)} cases."]
    for setting in study.settings:
        lines += [_claim(study.result(setting.network, setting.workers, OURS))]
        lines.append(_losers(study, setting, "loss"))
        if setting.network != "transformer":
            lines.append(_losers(study, setting, "accuracy"))
    return lines + coupling_lines(study)


def keeps_up(result: Result) -> bool:
    """Whether subnetworks are as good as exact training with a quarter of its bytes.

    That is within a point of accuracy; of a language model, within a hundredth of the loss.
    """
    text = result.setting.network == "transformer"
    near = result.excess_loss.mean <= LOSS if text else result.points.mean >= -POINTS
    return near and (result.fewer or float("inf")) >= TIMES


def _claim(result: Result) -> str:
    where = f"{result.setting.network}, {result.setting.workers} workers"
    word = "keeps up" if keeps_up(result) else "LOSES"
    return (
        f"{where}: {OURS} {word}: {result.points.mean:+.2f} points of accuracy "
        f"({result.points.low:+.2f} to {result.points.high:+.2f}) and {result.excess_loss.mean:+.1%} loss "
        f"against exact data parallelism, with {result.fewer or 0:.1f} times fewer bytes."
    )


def _losers(study: Study, setting: Setting, number: str) -> str:
    """Who is better than subnetworks by a number, and sends no more."""
    where = f"{setting.network}, {setting.workers} workers"
    ours = study.result(setting.network, setting.workers, OURS)
    sign = -1.0 if number == "loss" else 1.0

    def worth(result: Result) -> float:
        return sign * float(getattr(result, number).mean)

    listed = sorted(study.of(setting.network, setting.workers), key=worth, reverse=True)
    better = [each for each in listed if worth(each) > worth(ours) and each.sent_bytes <= ours.sent_bytes]
    if not better:
        return f"{where}: in {number}, nothing that sends no more is better than {OURS}."
    named = ", ".join(
        f"{each.method.name}{' (a control)' if each.method.name in CONTROLS else ''} {_shown(each, number)}"
        for each in better
    )
    return f"{where}: in {number}, {OURS} ({_shown(ours, number)}) is beaten, with no more bytes, by {named}."


def _shown(result: Result, number: str) -> str:
    return f"{result.loss.mean:.4f}" if number == "loss" else f"{result.accuracy.mean:.2%}"


def result_table(study: Study, network: str, workers: int) -> Table:
    """A setting, the least loss first."""
    rows = [
        [
            each.method.name, f"{each.loss.mean:.4f}", _plus_minus(each.excess_loss),
            f"{each.accuracy.mean:.2%}", f"{each.points.mean:+.2f}", render_bytes(each.sent_bytes),
            f"{each.fewer:.1f}x" if each.fewer else "all", f"{each.rate:g}{'*' if each.at_edge else ''}",
        ]
        for each in sorted(study.of(network, workers), key=lambda each: each.loss.mean)
    ]  # fmt: skip
    heads = ["method", "loss", "over exact", "accuracy", "points", "sent", "fewer", "rate"]
    return table(f"{network}, {workers} workers (test split)", heads, rows)


def _plus_minus(found: Interval) -> str:
    return f"{found.mean:+.1%} ±{(found.high - found.low) / 2:.1%}"


def map_table(study: Study, latency: str = "1 ms") -> Table:
    """The choices at one latency."""
    rows = [
        [
            place.size, place.bandwidth,
            *(f"{place.choice[most]} {place.speedup[most]:.1f}x" for most in TOLERANCES),
        ]
        for place in study.places
        if place.latency == latency
    ]  # fmt: skip
    heads = ["model", "links", *(f"loss +{most:.0%} at most" for most in TOLERANCES)]
    return table(
        f"Which algorithm ({latency} latency, 4 workers of 8 H100)", heads, rows, left=2 + len(TOLERANCES)
    )
