"""A plan as a configuration of accelerate, with FSDP2 under it."""

from collections.abc import Iterator

from trainwright.export.ability import Ability, Gap, ability_gaps
from trainwright.export.canonical import canonical
from trainwright.export.flags import comment
from trainwright.export.handover import Handover
from trainwright.export.yaml import render_yaml
from trainwright.plan.strategy import Strategy

NAME = "accelerate"
ABILITY = Ability(
    axes=("tp", "cp"), sp=(False,), zeros=(0, 2, 3), hybrid=(2, 3), recomputes=("none", "full"),
    some_layers=False, offloads=("none",), precisions=("fp32", "bf16", "fp16", "fp8"), overlaps=(True,),
)  # fmt: skip
ROTATE = {"ring": "alltoall", "allgather": "allgather"}
MIXED = {"fp32": "no", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def gaps(handover: Handover) -> Iterator[Gap]:
    """What the file cannot say."""
    strategy = canonical(handover.strategy)
    yield from ability_gaps(strategy, ABILITY, NAME)
    if strategy.zero == 0 and strategy.cp > 1:
        yield Gap(knob="zero", value=0, reason="accelerate shards weights over the ranks of cp")
    if strategy.zero == 0 and strategy.recompute == "full":
        yield Gap(
            knob="recompute", value="full", reason="accelerate recomputes under FSDP (zero 2 or 3) only"
        )
    if strategy.shard and strategy.shard % strategy.cp:
        reason = f"accelerate shards over whole groups of context parallelism, of {strategy.cp} ranks"
        yield Gap(knob="shard", value=strategy.shard, reason=reason)


def remarks(handover: Handover) -> Iterator[str]:
    """What the launch line must say, because the file does not."""
    strategy, words = canonical(handover.strategy), ["accelerate launch --config_file THIS train.py"]
    words.append(f"--per_device_train_batch_size {strategy.micro_batch}")
    words.append(f"--gradient_accumulation_steps {handover.microbatches}")
    yield f"Batches are the training script's; with transformers' Trainer: {' '.join(words)}"
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
