"""The page on accuracy: what was predicted, against what, how closely, and where it is bad."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainwright.cost.load import Constants
from trainwright.validate.collective_fit import Judged
from trainwright.validate.collective_page import render_collectives
from trainwright.validate.compare import Ranges, ranges, widened
from trainwright.validate.dataset import Dataset, Predictions, measured, predict
from trainwright.validate.held_out import HeldOut
from trainwright.validate.kernels import KernelError, gemm_errors
from trainwright.validate.problem import Array, Mask, sources
from trainwright.validate.ranking import Ranked, rank_groups
from trainwright.validate.repeats import repeat_scatter


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the page is made from."""

    dataset: Dataset
    outcomes: Dataset  # the same runs, then configurations that failed
    constants: Constants
    held: HeldOut
    tables: Path
    collectives: Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Errors of step times of all runs, predicted over measured minus one, and whether ranges hold them."""

    inside: Array  # by constants that saw the run
    outside: Array  # by constants that did not see its source
    covered: Array  # 1 where the range around the held-out prediction holds the measured time, 0 where not
    width: Array  # of the range, high over low
    sources: Sequence[str]


def render_accuracy(evidence: Evidence) -> str:
    """The page as Markdown."""
    constants = evidence.constants
    predictions = predict(evidence.dataset, constants.stack, constants.efficiency)
    found = predict(evidence.outcomes, constants.stack, constants.efficiency)
    errors = _timed(evidence, predictions)
    parts = [
        _HEAD,
        _headline(evidence, errors, predictions, found),
        _by_source(evidence, errors),
        *(_by(evidence, errors, title) for title in _COLUMNS),
        _memory(evidence, found),
        _ranking(rank_groups(evidence.dataset, predictions)),
        _ranges(evidence, errors),
        _peers(evidence, errors),
        _kernels("Matrix products", gemm_errors(evidence.tables / "gemm.csv", constants)),
        render_collectives(evidence.collectives),
        _constants(constants),
        _weak(errors),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


_HEAD = """
# Accuracy

Written by `make calibrate`; every number on this page was computed in that run, except the peers' in the
table of peers. The constants are fitted jointly to published runs: device rates start from published
kernels, the constants of a stack from those of its kin, its pace has factors by device family, precision
and month of release, each held to its parent by a prior; nothing is fitted to a row. *In-sample* is the
error on the runs that were fitted. *Held out* is the error on a source by constants that were fitted
without it: a stack, family or release that no other source has is then its kin, its stack, or the release
before. Errors are absolute errors, predicted over measured minus one, of step time where nothing else is
said. Plans that were run, recorded and compared on the machine at hand are on [a page of their
own](accuracy_here.md), which `make measure` writes.
"""
_MOST = 0.2  # median error, held out, of a source of at least ten runs that is listed as bad


def _timed(evidence: Evidence, predictions: Predictions) -> Timed:
    truth = measured(evidence.dataset)["step_s"]
    within = _held_ranges(evidence, predictions)
    ratio = evidence.held.ratio
    covered = np.where(
        np.isfinite(ratio), ((within.low <= ratio) & (ratio <= within.high)).astype(float), np.nan
    )
    return Timed(
        inside=predictions.step_s / truth - 1.0,
        outside=1.0 / ratio - 1.0,
        covered=covered,
        width=within.high / within.low,
        sources=sources(evidence.dataset),  # type: ignore[arg-type]
    )


def _held_ranges(evidence: Evidence, predictions: Predictions) -> Ranges:
    """Ranges as stated for a prediction that rests on what was left after a row's source was taken out."""
    known = ranges(evidence.dataset, evidence.constants, evidence.held.basis)
    return widened(known, predictions.doubt)


def _medians(values: Array, names: Sequence[str], chosen: Mask | None = None) -> dict[str, float]:
    """The median of each source."""
    every, kept = np.array(names), np.isfinite(values)
    kept = kept if chosen is None else kept & chosen
    return {name: float(np.median(values[kept & (every == name)])) for name in sorted(set(every[kept]))}


def _headline(evidence: Evidence, errors: Timed, predictions: Predictions, found: Predictions) -> str:
    inside, outside = (_medians(np.abs(each), errors.sources) for each in (errors.inside, errors.outside))
    ranked = rank_groups(evidence.dataset, predictions)
    good = sum(each.behind <= 0.05 for each in ranked)
    read = sum(case is not None for case in evidence.dataset.cases)
    routed = _routed(evidence)
    rows = [
        ("runs predicted", f"{read} of {len(evidence.dataset.rows)}"),
        ("median over sources of each source's median error, in-sample", _percent(inside.values())),
        ("the same, held out", _percent(outside.values())),
        ("sources with a median error of at most 10 %, held out", _share_below(outside, 0.10)),
        ("runs of models with experts: median error, in-sample", _percent(np.abs(errors.inside[routed]))),
        ("the same, held out", _percent(np.abs(errors.outside[routed]))),
        ("held-out runs inside the stated range, median over sources", _mean_share(errors)),
        *_memory_headline(evidence, found),
        ("groups of layouts whose first-ranked is within 5 % of the best", f"{good} of {len(ranked)}"),
    ]
    return "## In short\n\n" + _table(("what", "measured"), rows)


def _routed(evidence: Evidence) -> Mask:
    """The runs of models with experts."""
    return np.array(["experts" in case.graph.sizes if case else False for case in evidence.dataset.cases])


def _percent(values: Iterable[float]) -> str:
    listed = np.array(list(values), dtype=float)
    return f"{np.nanmedian(listed):.1%}"


def _share_below(medians: dict[str, float], limit: float) -> str:
    return f"{sum(each <= limit for each in medians.values())} of {len(medians)}"


def _mean_share(errors: Timed, chosen: Mask | None = None) -> str:
    names, kept = np.array(errors.sources), np.isfinite(errors.covered)
    kept = kept if chosen is None else kept & chosen
    shares = [errors.covered[kept & (names == name)].mean() for name in sorted(set(names[kept]))]
    return f"{np.median(shares):.1%}, {errors.covered[kept].mean():.1%} of all runs" if shares else "no runs"


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


def _by_source(evidence: Evidence, errors: Timed) -> str:
    names, noise = np.array(errors.sources), repeat_scatter(evidence.dataset)
    rows = []
    for name in _medians(errors.inside, errors.sources):
        own = (names == name) & np.isfinite(errors.outside)
        repeats = f"{noise[name]:.1%}" if name in noise else ""
        rows.append((name, *_error_cells(errors, own), f"{errors.covered[own].mean():.0%}", repeats))
    heads = ("source", *_HEADS, "held-out runs in range", "scatter of its repeats")
    text = (
        "*Scatter of its repeats* is the noise floor: the deviation of the logarithm of step times of a "
        "source's runs that state the same configuration, or the same in several releases.\n\n"
    )
    return "## By source\n\n" + text + _table(heads, rows)


_HEADS = ("runs", "median, in-sample", "bias, in-sample", "median, held out", "bias, held out")
_COLUMNS = ("device", "stack", "release", "kind of model")


def _error_cells(errors: Timed, own: Mask) -> tuple[str, ...]:
    """The number of runs, and the median error and bias of each kind."""
    cells = [str(int(own.sum()))]
    for each in (errors.inside, errors.outside):
        cells += [f"{np.nanmedian(np.abs(each[own])):.1%}", f"{np.nanmedian(each[own]):+.1%}"]
    return tuple(cells)


def _by(evidence: Evidence, errors: Timed, title: str) -> str:
    """Errors of runs that share a device, a stack, a release, or a kind of model."""
    names = np.array([_value(evidence.dataset, index, title) for index in range(len(errors.inside))])
    known = np.isfinite(errors.inside) & np.isfinite(errors.outside)
    rows = [(str(name), *_error_cells(errors, known & (names == name))) for name in sorted(set(names[known]))]
    return f"## By {title}\n\n" + _table((title, *_HEADS), rows)


def _value(dataset: Dataset, index: int, title: str) -> str:
    case, row = dataset.cases[index], dataset.rows[index]
    if case is None:
        return ""
    if title == "device":
        return case.cluster.device.name
    if title == "kind of model":
        return "with experts" if "experts" in case.graph.sizes else "dense"
    framework = (row.get("framework") or "").strip() or "not stated"
    return framework if title == "stack" else f"{framework} {case.release or 'not dated'}"


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
        behind = [each.behind for each in own]
        rows.append((source, str(len(own)), str(good), f"{np.median(behind):.1%}", f"{np.mean(behind):.1%}"))
    others = [each.behind for each in ranked if "Playbook" not in each.source]
    text = (
        "## Ranking\n\nIn each group of at least eight runs of one source, model and device count: is "
        "the layout that is predicted fastest per token within 5 % of the fastest measured? *Behind* is how "
        "much slower it was, the regret of taking it. Over all groups but nanotron's, it is "
        f"{np.mean(others):.1%} in the mean.\n\n"
    )
    return text + _table(("source", "groups", "within 5 %", "median behind", "mean behind"), rows)


def _ranges(evidence: Evidence, errors: Timed) -> str:
    basis = np.array(evidence.held.basis)
    rows = []
    for kind, deviation in evidence.constants.level_deviations.items():
        own = (basis == kind) & np.isfinite(errors.covered)
        width = f"{np.median(errors.width[own]):.2f}" if own.any() else ""
        rows.append((kind, f"{deviation:.2f}", str(int(own.sum())), width, _mean_share(errors, own)))
    text = (
        "## Ranges\n\nEvery prediction carries a range that is to hold nine in ten runs. Its width comes "
        "from two deviations of the logarithm of measured over predicted time, on sources left out: that of "
        "the level of a source, by whether the stack and the device were known (*both*, one of them, or "
        "*neither*), and the scatter of runs of the stack within a source. Unstated precisions and models "
        "that could not be built at their stated size widen it further.\n\n"
    )
    heads = ("known", "deviation of levels", "held-out runs", "width, high over low", "inside")
    return text + _table(heads, rows)


# Mean absolute errors in percent, measured in November 2026 with each tool as shipped.
_PEERS = (
    ("Calculon, its A100 file", "3.65", "10.5", "39.0"),
    ("SimuMax, its A100 efficiencies", "6.2", "7.2", "34.0"),
    ("llm-analysis 0.2.2, efficiency 0.5", "25.6", "50.8", "57.0"),
    ("vTrain itself, as its authors state", "", "", "8.4"),
)
_PEER_SOURCES = (
    "Korthikanti et al. 2022 Table 5", "Narayanan et al. 2021 (Megatron SC21) Table 1",
    "vTrain (MICRO 24) ground truth single-node",
)  # fmt: skip


def _peers(evidence: Evidence, errors: Timed) -> str:
    names = np.array(errors.sources)
    ours = [
        tuple(f"{100 * np.nanmean(np.abs(each[names == name])):.1f}" for name in _PEER_SOURCES)
        for each in (errors.inside, errors.outside)
    ]
    rows = (("Trainwright, in-sample", *ours[0]), ("Trainwright, held out", *ours[1]), *_PEERS)
    text = (
        "## Peers on the same rows\n\nMean absolute errors of step time in percent. Of the peers they were "
        "measured with their shipped files, of vTrain's single-node runs on twice as many rows.\n\n"
    )
    return text + _table(("predictor", *_PEER_SOURCES), rows)


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
    shown = (
        "runs", "pace", "scatter", "traffic", "op_s", "step_s", "tp_overlap", "dp_overlap", "zero_overlap",
    )  # fmt: skip
    stacks = [(name, *(_number(getattr(s, f)) for f in shown)) for name, s in constants.stacks.items()]
    kept = ("activations", "logits_bytes", "context_bytes", "fragmentation", "gathered_inputs")
    memory = [(name, *(_number(getattr(s, f)) for f in kept)) for name, s in constants.stacks.items()]
    return (
        "## Constants\n\nThe main ones; all stand in `src/trainwright/catalog/calibration.toml`, their "
        "meaning in "
        "`src/trainwright/cost/constants.py`. Units without runs keep their priors, stacks without runs "
        "their kin's.\n\n"
        + _table(("unit", *fields), devices)
        + "\n\n"
        + _table(("stack", *shown), stacks)
        + "\n\n"
        + _table(("stack", *kept), memory)
    )


def _number(value: float) -> str:
    return f"{value:.3g}"


def _weak(errors: Timed) -> str:
    names = np.array(errors.sources)
    outside = _medians(np.abs(errors.outside), errors.sources)
    inside = _medians(np.abs(errors.inside), errors.sources)
    lines = [
        f"- {name} ({int((names == name).sum())} runs): {inside[name]:.0%} in-sample, {each:.0%} held out"
        for name, each in outside.items()
        if each > _MOST or inside[name] > 0.10
    ]
    return (
        "## Where this is bad\n\nSources above 10 % in-sample or 20 % held out:\n\n"
        + "\n".join(lines)
        + "\n\nSoftware that is not in the table is predicted as its kin, or as generic software, which "
        "misses whatever is peculiar to it: nanotron's stalls with pipelines would have been missed "
        "altogether. Devices without runs (most AMD, Intel and AWS devices, most TPUs) rest on kernels or on "
        "their class. Gathers across nodes, which sharded training waits for, are in one table of "
        "collectives only, whose measurement is not stated. A stage's layers are taken as the mean layer, so "
        "pipelines of models with uneven layers are less well known than the tables suggest."
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
