"""What programs send, counted by hand."""

import pytest

from tests.builders import free_stack, gpt, perfect, round_cluster
from trainwright.model.graph import Graph, parameters
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import lower
from trainwright.program.setting import Setting
from trainwright.program.traffic import Traffic, traffic

HIDDEN_BYTES = 1024 * 1024 * 2  # of 1,024 tokens of 1,024 elements of 16 bits


def sent(text: str, graph: Graph | None = None, devices: int = 8, batch: int = 8) -> list[Traffic]:
    graph, strategy = graph or gpt(layers=2), parse_strategy(text)
    setting = Setting(
        graph=graph, cluster=round_cluster(devices), stack=free_stack(), efficiency=perfect(), seq=1024
    )
    return list(traffic(lower(setting, expand(strategy, graph, batch))))


def of(found: list[Traffic], per: str, cause: str) -> dict[str, tuple[int, float]]:
    return {
        each.kind: (each.count, each.sent_bytes) for each in found if (each.per, each.cause) == (per, cause)
    }


def test_one_device_sends_nothing() -> None:
    assert sent("dp1") == []


def test_tensor_parallelism_reduces_twice_a_layer_and_direction() -> None:
    layers = {count: of(sent("tp4", gpt(layers=count)), "microbatch", "tp") for count in (2, 3)}
    count, size = (layers[3]["all_reduce"][index] - layers[2]["all_reduce"][index] for index in (0, 1))
    assert count == 4
    assert size == pytest.approx(4 * 2 * 3 / 4 * HIDDEN_BYTES)  # a ring of 4 sends 3/4 of it twice


def test_sequence_parallelism_turns_each_into_two() -> None:
    layers = {count: of(sent("tp4 sp", gpt(layers=count)), "microbatch", "tp") for count in (2, 3)}
    for kind in ("reduce_scatter", "all_gather"):
        assert layers[3][kind][0] - layers[2][kind][0] == 4
        assert layers[3][kind][1] - layers[2][kind][1] == pytest.approx(4 * 3 / 4 * HIDDEN_BYTES)


def test_data_parallelism_reduces_all_gradients_once_a_step() -> None:
    graph = gpt(layers=2)
    found = sent("dp4", graph)
    assert of(found, "microbatch", "dp") == {}
    count, size = of(found, "step", "dp")["all_reduce"]
    assert count == 1
    assert size == pytest.approx(2 * 3 / 4 * 4 * parameters(graph))  # 4 bytes each on the wire


def test_zero_3_gathers_each_block_twice_and_scatters_it_once() -> None:
    graph = gpt(layers=2)
    found = of(sent("dp4 zero3", graph), "microbatch", "dp")
    blocks = 4  # embedding, two layers, head; a tied head has no matrix, but it has a norm
    assert found["all_gather"][0] == 2 * blocks
    assert found["reduce_scatter"][0] == blocks
    assert found["all_gather"][1] == pytest.approx(2 * 3 / 4 * 2 * parameters(graph), rel=0.2)
    assert found["reduce_scatter"][1] == pytest.approx(3 / 4 * 4 * parameters(graph))


def test_hybrid_shards_are_reduced_over_their_copies() -> None:
    graph = gpt(layers=2)
    count, size = of(sent("dp8 zero3 hsdp4", graph), "step", "dp")["all_reduce"]
    assert count == 1
    assert size == pytest.approx(2 * 1 / 2 * 4 * parameters(graph) / 4)


def test_a_pipeline_sends_a_hidden_state_each_way_from_stage_to_stage() -> None:
    found = of(sent("pp2 1f1b"), "microbatch", "pp")
    assert found == {"send": (2, HIDDEN_BYTES)}  # one each way; each device sends one of them


def test_weights_that_two_stages_share_are_reduced_in_one_collective() -> None:
    graph = gpt(layers=2, tied=True)
    count, size = of(sent("pp2 1f1b", graph), "step", "dp")["all_reduce"]
    assert count == 1
    assert size == pytest.approx(2 * 1 / 2 * 4 * 8192 * 1024)
