"""A plan as DeepSpeed's JSON."""

import json
from collections.abc import Iterator

from trainwright.export.ability import Ability, Gap, ability_gaps
from trainwright.export.canonical import canonical
from trainwright.export.handover import Handover
from trainwright.export.megatron import replicas

NAME = "DeepSpeed's JSON"
ABILITY = Ability(
    axes=("tp", "ep", "etp"), sp=(False,), hybrid=(3,), recomputes=("none",), some_layers=False,
    offloads=("none", "optimizer"), precisions=("fp32", "bf16", "fp16"),
)  # fmt: skip
_CODE = {
    "pp": "stages are an argument of PipelineModule, in the training script",
    "recompute": "the model calls deepspeed.checkpointing or its own, which the JSON does not switch on",
    "cp": "its sequence parallelism (Ulysses) is another one and is set up in the training script",
}


def gaps(handover: Handover) -> Iterator[Gap]:
    """What the JSON cannot say."""
    strategy = canonical(handover.strategy)
    for gap in ability_gaps(strategy, ABILITY, NAME):
        yield Gap(knob=gap.knob, value=gap.value, reason=_CODE.get(gap.knob, gap.reason))
    if strategy.offload == "optimizer" and not strategy.zero:
        yield Gap(knob="offload", value="optimizer", reason="DeepSpeed offloads sharded state: zero 1 to 3")


def remarks(handover: Handover) -> Iterator[str]:
    """Where the JSON means something a little different."""
    strategy = canonical(handover.strategy)
    if strategy.shard:
        yield "mics_shard_size needs the model built under deepspeed.zero.MiCS_Init."
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
    if strategy.tp > 1:
        tree["tensor_parallel"] = {"autotp_size": strategy.tp, "tp_overlap_comm": strategy.overlap}
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
