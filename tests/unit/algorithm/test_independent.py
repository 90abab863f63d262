"""Algorithms beside simulations that were written apart from them, on stacked plain tensors."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.runtime import algorithms as tried  # noqa: E402
from trainwright.algorithm.anatomy import Anatomy, Weight  # noqa: E402
from trainwright.algorithm.network import Batch, Mlp  # noqa: E402
from trainwright.algorithm.power_sgd import PowerSgd  # noqa: E402
from trainwright.algorithm.train import Task, train  # noqa: E402

WORKERS = 4
Tensors = list[torch.Tensor]


class Plain:
    """The network of the task as products and masks, its weights in a list."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.first = list(task.network.initial(3).values())

    def gradients(self, weights: list[torch.Tensor], step: int, worker: int) -> list[torch.Tensor]:
        leaves = [each.detach().clone().requires_grad_() for each in weights]
        batch = self.task.batch(step)
        rows = slice(worker * 4, (worker + 1) * 4)  # 16 samples for 4 workers
        x = batch.inputs[rows]
        for i in range(0, len(leaves), 2):
            x = x @ leaves[i].T + leaves[i + 1]
            x = x * (x > 0) if i + 2 < len(leaves) else x  # a neuron at 0 does not learn, as with relu
        loss = torch.nn.CrossEntropyLoss()(x, batch.targets[rows])
        loss.backward()
        return [each.grad for each in leaves]


def momentum_steps(
    weights: list[torch.Tensor], speeds: list[torch.Tensor], grads: list[torch.Tensor]
) -> None:
    """SGD with momentum 0.9 at rate 0.05, in place."""
    for weight, speed, gradient in zip(weights, speeds, grads, strict=True):
        speed.mul_(0.9).add_(gradient)
        weight.sub_(0.05 * speed)


class DoubleMlp(Mlp):
    """In double precision: power iteration squares condition numbers, so floats of two codes drift apart."""

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        return {name: each.double() for name, each in super().initial(seed).items()}


def double_task() -> Task:
    single = tried.task_of("mlp")

    def batch(step: int) -> Batch:
        return Batch(single.batch(step).inputs.double(), single.batch(step).targets)

    network = DoubleMlp(inputs=6, hidden=(13, 10), classes=3)
    return Task(network=network, batch=batch, judge=lambda values: {})


def same(task: Task, text: str, optimizer: str, expected: Tensors) -> None:
    course = train(task, tried.order_of(text, WORKERS, optimizer))
    for found, value in zip(course.values.values(), expected, strict=True):
        assert found.numpy() == pytest.approx(value.numpy(), abs=1e-5)


def test_top_k_with_feedback() -> None:
    plain = Plain(tried.task_of("mlp"))
    weights = [each.clone() for each in plain.first]
    speeds = [torch.zeros_like(each) for each in weights]
    count = sum(each.numel() for each in weights)
    errors = np.zeros((WORKERS, count), dtype=np.float32)
    for step in range(tried.STEPS):
        total = np.zeros(count, dtype=np.float32)
        for worker in range(WORKERS):
            flat = np.concatenate([g.numpy().ravel() for g in plain.gradients(weights, step, worker)])
            wanted = flat + errors[worker]
            sent = wanted.copy()
            sent[np.argsort(np.abs(wanted))[: count - round(0.1 * count)]] = 0.0
            errors[worker] = wanted - sent
            total += sent / WORKERS
        pieces = np.split(total, np.cumsum([each.numel() for each in weights])[:-1])
        grads = [torch.from_numpy(p).view(w.shape) for p, w in zip(pieces, weights, strict=True)]
        momentum_steps(weights, speeds, grads)
    same(plain.task, "compressed by=top-k share=0.1", "sgd", weights)


def gram_schmidt(matrix: np.ndarray) -> np.ndarray:
    found = matrix.astype(np.float64).copy()
    for i in range(found.shape[1]):
        for j in range(i):
            found[:, i] -= (found[:, i] @ found[:, j]) * found[:, j]
        found[:, i] /= np.linalg.norm(found[:, i])
    return found


def test_power_sgd_takes_weights_for_the_matrices_with_the_smallest_factors() -> None:
    weights = (
        Weight(name="output", sizes=(32, 128, 4096)),  # heads, their size, hidden
        Weight(name="wide", sizes=(8, 50)),
        Weight(name="norm", sizes=(7,)),
    )
    found = PowerSgd(rank=4).matrices(Anatomy(weights=weights))
    assert [(each.rows, each.columns) for each in found] == [(4096, 4096), (8, 50), (7, 1)]


def test_power_sgd() -> None:
    plain, rank = Plain(double_task()), 2
    weights = [each.clone() for each in plain.first]
    speeds = [torch.zeros_like(each) for each in weights]
    # Matrices are 13x6, 10x13 and 3x10: the factors of rank 2 are smaller, (3 + 10) * 2 < 30.
    source = torch.Generator().manual_seed(3)
    q = [
        torch.randn(each.shape[1], rank, generator=source).double().numpy() if each.ndim == 2 else None
        for each in weights
    ]
    errors = [[np.zeros(each.shape) for each in weights] for _ in range(WORKERS)]
    for step in range(tried.STEPS):
        grads = [plain.gradients(weights, step, worker) for worker in range(WORKERS)]
        means = []
        for i, start in enumerate(q):
            wanted = [grads[w][i].double().numpy() + errors[w][i] for w in range(WORKERS)]
            if start is None:
                means.append(sum(wanted) / WORKERS)
                continue
            basis = gram_schmidt(sum(each @ start for each in wanted) / WORKERS)
            q[i] = sum(each.T @ basis for each in wanted) / WORKERS
            means.append(basis @ q[i].T)
            for w in range(WORKERS):
                errors[w][i] = wanted[w] - means[-1]
        momentum_steps(weights, speeds, [torch.from_numpy(each) for each in means])
    same(plain.task, "power-sgd rank=2", "sgd", weights)


def test_diloco() -> None:
    plain = Plain(tried.task_of("mlp"))
    outer = [each.clone().requires_grad_() for each in plain.first]
    outer_optimizer = torch.optim.SGD(outer, lr=0.7, momentum=0.9, nesterov=True)
    workers = [[each.clone().requires_grad_() for each in plain.first] for _ in range(WORKERS)]
    inner = [torch.optim.AdamW(each, lr=0.01, betas=(0.9, 0.95), weight_decay=0.0) for each in workers]
    for step in range(tried.STEPS):
        for w in range(WORKERS):
            for leaf, gradient in zip(workers[w], plain.gradients(workers[w], step, w), strict=True):
                leaf.grad = gradient
            inner[w].step()
        if (step + 1) % 4 == 0 or step + 1 == tried.STEPS:
            with torch.no_grad():
                for i, shared in enumerate(outer):
                    shared.grad = shared - sum(workers[w][i] for w in range(WORKERS)) / WORKERS
                outer_optimizer.step()
                for w in range(WORKERS):
                    for i, shared in enumerate(outer):
                        workers[w][i].copy_(shared)
    same(plain.task, "diloco every=4", "adamw", [each.detach() for each in outer])
