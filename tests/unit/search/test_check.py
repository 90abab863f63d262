"""Constraints that cannot hold are told one by one, with a remedy."""

from dataclasses import replace

import pytest

from tests.builders import gpt, round_cluster, round_job
from trainwright.errors import BadInput
from trainwright.plan.strategy import RECOMPUTES, SCHEDULES
from trainwright.search.check import check_constraints
from trainwright.search.find import Question
from trainwright.stack.capability import Capability

ZB, FULL = SCHEDULES.index("zb"), RECOMPUTES.index("full")


def check(fixed: dict[str, tuple[int, ...]], devices: int = 8, **most: int) -> None:
    job = round_job(gpt(), round_cluster(devices), 32)  # eight layers
    check_constraints(Question(job=job, batches=(32,), fixed=fixed, most=most))


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"shard": (3,)}, '--fix hsdp "3": is not a part of 8 devices that divides them; use a divisor'),
        ({"shard": (8,)}, "is not a part of 8 devices"),
        ({"shard": (4,), "zero": (0, 1)}, "hybrid sharding is of ZeRO stage 3; fix zero=3"),
        ({"schedule": (ZB,), "pp": (1,)}, '--fix schedule "zb": needs pp > 1; raise pp, or drop it'),
        ({"recompute_layers": (9,)}, "a stage has 8 layers; use fewer"),
        ({"recompute_layers": (3,), "pp": (4,)}, "a stage has 2 layers; use fewer"),
        ({"recompute_layers": (2,), "recompute": (0, 1)}, "needs full recomputation; fix recompute=full"),
        ({"etp": (2,)}, "the model has no experts; drop it"),
    ],
)
def test_a_constraint_that_cannot_hold_is_told(fixed: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check(fixed)


def test_a_schedule_needs_devices_for_its_stages() -> None:
    with pytest.raises(BadInput, match="needs pp > 1"):
        check({"schedule": (ZB,)}, devices=1)
    with pytest.raises(BadInput, match="needs pp > 1"):
        check({"schedule": (ZB,)}, pp=1)


@pytest.mark.parametrize(
    "fixed",
    [
        {"shard": (0, 3)},
        {"shard": (4,), "zero": (3,)},
        {"schedule": (ZB,)},
        {"schedule": tuple(range(len(SCHEDULES))), "pp": (1,)},
        {"recompute_layers": (2,), "recompute": (FULL,), "pp": (4,)},
    ],
)
def test_a_constraint_that_can_hold_passes(fixed: dict[str, tuple[int, ...]]) -> None:
    check(fixed)


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({}, ""),
        ({"offload_layers": (0, 9)}, ""),
        ({"offload_layers": (8,)}, "a stage has 8 layers; use fewer, or 0 for all"),
        ({"offload_layers": (2,), "pp": (2,)}, "offloads activations without pp; fix pp=1"),
        (
            {"offload_layers": (2,), "offload": (0, 1)},
            "needs activations on the host; fix offload=activations",
        ),
    ],
)
def test_a_number_of_offloaded_layers_is_checked(fixed: dict[str, tuple[int, ...]], message: str) -> None:
    job = round_job(gpt(), round_cluster(8), 32)  # eight layers
    able = Capability(counts_offloaded_layers=True, activation_offload_pipeline=False)
    counting = replace(job, stack=replace(job.stack, capability=able))
    asked = Question(job=counting, batches=(32,), fixed={"offload_layers": (4,), **fixed}, most={})
    if not message:
        check_constraints(asked)
        return
    with pytest.raises(BadInput, match=message):
        check_constraints(asked)


@pytest.mark.parametrize(
    ("offloads", "has"),
    [(("none", "optimizer"), "no activations"), (("activations",), "every layer or none")],
)
def test_software_that_does_not_count_offloaded_layers_says_what_it_has(
    offloads: tuple[str, ...], has: str
) -> None:
    job = round_job(gpt(), round_cluster(8), 32)
    other = replace(job, stack=replace(job.stack, capability=Capability(offloads=offloads)))
    with pytest.raises(BadInput, match=has):
        check_constraints(Question(job=other, batches=(32,), fixed={"offload_layers": (4,)}, most={}))
