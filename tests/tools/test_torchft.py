"""torchft's own DiLoCo and local SGD find the weights that ours find (make test-torchft)."""

import importlib.util
from collections.abc import Iterator

import pytest

from tests.runtime.pool import Pool, open_pool
from tests.tools import torchft_training

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchft") is None, reason="needs torchft")


@pytest.fixture(scope="module")
def four() -> Iterator[Pool]:
    with open_pool(4) as pool:
        yield pool


@pytest.mark.parametrize(
    "text",
    ["local-sgd every=4", "diloco every=4", "streaming-diloco every=4 fragments=2 delay=0 mixed=0.5"],
)
def test_torchft_finds_the_same_weights(text: str, four: Pool) -> None:
    # With a delay torchft tells a part so many steps earlier, and mixes it in when we tell it.
    theirs = four.run(torchft_training.theirs, text.split()[0])
    ours = four.run(torchft_training.ours, text)
    for values, expected in zip(ours[0], theirs[0], strict=True):
        assert values == pytest.approx(expected, abs=1e-5)
