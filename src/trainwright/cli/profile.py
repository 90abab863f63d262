"""`trainwright profile`: measure this machine, and write what was measured as a cluster file."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.needs_torch import check_torch
from trainwright.cli.refusal import refuse_given
from trainwright.cli.show import Show
from trainwright.errors import BadInput

if TYPE_CHECKING:
    from trainwright.cost.profile import Profile

_MOST = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--out", default="profile.toml", metavar="FILE", help="the file (default: profile.toml)"
    )
    parser.add_argument(
        "--budget",
        default="2min",
        metavar="TIME",
        help="time to measure for, like 30s or 5min (default: 2min)",
    )
    parser.add_argument(
        "--processes", metavar="N,N",
        help="how many measure at once, and further counts for collectives (default: one per device, or one "
        "per core and twice as many)",
    )  # fmt: skip
    parser.add_argument("--threads", default="1", metavar="N", help="of each process on a CPU (default: 1)")
    parser.add_argument("--name", default="here", metavar="NAME", help="of the device (default: here)")


def run(options: argparse.Namespace) -> int:
    """Measure, and write what there is, also after Ctrl-C."""
    check_torch("profile")
    from trainwright.output_file import save_text
    from trainwright.runtime.profile.entry import render_entry
    from trainwright.runtime.profile.session import device_kind, measure_rounds, memory_bytes, plan_rounds
    from trainwright.units import parse_quantity, parse_whole

    out, kind = Path(options.out), device_kind()
    if not options.out.endswith(".toml") or not out.resolve().parent.is_dir():
        raise BadInput("--out", options.out, "is no .toml file in a directory that exists", "choose another")
    if kind != "cpu":
        refuse_given(options, ("threads",), f"is of processes on a CPU, and {kind} devices are measured")
    threads = parse_whole(options.threads, "--threads", most=_MOST)
    cores = max((os.cpu_count() or 1) // threads, 1)
    budget_s = parse_quantity(options.budget, "s", "--budget")
    counts = _processes(options.processes, kind, cores)
    with Show() as show:
        measured = measure_rounds(plan_rounds(kind, counts), kind, threads, budget_s, show.report_progress)
    profile = measured.profile
    if not profile.kernels:
        raise BadInput(
            "--budget", options.budget, "was over before a kernel was measured", "give it more time"
        )
    at_once = max(cores, counts[0]) if kind == "cpu" else 0
    save_text(out, render_entry(profile, options.name, at_once, memory_bytes(kind, counts[0])))
    print(_summary(profile, out))
    if measured.ended:
        lacking = ", ".join(profile.missing)
        print(f"trainwright: {measured.ended}; kept what was measured, missing: {lacking}", file=sys.stderr)
    return 0


def _processes(text: str | None, kind: str, cores: int) -> tuple[int, ...]:
    from trainwright.units import parse_whole

    if text:
        return tuple(parse_whole(each, "--processes", most=_MOST) for each in text.split(","))
    if kind == "cpu":
        return (cores, 2 * cores)
    from trainwright.runtime.profile.session import device_count

    return (device_count(),)


def _summary(profile: "Profile", out: Path) -> str:
    from trainwright.cluster.load import load_cluster
    from trainwright.cost.expected import render_expected
    from trainwright.cost.profile import PRODUCTS

    device = load_cluster(str(out)).device
    rates = sorted(each.amount / each.seconds / 1e9 for each in profile.kernels if each.work in PRODUCTS)
    spreads = sorted(
        [each.spread for each in profile.kernels] + [each.spread for each in profile.collectives]
    )
    lines = [
        f"{profile.measured}, {profile.software}, {profile.processes} processes of {profile.threads} threads",
        f"  {len(profile.kernels)} kernels, {len(profile.collectives)} collectives; median spread "
        f"{spreads[len(spreads) // 2]:.1%}",
        f"  products {rates[0]:.3g} to {rates[-1]:.3g} GFLOP/s" if rates else "  no products",
        f"  an operator of the runtime {profile.operator_s * 1e6:.0f} us, interference "
        f"{profile.interference:.2f}",
        *(f"  {render_expected(name, profile, device)}" for name in ("profiled", "projected")),
        f"Written to {out}: use it as a CLUSTER, or as --cost profiled:{out} or projected:{out}",
    ]
    return "\n".join(lines)
