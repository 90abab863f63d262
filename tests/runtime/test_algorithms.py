"""Training algorithms on real processes: the same numbers as in one, and bytes as stated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime import algorithms as tried
from tests.runtime import torch_averaging
from tests.runtime.pool import Pool
from trainwright.algorithm.charge import all_messages
from trainwright.algorithm.message import payload
from trainwright.algorithm.registry import ALGORITHMS
from trainwright.algorithm.train import train

CASES = (
    ("ddp", "mlp", "sgd"),
    ("local-sgd every=4", "mlp", "adamw"),
    ("local-sgd every=3 exact=4", "mlp", "sgd"),
    ("diloco every=4", "mlp", "adamw"),
    ("ist every=4", "mlp", "sgd"),
    ("ist every=4 coverage=0.5 scale=share", "mlp", "adamw"),
    ("ist every=3 coverage=0.5 warmup=2 finish=3", "mlp", "sgd"),
    ("ist every=4 coverage=0.5", "residual", "sgd"),
    ("ist every=4", "transformer", "sgd"),  # AdamW makes whole steps of rounding where gradients are near 0
    ("streaming-diloco every=5 fragments=3 delay=1", "mlp", "adamw"),
    ("compressed by=rand-k share=0.2 feedback=no", "mlp", "sgd"),
    ("compressed by=rand-k share=0.2", "mlp", "sgd"),
    ("compressed by=perm-k feedback=no", "mlp", "sgd"),
    ("compressed by=top-k share=0.1", "mlp", "adamw"),
    ("compressed by=natural feedback=no", "mlp", "sgd"),
    ("compressed by=qsgd feedback=no", "mlp", "sgd"),
    # Rank 3 sends the last matrix whole. Rows of its gradient add up to 0, and at a rank that is just theirs
    # rounding grows along the direction that no loss sees.
    ("power-sgd rank=3", "mlp", "sgd"),
    ("diana share=0.3", "mlp", "sgd"),
    ("ef21 share=0.2", "mlp", "sgd"),
    ("marina whole=0.3", "mlp", "sgd"),
)


@pytest.fixture(scope="module")
def ran(pool: Callable[[int], Pool]) -> Callable[[tuple[str, str, str]], list[dict[str, Any]]]:
    """What four processes have found in a case, which is run once."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}

    def of(case: tuple[str, str, str]) -> list[dict[str, Any]]:
        if case not in found:
            found[case] = pool(4).run(tried.run, *case)
        return found[case]

    return of


def test_every_algorithm_is_tried() -> None:
    assert {text.split()[0] for text, _, _ in CASES} == set(ALGORITHMS)


@pytest.mark.parametrize("case", CASES)
def test_bytes_passed_to_collectives_are_those_that_the_algorithm_states(case: Any, ran: Any) -> None:
    text, network, optimizer = case
    order, processes = tried.order_of(text, 4, optimizer), ran(case)
    stated = payload(all_messages(order.algorithm, tried.NETWORKS[network].anatomy, order.seat(0)))
    kinds = {kind for each in processes for kind in each["bytes"]}
    measured = {kind: sum(each["bytes"].get(kind, 0) for each in processes) for kind in kinds}
    assert measured == {kind: 4 * size for kind, size in stated.items()}


@pytest.mark.parametrize("case", CASES)
def test_processes_find_what_members_of_one_process_find(case: Any, ran: Any) -> None:
    text, network, optimizer = case
    alone = train(tried.task_of(network), tried.order_of(text, 4, optimizer))
    processes = ran(case)
    assert np.mean([each["losses"] for each in processes], axis=0) == pytest.approx(alone.losses, abs=1e-5)
    for each in processes:
        for name, values in alone.values.items():
            assert each["values"][name] == pytest.approx(values.numpy(), abs=1e-5)


def test_a_subnetwork_takes_a_third_of_the_memory_of_the_whole_model(pool: Callable[[int], Pool]) -> None:
    # Hidden layers of 512: a home is 1/4 of the weights, a slice 1/16 of those between hidden layers.
    whole = max(pool(4).run(tried.resident, "ddp"))
    slices = max(pool(4).run(tried.resident, "ist every=4"))
    assert whole >= 4 * (2 * 512 * 512 + 26 * 512)
    assert slices < 0.4 * whole


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_the_system_gives_a_subnetwork_less_than_half_of_the_memory(pool: Callable[[int], Pool]) -> None:
    # Hidden layers of 2048: weights of 34 MB, beside which what the libraries take is small.
    whole = max(pool(4).run(tried.resident_set, "ddp"))
    slices = max(pool(4).run(tried.resident_set, "ist every=4"))
    assert whole >= 4 * (2 * 2048 * 2048)
    assert slices < 0.4 * whole


def test_exact_data_parallelism_is_that_of_torch(pool: Callable[[int], Pool], ran: Any) -> None:
    theirs = pool(4).run(torch_averaging.run, "ddp")
    for name, values in ran(CASES[0])[0]["values"].items():
        assert values == pytest.approx(theirs[0][name], abs=1e-5)


def test_local_sgd_is_that_of_torch(pool: Callable[[int], Pool]) -> None:
    # Both meet after steps 3, 6 and 9 of 11; ours once more after the last, which is the mean of theirs.
    theirs = pool(4).run(torch_averaging.run, "local")
    ours = pool(4).run(tried.run, "local-sgd every=3", "mlp", "sgd")
    for name, values in ours[0]["values"].items():
        mean = np.mean([each[name] for each in theirs], axis=0)
        assert values == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize(
    ("text", "first"),
    [("ist every=4 warmup=4", 4), ("ist every=4 scale=share", 4), ("ist every=4 finish=8 scale=share", 4)],
    ids=["after warming up", "after a round", "before the finish"],
)
def test_subnetworks_go_on_without_a_worker_wherever_it_is_lost(
    text: str, first: int, pool: Callable[[int], Pool], tmp_path: Path
) -> None:
    path = _five_heads(tmp_path)
    found = pool(4).run(tried.regroup_four_of_five, text, first, path)
    job = tried.job_of(text, path)
    start, cut = job.network.initial(0), job.algorithm.cut(job.network.anatomy, 5)  # type: ignore[attr-defined]
    shares = {each.name: cut.share(each.reads) for each in job.network.anatomy.weights if each.reads}
    divided = {each.name for each in job.network.anatomy.partitioned}
    for name, after in found[0]["after"].items():
        factor = shares.get(name, 1.0) if "finish" in text else 1.0  # from now on it is trained whole
        kept = np.isclose(after, factor * found[0]["before"][name], rtol=1e-6, atol=0.0)
        lost = np.isclose(after, factor * start[name].numpy(), rtol=1e-6, atol=0.0)
        assert (kept | lost).all(), name
        assert kept.all() or (name in divided and "warmup" not in text), name
    assert all(np.isfinite(each["loss"]) for each in found)


@pytest.mark.parametrize("fewer", [3, 1])
@pytest.mark.parametrize(
    "text",
    [
        "diloco every=4", "streaming-diloco every=4 fragments=2", "local-sgd every=4",
        "local-sgd every=4 exact=9", "ist every=4", "ist every=4 warmup=9", "ist every=4 finish=9",
    ],
)  # fmt: skip
def test_workers_that_come_later_go_on_from_what_the_others_have(
    text: str, fewer: int, pool: Callable[[int], Pool], tmp_path: Path
) -> None:
    found = pool(4).run(tried.four_of_fewer, text, fewer, 4, _five_heads(tmp_path))
    for each in found:
        assert each["step"] == 4
        assert np.isfinite(each["losses"]).all()
        for name, values in found[0]["before"].items():
            assert each["after"][name] == pytest.approx(values, rel=1e-6, abs=0.0)
            assert np.array_equal(each["end"][name], found[0]["end"][name])


def _five_heads(folder: Path) -> str:
    path = folder / "five.toml"
    path.write_text("layers = 1\nhidden = 20\nheads = 5\nffn = 20\nvocab = 256\n")
    return str(path)
