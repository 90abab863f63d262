"""Memory of the fullest device, against the formulas of ZeRO and of Korthikanti et al."""

from typing import Any

import numpy as np
import pytest

from tests.builders import floats, free_stack, gpt, round_cluster, round_job, without_ends
from trainwright.estimate.memory import Activations, fullest_row
from trainwright.estimate.shapes import distinct_shapes
from trainwright.estimate.step import build_model, distinct_recomputes, estimate
from trainwright.estimate.types import MEMORY
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph, parameters
from trainwright.model.load import load_model
from trainwright.plan.recompute_modules import RECOMPUTES
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.stack.capability import Capability
from trainwright.stack.state import StateLayout

MIXED: dict[str, Any] = {
    "gradient_bytes": 2.0,
    "optimizer_bytes": 12.0,
}  # with 2 of weights: 16 bytes per parameter


def memory(graph: Graph, strategy: Strategy, global_batch: int = 64, **stack: Any) -> dict[str, float]:
    job = round_job(graph, round_cluster(strategy.devices), global_batch, stack=free_stack(**stack))
    result = estimate(job, stack_strategies([strategy]))
    return {name: float(part[0]) for name, part in result.memory_bytes.items()}


def state_bytes(graph: Graph, strategy: Strategy, **stack: Any) -> float:
    parts = memory(graph, strategy, **(MIXED | stack))
    return parts["weights"] + parts["gradients"] + parts["optimizer"]


class TestState:
    def test_adam_in_mixed_precision_takes_16_bytes_per_parameter(self) -> None:
        graph = gpt()
        assert state_bytes(graph, Strategy()) == pytest.approx(16 * parameters(graph))

    @pytest.mark.parametrize(
        ("zero", "bytes_per_parameter"),
        [(0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8)],  # dp = 8
    )
    def test_zero_shards_optimizer_then_gradients(self, zero: int, bytes_per_parameter: float) -> None:
        graph = gpt()
        state = state_bytes(graph, Strategy(dp=8, zero=zero))
        assert state == pytest.approx(bytes_per_parameter * parameters(graph))

    def test_zero_3_shards_all_but_the_layers_that_are_gathered(self) -> None:
        graph = gpt(layers=16)
        sharded = 16 * parameters(graph) / 8
        layer = parameters(without_ends(graph)) / 16
        state = state_bytes(graph, Strategy(dp=8, zero=3))
        assert sharded <= state <= sharded + 2 * 2.0 * layer * 1.01  # this layer and the next, 2 bytes each

    @pytest.mark.parametrize("zero", [2, 3])
    def test_sharded_gradients_are_whole_for_the_layer_in_backward(self, zero: int) -> None:
        graph, strategy = gpt(layers=16), Strategy(dp=8, zero=zero)
        fully_shard = Capability(state=StateLayout())  # 2 bytes of gradients, 4 of the reduce-scatter's input
        layer = parameters(without_ends(graph)) / 16
        held = state_bytes(graph, strategy, capability=fully_shard) - state_bytes(graph, strategy)
        assert held == pytest.approx(6.0 * layer)

    def test_gradients_kept_in_fp32_take_two_bytes_more(self) -> None:
        graph = gpt()
        assert state_bytes(graph, Strategy(), gradient_bytes=4.0) == pytest.approx(18 * parameters(graph))

    def test_hybrid_sharding_shards_inside_its_groups_only(self) -> None:
        whole = memory(gpt(), Strategy(dp=8, zero=3), **MIXED)
        hybrid = memory(gpt(), Strategy(dp=8, zero=3, shard=2), **MIXED)
        assert hybrid["optimizer"] == pytest.approx(4 * whole["optimizer"])  # 12 P / 2 against 12 P / 8

    def test_an_offloaded_optimizer_leaves_the_device(self) -> None:
        assert memory(gpt(), Strategy(offload="optimizer"), **MIXED)["optimizer"] == 0.0

    def test_fp32_weights_take_four_bytes_and_are_their_own_main_copy(self) -> None:
        half, whole = (memory(gpt(), Strategy(precision=p), **MIXED) for p in ("bf16", "fp32"))
        assert whole["weights"] == 2 * half["weights"]
        assert whole["optimizer"] == pytest.approx(8 / 12 * half["optimizer"])

    def test_zero_3_never_gathers_more_than_there_is(self) -> None:
        # 2 stages of 1 layer: two gathered layers would be more than the stage has
        two, three = (state_bytes(gpt(layers=2), Strategy(dp=2, pp=2, zero=z)) for z in (2, 3))
        assert three <= two

    @pytest.mark.parametrize("zero", [2, 3])
    def test_a_stack_that_keeps_a_pipelines_weights_gathered_holds_all_their_bytes(self, zero: int) -> None:
        layout = Capability(state=StateLayout(whole_with_pipeline=True, unit_gradient_bytes=0.0))
        sharded, whole = (
            memory(gpt(), Strategy(dp=4, pp=2, zero=z), capability=layout, **MIXED) for z in (zero, 0)
        )
        assert sharded["weights"] == pytest.approx(whole["weights"])  # 2 bytes each, on every rank
        assert sharded["gradients"] == pytest.approx(whole["gradients"])

    def test_ends_that_stay_gathered_are_on_the_stages_that_have_them(self) -> None:
        # 4 stages of 8 layers, 8 ranks each: a shard, two gathered layers, and the end that the stage has
        state = StateLayout(whole_ends=True, unit_gradient_bytes=0.0)
        graph, strategy = gpt(layers=32), Strategy(dp=8, pp=4, zero=3)
        job = round_job(
            graph, round_cluster(32), 64, stack=free_stack(capability=Capability(state=state), **MIXED)
        )
        strategies = stack_strategies([strategy])
        shapes, shape = distinct_shapes(strategies)
        model = build_model(job, job, shapes, strategies, shape, distinct_recomputes(strategies))
        layer, embedding, head = (
            float(each.costs.dense_parameters[0]) for each in (model.layer, model.first, model.last)
        )
        weights = [float(each.weights[0]) for each in model.layouts.states]
        expected = [2.0 * ((8 * layer + end) / 8 + 2 * layer + end) for end in (embedding, 0.0, head)]
        assert weights == pytest.approx(expected)

    # GB per device of Transformer-1T on 1,024 devices, MP = tp·pp, at ZeRO-0 to 3 (COMET, arXiv 2211.16648).
    @pytest.mark.parametrize(
        ("tp", "pp", "dp", "table"),
        [
            (16, 16, 4, (62.9, 27.5, 21.6, 15.7)),
            (8, 16, 8, (125.8, 43.3, 29.5, 15.7)),
            (8, 8, 16, (251.7, 74.7, 45.2, 15.7)),
            (8, 4, 32, (503.3, 137.6, 76.7, 15.7)),
            (8, 2, 64, (1007.0, 263.5, 139.6, 15.7)),
            (8, 1, 128, (2013.0, 515.1, 265.4, 15.7)),
            (4, 1, 256, (4027.0, 1018.0, 517.1, 15.7)),
        ],
    )
    def test_the_state_of_transformer_1t_is_the_published_table(
        self, tp: int, pp: int, dp: int, table: tuple[float, ...]
    ) -> None:
        graph = without_ends(build_graph(load_model("transformer-1t")))  # the table counts 12 L h² alone
        layer = 12 * 25600**2 / tp
        for zero, published in enumerate(table):
            state = state_bytes(graph, Strategy(tp=tp, pp=pp, dp=dp, zero=zero))
            gathered = 2 * 2.0 * layer if zero == 3 else 0.0
            assert published * 0.995 <= state / 1e9 <= published * 1.005 + gathered / 1e9


class TestActivations:
    """Per layer, in units of s·b·h bytes; a = 8 heads, s = h = 1024, so 5as/h = 40."""

    SBH = 1024 * 1024
    LAYERS = 8

    def kept(self, **knobs: Any) -> float:
        """Activations of 8 layers, one microbatch of one sequence, in s·b·h per layer."""
        parts = memory(without_ends(gpt(layers=self.LAYERS)), Strategy(**knobs), attention="unfused")
        return parts["activations"] / self.SBH / self.LAYERS

    def test_a_layer_keeps_34_and_the_score_matrix(self) -> None:
        assert self.kept() == pytest.approx(34 + 40, rel=2e-3)

    def test_tensor_parallelism_leaves_ten_whole(self) -> None:
        assert self.kept(tp=4) == pytest.approx(10 + 24 / 4 + 40 / 4, rel=2e-3)

    def test_sequence_parallelism_splits_everything(self) -> None:
        assert self.kept(tp=4, sp=True) == pytest.approx((34 + 40) / 4, rel=2e-3)

    def test_selective_recomputation_drops_the_score_matrix(self) -> None:
        assert self.kept(tp=4, sp=True, recompute="core_attn") == pytest.approx(34 / 4, rel=2e-3)

    def test_full_recomputation_keeps_the_input(self) -> None:
        assert self.kept(recompute="full") == pytest.approx(2.0)

    def test_recomputing_some_layers_keeps_the_others_whole(self) -> None:
        # 2 of 8 layers keep 2, the others 74
        assert self.kept(recompute="full", recompute_layers=2) == pytest.approx(
            (2 * 2 + 6 * 74) / 8, rel=2e-3
        )

    def test_a_larger_microbatch_keeps_in_proportion(self) -> None:
        assert self.kept(micro_batch=4) == pytest.approx(4 * self.kept())

    def test_context_parallelism_splits_the_sequence(self) -> None:
        assert self.kept(cp=4) == pytest.approx(self.kept() / 4)


class TestPipeline:
    def in_flight(self, global_batch: int = 64, **knobs: Any) -> float:
        """Microbatches' worth of activations of a first stage of 2 of 8 layers."""
        graph = without_ends(gpt(layers=8))
        stage = memory(graph, Strategy(pp=4, **knobs), global_batch)["activations"]
        return stage / (memory(graph, Strategy())["activations"] / 4)

    def test_the_first_stage_of_1f1b_holds_as_many_microbatches_as_stages(self) -> None:
        assert self.in_flight() == pytest.approx(4)

    def test_gpipe_holds_all_microbatches(self) -> None:
        assert self.in_flight(schedule="gpipe") == pytest.approx(64)

    def test_a_short_step_holds_no_more_than_it_has(self) -> None:
        assert self.in_flight(global_batch=2) == pytest.approx(2)

    def test_interleaving_holds_a_little_more(self) -> None:
        # pp·(1 + (pp − 1)/(pp·vpp)) = 4·(1 + 3/8)
        assert self.in_flight(vpp=2, schedule="interleaved") == pytest.approx(4 * (1 + 3 / 8))

    def test_deferred_weight_gradients_keep_what_is_not_recomputed(self) -> None:
        # The last of 4 rows has one microbatch in flight, which keeps its inputs, and three deferred ones.
        graph = without_ends(gpt(layers=8))
        whole, inputs = (
            memory(graph, Strategy(recompute=name))["activations"] / 4 for name in ("none", "full")
        )
        found = memory(graph, Strategy(pp=4, schedule="zb", recompute="full"))["activations"]
        assert found == pytest.approx(3 * whole + inputs)


@pytest.mark.parametrize(
    ("kept", "offload", "row"),
    [(2.0, "none", 5.0), (4.0, "none", 1.0), (4.0, "activations", 5.0)],  # 3 bytes without recomputation
)
def test_with_deferred_gradients_the_first_row_is_fullest_if_modules_keep_more_than_they_free(
    kept: float, offload: str, row: float
) -> None:
    code, nothing = RECOMPUTES.index("context"), floats(0.0)
    rows = np.zeros(len(RECOMPUTES), dtype=np.int64)
    rows[code] = 1
    table = Activations(
        rows=rows, kept=np.array([[3.0], [kept]]), gathered=nothing, working=nothing, first_end=nothing,
        last_end=nothing, logits=nothing,
    )  # fmt: skip
    strategies = stack_strategies([Strategy(pp=8, schedule="zb", recompute="context", offload=offload)])
    assert fullest_row(table, strategies, np.zeros(1, dtype=np.int64), floats(5.0)) == [row]


def test_the_total_is_the_sum_of_its_parts() -> None:
    batch = stack_strategies([Strategy(dp=8), Strategy(tp=2, pp=4), Strategy(dp=2, zero=3, pp=4)])
    result = estimate(
        round_job(gpt(), round_cluster(8), stack=free_stack(fragmentation=0.1, context_bytes=1e9)), batch
    )
    assert set(result.memory_bytes) == set(MEMORY)
    assert result.total_bytes == pytest.approx(sum(result.memory_bytes.values()))


def test_fragmentation_is_a_share_of_what_is_used() -> None:
    parts = memory(gpt(), Strategy(), fragmentation=0.1)
    assert parts["reserve"] == pytest.approx(0.1 * sum(parts[name] for name in MEMORY[:4]))


@pytest.mark.parametrize(
    ("strategy", "axes"),
    [
        (Strategy(), 0),
        (Strategy(dp=8), 1),
        (Strategy(dp=2, tp=2, pp=2), 3),
        (Strategy(cp=2), 2),  # gradients are reduced over cp too
    ],
)
def test_a_device_has_a_communicator_for_each_axis(strategy: Strategy, axes: int) -> None:
    found = memory(gpt(), strategy, context_bytes=1e9, communicator_bytes=2e9)
    assert found["buffers"] == 1e9 + axes * 2e9


def test_a_fused_loss_keeps_no_fp32_copies_of_logits() -> None:
    graph, strategy = gpt(), Strategy(dp=8)
    plain = memory(graph, strategy, logits_bytes=10.0)["activations"]
    fused = memory(graph, strategy, logits_bytes=10.0, fused_loss=True)["activations"]
    logits = round_job(graph, round_cluster(8)).seq * graph.sizes["vocab"]
    assert plain - fused == pytest.approx((10.0 - 4.0) * logits)


def test_imbalance_of_experts_scales_activations_of_routed_tokens_alone() -> None:
    graph, strategy = build_graph(load_model("mixtral-8x7b")), Strategy(dp=8, ep=8)
    even, uneven = (memory(graph, strategy, expert_imbalance=factor)["activations"] for factor in (1.0, 1.5))
    twice = memory(graph, strategy, expert_imbalance=2.0)["activations"]
    assert even < uneven < 1.5 * even  # attention and the residual stream do not grow
    assert twice - uneven == pytest.approx(uneven - even)
    assert memory(graph, strategy, stated_imbalance=2.0)["activations"] == twice
    dense = build_graph(load_model("llama2-7b"))
    assert memory(dense, Strategy(dp=8), expert_imbalance=2.0) == memory(dense, Strategy(dp=8))
