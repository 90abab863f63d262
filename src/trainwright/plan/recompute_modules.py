"""Recomputation as a set of modules: what each one runs again, and what a block then keeps for backward.

This is the only place that says which operators a module name means. The closed form, the expansion to a
plan, the exporters and the readers all ask here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import overload

from trainwright.errors import UnknownName
from trainwright.model.graph import Block, Op, Tensor

NONE, FULL = "none", "full"
Results = Mapping[str, frozenset[str]]  # of operators of a block by name: names of results


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeModule:
    """A named part of a layer that can be run again before its backward instead of being kept.

    With `keeps_result`, what the part makes for others stays: an ordinary checkpoint of a function. Without,
    it is discarded too and made again before a reader's backward needs it.
    """

    name: str
    frees: str
    costs: str
    runs: Callable[[Op], bool]
    keeps_result: bool = False
    frees_results: Callable[[Sequence[Op]], Results] | None = None  # of a block, where it is not all of them


def _is_latent_up(op: Op) -> bool:
    """Whether an operator expands the latents of multi-head latent attention; its rotation reads three."""
    if op.name in ("attention.q_up", "attention.kv_up"):
        return True
    latent_rope = op.name == "attention.rope" and len(op.inputs) == 3
    return latent_rope or (op.name == "attention.q" and op.kind == "matmul")


def _is_qkv(op: Op) -> bool:
    names = ("attention.qkv", "cross.q", "cross.kv", "attention.q_down", "attention.kv_down")
    return op.kind == "matmul" and op.name in names


def _is_moe(op: Op) -> bool:
    return op.region in ("experts", "shared") or op.name in ("router", "shared.gate_scale")


def _every_second_dot(ops: Sequence[Op]) -> Results:
    """Norms and elementwise work, a router, and every second matmul of a block, counted result by result."""
    listed = [
        (op.name, tensor.name)
        for op in ops
        if op.kind == "matmul" and op.name != "router"
        for tensor in (op.output, *op.extra_outputs)
    ]
    found = {
        op.name: frozenset(tensor.name for tensor in (op.output, *op.extra_outputs))
        for op in ops
        if op.kind in ("norm", "elementwise") or op.name == "router"
    }
    for op, result in listed[1::2]:
        found[op] = found.get(op, frozenset()) | {result}
    return found


# In the order in which a set is written, inner parts before what contains them.
MODULES: tuple[RecomputeModule, ...] = (
    RecomputeModule(
        name="norm", frees="outputs of norms", costs="norms; a gather of their outputs under sp",
        runs=lambda op: op.kind == "norm",
    ),
    RecomputeModule(
        name="mlp_norm", frees="outputs of norms before feed-forward branches, dense or of experts",
        costs="these norms; a gather of their outputs under sp", runs=lambda op: op.name == "norm2",
    ),
    RecomputeModule(
        name="rope", frees="rotated q and k (the projected ones are kept instead)",
        costs="elementwise work inside attention",
        runs=lambda op: op.kind == "elementwise" and op.region == "attention",
    ),
    RecomputeModule(
        name="qkv", frees="projected q, k, v", costs="the projections; a gather of their input under sp",
        runs=_is_qkv,
    ),
    RecomputeModule(
        name="mla_up_proj", frees="expanded q, k, v of latent attention", costs="up projections and rotation",
        runs=_is_latent_up,
    ),
    RecomputeModule(
        name="core_attn", frees="score matrices of unfused attention; with fused attention statistics only",
        costs="attention, with its keys and values gathered again under cp",
        runs=lambda op: op.kind == "attention", keeps_result=True,
    ),
    RecomputeModule(
        name="context", frees="the result of attention, and what core_attn frees", costs="attention",
        runs=lambda op: op.kind == "attention",
    ),
    RecomputeModule(
        name="out_proj", frees="the output projection's result; with residual, the stream behind attention",
        costs="the output projection",
        runs=lambda op: op.kind == "matmul" and op.region == "attention" and op.name.endswith(".output"),
    ),
    RecomputeModule(
        name="residual", frees="sums of the residual stream inside a layer", costs="elementwise work",
        runs=lambda op: op.kind == "elementwise" and op.name.startswith("residual"),
    ),
    RecomputeModule(
        name="act", frees="output of the dense ffn's (and shared experts') activation",
        costs="elementwise work",
        runs=lambda op: op.kind == "elementwise" and op.region in ("ffn", "shared"),
    ),
    RecomputeModule(
        name="mlp_up", frees="outputs of the dense ffn's first matmul",
        costs="that matmul; a gather of its input under sp",
        runs=lambda op: op.name == "ffn.up",
    ),
    RecomputeModule(
        name="mlp", frees="everything inside the dense ffn; its input is kept", costs="the ffn's forward",
        runs=lambda op: op.region == "ffn",
    ),
    RecomputeModule(
        name="moe_act", frees="output of the experts' activation", costs="elementwise work",
        runs=lambda op: op.kind == "elementwise" and op.region == "experts",
    ),
    RecomputeModule(
        name="shared_experts", frees="everything inside the shared experts", costs="their forward",
        runs=lambda op: op.region == "shared" or op.name == "shared.gate_scale",
    ),
    RecomputeModule(
        name="moe", frees="everything inside the MoE layer; its input is kept",
        costs="its forward, with dispatch and combine",
        runs=_is_moe,
    ),
    RecomputeModule(
        name="dots", frees="all but attention, experts' matmuls and every second other matmul, in order",
        costs="every second matmul outside the experts, norms and elementwise work",
        runs=lambda op: op.kind in ("norm", "elementwise", "matmul"), frees_results=_every_second_dot,
    ),
)  # fmt: skip
MODULE: Mapping[str, RecomputeModule] = {module.name: module for module in MODULES}
NAMES = tuple(MODULE)

# What `selective` means: norms and elementwise work inside branches, or the score matrices where they exist.
SELECTIVE = "norm+rope+act+moe_act"
SELECTIVE_UNFUSED = "core_attn"
ALIASES = {"selective": SELECTIVE}


@cache
def canonical_recompute(text: str) -> str:
    """The set that a text names, as it is written: `moe_act+norm` is `norm+moe_act`."""
    text = ALIASES.get(text, text)
    if text in (NONE, FULL):
        return text
    names = text.split("+")
    for name in names:
        if name not in MODULE:
            raise UnknownName("strategy recompute", name, (NONE, FULL, *ALIASES, *NAMES))
    return "+".join(name for name in NAMES if name in names)


def recompute_modules(recompute: str) -> tuple[str, ...]:
    """The modules of a set; none of `none`, and of `full`, which is no set of modules."""
    found = canonical_recompute(recompute)
    return () if found in (NONE, FULL) else tuple(found.split("+"))


def selective_of(text: str, *, unfused: bool) -> str:
    """The set that a text names for software with or without fused attention."""
    return SELECTIVE_UNFUSED if text == "selective" and unfused else canonical_recompute(text)


class RecomputeSets(Sequence[str]):
    """Every recomputation with its number: none, the sets of modules as bits, and full, the last.

    A set's number is above those of its subsets.
    """

    def __len__(self) -> int:
        return (1 << len(NAMES)) + 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        code = range(len(self))[index]
        if code in (0, 1 << len(NAMES)):
            return NONE if code == 0 else FULL
        return "+".join(name for bit, name in enumerate(NAMES) if code >> bit & 1)

    def index(self, value: str, start: int = 0, stop: int | None = None) -> int:
        found = canonical_recompute(value)
        if found in (NONE, FULL):
            return 0 if found == NONE else 1 << len(NAMES)
        return sum(1 << NAMES.index(name) for name in found.split("+"))

    def __contains__(self, value: object) -> bool:
        try:
            return isinstance(value, str) and canonical_recompute(value) == value
        except UnknownName:
            return False


RECOMPUTES = RecomputeSets()


def is_subset(less: int, more: int) -> bool:
    """Whether one recomputation's modules are all among another's, both by number; nothing is part of full
    but nothing itself.
    """
    full = len(RECOMPUTES) - 1
    return less == 0 or less == more or (full not in (less, more) and less & more == less)


def freed_results(ops: Sequence[Op], recompute: str) -> Results:
    """The operators of a block that a set of modules runs again, with the results that it frees of each."""
    found: dict[str, frozenset[str]] = {}
    for module in (MODULE[name] for name in recompute_modules(recompute)):
        some = module.frees_results(ops) if module.frees_results else None
        for op in ops:
            if op.name in some if some is not None else module.runs(op):
                results = () if module.keeps_result else (op.output, *op.extra_outputs)
                own = some[op.name] if some is not None else frozenset(each.name for each in results)
                found[op.name] = found.get(op.name, frozenset()) | own
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """What a block runs again under a set of modules, and what it keeps for backward.

    `runs` are the operators that run again, neighbours together; `remade` are the tensors that each run makes
    for backward.
    """

    kept: tuple[Tensor, ...]
    runs: tuple[tuple[Op, ...], ...]
    remade: tuple[tuple[Tensor, ...], ...]
    results: Results  # that are freed of each operator of the set

    @property
    def ops(self) -> frozenset[str]:
        """Names of all operators that run again."""
        return frozenset(op.name for run in self.runs for op in run)


@cache
def recomputed(block: Block, recompute: str) -> Recomputed:
    """What a set of modules means for one block.

    A tensor that backward reads is kept unless an operator of the set makes it. Operators of the set that are
    neighbours run again together, if backward reads what one of them makes; what they read must be kept, or
    be made by other operators of the set.
    """
    results = freed_results(block.ops, recompute)
    needed = {tensor.name: tensor for op in block.ops for tensor in op.saved}
    kept, runs = dict(needed), list[tuple[Op, ...]]()
    made: dict[str, Tensor] = {}
    remade: list[tuple[Tensor, ...]] = []
    chosen = list(_neighbours(block, results))
    freed = {tensor.name for run in chosen for op in run for tensor in _freed(block, results, op)}
    for run in reversed(chosen):
        found = [tensor for op in run for tensor in _freed(block, results, op) if tensor.name in needed]
        if not found:
            continue
        runs.append(run)
        remade.append(tuple({tensor.name: needed[tensor.name] for tensor in found}.values()))
        made |= {tensor.name: tensor for tensor in found}
        own = {tensor.name for op in run for tensor in _freed(block, results, op)}
        for tensor in (each for op in run for each in op.inputs if each.name not in own):
            needed.setdefault(tensor.name, tensor)
            if tensor.name not in freed:
                kept.setdefault(tensor.name, tensor)
    stays = tuple(tensor for name, tensor in kept.items() if name not in made)
    return Recomputed(kept=stays, runs=tuple(reversed(runs)), remade=tuple(reversed(remade)), results=results)


def _neighbours(block: Block, results: Results) -> Iterator[tuple[Op, ...]]:
    """Runs of neighbouring operators that a set contains."""
    run: list[Op] = []
    for op in block.ops:
        if op.name in results:
            run.append(op)
        elif run:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def _freed(block: Block, results: Results, op: Op) -> Iterator[Tensor]:
    """What need not be kept of an operator that runs again: results, and what it alone saves."""
    made = (op.output, *op.extra_outputs)
    yield from (tensor for tensor in made if tensor.name in results[op.name])
    known = {tensor.name for tensor in (*op.inputs, *made)}
    others = [each for each in block.ops if each.name not in results]
    for tensor in op.saved:
        if tensor.name not in known and all(tensor not in each.saved for each in others):
            yield tensor


def repeated_share(op: Op, results: frozenset[str], sizes: Mapping[str, float]) -> float:
    """The share of an operator's work that makes some of its results again; all of it, if it makes none."""
    made = {tensor.name: prod(sizes[dim] for dim in tensor.dims) for tensor in (op.output, *op.extra_outputs)}
    return sum(made[name] for name in results) / sum(made.values()) if results else 1.0
