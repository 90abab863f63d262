"""Short runs by torchft's DiLoCo and local SGD, as a process of a pool."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from tests.runtime import algorithms as tried
from trainwright.algorithm.talk import converse

STEPS = 12


class Quorum:
    """Stands for torchft's manager where nobody comes or goes: everyone takes part, every round counts."""

    _use_async_quorum = False

    def __init__(self) -> None:
        self.rounds = 0

    def current_step(self) -> int:
        return self.rounds

    def should_commit(self) -> bool:
        self.rounds += 1
        return True

    def allreduce(self, values: torch.Tensor, should_quantize: bool = False) -> Any:
        values /= dist.get_world_size()
        return dist.all_reduce(values, async_op=True)

    def start_quorum(self) -> None: ...
    def register_state_dict_fn(self, *arguments: object) -> None: ...
    def allow_state_dict_read(self) -> None: ...
    def disallow_state_dict_read(self) -> None: ...


def theirs(rank: int, kind: str) -> list[np.ndarray]:
    """The last weights, or the outer model, of a run with a meeting every fourth step."""
    task = tried.task_of("mlp")
    module = nn.Sequential(nn.Linear(6, 13), nn.ReLU(), nn.Linear(13, 10), nn.ReLU(), nn.Linear(10, 3))
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), task.network.initial(3).values(), strict=True):
            parameter.copy_(value)
    inner = torch.optim.AdamW(module.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.0)
    training = _training(kind, module, inner)
    with training:
        for step in range(STEPS):
            part = task.batch(step).part(rank, 4)
            inner.zero_grad()
            nn.functional.cross_entropy(module(part.inputs), part.targets).backward()
            inner.step()
    if kind == "local-sgd":
        return [each.detach().numpy() for each in module.parameters()]
    return [each.numpy() for part in training._fragments for each in part.original_parameters.values()]


def _training(kind: str, module: nn.Sequential, inner: torch.optim.Optimizer) -> Any:
    from torchft.local_sgd import DiLoCo, LocalSGD

    if kind == "local-sgd":
        return LocalSGD(Quorum(), module, inner, sync_every=4)
    parts = [module[:1], module[1:]] if kind == "streaming-diloco" else [module]
    outer = [torch.optim.SGD(each.parameters(), lr=0.7, momentum=0.9, nesterov=True) for each in parts]
    return DiLoCo(Quorum(), parts, inner, outer, sync_every=4, fragment_update_alpha=0.5 * (len(parts) - 1))


def ours(rank: int, text: str) -> list[np.ndarray]:
    """The same of our algorithm, of a longer run, as all parts of a model meet after the last step."""
    task, order = tried.task_of("mlp"), replace(tried.order_of(text, 4, "adamw"), steps=100)
    start = task.network.initial(3)
    member = order.algorithm.begin(task.network, order.learning, order.seat(rank), start)
    for step in range(STEPS):
        converse(member.step(step, task.batch(step).part(rank, 4)))
    return [each.numpy() for each in converse(member.whole()).values()]
