"""The figures of the study of subnetworks."""

from collections.abc import Sequence

from trainwright.report.figures import Axis, Figure, Grid, Series
from trainwright.study.algorithm_map import BANDWIDTHS, SIZES, TOLERANCES, WORKERS, Place
from trainwright.study.subnetworks import OURS, Result, Study, mean_marks
from trainwright.study.subnetworks_coupling import coupling_rows, ordered_pairs, share_pairs
from trainwright.study.subnetworks_tables import keeps_up
from trainwright.study.subnetworks_times import clocks

_LATENCY = "1 ms"  # of the maps
_SHOWN = (
    "ddp", "local-sgd", "diloco", "ist", "ist disjoint", "rand-k", "qsgd", "top-k", "power-sgd", "small",
    "ensemble",
)  # fmt: skip


def study_figures(study: Study) -> list[Figure]:
    """Theory, curves of each setting, coupling, map."""
    found, places = [_quadratics(study), _accuracy(study)], study.places
    for setting in study.settings:
        if setting.workers == WORKERS:
            results = [r for r in study.of(setting.network, setting.workers) if r.method.name in _SHOWN]
            number = "loss" if setting.network == "transformer" else "accuracy"
            found += [_steps(results, number), _bytes(results, number)]
            found += _times(results, number) if len(results) == len(_SHOWN) else []
    if len(share_pairs(coupling_rows(study))) > 1:
        found.append(_coupling(study))
    return [*found, *(_map(places, most) for most in TOLERANCES if places)]


def _quadratics(study: Study) -> Figure:
    names = ("ist", "ist half", "perm-k")
    series = []
    for name in names:
        rows = [each for each in study.endings if each.method == name]
        cases = tuple(each.case for each in rows)
        series += [
            Series(
                name=f"{name}, theory", x=cases, y=tuple(max(each.theory, 1e-6) for each in rows), kind="bars"
            ),
            Series(
                name=f"{name}, simulated", x=cases, y=tuple(max(each.simulated, 1e-6) for each in rows),
                kind="bars",
            ),
        ]  # fmt: skip
    agreeing = sum(each.agrees for each in study.endings)
    return Figure(
        name="quadratics", title="Where methods end on quadratics (8 coordinates, 4 workers)",
        claim="Subnetworks stall at a bias that theory knows; there is none without coupling or slopes.",
        holds=agreeing == len(study.endings),
        finding=f"Theory and simulation agree in {agreeing} of {len(study.endings)} cases.",
        x=Axis(title="case"), y=Axis(title="mean square distance from the minimum", log=True),
        series=tuple(series),
    )  # fmt: skip


def _accuracy(study: Study) -> Figure:
    network = study.results[0].setting.network
    ours = [r for r in study.results if r.method.name == OURS and r.setting.network == network]
    found = "; ".join(
        f"{r.setting.workers} workers: {r.points.mean:+.2f} points ({r.points.low:+.2f} to "
        f"{r.points.high:+.2f}), {r.fewer:.1f} times fewer bytes"
        for r in ours
    )
    settings = [each for each in study.settings if each.network == network]
    series = [
        Series(
            name=f"{setting.workers} workers",
            x=tuple(r.method.name for r in study.of(network, setting.workers)),
            y=tuple(r.points.mean for r in study.of(network, setting.workers)), kind="points",
        )
        for setting in sorted(settings, key=lambda each: -len(each.methods))
    ]  # fmt: skip
    return Figure(
        name=f"{network.replace('-', '_')}_points",
        title=f"Accuracy against exact data parallelism: {network}",
        claim="Subnetworks with sensible defaults are within a point of it with a quarter of its bytes.",
        holds=bool(ours) and all(keeps_up(each) for each in ours), finding=found,
        x=Axis(title="method"), y=Axis(title="points of accuracy"), series=tuple(series),
    )  # fmt: skip


def _where(results: Sequence[Result]) -> tuple[str, str]:
    """For names of files, and for people."""
    setting = results[0].setting
    return f"{setting.network}_{setting.workers}", f"{setting.network}, {setting.workers} workers"


def _axis(number: str) -> Axis:
    return Axis(title=f"{number} on the test split", percent=number == "accuracy")


def _steps(results: Sequence[Result], number: str) -> Figure:
    file, where = _where(results)
    series = tuple(
        Series(
            name=each.method.name, x=tuple(float(mark.step) for mark in each.curves[0].marks),
            y=tuple(mean_marks(each.curves, "test", number)),
        )
        for each in results
    )  # fmt: skip
    title = f"{number.capitalize()} against steps: {where}"
    return Figure(
        name=f"{file}_steps", title=title, x=Axis(title="steps"), y=_axis(number), series=series,
        finding=_told(results),
    )  # fmt: skip


def _bytes(results: Sequence[Result], number: str) -> Figure:
    file, where = _where(results)
    series = []
    for each in results:
        pairs = [
            (mark.sent_bytes / 1e6, value)
            for mark, value in zip(each.curves[0].marks, mean_marks(each.curves, "test", number), strict=True)
            if mark.sent_bytes > 0
        ]
        if pairs:
            series.append(
                Series(name=each.method.name, x=tuple(p[0] for p in pairs), y=tuple(p[1] for p in pairs))
            )
    return Figure(
        name=f"{file}_bytes", title=f"{number.capitalize()} against bytes: {where}",
        x=Axis(title="megabytes that a worker has sent", log=True), y=_axis(number), series=tuple(series),
        finding="The ensemble sends nothing, so it is not drawn. " + _told(results),
    )  # fmt: skip


def _times(results: Sequence[Result], number: str) -> list[Figure]:
    """One figure a link."""
    file, where = _where(results)
    timed = [clocks(each) for each in results]
    found = []
    for place, first in enumerate(timed[0]):
        series = tuple(
            Series(
                name=each.method.name, x=clock[place].seconds,
                y=tuple(mean_marks(each.curves, "test", number)),
            )
            for each, clock in zip(results, timed, strict=True)
        )  # fmt: skip
        speed = first.link.name.replace(" ", "").replace("/", "").lower()
        title = f"{number.capitalize()} against time on {first.link.name}: {where}"
        found.append(
            Figure(
                name=f"{file}_{speed}", title=title,
                x=Axis(title="predicted seconds", log=True), y=_axis(number), series=series,
            )
        )  # fmt: skip
    return found


def _told(results: Sequence[Result]) -> str:
    ours = next(each for each in results if each.method.name == OURS)
    return (
        f"{OURS}: {ours.excess_loss.mean:+.1%} loss, {ours.points.mean:+.2f} points against exact data "
        f"parallelism."
    )


def _coupling(study: Study) -> Figure:
    rows = [row for row in coupling_rows(study) if share_pairs([row])]
    pairs = share_pairs(rows)
    (right, total), (alone, _) = ordered_pairs(pairs), ordered_pairs(share_pairs(rows, "_by_cut"))
    series = tuple(
        Series(
            name=f"{row['network']}, {row['workers']} workers: {row['setting']}", x=(pair[0],), y=(pair[1],),
            kind="points",
        )
        for row, pair in zip(rows, pairs, strict=True)
    )  # fmt: skip
    return Figure(
        name="coupling", title="What coupling foretells, and what subnetworks lost",
        claim="The coupling of an exactly trained network, and local SGD, tell which cut loses more.",
        holds=right > total / 2,
        finding=f"The order is right in {right} of {total} pairs; by the cut, beside local SGD, in {alone}.",
        x=Axis(title="foretold loss above exact training's, of what was learned", percent=True),
        y=Axis(title="measured loss above exact training's, of what was learned", percent=True),
        series=series,
    )  # fmt: skip


def _map(places: Sequence[Place], most: float) -> Figure:
    at = {(each.size, each.bandwidth): each for each in places if each.latency == _LATENCY}
    values = tuple(tuple(at[size, band].speedup[most] for band in BANDWIDTHS) for size in SIZES)
    told = "; ".join(
        f"{size}: " + ", ".join(f"{band} {at[size, band].choice[most]}" for band in BANDWIDTHS)
        for size in SIZES
    )
    return Figure(
        name=f"map_{100 * most:.0f}", finding=told,
        title=f"Speed-up over exact training, at most {most:.0%} more loss, {_LATENCY} latency",
        x=Axis(title="links between workers"), y=Axis(title="parameters"),
        grid=Grid(columns=tuple(BANDWIDTHS), rows=tuple(SIZES), values=values, title="times as fast"),
    )  # fmt: skip
