"""What the study of scaling found, as rows for files and lines for people."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite

from rich.table import Table

from trainwright.report.tables import table
from trainwright.study.scaling import ALL, BEST, Study
from trainwright.study.scaling_points import FSDP, HSDP, INTERLEAVED, PIPELINE, TENSOR, Point
from trainwright.study.scaling_returns import Curve, marginals
from trainwright.units import render_si

Row = Mapping[str, object]


def study_tables(study: Study) -> Mapping[str, list[Row]]:
    """Every table by the name of its file."""
    return {
        "points": [row for curve in study.curves for row in point_rows(curve)],
        "marginal": [row for curve in study.curves for row in marginal_rows(curve)],
        "turns": turn_rows(study),
    }


def point_rows(curve: Curve) -> list[Row]:
    """One row a scale."""
    return [
        _names(curve)
        | asdict(point)
        | {
            "tokens_per_joule": point.tokens_per_joule, "tokens_per_dollar": point.tokens_per_dollar,
            "communication_share": point.communication_share, "exposed_share": point.exposed_share,
        }
        for point in curve.points
    ]  # fmt: skip


def marginal_rows(curve: Curve) -> list[Row]:
    """One row for each two neighbouring scales."""
    return [_names(curve) | asdict(each) for each in marginals(curve)]


def turn_rows(study: Study) -> list[Row]:
    """Where an added device no longer gives half, and where plans overtake FSDP."""
    knees: list[Row] = [
        {"what": "knee", "plan": plan, "devices": at, "about": at, "gain": None}
        for plan, at in study.knees.items()
    ]
    return knees + [
        {"what": "overtakes fsdp", "plan": each.plan, "devices": each.first, "about": each.about,
         "gain": each.gain}
        for each in study.crossings
    ]  # fmt: skip


def study_tree(study: Study) -> Mapping[str, object]:
    """Everything, for JSON."""
    best = {str(count): study.best_degree(count) for count in study.asked.devices}
    return {
        "asked": study.asked, "notes": [*head_lines(study), *tail_lines(study)], "best_degree": best,
        "knee_searched_to": study.searched, "tables": study_tables(study),
    }  # fmt: skip


def head_lines(study: Study) -> list[str]:
    """The subject, and where times come from if that was asked for."""
    asked = study.asked
    return [
        f"{asked.model} on {asked.devices[0]:,} to {asked.devices[-1]:,} {asked.device}, {study.stack}: "
        f"sequences of {asked.seq:,} tokens, {asked.local_batch} for each device; of each kind of plan the "
        "fastest that fits, over micro-batches and recomputation",
        *study.notes,
    ]


def tail_lines(study: Study) -> list[str]:
    """Where curves bend and cross, in words."""
    lines = [_knee_line(study, plan, at) for plan, at in study.knees.items()]
    ahead = [each for each in study.crossings if each.first is not None]
    behind = [each.plan for each in study.crossings if each.first is None]
    told = "; ".join(
        f"{each.plan} from {each.first:,} (about {each.about:,.0f}), by {each.gain:.0%} at the end"
        for each in ahead
    )
    lines.append(
        f"Faster than FSDP: {told or 'nothing'}" + (f"; never {', '.join(behind)}" if behind else "")
    )
    degrees = ", ".join(
        f"{count:,}: {study.best_degree(count) or 'none fits'}" for count in study.asked.devices
    )
    return [*lines, f"Best degree of model parallelism, TP or PP alone, by devices: {degrees}"]


def _knee_line(study: Study, plan: str, at: int | None) -> str:
    if at is None:
        return f"Knee of {plan}: none up to {study.searched:,} devices"
    return f"Knee of {plan}: beyond {at:,} devices an added one adds less than half of its share"


def weak_table(study: Study) -> Table:
    """FSDP at a batch that grows with devices: all measures."""
    curve = study.curve("weak", study.asked.model, FSDP.name)
    headers = ["devices", "tok/s/dev", "tok/s", "MFU", "W/dev", "tok/J", "tok/$", "comm.", "exposed"]
    rows = [_measures(each) for each in curve.points] if curve else []
    return table("Weak scaling, FSDP (communication as a share of the step)", headers, rows)


def _measures(point: Point) -> list[str]:
    return [
        f"{point.devices:,}", f"{point.tokens_per_s_per_device:,.0f}", render_si(point.tokens_per_s, ""),
        f"{point.mfu:.1%}", f"{point.device_w:.0f}", f"{point.tokens_per_joule:.2f}",
        _per_dollar(point.tokens_per_dollar), f"{point.communication_share:.0%}",
        f"{point.exposed_share:.0%}",
    ]  # fmt: skip


def marginal_table(study: Study) -> Table:
    """What each step to the next scale adds: with FSDP, with the best plan, with sharding in groups, too."""
    headers = ["step", "tok/s/dev", "share", "tok/J", "tok/$", "best: share", "tok/J", "tok/$", "all: share"]
    fsdp, best, every = (_marginal_cells(study, plan) for plan in (FSDP.name, BEST, ALL))
    rows = [
        [f"{low:,}–{high:,}", *fsdp.get((low, high), [""] * 4), *cells[1:], *every.get((low, high), [])[1:2]]
        for (low, high), cells in best.items()
    ]
    title = (
        "What an added device, watt at the meter and dollar add: FSDP; best of FSDP, TP, PP; and of all plans"
    )
    return table(title, headers, rows)


def _marginal_cells(study: Study, plan: str) -> dict[tuple[int, int], list[str]]:
    curve = study.curve("weak", study.asked.model, plan)
    return {
        (each.devices, each.more): [
            f"{each.tokens_per_s_per_device:,.0f}", f"{each.share:.0%}", f"{each.tokens_per_joule:.2f}",
            _per_dollar(each.tokens_per_dollar),
        ]
        for each in (marginals(curve) if curve else [])
    }  # fmt: skip


def _per_dollar(tokens: float) -> str:
    return render_si(tokens, "") if isfinite(tokens) else "–"  # a machine without a price


def degree_table(study: Study) -> Table:
    """Tokens/s per device of every degree at each scale."""
    plans = [("weak", FSDP.name), *(("degree", each.name) for each in (*TENSOR, *PIPELINE, INTERLEAVED)),
             ("weak", HSDP.name)]  # fmt: skip
    curves = [(plan, study.curve(which, study.asked.model, plan)) for which, plan in plans]
    return _by_scale(
        study, "Model-parallel degree at each scale, tok/s/dev", curves, "tokens_per_s_per_device"
    )


def strong_table(study: Study) -> Table:
    """MFU at fixed batches, with the best of all degrees together."""
    curves = [(each.case, each) for each in study.cases("strong", "tp x pp")]
    return _by_scale(study, "Strong scaling, the best plan: MFU", curves, "mfu")


def cases_table(study: Study) -> Table:
    """MFU with FSDP of other models, lengths and devices."""
    curves = [
        (each.case, each)
        for which in ("size", "context", "generation")
        for each in study.cases(which, FSDP.name)
    ]
    return _by_scale(study, "Models, lengths and devices, FSDP: MFU (blank: does not fit)", curves, "mfu")


def _by_scale(study: Study, title: str, curves: Sequence[tuple[str, Curve | None]], measure: str) -> Table:
    shown = "{:.1%}" if measure == "mfu" else "{:,.0f}"
    rows = [
        [name, *(_cell(curve, count, measure, shown) for count in study.asked.devices)]
        for name, curve in curves
    ]
    return table(title, ["", *(f"{count:,}" for count in study.asked.devices)], rows)


def _cell(curve: Curve | None, count: int, measure: str, shown: str) -> str:
    point = curve.at(count) if curve else None
    return shown.format(getattr(point, measure)) if point else ""


def _names(curve: Curve) -> dict[str, object]:
    return {"study": curve.study, "case": curve.case, "plan": curve.plan}
