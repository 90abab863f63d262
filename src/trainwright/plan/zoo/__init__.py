"""Plans by name: an extension is one file, and one line here."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any

from trainwright.errors import BadInput, UnknownName
from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import ALIASES
from trainwright.plan.zoo.chimera import chimera
from trainwright.plan.zoo.co_shard import co_shard
from trainwright.plan.zoo.context_parallel import context_parallel
from trainwright.plan.zoo.data_parallel import data_parallel
from trainwright.plan.zoo.dualpipe import dualpipe
from trainwright.plan.zoo.dualpipe_v import dualpipe_v
from trainwright.plan.zoo.expert_parallel import expert_parallel
from trainwright.plan.zoo.fsdp import fsdp, hsdp
from trainwright.plan.zoo.gpipe import gpipe
from trainwright.plan.zoo.interlaced import interlaced
from trainwright.plan.zoo.interleaved import interleaved
from trainwright.plan.zoo.looped_bfs import looped_bfs
from trainwright.plan.zoo.mixed import mixed
from trainwright.plan.zoo.offload import offload
from trainwright.plan.zoo.one_f_one_b import one_f_one_b
from trainwright.plan.zoo.per_layer import per_layer
from trainwright.plan.zoo.recompute import recompute
from trainwright.plan.zoo.structured import KNOBS
from trainwright.plan.zoo.table_parallel import table_parallel
from trainwright.plan.zoo.tensor_parallel import sequence_parallel, tensor_parallel
from trainwright.plan.zoo.three_f_one_b import three_f_one_b
from trainwright.plan.zoo.uneven_stages import uneven_stages
from trainwright.plan.zoo.zb_h1 import zb_h1
from trainwright.plan.zoo.zb_v import zb_v
from trainwright.plan.zoo.zero import zero_1, zero_2, zero_3

Builder = Callable[..., Plan]  # of a graph, devices and samples a step, with parameters

ZOO: Mapping[str, Builder] = {
    "data-parallel": data_parallel,
    "zero-1": zero_1,
    "zero-2": zero_2,
    "zero-3": zero_3,
    "fsdp": fsdp,
    "hsdp": hsdp,
    "tensor-parallel": tensor_parallel,
    "sequence-parallel": sequence_parallel,
    "context-parallel": context_parallel,
    "expert-parallel": expert_parallel,
    "table-parallel": table_parallel,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "looped-bfs": looped_bfs,
    "zb-h1": zb_h1,
    "zb-v": zb_v,
    "dualpipe": dualpipe,
    "dualpipe-v": dualpipe_v,
    "chimera": chimera,
    "co-shard": co_shard,
    "interlaced": interlaced,
    "3f1b": three_f_one_b,
    "per-layer": per_layer,
    "mixed": mixed,
    "uneven-stages": uneven_stages,
    "recompute": recompute,
    "offload": offload,
}
# Knobs that a plan fixes, as its name says.
_FIXED: Mapping[str, tuple[str, ...]] = {
    "zero-1": ("zero",),
    "zero-2": ("zero",),
    "zero-3": ("zero",),
    "fsdp": ("zero",),
    "hsdp": ("zero",),
    "sequence-parallel": ("sp",),
    "context-parallel": ("cp_kind",),
    "per-layer": ("tp", "cp", "sp"),
    "offload": ("offload",),
}


def build_zoo(name: str, graph: Graph, devices: int, batch: int, **parameters: Any) -> Plan:
    """The plan of a name for a model on some devices, with `batch` samples a step over all of them."""
    known = zoo_parameters(name)
    for parameter in parameters:
        if parameter not in known:
            raise UnknownName(f'plan "{name}" parameter', parameter, known)
    plan = ZOO[name](graph, devices, batch, **parameters)
    return replace(plan, name=render_zoo(name, parameters))


def zoo_parameters(name: str) -> dict[str, Any]:
    """The parameters of a plan with their defaults: its own first, then the knobs that it leaves open."""
    if name not in ZOO:
        raise UnknownName("plan", name, ZOO)
    stated = list(signature(ZOO[name]).parameters.values())[3:]
    own = {each.name: each.default for each in stated if each.kind is not Parameter.VAR_KEYWORD}
    if all(each.kind is not Parameter.VAR_KEYWORD for each in stated):
        return own
    fixed = _FIXED.get(name, ())
    return own | {knob: default for knob, default in KNOBS.items() if knob not in own and knob not in fixed}


def parse_zoo(text: str) -> tuple[str, dict[str, Any]]:
    """The name and parameters that a line such as `co-shard tp=2 chunks=4` states; a bare word is true."""
    name, *words = text.split() or [""]
    known = zoo_parameters(name)
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        key = ALIASES.get(key, key)
        if key not in known:
            raise UnknownName(f'plan "{name}" parameter', key, known)
        if key in found:
            raise BadInput(f'plan "{text}"', word, f"{key} is stated twice", "state it once")
        found[key] = _parse_value(key, value if equals else "true", known[key])
    return name, found


def _parse_value(key: str, text: str, default: object) -> object:
    """A value of the kind that the default is of."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text]
        return int(text) if isinstance(default, int) else float(text) if isinstance(default, float) else text
    except (ValueError, KeyError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(default)]
        raise BadInput(f"plan parameter {key}", text, f"is not {kind}", f"write {key}={default}") from None


def render_zoo(name: str, parameters: Mapping[str, Any]) -> str:
    """The line that `parse_zoo` reads back."""
    values = {
        key: str(value).lower() if isinstance(value, bool) else value for key, value in parameters.items()
    }
    return " ".join([name, *(f"{key}={value}" for key, value in values.items())])


__all__ = ["ZOO", "build_zoo", "parse_zoo", "render_zoo", "zoo_parameters"]
