"""The answers to requests for studies."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainwright.api.fields import FilePath, Request, pair_texts, refuse, render_command, value_text
from trainwright.api.pages import UNDATED
from trainwright.api.result import ReportedResult, Rows
from trainwright.api.study_requests import (
    STUDY_REQUESTS,
    ClusterDesignStudyRequest,
    CommunicationStudyRequest,
    FlexiblePlansStudyRequest,
    ScalingStudyRequest,
    SubnetworksStudyRequest,
)
from trainwright.errors import BadInput, UnknownName
from trainwright.report.figures import Figure
from trainwright.report.page import Page
from trainwright.report.page import Rows as PageRows
from trainwright.units import parse_whole

ReportProgress = Callable[[int, int, str], None]  # done, planned, what
_TITLES: Mapping[type[Request], str] = {
    FlexiblePlansStudyRequest: "Flexible plans against systems of 2022 and the knobs of today",
    CommunicationStudyRequest: "Computation against communication",
    ClusterDesignStudyRequest: "Parallelization and cluster chosen together",
    ScalingStudyRequest: "What more devices give",
    SubnetworksStudyRequest: "Independent subnetworks against what users would pick instead",
}
_MOST_ROWS = 400  # of a table in a report; the CSV has all
_MOST_DEVICES = 1_000_000
_MOST_SIZE = 100_000_000
_MOST_DESIGN = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFindings(ReportedResult, schema="study/1"):
    """What a study found: rows of tables by name, all of it as a tree, figures, and what to say first."""

    request: Request
    study: Any  # as the functions of the study return it
    tables: Mapping[str, Rows]
    values: object  # all of it
    drawn: Sequence[Figure]
    lines: Sequence[str]

    @property
    def title(self) -> str:
        """The title of the study."""
        return _TITLES[type(self.request)]

    def tree(self) -> Mapping[str, object]:
        """All of it as plain values."""
        return self.values if isinstance(self.values, Mapping) else {"cases": self.values}

    def rows(self) -> Rows:
        """The first table that has rows."""
        return next((rows for rows in self.tables.values() if rows), [])

    def figures(self) -> Sequence[Figure]:
        """What is drawn of it."""
        return self.drawn

    def page(self) -> Page:
        """The report."""
        claims = [figure for figure in self.drawn if figure.claim]
        summary = (f"{sum(figure.holds for figure in claims)} of {len(claims)} claims hold.",)
        return Page(
            title=self.title, question=(f"{self.title}: which published claims hold?",),
            answer=(*(summary if claims else ()), *self.lines), figures=self.drawn,
            tables=tuple(
                PageRows(title=name, rows=rows[:_MOST_ROWS]) for name, rows in self.tables.items() if rows
            ),
            assumptions=(UNDATED,), command=render_command(f"study {study_name(self.request)}", self.request),
        )  # fmt: skip

    def save_folder(self, folder: FilePath) -> list[str]:
        """Write tables, figures where they can be drawn, and an index of them; what to say of these."""
        from trainwright.output_file import make_folder, save_text
        from trainwright.report import figures
        from trainwright.report.files import render_csv, render_json

        path = Path(folder)
        make_folder(path)
        found = {name: rows for name, rows in self.tables.items() if rows}
        for name, rows in found.items():
            save_text(path / f"{name}.csv", render_csv(list(rows[0]), rows))
        save_text(path / "study.json", render_json(self.values))
        drawn = figures.can_draw()
        if drawn:
            figures.save_figures(path, self.drawn)
        files = [*(f"{name}.csv" for name in found), "study.json"]
        save_text(path / "index.html", figures.render_index(self.title, self.lines, self.drawn, files, drawn))
        return [f"Written: {path / 'index.html'}", *([] if drawn else [figures.HOW_TO_GET])]


class StudyInterrupted(KeyboardInterrupt):
    """A study was interrupted: `findings` has what was done."""

    def __init__(self, findings: StudyFindings) -> None:
        super().__init__()
        self.findings = findings


def study_name(request: Request) -> str:
    """The name of the study that a request is for."""
    return next(name for name, each in STUDY_REQUESTS.items() if isinstance(request, each))


def _silent(done: int, planned: int, what: str) -> None:
    pass


def answer_study(
    request: Request, report_progress: ReportProgress = _silent, folder: Path | None = None
) -> StudyFindings:
    """What a study finds; those that take long keep what is done in a folder, if one is named."""
    return _ANSWERS[type(request)](request, report_progress, folder)


def _findings(
    request: Request, study: Any, tables: Any, drawn: Sequence[Figure], lines: Sequence[str]
) -> StudyFindings:
    """Findings by the functions that the tables of most studies have."""
    return StudyFindings(
        request=request, study=study, tables=tables.study_tables(study), values=tables.study_tree(study),
        drawn=drawn, lines=lines,
    )  # fmt: skip


def _names(stated: Any) -> tuple[str, ...]:
    """The parts of a list, each once."""
    return tuple(dict.fromkeys(each.strip() for each in value_text(stated).split(",")))


def _counts(stated: Any, thing: str, most: int = _MOST_SIZE) -> tuple[int, ...]:
    return tuple(dict.fromkeys(parse_whole(each, thing, most=most) for each in _names(stated)))


def _scaling(request: ScalingStudyRequest, _: ReportProgress, __: Path | None) -> StudyFindings:
    from trainwright.study import scaling_tables as tables
    from trainwright.study.scaling import Asked, run_study
    from trainwright.study.scaling_figures import study_figures

    stated: dict[str, Any] = {
        name: getattr(request, name)
        for name in ("model", "device", "stack", "cost")
        if getattr(request, name) is not None
    }
    for name in ("models", "generations"):
        if (value := getattr(request, name)) is not None:
            stated[name] = _names(value)
    for name, key in (("batch", "batches"), ("contexts", "contexts")):
        if (value := getattr(request, name)) is not None:
            stated[key] = _counts(value, f"--{name}")
    for name in ("seq", "local_batch"):
        if (value := getattr(request, name)) is not None:
            stated[name] = parse_whole(value, f"--{name.replace('_', '-')}", most=_MOST_SIZE)
    if request.devices is not None:
        stated["devices"] = _scales(value_text(request.devices))
    study = run_study(Asked(**stated))
    lines = [*tables.head_lines(study), *tables.tail_lines(study)]
    return _findings(request, study, tables, study_figures(study), lines)


def _scales(text: str) -> tuple[int, ...]:
    first, colon, last = text.partition(":")
    if not colon:
        return _counts(text, "--devices", _MOST_DEVICES)
    low, high = (_counts(each, "--devices", _MOST_DEVICES)[0] for each in (first, last))
    return tuple(low << power for power in range((high // low).bit_length()) if low << power <= high)


def _communication(request: CommunicationStudyRequest, _: ReportProgress, __: Path | None) -> StudyFindings:
    from trainwright.cost.source import load_profile
    from trainwright.study import comp_vs_comm_tables as tables
    from trainwright.study.comp_vs_comm import SHIPPED, run_study
    from trainwright.study.comp_vs_comm_figures import study_figures

    profile, cluster = load_profile(baseline_file(request) or SHIPPED)
    study = run_study(profile, cluster, _switches(request, profile.interference))
    lines = [*tables.head_lines(study), *tables.tail_lines(study)]
    return _findings(request, study, tables, study_figures(study), lines)


def baseline_file(request: CommunicationStudyRequest) -> Path | None:
    """The profile that is asked for, by either of two fields."""
    from trainwright.cost.source import parse_cost

    if request.cost is None:
        return Path(request.profile) if request.profile is not None else None
    if request.profile is not None:
        raise BadInput("--cost", request.cost, "and --profile name one thing", "leave one of them out")
    name, file = parse_cost(request.cost)
    if name != "projected":
        rule = f"this study projects from one measured layer, which {name} does not"
        raise BadInput("--cost", request.cost, rule, "write projected:FILE")
    return Path(file) if file else None


def _switches(request: CommunicationStudyRequest, measured: float) -> Any:
    from trainwright.study.switches import Switches

    if request.offload_communication:
        rule = "does not go with --offload-communication, which leaves none"
        refuse(request, ("interference",), rule, "leave out one")
    if request.inference:
        names = ("fsdp", "replicas", "interference", "offload_communication")
        rule = "is of gradients that are exchanged, and --inference has none"
        refuse(request, names, rule, "leave out one")
    if request.sequence_parallel and (request.fsdp or request.inference):
        rule = "makes all-reduces faster, and the other options leave none"
        refuse(request, ("in_network_reduction",), rule)
    experts, top_k = _pair(request.moe, "--moe", 1) if request.moe is not None else (0, 1)
    stages, microbatches = (
        _pair(request.pipeline, "--pipeline", 0) if request.pipeline is not None else (1, 0)
    )
    stated = request.replicas
    return Switches(
        experts=experts, top_k=top_k, stages=stages, microbatches=microbatches,
        sequence_parallel=request.sequence_parallel, fsdp=request.fsdp, inference=request.inference,
        in_network_reduction=request.in_network_reduction, offload=request.offload_communication,
        interference=measured if request.interference is None else _share(request.interference),
        replicas=parse_whole(16 if stated is None else stated, "--replicas", most=1_000_000),
    )  # fmt: skip


def _pair(text: str, thing: str, second: int) -> tuple[int, int]:
    first, colon, rest = text.partition(":")
    last = parse_whole(rest, thing, most=100_000) if colon else second
    return parse_whole(first, thing, most=100_000), last


def _share(stated: Any) -> float:
    try:
        value = float(stated)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 100:
        raise BadInput("--interference", stated, "is not a number from 0 to 100", "write it like 0.2")
    return value


def _cluster_design(request: ClusterDesignStudyRequest, _: ReportProgress, __: Path | None) -> StudyFindings:
    from trainwright.study.cluster_design import Asked, run_study

    stated: dict[str, Any] = {
        name: getattr(request, name)
        for name in ("model", "recommender")
        if getattr(request, name) is not None
    }
    for name in ("devices", "batch"):
        if (value := getattr(request, name)) is not None:
            stated[name] = parse_whole(value, f"--{name}", most=_MOST_DESIGN)
    if request.clusters is not None:
        stated["clusters"] = _names(request.clusters)
    return design_findings(request, run_study(Asked(**stated)))


def design_findings(request: ClusterDesignStudyRequest, study: Any) -> StudyFindings:
    """What a study of cluster design found."""
    from trainwright.study import cluster_design_tables as tables
    from trainwright.study.cluster_design_figures import study_figures

    return _findings(request, study, tables, study_figures(study), list(tables.head_lines(study)))


def _flexible_plans(
    request: FlexiblePlansStudyRequest, report_progress: ReportProgress, folder: Path | None
) -> StudyFindings:
    """Each case is kept as it ends, so that the study can be interrupted."""
    from trainwright.study.flexible_plans import run_cases, source_of

    outcomes: list[Any] = []
    cases = _cases(request)
    sourced = [case for case in cases if case.cost]
    for note in dict.fromkeys(note for case in sourced for note in source_of(case).notes):
        report_progress(0, len(cases), note)
    try:
        for outcome in run_cases(
            cases, folder, lambda line: report_progress(len(outcomes), len(cases), line.partition(" ")[2])
        ):
            outcomes.append(outcome)
    except KeyboardInterrupt:
        raise StudyInterrupted(_flexible_findings(request, outcomes)) from None
    return _flexible_findings(request, outcomes)


def _flexible_findings(request: FlexiblePlansStudyRequest, outcomes: list[Any]) -> StudyFindings:
    from trainwright.study.flexible_table import outcome_figures, reasons, row_of

    return StudyFindings(
        request=request, study=outcomes, values=outcomes,
        tables={"cases": [row_of(each) for each in outcomes]}, drawn=outcome_figures(outcomes),
        lines=reasons(outcomes),
    )  # fmt: skip


def _cases(request: FlexiblePlansStudyRequest) -> list[Any]:
    from trainwright.study.flexible_plans import DEVICES, FAMILIES, published_cases, sensitivity_cases

    models, devices = pair_texts(request.model), pair_texts(request.device)
    for kind, chosen, known in (("model", models, FAMILIES), ("device", devices, DEVICES)):
        for name in chosen:
            if name not in known:
                raise UnknownName(f"study {kind}", name, known)
    if request.sensitivity:
        rule = "does not go with --sensitivity, which is of V100s"
        refuse(request, ("device",), rule, "leave out one")
    counts = _counts("8,16,32" if request.devices is None else request.devices, "--devices")
    for count in counts:
        if count not in (sizes := FAMILIES["swin"]):
            rule = f"models are published for {', '.join(map(str, sizes))} devices"
            raise BadInput("--devices", count, rule, "use one of them")
    if request.sensitivity and request.devices is not None and len(counts) > 1:
        rule = "are several counts, and --sensitivity takes one"
        raise BadInput("--devices", value_text(request.devices), rule, "state one")
    if request.sensitivity:
        cases = sensitivity_cases(counts[0])
    else:
        cases = published_cases(devices or DEVICES, counts)
    return [replace(case, cost=request.cost or "") for case in cases if case.family in (models or FAMILIES)]


def _subnetworks(
    request: SubnetworksStudyRequest, report_progress: ReportProgress, folder: Path | None
) -> StudyFindings:
    if find_spec("torch") is None:
        raise BadInput("command", "study subnetworks", "needs PyTorch", "pip install 'trainwright[run]'")
    from trainwright.algorithm.samples import given_samples
    from trainwright.study.subnetworks import FULL, QUICK, Setting, given_settings, run_study
    from trainwright.study.subnetworks_figures import study_figures
    from trainwright.study.subnetworks_tables import study_lines, study_tables

    settings: Sequence[Setting] = QUICK if request.quick else FULL
    if request.data is not None:
        if request.quick:
            rule = "does not go with --quick, which is of our own data"
            raise BadInput("--data", str(request.data), rule, "leave one out")
        settings = given_settings(given_samples(str(request.data)))
    study = run_study(settings, folder, report_progress)
    tables, lines = study_tables(study), study_lines(study)
    return StudyFindings(
        request=request, study=study, tables=tables, values={"lines": lines, **tables}, lines=lines,
        drawn=study_figures(study),
    )  # fmt: skip


_ANSWERS: Mapping[type[Request], Callable[[Any, ReportProgress, Path | None], StudyFindings]] = {
    FlexiblePlansStudyRequest: _flexible_plans,
    CommunicationStudyRequest: _communication,
    ClusterDesignStudyRequest: _cluster_design,
    ScalingStudyRequest: _scaling,
    SubnetworksStudyRequest: _subnetworks,
}
