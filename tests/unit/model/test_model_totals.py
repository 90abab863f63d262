"""FLOPs of whole models, against formulas that can be worked by hand."""

import pytest

from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import parameters
from trainwright.model.load import load_model
from trainwright.model.totals import forward_flops, model_flops

TINY = Architecture(name="tiny", layers=2, hidden=8, heads=2, ffn=32, vocab=16, max_seq=4)


def test_forward_flops_of_a_tiny_model_by_hand() -> None:
    # per token and layer: 2 x (4 x 8 x 8 + 2 x 8 x 32) = 1536, attention 4 x 4 keys x 8 = 128
    # per token in the head: 2 x 8 x 16 = 256
    tokens = 3 * 4
    assert forward_flops(build_graph(TINY), batch=3, seq=4) == tokens * (2 * (1536 + 128) + 256)


def test_a_training_step_costs_6nd_and_12lhs_per_token() -> None:
    gpt3 = load_model("gpt3-175b")
    graph = build_graph(gpt3)
    in_matmuls = 12 * gpt3.layers * gpt3.hidden**2 + gpt3.vocab * gpt3.hidden
    expected = 6 * in_matmuls + 12 * gpt3.layers * gpt3.hidden * 2048
    assert model_flops(graph, batch=1, seq=2048) / 2048 == expected


def test_a_causal_mask_halves_attention() -> None:
    graph = build_graph(TINY)
    attention = 2 * 128 * 4  # two layers, 4 tokens
    assert forward_flops(graph, 1, 4) - forward_flops(graph, 1, 4, causal=True) == attention / 2


def test_a_window_limits_the_keys() -> None:
    wide = build_graph(Architecture(name="w", layers=2, hidden=8, heads=2, vocab=16, window=1))
    # a window of one token: 4 x 1 x 8 = 32 per token and layer instead of 128
    assert forward_flops(build_graph(TINY), 1, 4) - forward_flops(wide, 1, 4) == 2 * 4 * (128 - 32)


def test_a_token_pays_for_top_k_experts_only() -> None:
    few = Architecture(name="few", layers=1, hidden=8, heads=2, vocab=16, experts=4, top_k=2)
    many = Architecture(name="many", layers=1, hidden=8, heads=2, vocab=16, experts=8, top_k=2)
    router = 2 * 8 * 4  # four more experts to score
    difference = forward_flops(build_graph(many), 1, 4) - forward_flops(build_graph(few), 1, 4)
    assert difference == 4 * router
    assert parameters(build_graph(many)) > parameters(build_graph(few))


def test_an_encoder_with_its_own_length_is_paid_for_at_that_length() -> None:
    sizes = {"layers": 1, "encoder_layers": 1, "hidden": 8, "heads": 2, "vocab": 16}
    short = Architecture(name="s", kind="encoder_decoder", encoder_seq=4, **sizes)  # type: ignore[arg-type]
    long = Architecture(name="l", kind="encoder_decoder", encoder_seq=8, **sizes)  # type: ignore[arg-type]
    # 4 more encoder tokens: 1536 of matmuls, k and v for cross attention 2 x 2 x 64;
    # self attention 4 x 8 x (64 - 16) pairs, cross attention 4 x 8 x 4 queries x 4 keys
    expected = 4 * (1536 + 256) + 32 * (64 - 16) + 32 * 16
    assert forward_flops(build_graph(long), 1, 4) - forward_flops(build_graph(short), 1, 4) == expected


def test_an_image_model_has_its_own_length() -> None:
    graph = build_graph(load_model("vit-base"))
    assert forward_flops(graph, 1, 1) == forward_flops(graph, 1, 4096)
    assert forward_flops(graph, 1, 1) == pytest.approx(2 * 17.58e9, rel=0.01)  # timm: 17.58 GMACs
