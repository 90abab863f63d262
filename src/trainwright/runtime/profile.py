"""A short profile of the machine that processes run on: all of them measure at once, in a few seconds."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
import torch.nn.functional as F

from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import lower
from trainwright.report.files import save_text
from trainwright.runtime.machine import Machine, build_setting
from trainwright.runtime.trainer import initialize
from trainwright.runtime.whole import build_initial, build_kernels
from trainwright.runtime.worker import Microbatch, build_worker

_TURNS = 10
_PRODUCTS = ((512, 256, 256), (512, 256, 1024), (512, 1024, 256), (1024, 512, 512))
_ROWS, _WIDTH = 1024, 512  # of what is streamed
_HEADS, _SEQ, _HEAD = 8, 256, 32
_SMALL, _LARGE = 1 << 12, 1 << 20  # elements that are sent


def known_machine() -> Machine:
    """What was measured before with as many processes on this machine, else what they measure now.

    Every process must ask; all get the same.
    """
    path = cache_path(dist.get_world_size())
    found = [load_machine(path) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    if found[0] is not None:
        return found[0]
    machine = measure_machine()
    if dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_text(path, json.dumps(asdict(machine), indent=2) + "\n")
    return machine


def cache_path(processes: int) -> Path:
    """Where the profile of so many processes is kept: by release of PyTorch, cores and threads."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    words = (torch.__version__, f"{os.cpu_count()}cores", f"{processes}x{torch.get_num_threads()}threads")
    return cache / "trainwright" / f"machine-{'-'.join(words)}.json"


def load_machine(path: Path) -> Machine | None:
    """A profile that was kept; None if there is none that can be read."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return Machine(**{each.name: float(tree[each.name]) for each in fields(Machine)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def measure_machine() -> Machine:
    """Rates, while all processes are busy, so that they are what is left to each where cores are few."""
    product_s = [_seconds(_product(*shape)) / (2.0 * shape[0] * shape[1] * shape[2]) for shape in _PRODUCTS]
    forward_s, backward_s = _attention_s()
    latency_s, byte_s = _link_s()
    streaming_s, operator_s, lost = _streaming_s(), _operator_s(), _interference()
    mean = _agreed(
        [median(product_s), forward_s, backward_s, streaming_s, latency_s, byte_s, operator_s, lost]
    )
    flops = 2.0 * _HEADS * _SEQ * _SEQ / 2 * 2 * _HEAD  # causal
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        flops_per_s=1.0 / mean[0], attention_flops_per_s=flops / mean[1],
        attention_back_flops_per_s=2.5 * flops / mean[2], memory_bytes_per_s=1.0 / mean[3],
        link_latency_s=max(mean[4], 1e-7), link_bytes_per_s=1.0 / max(mean[5], 1e-12), op_s=mean[6],
        interference=mean[7], memory_bytes=memory / dist.get_world_size(),
    )  # fmt: skip


def _agreed(values: list[float]) -> list[float]:
    """The mean over all processes."""
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    return [float(each) / dist.get_world_size() for each in total]


def _seconds(run: Callable[[], object], turns: int = _TURNS) -> float:
    """The mean time of some turns that all processes begin together: with what other work here takes."""
    run()
    dist.barrier()
    start_s = perf_counter()
    for _ in range(turns):
        run()
    return (perf_counter() - start_s) / turns


def _product(rows: int, depth: int, columns: int) -> Callable[[], object]:
    left, right = torch.randn(rows, depth), torch.randn(depth, columns)
    return lambda: left @ right


def _attention_s() -> tuple[float, float]:
    query, key, value = (torch.randn(1, _HEADS, _SEQ, _HEAD, requires_grad=True) for _ in range(3))

    def forward() -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    forward_s = _seconds(forward)
    both_s = _seconds(lambda: torch.autograd.grad(forward().sum(), (query, key, value)))
    return forward_s, max(both_s - forward_s, forward_s)


def _streaming_s() -> float:
    """Seconds a byte of norms, sums and activations, what each reads and writes counted once."""
    x, weight = torch.randn(_ROWS, _WIDTH), torch.randn(_WIDTH)
    size = 4.0 * x.numel()
    found_s = (
        _seconds(lambda: x + x) / (3 * size),
        _seconds(lambda: F.layer_norm(x, (_WIDTH,), weight, weight)) / (2 * size),
        _seconds(lambda: F.gelu(x)) / (2 * size),
    )
    return sum(found_s) / len(found_s)


def _link_s() -> tuple[float, float]:
    """Latency of a hop, and seconds a byte, over all-reduce, all-gather and messages around a ring."""
    world, rank = dist.get_world_size(), dist.get_rank()
    if world == 1:
        return 0.0, 0.0
    following, before = (rank + 1) % world, (rank - 1) % world

    def ring(sent: torch.Tensor) -> None:
        came = torch.empty_like(sent)
        works = [dist.isend(sent, following), dist.irecv(came, before)]
        for work in works:
            assert work is not None
            work.wait()

    def gather(sent: torch.Tensor) -> None:
        dist.all_gather([torch.empty_like(sent) for _ in range(world)], sent)

    kinds: tuple[tuple[Callable[[torch.Tensor], object], float, float], ...] = (
        (dist.all_reduce, 2.0 * (world - 1), 2.0 * (world - 1) / world),
        (gather, world - 1.0, world - 1.0),
        (ring, 1.0, 1.0),
    )  # hops, and bytes that cross a link for each byte that is given
    latencies, bytes_s = [], []
    for run, hops, crossing in kinds:
        small_s, large_s = (_seconds(partial(run, torch.ones(size))) for size in (_SMALL, _LARGE))
        slope_s = max(large_s - small_s, 0.0) / (4.0 * (_LARGE - _SMALL))
        bytes_s.append(slope_s / crossing)
        latencies.append(max(small_s - slope_s * 4.0 * _SMALL, 0.0) / hops)
    return median(latencies), median(bytes_s)


def _interference() -> float:
    """The share of an all-reduce's time by which products take longer while it is on its way."""
    if dist.get_world_size() == 1:
        return 0.0
    sent, product = torch.ones(_LARGE), _product(512, 512, 512)
    sending_s = _seconds(lambda: dist.all_reduce(sent))
    product_s = _seconds(product)
    count = max(round(2.0 * sending_s / product_s), 1)  # so that what is sent ends first

    def both() -> None:
        work = dist.all_reduce(sent, async_op=True)
        for _ in range(count):
            product()
        assert work is not None
        work.wait()

    return min(max((_seconds(both, turns=3) - count * product_s) / sending_s, 0.0), 1.0)


def _operator_s() -> float:
    """Seconds of an operator too small to take any: a tiny model's step over all that it does."""
    arch = Architecture(
        name="tiny", layers=2, hidden=8, heads=2, vocab=16, positions=8, norm="layer", qkv_bias=True,
        output_bias=True, mlp_bias=True,
    )  # fmt: skip
    graph = build_graph(arch)
    plan = replace(expand(parse_strategy("dp1 mb1"), graph, 1), precision="fp32")
    program = lower(build_setting(graph, 1, 8, "fp32"), plan)
    worker = build_worker(program, 0, build_kernels(graph), torch.device("cpu"))
    initialize(worker, build_initial(graph))
    tokens = torch.zeros(1, 8, dtype=torch.long)
    batch = [Microbatch(given={"input/tokens": tokens}, targets={"head/loss": tokens})]
    return _seconds(lambda: worker.run_step(batch)) / len(worker.turns)
