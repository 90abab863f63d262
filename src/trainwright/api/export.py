"""The answer to a request for a plan in the form that another tool reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.fields import FilePath, refuse, source_text
from trainwright.api.handed import Handed, PlannedStrategy, adopt_exported, build_handed
from trainwright.api.requests import ExportRequest
from trainwright.api.subject import OPTIMIZER_FLAGS, build_subject
from trainwright.api.subject_fields import SubjectFields
from trainwright.cost.chosen_optimizer import check_optimizer
from trainwright.errors import BadInput, UnknownName
from trainwright.export.chakra.files import chakra_files, check_folder
from trainwright.export.flags import comment
from trainwright.export.gaps import capability_gaps, target_capability
from trainwright.export.handover import spread
from trainwright.export.launch import Launch, own_program, render_slurm, render_torchrun
from trainwright.export.targets import TARGETS, export_text
from trainwright.output_file import make_folder, save_bytes, save_text
from trainwright.plan.expand import expand
from trainwright.plan.islands import is_apart
from trainwright.plan.text import render_plan
from trainwright.program.lower import Program, lower
from trainwright.simulate.whole import check_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPlan:
    """A plan in the form that a tool reads: text, or for chakra a folder of traces, built file by file."""

    request: ExportRequest
    title: str  # of the plan
    text: str = ""
    program: Program | None = None  # whose traces are written

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> Mapping[str, object]:
        """As plain values."""
        return {"to": self.request.to, "plan": self.title, "text": self.text}

    def save(self, path: FilePath) -> None:
        """Write the text, or the traces into a folder."""
        for _ in self.save_files(path):
            pass

    def save_files(self, path: FilePath) -> Iterator[str]:
        """Write what there is to write; the name of each file, once it is written."""
        if self.program is None:
            save_text(Path(path), self.text)
            yield str(path)
            return
        folder, per_class = Path(path), self.request.per_class
        check_folder(folder, self.program, per_class=per_class)
        make_folder(folder)
        for name, content in chakra_files(self.program, per_class=per_class):
            save_bytes(folder / name, content)
            yield name


def answer_export(request: ExportRequest) -> ExportedPlan:
    """A plan for a tool; what the tool cannot express raises, or leniently is a comment."""
    request, planned = adopt_exported(request)
    return _export_traces(request, planned) if request.to == "chakra" else _export_text(request, planned)


def _export_text(request: ExportRequest, planned: PlannedStrategy | None) -> ExportedPlan:
    """What a target that reads text is to be given for a plan."""
    if request.to not in TARGETS:
        raise UnknownName("--to", request.to, [*TARGETS, "chakra"])
    target = TARGETS[request.to]
    refuse(request, ("stack", "per_class"), "is for --to chakra")
    if not target.writes_hosts:
        refuse(request, ("per_node",), f"says nothing to {target.name}, whose launcher counts devices")
    handed = build_handed(request, planned)
    if not target.writes_seq and request.model is None:
        rule = f"says nothing to {target.name} without a model"
        refuse(request, ("seq",), rule, "state --model too, or leave it out")
    _check_islands(request, handed)
    _check_optimizer(request)
    if handed.handover is None:
        refuse(request, ("optimizer", "grad_dtype"), "is for strategies, and this plan is of none")
        refuse(request, ("lenient",), "is for strategies, and this plan is written whole or not at all")
        return ExportedPlan(request=request, title=handed.title, text=_general_text(request, handed))
    if not request.lenient:
        _check_usual_precision(request, handed)
    text = export_text(handed.handover, request.to, lenient=request.lenient, notes=handed.notes)
    return ExportedPlan(request=request, title=handed.title, text=text)


def _check_optimizer(request: ExportRequest) -> None:
    """Raise for an optimizer or gradients that the target's software does not have.

    Launchers start our own runtime, unless you change the line that they start.
    """
    if request.lenient and TARGETS[request.to].stack:
        return
    capability = target_capability(TARGETS[request.to].stack or "trainwright")
    stated = (request.optimizer or "", request.grad_dtype or "")
    check_optimizer(capability, *stated, OPTIMIZER_FLAGS, "target")


def _check_usual_precision(request: ExportRequest, handed: Handed) -> None:
    """Raise if a plan states no precision, and the target does not have the usual one of the cluster."""
    target, device = TARGETS[request.to], handed.usual_of
    if device is None or handed.handover is None:
        return
    for gap in capability_gaps(handed.handover, target_capability(target.stack)):
        if gap.knob == "precision":
            rule = f"{device.name} usually trains in {device.usual_precision}, and {gap.reason}"
            remedy = "state a precision in the plan, or use --lenient"
            raise BadInput("--cluster", source_text(request.cluster or ""), rule, remedy)


def _check_islands(request: ExportRequest, handed: Handed) -> None:
    """Raise for a plan of islands, unless it is for Trainwright itself."""
    plan = handed.plan
    if plan is None or not is_apart(plan) or request.to == "trainwright":
        return
    every, by = (plan.synchronise.every, plan.synchronise.by) if plan.synchronise else (0, "nothing")
    rule = f"has islands that meet by {by.split()[0]}, for which {request.to} has no words"
    raise BadInput(
        f"--to {request.to} plan", plan.name, rule,
        "use --to trainwright; or export the plan of one island (the file without apart and synchronise), "
        f"start one job for each, and let your trainer have them meet every {every} steps",
    )  # fmt: skip


def _general_text(request: ExportRequest, handed: Handed) -> str:
    """A plan that no knobs describe, for those that take any plan."""
    plan, text = handed.plan, str(request.plan)
    assert plan is not None
    model = source_text(request.model or "")
    if request.to == "trainwright":
        length = f" --seq {handed.seq}" if request.seq else ""
        return comment([f"trainwright run {model or 'MODEL'} THIS{length}"]) + render_plan(plan)
    if request.to not in ("torchrun", "slurm"):
        raise BadInput(
            f"--to {request.to} plan", text, "no strategy describes it, and only those can be told to others",
            "use --to trainwright, torchrun, slurm or chakra",
        )  # fmt: skip
    if not (model and Path(text).is_file()):
        raise BadInput(
            f"--to {request.to} plan", text, "needs a model and a plan file to name",
            "write it with --to trainwright, then name that file and --model",
        )  # fmt: skip
    used = spread(plan.devices, handed.per_node)
    launch = Launch(
        nodes=plan.devices // used, per_node=used,
        program=own_program(model, text, None, handed.seq if request.seq else None),
    )  # fmt: skip
    return (render_slurm if request.to == "slurm" else render_torchrun)(launch, [plan.name])


def _export_traces(request: ExportRequest, planned: PlannedStrategy | None) -> ExportedPlan:
    rule = "says nothing to chakra, which has every device and every plan"
    refuse(request, ("per_node", "lenient"), rule)
    handed = build_handed(request, planned)
    _check_islands(request, handed)
    if request.model is None or request.cluster is None:
        rule = "needs a model, a cluster and a directory"
        raise BadInput("--to", "chakra", rule, "state --model, --cluster and --out")
    subject = build_subject(
        SubjectFields(
            model=request.model, cluster=request.cluster, seq=request.seq, stack=request.stack,
            optimizer=request.optimizer, grad_dtype=request.grad_dtype,
        )
    )  # fmt: skip
    plan = handed.plan
    if plan is None:
        assert handed.handover is not None
        plan = expand(handed.handover.strategy, subject.graph, handed.handover.global_batch)
    program = lower(subject.setting(plan.precision), plan)
    check_size(len(program.instances), plan.microbatches)
    return ExportedPlan(request=request, title=plan.name, program=program)
