"""The unsplit evaluation: its gradients are the slopes of its loss."""

from dataclasses import replace

import numpy as np
import pytest

from tests.laws.plans import TINY, tiny
from trainwright.model.flow import wire
from trainwright.program.reference import RATE, Data, build_data, reference

STEP = 1e-5


def data_of(model: str) -> Data:
    graph = tiny(model)
    return build_data(graph, wire(graph), batch=2, seq=4, microbatches=2)


def slope(data: Data, key: str, at: tuple[int, ...]) -> float:
    """How fast the loss grows with one weight, from two evaluations beside it."""
    losses = []
    for sign in (1.0, -1.0):
        weight = data.weights[key].copy()
        weight[at] += sign * STEP
        losses.append(reference(replace(data, weights={**data.weights, key: weight})).loss)
    return (losses[0] - losses[1]) / (2.0 * STEP)


@pytest.mark.parametrize("model", TINY)
def test_every_gradient_is_the_slope_of_the_loss(model: str) -> None:
    data = data_of(model)
    gradients = reference(data).gradients
    random = np.random.default_rng(1)
    for key, weight in data.weights.items():
        at = tuple(int(random.integers(size)) for size in weight.shape)
        assert gradients[key][at] == pytest.approx(slope(data, key, at), abs=1e-8)


def test_a_loss_that_knows_nothing_is_the_logarithm_of_the_vocabulary() -> None:
    data = data_of("llama")
    blind = {**data.weights, "head/logits.weight": np.zeros_like(data.weights["head/logits.weight"])}
    assert reference(replace(data, weights=blind)).loss == pytest.approx(np.log(12))  # of 12 words


def test_the_update_takes_its_share_of_the_gradient() -> None:
    data = data_of("gpt")
    answer = reference(data)
    key = "layer.0/ffn.up.weight"
    assert np.array_equal(answer.weights[key], data.weights[key] - RATE * answer.gradients[key])
