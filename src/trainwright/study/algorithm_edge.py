"""Compute against communication by arithmetic alone, for published models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BASE_PARAMETERS, BASE_TP, BASE_YEAR = 3.9e9, 8.0, 2019  # the first large model with tensor parallelism
BASE_MEMORY_BYTES = 32 * 2.0**30  # of the devices that it ran on
GROWTHS = (1.0, 1.25, 1.5, 1.75)  # of device memory, times a year
ELEMENT_BYTES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A published model, by what decides the compute and the communication of its layers."""

    name: str
    year: int
    layers: int
    hidden: int
    seq: int
    parameters: float
    ffn: int = 0  # 0: four times hidden
    width: int = 0  # of all heads together; 0: hidden
    gated: bool = False  # three matrices in the FFN instead of two


MODELS = (
    Transformer(name="BERT-Large", year=2018, layers=24, hidden=1024, seq=512, parameters=0.34e9),
    Transformer(
        name="T5-11B", year=2019, layers=48, hidden=1024, seq=512, parameters=11e9, ffn=65536, width=16384
    ),
    Transformer(name="GPT-2 XL", year=2019, layers=48, hidden=1600, seq=1024, parameters=1.54e9),
    Transformer(name="Megatron-LM", year=2019, layers=72, hidden=3072, seq=1024, parameters=8.3e9),
    Transformer(name="T-NLG", year=2020, layers=78, hidden=4256, seq=1024, parameters=17e9),
    Transformer(name="GPT-3", year=2020, layers=96, hidden=12288, seq=2048, parameters=175e9),
    Transformer(name="MT-NLG", year=2021, layers=105, hidden=20480, seq=2048, parameters=530e9),
    Transformer(
        name="PaLM", year=2022, layers=118, hidden=18432, seq=2048, parameters=540e9, ffn=73728, width=12288,
        gated=True,
    ),
)  # fmt: skip


def forward_flops(model: Transformer, batch: float = 1.0) -> float:
    """Of one layer: 24·B·SL·H² + 4·B·SL²·H where the FFN is 4H wide and heads are H wide together."""
    tokens = batch * model.seq
    width, ffn = model.width or model.hidden, model.ffn or 4 * model.hidden
    weights = 4.0 * model.hidden * width + (3.0 if model.gated else 2.0) * model.hidden * ffn
    return 2.0 * tokens * weights + 4.0 * tokens * model.seq * width


def edge(model: Transformer, tp: float = 1.0, batch: float = 1.0) -> float:
    """FLOPs of a layer, forward and backward, for each byte that its four all-reduces combine.

    3·(24·B·SL·H² + 4·B·SL²·H)/TP over 4·b·B·SL·H bytes: 3·(6H + SL)/(b·TP), whatever the batch.
    """
    exchanged = 4.0 * ELEMENT_BYTES * batch * model.seq * model.hidden
    return 3.0 * forward_flops(model, batch) / tp / exchanged


def slack(model: Transformer, batch: float = 1.0) -> float:
    """FLOPs of the backward pass of a layer's weights for each byte of their gradients: 4·SL·B/b."""
    return 4.0 * batch * model.seq / ELEMENT_BYTES


def required_tp(parameters: Array | float, memory_growth: Array | float) -> Array:
    """Base TP times p/s: how much larger the model is than the base, and the memory of a device."""
    return np.asarray(
        BASE_TP * (np.asarray(parameters) / BASE_PARAMETERS) / np.asarray(memory_growth), dtype=float
    )


def memory_growth(year: int, growth: float) -> float:
    """How much more memory a device has than in the base's year, at so many times a year."""
    return float(growth ** max(year - BASE_YEAR, 0))


def depth(hidden: Array | float) -> Array:
    """Layers that a width comes with: a power law through the published models (but T5, of two halves)."""
    known = [each for each in MODELS if not each.name.startswith("T5")]
    widths, layers = np.log([each.hidden for each in known]), np.log([each.layers for each in known])
    slope, level = np.polyfit(widths, layers, 1)
    return np.asarray(np.round(np.exp(level + slope * np.log(np.asarray(hidden, dtype=float)))), dtype=float)


def parameters_of(hidden: Array | float) -> Array:
    """12·H² a layer, at the depth that such a width comes with."""
    return np.asarray(12.0 * depth(hidden) * np.asarray(hidden, dtype=float) ** 2, dtype=float)


def model_rows(models: Sequence[Transformer] = MODELS) -> list[Mapping[str, object]]:
    """Edge and slack of each model over the first's, at equal TP and at the TP that memory requires."""
    first = models[0]
    rows: list[Mapping[str, object]] = []
    for each in models:
        needed = {growth: _needed(each, growth) for growth in GROWTHS}
        rows.append(
            {
                "model": each.name, "year": each.year, "hidden": each.hidden, "seq": each.seq,
                "parameters": each.parameters, "edge_flops_per_byte": edge(each),
                "edge": edge(each) / edge(first),
                "order_edge": (each.hidden + each.seq) / (first.hidden + first.seq),
                "slack": slack(each) / slack(first), "required_tp": needed[1.25],
                "edge_at_required_tp": edge(each, needed[1.25]) / edge(first, _needed(first, 1.25)),
            }
            | {f"tp_if_memory_grows_{growth:g}x_a_year": tp for growth, tp in needed.items()}
        )  # fmt: skip
    return rows


def _needed(model: Transformer, growth: float) -> float:
    return max(float(required_tp(model.parameters, memory_growth(model.year, growth))), 1.0)
