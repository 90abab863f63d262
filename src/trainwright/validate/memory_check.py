"""How stated memory ranges and OOM risks fare on sources that were left out of the fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.load import Constants
from trainwright.cost.memory_risk import DEFAULT_RISK, MemorySpread
from trainwright.validate.dataset import Dataset, failed, measured, outcome, predict, ran
from trainwright.validate.memory_fit import bounded, filled_shares, leave_out_memory
from trainwright.validate.memory_spread import fit_spread, memory_evidence
from trainwright.validate.problem import groups_of, sources
from trainwright.validate.robust_fit import Say

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutMemory:
    """What constants that never saw a row's source predict of its memory; not a number for other sources.

    `memory_bytes` is what the source would quote, `filled` the share of usable memory that is needed.
    """

    memory_bytes: Array
    filled: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskOutcome:
    """Of one source left out: its configurations, those with a low stated risk, and its measured peaks."""

    source: str
    configurations: int
    failures: int
    doubtful: int  # failures that may be crashes of another cause
    low_risk: int
    low_risk_failures: int
    low_risk_doubtful: int
    peaks: int
    peaks_in_range: int
    median_error: float  # of peaks; not a number without any
    spread: MemorySpread


def hold_out_memory(outcomes: Dataset, prior: Constants, whole: Constants, say: Say) -> HeldOutMemory:
    """Predict the memory of each source with measured peaks or failures by constants fitted to the others."""
    every = sources(outcomes)
    memory, filled = np.full(len(every), np.nan), np.full(len(every), np.nan)
    for source in sorted(set(every[bounded(outcomes)])):
        constants, own = leave_out_memory(outcomes, prior, whole, source), every == source
        found = predict(outcomes, constants.stack, constants.efficiency, groups_of(outcomes, own))
        memory[own], filled[own] = found.memory_bytes[own], filled_shares(outcomes, found)[own]
        error = np.abs(memory[own] / measured(outcomes)["memory_bytes"][own] - 1.0)
        if np.isfinite(error).any():
            say(f"memory without {source}: median error {np.nanmedian(error):.1%}")
    return HeldOutMemory(memory_bytes=memory, filled=filled)


def risk_outcomes(
    outcomes: Dataset, held: HeldOutMemory, risk: float = DEFAULT_RISK
) -> Sequence[RiskOutcome]:
    """By source: what became of configurations whose stated risk is low, by the spread of other sources.

    Counted are rows with measured memory and failures.
    """
    every, peaks = sources(outcomes), measured(outcomes)["memory_bytes"]
    counted = np.isfinite(held.filled) & (failed(outcomes) | (ran(outcomes) & np.isfinite(peaks)))
    evidence = memory_evidence(outcomes, held.memory_bytes, held.filled)
    doubtful = np.array(["crashed" in outcome(row) for row in outcomes.rows])
    found = []
    for source in sorted(set(every[counted])):
        own = counted & (every == source)
        spread = fit_spread(evidence.take(every != source))
        low = own & (held.filled <= spread.filled_share(risk))
        ratio = peaks[own & np.isfinite(peaks)] / held.memory_bytes[own & np.isfinite(peaks)]
        lowest, highest = spread.bounds(1.0)
        found.append(
            RiskOutcome(
                source=source, configurations=int(own.sum()), failures=_count(own & failed(outcomes)),
                doubtful=_count(own & doubtful), low_risk=_count(low),
                low_risk_failures=_count(low & failed(outcomes)), low_risk_doubtful=_count(low & doubtful),
                peaks=len(ratio), peaks_in_range=_count((ratio >= lowest) & (ratio <= highest)),
                median_error=float(np.median(np.abs(1.0 / ratio - 1.0))) if len(ratio) else float("nan"),
                spread=spread,
            )
        )  # fmt: skip
    return found


def _count(mask: Mask) -> int:
    return int(mask.sum())


def summarize_risk(found: Sequence[RiskOutcome]) -> Mapping[str, float]:
    """The shares that the page states first; those over sources count each source alike."""
    low, failures = sum(each.low_risk for each in found), sum(each.low_risk_failures for each in found)
    doubtful = sum(each.low_risk_doubtful for each in found)
    with_peaks = [each for each in found if each.peaks]
    return {
        "low_risk": float(low),
        "ran": 1.0 - failures / max(low, 1),
        "ran_certain": 1.0 - (failures - doubtful) / max(low - doubtful, 1),
        "in_range": sum(each.peaks_in_range for each in with_peaks) / sum(each.peaks for each in with_peaks),
        "in_range_of_sources": float(np.mean([each.peaks_in_range / each.peaks for each in with_peaks])),
        "median_of_sources": float(np.median([each.median_error for each in with_peaks])),
    }


def render_memory_check(outcomes: Dataset, held: HeldOutMemory, spreads: Mapping[str, MemorySpread]) -> str:
    """The page as Markdown."""
    found = risk_outcomes(outcomes, held)
    totals = summarize_risk(found)
    errors = np.abs(held.memory_bytes / measured(outcomes)["memory_bytes"] - 1.0)
    summary = [
        ("median error of measured peaks, over rows", f"{np.nanmedian(errors):.1%}"),
        ("the same, median over sources", f"{totals['median_of_sources']:.1%}"),
        ("measured peaks inside the stated 90 % range, over rows", f"{totals['in_range']:.1%}"),
        ("the same, mean over sources", f"{totals['in_range_of_sources']:.1%}"),
        ("configurations with a stated risk of at most 5 %", f"{totals['low_risk']:.0f}"),
        ("of these ran", f"{totals['ran']:.1%}"),
        ("the same without failures that may be crashes of another cause", f"{totals['ran_certain']:.1%}"),
    ]
    return _PAGE.format(
        summary=_table(("held out", "measured"), summary),
        sources=_table(_SOURCE_HEADS, [_source_cells(each) for each in found]),
        stacks=_table(_STACK_HEADS, [_stack_cells(*each) for each in sorted(spreads.items())]),
    )


_SOURCE_HEADS = (
    "source", "configurations", "failed", "risk at most 5 %", "of these failed", "peaks",
    "in the 90 % range", "median error",
)  # fmt: skip
_STACK_HEADS = ("stack", "mean", "deviation", "may fill at 5 % risk", "rows")


def _source_cells(found: RiskOutcome) -> tuple[str, ...]:
    share = f"{found.peaks_in_range / found.peaks:.0%}" if found.peaks else ""
    return (
        found.source,
        str(found.configurations),
        _with_doubtful(found.failures, found.doubtful),
        str(found.low_risk),
        _with_doubtful(found.low_risk_failures, found.low_risk_doubtful),
        str(found.peaks),
        share,
        f"{found.median_error:.1%}" if found.peaks else "",
    )


def _stack_cells(name: str, spread: MemorySpread) -> tuple[str, ...]:
    share = spread.filled_share(DEFAULT_RISK)
    return name, f"{spread.mean:+.3f}", f"{spread.deviation:.3f}", f"{share:.0%}", str(spread.rows)


def _with_doubtful(count: int, doubtful: int) -> str:
    return f"{count} ({doubtful} doubtful)" if doubtful else str(count)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


_PAGE = """# Memory: errors, ranges and OOM risk on sources left out

Written by `make calibrate-memory`; every number was computed in that run. Each source is predicted by
constants that were fitted without it. If no other source ran its stack, the stack keeps what its software is
documented to do and its priors, moved as the fit moved those of other stacks. The range and the risk use the
spread of measured over predicted memory of the *other* sources.

{summary}

## By source

Rows with measured memory, and failures. One source does not separate crashes from memory errors: its
failures are doubtful. Some of them need less than a fifth of the device's memory, and larger configurations
of the same model ran.

{sources}

## Spread by stack

The logarithm of measured over predicted memory that `plan` and `simulate` use, most likely by measured peaks,
by what ran and by what failed: of a stack's own rows, shrunk towards that of sources left out, which holds
for unknown software. A plan may fill the stated share of what the device's runtime reports at a risk of 5 %.

{stacks}
"""
