"""Prediction beside measurement on this machine: profiled, predicted, run and recorded.

    python benchmarks/measure_here.py [--out docs/accuracy_here.md] [--profile FILE]

Two and four processes of one thread each train small GPTs in fp32 over gloo, under the plans of the zoo, and
under data, sharded, tensor and pipeline parallelism at several widths, depths and lengths. The profile knows
nothing of the models or of the plans; nothing is fitted to what it is compared with.
"""

import argparse
import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainwright.cost.expected import collective_errors, interpolation_errors, projection_errors
from trainwright.cost.source import load_profile
from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.output_file import save_text
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import parse_strategy
from trainwright.plan.zoo import ZOO, build_zoo
from trainwright.program.lower import Program, lower
from trainwright.report.comparison import compare
from trainwright.runtime.machine import build_setting
from trainwright.runtime.profile.entry import render_entry
from trainwright.runtime.profile.session import measure_rounds, memory_bytes, plan_rounds
from trainwright.runtime.record import record
from trainwright.runtime.trainer import Recipe, build_trainer, initialize
from trainwright.runtime.whole import build_initial, build_kernels
from trainwright.runtime.worker import Microbatch, build_worker
from trainwright.simulate.timeline import Timeline
from trainwright.simulate.whole import simulate_plan

BATCH, STEPS = 8, 5
ZOO_SIZES = (4, 256, 128)  # layers, hidden, tokens a sequence
SIZES = ((2, 256, 256), (4, 384, 128), (2, 512, 128), (6, 256, 128))
STRATEGIES = {
    2: ("dp2 mb4", "dp2 zero3 mb4", "tp2 mb8", "pp2 mb2 1f1b"),
    4: ("dp4 mb2", "dp4 zero3 mb2", "dp2 tp2 mb4", "dp2 pp2 mb2 1f1b"),
}
Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: predicted and measured seconds, and the three causes that differ most."""

    sizes: Sizes
    processes: int
    plan: str
    zoo: bool
    predicted_s: float
    measured_s: float
    why: str

    @property
    def error(self) -> float:
        """Of the prediction, relative to the measurement."""
        return self.predicted_s / self.measured_s - 1.0


def architecture(sizes: Sizes) -> Architecture:
    """A GPT of some layers and width."""
    layers, hidden, seq = sizes
    return Architecture(
        name=f"GPT {layers}x{hidden}", layers=layers, hidden=hidden, heads=8, vocab=2048, positions=seq,
        norm="layer", qkv_bias=True, output_bias=True, mlp_bias=True,
    )  # fmt: skip


def cases(processes: int) -> Iterator[tuple[Sizes, Graph, Plan, bool]]:
    """Every size under the usual strategies, then the zoo, each plan as it comes, where it suits."""
    for sizes in SIZES:
        graph = build_graph(architecture(sizes))
        for text in STRATEGIES[processes]:
            plan = replace(expand(parse_strategy(text), graph, BATCH), precision="fp32")
            yield sizes, graph, replace(plan, name=text), False
    graph = build_graph(architecture(ZOO_SIZES))
    for name in ZOO:
        with suppress(BadInput):
            yield ZOO_SIZES, graph, replace(build_zoo(name, graph, processes, BATCH), precision="fp32"), True


def measure(graph: Graph, program: Program) -> Timeline | None:
    """The recorded step of median length, after two that are not counted; on the first process."""
    worker = build_worker(program, dist.get_rank(), build_kernels(graph), torch.device("cpu"))
    trainer = build_trainer(worker, Recipe(rate=1e-3))
    initialize(worker, build_initial(graph))
    shape = (BATCH, program.setting.seq)
    rows = torch.randint(graph.sizes["vocab"], shape, generator=torch.Generator().manual_seed(0))
    batch = [
        Microbatch(given={"input/tokens": each}, targets={"head/loss": each})
        for each in rows.chunk(program.plan.microbatches)
    ]
    for _ in range(2):
        trainer.take(batch)
    found = [timeline for _, timeline in (record(trainer, batch) for _ in range(STEPS))]
    worker.groups.close()
    listed = sorted((each for each in found if each is not None), key=lambda each: each.step_s)
    return listed[len(listed) // 2] if listed else None


def work(rank: int, processes: int, port: int, profile: Path, said: "mp.SimpleQueue[Row]") -> None:
    """One of the processes: runs all cases; the first one predicts them and tells."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=processes)
    for sizes, graph, plan, zoo in cases(processes):
        timeline = measure(graph, lower(build_setting(graph, processes, sizes[2], "fp32"), plan))
        if timeline is not None:
            setting = build_setting(graph, processes, sizes[2], "fp32", profile)
            said.put(row_of(sizes, plan, zoo, simulate_plan(setting, plan).timeline, timeline))
    dist.destroy_process_group()


def row_of(sizes: Sizes, plan: Plan, zoo: bool, predicted: Timeline, timeline: Timeline) -> Row:
    """What is said of a run."""
    found = compare(predicted, timeline)
    why = ", ".join(f"{each.name} {each.difference_s * 1e3:+.0f}" for each in found.causes[:3])
    return Row(
        sizes=sizes, processes=plan.devices, plan=plan.name, zoo=zoo, predicted_s=predicted.step_s,
        measured_s=timeline.step_s, why=why,
    )  # fmt: skip


def ordered_pairs(rows: Sequence[Row]) -> tuple[int, int]:
    """Of pairs of plans for one model that differ by more than a tenth: how many are in the right order."""
    right = total = 0
    for one, two in combinations(rows, 2):
        if one.sizes != two.sizes or max(one.measured_s, two.measured_s) <= 1.1 * min(
            one.measured_s, two.measured_s
        ):
            continue
        total += 1
        right += (one.measured_s < two.measured_s) == (one.predicted_s < two.predicted_s)
    return right, total


def render(profile: Path, rows: Sequence[Row]) -> str:
    """The page."""
    load = f"{os.cpu_count()} cores, PyTorch {torch.__version__}, load {os.getloadavg()[0]:.1f} at the end"
    lines = [_HEAD.strip(), "", f"{load}.", "", *_profile_lines(profile)]
    for title, listed in (
        ("Sizes and strategies", [each for each in rows if not each.zoo]),
        ("The zoo", [each for each in rows if each.zoo]),
    ):
        errors = [abs(each.error) for each in listed]
        right, total = ordered_pairs(listed)
        lines += [
            "", f"## {title}", "",
            f"Median error {median(errors):.0%} over {len(listed)} runs, largest {max(errors):.0%}; of "
            f"{total} pairs of plans for one model that differ by more than 10 %, {right} "
            f"({right / max(total, 1):.0%}) are in the right order.", "",
        ]  # fmt: skip
        names = (
            "layers x hidden, tokens", "processes", "plan", "predicted, ms", "measured, ms", "error",
            "measured less predicted, ms",
        )  # fmt: skip
        lines += ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
        for each in listed:
            layers, hidden, seq = each.sizes
            lines.append(
                f"| {layers} x {hidden}, {seq} | {each.processes} | {each.plan} | "
                f"{each.predicted_s * 1e3:.0f} | "
                f"{each.measured_s * 1e3:.0f} | {each.error:+.0%} | {each.why} |"
            )
    return "\n".join(lines) + "\n"


def _profile_lines(path: Path) -> list[str]:
    """What the profile says of its own accuracy."""
    profile, cluster = load_profile(path)
    projected = projection_errors(profile, cluster.device)
    every = [error for each in projected.values() for error in each.errors]
    left_out = interpolation_errors(profile, cluster.device)
    curves = {
        members: collective_errors([each for each in profile.collectives if each.members == members])
        for members in sorted({each.members for each in profile.collectives})
    }
    spread = median(each.spread for each in (*profile.kernels, *profile.collectives))
    return [
        f"Profile: {len(profile.kernels)} kernels and {len(profile.collectives)} collectives, median spread "
        f"{spread:.0%}, {profile.operator_s * 1e6:.0f} us an operator, interference "
        f"{profile.interference:.2f}.", "",
        "| from the profile alone | measurements | median error |", "|---|---|---|",
        *(
            f"| {name} projected from the baseline layer | {len(each.errors)} | {each.median:.0%} |"
            for name, each in projected.items()
        ),
        f"| all kernels projected from the baseline layer | {len(every)} | {median(every):.0%} |",
        f"| kernels interpolated, each left out in turn | {len(left_out.errors)} | {left_out.median:.0%} |",
        *(
            f"| collectives among {members}, each left out in turn | {len(each.errors)} | {each.median:.0%} |"
            for members, each in curves.items()
        ),
    ]  # fmt: skip


_HEAD = """
# Prediction beside measurement, on the machine at hand

Written by `make measure`; every number was measured in that run, none is typed in or fitted to another.
`trainwright profile` measures the machine first: kernels with one process on each core, collectives among two
and four. With that alone the simulator predicts a step of every run below, and the runtime takes and records
five such steps, of which the one of median length counts. Four processes share two cores: a prediction lets
them take turns where more than two compute. Other work on the machine that comes and goes makes errors.
"""


def profile_machine(path: Path) -> None:
    """Measure this machine and write the file."""
    cores = os.cpu_count() or 1
    measured = measure_rounds(
        plan_rounds("cpu", (cores, 2 * cores)), "cpu", 1, 600.0, lambda done, of, name: print(done, of, name)
    )
    save_text(path, render_entry(measured.profile, "here", cores, memory_bytes("cpu", cores)))


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/accuracy_here.md"))
    parser.add_argument("--profile", type=Path, help="measured before; else it is measured first")
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 4])
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        profile = options.profile or Path(folder) / "profile.toml"
        if options.profile is None:
            profile_machine(profile)
        for processes in options.processes:
            said = mp.get_context("spawn").SimpleQueue()
            with socket.socket() as free:
                free.bind(("localhost", 0))
                port = free.getsockname()[1]
            running = mp.spawn(work, (processes, port, profile, said), nprocs=processes, join=False)
            while not running.join(timeout=1) or not said.empty():
                while not said.empty():
                    rows.append(said.get())
                    print(rows[-1], flush=True)
        save_text(options.out, render(profile, rows))


if __name__ == "__main__":
    main()
