"""How the tensors of a placed operator lie on its devices."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainwright.model.graph import Op, Tensor, served_results
from trainwright.plan.rules import LINKED, ROUTED, effect, split_dim
from trainwright.program.layout import Layout, build_layout, region
from trainwright.program.placed import Placed

Role = Literal["read", "written", "gradient of read", "gradient of written", "statistics"]
KEYS = {"seq_kv": "seq", "seq_enc_kv": "seq_enc"}  # keys are met whole, however queries are split


def tensor_layout(
    placed: Placed, op: Op, tensor: Tensor, role: Role, sizes: Mapping[str, int], dims: tuple[str, ...] = ()
) -> Layout:
    """The layout in which `op` reads or writes a tensor, or the gradient of one.

    An axis that splits a dim of the tensor splits it. One that splits another dim of the operator leaves the
    tensor whole where it is read, makes its gradient a sum, and makes the result a sum if the operator sums
    over that dim. `dims` are the names under which the tensor was written, where they differ.
    Along a late axis all gradients are sums.
    """
    named = dims or tensor.dims
    splits: dict[str, list[int]] = {}
    partial: list[int] = list(placed.late) if role.startswith("gradient") else []
    parts: dict[str, int] = {}
    uneven: dict[str, tuple[int, ...]] = {}
    for axis, (size, dim) in enumerate(zip(placed.mesh.axes, placed.dims, strict=True)):
        if not dim or size == 1:
            continue
        own = split_dim(op, tensor, dim)
        if own is not None and parts.get(own, 1) * size <= max(sizes.get(own, size), 1):
            parts[own] = parts.get(own, 1) * size
            name = own if own == ROUTED else named[tensor.dims.index(own)]
            splits.setdefault(name, []).append(axis)
            if dim in placed.uneven:
                uneven[name] = placed.uneven[dim]
        elif _sums(op, tensor, dim, role, shared=own is not None):
            partial.append(axis)
    return build_layout(placed.mesh, splits, partial, uneven)


def _sums(op: Op, tensor: Tensor, dim: str, role: Role, *, shared: bool) -> bool:
    if role == "written":
        return not shared and effect(op, dim) == "sums" and op.kind != "loss"
    if role == "statistics":
        return effect(op, dim) == "sums"
    if role == "gradient of read":
        # Devices that share keys and values each add their queries' part; but they project them alike.
        # A tensor that goes only into results that are copied has its whole gradient on every device.
        if not shared and op.extra_outputs and effect(op, dim) == "shards":
            return any(split_dim(op, each, dim) for each in served_results(op, tensor.name))
        return not shared or op.kind == "attention"
    return False


def local_sizes(
    placed: Placed, op: Op, sizes: Mapping[str, int], device: int = -1
) -> dict[str, NDArray[np.float64]]:
    """The sizes of all dims on one device, as costs take them (of the first device, if none is said)."""
    found = {dim: float(size) for dim, size in sizes.items()}
    found |= {keys: found[dim] for keys, dim in KEYS.items() if dim in found}
    for size, dim in [*zip(placed.mesh.axes, placed.dims, strict=True), (placed.serial[1], placed.serial[0])]:
        for each in (dim, *LINKED.get(dim, ())):
            if each in found:
                found[each] = max(found[each] / size, 1.0)
    if placed.uneven:
        found |= _uneven_sizes(placed, sizes, device)
    if op.region == "experts" and "top_k" in found:
        spread = float(placed.parts(ROUTED))
        found["expert_rows"] = found["batch"] * found["seq"] * found["top_k"] / spread
        found["top_k"] /= spread
    if op.sparse:  # each device finds its rows of what is looked up
        found["pooling"] /= placed.parts("table_rows")
    return {dim: np.array([size]) for dim, size in found.items()}


def _uneven_sizes(placed: Placed, sizes: Mapping[str, int], device: int) -> dict[str, float]:
    splits = {dim: [a for a, each in enumerate(placed.dims) if each == dim] for dim in placed.uneven}
    layout = build_layout(placed.mesh, splits, (), placed.uneven)
    rank = max(placed.mesh.devices.index(device), 0) if device >= 0 else 0
    held = region(layout, {dim: sizes[dim] for dim in placed.uneven}, rank)
    return {dim: float(stop - start) for dim, (start, stop) in held.items()}
