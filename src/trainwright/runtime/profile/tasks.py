"""What is measured of a machine, the most telling first."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from trainwright.cost.profile import (
    ATTENTIONS,
    COLLECTIVES,
    PRODUCTS,
    STREAMS,
    BaselineBlock,
    Collective,
    Kernel,
)
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import lower
from trainwright.runtime.machine import build_setting
from trainwright.runtime.profile.collectives import build_collective
from trainwright.runtime.profile.kernels import build_turn, causal_share
from trainwright.runtime.profile.timing import timed
from trainwright.runtime.trainer import Recipe, build_trainer, initialize
from trainwright.runtime.whole import build_initial, build_kernels
from trainwright.runtime.worker import Microbatch, build_worker

Found = Kernel | Collective | tuple[str, float]  # the last: a number of the profile by name

_CPU_BLOCK = BaselineBlock(batch=2, seq=256, hidden=256, ffn=1024, heads=8, vocab=4096)
_GPU_BLOCK = BaselineBlock(batch=4, seq=1024, hidden=2048, ffn=8192, heads=16, vocab=32768)
_CPU_GRID = tuple(
    (m, n, k)
    for m in (64, 256, 1024)
    for n, k in ((64, 256), (256, 256), (256, 64), (512, 512), (512, 2048), (2048, 512), (4096, 256))
)
_GPU_GRID = tuple(
    (m, n, k)
    for m in (512, 2048, 8192)
    for n, k in ((1024, 1024), (4096, 4096), (16384, 4096), (4096, 16384), (8192, 8192), (1024, 8192))
)
_STREAM_BYTES = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
_FEW_BYTES = 1 << 12  # of a stream that takes no time but its start
_LINK_BYTES = tuple(1 << power for power in (12, 14, 16, 18, 20, 22, 24))
_LINK_TURNS = 40
_SHORT_BYTES = (1 << 12, 1 << 17, 1 << 20, 1 << 23)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One measurement: a kernel at a shape, a collective at a size, or a number of the software."""

    name: str
    work: str
    sizes: tuple[float, ...] = ()
    members: int = 0
    region: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where tasks are measured: a device and a number format."""

    device: torch.device
    dtype: torch.dtype

    def measure(self, task: Task) -> Found:
        """The result of a task; every process must ask."""
        if task.work in ("operator", "step"):
            return (f"{task.work}_s", self._tiny_s(task.work))
        if task.work == "interference":
            return ("interference", self._interference())
        if task.members:
            return self._collective(task)
        turn = build_turn(task.work, task.sizes, self.device, self.dtype)
        found = timed(turn, self.device)
        seconds = found.seconds / causal_share(task.work)
        return Kernel(
            work=task.work, sizes=task.sizes, seconds=seconds, spread=found.spread, region=task.region
        )

    def _collective(self, task: Task) -> Collective:
        turn = build_collective(task.work, task.members, int(task.sizes[0]), self.device)
        # Between processes times scatter more than within one.
        found = timed(turn or (lambda _: None), self.device, least=_LINK_TURNS)
        return Collective(
            kind=task.work, members=task.members, size_bytes=task.sizes[0], seconds=found.seconds,
            spread=found.spread,
        )  # fmt: skip

    def _interference(self) -> float:
        """The share of an all-reduce's time by which products take longer while it is on its way."""
        sent = torch.ones(1 << 20, device=self.device)
        product = build_turn("product.forward", (512, 512, 512), self.device, self.dtype)
        sending_s = timed(lambda _: dist.all_reduce(sent), self.device).seconds
        product_s = timed(product, self.device).seconds
        count = max(round(2.0 * sending_s / product_s), 1)  # so that what is sent ends first

        def both(_: int) -> None:
            work = dist.all_reduce(sent, async_op=True)
            for turn in range(count):
                product(turn)
            assert work is not None
            work.wait()

        both_s = timed(both, self.device).seconds
        return min(max((both_s - count * product_s) / sending_s, 0.0), 1.0)

    def _tiny_s(self, which: str) -> float:
        """Of a model too small to take any time: seconds of an operator, or of a step beside them."""
        arch = Architecture(
            name="tiny", layers=2, hidden=8, heads=2, vocab=16, positions=8, norm="layer", qkv_bias=True,
            output_bias=True, mlp_bias=True,
        )  # fmt: skip
        graph = build_graph(arch)
        plan = replace(expand(parse_strategy("dp1 mb1"), graph, 1), precision="fp32")
        program = lower(build_setting(graph, 1, 8, "fp32"), plan)
        worker = build_worker(program, 0, build_kernels(graph), self.device)
        trainer = build_trainer(worker, Recipe())
        initialize(worker, build_initial(graph))
        tokens = torch.zeros(1, 8, dtype=torch.long, device=self.device)
        batch = [Microbatch(given={"input/tokens": tokens}, targets={"head/loss": tokens})]
        operators_s = timed(lambda _: worker.run_step(batch), self.device).seconds
        if which == "operator":
            return operators_s / len(worker.turns)
        return max(timed(lambda _: trainer.take(batch), self.device).seconds - operators_s, 0.0)


def block_of(kind: str) -> BaselineBlock:
    """The layer that others are projected from, on a kind of device."""
    return _CPU_BLOCK if kind == "cpu" else _GPU_BLOCK


def region_tasks(block: BaselineBlock) -> Iterator[Task]:
    """The operators of one layer of the baseline and those around it, and their start: few tokens."""
    rows, hidden, ffn = block.batch * block.seq, block.hidden, block.ffn
    head = hidden // block.heads
    for n, k in ((3 * hidden, hidden), (hidden, hidden), (ffn, hidden), (hidden, ffn)):
        yield from _products(rows, n, k, region=True)
    for work in ATTENTIONS:
        yield _kernel(work, (block.batch * block.heads, block.seq, block.seq, 2 * head), region=True)
        yield _kernel(work, (1, 16, 16, 2 * head), region=True)
    tensor = 4.0 * rows * hidden
    streams = {
        "norm": 2 * tensor, "rms_norm": 2 * tensor, "add": 3 * tensor, "gelu": 2 * tensor * ffn / hidden,
        "swiglu": 3 * tensor * ffn / hidden, "rope": 4 * tensor, "gather": tensor, "permute": 2 * tensor,
        "loss": 12.0 * rows * block.vocab, "copy": 2 * tensor,
        "optimizer": 28.0 * hidden * (4 * hidden + 2 * ffn),
    }  # fmt: skip
    for name in STREAMS:
        for work in (name,) if name in STREAMS[-2:] else (f"{name}.forward", f"{name}.backward"):
            yield _kernel(work, (streams[name],), region=True)
            yield _kernel(work, (float(_FEW_BYTES),), region=True)


def first_tasks(kind: str, world: int) -> Iterator[Task]:
    """The baseline layer, what the runtime adds, and what processes send each other."""
    yield Task(name="operator", work="operator")
    yield Task(name="step", work="step")
    yield from region_tasks(block_of(kind))
    if world > 1:
        yield Task(name="interference", work="interference")
        yield from collective_tasks(kind, world)


def short_tasks(kind: str, world: int) -> Iterator[Task]:
    """What takes some seconds and tells the most."""
    yield Task(name="operator", work="operator")
    yield Task(name="step", work="step")
    skipped = ("unfused", "permute", "copy")
    yield from (each for each in region_tasks(block_of(kind)) if not each.work.startswith(skipped))
    yield from (each for each in grid_tasks(kind) if each.work in PRODUCTS and max(each.sizes) <= 512)
    if world > 1:
        yield Task(name="interference", work="interference")
        yield from collective_tasks(kind, world, _SHORT_BYTES)


def grid_tasks(kind: str) -> Iterator[Task]:
    """Other shapes of products, attention and streams, to interpolate between."""
    for m, n, k in _CPU_GRID if kind == "cpu" else _GPU_GRID:
        yield from _products(m, n, k)
    lengths = (64, 128, 512) if kind == "cpu" else (512, 2048, 4096)
    for seq in lengths:
        for work in ATTENTIONS:
            yield _kernel(work, (8, seq, seq, 64 if kind == "cpu" else 256))
    for name in STREAMS:
        for work in (name,) if name in STREAMS[-2:] else (f"{name}.forward", f"{name}.backward"):
            for size in _STREAM_BYTES:
                yield _kernel(work, (float(size),))


def collective_tasks(kind: str, world: int, sizes: tuple[int, ...] = _LINK_BYTES) -> Iterator[Task]:
    """All kinds at all sizes, among all processes, and among half of them and so on if each has a device."""
    members = world
    while members > 1:
        for each in COLLECTIVES:
            for size in sizes:
                name = f"{each} of {members}, {size:,} bytes"
                yield Task(name=name, work=each, sizes=(float(size),), members=members)
        members = members // 2 if kind != "cpu" else 1


def _products(m: int, n: int, k: int, *, region: bool = False) -> Iterator[Task]:
    """The three products of an operator of so many rows, columns and depth."""
    for work, sizes in zip(PRODUCTS, ((m, n, k), (m, k, n), (k, n, m)), strict=True):
        yield _kernel(work, tuple(map(float, sizes)), region=region)


def _kernel(work: str, sizes: tuple[float, ...], *, region: bool = False) -> Task:
    return Task(
        name=f"{work} {' x '.join(f'{each:g}' for each in sizes)}", work=work, sizes=sizes, region=region
    )
