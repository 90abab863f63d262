"""A plan as a configuration of accelerate, with FSDP2 under it."""

from collections.abc import Iterator

from trainwright.export.canonical import canonical
from trainwright.export.flags import ALLOCATOR, comment
from trainwright.export.handover import Handover
from trainwright.export.yaml import render_yaml
from trainwright.plan.strategy import Strategy

NAME = "accelerate"
ROTATE = {"ring": "alltoall", "allgather": "allgather"}
_OPTIMIZERS = {  # transformers' names
    "adamw": "adamw_torch_fused", "adamw-8bit": "adamw_bnb_8bit", "adafactor": "adafactor",
    "lion": "lion_32bit", "sgd": "sgd",
}  # fmt: skip
MIXED = {"fp32": "no", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def remarks(handover: Handover) -> Iterator[str]:
    """What the launch line must say, because the file does not."""
    strategy, words = (
        canonical(handover.strategy),
        [f"{ALLOCATOR} accelerate launch --config_file THIS train.py"],
    )
    words.append(f"--per_device_train_batch_size {strategy.micro_batch}")
    words.append(f"--gradient_accumulation_steps {handover.microbatches}")
    if handover.optimizer:
        words.append(f"--optim {_OPTIMIZERS[handover.optimizer]}")
    whose = "Batches and optimizer" if handover.optimizer else "Batches"
    yield f"{whose} are the training script's; with transformers' Trainer: {' '.join(words)}"
    if handover.nodes > 1:
        yield "On each node, add --machine_rank, --main_process_ip and --main_process_port."
    if strategy.zero == 2:
        yield "zero2: weights are sharded between steps, and whole from the forward to the backward."


def render(handover: Handover, notes: list[str]) -> str:
    """The YAML."""
    strategy = canonical(handover.strategy)
    sharded = strategy.zero > 0 or strategy.tp > 1
    tree: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE", "debug": False,
        "distributed_type": "FSDP" if sharded else "MULTI_GPU" if handover.strategy.devices > 1 else "NO",
        "mixed_precision": MIXED[strategy.precision], "num_machines": handover.nodes,
        "num_processes": handover.strategy.devices, "machine_rank": 0, "main_training_function": "main",
        "rdzv_backend": "static", "same_network": True, "use_cpu": False,
    }  # fmt: skip
    if strategy.precision == "fp8":
        tree["fp8_config"] = {"backend": "TE", "fp8_format": "HYBRID"}
    if sharded:
        tree["fsdp_config"] = _fsdp(strategy)
        tree["parallelism_config"] = _parallelism(strategy)
    return comment(notes) + render_yaml(tree)


def _fsdp(strategy: Strategy) -> dict[str, object]:
    return {
        "fsdp_version": 2, "fsdp_reshard_after_forward": strategy.zero == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_offload_params": False,
        "fsdp_activation_checkpointing": strategy.recompute == "full",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT", "fsdp_cpu_ram_efficient_loading": True,
    }  # fmt: skip


def _parallelism(strategy: Strategy) -> dict[str, object]:
    """Copies and shards of data parallelism, and the other axes; their product is the processes."""
    shards = (strategy.shard or strategy.dp * strategy.cp) // strategy.cp if strategy.zero else 1
    values: dict[str, object] = {
        "parallelism_config_dp_replicate_size": strategy.dp // shards,
        "parallelism_config_dp_shard_size": shards,
        "parallelism_config_tp_size": strategy.tp,
        "parallelism_config_cp_size": strategy.cp,
    }
    if strategy.cp > 1:
        values["parallelism_config_cp_comm_strategy"] = ROTATE[strategy.cp_kind]
    return values
