"""What each kind of operator of the catalog's models computes, in PyTorch."""

from trainwright.errors import BadInput
from trainwright.model.graph import Op
from trainwright.runtime.kernels.attention import attend
from trainwright.runtime.kernels.elementwise import FUNCTIONS
from trainwright.runtime.kernels.experts import combine, dispatch, merge_neighbours
from trainwright.runtime.kernels.lookup import look_up
from trainwright.runtime.kernels.norm import normalize
from trainwright.runtime.kernels.product import multiply
from trainwright.runtime.work import Kernel

_KERNELS: dict[str, Kernel] = {"attention": attend, "gather": look_up, "norm": normalize, "product": multiply}
_PERMUTES: dict[str, Kernel] = {"dispatch": dispatch, "combine": combine, "merge.join": merge_neighbours}


def kernel_of(op: Op) -> Kernel:
    """The kernel of an operator; matmuls and losses are carried out apart."""
    if op.kind == "attention" and op.weights:
        raise BadInput("op", op.name, "attention with sinks has no kernel", "run a model without them")
    if op.name.endswith("position_bias") and not op.inputs:
        raise BadInput(
            "op", op.name, "a relative position bias has no kernel that attention reads",
            "set position_buckets = 0 in the model's file, or trace a module of your own",
        )  # fmt: skip
    if op.kind in _KERNELS:
        return _KERNELS[op.kind]
    table = _PERMUTES if op.kind == "permute" else FUNCTIONS
    for ending in (op.name, op.name.rpartition(".")[2]):
        if ending in table:
            return table[ending]
    raise BadInput("op", op.name, f"{op.kind} of this name has no kernel", "add one under runtime/kernels")


__all__ = ["kernel_of"]
