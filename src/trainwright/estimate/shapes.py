"""The distinct shapes that a batch of strategies gives to a layer: few, however many strategies there are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.distinct import distinct
from trainwright.model.graph import Region
from trainwright.plan.strategy import Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_KNOBS = ("tp", "sp", "cp", "cp_kind", "micro_batch", "ep", "etp", "precision", "overlap")
# Keys (and the third index of a triangle) are met whole, however queries are split.
KEY_LENGTHS = {"seq_kv": "seq", "seq_enc_kv": "seq_enc", "seq_third": "seq"}
TENSOR_DIMS = ("heads", "kv_heads", "ffn", "shared_ffn", "vocab", "pair_heads", "pair_ffn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """One column per distinct combination of the knobs that shape a layer and its communication.

    Degrees that only place devices (dp, pp) matter where an `order` is not the usual one.
    """

    tp: Array
    sp: Array
    cp: Array
    cp_kind: Array
    micro_batch: Array
    ep: Array
    etp: Array
    overlap: Array
    dp: Array
    pp: Array
    order: Ints
    precision: Ints

    def __len__(self) -> int:
        return len(self.tp)


def distinct_shapes(strategies: Strategies) -> tuple[Shapes, Ints]:
    """The distinct layer shapes of a batch, and for each strategy the index of its own."""
    knobs: tuple[str, ...] = _KNOBS
    told = strategies
    if strategies.order.any():
        mapped = strategies.order > 0
        told = replace(strategies, dp=strategies.dp * mapped, pp=strategies.pp * mapped)
        knobs = (*_KNOBS, "order", "dp", "pp")
    first, where = distinct(told, knobs)
    floats = (*(knob for knob in _KNOBS if knob != "precision"), "dp", "pp")
    columns = {knob: getattr(strategies, knob)[first].astype(float) for knob in floats}
    return Shapes(**columns, precision=strategies.precision[first], order=strategies.order[first]), where


def split_sizes(
    whole: Mapping[str, int], seq: Mapping[str, float], shapes: Shapes, region: Region
) -> dict[str, Array]:
    """Sizes of all dims on one device for ops of a region; `seq` gives the sequence dims (seq, seq_enc)."""
    sizes: dict[str, Array] = {dim: np.full(len(shapes), float(size)) for dim, size in whole.items()}
    tokens = {dim: length / shapes.cp for dim, length in seq.items()}
    if region == "sequence":
        tokens = {dim: each / np.where(shapes.sp > 0, shapes.tp, 1.0) for dim, each in tokens.items()}
    elif region == "experts":
        # Ranks that share an expert gather each other's tokens.
        tokens = {dim: each / shapes.tp * shapes.etp for dim, each in tokens.items()}
    for dim in TENSOR_DIMS:
        if dim in sizes:
            sizes[dim] = np.maximum(sizes[dim] / shapes.tp, 1.0)
    if "experts" in sizes and region == "experts":
        sizes["expert_rows"] = shapes.micro_batch * tokens["seq"] * sizes["top_k"]
        sizes["experts"] = sizes["experts"] / shapes.ep
        sizes["expert_ffn"] = sizes["expert_ffn"] / shapes.etp
    whole_lengths = {name: np.full(len(shapes), seq[dim]) for name, dim in KEY_LENGTHS.items()}
    return sizes | tokens | {"batch": shapes.micro_batch} | whole_lengths
