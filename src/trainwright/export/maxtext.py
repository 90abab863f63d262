"""A plan as MaxText's YAML."""

from collections.abc import Iterator

from trainwright.export.ability import Ability, Gap, ability_gaps
from trainwright.export.canonical import canonical
from trainwright.export.flags import comment
from trainwright.export.handover import Handover
from trainwright.export.yaml import render_yaml
from trainwright.model.architecture import Architecture
from trainwright.plan.strategy import Strategy

NAME = "MaxText"
ABILITY = Ability(
    axes=("tp", "cp", "pp", "vpp", "ep"), cp_kinds=("ring", "allgather"), zeros=(0, 3), hybrid=(3,),
    schedules=("gpipe", "interleaved"), some_layers=False, offloads=("none", "optimizer"),
    precisions=("fp32", "bf16", "fp8"), overlaps=(True,),
)  # fmt: skip
REMAT = {"none": "minimal_with_context", "selective": "minimal", "full": "full"}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp8": "bfloat16"}
_AXES = ("data", "fsdp", "context", "tensor", "pipeline", "expert")
# What its configurable decoder is: anything else of a model has no setting that we know.
_PLAIN = {
    "kind": "decoder", "norm": "rms", "gated": True, "rope": True, "norm_placement": "pre",
    "post_norms": False,
    "parallel_block": False, "qkv_bias": False, "output_bias": False, "mlp_bias": False, "qk_norm": "none",
    "sinks": False, "window": 0, "kv_lora_rank": 0, "shared_ffn": 0, "first_dense": 0, "moe_every": 1,
    "positions": 0, "embedding_norm": False, "head_bias": False, "router_bias": False, "passes": 1,
}  # fmt: skip


def gaps(handover: Handover) -> Iterator[Gap]:
    """What the YAML cannot say."""
    strategy, arch = canonical(handover.strategy), handover.architecture
    for gap in ability_gaps(strategy, ABILITY, NAME):
        if gap.knob == "schedule" and gap.value == "1f1b":
            reason = "MaxText's pipeline does all forwards before the backwards: gpipe or interleaved"
            yield Gap(knob="schedule", value="1f1b", reason=reason)
        else:
            yield gap
    if strategy.tp > 1 and not strategy.sp:
        reason = "MaxText shards activations along the sequence under tensor parallelism"
        yield Gap(knob="sp", value="off", reason=reason)
    if strategy.shard and strategy.shard % strategy.cp:
        reason = f"MaxText shards weights over whole groups of {strategy.cp} context ranks"
        yield Gap(knob="shard", value=strategy.shard, reason=reason)
    if strategy.ep > 1 and (strategy.dp % strategy.ep or strategy.etp > 1):
        reason = f"its expert axis is split from data parallelism, here dp = {strategy.dp}"
        yield Gap(knob="ep", value=strategy.ep, reason=reason)
    for field, usual in _PLAIN.items() if arch else ():
        if getattr(arch, field) != usual:
            yield Gap(knob=f"model {field}", value=getattr(arch, field), reason="state MaxText's model_name")


def remarks(handover: Handover) -> Iterator[str]:
    """Where the YAML means something a little different."""
    if handover.strategy.recompute == "none":
        yield "none: MaxText still recomputes what is done element by element (minimal_with_context)."
    if handover.architecture is None:
        yield "No model was stated: add model_name, or the base_* sizes."


def render(handover: Handover, notes: list[str]) -> str:
    """The YAML: axes inside a node under ici, those between nodes under dcn, from the outermost inwards."""
    strategy = canonical(handover.strategy)
    inside, between = _split(degrees(strategy), handover.processes_per_node)
    tree: dict[str, object] = {"base_config": "base.yml", "run_name": "trainwright"}
    tree |= {f"dcn_{axis}_parallelism": between[axis] for axis in _AXES}
    tree |= {f"ici_{axis}_parallelism": inside[axis] for axis in _AXES}
    if strategy.cp > 1:
        tree["context_parallel_strategy"] = {"ring": "ring", "allgather": "all_gather"}[strategy.cp_kind]
    tree |= _batch(handover)
    tree |= {
        "remat_policy": REMAT[strategy.recompute],
        "optimizer_memory_host_offload": strategy.offload == "optimizer",
        "dtype": DTYPES[strategy.precision], "quantization": "fp8" if strategy.precision == "fp8" else "",
    }  # fmt: skip
    if handover.seq:
        tree["max_target_length"] = handover.seq
    return comment(notes) + render_yaml(
        tree | (_model(handover.architecture) if handover.architecture else {})
    )


def degrees(strategy: Strategy) -> dict[str, int]:
    """Its axes: copies of weights are data, shards are fsdp; experts take theirs from both."""
    shards = (strategy.shard or strategy.dp * strategy.cp) // strategy.cp if strategy.zero else 1
    copies = strategy.dp // shards
    expert_of_shards = min(strategy.ep, shards)
    return {
        "data": copies // (strategy.ep // expert_of_shards), "fsdp": shards // expert_of_shards,
        "context": strategy.cp, "tensor": strategy.tp, "pipeline": strategy.pp, "expert": strategy.ep,
    }  # fmt: skip


def _split(degree: dict[str, int], per_node: int) -> tuple[dict[str, int], dict[str, int]]:
    """The part of each axis inside a node, filled from tensor outwards, and the part between nodes."""
    inside, between, room = dict.fromkeys(_AXES, 1), dict(degree), per_node
    for axis in ("tensor", "context", "expert", "fsdp", "data", "pipeline"):
        part = max(each for each in range(1, room + 1) if degree[axis] % each == 0 and room % each == 0)
        inside[axis], between[axis], room = part, degree[axis] // part, room // part
    return inside, between


def _batch(handover: Handover) -> dict[str, object]:
    """Sequences per device: of a pipeline all its microbatches, else one that accumulates."""
    strategy = handover.strategy
    piped = strategy.pp > 1
    rounds = handover.microbatches if piped else 1
    values: dict[str, object] = {
        "per_device_batch_size": rounds * strategy.micro_batch * strategy.dp / strategy.devices,
        "gradient_accumulation_steps": 1 if piped else handover.microbatches,
    }
    if piped:
        values["num_pipeline_microbatches"] = handover.microbatches
        values["num_pipeline_repeats"] = strategy.vpp
    return values


def _model(arch: Architecture) -> dict[str, object]:
    sizes: dict[str, object] = {
        "base_num_decoder_layers": arch.layers, "base_emb_dim": arch.hidden, "base_mlp_dim": arch.ffn,
        "base_num_query_heads": arch.heads, "base_num_kv_heads": arch.kv_heads, "head_dim": arch.head_dim,
        "vocab_size": arch.vocab, "logits_via_embedding": arch.tied, "decoder_block": "llama2",
        "mlp_activations": ["silu", "linear"],
    }  # fmt: skip
    if arch.experts:
        sizes |= {"decoder_block": "mixtral", "num_experts": arch.experts, "num_experts_per_tok": arch.top_k}
        sizes["base_mlp_dim"] = arch.expert_ffn
    return sizes
