"""Published recipes as strategies, and what of them a strategy cannot express."""

import re

import pytest

from tests.unit.search.recipe_rows import named, recipe
from trainwright.errors import BadInput
from trainwright.plan.strategy import parse_strategy
from trainwright.search.published_recipe import PublishedRecipe, load_recipes
from trainwright.search.recipe_defaults import STACK_DEFAULTS
from trainwright.search.recipe_strategy import SETTINGS, RecipeStrategy, strategy_of


def missing(one: RecipeStrategy) -> dict[str, str]:
    return {each.name: each.value for each in one.unexpressed}


@pytest.mark.parametrize(
    ("name", "strategy", "batch"),
    [
        (
            "llama3_70b_pretrain_64gpu_h100_fp8cs_config",
            "dp2 tp4 sp pp8 vpp5 mb1 zero1 interleaved fp8",
            256,
        ),
        (
            "llama31_405b_pretrain_256gpu_gb200_fp8cs_config",
            "dp4 tp4 sp pp16 vpp4 mb1 zero1 interleaved fp8",
            1536,
        ),
        (
            "deepseek_v3_pretrain_256gpu_gb200_bf16_config",
            "dp64 pp4 vpp4 ep64 mb1 zero1 interleaved recompute=mla_up_proj bf16",
            4096,
        ),
        # 10 layers of the one chunk of a rank; NeMo's fp8 is delayed scaling unless it is told otherwise.
        ("pre_train_llama3_70b_64_b200_fp8", "dp64 mb1 zero3 full10 fp8", 128),
        # NeMo sets sequence parallelism wherever tensors are split.
        ("pre_train_llama3_70b_64_h100_bf16", "dp2 tp4 sp cp2 pp4 vpp5 mb1 zero1 interleaved bf16", 128),
        # 95 of 126 layers offload their activations.
        ("pre_train_llama31_405b_128_gb200_fp8", "dp64 tp2 sp mb1 zero3 offload-activations95 fp8", 256),
        # Samples of a device, times the two that share them: 0.5 · 2 = 1.
        ("gpt_3_175b_v5p_128", "dp32 tp2 sp mb1 zero3 recompute=norm+rope+act+mlp_up bf16", 32),
        # 512 ranks on 256 chips: cp 8 of ranks is cp 4 of chips, and 0.125 · 8 = 1 sample a replica.
        ("ironwood/llama3.1-70b/128k-bf16-tpu7x-4x8x8/xpk", "dp64 cp4 allgather mb1 zero3 full bf16", 64),
        # 8 copies of state sharded over 64 ranks, which are 32 chips; 10 samples a rank.
        (
            "ironwood/gpt-oss-120b/8k-bf16-tpu7x-4x8x8/xpk",
            "dp256 mb20 zero3 hsdp32 full offload-activations bf16",
            5120,
        ),
        ("deepseek_v3_ep_256_v5p_512", "dp256 ep256 mb4 zero3 full offload-activations bf16", 1024),
    ],
)
def test_a_recipe_becomes_the_strategy_that_it_states(name: str, strategy: str, batch: int) -> None:
    found = strategy_of(named(name))
    assert (str(found.strategy), found.global_batch) == (strategy, batch)


def test_every_strategy_is_on_the_devices_of_its_recipe() -> None:
    count = 0
    for one in load_recipes():
        try:
            found = strategy_of(one)
        except BadInput:
            continue
        count += 1
        assert found.strategy.devices == one.devices
        assert parse_strategy(str(found.strategy)) == found.strategy
        assert {each.name for each in found.unexpressed} <= {*SETTINGS}
    assert count >= 375


def test_all_but_a_few_recipes_are_strategies() -> None:
    refused = [one.name for one in load_recipes() if not _is_strategy(one)]
    assert len(refused) <= 12


def _is_strategy(one: PublishedRecipe) -> bool:
    try:
        strategy_of(one, one.devices or 512)
    except BadInput:
        return False
    return True


def test_data_parallelism_takes_up_other_devices() -> None:
    found = strategy_of(named("llama3_70b_pretrain_64gpu_h100_fp8cs_config"), 512)
    assert str(found.strategy) == "dp16 tp4 sp pp8 vpp5 mb1 zero1 interleaved fp8"


def test_a_recipe_without_devices_needs_some() -> None:
    titan = named("llama3_70b.toml")
    with pytest.raises(BadInput, match=r'"llama3_70b.toml": devices: the recipe does not state how many'):
        strategy_of(titan)
    assert str(strategy_of(titan, 256).strategy) == "dp32 tp8 sp mb8 zero3 full bf16"
    assert strategy_of(titan, 256).global_batch == 256  # one microbatch of 8 for each of 32 replicas


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tp": 3}, r'recipe "mine": devices 8: tp3 cp1 pp1 need a multiple of 3; pass other devices'),
        ({"model": "mixtral-8x7b", "ep": 8, "pp": 2}, r"devices 8: ep8 etp1 pp2 need a multiple of 16"),
        ({"micro_batch": 0.5}, r'micro batch "0.5": is not a whole number of samples per replica'),
        ({"ranks_per_device": 2, "tp": 16}, r"devices 8: 1 replicas do not fill devices of 2 ranks"),
    ],
)
def test_degrees_that_do_not_divide_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        strategy_of(recipe(**change))


def test_what_megatron_does_where_a_recipe_is_silent_is_filled_in_with_its_source() -> None:
    found = strategy_of(recipe(model="mixtral-8x7b", tp=2, cp=2, ep=2))
    assert (found.strategy.etp, found.strategy.sp, found.strategy.zero) == (2, False, 0)
    assumed = {each.name: each for each in found.assumed}
    assert {"etp", "sp", "cp_kind", "sharding", "grad_dtype"} <= {*assumed}
    assert assumed["etp"].source.startswith("NVIDIA/Megatron-LM@d98e8a64")
    assert assumed["etp"].source.endswith("arguments.py:586-588")


def test_a_recipe_that_states_everything_leaves_nothing_to_its_software() -> None:
    stated = recipe(
        model="mixtral-8x7b", tp=2, sp=True, etp=1, sharding="ddp", optimizer="adam", grad_dtype="fp32"
    )
    assert strategy_of(stated).assumed == ()
    assert strategy_of(stated).strategy.etp == 1


def test_every_default_names_a_file_and_a_line_or_says_that_it_is_inferred() -> None:
    line = re.compile(r"\.(py|yml):\d+")
    sources = [each.source for defaults in STACK_DEFAULTS.values() for each in defaults]
    assert [each for each in sources if not line.search(each) and "inferred" not in each] == []


def test_every_stack_of_a_recipe_has_defaults() -> None:
    assert {each.stack for each in load_recipes()} <= {*STACK_DEFAULTS}


@pytest.mark.parametrize(
    ("change", "setting", "value"),
    [
        ({"pp": 2, "layout": "Et*15|t*17L"}, "pipeline_layout", "Et*15|t*17L"),
        ({"recompute": "selective", "recompute_modules": ("router",)}, "recompute_modules", "router"),
        (
            {"recompute": "full", "recompute_method": "uniform", "recompute_layers": 2},
            "recompute_method",
            None,
        ),
        ({"offload_modules": ("expert_fc1",)}, "activation_offload", "expert_fc1"),
        ({"grad_dtype": "bf16"}, "gradient_dtype", "bf16"),
        (
            {"precision_aware": True, "exp_avg_dtype": "bf16"},
            "optimizer_dtypes",
            "precision-aware, exp_avg bf16",
        ),
        ({"optimizer": "dist_muon", "sharding": "layer-wise-optimizer"}, "optimizer", "dist_muon"),
        ({"optimizer": "dist_muon", "sharding": "layer-wise-optimizer"}, "sharding", "layer-wise-optimizer"),
        ({"precision": "mxfp8"}, "precision_recipe", "mxfp8"),
        (
            {"precision": "nvfp4", "other": {"bf16_last_layers": "4"}},
            "precision_recipe",
            "bf16_last_layers 4",
        ),
        ({"tp": 2, "grad_overlap": True, "tp_overlap": False}, "overlap", "without tensor parallel"),
        ({"cuda_graph": "local"}, "cuda_graph", "local"),
        ({"mtp_layers": 1}, "mtp_layers", "1"),
        ({"workload": "lora"}, "lora", "frozen weights"),
        ({"other": {"fsdp_double_buffer": "1"}}, "communication_buffers", "fsdp_double_buffer 1"),
    ],
)
def test_what_a_strategy_cannot_express_is_named(
    change: dict[str, object], setting: str, value: str | None
) -> None:
    assert setting not in missing(strategy_of(recipe()))
    found = missing(strategy_of(recipe(**change)))
    assert setting in found
    assert value is None or found[setting] == value


def test_settings_of_experts_are_named_for_models_that_have_some() -> None:
    change: dict[str, object] = {
        "ep": 8, "ep_overlap": True, "dispatcher": "flex/hybridep", "other": {"capacity_factor": "1.5"},
    }  # fmt: skip
    assert {"ep_overlap", "dispatcher", "moe_capacity"} <= {
        *missing(strategy_of(recipe(model="mixtral-8x7b", **change)))
    }
    assert not {"ep_overlap", "dispatcher", "moe_capacity"} & {*missing(strategy_of(recipe(**change)))}


@pytest.mark.parametrize(
    "change",
    [
        {"pp": 4, "vpp": 2},  # 32 layers in 8 chunks of 4
        {"model": "llama3-405b", "devices": 128, "pp": 16, "vpp": 8, "stage_rule": "embedding+loss"},
        {"model": "mixtral-8x7b", "recompute": "selective", "recompute_modules": ("moe_act", "layernorm")},
        {"recompute": "full", "recompute_method": "block", "recompute_layers": 3},
        {"precision": "fp8-delayed"},
        {"grad_overlap": False, "param_overlap": False},  # none overlaps: no-overlap
        {"other": {"fsdp_double_buffer": "0", "expandable_segments": "1"}},
    ],
)
def test_what_a_strategy_expresses_is_not_named(change: dict[str, object]) -> None:
    assert missing(strategy_of(recipe(**change))) == {}


def test_layers_are_counted_in_every_chunk() -> None:
    # 1 of the 4 layers of each of 2 chunks: 2 of a rank's 8.
    block: dict[str, object] = {"recompute": "full", "recompute_method": "block"}
    one = strategy_of(recipe(pp=4, vpp=2, recompute_layers=1, **block)).strategy
    assert (one.recompute, one.recompute_layers) == ("full", 2)
    every = strategy_of(recipe(pp=4, vpp=2, recompute_layers=4, **block)).strategy
    assert every.recompute_layers == 0


def test_nothing_overlaps_only_where_the_recipe_turns_everything_off() -> None:
    off: dict[str, object] = {"grad_overlap": False, "param_overlap": False}
    assert not strategy_of(recipe(**off)).strategy.overlap
    assert strategy_of(recipe(pp=4, vpp=2, **off)).strategy.overlap  # interleaved stages send behind compute
    assert strategy_of(recipe(devices=1, **off)).strategy.overlap  # nothing is sent


@pytest.mark.parametrize(
    ("layers", "offload", "counted"),
    [(0, "none", 0), (5, "activations", 5), (31, "activations", 0), (32, "activations", 0)],
)
def test_activations_are_offloaded_by_a_number_of_layers(layers: int, offload: str, counted: int) -> None:
    # llama3-8b has 32 layers, the last of which stays on the device
    found = strategy_of(recipe(offload_layers=layers, pp=1))
    assert (found.strategy.offload, found.strategy.offload_layers) == (offload, counted)
    assert "activation_offload" not in {each.name for each in found.unexpressed}
