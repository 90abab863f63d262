"""Small models of every family that the runtime knows."""

from collections.abc import Mapping
from functools import cache

from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph

_SIZES = {"layers": 2, "hidden": 8, "heads": 4, "ffn": 16, "vocab": 12}
_BIASES = {"norm": "layer", "qkv_bias": True, "output_bias": True, "mlp_bias": True}
_EXPERTS = {"gated": True, "experts": 4, "top_k": 2, "expert_ffn": 16}
SMALL: Mapping[str, Mapping[str, object]] = {
    "gpt": {**_SIZES, **_BIASES, "positions": 8},
    "tied": {**_SIZES, "positions": 8, "tied": True, "head_bias": True},
    "llama": {**_SIZES, "kv_heads": 2, "gated": True},
    "parallel": {
        **_SIZES, "kv_heads": 1, "gated": True, "parallel_block": True, "shared_norm": True,
        "qk_norm": "head",
    },
    "latent": {
        **_SIZES, "gated": True, "kv_lora_rank": 6, "q_lora_rank": 6, "qk_nope_dim": 2, "qk_rope_dim": 2,
        "v_head_dim": 2,
    },
    "middle": {**_SIZES, "layers": 4, "gated": True},
    "deep": {**_SIZES, "layers": 8, "gated": True},
    "broad": {**_SIZES, "layers": 8, "hidden": 16, "heads": 8, "gated": True},
    "experts": {**_SIZES, **_EXPERTS},
    "shared experts": {**_SIZES, **_EXPERTS, "shared_experts": 1, "first_dense": 1},
    "translator": {
        **_SIZES, **_BIASES, "kind": "encoder_decoder", "encoder_layers": 2, "positions": 8, "tied": True,
    },
    "swin": {
        "kind": "swin", "layers": 4, "depths": (2, 2), "hidden": 8, "heads": 4, "image_size": 16,
        "patch_size": 2, "window": 2, "classes": 6,
    },
    "evoformer": {
        "kind": "evoformer", "layers": 2, "hidden": 8, "heads": 4, "rows": 4, "pair_hidden": 8,
        "pair_heads": 4, "passes": 3,
    },
}  # fmt: skip


@cache
def build_small(name: str) -> Graph:
    """A model with everything that its kind has, at widths of a few."""
    return build_graph(Architecture(name=name, **SMALL[name]))  # type: ignore[arg-type]
