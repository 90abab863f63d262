"""Constants under which every part of a step takes longer by one factor."""

from dataclasses import replace

from trainwright.cost.change import RESOURCES, Place
from trainwright.cost.constants import Stack

_RATES = (
    "gemm", "gemm_fp8", "gemm_fp4", "memory", "attention_forward", "attention_backward", "inner_link",
    "outer_link", "host_link",
)  # fmt: skip
_STACK_SECONDS = (
    "op_s", "step_s", "pipeline_tp_s", "pipeline_stall_s", "send_s", "zero_layer_s", "outer_extra_s",
)  # fmt: skip


def slow_place(place: Place, times: float) -> Place:
    """The place with every rate reached divided by `times` and every latency multiplied by it.

    Shares of a datasheet may exceed 1 then: they carry what measured runs say of the whole step.
    """
    slower = RESOURCES["latency"](place, times)
    efficiency = slower.efficiency
    rates = {name: getattr(efficiency, name) / times for name in _RATES}
    fabrics = {name: replace(each, share=each.share / times) for name, each in efficiency.fabrics.items()}
    kernel_s = efficiency.kernel_s * times
    return replace(slower, efficiency=replace(efficiency, **rates, kernel_s=kernel_s, fabrics=fabrics))


def slow_stack(stack: Stack, times: float) -> Stack:
    """The stack with every time of its own multiplied."""
    return replace(stack, **{name: getattr(stack, name) * times for name in _STACK_SECONDS})
