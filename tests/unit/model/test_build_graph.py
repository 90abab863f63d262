"""The order and shape of the operators that an architecture becomes."""

from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Block, Op
from trainwright.model.load import load_model


def names(block: Block) -> list[str]:
    return [op.name for op in block.ops]


def op(block: Block, name: str) -> Op:
    return next(op for op in block.ops if op.name == name)


def test_a_decoder_is_embedding_layers_head() -> None:
    graph = build_graph(load_model("llama3-8b"))
    assert [(s.block.name, s.count) for s in graph.segments] == [("embedding", 1), ("layer", 32), ("head", 1)]
    assert names(graph.segments[1].block) == [
        *("norm1", "attention.qkv", "attention.rope", "attention.core", "attention.output", "residual1"),
        *("norm2", "ffn.up", "ffn.activation", "ffn.down", "residual2"),
    ]
    assert names(graph.segments[2].block) == ["final_norm", "logits", "loss"]


def test_qkv_is_one_op_with_three_weights_summed_over_hidden() -> None:
    qkv = op(build_graph(load_model("llama3-8b")).segments[1].block, "attention.qkv")
    assert [w.dims for w in qkv.weights] == [
        ("hidden", "heads", "head_dim"),
        ("hidden", "kv_heads", "head_dim"),
        ("hidden", "kv_heads", "v_dim"),
    ]
    assert qkv.contracted == ("hidden",)
    assert [t.name for t in (qkv.output, *qkv.extra_outputs)] == ["attention.q", "attention.k", "attention.v"]


def test_an_expert_layer_routes_dispatches_and_combines() -> None:
    graph = build_graph(load_model("deepseek-v3"))
    assert [(s.block.name, s.count) for s in graph.segments[1:-1]] == [("layer", 3), ("layer.moe", 58)]
    assert names(graph.segments[2].block) == [
        *("norm1", "attention.q_down", "attention.q_norm", "attention.q_up"),
        *("attention.kv_down", "attention.kv_norm", "attention.kv_up", "attention.rope"),
        *("attention.core", "attention.output", "residual1", "norm2", "router", "dispatch"),
        *("experts.up", "experts.activation", "experts.down"),
        *("shared.up", "shared.activation", "shared.down", "combine", "residual2"),
    ]


def test_alternating_windows_keep_their_order_and_share_their_blocks() -> None:
    layers = build_graph(load_model("gpt-oss-20b")).segments[1:-1]
    assert [s.block.name for s in layers[:3]] == ["layer.moe.window", "layer.moe", "layer.moe.window"]
    assert len(layers) == 24
    assert len({id(s.block) for s in layers}) == 2
    assert op(layers[0].block, "attention.core").window == 128
    assert op(layers[1].block, "attention.core").window is None


def test_every_second_layer_of_maverick_has_experts() -> None:
    layers = build_graph(load_model("llama4-maverick")).segments[1:-1]
    experts = [".moe" in s.block.name for s in layers for _ in range(s.count)]
    assert experts == [False, True] * 24


def test_a_parallel_block_reads_one_norm_and_adds_once() -> None:
    block = build_graph(load_model("palm-540b")).segments[1].block
    assert [op.name for op in block.ops if op.kind == "norm"] == ["norm1"]
    assert block.ops[-1].name == "residual1"
    assert len(block.ops[-1].inputs) == 3


def test_a_decoder_of_two_stacks_attends_to_the_encoder() -> None:
    graph = build_graph(load_model("t5-11b"))
    assert [s.block.name for s in graph.segments] == [
        *("encoder.embedding", "encoder.layer", "encoder.end"),
        *("decoder.embedding", "decoder.layer", "head"),
    ]
    decoder = graph.segments[4].block
    assert op(decoder, "cross.core").contracted == ("seq_enc",)
    assert not op(decoder, "cross.core").causal
    assert op(decoder, "attention.core").causal
    assert not op(graph.segments[1].block, "attention.core").causal


def test_post_norm_blocks_normalise_after_the_sum() -> None:
    block = build_graph(load_model("bert-base")).segments[1].block
    order = [name for name in names(block) if "norm" in name or "residual" in name]
    assert order == ["residual1", "norm1", "residual2", "norm2"]


def test_each_op_reads_what_an_earlier_op_wrote() -> None:
    outside = {"stream", "tokens", "pixels", "encoded", "class_state", "probabilities"}
    for name in ("gpt2", "gemma-2-9b", "olmo2-7b", "gpt-j-6b", "deepseek-v3", "qwen2-57b-a14b", "t5-11b"):
        for segment in build_graph(load_model(name)).segments:
            written = set(outside)
            for op in segment.block.ops:
                assert {t.name for t in op.inputs} <= written, (name, op.name)
                written |= {op.output.name, *(t.name for t in op.extra_outputs)}


def test_a_graph_is_the_same_value_each_time() -> None:
    tiny = Architecture(name="tiny", layers=2, hidden=8, heads=2, vocab=16)
    assert build_graph(tiny) == build_graph(tiny)
