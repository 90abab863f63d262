"""Step time, part by part, on a cluster whose numbers are round."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders import free_stack, gpt, round_cluster, round_device, round_job, without_ends
from trainwright.cluster.types import Cluster
from trainwright.estimate.step import estimate
from trainwright.estimate.types import COMMUNICATION, TIMES, Estimates
from trainwright.model.graph import Graph, parameters
from trainwright.model.totals import model_flops
from trainwright.plan.strategy import Strategy, stack_strategies

LAYERS_ONLY = without_ends(gpt(layers=8))
WHOLE_TILES = round_device(compute_units=64)  # shapes of 1,024 are whole waves of tiles


def free_network(cluster: Cluster) -> Cluster:
    levels = tuple(replace(level, bytes_per_s=1e30) for level in cluster.network.levels)
    return replace(cluster, network=replace(cluster.network, levels=levels))


def run(graph: Graph, strategy: Strategy, global_batch: int | np.int64 = 64, **stack: Any) -> Estimates:
    cluster = round_cluster(strategy.devices, device=WHOLE_TILES)
    job = round_job(graph, cluster, global_batch, stack=free_stack(**stack))  # type: ignore[arg-type]
    return estimate(job, stack_strategies([strategy]))


def parts(
    strategy: Strategy,
    graph: Graph = LAYERS_ONLY,
    global_batch: int = 64,
    *,
    free: bool = False,
    **stack: Any,
) -> dict[str, float]:
    """Parts of the step, and the step itself."""
    cluster = round_cluster(strategy.devices, device=WHOLE_TILES)
    cluster = free_network(cluster) if free else cluster
    result = estimate(
        round_job(graph, cluster, global_batch, stack=free_stack(**stack)), stack_strategies([strategy])
    )
    return {name: float(each[0]) for name, each in result.time_s.items()} | {"step": float(result.step_s[0])}


class TestCompute:
    def test_matrix_products_run_at_the_peak_of_a_perfect_device(self) -> None:
        time = parts(Strategy())
        matrices = 12 * 8 * 1024**2  # 12 L h²
        # 6 FLOPs per parameter and token, 64 sequences of 1,024 tokens, 100 TFLOP/s
        assert time["matmul"] == pytest.approx(6 * matrices * 64 * 1024 / 100e12, rel=1e-6)

    def test_a_step_is_never_faster_than_its_flops(self) -> None:
        graph = gpt()
        flops = model_flops(graph, 64, 1024, causal=True)
        assert parts(Strategy(), graph)["step"] >= flops / 100e12

    def test_full_recomputation_repeats_the_forward(self) -> None:
        plain, again = parts(Strategy()), parts(Strategy(recompute="full"))
        assert again["recompute"] == pytest.approx(again["step"] - plain["step"])
        # of forward and backward, matrix products are 1 : 2
        assert again["recompute"] == pytest.approx(plain["step"] / 3, rel=0.15)

    def test_recomputing_half_of_the_layers_costs_half(self) -> None:
        half = parts(Strategy(recompute="full", recompute_layers=4))["recompute"]
        assert half == pytest.approx(parts(Strategy(recompute="full"))["recompute"] / 2)

    def test_eight_replicas_do_an_eighth_of_the_work(self) -> None:
        one, eight = parts(Strategy()), parts(Strategy(dp=8))
        assert eight["matmul"] == pytest.approx(one["matmul"] / 8)

    def test_a_slow_host_sets_a_floor(self) -> None:
        floor = parts(Strategy(), op_s=1.0)
        assert floor["launch"] > 0.9 * floor["step"]

    def test_a_window_as_long_as_the_sequence_changes_nothing(self) -> None:
        plain, window = (parts(Strategy(), without_ends(gpt(window=w)))["attention"] for w in (0, 1024))
        assert window == pytest.approx(plain)


class TestPipeline:
    """Stages are equal and communication is free."""

    @pytest.mark.parametrize(("pp", "microbatches"), [(2, 4), (4, 4), (4, 16), (8, 64)])
    def test_the_bubble_of_1f1b_is_stages_less_one_over_microbatches(
        self, pp: int, microbatches: int
    ) -> None:
        time = parts(Strategy(pp=pp), global_batch=microbatches, free=True)
        work = time["step"] - time["bubble"] - time["optimizer"]
        assert time["bubble"] / work == pytest.approx((pp - 1) / microbatches)

    @pytest.mark.parametrize(("pp", "vpp", "microbatches"), [(2, 2, 4), (4, 2, 8), (2, 4, 16)])
    def test_interleaving_divides_the_bubble(self, pp: int, vpp: int, microbatches: int) -> None:
        time = parts(Strategy(pp=pp, vpp=vpp, schedule="interleaved"), global_batch=microbatches, free=True)
        work = time["step"] - time["bubble"] - time["optimizer"]
        assert time["bubble"] / work == pytest.approx((pp - 1) / (vpp * microbatches))

    def test_zero_bubble_waits_less_than_1f1b(self) -> None:
        plain, zero = (parts(Strategy(pp=4, schedule=name), free=True)["bubble"] for name in ("1f1b", "zb"))
        assert 0 <= zero < plain

    def test_gpipe_waits_as_long_as_1f1b(self) -> None:
        plain, gpipe = (parts(Strategy(pp=4, schedule=name), free=True)["step"] for name in ("1f1b", "gpipe"))
        assert gpipe == pytest.approx(plain)

    def test_no_pipeline_has_no_bubble(self) -> None:
        time = parts(Strategy(dp=4))
        assert (time["bubble"], time["pp"]) == (0.0, 0.0)

    def test_parts_add_up_where_a_middle_stage_is_the_busiest(self) -> None:
        # 10 layers on 4 stages: 2 + 3 + 3 + 2; the head is small
        time = parts(Strategy(pp=4), gpt(layers=10, vocab=1024))
        assert sum(time[name] for name in TIMES) == pytest.approx(time["step"])

    def test_each_microbatch_is_received_there_and_back(self) -> None:
        # 1024·1024·2 bytes at 100 GB/s, 64 times; a stage between others waits forward and backward
        assert parts(Strategy(pp=2))["pp"] == pytest.approx(64 * 2 * 1024**2 / 100e9)
        assert parts(Strategy(pp=4))["pp"] == pytest.approx(64 * 2 * 2 * 1024**2 / 100e9)

    def test_an_interleaved_end_takes_the_place_of_a_layer(self) -> None:
        # 14 layers and two ends on 4 stages of 4 chunks: each microbatch takes 4 layers on every stage, as
        # the embedding and the head, shorter than a layer, are alone in their chunks
        strategy = Strategy(pp=4, vpp=4, schedule="interleaved")
        graph = gpt(layers=14, vocab=1024)
        ends, none = (parts(strategy, each, 8, free=True) for each in (graph, without_ends(graph)))
        assert ends["step"] - ends["optimizer"] == pytest.approx(none["step"] - none["optimizer"])

    def test_a_large_stage_early_in_the_pipeline_works_ahead(self) -> None:
        # 9 layers on 4 stages: 2 + 3 + 2 + 2. Of 8 microbatches the second stage does two forwards while it
        # waits for its first backward; if all forwards come first, they are waited for as well.
        graph = without_ends(gpt(layers=9))
        early, late = (
            parts(Strategy(pp=4, schedule=name), graph, 8, free=True)["step"] for name in ("1f1b", "gpipe")
        )
        assert early < late


class TestDataParallelism:
    P = parameters(LAYERS_ONLY)

    def test_gradients_go_round_a_ring(self) -> None:
        # 2·7/8 · 4 bytes · P / 100 GB/s
        time = parts(Strategy(dp=8), reduce_bytes=4.0)
        assert time["dp"] == pytest.approx(2 * 7 / 8 * 4 * self.P / 100e9)

    def test_zero_1_scatters_gradients_and_gathers_weights(self) -> None:
        # 7/8 · (4 + 2) bytes · P / 100 GB/s
        time = parts(Strategy(dp=8, zero=1), reduce_bytes=4.0)
        assert time["dp"] == pytest.approx(7 / 8 * 6 * self.P / 100e9)

    def test_zero_3_gathers_twice_and_scatters_once_per_microbatch(self) -> None:
        # 64 / 8 microbatches · 7/8 · (2 + 2 + 4) bytes · P / 100 GB/s
        time = parts(Strategy(dp=8, zero=3), reduce_bytes=4.0)
        assert time["dp"] == pytest.approx(8 * 7 / 8 * 8 * self.P / 100e9)

    def test_what_overlaps_is_hidden_but_still_counted(self) -> None:
        # Half of it hides, but for the first of 8 layers, whose gradients come last.
        strategy = stack_strategies([Strategy(dp=8)])
        job = round_job(LAYERS_ONLY, round_cluster(8), stack=free_stack(dp_overlap=0.5))
        result = estimate(job, strategy)
        assert result.time_s["dp"] == pytest.approx(result.communication_s["dp"] * (1 - 7 / 8 / 2))

    def test_without_overlap_nothing_is_hidden(self) -> None:
        hidden, shown = (parts(Strategy(dp=8, overlap=o), dp_overlap=0.5)["dp"] for o in (True, False))
        assert shown * (1 - 7 / 8 / 2) == pytest.approx(hidden)


class TestTensorParallelism:
    def test_a_layer_sums_two_hidden_states_each_way(self) -> None:
        # 64 microbatches · 8 layers · 4 all-reduces of 2 MiB: 2·3/4 · 2 MiB / 100 GB/s
        time = parts(Strategy(tp=4))
        assert time["tp"] == pytest.approx(64 * 8 * 4 * 1.5 * 2 * 1024**2 / 100e9)

    def test_sequence_parallelism_moves_as_many_bytes(self) -> None:
        assert parts(Strategy(tp=4, sp=True))["tp"] == pytest.approx(parts(Strategy(tp=4))["tp"])


class TestContextParallelism:
    # 64 microbatches · 8 layers · 3/4 of keys and values, 2 MiB each, at 100 GB/s, once forward, twice back
    ALL = 64 * 8 * 3 * 3 / 4 * 2 * 2 * 1024**2 / 100e9

    @pytest.mark.parametrize("kind", ["ring", "allgather"])
    def test_keys_and_values_go_round_once_forward_and_twice_backward(self, kind: str) -> None:
        assert parts(Strategy(cp=4, cp_kind=kind))["cp"] == pytest.approx(self.ALL)

    def test_a_ring_hides_behind_attention_and_a_gather_does_not(self) -> None:
        ring, gather = (parts(Strategy(cp=4, cp_kind=k), cp_overlap=0.1)["cp"] for k in ("ring", "allgather"))
        assert ring == pytest.approx(0.9 * self.ALL)
        assert gather == pytest.approx(self.ALL)


class TestOptimizer:
    P = parameters(LAYERS_ONLY)

    def test_the_update_is_traffic(self) -> None:
        # 12 read, 12 written, 4 + 4 of gradient, 2 of weight: 34 bytes · P / 1 TB/s
        time = parts(Strategy(), optimizer_bytes=12.0, gradient_bytes=4.0)
        assert time["optimizer"] == pytest.approx(34 * self.P / 1e12)

    def test_zero_shares_the_update(self) -> None:
        one, eight = parts(Strategy(dp=8)), parts(Strategy(dp=8, zero=1))
        assert eight["optimizer"] == pytest.approx(one["optimizer"] / 8)

    def test_an_offloaded_update_crosses_to_the_host(self) -> None:
        here, there = parts(Strategy()), parts(Strategy(offload="optimizer"))
        assert there["optimizer"] > 2 * here["optimizer"]  # 10 GB/s against 1 TB/s

    def test_experts_that_are_whole_on_tensor_ranks_are_updated_whole(self) -> None:
        graph = gpt(experts=8, top_k=2, expert_ffn=4096)  # etp = 1: experts are not split by tp
        one, eight = (run(graph, Strategy(tp=tp)) for tp in (1, 8))
        time = eight.time_s["optimizer"] / one.time_s["optimizer"]
        assert time == pytest.approx(eight.memory_bytes["optimizer"] / one.memory_bytes["optimizer"])


class TestOffload:
    def test_offloaded_activations_cross_to_the_host_and_back(self) -> None:
        time = parts(Strategy(offload="activations", overlap=False))
        kept = run(LAYERS_ONLY, Strategy()).memory_bytes["activations"][0]
        # 64 microbatches, there and back at 10 GB/s; the last of 8 layers stays
        assert time["offload"] == pytest.approx(64 * 2 * kept * 7 / 8 / 10e9)
        assert time["step"] == pytest.approx(parts(Strategy(overlap=False))["step"] + time["offload"])

    @pytest.mark.parametrize("layers", [1, 3, 7])
    def test_offloading_some_layers_copies_as_many(self, layers: int) -> None:
        strategy = Strategy(offload="activations", offload_layers=layers, overlap=False)
        result = run(LAYERS_ONLY, strategy)
        kept = run(LAYERS_ONLY, Strategy()).memory_bytes["activations"][0]
        assert result.time_s["offload"][0] == pytest.approx(64 * 2 * kept * layers / 8 / 10e9)
        # One layer is on its way while those that stay are kept.
        assert result.memory_bytes["activations"][0] == pytest.approx(kept * (8 - layers + 1) / 8)
        assert result.host_bytes[0] == pytest.approx(kept * layers / 8)

    def test_all_but_the_last_layer_are_as_many_as_all(self) -> None:
        all_but_one, every = (
            run(LAYERS_ONLY, Strategy(offload="activations", offload_layers=count)) for count in (7, 0)
        )
        assert all_but_one.step_s == pytest.approx(every.step_s)
        assert all_but_one.total_bytes == pytest.approx(every.total_bytes)

    def test_what_compute_hides_costs_nothing(self) -> None:
        shown, hidden = (parts(Strategy(offload="activations", overlap=o))["offload"] for o in (False, True))
        assert 0 <= hidden < shown


def test_the_batch_may_be_of_numpy() -> None:
    assert run(gpt(), Strategy(), np.int64(64)).step_s == run(gpt(), Strategy(), 64).step_s


def test_nothing_is_estimated_to_nothing() -> None:
    result = estimate(round_job(gpt(), round_cluster(1)), stack_strategies([]))
    assert len(result) == 0
    assert set(result.time_s) == set(TIMES)


@pytest.mark.parametrize(("dp", "micro_batch", "count"), [(1, 1, 64), (8, 1, 8), (8, 4, 2), (64, 1, 1)])
def test_the_batch_is_cut_into_microbatches(dp: int, micro_batch: int, count: int) -> None:
    one = run(LAYERS_ONLY, Strategy(micro_batch=micro_batch), micro_batch).busy_s[0]
    assert run(LAYERS_ONLY, Strategy(dp=dp, micro_batch=micro_batch)).busy_s[0] == pytest.approx(count * one)


def test_every_strategy_may_have_its_own_batch() -> None:
    batch = stack_strategies([Strategy(dp=2), Strategy(dp=2)])
    job = round_job(LAYERS_ONLY, round_cluster(2), 8)
    both = estimate(replace(job, global_batch=np.array([8, 32])), batch)
    assert both.busy_s[1] == pytest.approx(4 * both.busy_s[0])


def test_every_part_is_named_and_as_long_as_the_batch() -> None:
    batch = stack_strategies([Strategy(dp=8), Strategy(tp=2, pp=4)])
    result = estimate(round_job(gpt(), round_cluster(8)), batch)
    assert set(result.time_s) == set(TIMES)
    assert set(result.communication_s) == set(COMMUNICATION)
    assert all(len(each) == 2 for each in (*result.time_s.values(), *result.communication_s.values()))
    assert len(result) == 2
