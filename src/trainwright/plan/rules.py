"""What splitting an operator along a dim does to the tensors that it touches."""

from typing import Literal

from trainwright.model.graph import Op, Tensor

Effect = Literal["shards", "sums", "frozen", "absent"]

# Dims that are split together: heads share keys and values, a decoder's tokens go with its encoder's.
LINKED = {"heads": ("kv_heads",), "seq": ("seq_enc",)}
ROUTED = "experts"  # splits routed tokens too, though their tensors are written over batch, seq and top_k


def splits_routed(op: Op, tensor: Tensor) -> bool:
    """Whether a tensor's tokens are dealt to experts, so that splitting experts splits it."""
    return op.region == "experts" and op.kind != "permute" and "top_k" in tensor.dims


def split_dim(op: Op, tensor: Tensor, dim: str) -> str | None:
    """The dim of a tensor that is split where `op` is split along `dim`; None if the tensor stays whole."""
    if dim in tensor.dims:
        return dim
    if dim == ROUTED and splits_routed(op, tensor):
        return ROUTED
    for other in LINKED.get(dim, ()):
        if other in tensor.dims and (dim != "seq" or "seq" not in _dims(op)):
            return other
    return None


def effect(op: Op, dim: str) -> Effect:
    """What the results of parts of `op` along `dim` are: shards of its result, or values to be summed.

    Frozen are dims that the operator mixes in a way that is not a sum: the keys of a softmax, the width of a
    norm. A loss over a split vocabulary sums its statistics; a norm over all heads does too.
    """
    if _is_frozen(op, dim) or (op.kind == "attention" and dim in op.contracted):
        return "frozen"
    if split_dim(op, op.output, dim) is not None:
        mixed = op.kind == "norm" and any(dim in weight.dims for weight in op.weights)
        return "frozen" if mixed and (op.region != "attention" or dim != "heads") else "shards"
    if dim in op.contracted or (op.kind == "gather" and any(dim in weight.dims for weight in op.weights)):
        return "sums"
    return "frozen" if dim in _dims(op) else "absent"


def _is_frozen(op: Op, dim: str) -> bool:
    """Whether splitting along `dim` would split a frozen dim of any tensor, that dim or a linked one."""
    tensors = (*op.inputs, op.output, *op.extra_outputs, *op.weights) if op.frozen else ()
    return any(split_dim(op, tensor, dim) in op.frozen for tensor in tensors)


def splittable(op: Op) -> tuple[str, ...]:
    """The dims along which an operator may be split."""
    dims = {*_dims(op), *((ROUTED,) if op.region == "experts" else ())}
    return tuple(sorted(dim for dim in dims if effect(op, dim) in ("shards", "sums")))


def _dims(op: Op) -> frozenset[str]:
    tensors = (*op.inputs, op.output, *op.extra_outputs, *op.weights)
    return frozenset(dim for tensor in tensors for dim in tensor.dims)
