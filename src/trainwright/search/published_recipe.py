"""Published training recipes: what a software's authors ship for a model on some devices, with citations.

`catalog/recipes.csv` has one row per recipe and one column per field of `PublishedRecipe`. `make recipes`
writes it. An empty cell means that the recipe does not say; `recipe_defaults` knows what the software then
does, `recipe_strategy` turns a recipe into a `Strategy`, and `nearest_recipe` finds the one to compare with.

This is not `search/recipes.py`, which drafts plans of our own.
"""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType

from trainwright.errors import BadInput

RECIPES = Path(__file__).parents[1] / "catalog" / "recipes.csv"
WORKLOADS = ("pretrain", "sft", "lora")
SHARDINGS = ("ddp", "distributed-optimizer", "layer-wise-optimizer", "megatron-fsdp", "fsdp2", "fsdp")
# A recipe's number formats by the precision of a strategy that is nearest to them.
PRECISION_OF = MappingProxyType(
    {
        "fp32": "fp32", "bf16": "bf16", "int8": "bf16",
        "fp8": "fp8", "fp8-delayed": "fp8", "fp8-tensorwise": "fp8", "fp8-blockwise": "fp8",
        "fp8-full": "fp8", "mxfp8": "fp8", "nvfp4": "fp4",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRecipe:
    """One recipe as published; None or "" where it is silent.

    `devices` counts what the catalog calls a device. Of a device that software sees as several ranks,
    `ranks_per_device` says how many, and `tp`, `cp`, `micro_batch` and `replicas` are counted in ranks.
    `micro_batch` is the samples of a model replica, except for MaxText, which counts samples of a rank.
    """

    name: str
    model: str  # of the catalog
    workload: str
    tuned: bool  # published for its speed; the others are defaults to start from
    stack: str
    release: str
    device: str
    devices: int | None
    ranks_per_device: int
    seq: int | None
    global_batch: int | None
    micro_batch: float
    precision: str

    tp: int
    sp: bool | None
    cp: int
    cp_kind: str  # p2p, a2a, all_gather
    pp: int
    vpp: int | None
    ep: int
    etp: int | None
    layout: str  # of stages, as Megatron-Core writes it: Et*4|(t*4|)*14tmL
    stage_rule: str  # embedding+loss: both count as layers; 10/12: layers of the first and last stage
    sharding: str
    replicas: int  # copies of the sharded state

    recompute: str  # none, selective, full, or the name of a policy of MaxText
    recompute_modules: tuple[str, ...]  # that are recomputed
    saved_modules: tuple[str, ...]  # that are kept, everything else being recomputed
    recompute_method: str
    recompute_layers: int | None
    offload_layers: int
    offload_modules: tuple[str, ...]

    optimizer: str
    precision_aware: bool | None
    grad_dtype: str  # of the buffer that is accumulated and reduced
    main_grad_dtype: str  # of the optimizer's copy
    exp_avg_dtype: str
    exp_avg_sq_dtype: str

    grad_overlap: bool | None
    param_overlap: bool | None
    tp_overlap: bool | None
    ep_overlap: bool | None
    dispatcher: str
    cuda_graph: str
    mtp_layers: int
    other: Mapping[str, str]

    repository: str
    path: str
    commit: str
    date: str  # of the commit, or when it was read

    @property
    def citation(self) -> str:
        """Where the recipe stands: repository, commit, file with line, date."""
        return f"{self.repository}@{self.commit}:{self.path}, {self.date}"


@cache
def load_recipes() -> tuple[PublishedRecipe, ...]:
    """Every recipe of the catalog."""
    with RECIPES.open(newline="", encoding="utf-8") as file:
        return tuple(map(parse_recipe, csv.DictReader(file, strict=True)))


def parse_recipe(row: Mapping[str, str]) -> PublishedRecipe:
    """The recipe that a row of the table describes."""
    if set(row) != set(COLUMNS):
        wrong = ", ".join(sorted(set(row) ^ set(COLUMNS)))
        raise BadInput("recipes", wrong, "columns and fields differ", "run make recipes")
    values = {name: parser(row[name]) for name, parser in _PARSERS.items()}
    for name, known in (("workload", WORKLOADS), ("precision", PRECISION_OF), ("sharding", ("", *SHARDINGS))):
        if values[name] not in known:
            rule = "is not one of " + ", ".join(known)
            raise BadInput(f'recipe "{row["name"]}": {name}', row[name], rule, "correct it")
    return PublishedRecipe(**values)  # type: ignore[arg-type]


def render_row(values: Mapping[str, object]) -> dict[str, str]:
    """The cells of a recipe's fields; what is left out is silent."""
    return {name: _cell(values.get(name)) for name in COLUMNS}


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Mapping):
        return " ".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, tuple):
        return " ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _optional(text: str) -> int | None:
    return int(text) if text else None


def _flag(text: str) -> bool | None:
    return {"": None, "0": False, "1": True}[text]


def _pairs(text: str) -> Mapping[str, str]:
    return MappingProxyType(dict(word.split("=", 1) for word in text.split()))


# How a cell of each type is read; `from __future__ import annotations` would turn these types into text.
_BY_TYPE: Mapping[object, Callable[[str], object]] = {
    str: str, int: lambda text: int(text or 0), float: float, bool: lambda text: text == "1",
    int | None: _optional, bool | None: _flag,
    tuple[str, ...]: lambda text: tuple(text.split()), Mapping[str, str]: _pairs,
}  # fmt: skip
_PARSERS = {field.name: _BY_TYPE[field.type] for field in fields(PublishedRecipe)}
COLUMNS = tuple(_PARSERS)
