"""`trainwright calibrate --runs`: an anchor file from measured runs, and what it corrects."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from trainwright.api.anchoring import load_runs
from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import Cluster
from trainwright.cost.anchor import Anchor, Anchoring, AnchorRun, LevelCorrection, anchor_job
from trainwright.cost.anchor_file import AnchorProvenance, save_anchor
from trainwright.cost.load import Constants, load_constants, rests_on
from trainwright.errors import BadInput
from trainwright.output_file import save_text
from trainwright.report import tables
from trainwright.report.files import render_json

_HEADERS = (
    "runs of", "runs", "time: ratio", "corrected", "range", "memory: ratio", "corrected", "range",
)  # fmt: skip


def calibrate_runs(options: argparse.Namespace) -> int:
    """Predict the runs; show and write what they correct."""
    cluster, constants = load_cluster(options.cluster), load_constants()
    anchor = load_runs(options.runs, options.cluster)
    _check_family(options, cluster, anchor)
    groups = _groups(anchor)
    corrections = [_correction(anchor, runs[0], constants) for runs in groups]
    if options.out:
        made = datetime.now(UTC).date().isoformat()
        provenance = AnchorProvenance(made=made, table=Path(options.runs).name, cluster=options.cluster)
        save_anchor(Path(options.out), anchor, provenance)
    if options.json:
        listed = [
            {"runs": own, "anchor": found} for own, found in zip(groups, corrections, strict=True)
        ]  # fmt: skip
        text = render_json({"cluster": options.cluster, "notes": anchor.notes, "groups": listed})
        if options.json == "-":
            print(text, end="")
            return 0
        save_text(Path(options.json), text)
    console = tables.open_console()
    tables.show(console, *anchor.notes)
    rows = [_row(own, found) for own, found in zip(groups, corrections, strict=True)]
    tables.show(console, tables.table("Measured over predicted, and what it corrects", _HEADERS, rows))
    if options.out:
        print(f"{options.out}: give it as --runs to plan, simulate and validate")
    return 0


def _check_family(options: argparse.Namespace, cluster: Cluster, anchor: Anchor) -> None:
    """Raise if no run says anything of the cluster."""
    families = sorted({run.conditions.family for run in anchor.runs})
    if cluster.device.family not in families:
        rule = (
            f"has runs on {', '.join(families)} devices, and {options.cluster} is of {cluster.device.family}"
        )
        raise BadInput("--runs", options.runs, rule, "name the cluster that ran them")


def _groups(anchor: Anchor) -> list[list[AnchorRun]]:
    """The runs that share all conditions, in the order of the table."""
    groups: dict[object, list[AnchorRun]] = {}
    for run in anchor.runs:
        groups.setdefault(run.conditions, []).append(run)
    return list(groups.values())


def _correction(anchor: Anchor, run: AnchorRun, constants: Constants) -> Anchoring:
    """What all runs say of one more like this."""
    from trainwright.cluster.load import load_device

    own = run.conditions
    try:
        device = load_device(own.device)
        known = rests_on(constants.efficiency(device), constants.stack(own.stack)) == "both"
    except BadInput:  # a device of a cluster file
        known = False
    return anchor_job(anchor, own, known=known)


def _row(runs: Sequence[AnchorRun], found: Anchoring) -> list[str]:
    own = runs[0].conditions
    stack = f"{own.stack} {own.release}".strip()
    times = [each.step_s / each.predicted_step_s for each in runs if each.step_s and each.predicted_step_s]
    peaks = [
        each.memory_bytes / each.predicted_memory_bytes
        for each in runs
        if each.memory_bytes and each.predicted_memory_bytes
    ]
    return [
        f"{runs[0].model} on {own.device}, {stack}, {own.precision}", str(len(runs)), _between(times),
        *_corrected(found.step_time), _between(peaks), *_corrected(found.memory),
    ]  # fmt: skip


def _between(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    low, high = f"{min(ratios):.3f}", f"{max(ratios):.3f}"
    return low if low == high else f"{low} to {high}"


def _corrected(correction: LevelCorrection | None) -> tuple[str, str]:
    """The factor, and the width that the range keeps."""
    if correction is None:
        return "", ""
    return f"x {correction.factor:.3f}", f"x {correction.width:.2f}"
