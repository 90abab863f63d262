"""Measured runs of a user's table, beside what is predicted for them: what an anchor is made of."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from trainwright.cluster.types import Cluster, Device
from trainwright.cost.anchor import (
    Anchor,
    AnchorRun,
    RunConditions,
    anchor_job,
    conditions_of,
)
from trainwright.cost.constants import Efficiency
from trainwright.cost.load import Constants, rests_on
from trainwright.cost.source import build_source
from trainwright.errors import BadInput
from trainwright.plan.strategy import PRECISIONS
from trainwright.validate.compare import Ranges
from trainwright.validate.dataset import (
    Dataset,
    Predictions,
    build_dataset,
    failed,
    load_rows,
    measured,
    predict,
    stack_name,
)
from trainwright.validate.rows import Case, Row

_GIB = 2.0**30


def measure_anchor(path: Path, constants: Constants, where: str = "", own: Cluster | None = None) -> Anchor:
    """The anchor of a table of runs; runs on the device of the cluster `where` are on that cluster."""
    rows = load_rows(path)
    dataset = build_dataset(rows, constants.stack, own)
    efficiency = build_source("calibrated", where, own, constants, None).efficiency if own else None

    def efficiency_of(device: Device) -> Efficiency:
        return efficiency if own and efficiency and device == own.device else constants.efficiency(device)

    predictions = predict(dataset, constants.stack, efficiency_of)
    runs, unused = anchor_runs(dataset, predictions)
    if not runs:
        reason = next(iter(unused), "no row states step_time_s or memory_gib")
        raise BadInput("table", str(path), f"has no run to anchor to ({reason})", "see docs/anchoring.md")
    notes = tuple(f"{count} rows of {path.name} not used: {reason}" for reason, count in unused.items())
    return Anchor(name=path.name, runs=runs, notes=notes)


def anchor_runs(dataset: Dataset, predictions: Predictions) -> tuple[tuple[AnchorRun, ...], dict[str, int]]:
    """The runs of a dataset that were measured and predicted; and why others are not among them."""
    truth, ended = measured(dataset), failed(dataset)
    runs: list[AnchorRun] = []
    unused: Counter[str] = Counter()
    for index, case in enumerate(dataset.cases):
        step_s, memory_bytes = (float(truth[name][index]) for name in ("step_s", "memory_bytes"))
        if case is None or not np.isfinite(predictions.step_s[index]):
            unused[dataset.reasons[index] or "no strategy could be evaluated"] += 1
        elif ended[index] or not (np.isfinite(step_s) or np.isfinite(memory_bytes)):
            unused["neither step_time_s nor memory_gib was measured"] += 1
        else:
            predicted = float(predictions.step_s[index]), float(predictions.memory_bytes[index])
            runs.append(_run(dataset.rows[index], case, (step_s, memory_bytes), predicted, index))
    return tuple(runs), dict(unused)


def _run(
    row: Row, case: Case, figures: tuple[float, float], predicted: tuple[float, float], index: int
) -> AnchorRun:
    (step_s, memory_bytes), (predicted_s, predicted_bytes) = figures, predicted
    is_timed, is_weighed = np.isfinite(step_s), np.isfinite(memory_bytes)
    return AnchorRun(
        id=case.id or f"row {index + 1}",
        model=case.graph.name,
        conditions=row_conditions(row, case),
        step_s=step_s if is_timed else None,
        predicted_step_s=predicted_s if is_timed else None,
        memory_bytes=memory_bytes if is_weighed else None,
        predicted_memory_bytes=predicted_bytes if is_weighed else None,
    )


def row_conditions(row: Row, case: Case) -> RunConditions:
    """What decides how much a row tells of other runs."""
    precision = PRECISIONS[case.fixed["precision"][0]] if "precision" in case.fixed else "bf16"
    return conditions_of(
        case.graph, case.cluster.device, stack_name(case), precision, row.get("release") or ""
    )


def anchor_predictions(
    dataset: Dataset, predictions: Predictions, within: Ranges, anchor: Anchor, constants: Constants
) -> tuple[Predictions, Ranges, int]:
    """Predictions and ranges of a table, corrected row by row; and how many rows a run says something of."""
    times, kept, memory = (np.ones(len(dataset.rows)) for _ in range(3))
    known: dict[RunConditions, tuple[float, float, float]] = {}
    anchored = 0
    for index, case in enumerate(dataset.cases):
        if case is None:
            continue
        job = row_conditions(dataset.rows[index], case)
        if job not in known:
            device, stack = case.cluster.device, constants.stack(stack_name(case))
            is_known = rests_on(constants.efficiency(device), stack) == "both"
            found = anchor_job(anchor, job, known=is_known)
            step, peak = found.step_time, found.memory
            known[job] = (
                step.factor if step else 1.0, step.width if step else 1.0, peak.factor if peak else 1.0,
            )  # fmt: skip
        times[index], kept[index], memory[index] = known[job]
        anchored += known[job] != (1.0, 1.0, 1.0)
    corrected = replace(
        predictions,
        step_s=predictions.step_s * times,
        memory_bytes=predictions.memory_bytes * memory,
        needed_bytes=predictions.needed_bytes * memory,
        fits=np.where(
            memory == 1.0, predictions.fits, predictions.needed_bytes * memory <= _capacities(dataset.cases)
        ),
    )
    return corrected, Ranges(low=within.low**kept, high=within.high**kept), anchored


def _capacities(cases: Sequence[Case | None]) -> np.ndarray:
    return np.array([case.cluster.capacity_bytes if case else np.nan for case in cases])
