"""A published recipe as a `Strategy`, with the settings that a strategy cannot express."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose
from types import MappingProxyType

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.load import load_entry
from trainwright.plan.recompute_modules import canonical_recompute
from trainwright.plan.recompute_policies import (
    MAXTEXT_POLICIES,
    MEGATRON_DEFAULT,
    MEGATRON_LABELS,
    MEGATRON_NORM,
    SELECTIVE_AC,
    megatron_norm,
)
from trainwright.plan.strategy import Strategy
from trainwright.search.published_recipe import PRECISION_OF, PublishedRecipe
from trainwright.search.recipe_defaults import AssumedSetting, fill_defaults
from trainwright.search.recipe_stages import recipe_chunks, recipe_stage_layers, strategy_stage_layers

# Every name that `RecipeStrategy.unexpressed` may have, and what it stands for.
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "activation_offload": "which tensors are offloaded",
        "communication_buffers": "sizes of buckets, double buffers and registered buffers",
        "cross_entropy_fusion": "logits and loss in one kernel, or in tiles of the vocabulary",
        "cuda_graph": "what is captured",
        "dispatcher": "DeepEP or HybridEP in place of an all-to-all",
        "ep_overlap": "all-to-alls of experts behind the compute of another microbatch",
        "fp8_weight_copies": "which quantized and 16-bit copies of weights are kept",
        "gradient_dtype": "the buffer of gradients in bf16",
        "lora": "frozen weights and their adapters",
        "mesh": "axes beyond those of a strategy",
        "meta_init": "weights are made after they are sharded",
        "moe_capacity": "a capacity factor, or buffers of a fixed size for routed tokens",
        "mtp_layers": "layers that predict further tokens",
        "optimizer": "an optimizer other than Adam",
        "optimizer_dtypes": "dtypes of main gradients, moments and main weights",
        "overlap": "some communication overlaps, some does not",
        "pipeline_layout": "layers of stages other than a strategy's",
        "precision_recipe": "the kind of scaling, and layers or operators in another precision",
        "ranks_per_device": "a device that software sees as several",
        "recompute_method": "layers recomputed in groups",
        "recompute_modules": "which modules are recomputed, or which tensors are kept",
        "sharding": "whole matrices of optimizer state on one rank",
        "weight_dtype": "weights stored in another dtype",
    }
)
_OTHER = {
    "bucket_elements": "communication_buffers", "fsdp_double_buffer": "communication_buffers",
    "fsdp_unit_elements": "communication_buffers", "nccl_user_buffers": "communication_buffers",
    "cross_entropy": "cross_entropy_fusion", "vocab_tiling": "cross_entropy_fusion",
    "fp8_transpose_cache": "fp8_weight_copies", "fp8_param_gather": "fp8_weight_copies",
    "fp4_param_gather": "fp8_weight_copies", "reuse_grad_buffer": "fp8_weight_copies",
    "bf16_first_last": "precision_recipe", "bf16_first_layers": "precision_recipe",
    "bf16_last_layers": "precision_recipe", "fp8_attention": "precision_recipe",
    "fp8_output": "precision_recipe",
    "fsdp_main_grad_dtype": "optimizer_dtypes", "fsdp_main_param_dtype": "optimizer_dtypes",
    "fsdp_grad_comm_dtype": "optimizer_dtypes", "weight_dtype": "weight_dtype",
    "meta_init": "meta_init", "capacity_factor": "moe_capacity", "paged_stash": "moe_capacity",
    "shared_expert_overlap": "overlap", "gather_with_optimizer": "overlap", "delay_wgrad": "ep_overlap",
    "sequence_axis": "mesh", "fsdp_transpose": "mesh", "custom_mesh": "mesh",
    "lora_rank": "lora", "lora_targets": "lora",
}  # fmt: skip
_ZEROS = {
    "ddp": 0, "distributed-optimizer": 1, "layer-wise-optimizer": 1, "megatron-fsdp": 3, "fsdp2": 3,
    "fsdp": 3,
}  # fmt: skip
_CP_KINDS = {"p2p": "ring", "all_gather": "allgather", "a2a": "ulysses"}
_ADAMS = ("adam", "adamw", "decoupled_adamw", "adam_pax")
_LAYER_INPUT = "decoder_layer_input"  # MaxText's name for what full recomputation keeps
# What the strategy's fp8 and fp4 are, as exporters write them.
_PLAIN_PRECISIONS = ("fp32", "bf16", "fp8-delayed", "nvfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnexpressedSetting:
    """A setting of a recipe that its strategy does not say; `name` is one of `SETTINGS`."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeStrategy:
    """A recipe as a strategy: with the batch, what is missing, and what was filled in.

    `global_batch` is the recipe's, or one microbatch per replica where it states none.
    """

    strategy: Strategy
    seq: int | None
    global_batch: int
    unexpressed: tuple[UnexpressedSetting, ...]
    assumed: tuple[AssumedSetting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Degrees:
    """A recipe's degrees counted in devices."""

    dp: int
    tp: int
    cp: int
    micro_batch: int


def strategy_of(recipe: PublishedRecipe, devices: int | None = None) -> RecipeStrategy:
    """The recipe as a strategy on its own devices, or on so many with data parallelism taking up the change.

    The nearest strategy where one cannot say what the recipe does; `unexpressed` names each such setting.
    An error if the degrees do not divide the devices, or the recipe states no devices and none are given.
    """
    model = load_entry(recipe.model).architecture
    filled, assumed = fill_defaults(recipe, model)
    count = devices or recipe.devices
    if count is None:
        raise _bad(recipe, "devices", "", "the recipe does not state how many", "pass devices")
    degrees = _degrees(filled, count)
    strategy = _strategy(filled, model, degrees)
    named = [*_unexpressed(filled, model, strategy), *_from_other(filled, model)]
    return RecipeStrategy(
        strategy=strategy,
        seq=filled.seq,
        global_batch=filled.global_batch or degrees.micro_batch * degrees.dp,
        unexpressed=_merged(named),
        assumed=assumed,
    )


def _degrees(recipe: PublishedRecipe, devices: int) -> _Degrees:
    """Degrees in devices; where ranks share a device, they split its context, else its batch."""
    ranks, per_device = devices * recipe.ranks_per_device, recipe.ranks_per_device
    inner = recipe.tp * recipe.cp * recipe.pp
    if ranks % inner:
        rule = f"tp{recipe.tp} cp{recipe.cp} pp{recipe.pp} need a multiple of {inner}"
        raise _bad(recipe, "devices", devices, rule, "pass other devices")
    dp, cp, samples = ranks // inner, recipe.cp, recipe.micro_batch
    if recipe.stack == "maxtext":  # counts the samples of a rank, which tp and cp share
        samples *= recipe.tp * recipe.cp
    if per_device > 1 and cp % per_device == 0:
        cp //= per_device
    elif per_device > 1:
        if dp % per_device:
            rule = f"{dp} replicas do not fill devices of {per_device} ranks"
            raise _bad(recipe, "devices", devices, rule, "pass other devices")
        dp, samples = dp // per_device, samples * per_device
    micro_batch = round(samples)
    if micro_batch < 1 or not isclose(samples, micro_batch):
        rule = "is not a whole number of samples per replica"
        raise _bad(recipe, "micro batch", f"{samples:g}", rule, "a strategy cannot say it")
    return _Degrees(dp=dp, tp=recipe.tp, cp=cp, micro_batch=micro_batch)


def _strategy(recipe: PublishedRecipe, model: Architecture, degrees: _Degrees) -> Strategy:
    vpp = recipe_chunks(recipe)
    etp = (recipe.etp or 1) if model.experts else 1
    ranks = degrees.dp * degrees.tp * degrees.cp
    if model.experts and ranks % (recipe.ep * etp):
        rule = f"ep{recipe.ep} etp{etp} pp{recipe.pp} need a multiple of {recipe.ep * etp * recipe.pp}"
        raise _bad(recipe, "devices", ranks * recipe.pp, rule, "pass other devices")
    recompute, layers = _recompute(recipe, model, vpp)
    offload, moved = _offload(recipe, model)
    shards = degrees.dp * degrees.cp // recipe.replicas if recipe.replicas > 1 else 0
    return Strategy(
        dp=degrees.dp, tp=degrees.tp, sp=bool(recipe.sp) and degrees.tp > 1,
        cp=degrees.cp, cp_kind=_CP_KINDS[recipe.cp_kind] if degrees.cp > 1 else "ring",
        pp=recipe.pp, vpp=vpp, schedule="interleaved" if vpp > 1 else "1f1b",
        ep=recipe.ep if model.experts else 1, etp=etp,
        zero=_ZEROS[recipe.sharding], shard=shards, micro_batch=degrees.micro_batch,
        recompute=recompute, recompute_layers=layers, offload=offload, offload_layers=moved,
        precision=PRECISION_OF[recipe.precision], overlap=_overlaps(recipe, degrees),
    )  # fmt: skip


def _recompute(recipe: PublishedRecipe, model: Architecture, vpp: int) -> tuple[str, int]:
    """The nearest recomputation of a strategy, and of how many layers of a stage (0: all)."""
    if recipe.recompute in ("", "none"):
        return "none", 0
    if recipe.stack == "maxtext":
        return MAXTEXT_POLICIES.get(recipe.recompute, "full"), 0
    if recipe.stack.startswith("torchtitan") and recipe.recompute == "selective":
        return SELECTIVE_AC, 0
    if recipe.recompute == "selective":
        return canonical_recompute("+".join(_modules(recipe, model)) or "none"), 0
    layers = (recipe.recompute_layers or 0) * vpp if recipe.recompute_method == "block" else 0
    return "full", layers if layers < -(-model.layers // recipe.pp) else 0


def _modules(recipe: PublishedRecipe, model: Architecture) -> Iterator[str]:
    """The modules that Megatron's labels name; a label of a part that no model here has is none."""
    for label in recipe.recompute_modules or (MEGATRON_DEFAULT,):
        if label == MEGATRON_NORM:
            norm = megatron_norm(latent=bool(model.kv_lora_rank), experts=bool(model.experts))
            yield from [norm] if norm else []
        elif label in MEGATRON_LABELS:
            yield MEGATRON_LABELS[label]


def _offload(recipe: PublishedRecipe, model: Architecture) -> tuple[str, int]:
    """What goes to the host, and activations of how many layers of a stage (0: all).

    Of full recomputation that offloads what it keeps, activations of all layers.
    """
    counted = recipe.offload_layers
    optimizer = recipe.other.get("optimizer_offload") == "1"
    if not counted and _LAYER_INPUT not in recipe.offload_modules:
        return "optimizer" if optimizer else "none", 0
    every = counted >= -(-model.layers // recipe.pp) - 1  # the last one stays anyway
    return "both" if optimizer else "activations", 0 if every else counted


def _overlap_flags(recipe: PublishedRecipe, degrees: _Degrees) -> dict[str, bool]:
    """What overlaps and what does not, of the communication that there is and that the recipe speaks of."""
    stated = {
        "gradients": recipe.grad_overlap if degrees.dp * degrees.cp > 1 else None,
        "parameters": recipe.param_overlap if degrees.dp * degrees.cp > 1 else None,
        "tensor parallel": recipe.tp_overlap if degrees.tp > 1 else None,
    }
    return {name: value for name, value in stated.items() if value is not None}


def _overlaps(recipe: PublishedRecipe, degrees: _Degrees) -> bool:
    """Whether communication overlaps; interleaved stages send behind compute unless they are told not to."""
    flags = _overlap_flags(recipe, degrees)
    return not flags or any(flags.values()) or recipe_chunks(recipe) > 1


def _unexpressed(
    recipe: PublishedRecipe, model: Architecture, strategy: Strategy
) -> Iterator[tuple[str, str]]:
    yield from _memory_settings(recipe, model)
    yield from _state_settings(recipe)
    yield from _communication_settings(recipe, model, strategy)
    if recipe.pp > 1:
        stages = recipe_stage_layers(recipe, model.layers)
        if stages != strategy_stage_layers(recipe.pp, strategy.vpp, model.layers):
            yield "pipeline_layout", recipe.layout or recipe.stage_rule or "not stated"
    if recipe.mtp_layers:
        yield "mtp_layers", str(recipe.mtp_layers)
    if recipe.precision not in _PLAIN_PRECISIONS:
        yield "precision_recipe", recipe.precision
    if recipe.workload == "lora":
        yield "lora", "frozen weights"
    if recipe.cuda_graph:
        yield "cuda_graph", recipe.cuda_graph
    if recipe.ranks_per_device > 1:
        yield "ranks_per_device", str(recipe.ranks_per_device)


def _memory_settings(recipe: PublishedRecipe, model: Architecture) -> Iterator[tuple[str, str]]:
    """Recomputation and offload."""
    plain = not recipe.saved_modules or set(recipe.saved_modules) == {_LAYER_INPUT}
    unknown = [each for each in recipe.recompute_modules if each not in (*MEGATRON_LABELS, MEGATRON_NORM)]
    if recipe.recompute == "selective" and unknown and not recipe.stack.startswith("torchtitan"):
        yield "recompute_modules", " ".join(unknown)
    elif recipe.recompute not in ("", "selective", "custom", *MAXTEXT_POLICIES) or not plain:
        yield "recompute_modules", " ".join((recipe.recompute, *recipe.saved_modules))
    if recipe.recompute_method == "uniform" and (recipe.recompute_layers or 1) > 1:
        yield "recompute_method", f"uniform {recipe.recompute_layers}"
    if recipe.offload_modules and set(recipe.offload_modules) != {_LAYER_INPUT}:
        yield "activation_offload", " ".join(recipe.offload_modules)


def _state_settings(recipe: PublishedRecipe) -> Iterator[tuple[str, str]]:
    """Gradients and optimizer."""
    if recipe.grad_dtype == "bf16":
        yield "gradient_dtype", "bf16"
    if recipe.optimizer and recipe.optimizer.lower() not in _ADAMS:
        yield "optimizer", recipe.optimizer
    if recipe.sharding == "layer-wise-optimizer":
        yield "sharding", recipe.sharding
    if recipe.precision_aware:
        yield "optimizer_dtypes", "precision-aware"
    for name in ("main_grad_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
        if getattr(recipe, name) not in ("", "fp32"):
            yield "optimizer_dtypes", f"{name.removesuffix('_dtype')} {getattr(recipe, name)}"


def _communication_settings(
    recipe: PublishedRecipe, model: Architecture, strategy: Strategy
) -> Iterator[tuple[str, str]]:
    degrees = _Degrees(dp=strategy.dp, tp=strategy.tp, cp=strategy.cp, micro_batch=strategy.micro_batch)
    flags = _overlap_flags(recipe, degrees)
    if strategy.overlap and not all(flags.values()):
        yield "overlap", "without " + ", ".join(name for name, value in flags.items() if not value)
    if model.experts and recipe.ep > 1:
        if recipe.ep_overlap:
            yield "ep_overlap", "combined 1f1b"
        if recipe.dispatcher.startswith("flex"):
            yield "dispatcher", recipe.dispatcher


def _from_other(recipe: PublishedRecipe, model: Architecture) -> Iterator[tuple[str, str]]:
    """Settings that have no column of their own; a 0 turns off what a strategy does not say anyway."""
    for key, value in recipe.other.items():
        if key in _OTHER and value != "0" and (_OTHER[key] != "moe_capacity" or model.experts):
            yield _OTHER[key], f"{key} {value}"


def _merged(named: list[tuple[str, str]]) -> tuple[UnexpressedSetting, ...]:
    """One entry per name, its values joined."""
    values: dict[str, list[str]] = {}
    for name, value in named:
        values.setdefault(name, []).append(value)
    return tuple(
        UnexpressedSetting(name=name, value=", ".join(each)) for name, each in sorted(values.items())
    )


def _bad(recipe: PublishedRecipe, what: str, value: object, rule: str, remedy: str) -> BadInput:
    return BadInput(f'recipe "{recipe.name}": {what}', value, rule, remedy)
