"""One process of a check of checkpoints: `torchrun resharding.py SHELF NUMBER PLAN...`.

Checkpoint 0 is that of three steps under the first plan. Every other plan takes over the checkpoint before
it, with nothing left of its own first weights, and saves it anew, under the next number.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import parse_strategy
from trainwright.plan.zoo import build_zoo, parse_zoo
from trainwright.program.lower import lower
from trainwright.runtime.checkpoint import Checkpoints, fingerprint
from trainwright.runtime.machine import build_setting
from trainwright.runtime.samples import Samples, build_microbatches
from trainwright.runtime.tokens import Tokens
from trainwright.runtime.trainer import Recipe, Trainer, build_trainer, initialize
from trainwright.runtime.whole import build_initial, build_kernels
from trainwright.runtime.worker import build_worker

SEQ, BATCH = 8, 8
MODEL = Architecture(
    name="tied", layers=2, hidden=8, heads=4, kv_heads=2, ffn=16, vocab=12, positions=8, tied=True,
    head_bias=True, qkv_bias=True,
)  # fmt: skip


def parse(text: str, graph: Graph) -> Plan:
    """A strategy, or a plan of the zoo after the word zoo."""
    if text.startswith("zoo "):
        name, parameters = parse_zoo(text.removeprefix("zoo "))
        plan = build_zoo(name, graph, dist.get_world_size(), BATCH, **parameters)
    else:
        plan = expand(parse_strategy(text), graph, BATCH)
    return replace(plan, precision="fp32")


def build(graph: Graph, plan: Plan, seed: int) -> Trainer:
    program = lower(build_setting(graph, plan.devices, SEQ, "fp32"), plan)
    worker = build_worker(program, dist.get_rank(), build_kernels(graph), torch.device("cpu"))
    trainer = build_trainer(worker, Recipe(rate=1e-2, steps=10))
    initialize(worker, build_initial(graph, seed))
    return trainer


def take(trainer: Trainer, plan: Plan, steps: int) -> list[float]:
    """The losses of some steps."""
    values = torch.arange(1000).numpy() % 11
    samples = Samples(tokens=Tokens(name="counted", values=values), vocab=12, seq=SEQ, batch=BATCH)
    found = []
    for _ in range(steps):
        rows = samples.step(trainer.step)
        batch = build_microbatches(rows, plan.microbatches, plan.batch, "head/loss", torch.device("cpu"))
        found.append(trainer.take(batch).loss)
    return found


def check(shelf: Path, first: int, texts: Sequence[str]) -> None:
    graph = build_graph(MODEL)
    note = {"model": MODEL.name, "fingerprint": fingerprint(graph)}
    for number, text in enumerate(texts, start=first):
        plan = parse(text, graph)
        trainer = build(graph, plan, seed=number)
        if number == 0:
            take(trainer, plan, 3)
        else:
            before = Checkpoints(shelf=shelf / str(number - 1), trainer=trainer, note=note)
            assert before.resume(lambda kept: None) is not None
        Checkpoints(shelf=shelf / str(number), trainer=trainer, note=note).save()
        loss = take(trainer, plan, 1)[0]
        if dist.get_rank() == 0:
            (shelf / f"{number}.loss").write_text(repr(loss))


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    check(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    dist.destroy_process_group()
