"""The tools that a plan can be handed to, by name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from trainwright.errors import BadInput, UnknownName
from trainwright.export import (
    accelerate,
    deepspeed,
    maxtext,
    megatron,
    megatron_bridge,
    nanotron,
    nanotron_release,
    own,
    torchtitan,
    torchtitan_toml,
)
from trainwright.export.gaps import capability_gaps, refuse, target_capability, without
from trainwright.export.handover import Handover
from trainwright.export.launch import launch_of, render_slurm, render_torchrun


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A format: the stack release that it is for, remarks, and the text that the tool reads."""

    name: str
    remarks: Callable[[Handover], Iterable[str]]
    render: Callable[[Handover, list[str]], str]
    stack: str = ""  # the export target of a capability; "": no limits, a launcher
    needs_model: bool = False
    writes_hosts: bool = True  # how many devices a host has
    writes_seq: bool = True  # tokens per sequence, also of a model that is not known


def _nothing(handover: Handover) -> tuple[()]:
    return ()


_BRIDGE = Target(
    stack="nemo", name=megatron_bridge.NAME, remarks=megatron_bridge.remarks,
    render=megatron_bridge.render,
)  # fmt: skip

# A target is one module and one entry here.
TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "megatron": Target(
            stack="megatron", name=megatron.NAME, remarks=megatron.remarks, render=megatron.render
        ),
        "megatron-bridge": _BRIDGE,
        "nemo": replace(_BRIDGE, name="NeMo"),
        "torchtitan": Target(
            stack="torchtitan", name=torchtitan.NAME, remarks=torchtitan.remarks, render=torchtitan.render
        ),
        "torchtitan-toml": Target(
            stack="torchtitan-toml", name=torchtitan_toml.NAME, remarks=torchtitan_toml.remarks,
            render=torchtitan_toml.render, writes_hosts=False,
        ),
        "deepspeed": Target(
            stack="deepspeed", name=deepspeed.NAME, remarks=deepspeed.remarks, render=deepspeed.render,
            writes_hosts=False, writes_seq=False,
        ),
        "nanotron": Target(
            stack="nanotron", name=nanotron.NAME, remarks=nanotron.remarks, render=nanotron.render,
            writes_hosts=False,
        ),
        "nanotron-0.4": Target(
            stack="nanotron-0.4", name=nanotron_release.NAME, remarks=nanotron_release.remarks,
            render=nanotron_release.render, writes_hosts=False,
        ),
        "accelerate": Target(
            stack="accelerate", name=accelerate.NAME, remarks=accelerate.remarks, render=accelerate.render,
            writes_seq=False,
        ),
        "maxtext": Target(
            stack="maxtext", name=maxtext.NAME, remarks=maxtext.remarks, render=maxtext.render
        ),
        "torchrun": Target(
            name="torchrun", remarks=_nothing, needs_model=True,
            render=lambda handover, notes: render_torchrun(launch_of(handover), notes),
        ),
        "slurm": Target(
            name="SLURM", remarks=_nothing, writes_seq=False,
            render=lambda handover, notes: render_slurm(launch_of(handover), notes),
        ),
        "trainwright": Target(
            stack="trainwright", name=own.NAME, remarks=own.remarks, render=own.render, needs_model=True,
            writes_hosts=False,
        ),
    }
)  # fmt: skip


def _nodes(handover: Handover) -> list[str]:
    """What to say of devices that do not fill their nodes."""
    if not handover.is_uneven:
        return []
    used, nodes = handover.processes_per_node, handover.nodes
    return [
        f"{handover.strategy.devices} devices do not fill nodes of {handover.per_node}: "
        f"{used} on each of {nodes} nodes."
    ]


def export_text(handover: Handover, to: str, *, lenient: bool = False, notes: Iterable[str] = ()) -> str:
    """What a tool reads to follow a plan; knobs that it has no words for raise, or become comments."""
    if to not in TARGETS:
        raise UnknownName("--to", to, TARGETS)
    target = TARGETS[to]
    if target.needs_model and handover.architecture is None:
        raise BadInput(f"{target.name} plan", str(handover.strategy), "needs a model", "state --model")
    gaps = list(capability_gaps(handover, target_capability(target.stack))) if target.stack else []
    if not lenient:
        refuse(handover.strategy, gaps, target.name)
    knobs = [gap for gap in gaps if hasattr(handover.strategy, gap.knob)]
    left_out = {gap.knob for gap in gaps}
    told = replace(
        handover, strategy=without(handover.strategy, knobs),
        optimizer="" if "optimizer" in left_out else handover.optimizer,
        grad_dtype="" if "grad_dtype" in left_out else handover.grad_dtype,
    )  # fmt: skip
    strategy = handover.strategy
    said = [
        f"{strategy}, a global batch of {handover.global_batch}, {strategy.devices} devices",
        *notes,
        *_nodes(told),
        *(f"NOT EXPRESSED: {gap}" for gap in gaps),
        *target.remarks(handover),
    ]
    return target.render(told, said)
