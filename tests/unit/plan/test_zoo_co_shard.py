import pytest

from tests.builders import gpt, round_cluster, without_ends
from tests.unit.plan.zoo_runs import run
from trainwright.program.table import CATEGORIES
from trainwright.simulate.memory import peaks

GIB = 2**30


def _activations_gib(text: str) -> float:
    """Four blocks of width 1024 with 16 heads on 2,304 tokens, attention unfused, in fp32."""
    graph = without_ends(gpt(layers=4, hidden=1024, heads=16, dropout=False))
    timeline = run(
        f"{text} precision=fp32",
        graph,
        devices=1,
        batch=1,
        seq=2304,
        attention="unfused",
        cluster=round_cluster(1),
    )
    return float(peaks(timeline).category_bytes[0][CATEGORIES.index("activations")]) / GIB


@pytest.mark.parametrize(
    ("text", "measured_gib", "tolerance"),
    [
        # As measured with fake tensors; of scores, PyTorch keeps one matrix, we count dropout's two as well.
        ("data-parallel recompute=full", 1.01, 0.10),
        ("co-shard chunks=2", 0.53, 0.15),
        ("co-shard chunks=4", 0.28, 0.15),
        ("co-shard chunks=8", 0.16, 0.30),
    ],
)
def test_co_shard_holds_what_fake_tensors_hold(text: str, measured_gib: float, tolerance: float) -> None:
    assert _activations_gib(text) == pytest.approx(measured_gib, rel=tolerance)


def test_activations_fall_by_the_number_of_parts() -> None:
    whole, *parts = (_activations_gib(f"co-shard chunks={count}") for count in (1, 2, 4))
    # What is kept between regions, 2 hidden states a block, does not fall: 8 x 9 MiB = 0.07 GiB.
    assert [whole - 0.07, whole - 0.07] == pytest.approx(
        [2 * (parts[0] - 0.07), 4 * (parts[1] - 0.07)], rel=0.1
    )


def test_co_shard_needs_no_communication() -> None:
    graph = without_ends(gpt(layers=2))
    timeline = run("co-shard chunks=4", graph, devices=1, batch=1)
    assert set(timeline.table.causes) <= {"matmul", "attention", "streaming", "optimizer", "overhead"}
