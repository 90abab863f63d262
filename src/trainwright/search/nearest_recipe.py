"""The published recipe of the case nearest to a question, and how that case differs.

Only recipes of the same model are compared. They are ranked by, in this order:

1. device: the same one, one of the same family, another;
2. software: the same or a relative of it, another;
3. a distance, the sum of: |log2| of the ratio of device counts, twice that of sequence lengths, 1 if the
   precision differs, 2 if the workload does, 2 if the recipe is a default to start from and not tuned for
   speed, and for another device |log2| of the ratio of memory sizes; 3 for what a recipe does not state;
4. date, the newest first, and name.

Device counts and sequence lengths are weighed together, since a recipe for 256 devices at 65,536 tokens says
less about 512 devices at 8,192 tokens than one for 64 devices at 8,192 does. Sequence lengths count twice:
data parallelism takes up a change of the device count, while activations grow with every token. `is_close`
says which recipes are too far away to be compared with at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log2

from trainwright.cluster.load import load_device
from trainwright.cluster.types import Device
from trainwright.errors import UnknownName
from trainwright.model.load import load_entry
from trainwright.search.published_recipe import PRECISION_OF, PublishedRecipe, load_recipes
from trainwright.stack.load import stack_name

_SEQ_WEIGHT = 2.0
_PRECISION_DIFFERS = 1.0
_WORKLOAD_DIFFERS = 2.0
_NOT_TUNED = 2.0
_NOT_STATED = 3.0
_CLOSE_DEVICES, _CLOSE_SEQ = 4.0, 2.0  # doublings
# Software that holds and moves tensors alike, by the name that stands for all of it.
_KIN = {"nemo": "megatron-core", "megatron-lm": "megatron-core"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeMatch:
    """A recipe with how its case differs from the question's, in words; none if it is the same case."""

    recipe: PublishedRecipe
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeCase:
    """A case that recipes are compared with; `model` and `stack` are the catalog's names."""

    model: str
    device: Device
    devices: int
    seq: int
    precision: str
    stack: str
    workload: str = "pretrain"
    global_batch: int | None = None  # named as a difference, and of no weight


def nearest_recipe(
    *,
    model: str,
    device: str | Device,
    devices: int,
    seq: int,
    precision: str,
    stack: str,
    workload: str = "pretrain",
) -> RecipeMatch | None:
    """The nearest recipe for a model of the catalog; None if it has none, or no such model is there.

    `device` and `stack` are names or aliases of the catalog, `precision` is one of a strategy. Recipes that
    freeze weights answer only questions of that workload.
    """
    try:
        name = load_entry(model).architecture.name
    except UnknownName:
        return None
    case = RecipeCase(
        model=name, device=load_device(device) if isinstance(device, str) else device,
        devices=devices, seq=seq, precision=precision, stack=stack_name(stack), workload=workload,
    )  # fmt: skip
    return next(iter(ranked_recipes(case)), None)


def ranked_recipes(case: RecipeCase) -> tuple[RecipeMatch, ...]:
    """Every recipe of a case's model, the nearest first."""
    listed = [
        recipe
        for recipe in load_recipes()
        if recipe.model == case.model and (recipe.workload == "lora") == (case.workload == "lora")
    ]
    # Sorting twice keeps the newest first among equals: dates fall while all else rises.
    newest = sorted(sorted(listed, key=lambda each: each.name), key=lambda each: each.date, reverse=True)
    ranked = sorted(newest, key=lambda each: _rank(each, case))
    return tuple(RecipeMatch(recipe=each, differences=tuple(_differences(each, case))) for each in ranked)


def is_close(recipe: PublishedRecipe, case: RecipeCase) -> bool:
    """Whether a recipe says anything about a case.

    Its device is of the same family or not stated, its device count within a factor of 16 or not stated, its
    sequence length within a factor of 4.
    """
    device = _device(recipe)
    is_family = device.family == case.device.family if device else not recipe.device
    is_near = recipe.devices is None or _apart(recipe.devices, case.devices) <= _CLOSE_DEVICES
    return is_family and is_near and (recipe.seq is None or _apart(recipe.seq, case.seq) <= _CLOSE_SEQ)


def _rank(recipe: PublishedRecipe, case: RecipeCase) -> tuple[int, bool, float]:
    device = _device(recipe)
    if device is None:
        kinship = 2
    elif device.name == case.device.name:
        kinship = 0
    else:
        kinship = 1 if device.family == case.device.family else 2
    return kinship, _kin(recipe.stack) != _kin(case.stack), _distance(recipe, case)


def _distance(recipe: PublishedRecipe, case: RecipeCase) -> float:
    device = _device(recipe)
    memory = None if device is None else device.memory[0].capacity_bytes
    return (
        _apart(recipe.devices, case.devices)
        + _SEQ_WEIGHT * _apart(recipe.seq, case.seq)
        + _PRECISION_DIFFERS * (PRECISION_OF[recipe.precision] != case.precision)
        + _WORKLOAD_DIFFERS * (recipe.workload != case.workload)
        + _NOT_TUNED * (not recipe.tuned)
        + _apart(memory, case.device.memory[0].capacity_bytes)
    )


def _apart(one: float | None, other: float) -> float:
    """How many times one must be doubled or halved to be the other."""
    return _NOT_STATED if one is None else abs(log2(one / other))


def _device(recipe: PublishedRecipe) -> Device | None:
    """The recipe's device; None if it states none, or one that the catalog does not have."""
    if not recipe.device:
        return None
    try:
        return load_device(recipe.device)
    except UnknownName:
        return None


def is_same_case(recipe: PublishedRecipe, case: RecipeCase) -> bool:
    """Whether a recipe is for a case's software, device, device count, sequence length and precision.

    A relative of the software is the same.
    """
    device = _device(recipe)
    is_same_device = device is not None and device.name == case.device.name
    is_same_software = _kin(recipe.stack) == _kin(case.stack)
    own = (recipe.devices, recipe.seq, PRECISION_OF[recipe.precision])
    return is_same_device and is_same_software and own == (case.devices, case.seq, case.precision)


def _kin(stack: str) -> str:
    name = stack_name(stack)
    return _KIN.get(name, name)


def _differences(recipe: PublishedRecipe, case: RecipeCase) -> Iterator[str]:
    device = _device(recipe)
    if device is None or device.name != case.device.name:
        yield f"{recipe.device or 'no device stated'}, not {case.device.name}"
    if recipe.devices != case.devices:
        stated = "no device count" if recipe.devices is None else f"{recipe.devices:,} devices"
        yield f"{stated}, not {case.devices:,}"
    if recipe.seq != case.seq:
        stated = "no sequence length" if recipe.seq is None else f"sequence length {recipe.seq:,}"
        yield f"{stated}, not {case.seq:,}"
    if case.global_batch and recipe.global_batch and recipe.global_batch != case.global_batch:
        yield f"batch {recipe.global_batch:,}, not {case.global_batch:,}"
    if PRECISION_OF[recipe.precision] != case.precision:
        yield f"{recipe.precision}, not {case.precision}"
    if _kin(recipe.stack) != _kin(case.stack):
        yield f"{recipe.stack}, not {case.stack}"
    if recipe.workload != case.workload:
        yield f"{recipe.workload}, not {case.workload}"
