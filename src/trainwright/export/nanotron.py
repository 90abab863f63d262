"""A plan as nanotron's YAML, as its repository reads it after release 0.4."""

from collections.abc import Iterator

from trainwright.export.ability import Ability, Gap, ability_gaps
from trainwright.export.canonical import canonical
from trainwright.export.flags import comment
from trainwright.export.handover import Handover
from trainwright.export.yaml import render_yaml
from trainwright.model.architecture import Architecture
from trainwright.plan.strategy import Strategy

NAME = "nanotron"
ABILITY = Ability(
    axes=("tp", "cp", "pp", "ep"), cp_kinds=("ring",), zeros=(0, 1), hybrid=(), schedules=("gpipe", "1f1b"),
    recomputes=("none", "full"), some_layers=False, offloads=("none",), precisions=("fp32", "bf16", "fp16"),
    overlaps=(True,),
)  # fmt: skip
ENGINES = {"gpipe": "afab", "1f1b": "1f1b"}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
# What its Llama is: anything else of a model has no setting.
_LLAMA = {
    "kind": "decoder", "norm": "rms", "gated": True, "rope": True, "norm_placement": "pre",
    "post_norms": False,
    "parallel_block": False, "qkv_bias": False, "output_bias": False, "mlp_bias": False, "qk_norm": "none",
    "sinks": False, "window": 0, "kv_lora_rank": 0, "experts": 0, "positions": 0, "embedding_norm": False,
    "head_bias": False, "dropout": False, "passes": 1,
}  # fmt: skip


def gaps(handover: Handover) -> Iterator[Gap]:
    """What the YAML cannot say."""
    yield from ability_gaps(handover.strategy, ABILITY, NAME)
    yield from model_gaps(handover.architecture)


def model_gaps(arch: Architecture | None) -> Iterator[Gap]:
    """What of a model its Llama is not."""
    for field, usual in _LLAMA.items() if arch else ():
        if getattr(arch, field) != usual:
            yield Gap(knob=f"model {field}", value=getattr(arch, field), reason="nanotron's Llama has none")
    if arch and arch.head_dim * arch.heads != arch.hidden:
        reason = "nanotron's Llama has hidden / heads"
        yield Gap(knob="model head_dim", value=arch.head_dim, reason=reason)


def remarks(handover: Handover) -> Iterator[str]:
    """What is left to do."""
    if handover.strategy.cp > 1:
        yield "context_parallel_size needs a release after 0.4."
    if handover.architecture is None or handover.seq is None:
        yield "No model was stated: fill in model.model_config and tokens.sequence_length."


def render(handover: Handover, notes: list[str]) -> str:
    """The YAML; learning rates and data are nanotron's examples, yours to change."""
    strategy = canonical(handover.strategy)
    parallelism = shared_parallelism(strategy) | {"recompute_layer": strategy.recompute == "full"}
    if strategy.cp > 1:
        parallelism["context_parallel_size"] = strategy.cp
    optimizer = shared_optimizer(strategy.zero) | {"optimizer_factory": {"name": "adamW"} | ADAM}
    return comment(notes) + render_yaml(tree_of(handover, parallelism, optimizer))


def shared_parallelism(strategy: Strategy) -> dict[str, object]:
    """The keys of `parallelism` that every release has."""
    return {
        "dp": strategy.dp, "pp": strategy.pp, "tp": strategy.tp, "pp_engine": ENGINES[strategy.schedule],
        "tp_mode": "REDUCE_SCATTER" if strategy.sp else "ALL_REDUCE",
        "tp_linear_async_communication": strategy.sp, "expert_parallel_size": strategy.ep,
    }  # fmt: skip


def tree_of(
    handover: Handover, parallelism: dict[str, object], optimizer: dict[str, object]
) -> dict[str, object]:
    """The whole configuration, with these two sections."""
    strategy = handover.strategy
    return {
        "general": {"project": "trainwright", "run": "plan", "seed": 42},
        "parallelism": parallelism,
        "tokens": {
            "sequence_length": handover.seq or 0, "train_steps": 100,
            "micro_batch_size": strategy.micro_batch, "batch_accumulation_per_replica": handover.microbatches,
        },
        "model": {
            "dtype": DTYPES[strategy.precision], "init_method": {"std": 0.02},
            "model_config": _llama(handover.architecture, handover.seq) if handover.architecture else {},
        },
        "optimizer": optimizer,
        "tokenizer": {"tokenizer_name_or_path": "gpt2"},
    }  # fmt: skip


def _llama(arch: Architecture, seq: int | None) -> dict[str, object]:
    return {
        "is_llama_config": True, "vocab_size": arch.vocab, "num_hidden_layers": arch.layers,
        "hidden_size": arch.hidden, "intermediate_size": arch.ffn, "num_attention_heads": arch.heads,
        "num_key_value_heads": arch.kv_heads, "max_position_embeddings": seq or arch.max_seq,
        "tie_word_embeddings": arch.tied, "hidden_act": "silu", "rms_norm_eps": 0.00001,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "use_cache": True,
    }  # fmt: skip


ADAM: dict[str, object] = {
    "adam_eps": 0.00000001, "adam_beta1": 0.9, "adam_beta2": 0.95, "torch_adam_is_fused": True,
}  # fmt: skip


def shared_optimizer(zero: int) -> dict[str, object]:
    """The keys of `optimizer` that every release has."""
    return {
        "zero_stage": zero, "weight_decay": 0.1, "clip_grad": 1.0, "accumulate_grad_in_fp32": True,
        "learning_rate_scheduler": {
            "learning_rate": 0.0003, "lr_warmup_steps": 10, "lr_warmup_style": "linear",
            "lr_decay_style": "cosine", "min_decay_lr": 0.00003,
        },
    }  # fmt: skip
