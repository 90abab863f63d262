"""The same short runs by PyTorch's own parts, as a process of a pool."""

from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

from tests.runtime import algorithms as tried


def run(rank: int, kind: str) -> dict[str, Any]:
    """The last weights of DDP, or of local steps and PyTorch's averager every third one."""
    task = tried.task_of("mlp")
    module: nn.Module = nn.Sequential(
        nn.Linear(6, 13), nn.ReLU(), nn.Linear(13, 10), nn.ReLU(), nn.Linear(10, 3)
    )
    values = list(task.network.initial(3).values())
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), values, strict=True):
            parameter.copy_(value)
    network = DistributedDataParallel(module) if kind == "ddp" else module
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    averager = PeriodicModelAverager(period=3, warmup_steps=2)  # after steps 3, 6 and 9
    for step in range(tried.STEPS):
        part = task.batch(step).part(rank, 4)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(part.inputs), part.targets).backward()
        optimizer.step()
        if kind != "ddp":
            averager.average_parameters(network.parameters())
    return {
        name: each.detach().numpy()
        for name, each in zip(task.network.initial(3), module.parameters(), strict=True)
    }
