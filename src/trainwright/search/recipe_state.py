"""The software of a published recipe with the state that the recipe itself sets.

The state is the optimizer, the dtypes of moments and gradients, the copies of low-precision weights, and what
is kept of logits. A plan of ours for the same question has the stack's own unless a user states another.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from trainwright.cost.chosen_optimizer import with_optimizer
from trainwright.cost.constants import Stack
from trainwright.search.published_recipe import PRECISION_OF, PublishedRecipe
from trainwright.stack.optimizer import ADAM_BYTES, GRADIENT_BYTES, OptimizerChoice

# Settings that a strategy cannot express and that a recipe's own job counts, and how far.
OWN_STATE: Mapping[str, str] = MappingProxyType(
    {
        "activation_offload": "tensors as the nearest setting",
        "cross_entropy_fusion": "Transformer Engine's, and tiles",
        "fp8_weight_copies": "gathered in low precision or not",
        "gradient_dtype": "yes",
        "optimizer": "yes",
        "optimizer_dtypes": "moments and remainders of weights",
        "precision_recipe": "copies of weights by kind of scaling",
        "weight_dtype": "yes",
    }
)
# Optimizers as recipes name them; the others are Adam.
_OPTIMIZERS = MappingProxyType({"dist_muon": "muon", "muon": "muon", "decoupled_lionw": "lion", "sgd": "sgd"})
_AWARE = MappingProxyType({"": "precision-aware", "fp32": "precision-aware", "bf16": "precision-aware-bf16"})
_ADAMW_BY_MOMENTS: Mapping[tuple[str, ...], str] = MappingProxyType(
    {("bf16", "fp32"): "adamw-mu-bf16", ("bf16", "bf16"): "adamw-bf16"}
)
# Bytes of a layer's weight by kind of scaling, where they differ from the stack's for the precision. A tensor
# has one scale, and Blackwell multiplies either layout of it, so there is one copy; Hopper has a transpose.
# NVIDIA/TransformerEngine, performance_considerations.rst:96-110 and linear.py:467-490.
_SINGLE_COPY = ("blackwell", "rubin")
_SCALED_BYTES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {kind: dict.fromkeys(_SINGLE_COPY, 1.0) for kind in ("fp8-tensorwise", "fp8-delayed")}
)
_WIDE_WEIGHT = 2.0  # bytes of the bf16 weight that is kept as well where fp8 or fp4 ones are not gathered
_GATHER_FLAGS = MappingProxyType({"fp8": "fp8_param_gather", "fp4": "fp4_param_gather"})


def optimizer_name(recipe: PublishedRecipe) -> str:
    """The catalog's name for a recipe's optimizer; of a recipe whose defaults are filled in."""
    named = _OPTIMIZERS.get(recipe.optimizer.lower())
    if named:
        return named
    return _AWARE.get(recipe.exp_avg_dtype, "precision-aware-fp8") if recipe.precision_aware else "adamw"


def recipe_stack(recipe: PublishedRecipe, stack: Stack, family: str) -> Stack:
    """The stack with a recipe's own state, on a family of devices; its defaults are filled in."""
    grad_dtype = recipe.grad_dtype if recipe.grad_dtype in GRADIENT_BYTES else ""
    found = with_optimizer(stack, optimizer_name(recipe), grad_dtype)
    if found.optimizer:
        found = replace(found, optimizer=_with_dtypes(recipe, found.optimizer))
    if recipe.other.get("weight_dtype") == "bf16":  # no master weight beyond the weight
        found = replace(found, optimizer_bytes=ADAM_BYTES)
    low = _weight_bytes(recipe, found, family)
    if low is not None:
        kept = {**found.capability.weight_bytes, PRECISION_OF[recipe.precision]: {family: low}}
        found = replace(found, capability=replace(found.capability, weight_bytes=kept))
    fused = found.fused_loss or recipe.other.get("cross_entropy") == "te"
    tiles = int(recipe.other.get("vocab_tiling", "1"))
    return replace(
        found,
        fused_loss=fused,
        logits_bytes=found.logits_bytes / tiles,
        expandable_segments=recipe.other.get("expandable_segments") == "1",
        expert_imbalance=1.0 if recipe.other.get("balanced_routing") == "1" else found.expert_imbalance,
    )


def state_options(recipe: PublishedRecipe, stack: Stack) -> tuple[str, str]:
    """A recipe's optimizer and gradient dtype as `--optimizer` and `--grad-dtype` state them.

    Empty where they are the stack's own, where the stack has no such setting, or where the optimizer is
    another algorithm, which changes what is trained; of a recipe with its defaults filled in.
    """
    able, name = stack.capability, _listed_optimizer(recipe)
    is_other = name not in able.optimizers or name == able.optimizers[0] or name in _OPTIMIZERS.values()
    optimizer = "" if is_other else name
    dtype = recipe.grad_dtype if recipe.grad_dtype in able.grad_dtypes else ""
    size = GRADIENT_BYTES.get(dtype)
    return optimizer, "" if (stack.gradient_bytes, stack.reduce_bytes) == (size, size) else dtype


def _listed_optimizer(recipe: PublishedRecipe) -> str:
    """The catalog's name for a recipe's optimizer, with the dtypes of AdamW's moments."""
    name = optimizer_name(recipe)
    if name != "adamw":
        return name
    return _ADAMW_BY_MOMENTS.get(tuple(each or "fp32" for each in _moments(recipe)), name)


def render_state(recipe: PublishedRecipe) -> str:
    """A recipe's own state in words; of a recipe with its defaults filled in."""
    return ", ".join(_state_words(recipe))


def _state_words(recipe: PublishedRecipe) -> Iterator[str]:
    yield optimizer_name(recipe)
    if "bf16" in (recipe.exp_avg_dtype, recipe.exp_avg_sq_dtype) and not recipe.precision_aware:
        yield "moments " + "/".join(
            each or "fp32" for each in (recipe.exp_avg_dtype, recipe.exp_avg_sq_dtype)
        )
    if recipe.grad_dtype:
        yield f"gradients {recipe.grad_dtype}"
    if recipe.other.get("cross_entropy") == "te":
        yield "Transformer Engine's cross entropy"
    if tiles := recipe.other.get("vocab_tiling"):
        yield f"logits in {tiles} tiles"


def _with_dtypes(recipe: PublishedRecipe, choice: OptimizerChoice) -> OptimizerChoice:
    """An optimizer of two moments in the dtypes that the recipe states; what it does not state stays fp32."""
    if choice.moments != 2 or recipe.precision_aware:
        return choice
    inherited = "bf16" if recipe.other.get("weight_dtype") == "bf16" else "fp32"
    return replace(choice, moment_bytes=sum(GRADIENT_BYTES[each or inherited] for each in _moments(recipe)))


def _moments(recipe: PublishedRecipe) -> tuple[str, str]:
    return recipe.exp_avg_dtype, recipe.exp_avg_sq_dtype


def _weight_bytes(recipe: PublishedRecipe, stack: Stack, family: str) -> float | None:
    """Bytes of a layer's weight under the recipe's scaling; None: the stack's own."""
    precision = PRECISION_OF[recipe.precision]
    own = stack.capability.weight_bytes.get(precision, {}).get(family)
    if own is None:
        return None
    low = _SCALED_BYTES.get(recipe.precision, {}).get(family, own)
    gathers = recipe.other.get(_GATHER_FLAGS[precision], "0" if recipe.precision == "fp8-blockwise" else "1")
    return low if gathers == "1" else low + _WIDE_WEIGHT
