"""`trainwright calibrate`: constants refined by what a user has measured: a profiler's trace, or runs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.cluster.types import Cluster
    from trainwright.validate.trace_fit import Refined


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "cluster", metavar="CLUSTER", help='what was traced, or ran: "h100:8", or a TOML file'
    )
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument(
        "--from", dest="traces", nargs="+", metavar="TRACE",
        help="traces that torch.profiler has written with record_shapes=True: refine efficiencies",
    )  # fmt: skip
    measured.add_argument(
        "--runs", metavar="RUNS.csv",
        help="runs with step_time_s or memory_gib, columns as in docs/validation.md: correct the level of "
        "predictions (docs/anchoring.md)",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="FILE",
        help="with --from, a cluster file with the refined efficiencies; with --runs, an anchor file for "
        "--runs of plan, simulate and validate (TOML)",
    )  # fmt: skip
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output"
    )


def run(options: argparse.Namespace) -> int:
    """Refine; show and write."""
    if options.runs:
        from trainwright.cli.calibrate_runs import calibrate_runs

        return calibrate_runs(options)
    from trainwright.cluster.load import load_cluster
    from trainwright.cost.load import load_constants
    from trainwright.cost.source import build_source
    from trainwright.output_file import save_text
    from trainwright.report.files import render_json
    from trainwright.report.kineto import load_kineto
    from trainwright.validate.trace_fit import refine

    cluster = load_cluster(options.cluster)
    efficiency = build_source("calibrated", options.cluster, cluster, load_constants(), None).efficiency
    found = refine([load_kineto(Path(each)) for each in options.traces], cluster, efficiency)
    if options.out:
        save_text(Path(options.out), _entry(options, cluster, found))
    if options.json:
        text = render_json({"cluster": options.cluster, "refined": found})
        if options.json == "-":
            print(text, end="")
            return 0
        save_text(Path(options.json), text)
    _show(found)
    if options.out:
        print(f"{options.out}: usable wherever a CLUSTER is asked for")
    return 0


def _entry(options: argparse.Namespace, cluster: "Cluster", found: "Sequence[Refined]") -> str:
    """The cluster file that was named with [efficiency] put anew, or one over the catalog's entries."""
    lines = ["", "# Refined by trainwright calibrate from a trace.", "[efficiency]"]
    lines += [f"{each.constant} = {each.after:.4g}" for each in found]
    if not options.cluster.endswith(".toml"):
        head = [
            f'name = "{cluster.name}"', f"count = {cluster.count}", f'device = "{cluster.device.name}"',
            f'network = "{cluster.network.name}"',
        ]  # fmt: skip
        return "\n".join([*head, *lines]) + "\n"
    kept, inside = [], False
    for line in Path(options.cluster).read_text(encoding="utf-8-sig").splitlines():
        if line.strip().startswith("["):
            inside = line.strip() == "[efficiency]"
        if not inside:
            kept.append(line)
    return "\n".join([*kept, *lines]) + "\n"


def _show(found: "Sequence[Refined]") -> None:
    from trainwright.report import tables
    from trainwright.units import render_duration

    rows = [
        [each.constant, f"{each.before:.3f}", f"{each.after:.3f}", str(each.kernels),
         render_duration(each.measured_s), render_duration(each.predicted_s)]
        for each in found
    ]  # fmt: skip
    headers = ("share of the datasheet", "before", "after", "kernels", "measured", "predicted then")
    tables.show(tables.open_console(), tables.table("", headers, rows))
