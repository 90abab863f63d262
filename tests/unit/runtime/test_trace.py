import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import trainwright  # noqa: E402
from tests.runtime.trace_checks import check_parts, check_whole  # noqa: E402
from trainwright.errors import BadInput  # noqa: E402
from trainwright.model.flow import wire  # noqa: E402
from trainwright.plan.rules import effect  # noqa: E402
from trainwright.runtime.tracing.factors import Conflict, Factors, all_leaves, leaves  # noqa: E402
from trainwright.runtime.tracing.masks import kept  # noqa: E402
from trainwright.runtime.tracing.traced import Part, Weight  # noqa: E402

HERE = torch.device("cpu")


class Tied(nn.Module):
    """A table that is read as rows and as a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
        return functional.cross_entropy(self.head(self.table(tokens)).flatten(0, 1), targets.flatten())


class Returns(nn.Module):
    """A linear layer, and a loss that `last` makes from its result and the targets."""

    def __init__(self, last: object) -> None:
        super().__init__()
        self.linear, self.last = nn.Linear(4, 3), last

    def forward(self, x: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        return self.last(self.linear(x), y)  # type: ignore[operator, no-any-return]


def classes(samples: int = 4) -> "dict[str, torch.Tensor]":
    return {"x": torch.randn(samples, 4), "y": torch.zeros(samples, dtype=torch.long)}


def test_trainwright_is_imported_without_torch() -> None:
    code = "import sys, trainwright; print('torch' in sys.modules, hasattr(trainwright, 'nothing'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_tied_weight_is_one_weight_under_all_of_its_names() -> None:
    tokens = torch.randint(10, (2, 6))
    traced = trainwright.trace(Tied(), (tokens, tokens.clone()))
    assert traced.graph.tied == {"table.weight"}
    assert traced.weights["table.weight"].names == ("table.weight", "head.weight")
    assert list(traced.weights) == ["table.weight"]


def test_tokens_and_targets_are_found_among_the_inputs() -> None:
    tokens, targets = torch.randint(10, (2, 6)), torch.randint(10, (2, 6))
    traced = trainwright.trace(Tied(), {"tokens": tokens, "targets": targets})
    assert {value: given.name for value, given in traced.inputs.items()} == {"input/tokens": "tokens"}
    assert torch.equal(traced.targets["head/loss"]({"tokens": tokens, "targets": targets}), targets)
    more = {"tokens": tokens.repeat(3, 1)[:5], "targets": targets.repeat(3, 1)[:5]}
    assert torch.equal(traced.targets["head/loss"](more), more["targets"])  # 5 samples, traced for 2


def test_a_part_of_a_parameter_is_loaded_and_saved_bit_for_bit() -> None:
    # Of 2 heads with queries, keys and values of 2 numbers each, the keys: rows 2, 3 and 8, 9 of 12.
    fused = torch.randn(12, 5)
    keys = Weight(
        names=("qkv",), shape=(2, 2, 5), parts=(Part(view=(2, 6, 5), axis=1, start=2, stop=4, number=1),)
    )
    assert torch.equal(keys.load(fused).flatten(0, 1), fused[[2, 3, 8, 9]])
    copy = torch.zeros(12, 5)
    keys.save(keys.load(fused), copy)
    assert torch.equal(copy[[2, 3, 8, 9]], fused[[2, 3, 8, 9]])
    assert not copy[[0, 1, 4, 5, 6, 7, 10, 11]].any()


def test_the_dims_that_a_softmax_mixes_are_frozen() -> None:
    module = Returns(lambda made, y: functional.cross_entropy(made.softmax(-1) * 2, y))
    op = next(
        each.op for each in wire(trainwright.trace(module, classes()).graph) if each.op.name == "softmax"
    )
    assert effect(op, "batch") == "shards"
    assert effect(op, "classes") == "frozen"


def test_a_view_shows_the_factors_of_an_axis() -> None:
    factors = Factors()
    batch, width = factors.new_axis(2), factors.new_axis(12)
    split = factors.regroup((batch, width), (2, 3, 4))
    assert [[each.size for each in leaves(axis)] for axis in split] == [[2], [3], [4]]
    assert [each.size for each in leaves(width)] == [3, 4]
    assert all_leaves(factors.regroup(split, (6, 4))) == all_leaves(split)


def test_axes_that_cross_factors_conflict() -> None:
    factors = Factors()
    axes = (factors.new_axis(4), factors.new_axis(9))
    with pytest.raises(Conflict, match="6 is not made up of factors"):
        factors.regroup(axes, (6, 6))


def test_factors_that_are_kept_apart_never_become_one() -> None:
    factors = Factors()
    one, other, third = (factors.new_axis(8) for _ in range(3))
    factors.keep_apart((one, other))
    factors.unify(one, third)
    assert not factors.can_unify(third, other)
    factors.regroup((one,), (2, 4))
    assert not factors.can_unify(leaves(third)[:1], factors.regroup((other,), (2, 4))[0])


def test_masks_of_parts_are_parts_of_the_mask() -> None:
    sizes = (6, 10, 4)
    whole = kept(7, 0, [(0, size) for size in sizes], sizes, 0.3, HERE)
    assert torch.equal(kept(7, 0, [(2, 5), (4, 10), (0, 4)], sizes, 0.3, HERE), whole[2:5, 4:10])
    assert not torch.equal(kept(8, 0, [(0, size) for size in sizes], sizes, 0.3, HERE), whole)
    assert not torch.equal(kept(7, 1, [(0, size) for size in sizes], sizes, 0.3, HERE), whole)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_masks_keep_what_the_rate_leaves(rate: float) -> None:
    mask = kept(1, 0, [(0, 400), (0, 500)], (400, 500), rate, HERE)
    deviation = (rate * (1 - rate) / mask.numel()) ** 0.5
    assert mask.float().mean().item() == pytest.approx(1 - rate, abs=4 * deviation)


def test_a_module_whose_path_depends_on_values_is_refused() -> None:
    def branch(made: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        return made.sum() if made.sum() > 0 else y.sum()

    with pytest.raises(BadInput, match=r'module "Returns": PyTorch cannot export it .*; let no tensor'):
        trainwright.trace(Returns(branch), classes())


def test_one_sample_is_refused() -> None:
    with pytest.raises(BadInput, match=r'example inputs of Returns: samples "x: 1, y: 1": .*two or more'):
        trainwright.trace(Returns(functional.cross_entropy), classes(1))


def test_a_loss_that_is_no_plain_mean_is_refused() -> None:
    smooth = Returns(lambda made, y: functional.cross_entropy(made, y, label_smoothing=0.1))
    with pytest.raises(BadInput, match="is not the plain mean over answers; use cross_entropy without"):
        trainwright.trace(smooth, classes())
    scaled = Returns(lambda made, y: 0.5 * functional.cross_entropy(made, y))
    with pytest.raises(BadInput, match="goes on in it; return the loss as it is"):
        trainwright.trace(scaled, classes())


def test_random_numbers_other_than_dropouts_are_refused() -> None:
    noisy = Returns(lambda made, y: functional.cross_entropy(made + torch.rand_like(made), y))
    with pytest.raises(BadInput, match=r'module Returns "rand_like": draws random numbers; use nn\.Dropout'):
        trainwright.trace(noisy, classes())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrence_in_one_operation_is_refused_for_what_it_is(kind: type[nn.Module]) -> None:
    rule = "does a recurrence in one operation, which no rule splits; write its steps out with"
    with pytest.raises(BadInput, match=f"module {kind.__name__} .*: {rule}"):
        trainwright.trace(kind(8, 8, batch_first=True), torch.zeros(2, 6, 8))


def test_running_statistics_are_refused() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with pytest.raises(BadInput, match=r'module Sequential "add": changes a buffer .*; use layers without'):
        trainwright.trace(module, torch.randn(4, 4))


def test_frozen_statistics_are_constants() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double().eval()
    module[1].running_mean.copy_(torch.arange(3.0))
    given = {"input": torch.randn(4, 4, dtype=torch.float64)}
    traced = trainwright.trace(module, given["input"])
    assert traced.notes == ()
    check_whole(module, traced, given, within=1e-9)
    check_parts(module, traced, lambda samples: given)


def test_parts_of_a_fused_product_may_be_returned() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.GLU()).double()
    module.forward = lambda x: module[0](x).chunk(2, dim=-1)  # type: ignore[method-assign]
    given = {"x": torch.randn(4, 4, dtype=torch.float64)}
    traced = trainwright.trace(module, given)
    assert list(traced.outputs) == ["0", "1"]
    assert [op.name for op in traced.graph.segments[0].block.ops] == ["0"]
    check_whole(module, traced, given, within=1e-9)


def test_what_is_written_in_place_is_read_later() -> None:
    def shifted(made: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        before = made.new_zeros(made.shape)
        before[:, 1:] = made[:, :-1]
        return functional.cross_entropy((made + before).mul_(2.0), y)

    module, inputs = Returns(shifted), classes()
    check_whole(module, trainwright.trace(module, inputs), inputs, within=1e-6)
