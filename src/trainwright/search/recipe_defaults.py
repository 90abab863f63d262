"""What a training software does where a published recipe is silent, each with the line that says so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trainwright.model.architecture import Architecture
from trainwright.search.published_recipe import PublishedRecipe

_MEGATRON = "NVIDIA/Megatron-LM@d98e8a64 (2026-08-22)"
_NEMO = "NVIDIA-NeMo/NeMo 2.5.0, scripts/performance"
_TITAN = "pytorch/torchtitan 0.2.2"
_MAXTEXT = "AI-Hypercomputer/maxtext@e591f30c (2026-08-22), configs/base.yml"
_FOUNDRY = "mosaicml/llm-foundry@8c8dd48f (2025-07-21)"

Needed = Callable[[PublishedRecipe, Architecture], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDefault:
    """The value of a recipe's field where the recipe has none, if the field matters to it."""

    field: str
    value: Callable[[PublishedRecipe], object]
    source: str
    needed: Needed = lambda recipe, model: True


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedSetting:
    """A setting that the recipe leaves to its software."""

    name: str
    value: str
    source: str


def _has_experts(recipe: PublishedRecipe, model: Architecture) -> bool:
    return model.experts > 0


def _splits_tensors(recipe: PublishedRecipe, model: Architecture) -> bool:
    return recipe.tp > 1


def _splits_context(recipe: PublishedRecipe, model: Architecture) -> bool:
    return recipe.cp > 1


def _is_selective(recipe: PublishedRecipe, model: Architecture) -> bool:
    return recipe.recompute == "selective"


def _is_bf16(recipe: PublishedRecipe, model: Architecture) -> bool:
    return recipe.precision == "bf16"


def _is_fp8(recipe: PublishedRecipe, model: Architecture) -> bool:
    return recipe.precision == "fp8"


def _is_pipelined(*names: str) -> Needed:
    return lambda recipe, model: model.name in names and recipe.pp > 1 and not recipe.layout


def _fixed(value: object) -> Callable[[PublishedRecipe], object]:
    return lambda recipe: value


_MEGATRON_DEFAULTS = (
    StackDefault(
        field="etp", value=lambda recipe: recipe.tp, needed=_has_experts,
        source=f"{_MEGATRON} megatron/training/arguments.py:586-588",
    ),
    StackDefault(
        field="sp", value=_fixed(False), needed=_splits_tensors,
        source=f"{_MEGATRON} megatron/core/model_parallel_config.py:94",
    ),
    StackDefault(
        field="cp_kind", value=_fixed("p2p"), needed=_splits_context,
        source=f"{_MEGATRON} --cp-comm-type, megatron/training/arguments.py:578-584",
    ),
    StackDefault(
        field="sharding", value=_fixed("ddp"),
        source=f"{_MEGATRON} megatron/core/distributed/distributed_data_parallel_config.py:29",
    ),
    StackDefault(
        field="recompute_modules", value=_fixed(("core_attn",)), needed=_is_selective,
        source=f"{_MEGATRON} megatron/core/transformer/transformer_config.py:1940-1962",
    ),
    StackDefault(
        field="grad_dtype", value=_fixed("fp32"),
        source=f"{_MEGATRON} megatron/training/arguments.py:1213-1217",
    ),
    StackDefault(
        field="optimizer", value=_fixed("adam"),
        source=f"{_MEGATRON} megatron/core/optimizer/optimizer_config.py:209",
    ),
)  # fmt: skip

# Software by the order in which its defaults are asked; a field that one has set is not silent for the next.
STACK_DEFAULTS: Mapping[str, tuple[StackDefault, ...]] = {
    "megatron-bridge": _MEGATRON_DEFAULTS,
    "nemo": (
        StackDefault(
            field="sp", value=lambda recipe: recipe.tp > 1, needed=_splits_tensors,
            source=f"{_NEMO}/helpers.py:455",
        ),
        StackDefault(field="grad_dtype", value=_fixed("bf16"), source=f"{_NEMO}/helpers.py:224"),
        StackDefault(
            field="precision_aware", value=_fixed(True), needed=_is_bf16, source=f"{_NEMO}/helpers.py:207-208"
        ),
        StackDefault(
            field="precision", value=_fixed("fp8-delayed"), needed=_is_fp8,
            source=f"{_NEMO}/helpers.py:211-214",
        ),
        StackDefault(
            field="stage_rule", value=_fixed("embedding+loss"), needed=_is_pipelined("llama3-405b"),
            source="NVIDIA-NeMo/NeMo 2.5.0, nemo/collections/llm/recipes/llama31_405b.py:72-73",
        ),
        StackDefault(
            field="stage_rule", value=_fixed("embedding+loss"), needed=_is_pipelined("qwen3-235b-a22b"),
            source="NVIDIA-NeMo/NeMo 2.5.0, nemo/collections/llm/recipes/qwen3_235b_a22b.py:151-152",
        ),
        StackDefault(
            field="stage_rule", value=_fixed("first-full"), needed=_is_pipelined("deepseek-v3"),
            source=f"{_NEMO}/llm/pretrain_deepseek_v3.py:98-106",
        ),
        *_MEGATRON_DEFAULTS,
    ),
    "torchtitan": (
        StackDefault(
            field="sp", value=_fixed(True), needed=_splits_tensors,
            source="pytorch/torchtitan@b5bcd76c (2026-08-21) torchtitan/config/configs.py:169",
        ),
        StackDefault(
            field="etp", value=_fixed(1), needed=_has_experts,
            source=f"{_TITAN} torchtitan/config/job_config.py:464",
        ),
        StackDefault(
            field="grad_dtype", value=_fixed("fp32"),
            source="pytorch/torchtitan@b5bcd76c (2026-08-21) torchtitan/config/configs.py:87-106",
        ),
    ),
    "maxtext": (
        StackDefault(
            field="sp", value=lambda recipe: recipe.tp > 1, needed=_splits_tensors,
            source=f"{_MAXTEXT}, inferred: activations between layers are sharded over the tensor axis",
        ),
        StackDefault(
            field="etp", value=_fixed(1), needed=_has_experts,
            source=f"{_MAXTEXT}:529-531: no axis of tensors inside experts",
        ),
        StackDefault(
            field="cp_kind", value=_fixed("all_gather"), needed=_splits_context, source=f"{_MAXTEXT}:1201"
        ),
        StackDefault(field="seq", value=_fixed(2048), source=f"{_MAXTEXT}:880"),
        StackDefault(field="grad_dtype", value=_fixed("fp32"), source=f"{_MAXTEXT}:111"),
    ),
    "llm-foundry": (
        StackDefault(
            field="grad_dtype", value=_fixed("fp32"),
            source=f"{_FOUNDRY}, composer distributed/mosaic_parallelism.py:59-98: sharded in fp32",
        ),
        StackDefault(
            field="etp", value=_fixed(1), needed=_has_experts,
            source=f"{_FOUNDRY} llmfoundry/utils/config_utils.py:515-600: no tensor parallelism of experts",
        ),
    ),
}  # fmt: skip


def fill_defaults(
    recipe: PublishedRecipe, model: Architecture
) -> tuple[PublishedRecipe, tuple[AssumedSetting, ...]]:
    """The recipe with what its software does where it is silent, and a list of what was filled in."""
    assumed = []
    for default in STACK_DEFAULTS[recipe.stack]:
        silent = _is_silent(recipe, default.field)
        if not silent or not default.needed(recipe, model):
            continue
        value = default.value(recipe)
        recipe = replace(recipe, **{default.field: value})  # type: ignore[arg-type]
        shown = " ".join(value) if isinstance(value, tuple) else str(value)
        assumed.append(AssumedSetting(name=default.field, value=shown, source=default.source))
    return recipe, tuple(assumed)


def _is_silent(recipe: PublishedRecipe, field: str) -> bool:
    """Whether a recipe leaves a field open; `fp8` alone does not say which kind of scaling."""
    value = getattr(recipe, field)
    return value is None or value in ("", ()) or (field == "precision" and value == "fp8")
