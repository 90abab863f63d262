"""Our steps beside hand-written PyTorch, as ratios: time taken in turns, and the most memory allocated.

    python benchmarks/run_against_torch.py [--rounds N] [--only NAME]... > table.md

Two processes of one thread each train the same GPT from the same weights on the same tokens, in fp32 over
gloo. Times and their ratios are medians over rounds in which both sides take a step, one after the other, the
first in turns; seconds that the cores worked are less disturbed by what else runs on the machine.
Memory is the highest sum of what PyTorch's allocator gave out and took back, from before the model is built
to the end of a step, as its profiler tells it, on the process that needs most.
"""

import argparse
import os
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

sys.path.insert(0, str(Path(__file__).parents[1]))  # the cases are those of the tests

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from tests.runtime.cases import Case, gpt
from torch_rivals import Batch, Take, Task, data_parallel, fully_sharded, pipeline, tensor_parallel
from trainwright.model.build import build_graph
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import lower
from trainwright.runtime.machine import build_setting
from trainwright.runtime.trainer import Recipe, build_trainer, initialize
from trainwright.runtime.whole import Initial, build_initial, build_kernels
from trainwright.runtime.worker import Microbatch, build_worker

WORLD, BATCH, SEQ = 2, 8, 256
ARCH = gpt(4, 384, positions=SEQ)
RECIPE = Recipe(rate=1e-3, schedule="constant", clip=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A strategy of ours, and what stands beside it."""

    ours: str
    name: str
    theirs: Callable[[Task], Take]
    dp: int = 1
    tp: int = 1


CONTESTS = (
    Contest(ours="dp2 mb4", name="DistributedDataParallel", theirs=data_parallel, dp=2),
    Contest(ours="dp2 zero3 mb4", name="fully_shard", theirs=fully_sharded, dp=2),
    Contest(ours="tp2 mb8", name="parallelize_module", theirs=tensor_parallel, tp=2),
    Contest(ours="pp2 mb1 gpipe", name="ScheduleGPipe",
            theirs=partial(pipeline, name="gpipe", microbatches=8, each=1)),
    Contest(ours="pp2 mb1 1f1b", name="Schedule1F1B",
            theirs=partial(pipeline, name="1f1b", microbatches=8, each=1)),
    Contest(ours="pp2 vpp2 mb1 interleaved", name="ScheduleInterleaved1F1B",
            theirs=partial(pipeline, name="interleaved", microbatches=8, each=2)),
)  # fmt: skip


def ours(contest: Contest) -> Take:
    """A step of the plan, carried out by the runtime."""
    graph = build_graph(ARCH)
    plan = replace(expand(parse_strategy(contest.ours), graph, BATCH), precision="fp32")
    program = lower(build_setting(graph, WORLD, SEQ, "fp32"), plan)
    worker = build_worker(program, dist.get_rank(), build_kernels(graph), torch.device("cpu"))
    trainer = build_trainer(worker, RECIPE)
    initialize(worker, build_initial(graph))

    def take(batch: Batch) -> float:
        parts = zip(*(each.chunk(plan.microbatches) for each in batch), strict=True)
        return trainer.take(
            [Microbatch(given={"input/tokens": x}, targets={"head/loss": y}) for x, y in parts]
        ).loss

    return take


def task_of(contest: Contest) -> Task:
    """The same training for PyTorch's own parallelism."""
    case = Case(arch=ARCH, dp=contest.dp, tp=contest.tp, seq=SEQ, batch=BATCH, precision="fp32")
    adam = {"lr": RECIPE.rate, "betas": RECIPE.betas, "eps": RECIPE.epsilon}
    fill = partial(fill_as_ours, build_initial(build_graph(ARCH)))
    return Task(case=case, fill=fill, adam=adam, decay=RECIPE.decay, clip=RECIPE.clip)


_NAMES = {"embedding/embedding": "embedding.tokens", "embedding/positions": "embedding.positions",
          "head/final_norm": "head.norm", "head/logits": "head.logits"}  # fmt: skip


def fill_as_ours(initial: Initial, model: nn.Module) -> None:
    """Give a module our first weights: products keep theirs transposed."""
    own = {theirs: name for name, theirs in _NAMES.items()}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            stem, _, kind = name.rpartition(".")
            key = own.get(stem) or "layer.{1}/{2}".format(*stem.split(".", 2))
            if kind == "weight" and any(word in key for word in ("attention", "ffn")):
                weight.copy_(initial(f"{key}.{kind}", (weight.shape[1], weight.shape[0])).t())
            else:
                weight.copy_(initial(f"{key}.{kind}", tuple(weight.shape)))


def batch_of(step: int) -> Batch:
    """Tokens at random, and the same ones shifted by one."""
    rows = torch.randint(ARCH.vocab, (BATCH, SEQ + 1), generator=torch.Generator().manual_seed(step))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


@dataclass(frozen=True, slots=True)
class Taken:
    """A step: seconds of the slower process, seconds that cores worked for both, and the loss."""

    step_s: float
    cpu_s: float
    loss: float


def timed(take: Take, step: int) -> Taken:
    """Take a step, both processes at once."""
    batch = batch_of(step)
    dist.barrier()
    start_s, start_cpu_s = perf_counter(), process_time()
    loss = take(batch)
    longest, worked = torch.tensor([perf_counter() - start_s, process_time() - start_cpu_s]).double()
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    dist.all_reduce(worked)
    return Taken(float(longest), float(worked), loss)


def most_bytes(build: Callable[[], Take]) -> int:
    """The most that was allocated at once, from before the building on, in the last of three steps."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as found:
        take = build()
        for step in range(2):
            take(batch_of(step))
        with torch.profiler.record_function("last step"):
            take(batch_of(2))
    events = sorted(found.profiler.kineto_results.events(), key=lambda each: each.start_ns())
    begin = next(each.start_ns() for each in events if each.name() == "last step")
    held = most = 0
    for each in events:
        if each.name() == "[memory]":
            held += each.nbytes()
            most = max(most, held) if each.start_ns() >= begin else 0
    largest = torch.tensor(most)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest)


def compete(contest: Contest, rounds: int) -> list[str]:
    """A row: seconds and MB of both, and how many times theirs ours are."""
    sides = (lambda: contest.theirs(task_of(contest)), lambda: ours(contest))
    memory = [most_bytes(build) for build in sides]
    takes = [build() for build in sides]
    rounds_taken: list[list[Taken]] = []
    for step in range(rounds + 2):
        both = {side: timed(takes[side], step) for side in ((0, 1) if step % 2 else (1, 0))}
        assert abs(both[0].loss - both[1].loss) < 1e-3, f"{contest.name}: {both}"
        rounds_taken.append([both[0], both[1]])
    counted = rounds_taken[2:]
    theirs_s, ours_s = (median(each[side].step_s for each in counted) for side in (0, 1))
    return [
        contest.name, contest.ours, f"{theirs_s:.3f}", f"{ours_s:.3f}",
        f"{median(own.step_s / other.step_s for other, own in counted):.3f}",
        f"{median(own.cpu_s / other.cpu_s for other, own in counted):.3f}",
        f"{memory[0] / 1e6:.1f}", f"{memory[1] / 1e6:.1f}", f"{memory[1] / memory[0]:.3f}",
    ]  # fmt: skip


def work(rank: int, port: int, rounds: int, only: Sequence[str]) -> None:
    """One of the processes."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    for contest in CONTESTS:
        if only and contest.name not in only and contest.ours not in only:
            continue
        row = compete(contest, rounds)
        if rank == 0:
            print("| " + " | ".join(row) + " |", flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    names = ("PyTorch", "ours", "s", "s, ours", "ratio", "ratio of CPU s", "MB", "MB, ours", "ratio")
    print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|", flush=True)
    mp.spawn(work, (port, options.rounds, options.only), nprocs=WORLD)


if __name__ == "__main__":
    main()
