"""What the study of computation and communication found, as rows for files and lines for people."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from trainwright.report.tables import table
from trainwright.study.algorithm_edge import GROWTHS
from trainwright.study.comp_vs_comm import REPEATS, Study
from trainwright.study.future_models import FASTER, HIDDEN, ROOMIER, Points, Spread
from trainwright.units import render_bytes, render_duration

Array = NDArray[np.float64]
Row = Mapping[str, object]


def point_rows(points: Points, **more: object) -> list[Row]:
    """One row a model: sizes, times of its layer, shares at every ratio of compute to communication."""
    columns: dict[str, Array] = {
        "hidden": points.sizes.hidden, "seq": points.sizes.seq, "batch": points.sizes.batch,
        "tp": points.sizes.tp,
        "memory_needs_tp": points.needed_tp, "compute_s": points.time.compute_s,
        "hiding_s": points.time.hiding_s, "serialized_s": points.time.serialized_s,
        "overlapped_s": points.time.overlapped_s,
    }  # fmt: skip
    for faster in FASTER:
        columns |= {
            f"serialized_share_{faster:g}x": points.time.serialized_share(faster),
            f"overlapped_share_{faster:g}x": points.time.overlapped_share(faster),
            f"communication_share_{faster:g}x": points.time.communication_share(faster),
        }
    whole = ("hidden", "seq", "batch", "tp")
    return [
        dict(more)
        | {name: int(each[at]) if name in whole else float(each[at]) for name, each in columns.items()}
        for at in range(points.count)
    ]


def study_tables(study: Study) -> Mapping[str, list[Row]]:
    """Every table by the name of its file."""
    return {
        "models": list(study.models),
        "points": point_rows(study.everywhere),
        "required_tp": [
            row
            for roomier, points in study.by_memory.items()
            for row in point_rows(points, memory_times=roomier)
        ],
        "published_pairs": point_rows(study.by_shard),
        "bands": band_rows(study),
    }


def band_rows(study: Study) -> list[Row]:
    """Shares against the published bands, for each choice of TP and each flop-vs-bw."""
    return [
        {
            "tp": label, "models": "large" if large else "all", "flop_vs_bw": faster, "least": each.least,
            "median": each.median, "most": each.most, "band_low": each.band[0], "band_high": each.band[1],
            "inside": each.inside, "count": each.count, "holds": each.holds,
        }
        for label, points in _choices(study)
        for large in (False, True)
        for faster, each in study.spreads(points, large=large).items()
    ]  # fmt: skip


def study_tree(study: Study) -> Mapping[str, object]:
    """Everything, for JSON."""
    return {
        "profile": study.profile.source, "device": study.cluster.device.name, "switches": study.switches,
        "notes": head_lines(study), "avoided": study.avoided, "avoided_times": study.avoided.times,
        "check": study.check, "tables": study_tables(study),
    }  # fmt: skip


def head_lines(study: Study) -> list[str]:
    """What the study rests on, and which switches are on."""
    profile, block = study.profile, study.profile.block
    region = sum(each.region for each in profile.kernels)
    lines = [
        f"Baseline: {region} kernels of one layer (hidden {block.hidden}, {block.batch} x {block.seq} "
        f"tokens, {profile.dtype}) and {len(profile.collectives)} collectives on {study.cluster.device.name} "
        f"with {render_bytes(study.cluster.device.memory[0].capacity_bytes)} ({profile.measured})",
        f"From: {profile.source}",
        *([f"The profile lacks {'; '.join(profile.missing)}"] if profile.missing else []),
    ]
    if study.check:
        lines.append(
            f"Projected against {study.check.kernels} other measured kernels of the profile: median error "
            f"{study.check.median_error:.0%}, {study.check.close} within 15 %"
        )
    return [*lines, *study.switches.told()]


def tail_lines(study: Study) -> list[str]:
    """Exposure of data-parallel communication, and the profiling that was avoided."""
    points, avoided = study.everywhere, study.avoided
    lines = []
    if not study.switches.inference:
        for faster in FASTER:
            shares = points.time.overlapped_share(faster)
            lines.append(
                f"Data-parallel communication over the compute that hides it, {faster:g}x: "
                f"{shares.min():.0%} to {shares.max():.0%}, median {np.median(shares):.0%}; "
                f"exposed (above 100 %) in {int((shares > 1).sum())} of {points.count} models"
            )
    return [
        *lines,
        f"Profiling avoided: {avoided.times:,.0f}x. A layer of each of {avoided.points} models would take "
        f"{render_duration(avoided.points_s)} of devices, the baseline took "
        f"{render_duration(avoided.baseline_s)} ({REPEATS} repeats each)",
    ]


def models_table(study: Study) -> Table:
    """Edge and slack of published models, and the TP that their memory asks for."""
    headers = ["model", "year", "edge", "slack", *(f"TP {growth:g}x" for growth in GROWTHS), "edge there"]
    rows = [
        [
            str(row["model"]), str(row["year"]), f"{row['edge']:.2f}", f"{row['slack']:.2f}",
            *(f"{row[f'tp_if_memory_grows_{growth:g}x_a_year']:.0f}" for growth in GROWTHS),
            f"{row['edge_at_required_tp']:.3f}",
        ]
        for row in study.models
    ]  # fmt: skip
    title = "Edge and slack over BERT's; required TP if memory grows so many times a year; edge there (1.25x)"
    return table(title, headers, rows)


def shares_table(study: Study) -> Table:
    """Serialized shares by width: at the TP that memory requires, and at the published pairs."""
    headers = [
        "hidden",
        "needs TP",
        "TP",
        *(f"{k:g}x" for k in FASTER),
        "TP = H/256",
        *(f"{k:g}x" for k in FASTER),
    ]
    required = study.by_memory[1.0]
    rows = []
    for hidden in HIDDEN:
        at, there = required.sizes.hidden == hidden, study.by_shard.sizes.hidden == hidden
        rows.append(
            [
                f"{hidden / 1024:g}K", f"{required.needed_tp[at][0]:,.0f}", f"{required.sizes.tp[at][0]:g}",
                *(_range(required.time.serialized_share(faster)[at]) for faster in FASTER),
                f"{study.by_shard.sizes.tp[there][0]:g}",
                *(_range(study.by_shard.time.serialized_share(faster)[there]) for faster in FASTER),
            ]
        )  # fmt: skip
    return table(
        "Serialized communication, % of the step, at flop-vs-bw 1x, 2x, 4x (over SL and B)", headers, rows
    )


def bands_table(study: Study) -> Table:
    """How many models lie in the published bands."""
    rows = []
    for label, points in _choices(study):
        for large in (False, True):
            found = study.spreads(points, large=large)
            who = f"{label}, {'H of 16K or more' if large else 'all'}"
            rows.append([who, *(_told(each) for each in found.values())])
    return table(
        "Least–most (median), % of the step; models inside 20–50, 30–65, 40–75 %",
        ["TP", "1x", "2x", "4x"],
        rows,
    )


def memory_table(study: Study) -> Table:
    """What more memory would change: TP and median share, by width."""
    rows = []
    for hidden in HIDDEN:
        cells = []
        for roomier in ROOMIER:
            points = study.by_memory[roomier]
            at = points.sizes.hidden == hidden
            share = np.median(points.time.serialized_share(1.0)[at])
            cells.append(f"TP {points.sizes.tp[at][0]:g}: {share:.0%}")
        rows.append([f"{hidden / 1024:g}K", *cells])
    headers = ["hidden", *(f"memory {each:g}x" for each in ROOMIER)]
    return table(
        "Required TP and median serialized share if devices had more memory (flop-vs-bw 1x)", headers, rows
    )


def _choices(study: Study) -> Sequence[tuple[str, Points]]:
    return (
        ("memory requires", study.by_memory[1.0]),
        ("H/256", study.by_shard),
        ("4 to 256", study.everywhere),
    )


def _told(each: Spread) -> str:
    return (
        f"{_percent(each.least)}–{_percent(each.most)} ({_percent(each.median)}), {each.inside}/{each.count}"
    )


def _range(shares: Array) -> str:
    return f"{_percent(shares.min())}–{_percent(shares.max())}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"
