from collections import Counter
from functools import cache

import pytest

torch = pytest.importorskip("torch")

import trainwright  # noqa: E402
from tests.runtime.trace_checks import check_parts, check_whole, parameters_of  # noqa: E402
from trainwright.model.architecture import Architecture  # noqa: E402
from trainwright.model.build import build_graph  # noqa: E402
from trainwright.model.graph import Graph, dim_sizes, parameters  # noqa: E402
from trainwright.model.totals import forward_flops, saved_bytes  # noqa: E402
from trainwright.plan.expand import expand  # noqa: E402
from trainwright.plan.strategy import parse_strategy  # noqa: E402
from trainwright.program.lower import lower  # noqa: E402
from trainwright.runtime.machine import build_setting  # noqa: E402
from trainwright.runtime.models import Transformer  # noqa: E402
from trainwright.runtime.tracing.traced import Traced  # noqa: E402
from trainwright.runtime.tracing.whole import evaluate  # noqa: E402

BATCH, SEQ = 4, 16
GPT = Architecture(
    name="gpt", layers=2, hidden=32, heads=4, vocab=64, positions=SEQ, norm="layer", qkv_bias=True,
    output_bias=True, mlp_bias=True, tied=True,
)  # fmt: skip
DROPPED = Architecture(
    name="gpt with dropout", layers=2, hidden=32, heads=4, vocab=64, positions=SEQ, norm="layer",
    qkv_bias=True, output_bias=True, mlp_bias=True, dropout=True,
)  # fmt: skip
LLAMA = Architecture(name="llama", layers=3, hidden=32, heads=4, kv_heads=2, ffn=48, gated=True, vocab=64)
EXPERTS = Architecture(
    name="experts", layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, gated=True, vocab=64, experts=4,
    top_k=2, expert_ffn=24,
)  # fmt: skip
ALL = [GPT, DROPPED, LLAMA, EXPERTS]
STRATEGIES = (
    "dp2 mb1", "tp2 mb2", "tp2 sp mb2", "tp4 mb1", "cp2 mb1", "pp2 mb1 1f1b", "dp2 tp2 pp2 mb1 1f1b",
    "dp2 zero3 mb1", "dp2 tp2 sp full mb1", "dp2 ep2 mb1",
)  # fmt: skip


@cache
def traced_model(
    arch: Architecture, dtype: "torch.dtype" = torch.float64
) -> "tuple[torch.nn.Module, Traced]":
    torch.manual_seed(0)
    module = Transformer(arch, SEQ).to(dtype)
    return module, trainwright.trace(module, inputs(BATCH))


def inputs(samples: int) -> "dict[str, torch.Tensor]":
    random = torch.Generator().manual_seed(samples)
    tokens, targets = (torch.randint(64, (samples, SEQ), generator=random) for _ in range(2))
    targets[:, :3] = -100
    return {"tokens": tokens, "targets": targets}


def activation_bytes(graph: Graph) -> int:
    return sum(
        segment.count * saved_bytes(segment.block, dim_sizes(graph, segment, BATCH, SEQ))
        for segment in graph.segments
    )


@pytest.mark.parametrize("arch", ALL, ids=lambda arch: arch.name)
def test_a_traced_model_is_the_catalogs(arch: Architecture) -> None:
    module, catalog = traced_model(arch)[0], build_graph(arch)
    traced = traced_model(arch)[1].graph
    assert forward_flops(traced, BATCH, SEQ) == forward_flops(catalog, BATCH, SEQ)
    assert parameters(traced) == parameters(catalog) == sum(each.numel() for each in module.parameters())
    assert activation_bytes(traced) == activation_bytes(catalog)
    unused = {"ffn"} if arch.experts else set()
    assert traced.sizes == {dim: size for dim, size in catalog.sizes.items() if dim not in unused}
    for ours, theirs in zip(traced.segments, catalog.segments, strict=True):
        assert (ours.block.name, ours.count) == (theirs.block.name, theirs.count)
        assert [op.name for op in ours.block.ops] == [op.name for op in theirs.block.ops]
        assert [op.region for op in ours.block.ops] == [op.region for op in theirs.block.ops]


# Only a model with experts can spread them.
SPREAD = [
    (arch, each) for arch in (GPT, LLAMA, EXPERTS) for each in STRATEGIES if arch.experts or "ep" not in each
]


@pytest.mark.parametrize(("arch", "strategy"), SPREAD)
def test_a_plan_of_a_traced_model_lowers_to_the_same_steps(arch: Architecture, strategy: str) -> None:
    traced = traced_model(arch)[1].graph
    parsed = parse_strategy(strategy)
    found = []
    for graph in (traced, build_graph(arch)):
        setting = build_setting(graph, parsed.devices, SEQ, "fp32")
        program = lower(setting, expand(parsed, graph, 8))
        steps = [step for route in program.routes for step in route.steps]
        found.append(Counter((step.kind, step.cause, step.phase, step.bytes) for step in steps))
    assert found[0] == found[1]


@pytest.mark.parametrize("arch", [GPT, LLAMA, EXPERTS], ids=lambda arch: arch.name)
def test_a_traced_model_has_the_loss_and_gradients_of_the_module(arch: Architecture) -> None:
    check_whole(*traced_model(arch), inputs(BATCH), within=1e-9)
    check_whole(*traced_model(arch), inputs(6), within=1e-9)


def test_a_traced_model_has_them_in_single_precision_too() -> None:
    check_whole(*traced_model(LLAMA, torch.float32), inputs(BATCH), within=1e-5)


@pytest.mark.parametrize("arch", ALL, ids=lambda arch: arch.name)
def test_halves_of_a_models_operators_make_up_the_whole(arch: Architecture) -> None:
    kinds = check_parts(*traced_model(arch), inputs)
    assert kinds == {"gather", "norm", "matmul", "attention", "elementwise", "loss"}


def test_the_seed_alone_decides_what_a_model_drops() -> None:
    module, traced = traced_model(DROPPED)
    losses = [evaluate(traced, parameters_of(module), inputs(BATCH), seed)["output"] for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_a_model_without_targets_returns_logits() -> None:
    module = Transformer(LLAMA, SEQ).double()
    traced = trainwright.trace(module, inputs(BATCH)["tokens"])
    assert [output.value for output in traced.outputs.values()] == ["head/logits.out"]
    check_whole(module, traced, {"tokens": inputs(2)["tokens"]}, within=1e-9)
