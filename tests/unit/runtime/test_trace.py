import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import trainwright  # noqa: E402
from tests.runtime.trace_checks import check_parts, check_whole, parameters_of  # noqa: E402
from trainwright.errors import BadInput  # noqa: E402
from trainwright.model.flow import wire  # noqa: E402
from trainwright.model.graph import Op, trained_weights  # noqa: E402
from trainwright.plan.expand import expand  # noqa: E402
from trainwright.plan.rules import effect, splittable  # noqa: E402
from trainwright.plan.strategy import parse_strategy  # noqa: E402
from trainwright.program.lower import lower  # noqa: E402
from trainwright.program.state import state_bytes  # noqa: E402
from trainwright.runtime.machine import build_setting  # noqa: E402
from trainwright.runtime.tracing.factors import Conflict, Factors, all_leaves, leaves  # noqa: E402
from trainwright.runtime.tracing.masks import kept  # noqa: E402
from trainwright.runtime.tracing.traced import Part, Weight  # noqa: E402
from trainwright.runtime.tracing.whole import evaluate  # noqa: E402
from trainwright.runtime.trainer import Recipe, build_trainer  # noqa: E402
from trainwright.runtime.worker import build_worker  # noqa: E402

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
        names=("qkv",),
        rank=2,
        shape=(2, 2, 5),
        parts=(Part(view=(2, 6, 5), axis=1, start=2, stop=4, number=1),),
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


def losses_of(last: object) -> "list[Op]":
    """The losses of a module, once it was compared with its trace."""
    module = Returns(last).double()
    inputs = {"x": torch.randn(4, 4).double(), "y": torch.tensor([0, 2, 1, 1])}
    traced = trainwright.trace(module, inputs)
    check_whole(module, traced, inputs, within=1e-9)
    check_parts(module, traced, lambda samples: inputs)
    return [each.op for each in wire(traced.graph) if each.op.kind == "loss"]


def test_a_smoothed_cross_entropy_still_splits_over_classes() -> None:
    (loss,) = losses_of(lambda made, y: functional.cross_entropy(made, y, label_smoothing=0.1))
    assert (loss.share, loss.smoothing, loss.contracted) == (1.0, 0.1, ("classes",))


def test_a_sum_of_losses_is_one_operator_for_each_with_its_share() -> None:
    first, second = losses_of(
        lambda made, y: 0.5 * functional.cross_entropy(made, y) - made.square().mean() / -4 + 1
    )
    assert (first.share, first.contracted) == (0.5, ("classes",))
    assert (second.share, second.contracted) == (0.25, ())


@pytest.mark.parametrize(
    "last",
    [
        lambda made, y: functional.cross_entropy(made, y, made.new_tensor([1.0, 2.0, 0.5])),
        lambda made, y: functional.cross_entropy(made, y, ignore_index=1, label_smoothing=0.2).exp(),
        lambda made, y: functional.nll_loss(made.log_softmax(-1), y, made.new_tensor([1.0, 2.0, 0.5])),
        lambda made, y: functional.cross_entropy(made, made.detach().softmax(-1)),
        lambda made, y: functional.mse_loss(made, functional.one_hot(y, 3).to(made.dtype)),
        lambda made, y: functional.huber_loss(made, torch.ones_like(made), delta=0.5),
    ],
)
def test_a_loss_that_no_vocabulary_splits_is_a_number_that_mixes_samples_last(last: object) -> None:
    (loss,) = losses_of(last)
    assert (loss.share, loss.contracted, loss.inputs[0].dims) == (1.0, (), ())


def test_a_sum_over_samples_is_refused() -> None:
    summed = Returns(lambda made, y: functional.cross_entropy(made, y, reduction="sum"))
    with pytest.raises(BadInput, match="is not a mean over samples; divide sums by the number of samples"):
        trainwright.trace(summed, classes())


def test_two_numbers_without_the_name_of_a_loss_are_refused() -> None:
    pair = Returns(lambda made, y: (made.mean(), made.square().mean()))
    with pytest.raises(BadInput, match='"0, 1": several of them are one number, and none is named loss'):
        trainwright.trace(pair, classes())


def test_a_model_without_a_loss_cannot_be_trained() -> None:
    module = nn.Linear(4, 3)
    traced = trainwright.trace(module, torch.randn(4, 4))
    plan = expand(parse_strategy("dp1 mb4"), traced.graph, 4)
    program = lower(build_setting(traced.graph, 1, traced.seq, "fp32"), plan)
    worker = build_worker(program, 0, traced.kernels, HERE)
    with pytest.raises(BadInput, match='model "Linear": has no loss to be trained on; let the module return'):
        build_trainer(worker, Recipe())


class Adapter(nn.Module):
    """A frozen layer, a trained one, and one whose result is detached."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.trained, self.detached = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        x = self.frozen(x)
        return functional.cross_entropy(self.trained(x) + self.detached(x).detach(), y)


def test_frozen_and_detached_weights_are_not_trained() -> None:
    traced = trainwright.trace(Adapter(), classes())
    assert {weight.names[0] for weight in traced.weights.values() if weight.trained} == {
        "trained.weight", "trained.bias",
    }  # fmt: skip
    first = next(each.op for each in wire(traced.graph) if each.op.weights)
    assert trained_weights(first) == ()
    assert first.output.element == "no_gradient"  # no gradient is sent back to what is frozen alone


def test_frozen_weights_have_no_gradients_no_optimizer_state_and_no_reductions() -> None:
    traced = trainwright.trace(Adapter(), classes())
    plan = expand(parse_strategy("dp2 zero1 mb2"), traced.graph, 4)
    program = lower(build_setting(traced.graph, 2, traced.seq, "fp32"), plan)
    (route,) = program.routes
    frozen = [bundle for bundle in route.bundles if not bundle.trained]
    weights = {weight for bundle in frozen for weight in bundle.weights}
    assert {name for _, name in weights} == {
        "frozen.weight", "frozen.bias", "detached.weight", "detached.bias",
    }  # fmt: skip
    for bundle in frozen:
        held = state_bytes(program.builders[0], bundle)
        assert (held["gradients"], held["optimizer"]) == (0.0, 0.0)
        assert held["weights"] > 0.0
    assert not [step for step in route.steps if weights & set(step.state)]


def test_random_numbers_other_than_dropouts_are_refused() -> None:
    noisy = Returns(lambda made, y: functional.cross_entropy(made + torch.rand_like(made), y))
    with pytest.raises(BadInput, match=r'module Returns "rand_like": draws random numbers; use nn\.Dropout'):
        trainwright.trace(noisy, classes())


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], **options: object) -> None:
        super().__init__()
        self.recurrence, self.last = kind(4, 5, **options), nn.Linear(5, 3)

    def forward(self, x: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        steps = self.recurrence(x)[0]
        return functional.cross_entropy(self.last(steps[:, -1]), y)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrence_is_split_on_samples_and_on_nothing_else(kind: type[nn.Module]) -> None:
    module = Recurrent(kind, batch_first=True).double()

    def inputs(samples: int) -> "dict[str, torch.Tensor]":
        return {"x": torch.randn(samples, 6, 4).double(), "y": torch.zeros(samples, dtype=torch.long)}

    traced = trainwright.trace(module, inputs(4))
    for samples in (4, 6):
        check_whole(module, traced, inputs(samples), within=1e-9)
    check_parts(module, traced, inputs)
    assert traced.any_batch
    op = next(each.op for each in wire(traced.graph) if each.op.name.startswith("recurrence"))
    assert splittable(op) == ("batch",)


def test_dropout_inside_a_recurrence_is_refused() -> None:
    module = Recurrent(nn.LSTM, batch_first=True, num_layers=2, dropout=0.1)
    with pytest.raises(BadInput, match=r'"lstm": drops 0\.1 of its values between its layers; use'):
        trainwright.trace(module, {"x": torch.randn(2, 6, 4), "y": torch.zeros(2, dtype=torch.long)})


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: "torch.Tensor") -> "torch.Tensor":
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: "torch.Tensor") -> "torch.Tensor":
        return 3 * gradient


def test_gradients_that_a_module_has_written_itself_are_refused() -> None:
    module = Returns(lambda made, y: functional.cross_entropy(Tripled.apply(made), y))
    with pytest.raises(BadInput, match=r'"Tripled": is an autograd\.Function, whose backward the exporter'):
        trainwright.trace(module, classes())
    assert torch.autograd.Function.apply.__func__ is torch.autograd.Function.__dict__["apply"].__func__


def test_a_number_that_stands_for_the_samples_of_the_example_holds_for_no_other() -> None:
    module = Returns(lambda made, y: made.square().sum() / made.shape[0]).double()
    inputs = {"x": torch.randn(4, 4).double(), "y": torch.zeros(4, dtype=torch.long)}
    traced = trainwright.trace(module, inputs)
    assert not traced.any_batch
    check_whole(module, traced, inputs, within=1e-9)
    with pytest.raises(BadInput, match="6: it was traced for 4, and what it does depends on their number"):
        evaluate(
            traced, parameters_of(module), {name: each[[0, 1, 2, 3, 0, 1]] for name, each in inputs.items()}
        )


def test_sizes_that_axes_tell_hold_for_any_number_of_samples() -> None:
    def last(made: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        spread = made.view(made.shape[0], 3, 1).expand(-1, 3, 2)
        return functional.mse_loss(spread, torch.ones(made.shape[0], 3, 2))

    assert trainwright.trace(Returns(last), classes()).any_batch


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
    assert [op.name for op in traced.graph.segments[0].block.ops] == ["0", "0_2"]
    check_whole(module, traced, given, within=1e-9)


class Beside(nn.Module):
    """Gate and up of an FFN that meet, and a second branch of the same input that does not meet them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 4)
        self.near, self.far = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        inner = self.down(functional.silu(self.gate(x)) * self.up(x))
        return inner + self.far(self.near(x).relu())


def test_products_are_one_operator_only_if_their_results_meet() -> None:
    module = Beside().double()
    given = {"x": torch.randn(4, 4, dtype=torch.float64)}
    traced = trainwright.trace(module, given)
    listed = [{w.name for w in op.weights} for op in traced.graph.segments[0].block.ops if op.weights]
    together = {"gate.weight", "gate.bias", "up.weight", "up.bias"}
    assert together in listed
    assert {"near.weight", "near.bias"} in listed
    check_whole(module, traced, given, within=1e-9)


def test_a_weight_names_the_results_that_it_serves() -> None:
    traced = trainwright.trace(Beside(), {"x": torch.randn(4, 4)})
    op = next(op for op in traced.graph.segments[0].block.ops if "up.weight" in {w.name for w in op.weights})
    assert dict(op.serves)["up.weight"] == dict(op.serves)["up.bias"] != dict(op.serves)["gate.weight"]
    assert len(dict(op.serves)["x"]) == 2


def test_sizes_that_depend_on_values_are_refused() -> None:
    class Chosen(nn.Linear):
        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            count = (x[:, 0] > 0).sum().item()
            torch._check(count >= 0)
            torch._check(count <= x.shape[0])
            return super().forward(x) + x.new_ones(count).sum()

    with pytest.raises(BadInput, match="sizes depend on values"):
        trainwright.trace(Chosen(4, 4), torch.randn(4, 4))


def test_weights_decay_by_the_axes_of_their_parameters() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.score = nn.Parameter(torch.ones(6)), nn.Linear(6, 1)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return self.score(x * self.scale.view(2, 3).flatten())

    traced = trainwright.trace(Scaled(), torch.randn(4, 6))
    assert {traced.weights[key].names[0] for key in traced.decayed} == {"score.weight"}


def test_a_product_over_an_axis_of_size_one_is_element_wise() -> None:
    module = nn.Linear(1, 6).double()
    given = {"input": torch.randn(4, 1, dtype=torch.float64)}
    traced = trainwright.trace(module, given)
    assert [op.kind for op in traced.graph.segments[0].block.ops] == ["elementwise"]
    check_whole(module, traced, given, within=1e-9)
    check_parts(module, traced, lambda samples: given)


def test_a_product_written_as_an_operator_is_one_with_a_weight() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return x @ self.weight

    given = {"x": torch.randn(2, 4, dtype=torch.float64)}
    traced = trainwright.trace(Plain(), given)
    assert [op.kind for op in traced.graph.segments[0].block.ops] == ["matmul"]


def test_what_is_written_in_place_is_read_later() -> None:
    def shifted(made: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
        before = made.new_zeros(made.shape)
        before[:, 1:] = made[:, :-1]
        return functional.cross_entropy((made + before).mul_(2.0), y)

    module, inputs = Returns(shifted), classes()
    check_whole(module, trainwright.trace(module, inputs), inputs, within=1e-6)
