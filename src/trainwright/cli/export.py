"""`trainwright export`: a plan for the tool that will run it."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli import optimizer
from trainwright.cli.refusal import refuse_given

if TYPE_CHECKING:
    from trainwright.cli.handed import Handed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "plan",
        metavar="PLAN",
        nargs="+",
        help='a strategy ("dp8 tp4 pp2 mb1 zero1 1f1b"), what trainwright plan --json wrote (its best plan), '
        "a plan file, or a plan of the zoo",
    )
    parser.add_argument(
        "--to",
        required=True,
        metavar="NAME",
        help="megatron, megatron-bridge, nemo, torchtitan, torchtitan-toml (before 0.3), deepspeed, "
        "nanotron, nanotron-0.4, accelerate, maxtext, torchrun, slurm, trainwright or chakra",
    )
    parser.add_argument(
        "--out", default="-", metavar="PATH", help="the file, or directory of chakra (default: print)"
    )
    parser.add_argument("--model", metavar="MODEL", help="a catalog name, a config.json, or a TOML file")
    parser.add_argument(
        "--cluster", metavar="CLUSTER", help='"h100:512" or a TOML file (default: nodes of 8 devices)'
    )
    parser.add_argument("--per-node", metavar="N", help="devices of a host (default: as the cluster has)")
    parser.add_argument("--batch", metavar="N", help="sequences per step")
    parser.add_argument("--seq", metavar="N", help="tokens per sequence (default: the model's)")
    parser.add_argument("--stack", metavar="NAME", help="software that durations are predicted for (chakra)")
    optimizer.add_arguments(parser)
    parser.add_argument(
        "--per-class", action="store_true", help="chakra: a trace for each class of ranks, and a map of ranks"
    )
    parser.add_argument(
        "--lenient", action="store_true", help="leave out what the target cannot express, and say so in it"
    )


def run(options: argparse.Namespace) -> int:
    """Write the plan in the target's words."""
    if options.to == "chakra":
        return _save_chakra(options)
    handed, text = text_of(options)
    if options.out == "-":
        print(text, end="")
    else:
        from trainwright.output_file import save_text

        save_text(Path(options.out), text)
        print(f"{options.out}: {handed.title}")
    return 0


def text_of(options: argparse.Namespace) -> "tuple[Handed, str]":
    """The plan that the options name, and what a target that reads text is to be given for it."""
    from trainwright.cli.handed import parse_handed
    from trainwright.errors import UnknownName
    from trainwright.export.targets import TARGETS, export_text

    if options.to not in TARGETS:
        raise UnknownName("--to", options.to, [*TARGETS, "chakra"])
    target = TARGETS[options.to]
    refuse_given(options, ("stack", "per_class"), "is for --to chakra")
    if not target.writes_hosts:
        refuse_given(options, ("per_node",), f"says nothing to {target.name}, whose launcher counts devices")
    handed = parse_handed(options)  # which knows the model of an answer
    if not (target.writes_seq or options.model):
        rule = f"says nothing to {target.name} without a model"
        refuse_given(options, ("seq",), rule, "state --model too, or leave it out")
    _check_islands(options, handed)
    _check_optimizer(options)
    if handed.handover is None:
        refuse_given(options, ("optimizer", "grad_dtype"), "is for strategies, and this plan is of none")
        refuse_given(options, ("lenient",), "is for strategies, and this plan is written whole or not at all")
        return handed, _general_text(options, handed)
    if not options.lenient:
        _check_usual_precision(options, handed)
    return handed, export_text(handed.handover, options.to, lenient=options.lenient, notes=handed.notes)


def _check_optimizer(options: argparse.Namespace) -> None:
    """Raise for an optimizer or gradients that the target's software does not have.

    Launchers start our own runtime, unless you change the line that they start.
    """
    from trainwright.cost.chosen_optimizer import check_optimizer
    from trainwright.export.gaps import target_capability
    from trainwright.export.targets import TARGETS

    if options.lenient and TARGETS[options.to].stack:
        return
    capability = target_capability(TARGETS[options.to].stack or "trainwright")
    stated = (options.optimizer or "", options.grad_dtype or "")
    check_optimizer(capability, *stated, optimizer.OPTIONS, "target")


def _check_usual_precision(options: argparse.Namespace, handed: "Handed") -> None:
    """Raise if a plan states no precision, and the target does not have the usual one of the cluster."""
    from trainwright.errors import BadInput
    from trainwright.export.gaps import capability_gaps, target_capability
    from trainwright.export.targets import TARGETS

    target, device = TARGETS[options.to], handed.usual_of
    if device is None or handed.handover is None:
        return
    for gap in capability_gaps(handed.handover, target_capability(target.stack)):
        if gap.knob == "precision":
            rule = f"{device.name} usually trains in {device.usual_precision}, and {gap.reason}"
            remedy = "state a precision in the plan, or use --lenient"
            raise BadInput("--cluster", options.cluster, rule, remedy)


def _check_islands(options: argparse.Namespace, handed: "Handed") -> None:
    """Raise for a plan of islands, unless it is for Trainwright itself."""
    from trainwright.errors import BadInput
    from trainwright.plan.islands import is_apart

    plan = handed.plan
    if plan is None or not is_apart(plan) or options.to == "trainwright":
        return
    every, by = (plan.synchronise.every, plan.synchronise.by) if plan.synchronise else (0, "nothing")
    rule = f"has islands that meet by {by.split()[0]}, for which {options.to} has no words"
    raise BadInput(
        f"--to {options.to} plan", plan.name, rule,
        "use --to trainwright; or export the plan of one island (the file without apart and synchronise), "
        f"start one job for each, and let your trainer have them meet every {every} steps",
    )  # fmt: skip


def _general_text(options: argparse.Namespace, handed: "Handed") -> str:
    """A plan that no knobs describe, for those that take any plan."""
    from trainwright.errors import BadInput
    from trainwright.export.flags import comment
    from trainwright.export.handover import spread
    from trainwright.export.launch import Launch, own_program, render_slurm, render_torchrun
    from trainwright.plan.text import render_plan

    plan, text = handed.plan, " ".join(options.plan)
    assert plan is not None
    if options.to == "trainwright":
        length = f" --seq {handed.seq}" if options.seq else ""
        return comment([f"trainwright run {options.model or 'MODEL'} THIS{length}"]) + render_plan(plan)
    if options.to not in ("torchrun", "slurm"):
        raise BadInput(
            f"--to {options.to} plan", text, "no strategy describes it, and only those can be told to others",
            "use --to trainwright, torchrun, slurm or chakra",
        )  # fmt: skip
    if not (options.model and Path(text).is_file()):
        raise BadInput(
            f"--to {options.to} plan", text, "needs a model and a plan file to name",
            "write it with --to trainwright, then name that file and --model",
        )  # fmt: skip
    used = spread(plan.devices, handed.per_node)
    launch = Launch(
        nodes=plan.devices // used, per_node=used,
        program=own_program(options.model, text, None, handed.seq if options.seq else None),
    )  # fmt: skip
    return (render_slurm if options.to == "slurm" else render_torchrun)(launch, [plan.name])


def _save_chakra(options: argparse.Namespace) -> int:
    """Traces of the lowered plan, and what else ASTRA-sim reads."""
    import sys

    from trainwright.cli.handed import parse_handed
    from trainwright.cli.subject import parse_subject
    from trainwright.errors import BadInput
    from trainwright.export.chakra.files import chakra_files, check_folder
    from trainwright.output_file import make_folder, save_bytes
    from trainwright.plan.expand import expand
    from trainwright.program.lower import lower
    from trainwright.program.setting import Setting
    from trainwright.simulate.whole import check_size

    rule = "says nothing to chakra, which has every device and every plan"
    refuse_given(options, ("per_node", "lenient"), rule)
    options.cost = None
    handed = parse_handed(options)
    _check_islands(options, handed)
    if not (options.model and options.cluster) or options.out == "-":
        rule = "needs a model, a cluster and a directory"
        raise BadInput("--to", "chakra", rule, "state --model, --cluster and --out")
    subject = parse_subject(options)
    plan = handed.plan
    if plan is None:
        assert handed.handover is not None
        plan = expand(handed.handover.strategy, subject.graph, handed.handover.global_batch)
    setting = Setting(
        graph=subject.graph, cluster=subject.cluster, stack=subject.stack, efficiency=subject.efficiency,
        seq=subject.seq, precision=plan.precision,
    )  # fmt: skip
    program = lower(setting, plan)
    check_size(len(program.instances), plan.microbatches)
    folder, traces = Path(options.out), 0
    check_folder(folder, program, per_class=options.per_class)
    make_folder(folder)
    for name, content in chakra_files(program, per_class=options.per_class):
        save_bytes(folder / name, content)
        traces += name.endswith(".et")
        if sys.stderr.isatty():
            print(f"\r{traces} traces", end="", file=sys.stderr, flush=True)
    print(f"{options.out}: {traces} traces of {plan.name}")
    return 0
