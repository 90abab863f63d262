from collections import Counter

import pytest

from tests.builders import free_stack, gpt, perfect, round_cluster
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import Program, lower
from trainwright.program.moves import WITHIN
from trainwright.program.setting import Setting
from trainwright.program.step import Step

FORWARD, BACKWARD, BOTH = "F", "IW", "FIW"


def llama(**changes: object) -> Graph:
    values: dict[str, object] = {
        "name": "llama", "layers": 3, "hidden": 1024, "heads": 16, "kv_heads": 8, "ffn": 4096, "gated": True,
        "vocab": 8192,
    }  # fmt: skip
    return build_graph(Architecture(**(values | changes)))  # type: ignore[arg-type]


MODELS = {
    "gpt": gpt(layers=3),
    "tied": gpt(layers=3, tied=True),
    "llama": llama(),
    "one key for all": llama(heads=8, kv_heads=8),
}


def lowered(graph: Graph, words: str, seq: int = 1024) -> Program:
    strategy = parse_strategy(words)
    setting = Setting(
        graph=graph, cluster=round_cluster(strategy.devices), stack=free_stack(), efficiency=perfect(),
        seq=seq, precision=strategy.precision,
    )  # fmt: skip
    return lower(setting, expand(strategy, graph, strategy.dp * strategy.micro_batch))


def sent(program: Program, phases: str, block: str = "layer.1", cause: str = "tp") -> list[Step]:
    """The collectives of one cause in one block."""
    return [
        step
        for step in program.routes[0].steps
        if step.kind in WITHIN and step.block == block and step.cause == cause and step.phase in phases
    ]


def kinds(steps: list[Step]) -> Counter[str]:
    return Counter(step.kind for step in steps)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("degree", [2, 4, 8])
def test_tensor_parallelism_reduces_twice_forward_and_twice_backward_a_layer(name: str, degree: int) -> None:
    program = lowered(MODELS[name], f"dp1 tp{degree}")
    assert kinds(sent(program, FORWARD)) == {"all_reduce": 2}
    assert kinds(sent(program, BACKWARD)) == {"all_reduce": 2}


@pytest.mark.parametrize("name", MODELS)
def test_sequence_parallelism_turns_each_into_a_scatter_and_a_gather(name: str) -> None:
    program = lowered(MODELS[name], "dp1 tp4 sp")
    assert kinds(sent(program, FORWARD)) == {"reduce_scatter": 2, "all_gather": 2}
    assert kinds(sent(program, BACKWARD)) == {"reduce_scatter": 2, "all_gather": 2}


@pytest.mark.parametrize(("shared", "backward"), [(True, 1), (False, 2)])
def test_a_parallel_block_reduces_both_branches_at_once(shared: bool, backward: int) -> None:
    program = lowered(llama(parallel_block=True, shared_norm=shared), "dp1 tp4")
    assert kinds(sent(program, FORWARD)) == {"all_reduce": 1}
    assert kinds(sent(program, BACKWARD)) == {"all_reduce": backward}  # one for each norm that branches read


def test_devices_that_share_keys_sum_their_gradients_besides() -> None:
    # 16 heads on 16 devices with 8 keys and values: two devices each project the same ones.
    program = lowered(llama(), "dp1 tp16")
    small = [step for step in sent(program, BACKWARD) if "norm" not in step.name]
    assert kinds(sent(program, FORWARD)) == {"all_reduce": 2}
    assert len(sent(program, BACKWARD)) - len(small) == 2
    assert {value.name for step in small for value in step.reads} == {
        "d:layer.1/attention.rope.k", "d:layer.1/attention.v"
    }  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("words", ["dp8", "dp4 tp2", "dp4 tp2 sp", "dp2 tp4 sp"])
def test_zero_3_gathers_twice_and_scatters_once_a_layer(name: str, words: str) -> None:
    program = lowered(MODELS[name], f"{words} zero3")
    assert kinds(sent(program, FORWARD, cause="dp")) == {"all_gather": 1}
    assert kinds(sent(program, BACKWARD, cause="dp")) == {"all_gather": 1, "reduce_scatter": 1}


@pytest.mark.parametrize("name", MODELS)
def test_recomputed_layers_of_zero_3_use_the_weights_that_their_backward_gathers(name: str) -> None:
    program = lowered(MODELS[name], "dp8 zero3 full")
    assert kinds(sent(program, "FIWR", cause="dp")) == {"all_gather": 2, "reduce_scatter": 1}


def test_recomputation_does_not_sum_the_embedding_again() -> None:
    program = lowered(MODELS["llama"], "dp1 tp4 full")
    assert not [step for step in sent(program, "R", block="layer.0") if "embedding" in step.name]


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        (0, {"S": {"all_reduce"}}),
        (1, {"S": {"reduce_scatter"}, "P": {"all_gather"}}),
        (2, {"W": {"reduce_scatter"}, "P": {"all_gather"}}),
        (3, {"F": {"all_gather"}, "I": {"all_gather"}, "W": {"reduce_scatter"}}),
    ],
)
def test_each_stage_of_zero_has_its_collectives(zero: int, expected: dict[str, set[str]]) -> None:
    steps = lowered(MODELS["gpt"], f"dp8 zero{zero}").routes[0].steps
    found: dict[str, set[str]] = {}
    for step in steps:
        if step.cause == "dp":
            found.setdefault(step.phase, set()).add(step.kind)
    assert found == expected


def test_biases_of_row_parallel_products_have_whole_gradients() -> None:
    # The gradient of their result is gathered for the product; only norms see a part of the sequence.
    program = lowered(MODELS["gpt"], "dp1 tp4 sp")
    (norms,) = [step for step in program.routes[0].steps if step.name == "gradients/norms"]
    assert {index for index, _ in norms.state} == {
        index for index, each in enumerate(program.instances) if each.op.kind == "norm"
    }


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("words", ["dp1 tp2", "dp1 tp8", "dp2 tp8 sp", "dp16 tp2", "dp4 tp4 sp"])
def test_what_is_found_is_never_costlier_than_what_is_written_by_hand(name: str, words: str) -> None:
    graph, strategy = MODELS[name], parse_strategy(words)
    program = lowered(graph, words)
    hidden = 1024 * graph.sizes["hidden"] * 2.0  # a sample of 1,024 tokens in bf16
    group, seconds = range(strategy.tp), program.builders[0].network.seconds
    each = {False: seconds("all_reduce", group, hidden), True: 2 * seconds("all_gather", group, hidden)}
    found = [step for step in sent(program, BOTH) if "attention." not in step.name or "output" in step.name]
    assert 0.0 < sum(step.seconds for step in found) <= 4 * each[strategy.sp] * (1 + 1e-9)
