"""`trainwright study comp-vs-comm`: compute against communication, from one profiled layer."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli import pages
from trainwright.cli.refusal import refuse_given
from trainwright.errors import BadInput

if TYPE_CHECKING:
    from trainwright.api.findings import Findings, Tell
    from trainwright.study.comp_vs_comm import Study
    from trainwright.study.switches import Switches

_TITLE = "Computation against communication"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the study."""
    parser.add_argument(
        "--profile", metavar="FILE", help="a cluster file with a profile (default: a node of MI210)"
    )
    parser.add_argument(
        "--cost", metavar="SOURCE", help="the same as projected:FILE, as other commands write it"
    )
    parser.add_argument("--out", metavar="DIR", help="tables (CSV, JSON), figures (HTML, PNG) and an index")
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output"
    )
    pages.add_reports(parser)
    parser.add_argument("--moe", metavar="E:K", help="E experts, K a token: all-to-alls (like 64:2)")
    parser.add_argument("--sequence-parallel", action="store_true", help="norms and residuals split, too")
    parser.add_argument("--pipeline", metavar="P[:M]", help="stages, and microbatches (default: 4 a stage)")
    parser.add_argument("--fsdp", action="store_true", help="sharded weights: 1.5x the data-parallel volume")
    parser.add_argument("--inference", action="store_true", help="forward only")
    parser.add_argument("--in-network-reduction", action="store_true", help="switches sum")
    parser.add_argument(
        "--interference",
        metavar="X",
        help="seconds lost for each that compute and communication share (default: the profile's)",
    )
    parser.add_argument("--offload-communication", action="store_true", help="no interference")
    parser.add_argument("--replicas", metavar="N", default="16", help="of data parallelism (default: 16)")


def run(options: argparse.Namespace) -> int:
    """Project, tell, and write what was asked for."""
    from trainwright.cli.study_folder import save_findings

    study = _study(options)
    notes = save_findings(options, lambda: _findings(study))
    _tell(study, options.json, notes)
    return 0


def found(options: argparse.Namespace, tell: "Tell") -> "Findings":
    """What the study finds, for whoever shows it in another way."""
    return _findings(_study(options))


def _study(options: argparse.Namespace) -> "Study":
    from trainwright.cost.source import load_profile
    from trainwright.study.comp_vs_comm import SHIPPED, run_study

    profile, cluster = load_profile(_baseline(options) or SHIPPED)
    return run_study(profile, cluster, _switches(options, profile.interference))


def _baseline(options: argparse.Namespace) -> Path | None:
    """The profile that is asked for, by either of two options."""
    from trainwright.cost.source import parse_cost

    if options.cost is None:
        return Path(options.profile) if options.profile is not None else None
    if options.profile is not None:
        raise BadInput("--cost", options.cost, "and --profile name one thing", "leave one of them out")
    name, file = parse_cost(options.cost)
    if name != "projected":
        rule = f"this study projects from one measured layer, which {name} does not"
        raise BadInput("--cost", options.cost, rule, "write projected:FILE")
    return Path(file) if file else None


def _switches(options: argparse.Namespace, measured: float) -> "Switches":
    from trainwright.study.switches import Switches
    from trainwright.units import parse_whole

    if options.offload_communication:
        rule = "does not go with --offload-communication, which leaves none"
        refuse_given(options, ("interference",), rule, "leave out one")
    if options.inference:
        names = ("fsdp", "replicas", "interference", "offload_communication")
        rule = "is of gradients that are exchanged, and --inference has none"
        refuse_given(options, names, rule, "leave out one")
    if options.sequence_parallel and (options.fsdp or options.inference):
        rule = "makes all-reduces faster, and the other options leave none"
        refuse_given(options, ("in_network_reduction",), rule)
    experts, top_k = _pair(options.moe, "--moe", 1) if options.moe is not None else (0, 1)
    stages, microbatches = (
        _pair(options.pipeline, "--pipeline", 0) if options.pipeline is not None else (1, 0)
    )
    return Switches(
        experts=experts, top_k=top_k, stages=stages, microbatches=microbatches,
        sequence_parallel=options.sequence_parallel, fsdp=options.fsdp, inference=options.inference,
        in_network_reduction=options.in_network_reduction, offload=options.offload_communication,
        interference=measured if options.interference is None else _share(options.interference),
        replicas=parse_whole(options.replicas, "--replicas", most=1_000_000),
    )  # fmt: skip


def _pair(text: str, thing: str, second: int) -> tuple[int, int]:
    from trainwright.units import parse_whole

    first, colon, rest = text.partition(":")
    return parse_whole(first, thing, most=100_000), parse_whole(
        rest, thing, most=100_000
    ) if colon else second


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 100:
        raise BadInput("--interference", text, "is not a number from 0 to 100", "write it like 0.2")
    return value


def _findings(study: "Study") -> "Findings":
    from trainwright.api.findings import Findings
    from trainwright.study import comp_vs_comm_tables as tables
    from trainwright.study.comp_vs_comm_figures import study_figures

    return Findings(
        title=_TITLE, tables=tables.study_tables(study), tree=tables.study_tree(study),
        figures=study_figures(study), lines=[*tables.head_lines(study), *tables.tail_lines(study)],
    )  # fmt: skip


def _tell(study: "Study", json: str | None, notes: list[str]) -> None:
    from trainwright.output_file import save_text
    from trainwright.report import tables as printed
    from trainwright.report.files import render_json
    from trainwright.study import comp_vs_comm_tables as tables
    from trainwright.study.comp_vs_comm_figures import study_figures

    if json == "-":
        print(render_json(tables.study_tree(study)), end="")
        return
    if json is not None:
        save_text(Path(json), render_json(tables.study_tree(study)))
    console = printed.open_console()
    for line in tables.head_lines(study):
        printed.show(console, printed.indented(console, line))
    for part in (tables.models_table, tables.shares_table, tables.bands_table, tables.memory_table):
        printed.show(console, part(study))
    for line in tables.tail_lines(study):
        printed.show(console, printed.indented(console, line))
    for figure in study_figures(study):
        printed.show(console, printed.indented(console, f"[{figure.verdict}] {figure.claim}"))
    for line in notes:
        printed.show(console, line)
