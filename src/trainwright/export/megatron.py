"""A plan as Megatron-LM's flags, in a script that launches it on one node of the job."""

from collections.abc import Iterator

from trainwright.export.ability import Ability, Gap, ability_gaps
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
from trainwright.export.megatron_model import model_flags, model_gaps
from trainwright.model.architecture import Architecture
from trainwright.plan.mapping import AXES, ORDERS, canonical_order
from trainwright.plan.strategy import Strategy

NAME = "Megatron-LM"
PIPELINE_INSIDE = "tp-cp-pp-dp"  # the order of --use-tp-pp-dp-mapping
ABILITY = Ability(
    schedules=("1f1b", "interleaved"), offloads=("none", "optimizer"), orders=(ORDERS[0], PIPELINE_INSIDE)
)
# What Megatron-FSDP shards for each stage of ZeRO.
SHARDED = {2: "optim_grads", 3: "optim_grads_params"}
CP_TYPES = {"ring": "p2p", "allgather": "all_gather"}


def gaps(handover: Handover) -> Iterator[Gap]:
    """What the flags cannot say."""
    strategy = canonical(handover.strategy)
    yield from ability_gaps(strategy, ABILITY, NAME)
    yield from pairing_gaps(strategy)
    yield from stage_gaps(handover)
    if handover.architecture:
        yield from model_gaps(handover.architecture)


def pairing_gaps(strategy: Strategy) -> Iterator[Gap]:
    """Knobs that Megatron has, but not beside others of a plan."""
    if strategy.recompute_layers % strategy.vpp:
        reason = f"Megatron counts them in each of the {strategy.vpp} chunks of a stage"
        yield Gap(knob="recompute_layers", value=strategy.recompute_layers, reason=reason)
    if strategy.offload == "optimizer" and not is_distributed(strategy):
        reason = "Megatron offloads the state of its distributed optimizer: zero 1 to 3"
        yield Gap(knob="offload", value="optimizer", reason=reason)
    sizes = {axis: getattr(strategy, axis) for axis in AXES}
    inside = canonical_order(PIPELINE_INSIDE, sizes)
    if strategy.order == inside != ORDERS[0] and strategy.zero in SHARDED:
        reason = f"Megatron-FSDP, which zero {strategy.zero} needs, has {ORDERS[0]}"
        yield Gap(knob="order", value=strategy.order, reason=reason)


def stage_gaps(handover: Handover) -> Iterator[Gap]:
    """Layers that are not as many in every chunk of every stage, of a model that is known."""
    chunks = handover.strategy.pp * handover.strategy.vpp
    if handover.architecture and handover.architecture.layers % chunks:
        reason = (
            f"Megatron gives as many to each of pp·vpp = {chunks} chunks: choose a divisor, "
            "or state --pipeline-model-parallel-layout yourself"
        )
        yield Gap(knob="model layers", value=handover.architecture.layers, reason=reason)


def is_distributed(strategy: Strategy) -> bool:
    """Whether the plan needs the distributed optimizer; alone on its replica, an offloaded one does too."""
    alone = strategy.dp * strategy.cp == 1
    return strategy.zero >= 1 or (alone and strategy.offload == "optimizer")


def remarks(handover: Handover) -> Iterator[str]:
    """Where the flags mean something a little different."""
    if handover.strategy.recompute == "selective":
        yield (
            "selective: norms are recomputed (and activations of experts); Megatron keeps the activation of "
            "a dense ffn, which the plan recomputes too: expect somewhat more memory than predicted."
        )
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
        *_degrees(strategy, handover.architecture), flag("--micro-batch-size", strategy.micro_batch),
        flag("--global-batch-size", handover.global_batch),
        *_sharding(strategy), *_recompute(handover), *_precision(strategy), *_overlap(strategy),
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
    if strategy.vpp > 1:
        yield flag("--num-virtual-stages-per-pipeline-rank", strategy.vpp)
    if strategy.order != ORDERS[0]:
        yield flag("--use-tp-pp-dp-mapping")
    if strategy.ep > 1:
        yield flag("--expert-model-parallel-size", strategy.ep)
    if arch is None or arch.experts:  # which would be split as wide as the rest by default
        yield flag("--expert-tensor-parallel-size", strategy.etp)


def _sharding(strategy: Strategy) -> Iterator[Flag]:
    if is_distributed(strategy):
        yield flag("--use-distributed-optimizer")
    if strategy.zero in SHARDED:
        yield flag("--use-megatron-fsdp")
        yield flag("--data-parallel-sharding-strategy", SHARDED[strategy.zero])
        yield flag("--ckpt-format", "fsdp_dtensor")
        yield flag("--no-gradient-accumulation-fusion")
    if strategy.shard:
        yield flag("--num-distributed-optimizer-instances", replicas(strategy))
    if strategy.offload == "optimizer":
        yield flag("--optimizer-cpu-offload")
        yield flag("--optimizer-offload-fraction", 1.0)
        yield flag("--use-precision-aware-optimizer")


def replicas(strategy: Strategy) -> int:
    """Copies of the sharded state under hybrid sharding."""
    return strategy.dp * strategy.cp // (strategy.shard or strategy.dp * strategy.cp)


def _recompute(handover: Handover) -> Iterator[Flag]:
    strategy = handover.strategy
    if strategy.recompute == "selective":
        yield flag("--recompute-granularity", "selective")
        yield flag("--recompute-modules", *recompute_modules(handover))
    if strategy.recompute == "full":
        layers = strategy.recompute_layers // strategy.vpp
        yield flag("--recompute-granularity", "full")
        yield flag("--recompute-method", "block" if layers else "uniform")
        yield flag("--recompute-num-layers", layers or 1)


def recompute_modules(handover: Handover) -> list[str]:
    """What selective recomputation does again."""
    arch = handover.architecture
    return ["layernorm", "moe_act"] if arch and arch.experts else ["layernorm"]


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
