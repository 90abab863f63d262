"""What a row of a table of runs tells of how its experts were run: dispatcher, overlap, graphs, balance."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainwright.cost.constants import Stack
from trainwright.cost.operators import WHOLE_STEP_GRAPH
from trainwright.search.published_recipe import PRECISION_OF, PublishedRecipe, load_recipes
from trainwright.stack.capability import Capability

Row = Mapping[str, str]

_GRAPHED_MODULES = ("attn", "moe_router", "moe_preprocess")
_DISPATCHERS = (
    ("hybridep", r"hybridep"), ("deepep", r"deepep"), ("alltoall", r"alltoall|\bbase 1f1b|^a2a\b"),
)  # fmt: skip
_OVERLAP = r"\b(?:ep|a2a|ep a2a|1f1b a2a) overlap\b(?! off)"
_BALANCED = r"forced? balance|force-balanced|token-drop"
# Untrained routers on the benchmark's data: Megatron-MoE-ModelZoo, Qwen3 235B at 16k to 128k tokens, natural
# against forced routing (1.24 to 1.09 of the step, whose share of experts falls with length).
NATURAL_IMBALANCE = 1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExperts:
    """How experts were run, as stated or as the recipe of the release has it."""

    dispatcher: str = ""  # alltoall, deepep, hybridep; "": the stack's own
    is_overlapped: bool | None = None  # exchanges behind another microbatch's compute
    cuda_graphs: tuple[str, ...] | None = None
    imbalance: float | None = None  # None: the stack's own
    drops_tokens: bool = False  # a capacity factor: shapes do not depend on the routes


STACKS_OWN = RowExperts()


def row_experts(row: Row, capability: Capability, date: str, model: str, device: str) -> RowExperts:
    """What a row of a model with experts states; where it states nothing, its software's recipe."""
    if not (row.get("experts") or "").strip():
        return STACKS_OWN
    knobs, notes = ((row.get(name) or "").strip().lower() for name in ("other_knobs", "notes"))
    dispatcher = next((name for name, words in _DISPATCHERS if re.search(words, knobs)), "")
    overlap = re.search(_OVERLAP, knobs) is not None
    graphs = _graphs(knobs)
    # A row that states its recomputation too was read from its release's recipe: what is not there is off.
    is_whole = bool(dispatcher and (row.get("recompute") or "").strip())
    is_described = capability.recipes_since and date >= capability.recipes_since
    asked = is_described and not (is_whole or overlap or graphs)
    recipe = _recipe(row, model, device) if asked else None
    if recipe is not None:
        dispatcher, overlap, graphs = _of_recipe(recipe)
    balance = re.search(_BALANCED, f"{knobs}; {notes}")
    natural = re.search(r"natural routing", knobs)
    return RowExperts(
        dispatcher=dispatcher or "alltoall",
        is_overlapped=overlap,
        cuda_graphs=graphs,
        imbalance=1.0 if balance else NATURAL_IMBALANCE if natural else None,
        drops_tokens="token-drop" in notes and "dropless" not in notes,
    )


def with_experts(stack: Stack, experts: RowExperts) -> Stack:
    """The stack as a run with these settings has it."""
    if not experts.dispatcher:
        return stack
    return replace(
        stack,
        ep_dedupe=experts.dispatcher != "alltoall",
        ep_overlap=stack.ep_overlap_share if experts.is_overlapped else 0.0,
        cuda_graphs=experts.cuda_graphs or (),
        stated_imbalance=experts.imbalance or 0.0,
        route_launches=0.0 if experts.drops_tokens else stack.route_launches,
    )


def _graphs(knobs: str) -> tuple[str, ...]:
    """What a text says is captured by CUDA graphs; without names, Transformer Engine's usual modules."""
    if WHOLE_STEP_GRAPH in knobs:
        return (WHOLE_STEP_GRAPH,)
    if "graphs" not in knobs or "no cuda graphs" in knobs:
        return ()
    named = tuple(each for each in _GRAPHED_MODULES if re.search(rf"\b{each}\b", knobs))
    return named or _GRAPHED_MODULES


def _recipe(row: Row, model: str, device: str) -> PublishedRecipe | None:
    """The published recipe for the same model, device and precision, of the same degrees if there is
    one; of several, the one that overlaps most, as published figures are of the fastest.
    """
    stated = tuple((row.get(name) or "").strip() for name in ("tp", "pp", "ep", "micro_batch"))
    bits = (row.get("precision") or "bf16").strip().lower()
    same = [
        each
        for each in load_recipes()
        if (each.model, each.device, PRECISION_OF[each.precision]) == (model, device, bits)
        and each.stack == "megatron-bridge"
    ]
    alike = [e for e in same if stated == tuple(f"{n:g}" for n in (e.tp, e.pp, e.ep, e.micro_batch))]
    fastest = {False: 0, True: 2}
    return max(
        alike or same,
        key=lambda each: fastest[bool(each.ep_overlap)] + (WHOLE_STEP_GRAPH in each.cuda_graph),
        default=None,
    )


def _of_recipe(recipe: PublishedRecipe) -> tuple[str, bool, tuple[str, ...]]:
    """A recipe's dispatcher, whether it overlaps exchanges, and what it captures."""
    dispatcher = recipe.dispatcher.rpartition("/")[2] or "alltoall"
    graphs = _graphs(f"graphs {recipe.cuda_graph}") if recipe.cuda_graph else ()
    return dispatcher, bool(recipe.ep_overlap), graphs
