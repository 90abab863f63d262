"""Runs of a user's own, to which predictions are anchored."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.api.fields import ClusterSource, FilePath, source_text
from trainwright.api.subject import Subject
from trainwright.api.subject_fields import SubjectFields
from trainwright.cluster.load import load_cluster
from trainwright.cost.anchor import (
    Anchor,
    Anchoring,
    LevelCorrection,
    anchor_job,
    conditions_of,
    narrow_memory,
)
from trainwright.cost.anchor_file import load_anchor
from trainwright.cost.change import Place
from trainwright.cost.load import Interval, load_constants, rests_on
from trainwright.cost.slowed import slow_place, slow_stack
from trainwright.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence
_FITTED = ("device", "family", "class")  # what efficiencies that are fitted rest on


def read_anchor(runs: FilePath | None, basis: str, cluster: ClusterSource = "") -> Anchor | None:
    """The anchor of a table of runs or an anchor file; `basis` is of the efficiencies that it corrects."""
    if runs is None:
        return None
    if basis not in _FITTED:
        rule = f"corrects calibrated constants, and operator times are {basis}"
        raise BadInput("--runs", str(runs), rule, "leave it out, or state --cost calibrated")
    return load_runs(str(runs), source_text(cluster))


def load_runs(runs: str, where: str) -> Anchor:
    """The anchor in a file; a table of runs is predicted, on the cluster `where` if its device ran them."""
    path = Path(runs)
    if path.suffix.lower() == ".toml":
        return load_anchor(path)
    return _measured(runs, _stamp(runs), where, _stamp(where))


def _stamp(name: str) -> tuple[int, int]:
    """What tells a file from an earlier state of it; zeros if there is none."""
    try:
        found = Path(name).stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _measured(runs: str, _: tuple[int, int], where: str, __: tuple[int, int]) -> Anchor:
    from trainwright.validate.anchor_runs import measure_anchor

    return measure_anchor(Path(runs), load_constants(), where, load_cluster(where) if where else None)


def anchor_subject(
    request: SubjectFields, subject: Subject, precisions: "Sequence[str]"
) -> tuple[Subject, Anchoring | None]:
    """The subject with constants, ranges and notes corrected by the runs that `--runs` names."""
    anchor = read_anchor(request.runs, subject.efficiency.basis, request.cluster)
    if anchor is None:
        return subject, None
    found = _anchoring(request, anchor, subject, precisions)
    interval, spread = subject.interval, narrow_memory(found.memory, subject.memory_spread)
    place, stack = Place(cluster=subject.cluster, efficiency=subject.efficiency), subject.stack
    if found.step_time:
        interval = found.step_time.narrow(interval)
        place, stack = slow_place(place, found.step_time.factor), slow_stack(stack, found.step_time.factor)
    notes = (*anchor.notes, anchoring_line(found, subject.cluster.device.family, interval))
    changed = replace(
        subject, cluster=place.cluster, efficiency=place.efficiency, stack=stack, interval=interval,
        memory_spread=spread, basis=(*subject.basis, *notes),
    )  # fmt: skip
    return changed, found


def _anchoring(
    request: SubjectFields, anchor: Anchor, subject: Subject, precisions: "Sequence[str]"
) -> Anchoring:
    """What the runs say of the subject; all precisions that are asked about must be corrected alike."""
    known = rests_on(subject.efficiency, subject.stack) == "both"
    device, stack = subject.cluster.device, subject.stack.name
    jobs = [conditions_of(subject.graph, device, stack, each) for each in precisions]
    found = {job.precision: anchor_job(anchor, job, known=known) for job in jobs}
    first, *others = found.values()
    if any((each.step_time, each.memory) != (first.step_time, first.memory) for each in others):
        rule = f"corrects {' and '.join(found)} differently"
        raise BadInput("--runs", str(request.runs), rule, "state one precision")
    return first


def anchoring_line(found: Anchoring, family: str, interval: Interval) -> str:
    """How many runs, the factors, and the narrowed ranges, on one line."""
    if found.step_time is None and found.memory is None:
        where = f"{found.stack} on {family} devices"
        return f"Not anchored: none of the {found.file_runs} runs of {found.file} is of {where}."
    parts = []
    if (step := found.step_time) is not None:
        parts.append(
            f"step time x {step.factor:.3f}, 90 % range {interval.low:.2f} to {interval.high:.2f} of it"
        )
        parts[-1] += f" ({1.0 - step.width:.0%} narrower), {_counted(step)}"
    if (peak := found.memory) is not None:
        parts.append(
            f"peak memory x {peak.factor:.3f}, range {1.0 - peak.width:.0%} narrower, {_counted(peak)}"
        )
    return f"Anchored to {found.file} ({found.precision}): {'; '.join(parts)}."


def _counted(correction: LevelCorrection) -> str:
    runs = "1 run" if correction.runs == 1 else f"{correction.runs} runs"
    return f"by {runs} ({correction.same_model} of this model)"
