"""From an architecture to its graph."""

from itertools import groupby

from trainwright.model.architecture import Architecture, is_expert_layer, layer_window
from trainwright.model.dlrm import dlrm_graph
from trainwright.model.ends import (
    class_head_block,
    embedding_block,
    encoder_end_block,
    head_block,
    patch_block,
)
from trainwright.model.evoformer import evoformer_graph
from trainwright.model.graph import Graph, Segment
from trainwright.model.layer import LayerKind, layer_block
from trainwright.model.swin import swin_graph

_OTHER_GRAPHS = {
    "swin": swin_graph,
    "evoformer": evoformer_graph,
    "dlrm": dlrm_graph,
}  # of kinds that are no plain stack


def build_graph(architecture: Architecture) -> Graph:
    """The graph of a model: embedding, layers in order, head.

    Neighbouring equal layers share a segment; equal layers anywhere share one block object and its name.
    """
    if architecture.kind in _OTHER_GRAPHS:
        return _OTHER_GRAPHS[architecture.kind](architecture)
    weights_twice = architecture.tied or architecture.kind == "encoder_decoder"
    return Graph(
        name=architecture.name,
        segments=_segments(architecture),
        sizes=_sizes(architecture),
        tied=frozenset({"embedding.weight"}) if weights_twice else frozenset(),
    )


def _segments(arch: Architecture) -> tuple[Segment, ...]:
    if arch.kind == "vision":
        seq = (arch.image_size // arch.patch_size) ** 2 + 1
        first = Segment(block=patch_block(arch), count=1, seq=seq)
        last = Segment(block=class_head_block(arch), count=1, seq=seq)
        return (first, *_layers(arch, arch.layers, "layer", causal=False, seq=seq), last)
    embedding, head = Segment(block=embedding_block(arch), count=1), Segment(block=head_block(arch), count=1)
    if arch.kind == "encoder_decoder":
        return (*_encoder(arch), *_decoder(arch), head)
    return (embedding, *_layers(arch, arch.layers, "layer", causal=arch.kind == "decoder"), head)


def _encoder(arch: Architecture) -> tuple[Segment, ...]:
    seq = arch.encoder_seq or None
    first = Segment(block=embedding_block(arch, "encoder."), count=1, seq=seq)
    last = (Segment(block=encoder_end_block(arch), count=1, seq=seq),) if arch.final_norm else ()
    return (first, *_layers(arch, arch.encoder_layers, "encoder.layer", causal=False, seq=seq), *last)


def _decoder(arch: Architecture) -> tuple[Segment, ...]:
    first = Segment(block=embedding_block(arch, "decoder."), count=1)
    return (first, *_layers(arch, arch.layers, "decoder.layer", causal=True, cross=True))


def _layers(
    arch: Architecture, count: int, name: str, *, causal: bool, cross: bool = False, seq: int | None = None
) -> tuple[Segment, ...]:
    kinds = [_layer_kind(arch, index, name, causal=causal, cross=cross) for index in range(count)]
    blocks = {kind: layer_block(arch, kind) for kind in kinds}
    return tuple(Segment(block=blocks[kind], count=len(list(run)), seq=seq) for kind, run in groupby(kinds))


def _layer_kind(arch: Architecture, index: int, name: str, *, causal: bool, cross: bool) -> LayerKind:
    """The kind of layer `index`: "layer", and ".moe" or ".window" after it where they apply."""
    experts, window = is_expert_layer(arch, index), layer_window(arch, index)
    full_name = name + (".moe" if experts else "") + (".window" if window else "")
    return LayerKind(name=full_name, experts=experts, window=window, causal=causal, cross=cross)


def _sizes(arch: Architecture) -> dict[str, int]:
    sizes = {
        "hidden": arch.hidden,
        "heads": arch.heads,
        "kv_heads": arch.kv_heads,
        "head_dim": arch.head_dim,
        "v_dim": arch.v_head_dim,
        "ffn": arch.ffn,
        "vocab": arch.vocab,
        "positions": arch.positions,
        "q_rank": arch.q_lora_rank,
        "kv_rank": arch.kv_lora_rank,
        "nope_dim": arch.qk_nope_dim,
        "rope_dim": arch.qk_rope_dim,
        "experts": arch.experts,
        "top_k": arch.top_k,
        "expert_ffn": arch.expert_ffn,
        "shared_ffn": arch.shared_ffn,
        "seq_enc": arch.encoder_seq,
        "position_buckets": arch.position_buckets,
        "token_types": arch.token_types,
        "hidden_out": arch.hidden if arch.pooler or arch.mlm_head else 0,
        "pair": 2 if arch.pooler else 0,
        "patch": arch.channels * arch.patch_size**2,
        "classes": arch.classes,
    }
    return {dim: size for dim, size in sizes.items() if size}
