"""A plan as Megatron-LM's flags, in a script that launches it on one node of the job."""

from collections.abc import Iterator

from trainwright.export.canonical import canonical
from trainwright.export.flags import (
    ALLOCATOR_NAME,
    ALLOCATOR_VALUE,
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
    yield from _scaling(handover)
    if handover.architecture is None:
        yield "No model was stated: add its flags (see --model)."


def _scaling(handover: Handover) -> Iterator[str]:
    """What the scaling of fp8 depends on."""
    unknown = handover.strategy.precision == "fp8" and not handover.device_family
    if unknown and fp8_recipe(handover) == "tensorwise":
        yield "fp8: per-tensor scaling, as on Hopper; state --cluster for the recipe of other devices."


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
            *(f"export {name}={value}\n" for name, value in environment(handover.strategy).items()),
            "\n",
            render_array("MODEL_ARGS", model),
            "\n",
            render_array("PLAN_ARGS", plan_flags(handover)),
            "\n# Random tokens for a hundred steps, until data and a recipe are stated here.\n",
            render_array("DATA_ARGS", _data()),
            "\n",
            render_command(torchrun_words(handover.nodes, handover.processes_per_node, program)),
        ]
    )


def environment(strategy: Strategy) -> dict[str, str]:
    """Variables of the processes: of the allocator, and of how kernels start."""
    found = {ALLOCATOR_NAME: ALLOCATOR_VALUE}
    return found | ({"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if _one_connection(strategy) else {})


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
        *_sharding(handover), *_optimizer(handover), *_recompute(handover), *_precision(handover),
        *_overlap(strategy),
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
    """Layers whose activations go to the host, the first ones: of all, not the last, which backward needs at
    once.
    """
    if handover.strategy.offload_layers:
        return handover.strategy.offload_layers
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
        yield flag("--megatron-fsdp-main-grads-dtype", handover.grad_dtype or "fp32")  # as predicted
    if strategy.shard:
        yield flag("--num-distributed-optimizer-instances", replicas(strategy))
    if strategy.offload == "activations":
        yield flag("--cpu-offloading-num-layers", offloaded_layers(handover))
    if strategy.offload == "optimizer":
        yield flag("--optimizer-cpu-offload")
        yield flag("--optimizer-offload-fraction", 1.0)


def optimizer_name(optimizer: str) -> str:
    """Megatron's name for an optimizer."""
    return optimizer if optimizer in ("sgd", "muon", "lion") else "adam"


def is_precision_aware(handover: Handover) -> bool:
    """Whether the optimizer keeps state in narrower dtypes; one on the host always does."""
    return handover.optimizer.startswith("precision-aware") or handover.strategy.offload == "optimizer"


def moment_dtype(optimizer: str) -> str:
    """The dtype of both moments of the precision-aware optimizer."""
    return {"precision-aware-bf16": "bf16", "precision-aware-fp8": "fp8"}.get(optimizer, "fp32")


def _optimizer(handover: Handover) -> Iterator[Flag]:
    """What is stated of the optimizer and its gradients; adam with fp32 gradients are the defaults."""
    if handover.optimizer:
        yield flag("--optimizer", optimizer_name(handover.optimizer))
    if is_precision_aware(handover):
        yield flag("--use-precision-aware-optimizer")
        if (dtype := moment_dtype(handover.optimizer)) != "fp32":
            yield flag("--exp-avg-dtype", dtype)
            yield flag("--exp-avg-sq-dtype", dtype)
        if handover.grad_dtype == "bf16":
            yield flag("--main-grads-dtype", "bf16")
    if handover.grad_dtype:
        is_narrow = handover.grad_dtype == "bf16"
        yield flag("--grad-reduce-in-bf16" if is_narrow else "--accumulate-allreduce-grads-in-fp32")
        if canonical(handover.strategy).zero in SHARDED:
            yield flag("--megatron-fsdp-grad-comm-dtype", handover.grad_dtype)


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


def fp8_recipe(handover: Handover) -> str:
    """The scaling of fp8: by tensor or by block of 32.

    Weights that are gathered in fp8 and updated on the host need delayed scaling, which refuses recomputed
    norms and expert activations.
    """
    strategy = handover.strategy
    if keeps_low_weights(strategy) and strategy.offload == "optimizer":
        return "delayed"
    return "mxfp8" if handover.device_family == "blackwell" else "tensorwise"


def keeps_low_weights(strategy: Strategy) -> bool:
    """Whether weights are kept in fp8 or fp4 alone, which the distributed optimizer gathers.

    Without it, 16-bit weights are kept beside their quantized copies, and are predicted so.
    """
    return strategy.precision in ("fp8", "fp4") and canonical(strategy).zero >= 1


def _precision(handover: Handover) -> Iterator[Flag]:
    strategy = handover.strategy
    if strategy.precision != "fp32":
        yield flag("--fp16" if strategy.precision == "fp16" else "--bf16")
    if strategy.precision == "fp8":
        recipe = fp8_recipe(handover)
        yield flag("--fp8-format", "e4m3" if recipe == "mxfp8" else "hybrid")
        yield flag("--fp8-recipe", recipe)
        if keeps_low_weights(strategy):
            yield flag("--fp8-param-gather")
            if recipe == "mxfp8":
                yield flag("--reuse-grad-buf-for-mxfp8-param-ag")
    if strategy.precision == "fp4":
        yield flag("--fp4-format", "e2m1")
        yield flag("--fp4-recipe", "nvfp4")
        if keeps_low_weights(strategy):
            yield flag("--fp4-param-gather")


def _overlap(strategy: Strategy) -> Iterator[Flag]:
    if strategy.overlap:
        yield flag("--overlap-grad-reduce")
        if strategy.zero >= 1:
            yield flag("--overlap-param-gather")
    elif strategy.vpp > 1:
        yield flag("--no-overlap-p2p-communication")
