"""A plan as DeepSpeed's JSON."""

import json
from collections.abc import Iterator

from trainwright.export.canonical import canonical
from trainwright.export.flags import ALLOCATOR
from trainwright.export.handover import Handover
from trainwright.export.megatron import replicas

NAME = "DeepSpeed's JSON"
# With learning rates of examples, yours to change.
_OPTIMIZERS: dict[str, object] = {
    "adamw": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "sgd": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}},
    "lion": {"type": "Lion", "params": {"lr": 1e-4, "betas": [0.9, 0.99], "weight_decay": 0.1}},
}


def remarks(handover: Handover) -> Iterator[str]:
    """Where the JSON means something a little different."""
    strategy = canonical(handover.strategy)
    if strategy.shard:
        yield "mics_shard_size needs the model built under deepspeed.zero.MiCS_Init."
    if strategy.recompute == "full":
        yield "The model must checkpoint its layers: transformers' gradient_checkpointing_enable()."
    if strategy.zero == 3 and not strategy.shard:
        yield "Build the model under deepspeed.zero.Init, or each process builds all of it on its host first."
    yield f"Start processes with {ALLOCATOR}."
    if strategy.tp > 1:
        yield "autotp_size needs a model of transformers with a tensor-parallel plan."


def render(handover: Handover, notes: list[str]) -> str:
    """The JSON; what a comment would say is under "trainwright", which DeepSpeed does not read."""
    strategy = canonical(handover.strategy)
    tree: dict[str, object] = {
        "train_batch_size": handover.global_batch,
        "train_micro_batch_size_per_gpu": strategy.micro_batch,
        "gradient_accumulation_steps": handover.microbatches,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": strategy.precision == "bf16"},
        "fp16": {"enabled": strategy.precision == "fp16"},
        "zero_optimization": _zero(handover),
    }
    if handover.optimizer:
        tree["optimizer"] = _OPTIMIZERS[handover.optimizer]
        if strategy.zero and handover.optimizer == "sgd":  # which ZeRO takes only on request
            tree["zero_allow_untested_optimizer"] = True
    if handover.grad_dtype:
        tree["data_types"] = {"grad_accum_dtype": handover.grad_dtype}
        tree["communication_data_type"] = handover.grad_dtype
    if strategy.tp > 1:
        tree["tensor_parallel"] = {"autotp_size": strategy.tp, "tp_overlap_comm": strategy.overlap}
    if strategy.recompute == "full":
        tree["activation_checkpointing"] = {"partition_activations": False, "cpu_checkpointing": False}
    if strategy.ep > 1 or strategy.etp > 1:
        tree["expert_parallel"] = {
            "enabled": True, "autoep_size": strategy.ep, "expert_tensor_parallel_size": strategy.etp,
        }  # fmt: skip
    tree["trainwright"] = {"notes": notes}
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def _zero(handover: Handover) -> dict[str, object]:
    strategy = canonical(handover.strategy)
    section: dict[str, object] = {
        "stage": strategy.zero, "overlap_comm": strategy.overlap, "contiguous_gradients": True,
    }  # fmt: skip
    if strategy.zero in (1, 2):
        section["reduce_scatter"] = True
    if strategy.offload == "optimizer":
        section["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if strategy.shard:
        section["mics_shard_size"] = strategy.shard
        section["mics_hierarchical_params_gather"] = replicas(strategy) > 1
    return section
