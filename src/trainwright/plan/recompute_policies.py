"""What the words of other software mean as sets of modules.

Sources: Megatron-LM d98e8a64 (core/transformer/transformer_config.py, transformer_layer.py), torchtitan
b5bcd76c (distributed/activation_checkpoint.py), MaxText e591f30c (layers/nnx_decoders.py, configs/base.yml).
"""

from collections.abc import Mapping

from trainwright.plan.recompute_modules import FULL, NONE, SELECTIVE

# Modules by Megatron's labels of --recompute-modules; `layernorm` depends on the model. What it recomputes
# without a label is core_attn.
MEGATRON_LABELS: Mapping[str, str] = {
    "core_attn": "core_attn", "mlp": "mlp", "moe_act": "moe_act", "moe": "moe",
    "shared_experts": "shared_experts", "mla_up_proj": "mla_up_proj",
}  # fmt: skip
MEGATRON_NORM, MEGATRON_DEFAULT = "layernorm", "core_attn"
MEGATRON_OTHERS = ("gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc")  # of parts that no model here has

# torchtitan's SelectiveAC: matmuls but every second one, attention and communication are kept.
SELECTIVE_AC = "dots"

# MaxText's remat_policy: what is not on its list of saved tensors is made again.
MAXTEXT_POLICIES: Mapping[str, str] = {
    "none": NONE,
    "minimal_with_context": SELECTIVE,
    "minimal": "norm+rope+context+act+moe_act",
    "save_dot_with_context_except_mlp": "norm+rope+act+mlp_up",
    "save_dot_except_mlp": "norm+rope+context+act+mlp_up",
    "save_qkv_proj": "norm+rope+context+out_proj+residual+act+mlp_up",
    "save_out_proj": "norm+rope+qkv+context+act+mlp_up",
    "full": FULL,
}


def megatron_norm(*, latent: bool, experts: bool) -> str:
    """The module that Megatron's `layernorm` frees; empty if there is none.

    Its Transformer Engine layers have norms of their own only before latent attention and before experts, and
    fuse others into the next linear.
    """
    return "norm" if latent else "mlp_norm" if experts else ""
