"""Sizes that small configurations of Hugging Face architectures have in common."""

from collections.abc import Mapping
from typing import Any

from tests.architectures.subject import CLASSES, VOCAB

Sizes = Mapping[str, Any]

LAYERS = 4
TOKENS: Sizes = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
USUAL: Sizes = {
    **TOKENS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "max_position_embeddings": 32,
}  # fmt: skip
GROUPED: Sizes = {**USUAL, "num_key_value_heads": 2}
HEADS: Sizes = {**GROUPED, "head_dim": 8}
GPT2: Sizes = {**TOKENS, "n_embd": 32, "n_layer": LAYERS, "n_head": 4, "n_positions": 32}
ENCODER: Sizes = {**USUAL, "type_vocab_size": 2}
VISION: Sizes = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "image_size": 16, "patch_size": 4, "num_labels": CLASSES,
}  # fmt: skip
WITH_CLASS_TOKEN: Sizes = {**VISION, "image_size": 12}  # 9 patches and a class token: 10, which divide by 2
SEQ2SEQ: Sizes = {
    **TOKENS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "max_position_embeddings": 32, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
EXPERTS: Sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
T5: Sizes = {
    **TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
MLA: Sizes = {
    **USUAL, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8, "v_head_dim": 8, "moe_intermediate_size": 24, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
