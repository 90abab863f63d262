"""Valid descriptions of small models and clusters, as readers take them."""

import json

_SIZES = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 1024}
_LLAMA = {
    "model_type": "llama",
    **_SIZES,
    "intermediate_size": 512,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "attention_bias": False,
    "hidden_act": "silu",
}
_CONFIGS = {
    "dense": _LLAMA,
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 256,
        "n_layer": 4,
        "n_head": 4,
        "vocab_size": 1024,
        "n_positions": 512,
    },
    "moe": {
        **_LLAMA,
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "latent": {
        **_LLAMA,
        "model_type": "deepseek_v3",
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": 64,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "n_group": 1,
        "topk_group": 1,
    },
    "encoder": {
        "model_type": "bert",
        **_SIZES,
        "intermediate_size": 512,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1,
    },
    "encoder_decoder": {
        "model_type": "t5",
        "d_model": 256,
        "d_ff": 512,
        "d_kv": 64,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "vocab_size": 1024,
        "n_positions": 512,
    },
    "vision": {
        "model_type": "vit",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        "image_size": 224,
        "patch_size": 16,
    },
    "multimodal": {
        "model_type": "gemma3",
        "text_config": {**_LLAMA, "model_type": "gemma3_text", "sliding_window": 128},
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "image_size": 224,
            "intermediate_size": 256,
            "num_attention_heads": 2,
            "patch_size": 14,
        },
    },
}
CONFIGS = {name: json.dumps(tree, indent=1) for name, tree in _CONFIGS.items()}

MODEL = """layers = 4
hidden = 64
heads = 4
kv_heads = 2
ffn = 256
vocab = 256
gated = true
max_seq = 256
"""
EXPERTS = MODEL + "experts = 8\ntop_k = 2\n"
CLUSTER = """count = 32
device = "h100"

[network]
base = "dgx-h100"

[[network.level]]
name = "fabric"
size = 2

[[network.level]]
name = "between-sites"
size = 2
group_bandwidth = "10 Gb/s"
latency = "5 ms"
"""
OWN_CLUSTER = """count = 2
network = { name = "here", host_power = "0 W", host_bandwidth = "10 GB/s", source = "test", level = [{ name = "node", bandwidth = "1 GB/s", latency = "1 us" }] }
[device]
name = "cpu"
family = "cpu"
compute_units = 1
buffer = "1 MiB"
idle_power = "5 W"
peak_power = "15 W"
price_per_hour = "0 $/h"
source = "test"
peak = { fp32 = "2000 GFLOP/s", bf16 = "2000 GFLOP/s" }
memory = [{ name = "ram", capacity = "16 GiB", bandwidth = "200 GB/s" }]
[efficiency]
gemm = 0.5
"""  # noqa: E501
SWEEP = """model = "gpt2"
cluster = "h100:2"
batch = 4
search = "plan"

[[axis]]
field = "cluster.device.memory.0.bandwidth"
name = "memory_bandwidth"
ratio = [1, 2]

[[axis]]
field = "cluster.count"
values = [1, 2]
"""
