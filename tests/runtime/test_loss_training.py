"""Losses other than plain cross entropy train under plans as on one process."""

import os
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="needs torch")

from tests.runtime.loss_modules import CASES
from tests.runtime.loss_training import compare_case
from tests.runtime.pool import Pool

PLANS = {"dp2 tp2 mb2": 4, "dp2 zero3 mb2": 2, "pp2 mb4 1f1b": 2, "dp2 mb2": 2, "tp2 mb4": 2}
SAMPLE = ("by_batch_size", "balanced", "two_heads", "weighted", "adapted", "frozen_tower", "recurrent")
PAIRS = [
    (name, text)
    for name in CASES
    for text in PLANS
    if os.environ.get("THOROUGH") or text == "dp2 tp2 mb2" or (name in SAMPLE and text != "dp2 mb2")
]  # `make thorough`: all of them


@pytest.mark.parametrize(("name", "text"), PAIRS)
def test_a_module_trains_as_on_one_process(pool: Callable[[int], Pool], name: str, text: str) -> None:
    for rank, each in enumerate(pool(PLANS[text]).run(compare_case, name, text)):
        assert each.clipped
        assert each.frozen == 0.0, f"process {rank}: {each}"
        assert each.states == each.trained, f"process {rank}: {each}"
        assert max(each.loss, each.norm) < 1e-5, f"process {rank}: {each}"
        assert each.gradient < 1e-4, f"process {rank}: {each}"
