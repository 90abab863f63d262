"""Training steps of a transformer as one writes them by hand with PyTorch's own parallelism."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the modules are those of the tests

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

from tests.runtime.cases import Case
from tests.runtime.parallel import parallelize
from tests.runtime.reference import Transformer

Batch = tuple[torch.Tensor, torch.Tensor]  # tokens, and what should follow them
Take = Callable[[Batch], float]  # one training step; the loss that this process knows
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What all of them train: a model that is filled before it is split, and how its optimizer is set."""

    case: Case
    fill: Callable[[nn.Module], None]
    adam: Mapping[str, object]
    decay: float
    clip: float

    def model(self) -> Transformer:
        """The whole model."""
        model = Transformer(self.case.arch, self.case.seq)
        self.fill(model)
        return model

    def optimizer(self, modules: Sequence[nn.Module]) -> torch.optim.AdamW:
        """AdamW that decays matrices alone."""
        listed = [each for module in modules for each in module.parameters()]
        groups = [
            {"params": [each for each in listed if each.dim() > 1], "weight_decay": self.decay},
            {"params": [each for each in listed if each.dim() <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, **self.adam)  # type: ignore[arg-type]


def data_parallel(task: Task) -> Take:
    """DistributedDataParallel."""
    model = DistributedDataParallel(task.model(), gradient_as_bucket_view=True)
    return _take(task, model, part=True)


def fully_sharded(task: Task) -> Take:
    """`fully_shard`, block by block."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = task.model()
    parallelize(model, task.case, {"dp": mesh})
    return _take(task, model, part=True)


def tensor_parallel(task: Task) -> Take:
    """`parallelize_module` with columns and rows, and the loss on split logits."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = task.model()
    parallelize(model, task.case, {"tp": mesh})
    return _take(task, model, part=False)


def _take(task: Task, model: nn.Module, *, part: bool) -> Take:
    """A step of a model that is called as a whole, with all of a batch or this process's part of it."""
    optimizer = task.optimizer([model])
    positions = torch.arange(task.case.seq)[None]
    rank, world = dist.get_rank(), dist.get_world_size()

    def take(batch: Batch) -> float:
        tokens, targets = (each.chunk(world)[rank] if part else each for each in batch)
        with loss_parallel() if not part else nullcontext():
            loss = F.cross_entropy(model(tokens, positions).flatten(0, 1), targets.flatten())
            loss.backward()
        _clip(model, task.clip)
        optimizer.step()
        optimizer.zero_grad()
        told = loss.detach().full_tensor() if hasattr(loss, "full_tensor") else loss.detach()
        if part:
            dist.all_reduce(told, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
            told /= world
        return float(told)

    return take


def _clip(model: nn.Module, most: float) -> None:
    """Scale gradients down to a norm; those that are split and those that are not are summed apart."""
    listed = list(model.parameters())
    split = [each.grad for each in listed if isinstance(each, DTensor) and each.grad is not None]
    whole = [each.grad for each in listed if not isinstance(each, DTensor) and each.grad is not None]
    norms = [torch.nn.utils.get_total_norm(each) for each in (split, whole) if each]
    told = [each.full_tensor() if isinstance(each, DTensor) else each for each in norms]
    total = torch.stack(told).norm()
    scale = float((most / (total + 1e-6)).clamp(max=1.0))
    for gradient in (*split, *whole):
        gradient.mul_(scale)


class Part(nn.Module):
    """Some layers of a model, with what is before the first and after the last."""

    def __init__(self, model: Transformer, index: int, count: int) -> None:
        super().__init__()
        each = len(model.layers) // count
        self.embedding = model.embedding if index == 0 else None
        self.layers = model.layers[index * each : (index + 1) * each]
        self.head = model.head if index == count - 1 else None
        self.angles = (model.cosine, model.sine)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x = self.embedding(x, torch.arange(x.shape[1])[None])
        for layer in self.layers:
            x = layer(x, *self.angles)
        return x if self.head is None else self.head(x)  # type: ignore[no-any-return]


def pipeline(task: Task, name: str, microbatches: int, each: int) -> Take:
    """A schedule of `torch.distributed.pipelining` with so many stages on each process."""
    rank, world = dist.get_rank(), dist.get_world_size()
    count = world * each
    model = task.model()
    parts = [Part(model, index, count) for index in range(rank, count, world)]
    stages = [
        PipelineStage(part, rank + number * world, count, torch.device("cpu"))
        for number, part in enumerate(parts)
    ]
    schedule = SCHEDULES[name](
        stages if each > 1 else stages[0], microbatches,
        loss_fn=lambda logits, wanted: F.cross_entropy(logits.flatten(0, 1), wanted.flatten()),
    )  # fmt: skip
    optimizer = task.optimizer(parts)
    weights = [weight for part in parts for weight in part.parameters()]

    def take(batch: Batch) -> float:
        losses: list[torch.Tensor] = []
        given = (batch[0],) if rank == 0 else ()
        if rank == (count - 1) % world:
            schedule.step(*given, target=batch[1], losses=losses)
        else:
            schedule.step(*given)
        both = torch.stack(
            (
                torch.nn.utils.get_total_norm([w.grad for w in weights if w.grad is not None]).square(),
                torch.stack(losses).mean().detach() if losses else torch.zeros(()),
            )
        )
        dist.all_reduce(both)
        torch.nn.utils.clip_grads_with_norm_(weights, task.clip, both[0].sqrt())
        optimizer.step()
        optimizer.zero_grad()
        return float(both[1])

    return take
