"""A published recipe predicted on its own devices, with its own state."""

from dataclasses import replace

import pytest

from tests.unit.search.recipe_rows import named, recipe
from trainwright.errors import BadInput
from trainwright.search.recipe_job import build_recipe_job, predict_recipe, recipe_devices


def test_a_job_has_the_case_of_its_recipe() -> None:
    found = build_recipe_job(named("llama3_70b_pretrain_64gpu_h100_fp8cs_config"))
    job = found.job
    assert (job.cluster.count, job.seq, job.global_batch) == (64, 8192, 256)
    assert (job.stack.grad_dtype, found.strategy.precision) == ("bf16", "fp8")
    assert not predict_recipe(found).broken


def test_offloading_some_layers_is_between_none_and_all() -> None:
    found = build_recipe_job(named("llama3_70b_pretrain_64gpu_gb200_bf16_config"))
    assert (found.strategy.offload, found.strategy.offload_layers) == ("activations", 20)
    none, some, every = (
        predict_recipe(
            replace(found, strategy=replace(found.strategy, offload=offload, offload_layers=count))
        )
        for offload, count in (("none", 0), ("activations", 20), ("activations", 0))
    )
    assert some == predict_recipe(found)
    assert every.total_bytes < some.total_bytes < none.total_bytes
    assert none.step_s <= some.step_s <= every.step_s  # on NVLink-C2C copies hide behind compute


def test_a_recipe_without_a_count_has_the_fewest_devices_that_its_degrees_fill() -> None:
    # 2 stages of the least that tp 4 and ep 8 both divide
    degrees = {"tp": 4, "pp": 2, "ep": 8, "etp": 1, "devices": None}
    assert recipe_devices(recipe(sharding="distributed-optimizer", **degrees)) == 16


def test_a_recipe_without_a_count_that_shards_over_all_devices_is_refused() -> None:
    with pytest.raises(BadInput, match="shards state over a number that it does not state"):
        recipe_devices(recipe(sharding="fsdp2", devices=None))


def test_a_recipe_without_a_device_is_refused() -> None:
    with pytest.raises(BadInput, match="device: is not stated"):
        build_recipe_job(recipe(device=""))
