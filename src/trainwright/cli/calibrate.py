"""`trainwright calibrate`: a device's efficiencies, refined by a trace of PyTorch's profiler."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.cluster.types import Cluster
    from trainwright.validate.trace_fit import Refined


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("cluster", metavar="CLUSTER", help='what was traced: "h100:8", or a TOML file')
    parser.add_argument(
        "--from", dest="traces", required=True, nargs="+", metavar="TRACE",
        help="traces that torch.profiler has written with record_shapes=True",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="a cluster file with the refined efficiencies (TOML)")
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output"
    )


def run(options: argparse.Namespace) -> int:
    """Refine; show and write."""
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
