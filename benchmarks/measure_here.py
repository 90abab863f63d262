"""Prediction beside measurement on this machine: plans of the zoo, profiled, predicted, run and recorded.

    python benchmarks/measure_here.py [--out docs/accuracy_here.md]

Two and four processes of one thread each train a small GPT in fp32 over gloo. The profile knows nothing of
the model or of the plans; nothing is fitted to what it is compared with.
"""

import argparse
import os
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.zoo import ZOO, build_zoo
from trainwright.program.lower import Program, lower
from trainwright.report.comparison import compare
from trainwright.report.files import save_text
from trainwright.runtime.machine import Machine, build_setting
from trainwright.runtime.profile import measure_machine
from trainwright.runtime.record import record
from trainwright.runtime.trainer import Recipe, build_trainer, initialize
from trainwright.runtime.whole import build_initial, build_kernels
from trainwright.runtime.worker import Microbatch, build_worker
from trainwright.simulate.timeline import Timeline
from trainwright.simulate.whole import simulate_plan

BATCH, SEQ, STEPS = 8, 128, 5
ARCH = Architecture(
    name="small GPT", layers=4, hidden=256, heads=8, vocab=2048, positions=SEQ, norm="layer", qkv_bias=True,
    output_bias=True, mlp_bias=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One plan: predicted and measured seconds, and the three causes that differ most."""

    processes: int
    plan: str
    machine: Machine  # the mean of before and after
    predicted_s: float
    measured_s: float
    why: str


def plans(graph: Graph, processes: int) -> Iterator[Plan]:
    """The zoo, each plan as it comes, where it suits the model and so many processes."""
    for name in ZOO:
        with suppress(BadInput):
            yield replace(build_zoo(name, graph, processes, BATCH), precision="fp32")


def measure(graph: Graph, program: Program) -> Timeline | None:
    """The recorded step of median length, after one that is not counted; on the first process."""
    worker = build_worker(program, dist.get_rank(), build_kernels(graph), torch.device("cpu"))
    trainer = build_trainer(worker, Recipe(rate=1e-3))
    initialize(worker, build_initial(graph))
    rows = torch.randint(ARCH.vocab, (BATCH, SEQ), generator=torch.Generator().manual_seed(0))
    batch = [
        Microbatch(given={"input/tokens": each}, targets={"head/loss": each})
        for each in rows.chunk(program.plan.microbatches)
    ]
    trainer.take(batch)
    found = [timeline for _, timeline in (record(trainer, batch) for _ in range(STEPS))]
    listed = sorted((each for each in found if each is not None), key=lambda each: each.step_s)
    return listed[len(listed) // 2] if listed else None


def work(rank: int, processes: int, port: int, said: "mp.SimpleQueue[Row]") -> None:
    """One of the processes: profiles the machine, then runs all plans; the first one tells."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=processes)
    graph = build_graph(ARCH)
    after = measure_machine()
    for plan in plans(graph, processes):
        timeline = measure(graph, lower(build_setting(graph, processes, SEQ, "fp32"), plan))
        before, after = after, measure_machine()  # what else runs here changes from minute to minute
        machine = between(before, after)
        if timeline is not None:
            predicted = simulate_plan(build_setting(graph, processes, SEQ, "fp32", machine), plan)
            said.put(row_of(machine, plan, predicted.timeline, timeline))
    dist.destroy_process_group()


def between(before: Machine, after: Machine) -> Machine:
    """The mean of two profiles."""
    means = {
        each.name: (getattr(before, each.name) + getattr(after, each.name)) / 2 for each in fields(Machine)
    }
    return Machine(**means)


def row_of(machine: Machine, plan: Plan, predicted: Timeline, timeline: Timeline) -> Row:
    """What is said of a plan."""
    found = compare(predicted, timeline)
    why = ", ".join(f"{each.name} {each.difference_s * 1e3:+.0f}" for each in found.causes[:3])
    return Row(
        processes=plan.devices, plan=plan.name, machine=machine, predicted_s=predicted.step_s,
        measured_s=timeline.step_s, why=why,
    )  # fmt: skip


def render(rows: Sequence[Row]) -> str:
    """The page."""
    errors = [abs(each.predicted_s / each.measured_s - 1.0) for each in rows]
    load = f"{os.cpu_count()} cores, PyTorch {torch.__version__}, load {os.getloadavg()[0]:.1f} at the end"
    lines = [
        _HEAD.strip(), "", f"{load}. Median error {median(errors):.0%} over {len(rows)} plans, largest "
        f"{max(errors):.0%}.", "", "| processes | " + " | ".join(_PROFILE) + " |", "|---" * 9 + "|",
    ]  # fmt: skip
    for processes in sorted({each.processes for each in rows}):
        found = [each.machine for each in rows if each.processes == processes]
        lines.append(
            f"| {processes} | " + " | ".join(_middle(found, *each) for each in _PROFILE.values()) + " |"
        )
    names = ("processes", "plan", "predicted, ms", "measured, ms", "error", "measured less predicted, ms")
    lines += ["", "| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for each in rows:
        error = each.predicted_s / each.measured_s - 1.0
        lines.append(
            f"| {each.processes} | {each.plan} | {each.predicted_s * 1e3:.0f} | {each.measured_s * 1e3:.0f} "
            f"| {error:+.0%} | {each.why} |"
        )
    return "\n".join(lines) + "\n"


def _middle(found: Sequence[Machine], name: str, scale: float) -> str:
    """The least, the middle and the most of a rate."""
    values = sorted(getattr(each, name) * scale for each in found)
    return f"{values[0]:.3g} · {median(values):.3g} · {values[-1]:.3g}"


_PROFILE = {
    "products, GFLOP/s": ("flops_per_s", 1e-9),
    "attention": ("attention_flops_per_s", 1e-9),
    "its backward": ("attention_back_flops_per_s", 1e-9),
    "streaming, GB/s": ("memory_bytes_per_s", 1e-9),
    "link, GB/s": ("link_bytes_per_s", 1e-9),
    "link, µs": ("link_latency_s", 1e6),
    "operator, µs": ("op_s", 1e6),
    "interference": ("interference", 1.0),
}
_HEAD = """
# Prediction beside measurement, on the machine at hand

Written by `make measure`; every number was measured in that run, none is typed in or fitted to another. A
profile of some seconds, taken by all processes at once, gives each process's rates; with it the simulator
predicts a step of every plan of the zoo that suits a small GPT, and the runtime takes and records five such
steps, of which the one of median length counts. A plan is predicted from the mean of the profiles before and
after its steps (least, middle and most over the plans, below), which know nothing of it. Rates are those of
processes that are all busy: where more processes than cores run and a plan leaves some of them idle, the
others are faster than predicted. Other work on the machine slows profile and steps alike if it lasts, and
makes errors if it comes and goes.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/accuracy_here.md"))
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 4])
    options = parser.parse_args()
    rows: list[Row] = []
    for processes in options.processes:
        said = mp.get_context("spawn").SimpleQueue()
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        running = mp.spawn(work, (processes, port, said), nprocs=processes, join=False)
        while not running.join(timeout=1) or not said.empty():
            while not said.empty():
                rows.append(said.get())
                print(rows[-1], flush=True)
    save_text(options.out, render(rows))


if __name__ == "__main__":
    main()
