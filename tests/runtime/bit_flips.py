"""One process of a check of damaged checkpoints: `torchrun bit_flips.py DIRECTORY COUNT SEED`.

A run under `dp2` saves a checkpoint at every step. Then, for each of COUNT of them, one bit somewhere in its
files is flipped in a copy that has the one before it too. A fresh trainer with other first weights resumes
from the copy and takes three steps. The first process writes a line of JSON for each.
"""

import io
import json
import random
import shutil
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.runtime.resharding import MODEL, build, parse, take
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.runtime.checkpoint import Checkpoints, fingerprint

PLANS = ("dp2", "dp2", "dp2", "tp2")  # that runs are resumed under, in turns
STEPS = 3  # that are taken after a resume


def train(graph: Graph, shelf: Path, count: int, seed: int, note: Mapping[str, Any]) -> list[float]:
    """The losses of a run that nothing happens to, with a checkpoint after every step."""
    plan = parse("dp2", graph)
    trainer = build(graph, plan, seed=seed)
    checkpoints = Checkpoints(shelf=shelf, trainer=trainer, note=note, most=count + 2)
    found = []
    for _ in range(count + 1):
        found += take(trainer, plan, 1)
        checkpoints.save()
    return found + take(trainer, plan, STEPS)


def flip(path: Path, chosen: random.Random) -> tuple[str, int]:
    """Flip one bit of a checkpoint, each bit of it as likely as any other; the file, and which bit."""
    files = sorted(path.iterdir())
    bit = chosen.randrange(8 * sum(file.stat().st_size for file in files))
    for file in files:
        size = 8 * file.stat().st_size
        if bit < size:
            content = bytearray(file.read_bytes())
            content[bit // 8] ^= 1 << bit % 8
            file.write_bytes(content)
            return file.name, bit
        bit -= size
    raise AssertionError("no bit was flipped")


def trial(graph: Graph, shelf: Path, step: int, plan: str, note: Mapping[str, Any]) -> dict[str, Any]:
    """What a run does that resumes from a directory of which the last checkpoint is damaged."""
    built = parse(plan, graph)
    trainer = build(graph, built, seed=1000 + step)
    said = io.StringIO()
    with redirect_stderr(said):
        kept = Checkpoints(shelf=shelf, trainer=trainer, note=note).resume(lambda kept: None)
    assert kept is not None
    losses = take(trainer, built, STEPS)
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (kept.step, trainer.step))
    return {"step": step, "plan": plan, "said": said.getvalue(), "losses": losses, "resumed": everyone}


def check(directory: Path, count: int, seed: int) -> None:
    graph, chosen = build_graph(MODEL), random.Random(seed)
    note = {"model": MODEL.name, "fingerprint": fingerprint(graph)}
    whole = directory / "whole"
    undisturbed = train(graph, whole, count, seed, note)
    lines: list[dict[str, Any]] = [{"undisturbed": undisturbed}]
    for number in range(count):
        shelf, step, flipped = directory / f"copy-{number}", number + 2, ("", 0)
        if dist.get_rank() == 0:
            for each in (step - 1, step):
                shutil.copytree(whole / f"step-{each:08d}", shelf / f"step-{each:08d}")
            flipped = flip(shelf / f"step-{step:08d}", chosen)
        dist.barrier()
        found = trial(graph, shelf, step, PLANS[number % len(PLANS)], note)
        lines.append({**found, "file": flipped[0], "bit": flipped[1]})
        if dist.get_rank() == 0:
            shutil.rmtree(shelf)
    if dist.get_rank() == 0:
        (directory / "found.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    check(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    dist.destroy_process_group()
