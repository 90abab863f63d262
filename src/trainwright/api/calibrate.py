"""The answer to a request for constants refined by what a user has measured: a profiler's trace, or runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainwright.api.anchoring import load_runs
from trainwright.api.fields import FilePath
from trainwright.api.requests import CalibrateRequest
from trainwright.api.result import Result, Rows
from trainwright.cluster.load import load_cluster, load_device
from trainwright.cluster.types import Cluster
from trainwright.cost.anchor import Anchor, Anchoring, AnchorRun, anchor_job
from trainwright.cost.anchor_file import AnchorProvenance, save_anchor
from trainwright.cost.load import Constants, load_constants, rests_on
from trainwright.cost.source import build_source
from trainwright.errors import BadInput
from trainwright.output_file import save_text
from trainwright.report.kineto import load_kineto
from trainwright.validate.trace_fit import Refined, refine


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinedEfficiencies(Result, schema="calibrate-efficiencies/1"):
    """Efficiencies of a device as traces show them; `save` writes a cluster file with them."""

    request: CalibrateRequest
    cluster: Cluster
    refined: Sequence[Refined]

    def tree(self) -> Mapping[str, object]:
        """The tree that `trainwright calibrate --json` writes."""
        return {"cluster": str(self.request.cluster), "refined": self.refined}

    def rows(self) -> Rows:
        """A row for each constant."""
        names = Refined.__dataclass_fields__
        return [{name: getattr(each, name) for name in names} for each in self.refined]

    def save(self, path: FilePath) -> None:
        """Write the cluster file that was named with its [efficiency] replaced, or one over the catalog's."""
        lines = ["", "# Refined by trainwright calibrate from a trace.", "[efficiency]"]
        lines += [f"{each.constant} = {each.after:.4g}" for each in self.refined]
        named, cluster = str(self.request.cluster), self.cluster
        if not named.endswith(".toml"):
            kept = [
                f'name = "{cluster.name}"', f"count = {cluster.count}", f'device = "{cluster.device.name}"',
                f'network = "{cluster.network.name}"',
            ]  # fmt: skip
        else:
            kept, inside = [], False
            for line in Path(named).read_text(encoding="utf-8-sig").splitlines():
                if line.strip().startswith("["):
                    inside = line.strip() == "[efficiency]"
                if not inside:
                    kept.append(line)
        save_text(Path(path), "\n".join([*kept, *lines]) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredRuns(Result, schema="calibrate-runs/1"):
    """What runs correct, by groups that share all conditions; `save` writes an anchor file."""

    request: CalibrateRequest
    anchor: Anchor
    groups: Sequence[Sequence[AnchorRun]]
    corrections: Sequence[Anchoring]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed."""
        return self.anchor.notes

    def tree(self) -> Mapping[str, object]:
        """The tree that `trainwright calibrate --json` writes."""
        listed = [
            {"runs": own, "anchor": found} for own, found in zip(self.groups, self.corrections, strict=True)
        ]
        return {"cluster": str(self.request.cluster), "notes": self.notes, "groups": listed}

    def rows(self) -> Rows:
        """A row for each run: its conditions, measured and predicted."""
        names = AnchorRun.__dataclass_fields__
        return [{name: getattr(each, name) for name in names} for own in self.groups for each in own]

    def save(self, path: FilePath) -> None:
        """Write an anchor file, which `runs` of plan, simulate and validate take."""
        made, table = datetime.now(UTC).date().isoformat(), Path(str(self.request.runs)).name
        provenance = AnchorProvenance(made=made, table=table, cluster=str(self.request.cluster))
        save_anchor(Path(path), self.anchor, provenance)


def answer_calibrate(request: CalibrateRequest) -> RefinedEfficiencies | AnchoredRuns:
    """What traces or runs correct."""
    if request.runs is not None:
        return _anchor_runs(request, str(request.runs))
    if not request.traces:
        raise BadInput("calibrate", "", "needs traces or runs", "state --from or --runs")
    named = str(request.cluster)
    cluster = load_cluster(named)
    efficiency = build_source("calibrated", named, cluster, load_constants(), None).efficiency
    found = refine([load_kineto(Path(each)) for each in request.traces], cluster, efficiency)
    return RefinedEfficiencies(request=request, cluster=cluster, refined=found)


def _anchor_runs(request: CalibrateRequest, runs: str) -> AnchoredRuns:
    cluster, constants = load_cluster(str(request.cluster)), load_constants()
    anchor = load_runs(runs, str(request.cluster))
    families = sorted({run.conditions.family for run in anchor.runs})
    if cluster.device.family not in families:
        listed = ", ".join(families)
        rule = f"has runs on {listed} devices, and {request.cluster} is of {cluster.device.family}"
        raise BadInput("--runs", runs, rule, "name the cluster that ran them")
    groups: dict[object, list[AnchorRun]] = {}
    for run in anchor.runs:  # those that share all conditions, in the order of the table
        groups.setdefault(run.conditions, []).append(run)
    return AnchoredRuns(
        request=request, anchor=anchor, groups=list(groups.values()),
        corrections=[_correction(anchor, own[0], constants) for own in groups.values()],
    )  # fmt: skip


def _correction(anchor: Anchor, run: AnchorRun, constants: Constants) -> Anchoring:
    """What all runs say of one more like this."""
    own = run.conditions
    try:
        device = load_device(own.device)
        known = rests_on(constants.efficiency(device), constants.stack(own.stack)) == "both"
    except BadInput:  # a device of a cluster file
        known = False
    return anchor_job(anchor, own, known=known)
