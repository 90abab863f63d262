"""A plan as Megatron-LM's flags, in a script that launches it on one node of the job."""

from collections.abc import Iterator

from trainwright.export.canonical import canonical
from trainwright.export.flags import (
    Flag,
    comment,
    flag,
    render_array,
    render_command,
    torchrun_words,
)
from trainwright.export.handover import Handover
from trainwright.export.megatron_model import model_flags
from trainwright.export.stage_layers import has_uneven_stages, relieves_ends, render_layout
from trainwright.model.architecture import Architecture
from trainwright.plan.mapping import ORDERS
from trainwright.plan.recompute_modules import recompute_modules
from trainwright.plan.recompute_policies import MEGATRON_LABELS, MEGATRON_NORM
from trainwright.plan.strategy import Strategy

NAME = "Megatron-LM"
PIPELINE_INSIDE = "tp-cp-pp-dp"  # the order of --use-tp-pp-dp-mapping
# What Megatron-FSDP shards for each stage of ZeRO.
SHARDED = {2: "optim_grads", 3: "optim_grads_params"}
CP_TYPES = {"ring": "p2p", "allgather": "all_gather", "ulysses": "a2a"}


def is_distributed(strategy: Strategy) -> bool:
    """Whether the plan needs the distributed optimizer; alone on its replica, an offloaded one does too."""
    alone = strategy.dp * strategy.cp == 1
    return strategy.zero >= 1 or (alone and strategy.offload == "optimizer")


def remarks(handover: Handover) -> Iterator[str]:
    """Where the flags mean something a little different."""
    if canonical(handover.strategy).zero in SHARDED and handover.strategy.pp > 1:
        yield "Megatron-FSDP under pipeline stages is young: check that your release has it."
    if handover.architecture is None:
        yield "No model was stated: add its flags (see --model)."


def render(handover: Handover, notes: list[str]) -> str:
    """The script."""
    arch = handover.architecture
    model = model_flags(arch, handover.seq or arch.max_seq) if arch else _length(handover)
    program = ["pretrain_gpt.py", '"${MODEL_ARGS[@]}"', '"${PLAN_ARGS[@]}"', '"${DATA_ARGS[@]}"', '"$@"']
    return "".join(
        [
            "#!/usr/bin/env bash\n",
            comment([*notes, "Run it on every node, with NODE_RANK, MASTER_ADDR and MASTER_PORT set."]),
            "set -euo pipefail\n",
            ': "${NODE_RANK:=0}" "${MASTER_ADDR:=localhost}" "${MASTER_PORT:=29500}"\n',
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1\n\n" if _one_connection(handover.strategy) else "\n",
            render_array("MODEL_ARGS", model),
            "\n",
            render_array("PLAN_ARGS", plan_flags(handover)),
            "\n# Random tokens for a hundred steps, until data and a recipe are stated here.\n",
            render_array("DATA_ARGS", _data()),
            "\n",
            render_command(torchrun_words(handover.nodes, handover.processes_per_node, program)),
        ]
    )


def _one_connection(strategy: Strategy) -> bool:
    """Whether kernels must start in the order of their launch; Megatron-FSDP must not have that."""
    return (strategy.tp > 1 or strategy.cp > 1) and canonical(strategy).zero not in SHARDED


def _length(handover: Handover) -> tuple[Flag, ...]:
    return (flag("--seq-length", handover.seq),) if handover.seq else ()


def _data() -> tuple[Flag, ...]:
    return (
        flag("--mock-data"), flag("--tokenizer-type", "NullTokenizer"), flag("--train-iters", 100),
        flag("--lr", "3e-4"),
    )  # fmt: skip


def plan_flags(handover: Handover) -> tuple[Flag, ...]:
    """The flags of a plan."""
    strategy = canonical(handover.strategy)
    return (
        *_degrees(strategy, handover.architecture), *_stages(handover),
        flag("--micro-batch-size", strategy.micro_batch),
        flag("--global-batch-size", handover.global_batch),
        *_sharding(handover), *_recompute(handover), *_precision(strategy), *_overlap(strategy),
        flag("--use-mcore-models"), flag("--transformer-impl", "transformer_engine"),
    )  # fmt: skip


def _degrees(strategy: Strategy, arch: Architecture | None) -> Iterator[Flag]:
    yield flag("--tensor-model-parallel-size", strategy.tp)
    if strategy.sp:
        yield flag("--sequence-parallel")
    yield flag("--context-parallel-size", strategy.cp)
    if strategy.cp > 1:
        yield flag("--cp-comm-type", CP_TYPES[strategy.cp_kind])
    yield flag("--pipeline-model-parallel-size", strategy.pp)
    if strategy.order != ORDERS[0]:
        yield flag("--use-tp-pp-dp-mapping")
    if strategy.ep > 1:
        yield flag("--expert-model-parallel-size", strategy.ep)
    if arch is None or arch.experts:  # which would be split as wide as the rest by default
        yield flag("--expert-tensor-parallel-size", strategy.etp)


def _stages(handover: Handover) -> Iterator[Flag]:
    """How layers are cut where chunks have unequal numbers; a layout states the chunks itself."""
    strategy = canonical(handover.strategy)
    if has_uneven_stages(handover) and not relieves_ends(handover):
        yield flag("--pipeline-model-parallel-layout", render_layout(handover))
        return
    if strategy.vpp > 1:
        yield flag("--num-virtual-stages-per-pipeline-rank", strategy.vpp)
    if has_uneven_stages(handover):
        yield flag("--account-for-embedding-in-pipeline-split")
        yield flag("--account-for-loss-in-pipeline-split")


def offloaded_layers(handover: Handover) -> int:
    """Layers whose activations go to the host: all but the last, which backward needs at once."""
    return handover.architecture.layers - 1 if handover.architecture else 0


def _sharding(handover: Handover) -> Iterator[Flag]:
    strategy = canonical(handover.strategy)
    if is_distributed(strategy):
        yield flag("--use-distributed-optimizer")
    if strategy.zero in SHARDED:
        yield flag("--use-megatron-fsdp")
        yield flag("--data-parallel-sharding-strategy", SHARDED[strategy.zero])
        yield flag("--ckpt-format", "fsdp_dtensor")
        yield flag("--no-gradient-accumulation-fusion")
        yield flag("--fsdp-double-buffer")  # two buffers of weights and two of gradients, as predicted
        yield flag("--init-model-with-meta-device")  # or the whole model is built on each device first
    if strategy.shard:
        yield flag("--num-distributed-optimizer-instances", replicas(strategy))
    if strategy.offload == "activations":
        yield flag("--cpu-offloading-num-layers", offloaded_layers(handover))
    if strategy.offload == "optimizer":
        yield flag("--optimizer-cpu-offload")
        yield flag("--optimizer-offload-fraction", 1.0)
        yield flag("--use-precision-aware-optimizer")


def replicas(strategy: Strategy) -> int:
    """Copies of the sharded state under hybrid sharding."""
    return strategy.dp * strategy.cp // (strategy.shard or strategy.dp * strategy.cp)


def _recompute(handover: Handover) -> Iterator[Flag]:
    strategy = handover.strategy
    if labels := recompute_labels(strategy):
        yield flag("--recompute-granularity", "selective")
        yield flag("--recompute-modules", *labels)
    if strategy.recompute == "full":
        layers = strategy.recompute_layers // strategy.vpp
        yield flag("--recompute-granularity", "full")
        yield flag("--recompute-method", "block" if layers else "uniform")
        yield flag("--recompute-num-layers", layers or 1)


def recompute_labels(strategy: Strategy) -> list[str]:
    """Megatron's labels of the modules of a plan."""
    modules = recompute_modules(strategy.recompute)
    norm = [MEGATRON_NORM] if {"norm", "mlp_norm"} & {*modules} else []
    return [*norm, *(label for label, module in MEGATRON_LABELS.items() if module in modules)]


def _precision(strategy: Strategy) -> Iterator[Flag]:
    if strategy.precision != "fp32":
        yield flag("--fp16" if strategy.precision == "fp16" else "--bf16")
    if strategy.precision == "fp8":
        yield flag("--fp8-format", "hybrid")
    if strategy.precision == "fp4":
        yield flag("--fp4-format", "e2m1")


def _overlap(strategy: Strategy) -> Iterator[Flag]:
    if strategy.overlap:
        yield flag("--overlap-grad-reduce")
        if strategy.zero >= 1:
            yield flag("--overlap-param-gather")
    elif strategy.vpp > 1:
        yield flag("--no-overlap-p2p-communication")
