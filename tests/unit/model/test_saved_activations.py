"""What a layer keeps for its backward, against Korthikanti et al. 2022."""

from dataclasses import replace

from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import dim_sizes
from trainwright.model.load import load_model
from trainwright.model.totals import saved_bytes, saved_tensors

BATCH, SEQ = 2, 64


def layer_bytes(architecture: Architecture) -> int:
    graph = build_graph(architecture)
    layer = graph.segments[1]
    return saved_bytes(layer.block, dim_sizes(graph, layer, BATCH, SEQ))


def statistics_bytes(architecture: Architecture) -> int:
    return 4 * BATCH * architecture.heads * SEQ  # fp32, one per head and token


def test_a_gpt3_layer_keeps_34_sbh_bytes_besides_the_attention_matrix() -> None:
    # attention 2 (input) + 4 (q, k) + 2 (v) + 2 (result) + 1 (mask) = 11
    # mlp 2 (input) + 8 (gelu input) + 8 (gelu output) + 1 (mask) = 19; two norms 2 + 2
    gpt3 = load_model("gpt3-175b")
    assert layer_bytes(gpt3) - statistics_bytes(gpt3) == 34 * SEQ * BATCH * gpt3.hidden


def test_without_dropout_the_two_masks_are_not_kept() -> None:
    gpt3 = replace(load_model("gpt3-175b"), dropout=False)
    assert layer_bytes(gpt3) - statistics_bytes(gpt3) == 32 * SEQ * BATCH * gpt3.hidden


def test_a_gated_layer_keeps_gate_up_and_their_product() -> None:
    llama = load_model("llama3-8b")
    # norms' inputs, their outputs, q and the result: 6 hidden; k and v; gate, up and product: 3 ffn
    per_token = 2 * (6 * llama.hidden + 2 * llama.kv_heads * llama.head_dim + 3 * llama.ffn)
    assert layer_bytes(llama) == BATCH * SEQ * per_token + statistics_bytes(llama)


def test_a_tensor_that_two_ops_read_is_kept_once() -> None:
    block = build_graph(load_model("mixtral-8x7b")).segments[1].block
    names = [tensor.name for tensor in saved_tensors(block)]
    assert len(names) == len(set(names))
    assert sum("norm2.out" in (t.name for t in op.saved) for op in block.ops) == 1  # the router's input


def test_experts_keep_top_k_copies_of_each_token() -> None:
    block = build_graph(load_model("mixtral-8x7b")).segments[1].block
    kept = {tensor.name: tensor.dims for tensor in saved_tensors(block)}
    assert kept["dispatched"] == ("batch", "seq", "top_k", "hidden")
    assert kept["experts.activation.out"] == ("batch", "seq", "top_k", "expert_ffn")
