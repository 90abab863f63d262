"""Data that needs no file: samples that a random network has labelled."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from trainwright.algorithm.network import Batch, Mlp, Network, Values
from trainwright.algorithm.train import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Samples to learn from, to choose by, and to be judged by."""

    train: Batch
    validation: Batch
    test: Batch


def teach(inputs: int, classes: int, count: int, seed: int = 0, width: int = 64) -> Labelled:
    """Normal samples whose classes are those that a random network with one hidden layer gives.

    A tenth each is kept for choosing and for judging. Logits are centred, so that no class is rare.
    """
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(count, inputs, generator=source)
    network = Mlp(inputs=inputs, hidden=(width,), classes=classes)
    logits = network.outputs(network.initial(seed + 1), x)
    y = (logits - logits.mean(0)).argmax(1)
    cut, end = int(0.8 * count), int(0.9 * count)
    return Labelled(
        train=Batch(x[:cut], y[:cut]), validation=Batch(x[cut:end], y[cut:end]), test=Batch(x[end:], y[end:])
    )


def build_task(network: Network, train: Batch, judged: Batch, batch: int, seed: int = 0) -> Task:
    """Learning from samples in a random order, every one once before any again; judged by others."""

    def drawn(step: int) -> Batch:
        per_epoch = max(len(train.inputs) // batch, 1)
        epoch, place = divmod(step, per_epoch)
        order = _order(len(train.inputs), seed, epoch)[place * batch : (place + 1) * batch]
        return Batch(train.inputs[order], train.targets[order])

    return Task(network=network, batch=drawn, judge=lambda values: judge(network, values, judged))


_ORDERS: dict[tuple[int, int, int], torch.Tensor] = {}


def _order(count: int, seed: int, epoch: int) -> torch.Tensor:
    key = (count, seed, epoch)
    if key not in _ORDERS:
        _ORDERS.clear()
        _ORDERS[key] = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 100_003 + epoch))
    return _ORDERS[key]


def judge(network: Network, values: Values, batch: Batch) -> dict[str, float]:
    """The loss of a model and the share of its answers that are right."""
    logits = network.outputs(values, batch.inputs).flatten(0, -2)
    targets = batch.targets.flatten()
    right = (logits.argmax(1) == targets).float().mean()
    return {"loss": float(F.cross_entropy(logits, targets)), "accuracy": float(right)}
