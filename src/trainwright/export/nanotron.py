"""A plan as nanotron's YAML, as its repository reads it after release 0.4."""

from collections.abc import Iterator

from trainwright.export.canonical import canonical
from trainwright.export.flags import ALLOCATOR, comment
from trainwright.export.handover import Handover
from trainwright.export.yaml import render_yaml
from trainwright.model.architecture import Architecture
from trainwright.plan.strategy import Strategy

NAME = "nanotron"
ENGINES = {"gpipe": "afab", "1f1b": "1f1b"}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def remarks(handover: Handover) -> Iterator[str]:
    """What is left to do."""
    if handover.strategy.cp > 1:
        yield "context_parallel_size needs a release after 0.4."
    ordered = (
        "CUDA_DEVICE_MAX_CONNECTIONS=1 " if handover.strategy.sp else ""
    )  # tp_linear_async_communication
    yield f"{ALLOCATOR} {ordered}torchrun … run_train.py --config-file THIS"
    if handover.architecture is None or handover.seq is None:
        yield "No model was stated: fill in model.model_config and tokens.sequence_length."


def render(handover: Handover, notes: list[str]) -> str:
    """The YAML; learning rates and data are nanotron's examples, yours to change."""
    strategy = canonical(handover.strategy)
    parallelism = shared_parallelism(strategy) | {"recompute_layer": strategy.recompute == "full"}
    if strategy.cp > 1:
        parallelism["context_parallel_size"] = strategy.cp
    factory = {"name": "sgd"} if handover.optimizer == "sgd" else {"name": "adamW"} | ADAM
    optimizer = shared_optimizer(handover) | {"optimizer_factory": factory}
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


def shared_optimizer(handover: Handover) -> dict[str, object]:
    """The keys of `optimizer` that every release has."""
    return {
        "zero_stage": canonical(handover.strategy).zero, "weight_decay": 0.1, "clip_grad": 1.0,
        "accumulate_grad_in_fp32": handover.grad_dtype != "bf16",
        "learning_rate_scheduler": {
            "learning_rate": 0.0003, "lr_warmup_steps": 10, "lr_warmup_style": "linear",
            "lr_decay_style": "cosine", "min_decay_lr": 0.00003,
        },
    }  # fmt: skip
