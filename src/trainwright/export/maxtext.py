"""A plan as MaxText's YAML."""

from collections.abc import Iterator

from trainwright.export.canonical import canonical
from trainwright.export.flags import comment
from trainwright.export.handover import Handover
from trainwright.export.yaml import render_yaml
from trainwright.model.architecture import Architecture
from trainwright.plan.recompute_policies import MAXTEXT_POLICIES
from trainwright.plan.strategy import Strategy

NAME = "MaxText"
REMAT = {modules: policy for policy, modules in MAXTEXT_POLICIES.items()}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp8": "bfloat16"}
GRAD_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
FIRST_IN_BF16 = "adamw-mu-bf16"  # its mu_dtype
POOL = 0.92  # of a GPU's memory; the rest is for its context and for NCCL, which are outside of the pool
CP_STRATEGIES = {"ring": "ring", "allgather": "all_gather"}
_NO_GPUS = ("", "tpu", "trainium", "gaudi", "ascend", "dojo")  # families; "": not known
_AXES = ("data", "fsdp", "context", "tensor", "pipeline", "expert")


def remarks(handover: Handover) -> Iterator[str]:
    """Where the YAML means something a little different."""
    if _on_gpus(handover):  # JAX takes three quarters of a GPU's memory unless it is told otherwise
        yield f"Start processes with XLA_PYTHON_CLIENT_MEM_FRACTION={POOL}."
    if handover.architecture is None:
        yield "No model was stated: add model_name, or the base_* sizes."
        if handover.strategy.pp > 1:
            yield "Add num_layers_per_pipeline_stage: the layers divided by stages and repeats."


def render(handover: Handover, notes: list[str]) -> str:
    """The YAML: axes inside a node under ici, those between nodes under dcn, from the outermost inwards."""
    strategy = canonical(handover.strategy)
    inside, between = _split(degrees(strategy), handover.processes_per_node)
    tree: dict[str, object] = {"base_config": "base.yml", "run_name": "trainwright"}
    if _on_gpus(handover):  # base.yml is for TPUs
        tree |= {"hardware": "gpu", "attention": "cudnn_flash_te"}
    tree |= {"dataset_type": "synthetic", "steps": 100}  # until data and a recipe are stated here
    tree |= {f"dcn_{axis}_parallelism": between[axis] for axis in _AXES}
    tree |= {f"ici_{axis}_parallelism": inside[axis] for axis in _AXES}
    if strategy.cp > 1:
        tree["context_parallel_strategy"] = CP_STRATEGIES[strategy.cp_kind]
    tree |= _batch(handover)
    tree |= {
        **_remat(strategy),
        "optimizer_memory_host_offload": strategy.offload == "optimizer",
        "dtype": DTYPES[strategy.precision], "quantization": "fp8" if strategy.precision == "fp8" else "",
    }  # fmt: skip
    tree |= _optimizer(handover.optimizer)
    if handover.grad_dtype:
        tree["grad_dtype"] = GRAD_DTYPES[handover.grad_dtype]
    if handover.seq:
        tree["max_target_length"] = handover.seq
    return comment(notes) + render_yaml(
        tree | (_model(handover.architecture) if handover.architecture else {})
    )


def _optimizer(name: str) -> dict[str, object]:
    """What is stated of the optimizer; AdamW with both moments in fp32 is the default."""
    if name == FIRST_IN_BF16:
        return {"opt_type": "adamw", "mu_dtype": "bfloat16"}
    return {"opt_type": name} if name else {}


def _on_gpus(handover: Handover) -> bool:
    """Whether the plan is for GPUs, as far as the devices are known."""
    return handover.device_family not in _NO_GPUS


def _remat(strategy: Strategy) -> dict[str, object]:
    """What is recomputed and what waits on the host: all that `minimal` keeps, or the input of each layer."""
    if strategy.offload != "activations":
        return {"remat_policy": REMAT[strategy.recompute]}
    if strategy.recompute == "full":
        return {"remat_policy": "custom", "decoder_layer_input": "offload"}
    return {"remat_policy": "minimal_offloaded"}


def degrees(strategy: Strategy) -> dict[str, int]:
    """Its axes: copies of weights are data; shards are fsdp, but for those that experts are spread over."""
    shards = (strategy.shard or strategy.dp * strategy.cp) // strategy.cp if strategy.zero else 1
    return {
        "data": strategy.dp // shards, "fsdp": shards // strategy.ep,
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
        if handover.architecture:
            each = handover.architecture.layers // (strategy.pp * strategy.vpp)
            values["num_layers_per_pipeline_stage"] = each
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
