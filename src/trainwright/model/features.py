"""What a model has besides the plainest decoder, by name, as stacks list what they lack."""

from trainwright.model.architecture import Architecture


def model_features(arch: Architecture) -> tuple[str, ...]:
    """The names of everything in a model that some stack has no setting for."""
    biases = (arch.qkv_bias, arch.output_bias, arch.mlp_bias)
    found = {
        "post-norm": arch.norm_placement == "post",
        "output-norm": arch.norm_placement == "output",
        "branch-output-norms": arch.post_norms,
        "no-final-norm": not arch.final_norm,
        "parallel-block": arch.parallel_block,
        "embedding-norm": arch.embedding_norm,
        "head-bias": arch.head_bias,
        "recycling": arch.passes > 1,
        "layer-norm": arch.norm == "layer",
        "norm-bias": arch.norm == "rms" and bool(arch.norm_bias),
        "norm-without-bias": arch.norm == "layer" and not arch.norm_bias,
        "qk-norm": arch.qk_norm == "head",
        "qk-norm-full": arch.qk_norm == "full",
        "biases": any(biases),
        "mixed-biases": biases not in ((False,) * 3, (True,) * 3, (True, False, False)),
        "value-width": arch.v_head_dim != arch.head_dim and not arch.kv_lora_rank,
        "head-width": arch.head_dim * arch.heads != arch.hidden,
        "ungated": not arch.gated,
        "no-rope": not arch.rope,
        "learned-positions": bool(arch.positions),
        "dropout": arch.dropout,
        "sinks": arch.sinks,
        "sliding-window": bool(arch.window),
        "mla": bool(arch.kv_lora_rank),
        "moe": bool(arch.experts),
        "router-bias": arch.router_bias,
        "shared-experts": bool(arch.shared_ffn),
        "some-dense-layers": bool(arch.experts) and (arch.first_dense > 0 or arch.moe_every > 1),
    }
    return tuple(name for name, present in found.items() if present)
