"""Complex values have gradients, as floating-point values do, and none only if they depend on no weight."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import trainwright  # noqa: E402
from tests.runtime.loss_training import CASES, traced_case  # noqa: E402
from tests.runtime.trace_checks import check_parts, check_whole  # noqa: E402
from trainwright.model.flow import wire  # noqa: E402
from trainwright.runtime import context  # noqa: E402
from trainwright.runtime.tracing.traced import Traced  # noqa: E402


def complex_elements(traced: Traced) -> list[str]:
    """What the graph calls each result that is complex."""
    return [
        tensor.element
        for each in wire(traced.graph)
        for tensor, dtype in zip(
            (each.op.output, *each.op.extra_outputs),
            getattr(traced.kernels[each.name], "dtypes", ()),
            strict=False,
        )
        if dtype.is_complex
    ]


@pytest.mark.parametrize("name", ["complex_rotary", "complex_stream"])
def test_a_complex_value_made_from_weights_has_a_gradient(name: str) -> None:
    found = complex_elements(traced_case(name)[1])
    assert len(found) >= 4
    assert set(found) == {"activation"}


class RotatedInput(nn.Module):
    """Rotations that depend on an input alone, and turn what a weight makes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: "torch.Tensor", angles: "torch.Tensor") -> "torch.Tensor":
        rotations = torch.polar(torch.ones_like(angles), angles)
        turned = torch.view_as_complex(self.linear(x).unflatten(-1, (2, 2))) * rotations
        return torch.view_as_real(turned).flatten(-2)


def test_a_complex_value_made_from_inputs_alone_has_none() -> None:
    traced = trainwright.trace(RotatedInput(), {"x": torch.randn(2, 4), "angles": torch.randn(2, 2)})
    assert sorted(set(complex_elements(traced))) == ["activation", "no_gradient"]


def test_parts_of_complex_operators_make_up_the_whole() -> None:
    def inputs(samples: int) -> "dict[str, torch.Tensor]":
        return CASES["complex_stream"].inputs(samples, 0)

    module, traced = traced_case("complex_stream")
    check_whole(module, traced, inputs(4), within=1e-5)
    check_parts(module, traced, inputs, within=1e-5)


def test_the_backward_of_an_operator_returns_gradients_of_complex_inputs_and_weights() -> None:
    z, weight, gradient = (torch.randn(3, dtype=torch.complex64) for _ in range(3))
    (made,), left = context.trace(lambda inputs, weights: (inputs[0] * weights[0],), [z], [weight])
    ((to_input,), (to_weight,)) = left.back([gradient])
    # Of z * w, PyTorch's gradients are those of the conjugates: g * conj(w) and g * conj(z).
    torch.testing.assert_close(made, z * weight)
    torch.testing.assert_close(to_input, gradient * weight.conj())
    torch.testing.assert_close(to_weight, gradient * z.conj())


def test_whole_numbers_have_no_gradient() -> None:
    table, places = torch.randn(5, 2), torch.tensor([0, 4])
    _, left = context.trace(lambda inputs, weights: (weights[0][inputs[0]],), [places], [table])
    ((to_places,), (to_table,)) = left.back([torch.ones(2, 2)])
    assert to_places is None
    assert to_table is not None
    assert to_table.sum() == 4.0  # two rows of two ones
