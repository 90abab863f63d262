"""The answer to a request for how well predictions agree with real runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trainwright.api.anchoring import read_anchor
from trainwright.api.fields import FilePath
from trainwright.api.requests import ValidateRequest
from trainwright.api.result import Result, Rows
from trainwright.cost.load import load_constants
from trainwright.output_file import save_text
from trainwright.report.files import render_csv
from trainwright.validate.anchor_runs import anchor_predictions
from trainwright.validate.compare import (
    ADDED,
    BY,
    Array,
    Errors,
    Ranges,
    doubtful,
    errors_by,
    predicted_rows,
    unreadable,
    widened,
)
from trainwright.validate.dataset import PUBLISHED, Predictions, build_dataset, load_rows, predict
from trainwright.validate.power import predict_power
from trainwright.validate.sourced import Sourced, source_groups

ReportRows = Callable[[int, int], None]  # rows that are predicted, of so many


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationErrors(Result, schema="validate/1"):
    """Errors of predictions by group, what could not be predicted, and every row with its prediction."""

    notes: tuple[str, ...]
    errors: Mapping[str, Sequence[Errors]]  # by the column that groups rows
    anchored: Mapping[str, object] | None
    not_predicted: Mapping[str, int]  # rows by reason
    doubtful: Mapping[str, int]  # rows with a wider range, by remark
    sourced: Sourced
    predictions: Predictions
    ranges: Ranges
    slowdown: Array  # of anchored steps

    def tree(self) -> Mapping[str, object]:
        """The tree that `trainwright validate --json` writes."""
        return {
            "notes": self.notes, "rows": len(self.sourced.dataset.rows), "anchor": self.anchored,
            "errors": self.errors, "not_predicted": self.not_predicted, "doubtful": self.doubtful,
        }  # fmt: skip

    def rows(self) -> Rows:
        """Every row of the table, with its prediction."""
        dataset, predictions = self.sourced.dataset, self.predictions
        power = predict_power(dataset, predictions, self.sourced.sources)
        power = replace(power, tokens_per_joule=power.tokens_per_joule / self.slowdown)
        return list(predicted_rows(dataset, predictions, self.ranges, power))

    def save_csv(self, path: FilePath) -> None:
        """Write the rows with their predictions."""
        stated = [name for name in self.sourced.dataset.rows[0] if name is not None and name not in ADDED]
        save_text(Path(path), render_csv([*stated, *ADDED], self.rows()))


def answer_validate(
    request: ValidateRequest, report_rows: ReportRows = lambda done, planned: None
) -> ValidationErrors:
    """Predict every row, and compare."""
    constants = load_constants()
    rows = load_rows(PUBLISHED if request.table is None else Path(request.table))
    sourced = source_groups(build_dataset(rows, constants.stack), request.cost, constants)
    dataset, notes = sourced.dataset, sourced.notes
    predictions = _predict(sourced, report_rows)
    within = widened(sourced.ranges, predictions.doubt)
    basis = "class" if request.cost in (None, "calibrated") else str(request.cost)
    unanchored_s, anchored = predictions.step_s, None
    if (anchor := read_anchor(request.runs, basis)) is not None:
        predictions, within, count = anchor_predictions(dataset, predictions, within, anchor, constants)
        anchored = {"file": anchor.name, "runs": len(anchor.runs), "rows": count}
        line = (
            f"Anchored to {anchor.name} ({len(anchor.runs)} runs): {count} of {len(rows)} rows are "
            "corrected, the others are of stacks or families of devices without a run in it."
        )
        notes = (*notes, *anchor.notes, line)
    return ValidationErrors(
        notes=tuple(notes), anchored=anchored, not_predicted=unreadable(dataset),
        doubtful=doubtful(dataset),
        errors={column: errors_by(dataset, predictions, within, column) for column in BY},
        sourced=sourced, predictions=predictions, ranges=within, slowdown=predictions.step_s / unanchored_s,
    )  # fmt: skip


def _predict(sourced: Sourced, report_rows: ReportRows) -> Predictions:
    """Predictions group by group, so that progress can be shown."""
    dataset, count, done = sourced.dataset, len(sourced.dataset.rows), 0
    chosen = np.zeros(count, dtype=np.int64)
    step, memory, needed, doubt = (np.full(count, np.nan) for _ in range(4))
    fits = np.zeros(count, dtype=bool)
    report_rows(0, count)
    for index, group in enumerate(dataset.groups):
        part = _predict_group(sourced, index)
        at = list(group.indices)
        step[at], memory[at], fits[at] = part.step_s[at], part.memory_bytes[at], part.fits[at]
        chosen[at], needed[at], doubt[at] = part.chosen[at], part.needed_bytes[at], part.doubt[at]
        done += len(at)
        report_rows(done, count)
    return Predictions(
        step_s=step, memory_bytes=memory, needed_bytes=needed, fits=fits, chosen=chosen, doubt=doubt
    )


def _predict_group(sourced: Sourced, group: int) -> Predictions:
    source = sourced.sources[group]
    return predict(sourced.dataset, lambda _: source.stack, lambda _: source.efficiency, [group])
