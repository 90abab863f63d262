"""Subnetworks, streaming rounds and compressed differences beside simulations that were written apart."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.runtime import algorithms as tried  # noqa: E402
from tests.unit.algorithm.test_independent import WORKERS, Plain, momentum_steps, same  # noqa: E402
from trainwright.algorithm.compressor.protocol import Draw  # noqa: E402
from trainwright.algorithm.compressor.registry import build_compressor  # noqa: E402
from trainwright.algorithm.partition import Cut  # noqa: E402
from trainwright.algorithm.train import train  # noqa: E402

Tensors = list[torch.Tensor]


def masks_of(chosen: dict[str, np.ndarray], shapes: list[torch.Size]) -> Tensors:
    """1 where a worker holds a number of the MLP 6-13-10-3: rows of its neurons, columns of those before."""
    held = [torch.zeros(13), torch.zeros(10)]
    for place, mask in enumerate(held):
        mask[torch.from_numpy(chosen[f"hidden.{place}"])] = 1.0
    sides = [torch.ones(6), *held, torch.ones(3)]
    found = []
    for layer in range(3):
        found += [torch.outer(sides[layer + 1], sides[layer]), sides[layer + 1]]
    assert [each.shape for each in found] == shapes
    return found


@pytest.mark.parametrize("coverage", [0.0, 0.6])
def test_subnetworks_are_masks_of_the_whole_network(coverage: float) -> None:
    plain = Plain(tried.task_of("mlp"))
    weights = [each.clone() for each in plain.first]
    cut = Cut(anatomy=plain.task.network.anatomy, workers=WORKERS, coverage=coverage)
    for number, first in enumerate(range(0, tried.STEPS, 4)):
        totals = [torch.zeros_like(each) for each in weights]
        holders = [torch.zeros_like(each) for each in weights]
        for worker, chosen in enumerate(cut.draw(number, 3)):
            masks = masks_of(dict(chosen), [each.shape for each in weights])
            own = [weight * mask for weight, mask in zip(weights, masks, strict=True)]
            speeds = [torch.zeros_like(each) for each in own]
            for step in range(first, min(first + 4, tried.STEPS)):
                grads = plain.gradients(own, step, worker)
                momentum_steps(own, speeds, [g * m for g, m in zip(grads, masks, strict=True)])
            for total, count, each, mask in zip(totals, holders, own, masks, strict=True):
                total += each
                count += mask
        weights = [
            torch.where(count > 0, total / count.clamp(min=1), before)
            for total, count, before in zip(totals, holders, weights, strict=True)
        ]
    same(plain.task, f"ist every=4 coverage={coverage} scale=none", "sgd", weights)


def test_streaming_diloco() -> None:
    plain = Plain(tried.task_of("mlp"))
    shapes = [each.shape for each in plain.first]
    start = np.concatenate([each.numpy().ravel() for each in plain.first]).astype(np.float64)
    ends = np.cumsum([each.numel() for each in plain.first])  # 78, 91, 221, 231, 261, 264
    assert ends.tolist() == [78, 91, 221, 231, 261, 264]
    parts = [slice(0, 91), slice(91, 264)]  # the end nearest to half of 264 = 132 is 91
    outer, speed = start.copy(), np.zeros_like(start)
    own, momenta = np.tile(start, (WORKERS, 1)), np.zeros((WORKERS, len(start)))
    due: dict[int, int] = {}
    for step in range(tried.STEPS):
        for w in range(WORKERS):
            split = [torch.from_numpy(each).float() for each in np.split(own[w], ends[:-1])]
            grads = plain.gradients([s.view(shape) for s, shape in zip(split, shapes, strict=True)], step, w)
            momenta[w] = 0.9 * momenta[w] + np.concatenate([g.numpy().ravel() for g in grads])
            own[w] -= 0.05 * momenta[w]
        last = step + 1 == tried.STEPS
        # Every fourth step each: the first after steps 2, 6 and 10, the second after 4 and 8; all at the end.
        meeting = [0, 1] if last else [k for k in (0, 1) if (step + 1) % 4 == 2 * (k + 1) % 4]
        for k in [k for k in due if last]:
            own[:, parts[k]] = 0.5 * own[:, parts[k]] + 0.5 * outer[parts[k]]
            del due[k]
        for k in meeting:
            change = outer[parts[k]] - own[:, parts[k]].mean(0)
            speed[parts[k]] = 0.9 * speed[parts[k]] + change
            outer[parts[k]] -= 0.7 * (change + 0.9 * speed[parts[k]])
            due[k] = step + 1
        for k in [k for k, when in due.items() if when <= step]:
            own[:, parts[k]] = 0.5 * own[:, parts[k]] + 0.5 * outer[parts[k]]
            del due[k]
    found = [
        torch.from_numpy(each).view(shape)
        for each, shape in zip(np.split(outer, ends[:-1]), shapes, strict=True)
    ]
    same(plain.task, "streaming-diloco every=4 fragments=2 delay=1", "sgd", found)


@pytest.mark.parametrize(
    "text", ["diana by=rand-k share=0.3", "ef21 by=top-k share=0.2", "marina by=perm-k whole=0.3"]
)
def test_compressed_differences(text: str) -> None:
    plain, name = Plain(tried.task_of("mlp")), text.split()[0]
    weights = [each.clone() for each in plain.first]
    speeds = [torch.zeros_like(each) for each in weights]
    sizes = [each.numel() for each in weights]
    count = sum(sizes)
    compressor = build_compressor(text.split("by=")[1].split()[0], 0.2 if name == "ef21" else 0.3)
    known, before = torch.zeros(WORKERS, count), torch.zeros(WORKERS, count)
    found, old = torch.zeros(count), weights
    for step in range(tried.STEPS):
        flat = torch.stack([flattened(plain.gradients(weights, step, w)) for w in range(WORKERS)])
        draws = [Draw(seed=3, step=step, rank=w, workers=WORKERS) for w in range(WORKERS)]

        def read(given: torch.Tensor, draws: list[Draw] = draws) -> torch.Tensor:
            pairs = zip(given, draws, strict=True)
            return torch.stack([compressor.unpack(compressor.pack(g, d), count, d) for g, d in pairs])

        if name == "diana":
            sent = read(flat - known)
            found = (known + sent).mean(0)
            known = known + sent * round(0.3 * count) / count  # 1/(1 + omega) = K/d
        elif name == "ef21":
            known = known + read(flat - known)
            found = known.mean(0)
        else:
            before = torch.stack([flattened(plain.gradients(old, step, w)) for w in range(WORKERS)])
            whole = step == 0 or np.random.default_rng([3, step]).random() < 0.3
            found = flat.mean(0) if whole else found + read(flat - before).mean(0)
            old = [each.clone() for each in weights]
        grads = [g.view(w.shape) for g, w in zip(found.split(sizes), weights, strict=True)]
        momentum_steps(weights, speeds, grads)
    same(plain.task, text, "sgd", weights)


def flattened(grads: Tensors) -> torch.Tensor:
    return torch.cat([each.reshape(-1) for each in grads])


def test_streaming_diloco_of_one_part_that_is_taken_at_once_is_diloco() -> None:
    task = tried.task_of("mlp")
    streaming = "streaming-diloco every=4 fragments=1 delay=0 mixed=1"
    found, plain = (train(task, tried.order_of(t, WORKERS, "adamw")) for t in (streaming, "diloco every=4"))
    for name, value in plain.values.items():
        assert found.values[name].numpy() == pytest.approx(value.numpy(), abs=1e-7)
