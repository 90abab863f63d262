"""The curve of days and dollars over counts of devices, shown and written."""

from collections.abc import Iterator, Mapping
from math import inf

from rich.table import Table

from trainwright.api.sizing import Sizing, meets
from trainwright.report.summary import Summary
from trainwright.report.tables import table
from trainwright.units import render_si


def curve_table(sizing: Sizing) -> Table:
    """The curve, one row for each count; those within the limits are marked."""
    several = len({each.global_batch for each in sizing.curve}) > 1
    rows = [
        [
            f"{each.devices:,}" + (" *" if meets(sizing.limits, each) else "  "),
            *([str(each.global_batch)] if several else []),
            f"{each.budget.days:,.1f}",
            f"{each.budget.dollars:,.0f}",
            render_si(each.effective_tokens_per_s, "").strip(),
            f"{each.mfu:.1%}",
            f"{each.goodput.share:.1%}" if each.goodput else "",
            str(each.strategy),
        ]
        for each in sizing.curve
    ]
    headers = [
        "devices",
        *(["batch"] if several else []),
        "days",
        "$",
        "tokens/s",
        "MFU",
        "goodput",
        "strategy",
    ]
    result = table(f"* within {sizing.limits}, interruptions counted", headers, rows, left=0)
    result.columns[-1].justify, result.columns[-1].no_wrap = "left", False
    return result


def curve_lines(sizing: Sizing) -> Iterator[str]:
    """The answer in words."""
    yield f"Smallest within {sizing.limits}: {_point(sizing.smallest)}"
    if sizing.limits.max_dollars < inf and sizing.fastest is not sizing.smallest:
        yield f"Fastest within them: {_point(sizing.fastest)}"
    yield from sizing.remarks.values()


def _point(summary: Summary) -> str:
    budget = summary.budget
    devices = "one device" if summary.devices == 1 else f"{summary.devices:,} devices"
    return f"{devices}, {budget.days:,.1f} days, {budget.dollars:,.0f} $"


def curve_json(sizing: Sizing) -> Mapping[str, object]:
    """The curve as plain values."""
    return {
        "limits": {
            "max_days": sizing.limits.max_days,
            "max_dollars": sizing.limits.max_dollars,
            "devices": (sizing.limits.least, sizing.limits.most),
        },
        "smallest": sizing.smallest.devices,
        "fastest": sizing.fastest.devices,
        "curve": curve_rows(sizing),
        "batch_remarks": {str(count): text for count, text in sizing.remarks.items()},
    }


def curve_rows(sizing: Sizing) -> list[Mapping[str, object]]:
    """The curve, a row for each count."""
    return [
        {
            "devices": each.devices,
            "meets": meets(sizing.limits, each),
            "days": each.budget.days,
            "dollars": each.budget.dollars,
            "tokens": each.budget.tokens,
            "tokens_per_s": each.tokens_per_s,
            "effective_tokens_per_s": each.effective_tokens_per_s,
            "mfu": each.mfu,
            "goodput": each.goodput.share if each.goodput else 1.0,
            "power_w": each.power_w,
            "kwh": each.budget.kwh,
            "co2e_kg": each.budget.co2e_kg,
            "global_batch": each.global_batch,
            "strategy": str(each.strategy),
        }
        for each in sizing.curve
    ]
