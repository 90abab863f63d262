"""The page on accuracy: what was predicted, against what, how closely, and where it is bad."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainwright.cost.load import Constants
from trainwright.validate.collective_fit import Judged
from trainwright.validate.collective_page import render_collectives
from trainwright.validate.compare import Errors, errors_by, ranges
from trainwright.validate.dataset import Dataset, Predictions, measured, predict
from trainwright.validate.held_out import HeldOut
from trainwright.validate.kernels import KernelError, gemm_errors
from trainwright.validate.problem import Array, Mask, sources
from trainwright.validate.ranking import Ranked, rank_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the page is made from."""

    dataset: Dataset
    outcomes: Dataset  # the same runs, then configurations that failed
    constants: Constants
    held: HeldOut
    tables: Path
    collectives: Judged


def render_accuracy(evidence: Evidence) -> str:
    """The page as Markdown."""
    constants = evidence.constants
    predictions = predict(evidence.dataset, constants.stack, constants.efficiency)
    found = predict(evidence.outcomes, constants.stack, constants.efficiency)
    parts = [
        _HEAD,
        _headline(evidence, predictions, found),
        _by_source(evidence, predictions),
        *(_by_column(evidence, predictions, column) for column in ("hardware", "framework")),
        _memory(evidence, found),
        _ranking(rank_groups(evidence.dataset, predictions)),
        _intervals(evidence),
        _kernels("Matrix products", gemm_errors(evidence.tables / "gemm.csv", constants)),
        render_collectives(evidence.collectives),
        _constants(constants),
        _weak(evidence, predictions),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


_HEAD = """
# Accuracy

Written by `make calibrate`, or by `make accuracy`, which keeps the constants of time; every number on this
page was computed in that run, none is typed in. The constants of the catalog (of time, ten per device family
and thirteen per software stack; of memory, four per stack) are fitted to published runs under priors; nothing
is fitted to a row. *In-sample* is the error of those constants on the runs they were fitted to. *Held out* is
the error on a source by constants that were fitted without that source; if no other source ran its stack, the
stack's numbers of time are dropped and it is predicted as generic software. Errors are absolute errors,
predicted over measured minus one, of step time where nothing else is said. Plans that were run, recorded and
compared on the machine at hand are on [a page of their own](accuracy_here.md), which `make measure` writes.
"""


def _headline(evidence: Evidence, predictions: Predictions, found: Predictions) -> str:
    _, inside, outside = _source_medians(evidence, predictions)
    ranked = rank_groups(evidence.dataset, predictions)
    good = sum(each.behind <= 0.05 for each in ranked)
    read = sum(case is not None for case in evidence.dataset.cases)
    rows = [
        ("runs predicted", f"{read} of {len(evidence.dataset.rows)}"),
        ("median over sources of each source's median error, in-sample", f"{np.median(inside):.1%}"),
        ("the same, held out", f"{np.median(outside):.1%}"),
        (
            "sources with a median error of at most 10 %, in-sample",
            f"{sum(e <= 0.10 for e in inside)} of {len(inside)}",
        ),
        *_memory_headline(evidence, found),
        ("groups of layouts whose first-ranked is within 5 % of the best", f"{good} of {len(ranked)}"),
    ]
    return "## In short\n\n" + _table(("what", "measured"), rows)


def _memory_headline(evidence: Evidence, found: Predictions) -> list[tuple[str, str]]:
    judged, held = _judged(evidence), evidence.held
    errors = [_memory_errors(evidence, each.memory_bytes) for each in (found, held)]
    medians = [np.nanmedian(np.abs(each)) for each in errors]
    shares = [_classified(evidence, fits)[judged].mean() for fits in (found.fits, held.fits)]
    return [
        ("median error of memory where it was reported, in-sample", f"{medians[0]:.1%}"),
        ("the same, held out", f"{medians[1]:.1%}"),
        ("fits or does not fit, classified correctly, in-sample", f"{shares[0]:.1%} of {judged.sum()}"),
        ("the same, held out", f"{shares[1]:.1%} of {judged.sum()}"),
    ]


def _source_medians(
    evidence: Evidence, predictions: Predictions
) -> tuple[list[str], list[float], list[float]]:
    """Sources with measured step times, and the median error of each: in-sample and held out."""
    names, truth = sources(evidence.dataset), measured(evidence.dataset)["step_s"]
    off = np.abs(predictions.step_s / truth - 1.0)
    out = np.abs(1.0 / evidence.held.ratio - 1.0)
    every = sorted(set(names[np.isfinite(off) & np.isfinite(out)]))
    inside, outside = ([float(np.nanmedian(each[names == n])) for n in every] for each in (off, out))
    return every, inside, outside


def _by_source(evidence: Evidence, predictions: Predictions) -> str:
    within = ranges(evidence.dataset, evidence.constants)
    names = sources(evidence.dataset)
    rows = []
    for errors in errors_by(evidence.dataset, predictions, within, "source")[:-1]:
        ratio = evidence.held.ratio[names == errors.name]
        out = 1.0 / ratio - 1.0
        rows.append(
            (errors.name, str(errors.rows), f"{errors.median:.1%}", f"{errors.mean:.1%}",
             f"{errors.bias:+.1%}",
             f"{np.nanmedian(np.abs(out)):.1%}", f"{np.nanmedian(out):+.1%}")
        )  # fmt: skip
    heads = (
        "source",
        "runs",
        "median, in-sample",
        "mean, in-sample",
        "bias, in-sample",
        "median, held out",
        "bias, held out",
    )
    return "## By source\n\n" + _table(heads, rows)


def _by_column(evidence: Evidence, predictions: Predictions, column: str) -> str:
    within = ranges(evidence.dataset, evidence.constants)
    errors = errors_by(evidence.dataset, predictions, within, column)
    return f"## By {column}\n\n" + _table(
        (column, "runs", "median, in-sample", "mean, in-sample", "bias, in-sample"), map(_cells, errors)
    )


def _cells(errors: Errors) -> Sequence[str]:
    return (
        errors.name,
        str(errors.rows),
        f"{errors.median:.1%}",
        f"{errors.mean:.1%}",
        f"{errors.bias:+.1%}",
    )


def _memory_errors(evidence: Evidence, memory_bytes: Array) -> Array:
    """Errors of memory of every row; not a number where it was not reported."""
    return np.asarray(memory_bytes / measured(evidence.outcomes)["memory_bytes"] - 1.0)


def _classified(evidence: Evidence, fits: Mask) -> Mask:
    """Which rows are classified correctly: runs fit, the others do not."""
    return np.where(np.arange(len(fits)) < len(evidence.dataset.rows), fits, ~fits)


def _judged(evidence: Evidence) -> Mask:
    """The rows that the headline counts: runs with measured memory, and every failure."""
    known = np.isfinite(measured(evidence.outcomes)["memory_bytes"])
    return known | (np.arange(len(known)) >= len(evidence.dataset.rows))


def _memory(evidence: Evidence, found: Predictions) -> str:
    names, held = sources(evidence.outcomes), evidence.held
    inside, outside = (_memory_errors(evidence, each) for each in (found.memory_bytes, held.memory_bytes))
    rows = []
    for name in sorted(set(names[np.isfinite(inside)])):
        own = (names == name) & np.isfinite(inside)
        rows.append((name, str(own.sum()), *_median_and_bias(inside[own]), *_median_and_bias(outside[own])))
    outcomes = []
    is_run = np.arange(len(names)) < len(evidence.dataset.rows)
    for chosen, word in ((is_run, "ran"), (~is_run, "failed")):
        for name in sorted(set(names[chosen])):
            own = chosen & (names == name)
            shares = (f"{_classified(evidence, fits)[own].mean():.1%}" for fits in (found.fits, held.fits))
            outcomes.append((f"{name}: {word}", str(own.sum()), *shares))
    heads = ("source", "runs", "median, in-sample", "bias, in-sample", "median, held out", "bias, held out")
    return (
        _MEMORY
        + _table(heads, rows)
        + "\n\n"
        + _OUTCOMES
        + _table(
            ("configurations", "count", "classified correctly, in-sample", "classified correctly, held out"),
            outcomes,
        )
    )


def _median_and_bias(errors: Array) -> tuple[str, str]:
    return f"{np.median(np.abs(errors)):.1%}", f"{np.median(errors):+.1%}"


_MEMORY = """## Memory

Peak per device as each source reports it. Four numbers per stack (what activations, logits, the context and
fragmentation take; for nanotron a fifth, the share of gathered inputs that is kept) are fitted to these
peaks, to the runs, which must fit, and to the failures, which must not. Every stack starts from the same
priors, the defaults of `Stack`. A stack that only the left-out source has keeps, *held out*, what its
software is documented to do and its priors, moved as the fit moved those of other stacks.

Not fitted, but settled with these rows in view: which numbers there are; that nanotron keeps gathered inputs
only without a pipeline; that Aleph Alpha's trainer keeps 16-bit gradients and gathers its logits (*held out*
drops both where it drops the stack's numbers). What software is documented to do (how nanotron cuts stages,
16-bit gradients beside fp32 sums in DeepSpeed's) stays *held out*. So *held out* is still kinder than
software that nobody here has seen will be.

"""
_OUTCOMES = """Whether a configuration fits. One source does not tell crashes from memory errors: its failures
count half in the fit, and some have causes that nothing here predicts. Failures that are no memory errors (a
kernel that was not available) are left out of the fit and counted here. *Ran* counts all runs, the table at
the top only those with measured memory.

"""


def _ranking(ranked: Sequence[Ranked]) -> str:
    rows = []
    for source in sorted({each.source for each in ranked}):
        own = [each for each in ranked if each.source == source]
        good = sum(each.behind <= 0.05 for each in own)
        rows.append((source, str(len(own)), str(good), f"{np.median([each.behind for each in own]):.1%}"))
    text = (
        "## Ranking\n\nIn each group of at least eight runs of one source, model and device count: is "
        "the layout that "
        "is predicted fastest per token within 5 % of the fastest measured?\n\n"
    )
    return text + _table(("source", "groups", "within 5 %", "median behind"), rows)


def _intervals(evidence: Evidence) -> str:
    basis, ratio = np.array(evidence.held.basis), evidence.held.ratio
    rows = []
    for kind, interval in evidence.constants.intervals.items():
        own = ratio[(basis == kind) & np.isfinite(ratio)]
        inside = (own >= interval.low) & (own <= interval.high)
        share = f"{inside.mean():.1%} of {len(own)}" if len(own) else "no runs"
        rows.append((kind, f"{interval.low:.2f} to {interval.high:.2f}", share))
    text = (
        "## Ranges\n\nEvery prediction carries a range, as factors of the predicted step time, by what "
        "its constants "
        "rest on: runs of both the device and the stack, of one of them, of neither. They are the "
        "shortest that "
        "hold nine tenths of measured over predicted on sources left out, "
        "where sources count alike; by runs, the largest source of each kind decides the share inside.\n\n"
    )
    return text + _table(("rests on", "range", "held-out runs inside"), rows)


def _kernels(title: str, errors: Sequence[KernelError]) -> str:
    rows = [(e.name, str(e.rows), f"{e.scale:.2f}", f"{e.median:.1%}") for e in errors]
    text = (
        f"## {title}\n\nPublished kernel timings. *Scale* is measured over predicted time: below 1, as "
        f"kernels alone run "
        "at higher clocks than long steps, to which the constants are fitted. *Error* is what remains "
        "once it is taken "
        "out: how well the model follows the shape.\n\n"
    )
    return text + _table(("kernels", "count", "scale", "error"), rows)


def _constants(constants: Constants) -> str:
    fields = (
        "runs",
        "gemm",
        "gemm_fp8",
        "attention_forward",
        "attention_backward",
        "memory",
    )
    devices = [
        (unit, *(_number(getattr(e, f)) for f in fields)) for unit, e in constants.efficiencies.items()
    ]
    shown = ("runs", "pace", "traffic", "op_s", "step_s", "tp_overlap", "dp_overlap", "zero_overlap")
    stacks = [(name, *(_number(getattr(s, f)) for f in shown)) for name, s in constants.stacks.items()]
    kept = ("activations", "logits_bytes", "context_bytes", "fragmentation", "gathered_inputs")
    memory = [(name, *(_number(getattr(s, f)) for f in kept)) for name, s in constants.stacks.items()]
    return (
        "## Constants\n\nThe main ones; all stand in `src/trainwright/catalog/calibration.toml`, their "
        "meaning in "
        "`src/trainwright/cost/constants.py`. Units without runs keep their priors.\n\n"
        + _table(("unit", *fields), devices)
        + "\n\n"
        + _table(("stack", *shown), stacks)
        + "\n\n"
        + _table(("stack", *kept), memory)
    )


def _number(value: float) -> str:
    return f"{value:.3g}"


def _weak(evidence: Evidence, predictions: Predictions) -> str:
    names, inside, outside = _source_medians(evidence, predictions)
    lines = [
        f"- {name}: {a:.0%} in-sample, {b:.0%} held out"
        for name, a, b in zip(names, inside, outside, strict=True)
        if a > 0.10 or b > 0.15
    ]
    return (
        "## Where this is bad\n\nSources above 10 % in-sample or 15 % held out:\n\n"
        + "\n".join(lines)
        + "\n\n"
        "Software that is not in the table is predicted as the median of the stacks that are, which "
        "misses whatever is "
        "peculiar to it: nanotron's stalls with pipelines would have been missed altogether. Devices "
        "without runs "
        "(every AMD, Intel and AWS device, most TPUs) rest on kernels or on their class. Gathers "
        "across nodes, "
        "which sharded training waits for, are in one table of collectives only, whose measurement is not "
        "stated. A stage's layers are taken as the mean layer, so pipelines of models "
        "with uneven "
        "layers are less well known than the tables suggest."
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
