from functools import cache

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import trainwright  # noqa: E402
from tests.runtime.trace_checks import check_parts, check_whole  # noqa: E402
from tests.runtime.traced_training import GPT2_SIZES, SIZES  # noqa: E402
from trainwright.model.graph import parameters  # noqa: E402
from trainwright.plan.expand import expand  # noqa: E402
from trainwright.plan.strategy import parse_strategy  # noqa: E402
from trainwright.program.lower import lower  # noqa: E402
from trainwright.runtime.machine import build_setting  # noqa: E402
from trainwright.runtime.tracing.traced import Traced  # noqa: E402

SHAPE = {**SIZES, "num_hidden_layers": 2}
GPT2 = {**GPT2_SIZES, "n_layer": 2}
MODELS = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT2),
    "llama": ("LlamaConfig", "LlamaForCausalLM", SHAPE),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", SHAPE),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {**SHAPE, "num_local_experts": 4}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**SHAPE, "head_dim": 8}),
}


def build(name: str) -> "torch.nn.Module":
    config, model, sizes = MODELS[name]
    torch.manual_seed(0)
    built = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    built.config.use_cache = False
    return built  # type: ignore[no-any-return]


def inputs(samples: int) -> "dict[str, torch.Tensor]":
    random = torch.Generator().manual_seed(samples)
    tokens, labels = (torch.randint(64, (samples, 16), generator=random) for _ in range(2))
    labels[:, :3] = -100
    return {"input_ids": tokens, "labels": labels}


@cache
def traced_model(name: str) -> "tuple[torch.nn.Module, Traced]":
    module = build(name)
    return module, trainwright.trace(module, inputs(4))


@pytest.fixture(params=list(MODELS))
def model(request: pytest.FixtureRequest) -> "tuple[torch.nn.Module, Traced]":
    return traced_model(request.param)


def test_a_model_has_its_own_loss_and_gradients(model: "tuple[torch.nn.Module, Traced]") -> None:
    module, traced = model
    check_whole(module, traced, inputs(4), within=1e-5)
    check_whole(module, traced, inputs(2), within=1e-5)


def test_halves_of_its_operators_make_up_the_whole(model: "tuple[torch.nn.Module, Traced]") -> None:
    module, traced = model
    check_parts(module, traced, inputs, within=1e-5)


def test_its_graph_has_layers_and_all_parameters(model: "tuple[torch.nn.Module, Traced]") -> None:
    module, traced = model
    blocks = [(each.block.name.removesuffix(".moe"), each.count) for each in traced.graph.segments]
    assert blocks == [("embedding", 1), ("layer", 2), ("head", 1)]
    assert parameters(traced.graph) == sum(each.numel() for each in module.parameters())
    assert traced.notes == ()


@pytest.mark.parametrize(
    "strategy",
    ["dp2 mb1", "tp2 sp mb2", "tp4 mb1", "cp2 mb1", "pp2 mb1 1f1b", "dp2 tp2 pp2 mb1 1f1b", "dp2 zero3 mb1"],
)
def test_strategies_lower_for_it(model: "tuple[torch.nn.Module, Traced]", strategy: str) -> None:
    traced, parsed = model[1], parse_strategy(strategy)
    plan = expand(parsed, traced.graph, 8)
    assert lower(build_setting(traced.graph, parsed.devices, 16, "fp32"), plan).routes


def test_a_mask_of_padding_is_an_input_like_others() -> None:
    module = build("llama")
    given = {**inputs(4), "attention_mask": (torch.arange(16) < torch.arange(9, 13)[:, None]).long()}
    traced = trainwright.trace(module, given)
    assert traced.notes == ()
    check_whole(module, traced, given, within=1e-5)
    check_parts(module, traced, lambda samples: given, within=1e-5)


def test_a_fused_projection_is_kept_in_one_parameter() -> None:
    module, traced = traced_model("gpt2")
    fused = module.get_parameter("transformer.h.1.attn.c_attn.weight")
    copy = torch.zeros_like(fused)
    for number in range(3):
        weight = traced.weights[f"layer.1/attn.c_attn.{number}.weight"]
        assert weight.names == ("transformer.h.1.attn.c_attn.weight",)
        weight.save(weight.load(fused.detach()), copy)
    assert torch.equal(copy, fused)
