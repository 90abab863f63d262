"""FLOPs of the steps of a program, on one device."""

from trainwright.model.totals import op_flops
from trainwright.program.builder import Builder
from trainwright.program.step import Step
from trainwright.program.tensors import local_sizes

_SPLIT = ("matmul", "grouped_matmul")  # whose weights have a gradient in a step of its own


def step_flops(builder: Builder, step: Step, device: int) -> float:
    """FLOPs that a device does for a step: what `model_flops` counts, on its part of the operator.

    A backward is twice the forward: once for the gradients of inputs, once for those of weights, or both in
    one step for operators without weights.
    """
    if step.kind != "compute" or step.instance < 0:
        return 0.0
    instance, placed = builder.instances[step.instance], builder.placed[step.instance]
    local = local_sizes(placed, instance.op, builder.sizes(instance), device)
    sizes = {dim: float(size[0]) for dim, size in local.items()}  # a device may have parts of routed tokens
    forward = op_flops(instance.op, sizes)  # type: ignore[arg-type]
    return forward * (2.0 if step.phase == "I" and instance.op.kind not in _SPLIT else 1.0)
