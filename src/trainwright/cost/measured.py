"""The time of one operator from measured kernels, over arrays of shapes."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.kernels import Kernels
from trainwright.model.graph import Op

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = NDArray[np.float64]
_STREAMS: "Mapping[str, str]" = {"norm": "norm", "gather": "gather", "loss": "loss", "permute": "permute"}


def product_seconds(kernels: Kernels, way: str, m: Array, n: Array, k: Array, groups: Array) -> Array:
    """One of the three products of an operator: forward, or of a gradient, which is a product too."""
    floor = np.maximum(m, 1e-9)
    # Of fewer rows than one (an expert's share), the part of one row's time.
    return np.asarray(
        groups * np.minimum(floor, 1.0) * kernels.seconds(f"product.{way}", np.maximum(m, 1.0), n, k)
    )


def attention_seconds(
    kernels: Kernels, unfused: bool, sizes: tuple[Array, ...], share: Array
) -> tuple[Array, Array]:
    """Forward and backward; `share` of all pairs meet, which fused kernels make use of."""
    name = "unfused" if unfused else "attention"
    fused = kernels.stand_in(f"{name}.forward").startswith("attention") and not unfused
    count = share if fused else np.ones(1)
    forward, backward = (count * kernels.seconds(f"{name}.{way}", *sizes) for way in ("forward", "backward"))
    return forward, backward


def stream_name(op: Op) -> str:
    """The measured work that is like an operator that moves bytes: by kind, and element-wise ones by name."""
    if op.kind == "norm":
        return "norm" if any(each.name.endswith(".bias") for each in op.weights) else "rms_norm"
    if op.kind in _STREAMS:
        return _STREAMS[op.kind]
    last = op.name.rpartition(".")[2]
    if last == "activation":
        return "swiglu" if len(op.inputs) > 1 else "gelu"
    return "rope" if last == "rope" else "add"
