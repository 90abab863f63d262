"""PyTorch's own hooks and averagers that do what our algorithms do, and short runs by them.

The functions before `run` stand in docs/algorithms.md as they are here.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

from tests.runtime import algorithms as tried
from trainwright.algorithm.exact import Exact
from trainwright.algorithm.network import Batch
from trainwright.algorithm.talk import converse


def power_sgd(module: nn.Module, rank: int) -> tuple[nn.Module, PowerSGDState]:
    """`power-sgd rank=…` after two exact steps; the state belongs into checkpoints."""
    network = DistributedDataParallel(module, bucket_cap_mb=1000)  # all of the model in one bucket
    settings = {"start_powerSGD_iter": 2, "min_compression_rate": 1}
    state = PowerSGDState(None, matrix_approximation_rank=rank, **settings)
    network.register_comm_hook(state, powerSGD_hook)
    return network, state


def post_local_sgd(
    module: nn.Module, optimizer: torch.optim.Optimizer, every: int, exact: int
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """`local-sgd every=… exact=…`, but for the mean of all weights after the last step."""
    network = DistributedDataParallel(module)
    alone, _ = dist.new_subgroups(group_size=1)
    network.register_comm_hook(PostLocalSGDState(None, alone, exact), post_localSGD_hook)
    averager = PeriodicModelAverager(period=every, warmup_steps=exact + every - 1)
    return network, PostLocalSGDOptimizer(optimizer, averager)


@torch.no_grad()
def outer_step(module: nn.Module, outer: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    """What `diloco` does where a round ends; `optimizer` is SGD of `outer`, with Nesterov's momentum."""
    for shared, own in zip(outer, module.parameters(), strict=True):
        shared.grad = (shared - own) / dist.get_world_size()
        dist.all_reduce(shared.grad)
    optimizer.step()
    for shared, own in zip(outer, module.parameters(), strict=True):
        own.copy_(shared)


def run(rank: int, kind: str, workers: int, precision: str, *numbers: int) -> dict[str, Any]:
    """The last weights of a run of that kind by PyTorch's parts, as a process of a pool."""
    module = nn.Sequential(nn.Linear(6, 13), nn.ReLU(), nn.Linear(13, 10), nn.ReLU(), nn.Linear(10, 3))
    module.to(getattr(torch, precision))
    start = _start(precision)
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), start.values(), strict=True):
            parameter.copy_(value)
    network, optimizer, after = _KINDS[kind](module, workers, *numbers)
    for step in range(tried.STEPS):
        part = _part(step, rank, workers, precision)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(part.inputs), part.targets).backward()
        optimizer.step()
        after(step)
    return {name: each.detach().numpy() for name, each in zip(start, module.parameters(), strict=True)}


def run_ours(rank: int, text: str, workers: int, precision: str) -> dict[str, Any]:
    """The last weights of our algorithm after two exact steps, with which PyTorch's hook has to begin."""
    network, order, start = tried.NETWORKS["mlp"], tried.order_of(text, workers), _start(precision)
    exact: Any = Exact().begin(network, order.learning, order.seat(rank), start)
    member: Any = order.algorithm.begin(network, order.learning, order.seat(rank), start)
    for step in range(tried.STEPS):
        if step == 2:
            member.local.take_over(exact.kept()["local"])
        converse((exact if step < 2 else member).step(step, _part(step, rank, workers, precision)))
    return {name: each.numpy() for name, each in member.local.values().items()}


def _start(precision: str) -> dict[str, torch.Tensor]:
    first = tried.NETWORKS["mlp"].initial(3)
    return {name: each.to(getattr(torch, precision)) for name, each in first.items()}


def _part(step: int, rank: int, workers: int, precision: str) -> Batch:
    part = tried.task_of("mlp").batch(step).part(rank, workers)
    return Batch(part.inputs.to(getattr(torch, precision)), part.targets)


_Parts = tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]


def _power_sgd(module: nn.Module, workers: int, rank: int) -> _Parts:
    network, state = power_sgd(module, rank)

    def after(step: int) -> None:
        if step == 1:  # the next step is the first that is compressed
            state.p_memory_dict[0], state.q_memory_dict[0] = _first_factors(module, workers, rank)

    return network, _sgd(module), after


def _first_factors(module: nn.Module, workers: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Room for P, and the Q that our `power-sgd` begins with, in the order of the hook's bucket.

    Gradients of the last layer are ready first.
    """
    order, network = tried.order_of(f"power-sgd rank={rank}", workers), tried.NETWORKS["mlp"]
    member: Any = order.algorithm.begin(network, order.learning, order.seat(0), network.initial(3))
    names = [f"q.{i}" for i, each in enumerate(member.reducer.matrices) if each.reduced]
    q = torch.cat([member.reducer.kept[name].reshape(-1) for name in reversed(names)])
    rows = sum(each.rows * each.rank for each in member.reducer.matrices if each.reduced)
    given = next(module.parameters())
    return given.new_empty(rows), q.to(given.dtype)


def _post_local_sgd(module: nn.Module, workers: int, every: int, exact: int) -> _Parts:
    return *post_local_sgd(module, _sgd(module), every, exact), lambda step: None


def _diloco(module: nn.Module, workers: int, every: int) -> _Parts:
    outer = [nn.Parameter(each.detach().clone()) for each in module.parameters()]
    outer_optimizer = torch.optim.SGD(outer, lr=0.7, momentum=0.9, nesterov=True)

    def after(step: int) -> None:
        if (step + 1) % every == 0 or step + 1 == tried.STEPS:
            outer_step(module, outer, outer_optimizer)

    inner = torch.optim.AdamW(module.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.0)
    return module, inner, after


_KINDS: dict[str, Callable[..., _Parts]] = {
    "power-sgd": _power_sgd,
    "post-local-sgd": _post_local_sgd,
    "diloco": _diloco,
}


def _sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
