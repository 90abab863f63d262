"""Figures of the study of computation and communication: each with its claim, judged by the numbers in it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trainwright.report.figures import Axis, Band, Figure, Series
from trainwright.study.algorithm_edge import GROWTHS, required_tp
from trainwright.study.comp_vs_comm import Study
from trainwright.study.future_models import BANDS, FASTER, HIDDEN, ROOMIER, TP, Points

Array = NDArray[np.float64]
_TP_AXIS = Axis(title="tensor-parallel degree", log=True)
_HIDDEN_AXIS = Axis(title="hidden size", log=True)
_SHARE_AXIS = Axis(title="serialized communication, of the step", percent=True)
_BANDS_CLAIM = (
    "serialized communication is 20–50, 30–65 and 40–75 % of the step of future models (H from 16K) at "
    "flop-vs-bw 1x, 2x and 4x."
)


def study_figures(study: Study) -> Sequence[Figure]:
    """All of them, in the order of the study."""
    figures = [
        _edge(study), _required_tp(study), _over_tp(study),
        _band_figure(
            study, study.by_shard, "shares_published_pairs",
            "Serialized share at the published pairs, TP = H/256", f"With TP = H/256 {_BANDS_CLAIM}",
        ),
        _band_figure(
            study, study.by_memory[1.0], "shares_required_tp",
            "Serialized share at the TP that memory requires",
            f"At the TP that memory requires (p/s from 3.9B on TP 8) {_BANDS_CLAIM}",
        ),
        _memory(study),
    ]  # fmt: skip
    return figures if study.switches.inference else [*figures, _overlapped(study)]


def _edge(study: Study) -> Figure:
    names = tuple(str(row["model"]) for row in study.models)
    edge, slack, there = (_column(study, key) for key in ("edge", "slack", "edge_at_required_tp"))
    return Figure(
        name="edge_and_slack", title="Compute's edge and slack over BERT-Large's",
        claim="At a fixed TP compute gains on serialized communication as models grow; at the TP that memory "
        "requires the gain is lost.",
        holds=bool(edge[-1] > edge[0] and min(there[1:]) < 1.0 and there[-1] < there[0]),
        finding=f"{names[-1]}: edge {edge[-1]:.1f}x at a fixed TP, {there[-1]:.3f}x at the required one; "
        f"slack {slack[-1]:.1f}x at one sequence a device.",
        x=Axis(title=""), y=Axis(title="times BERT-Large's", log=True),
        series=tuple(
            Series(name=name, x=names, y=tuple(values), kind="bars")
            for name, values in (("edge, same TP", edge), ("edge, required TP", there), ("slack", slack))
        ),
    )  # fmt: skip


def _required_tp(study: Study) -> Figure:
    names = tuple(f"{row['model']} ({row['year']})" for row in study.models)
    least, most = (float(required_tp(*each)) / 8.0 for each in ((530e9, 5.0), (540e9, 2.0)))
    return Figure(
        name="required_tp", title="TP that memory requires of published models",
        claim="Memory grows more slowly than models: TP must grow 40 to 60 times, to about 250 to 550.",
        holds=least <= 40.0 and most >= 60.0,
        finding=f"For 530–540B parameters and 2 to 5 times the memory: {least:.0f} to {most:.0f} times, TP "
        f"{8 * least:.0f} to {8 * most:.0f}.",
        x=Axis(title=""), y=Axis(title="required TP", log=True),
        series=tuple(
            Series(
                name=f"memory grows {growth:g}x a year", x=names,
                y=tuple(_column(study, f"tp_if_memory_grows_{growth:g}x_a_year")),
            )
            for growth in GROWTHS
        ),
    )  # fmt: skip


def _over_tp(study: Study) -> Figure:
    points = study.everywhere
    shares = points.time.serialized_share()
    sizes = points.sizes
    series = []
    for hidden in HIDDEN:
        at = (sizes.hidden == hidden) & (sizes.seq == 2048) & (sizes.batch == 1)
        series.append(Series(name=f"H {hidden / 1024:g}K", x=tuple(sizes.tp[at]), y=tuple(shares[at])))
    rising, falling = _steps(points, shares)
    return Figure(
        name="share_over_tp", title="Serialized share over TP (SL 2K, B 1, flop-vs-bw 1x)",
        claim="The share rises with TP at fixed H and SL, and falls with H at fixed TP.",
        holds=rising[0] == rising[1] and falling[0] == falling[1],
        finding=f"It rises in {rising[0]} of {rising[1]} doublings of TP and falls in {falling[0]} of "
        f"{falling[1]} doublings of H.",
        x=_TP_AXIS, y=_SHARE_AXIS, series=tuple(series),
    )  # fmt: skip


def _steps(points: Points, shares: Array) -> tuple[tuple[int, int], tuple[int, int]]:
    """Doublings of TP in which the share rises, and of H in which it falls; and how many there are."""
    sizes = points.sizes
    keys = zip(sizes.hidden, sizes.seq, sizes.batch, sizes.tp, strict=True)
    known = dict(zip(keys, shares, strict=True))
    more_tp = [known[h, s, b, 2 * t] - v for (h, s, b, t), v in known.items() if (h, s, b, 2 * t) in known]
    more_h = [known[2 * h, s, b, t] - v for (h, s, b, t), v in known.items() if (2 * h, s, b, t) in known]
    return (sum(each > 0 for each in more_tp), len(more_tp)), (sum(each < 0 for each in more_h), len(more_h))


def _band_figure(study: Study, points: Points, name: str, title: str, claim: str) -> Figure:
    found = study.spreads(points)
    large = study.spreads(points, large=True)
    told = "; ".join(
        f"{faster:g}x: {each.least:.0%}–{each.most:.0%}, {each.inside} of {each.count} inside "
        f"({found[faster].inside} of {found[faster].count} with all H)"
        for faster, each in large.items()
    )
    # Side by side at each width: models of one width are drawn at x, a little apart by the ratio.
    series = tuple(
        Series(
            name=f"flop-vs-bw {faster:g}x", kind="points", y=tuple(points.time.serialized_share(faster)),
            x=tuple(points.sizes.hidden * 2.0 ** (0.15 * (number - 1))),
        )
        for number, faster in enumerate(FASTER)
    )  # fmt: skip
    bands = tuple(
        Band(name=f"{faster:g}x: published", low=low, high=high) for faster, (low, high) in BANDS.items()
    )
    return Figure(
        name=name, title=title, claim=claim, holds=all(each.holds for each in large.values()), finding=told,
        x=_HIDDEN_AXIS, y=_SHARE_AXIS, series=series, bands=bands,
    )  # fmt: skip


def _memory(study: Study) -> Figure:
    medians = np.array([_medians(study.by_memory[roomier]) for roomier in ROOMIER])
    changes = np.diff(medians, axis=0)
    beyond = [len(set(each.sizes.hidden[each.needed_tp > TP[-1]])) for each in study.by_memory.values()]
    overall = [float(np.median(each.time.serialized_share())) for each in study.by_memory.values()]
    return Figure(
        name="memory_capacity",
        title="Serialized share at the required TP, by memory of a device (median over SL, B)",
        claim="More memory on a device lowers the required TP, and with it the share of communication.",
        holds=bool((changes <= 1e-9).all() and (changes < -1e-3).any()),
        finding=f"Median {', '.join(f'{each:.0%}' for each in overall)} with 1, 2 and 4 times the memory; "
        f"{', '.join(map(str, beyond))} of {len(HIDDEN)} widths need more than "
        f"TP {TP[-1]:g} even so, and are timed at it.",
        x=_HIDDEN_AXIS, y=_SHARE_AXIS,
        series=tuple(
            Series(name=f"memory {roomier:g}x", x=HIDDEN, y=tuple(middle))
            for roomier, middle in zip(ROOMIER, medians, strict=True)
        ),
    )  # fmt: skip


def _medians(points: Points) -> list[float]:
    shares = points.time.serialized_share()
    return [float(np.median(shares[points.sizes.hidden == hidden])) for hidden in HIDDEN]


def _overlapped(study: Study) -> Figure:
    points = study.everywhere
    tokens = points.sizes.seq * points.sizes.batch
    exposed = [int((points.time.overlapped_share(faster) > 1).sum()) for faster in FASTER]
    shares = points.time.overlapped_share()
    return Figure(
        name="overlapped", title="Data-parallel communication over the compute that hides it",
        claim="Communication that is hidden today (17–140 % of the compute beside it, recalled) gets exposed "
        "as compute gets faster.",
        holds=exposed[0] < exposed[1] < exposed[2],
        finding=f"1x: {shares.min():.0%}–{shares.max():.0%}, median {np.median(shares):.0%}; above 100 % in "
        f"{exposed[0]}, {exposed[1]}, {exposed[2]} of {points.count} models at 1x, 2x, 4x.",
        x=Axis(title="SL·B, tokens", log=True),
        y=Axis(title="share of the compute that hides it", log=True, percent=True),
        series=tuple(
            Series(
                name=f"flop-vs-bw {faster:g}x", x=tuple(tokens * 2.0 ** (0.15 * (number - 1))), kind="points",
                y=tuple(points.time.overlapped_share(faster)),
            )
            for number, faster in enumerate(FASTER)
        ),
        bands=(Band(name="exposed", low=1.0, high=max(float(points.time.overlapped_share(4.0).max()), 1.0)),),
    )  # fmt: skip


def _column(study: Study, key: str) -> list[float]:
    return [float(str(row[key])) for row in study.models]
