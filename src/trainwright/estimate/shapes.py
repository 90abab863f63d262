"""The distinct shapes that a batch of strategies gives to a layer: few, however many strategies there are."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.model.graph import Region
from trainwright.plan.strategy import Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_AXES = ("tp", "sp", "cp", "micro_batch", "ep", "etp", "precision")
_TENSOR_DIMS = ("heads", "kv_heads", "ffn", "shared_ffn", "vocab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """One column per distinct combination of the knobs that shape a layer."""

    tp: Array
    sp: Array
    cp: Array
    micro_batch: Array
    ep: Array
    etp: Array
    precision: Ints

    def __len__(self) -> int:
        return len(self.tp)


def distinct_shapes(strategies: Strategies) -> tuple[Shapes, Ints]:
    """The distinct layer shapes of a batch, and for each strategy the index of its own."""
    code = np.zeros(len(strategies), dtype=np.int64)
    values: list[Ints] = []
    for name in _AXES:
        column = getattr(strategies, name)
        rank, present = _ranks(column)
        values.append(present)
        code *= len(present)
        code += rank
    total = int(np.prod([len(present) for present in values]))
    used = np.zeros(total, dtype=bool)
    used[code] = True
    slots = np.flatnonzero(used)
    where = np.cumsum(used, dtype=np.int64) - 1
    columns: dict[str, Ints] = {}
    rest = slots
    for name, present in zip(reversed(_AXES), reversed(values), strict=True):
        rest, digit = np.divmod(rest, len(present))
        columns[name] = present[digit]
    floats = {name: columns[name].astype(float) for name in _AXES if name != "precision"}
    return Shapes(**floats, precision=columns["precision"]), where[code]


def _ranks(column: Ints) -> tuple[Ints, Ints]:
    """The rank of each value among the distinct ones, by a table: knobs are small integers."""
    used = np.zeros(int(column.max()) + 1, dtype=bool)
    used[column] = True
    return (np.cumsum(used, dtype=np.int64) - 1)[column], np.flatnonzero(used)


def split_sizes(
    whole: Mapping[str, int], seq: Mapping[str, float], shapes: Shapes, region: Region
) -> dict[str, Array]:
    """Sizes of all dims on one device for ops of a region; `seq` gives the sequence dims (seq, seq_enc)."""
    sizes: dict[str, Array] = {dim: np.full(len(shapes), float(size)) for dim, size in whole.items()}
    tokens = {dim: length / shapes.cp for dim, length in seq.items()}
    if region == "sequence":
        tokens = {dim: each / np.where(shapes.sp > 0, shapes.tp, 1.0) for dim, each in tokens.items()}
    elif region == "experts":
        tokens = {dim: each / shapes.tp for dim, each in tokens.items()}
    for dim in _TENSOR_DIMS:
        if dim in sizes:
            sizes[dim] = np.maximum(sizes[dim] / shapes.tp, 1.0)
    if "experts" in sizes and region == "experts":
        sizes["expert_rows"] = shapes.micro_batch * tokens["seq"] * sizes["top_k"] * shapes.etp
        sizes["experts"] = sizes["experts"] / shapes.ep
        sizes["expert_ffn"] = sizes["expert_ffn"] / shapes.etp
    return sizes | tokens | {"batch": shapes.micro_batch, "seq_kv": np.full(len(shapes), seq["seq"])}
