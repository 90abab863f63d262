"""Bytes that parallel axes move and keep, checked by hand where engineers look first."""

from typing import Any

import pytest

from tests.builders import free_stack, gpt, round_cluster, round_job, without_ends
from trainwright.cost.operators import attention_keys
from trainwright.estimate.shapes import distinct_shapes, split_sizes
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Estimates
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.plan.strategy import Strategy, stack_strategies

LAYERS_ONLY = without_ends(gpt(layers=8))
EXPERTS = without_ends(gpt(layers=4, experts=8, top_k=2, expert_ffn=4096))


def run(graph: Graph, strategy: Strategy, global_batch: int = 64, **stack: Any) -> Estimates:
    job = round_job(graph, round_cluster(strategy.devices), global_batch, stack=free_stack(**stack))
    return estimate(job, stack_strategies([strategy]))


def test_zero_2_scatters_gradients_in_every_microbatch() -> None:
    # dp8, 8 microbatches: ZeRO-1 scatters once and gathers once, ZeRO-2 scatters 8 times and gathers once
    one, two = (
        run(LAYERS_ONLY, Strategy(dp=8, zero=zero), reduce_bytes=2.0).communication_s["dp"][0]
        for zero in (1, 2)
    )
    assert two / one == pytest.approx((8 * 2 + 2) / (2 + 2))


def test_zero_1_and_2_cost_the_same_without_accumulation() -> None:
    one, two = (run(LAYERS_ONLY, Strategy(dp=8, zero=zero), 8).communication_s["dp"][0] for zero in (1, 2))
    assert two == pytest.approx(one)


def test_expert_tensor_parallelism_does_not_change_what_experts_keep() -> None:
    # each of etp ranks keeps etp times the tokens at 1/etp of the width, and of gathered inputs its own
    kept = [
        run(EXPERTS, Strategy(dp=2, tp=4, sp=True, ep=2, etp=etp)).memory_bytes["activations"][0]
        for etp in (1, 2, 4)
    ]
    assert kept == pytest.approx([kept[0]] * 3)


def test_shards_of_experts_are_reduced_over_their_own_replicas() -> None:
    # ep8 in shard groups of 8: every rank owns its expert alone, so gradients of experts are summed whole on
    # dp64/8 = 8 replicas, those of dense weights by an eighth each
    plain = without_ends(gpt(layers=4))
    dense = run(plain, Strategy(dp=64, zero=3, shard=8), 64, reduce_bytes=2.0)
    experts = run(EXPERTS, Strategy(dp=64, ep=8, zero=3, shard=8), 64, reduce_bytes=2.0)
    assert experts.communication_s["dp"][0] > 2 * dense.communication_s["dp"][0]


def translator(**changes: Any) -> Graph:
    values: dict[str, Any] = {"vocab": 32768, "tied": True, "gated": False} | changes
    return build_graph(
        Architecture(
            name="t", kind="encoder_decoder", layers=2, encoder_layers=2, hidden=1024, heads=16, **values
        )
    )


def test_cross_attention_meets_every_key_however_queries_are_split() -> None:
    graph = translator(encoder_seq=512)
    core = next(op for s in graph.segments for op in s.block.ops if op.name == "cross.core")
    shapes, _ = distinct_shapes(stack_strategies([Strategy(cp=8)]))
    sizes = split_sizes(graph.sizes, {"seq": 1024.0, "seq_enc": 512.0}, shapes, "attention")
    assert attention_keys(core, sizes) == pytest.approx(512)
    assert sizes["seq"] == pytest.approx(1024 / 8)


def test_an_encoder_decoder_holds_its_logits_once() -> None:
    # 8 bytes for each of 1,024 tokens × (65,536 − 1,024) more words, and nothing else but weights grows
    small, large = (
        run(translator(vocab=vocab), Strategy(), logits_bytes=8.0).memory_bytes["activations"][0]
        for vocab in (1024, 65536)
    )
    assert large - small == pytest.approx(8 * 1024 * (65536 - 1024), rel=0.01)


def test_an_offloaded_update_runs_at_the_speed_of_the_hosts_memory() -> None:
    here, there = (
        run(LAYERS_ONLY, Strategy(offload=offload)).time_s["optimizer"][0]
        for offload in ("none", "optimizer")
    )
    assert there / here > 100  # 10 GB/s against 1 TB/s, and the way there and back
