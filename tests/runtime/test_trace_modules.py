from functools import cache

import pytest

torch = pytest.importorskip("torch")

import trainwright  # noqa: E402
from tests.runtime.trace_checks import check_parts, check_whole, parameters_of  # noqa: E402
from tests.runtime.trace_modules import Dropped, Unruly, cases  # noqa: E402
from trainwright.model.flow import wire  # noqa: E402
from trainwright.plan.expand import expand  # noqa: E402
from trainwright.plan.rules import splittable  # noqa: E402
from trainwright.plan.strategy import parse_strategy  # noqa: E402
from trainwright.program.lower import lower  # noqa: E402
from trainwright.runtime.machine import build_setting  # noqa: E402
from trainwright.runtime.tracing.traced import Traced  # noqa: E402
from trainwright.runtime.tracing.whole import evaluate  # noqa: E402

CASES = {case.name: case for case in cases()}


@cache
def traced_case(name: str) -> "tuple[torch.nn.Module, Traced]":
    torch.manual_seed(0)
    module = CASES[name].build().double()
    return module, trainwright.trace(module, CASES[name].inputs(4))


@pytest.mark.parametrize("name", CASES)
def test_a_traced_module_computes_what_the_module_does(name: str) -> None:
    module, traced = traced_case(name)
    for samples in (4, 6):  # not only as many as in the example
        check_whole(module, traced, CASES[name].inputs(samples), within=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_products_and_losses_sum_over_the_last_dims(name: str) -> None:
    for op in (each.op for each in wire(traced_case(name)[1].graph) if each.op.kind in ("matmul", "loss")):
        source, summed = op.inputs[0].dims, len(op.contracted)
        assert set(source[len(source) - summed :]) == set(op.contracted)
        for output in (op.output, *op.extra_outputs):
            assert output.dims[: len(source) - summed] == source[: len(source) - summed]


@pytest.mark.parametrize("name", CASES)
def test_halves_of_operators_make_up_the_whole(name: str) -> None:
    check_parts(*traced_case(name), CASES[name].inputs)


@pytest.mark.parametrize("strategy", ["dp2 mb1", "tp2 mb2", "dp2 tp2 mb1", "dp2 zero3 mb1"])
@pytest.mark.parametrize("name", [name for name in CASES if name != "plain"])
def test_strategies_lower_for_traced_modules(name: str, strategy: str) -> None:
    traced, parsed = traced_case(name)[1], parse_strategy(strategy)
    plan = expand(parsed, traced.graph, 8)
    assert lower(build_setting(traced.graph, parsed.devices, traced.seq, "fp32"), plan).routes


def test_what_has_no_rule_is_kept_whole_with_a_note() -> None:
    traced = trainwright.trace(Unruly(), {"x": torch.randn(4, 8), "y": torch.zeros(4, dtype=torch.long)})
    assert traced.notes == (
        "head/fft_rfft: fft_rfft is kept whole, because there is no rule for it",
        "head/fft_rfft: real is kept whole, because there is no rule for it",
    )
    op = next(each.op for each in wire(traced.graph) if each.op.name == "fft_rfft")
    assert splittable(op) == ()


def test_dropout_masks_depend_on_the_seed_and_not_on_the_split() -> None:
    module = Dropped().double()
    inputs = {"x": torch.randn(4, 8, dtype=torch.float64), "y": torch.arange(4)}
    traced = trainwright.trace(module, inputs)
    check_parts(module, traced, lambda samples: inputs)
    first, again, other = (
        evaluate(traced, parameters_of(module), inputs, seed)["output"] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_dropout_that_is_switched_off_is_left_out() -> None:
    module = Dropped().double().eval()
    inputs = {"x": torch.randn(4, 8, dtype=torch.float64), "y": torch.arange(4)}
    check_whole(module, trainwright.trace(module, inputs), inputs, within=1e-9)
