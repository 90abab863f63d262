"""Gradients of what no sample reaches are summed once a step, not once a microbatch."""

import pytest

from tests.laws.plans import setting_of
from trainwright.model.build import build_graph
from trainwright.model.ends import loss_op
from trainwright.model.graph import Block, Graph, Op, Segment, Tensor
from trainwright.model.load import load_model
from trainwright.model.operators import matmul
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan, Replicate, Shard, Split
from trainwright.plan.strategy import parse_strategy
from trainwright.program.check import check
from trainwright.program.compare import differences
from trainwright.program.interpret import build_program_data, interpret
from trainwright.program.lower import Program, lower
from trainwright.program.reference import reference


def graph_with_table() -> Graph:
    """Tokens meet the rows of a table, which two products make from coordinates and weights alone."""
    source = Tensor(name="stream", dims=("batch", "seq", "hidden"))
    coordinates = Tensor(name="coordinates", dims=("wide", "coordinate"))
    middle = Tensor(name="up.out", dims=("wide", "middle"))
    up = matmul("up", "sequence", coordinates, middle, ("coordinate", "middle"), bias=False)
    made = Tensor(name="table.out", dims=("wide", "inner"))
    table = matmul("table", "sequence", middle, made, ("middle", "inner"), bias=True)
    narrow = Tensor(name="first.out", dims=("batch", "seq", "inner"))
    first = matmul("first", "sequence", source, narrow, ("hidden", "inner"), False)
    met = Tensor(name="met.out", dims=("batch", "seq", "wide"))
    meet = Op(
        name="met", kind="product", region="sequence", inputs=(first.output, made), output=met,
        contracted=("inner",), saved=(first.output, made),
    )  # fmt: skip
    logits = Tensor(name="logits.out", dims=("batch", "seq", "vocab"))
    head = (matmul("logits", "vocab", met, logits, ("wide", "vocab"), bias=False), loss_op(logits))
    block = Block(name="head", ops=(up, table, first, meet, *head))
    return Graph(
        name="table",
        segments=(Segment(block=block, count=1),),
        sizes={"hidden": 4, "inner": 4, "wide": 6, "vocab": 5, "coordinate": 2, "middle": 3},
    )


def program(*more: Split | Replicate | Shard) -> Program:
    """Two copies of the table's operators beside two halves of the samples, and what else is said."""
    fixed = "head/up,head/table"
    samples = "head/first,head/met,head/logits,head/loss"
    transforms = (Replicate(ops=fixed, parts=2), Split(ops=samples, dim="batch", parts=2), *more)
    devices = 4 if any(not isinstance(each, Shard) for each in more) else 2
    plan = Plan(devices=devices, batch=4, microbatches=2, transforms=transforms)
    return lower(setting_of(graph_with_table()), plan)


def sums(of: Program, phase: str) -> list[tuple[str, str]]:
    """What is communicated in a phase."""
    steps = of.routes[0].steps
    return [(each.name, each.kind) for each in steps if each.phase in phase and each.kind not in _LOCAL]


_LOCAL = ("compute", "slice", "add", "join")


@pytest.mark.parametrize(
    "more",
    [
        (),
        (Shard(ops="*", what="optimizer"),),
        (Shard(ops="*", what="gradients"), Shard(ops="*", what="optimizer")),
        tuple(Shard(ops="*", what=what) for what in ("weights", "gradients", "optimizer")),
        (
            Replicate(ops="head/up,head/first,head/logits,head/loss", parts=2),
            Split(ops="head/table,head/met", dim="inner", parts=2),
        ),
    ],
)
def test_a_table_of_weights_gives_the_numbers_of_the_unsplit_model(
    more: tuple[Split | Replicate | Shard, ...],
) -> None:
    found = program(*more)
    check(found)
    data = build_program_data(found)
    assert not differences(interpret(found, data), reference(data))


def test_the_gradient_of_a_table_is_not_summed_in_a_microbatch() -> None:
    # The table's gradient goes back in halves of samples; only weights are summed, after the last microbatch.
    found = program()
    assert sums(found, "FIW") == []
    assert {kind for _, kind in sums(found, "S")} == {"all_reduce"}
    (group,) = {bundle.group for bundle in found.routes[0].bundles}
    assert group == (0, 1)


def test_a_table_that_another_split_reads_is_summed_for_it() -> None:
    # Products of four quarters of the samples give gradients of a table that is made on two devices.
    plan = Plan(
        devices=4, batch=4, microbatches=2,
        transforms=(
            Replicate(ops="head/up,head/table", parts=2), Replicate(ops="head/up,head/table", parts=2),
            Split(ops="head/first,head/met,head/logits,head/loss", dim="batch", parts=4),
        ),
    )  # fmt: skip
    found = lower(setting_of(graph_with_table()), plan)
    check(found)
    data = build_program_data(found)
    assert not differences(interpret(found, data), reference(data))
    assert sums(found, "I") != []


@pytest.mark.parametrize("strategy", ["dp2 tp2 sp", "dp4 zero1", "dp2 cp2", "dp2 pp2 1f1b", "dp2 tp2 zero3"])
def test_the_position_bias_of_swin_is_summed_with_the_other_weights(strategy: str) -> None:
    architecture = load_model("swin-1.8b")
    graph = build_graph(architecture)
    setting = setting_of(graph, seq=architecture.max_seq)
    found = lower(setting, expand(parse_strategy(strategy), graph, 8))
    check(found)
    moved = [each.name for each in found.routes[0].steps if each.move is not None and "bias" in each.name]
    assert moved == []
