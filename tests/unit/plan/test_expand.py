"""What the knobs of a strategy mean as a plan."""

import pytest

from tests.laws.plans import tiny
from trainwright.errors import BadInput
from trainwright.model.flow import wire
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan, Recompute, Replicate, Shard, Split
from trainwright.plan.select import select
from trainwright.plan.strategy import parse_strategy

GRAPH = tiny("llama")
INSTANCES = wire(GRAPH)


def plan_of(text: str, batch: int = 8) -> Plan:
    return expand(parse_strategy(text), GRAPH, batch)


def axes_of(plan: Plan, name: str) -> list[tuple[str, int]]:
    """The splits of one operator, outermost first."""
    found = []
    for transform in plan.transforms:
        if isinstance(transform, Split | Replicate) and name in (
            INSTANCES[index].name for index in select(INSTANCES, transform.ops)
        ):
            found.append((transform.dim if isinstance(transform, Split) else "", transform.parts))
    return found


def test_data_parallelism_splits_every_operator_on_samples() -> None:
    plan = plan_of("dp4 mb2", batch=16)
    assert {tuple(axes_of(plan, each.name)) for each in INSTANCES} == {(("batch", 4),)}
    assert (plan.devices, plan.batch, plan.microbatches) == (4, 8, 2)  # 16 samples in rounds of 4 x 2


def test_tensor_parallelism_splits_heads_width_and_vocabulary_and_copies_norms() -> None:
    plan = plan_of("tp2")
    assert axes_of(plan, "layer.0/attention.core") == [("heads", 2)]
    assert axes_of(plan, "layer.0/ffn.down") == [("ffn", 2)]
    assert axes_of(plan, "head/loss") == [("vocab", 2)]
    assert axes_of(plan, "layer.0/norm1") == [("", 2)]


def test_sequence_parallelism_splits_norms_on_tokens() -> None:
    assert axes_of(plan_of("dp2 tp2 sp"), "layer.1/norm2") == [("batch", 2), ("seq", 2)]


def test_zero_stages_shard_more_and_more_state() -> None:
    shards = {
        zero: {t.what for t in plan_of(f"dp4 zero{zero}").transforms if isinstance(t, Shard)}
        for zero in (1, 2, 3)
    }
    assert shards == {
        1: {"optimizer"}, 2: {"optimizer", "gradients"}, 3: {"optimizer", "gradients", "weights"}
    }  # fmt: skip


def test_full_recomputation_chooses_all_layers_and_no_ends() -> None:
    (again,) = (t for t in plan_of("full").transforms if isinstance(t, Recompute))
    assert {INSTANCES[index].block for index in select(INSTANCES, again.ops)} == {"layer.0", "layer.1"}


def test_a_pipeline_has_a_stage_for_each_row_and_each_row_its_order() -> None:
    plan = plan_of("dp2 pp2 1f1b")
    assert [stage.ops for stage in plan.stages] == ["embedding,layer.0", "head,layer.1"]
    assert [assign.devices for assign in plan.assigns] == [(0, 1), (2, 3)]
    assert [order.devices for order in plan.orders] == [(0, 1), (2, 3)]
    assert " ".join(map(str, plan.orders[1].actions[:4])) == "F1.0 B1.0 F1.1 B1.1"


@pytest.mark.parametrize(
    ("text", "batch", "message"),
    [
        ("dp4", 6, r'strategy "dp4.*: batch 6: does not divide by dp·mb = 4'),
        ("pp2 vpp2 1f1b", 8, "vpp2.*goes with the interleaved schedule"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused(text: str, batch: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan_of(text, batch)
