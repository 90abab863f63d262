"""What the study of subnetworks found, as rows for files and lines for people."""

from collections.abc import Mapping, Sequence
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
    ROUNDS,
    Result,
    Setting,
    Study,
    mean_marks,
)
from trainwright.study.subnetworks_times import clocks
from trainwright.units import render_bytes

Row = Mapping[str, object]
# What is claimed of subnetworks: so close to exact training with so many times less.
POINTS, LOSS, TIMES = 1.0, 0.01, 4.0
HURTS = 0.10  # of what a network has learned: subnetworks that lose more are said to hurt


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


def coupling_rows(study: Study) -> list[Row]:
    """What was foretold from an exactly trained network, beside what subnetworks then lost.

    Shares are of what that network has learned; there are none if it has learned nothing. The coupling
    foretells what the cut costs. What meeting rarely costs is what local SGD lost; if that was not run, there
    is nothing to set beside the loss against exact training.
    """
    found: list[Row] = []
    for each in study.estimates:
        network, workers = each.experiment.network, each.experiment.workers
        result = next(
            r
            for r in study.of(network, workers)
            if r.method.kind == "whole" and r.method.setting(r.setting.steps) == each.algorithm
        )
        lost = {r.method.name: _above_exact(study, r) for r in study.of(network, workers)}
        by_rounds, measured = lost.get(ROUNDS), lost[result.method.name]
        predicted = None if by_rounds is None else each.share * each.learned + by_rounds
        by_cut = None if by_rounds is None else measured - by_rounds
        found.append(
            {
                "network": network, "workers": workers, "setting": each.algorithm,
                "off_diagonal": each.off_diagonal, "learned": each.learned,
                "predicted_share": _share(predicted, each.learned),
                "measured_share": _share(measured, each.learned),
                "predicted_share_by_cut": each.share, "measured_share_by_cut": _share(by_cut, each.learned),
                "predicted_excess_loss": predicted, "measured_excess_loss": measured,
                "local_sgd_excess_loss": by_rounds,
            }
        )  # fmt: skip
    return found


def _above_exact(study: Study, result: Result) -> float:
    exact = study.result(result.setting.network, result.setting.workers, EXACT)
    return result.loss.mean - exact.loss.mean


def _share(loss: float | None, learned: float) -> float | None:
    return None if loss is None or learned <= 0 else loss / learned


def share_pairs(rows: Sequence[Row], by: str = "") -> list[tuple[float, float]]:
    """Foretold and measured shares, in all or by the cut, where there are any."""
    shares = [(row[f"predicted_share{by}"], row[f"measured_share{by}"]) for row in rows]
    return [(a, b) for a, b in shares if isinstance(a, float) and isinstance(b, float)]


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
    return lines + _foretold(study)


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


def _foretold(study: Study) -> list[str]:
    rows = coupling_rows(study)
    pairs = share_pairs(rows)
    if not pairs:
        return []
    right, total = ordered_pairs(pairs)
    alone, _ = ordered_pairs(share_pairs(rows, "_by_cut"))
    agreeing = sum((a > HURTS) == (b > HURTS) for a, b in pairs)
    return [
        *(_verdict(row) for row in rows if share_pairs([row])),
        f"Coupling, asked of exactly trained networks, with what local SGD loses, foretells which of two "
        f"cuts loses more of what was learned in {right} of {total} pairs of them ({alone} by the cut alone, "
        f"beside local SGD), and whether it hurts in {agreeing} of {len(pairs)} cuts.",
    ]


def _verdict(row: Row) -> str:
    """Whether a cut was foretold to hurt, and whether it does."""
    ((foretold, measured),) = share_pairs([row])
    said, seen = ("hurts" if each > HURTS else "does not hurt" for each in (foretold, measured))
    return (
        f"{row['network']}, {row['workers']} workers, {row['setting']}: foretold to lose {foretold:.0%} of "
        f"what was learned ({row['predicted_share_by_cut']:.0%} by the cut, the rest as local SGD): {said}; "
        f"measured {measured:.0%}: {seen}."
    )


def ordered_pairs(pairs: list[tuple[float, float]]) -> tuple[int, int]:
    """Of how many pairs both numbers say the same order, and how many there are."""
    both = [(a, b) for i, a in enumerate(pairs) for b in pairs[:i]]
    return sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in both), len(both)


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


def coupling_table(study: Study) -> Table:
    """Foretold and measured."""
    rows = [
        [
            f"{row['network']}, {row['workers']} workers", str(row["setting"]), f"{row['off_diagonal']:.0%}",
            *(_percent(row[f"{by}_share{of}"]) for of in ("_by_cut", "") for by in ("predicted", "measured")),
        ]
        for row in coupling_rows(study)
    ]  # fmt: skip
    heads = ["network", "cut", "off diagonal", "by cut", "measured", "in all", "measured"]
    return table("Coupling: foretold to be lost of what was learned, and measured", heads, rows, left=2)


def _percent(share: object) -> str:
    return f"{share:.1%}" if isinstance(share, float) else "-"


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
