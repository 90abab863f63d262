"""Hugging Face models train under plans as they do on one device, without changes to their code."""

from collections.abc import Callable

import pytest

from tests.runtime.pool import Pool

pytest.importorskip("transformers")

from tests.runtime.traced_training import ARCHITECTURES, compare_dropped, compare_traced

PLANS = ("dp4 zero1", "dp2 tp2 sp mb2", "dp4 zero3", "dp2 pp2 1f1b", "pp4 zb full", "tp2 cp2 ring mb4")


@pytest.mark.parametrize("text", PLANS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_hugging_face_model_trains_as_on_one_device(
    pool: Callable[[int], Pool], name: str, text: str
) -> None:
    for rank, each in enumerate(pool(4).run(compare_traced, name, text)):
        assert max(each.loss, each.gradient, each.norm) < 1e-5, f"process {rank}: {each}"


@pytest.mark.parametrize("text", ["dp2 tp2 mb1", "dp2 tp2 sp mb2 full", "pp2 dp2 mb2 1f1b", "cp4 ring mb1"])
def test_dropout_has_the_masks_of_one_device(pool: Callable[[int], Pool], text: str) -> None:
    for rank, each in enumerate(pool(4).run(compare_dropped, text)):
        assert max(each.loss, each.gradient, each.norm) < 1e-5, f"process {rank}: {each}"
