"""The space of legal strategies: complete, stable, bounded."""

import numpy as np
import pytest

from tests.builders import gpt
from trainwright.errors import BadInput, UnknownName
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, RECOMPUTES, SCHEDULES, join_strategies
from trainwright.search.space import (
    KNOBS,
    Space,
    count_strategies,
    knob_name,
    knob_value,
    legal_strategies,
    strategy_blocks,
)


def space(devices: int = 8, global_batch: int = 8, **changes: object) -> Space:
    values: dict[str, object] = {"fixed": {}, "most": {}, "seq": 1024}
    return Space(graph=gpt(), devices=devices, global_batch=global_batch, **(values | changes))  # type: ignore[arg-type]


def test_one_device_leaves_micro_batch_recompute_and_offload_to_choose() -> None:
    # micro batch 1, 2, 4, 8; four recomputations: none, selective's set, mlp and full; four offloads
    assert count_strategies(space(devices=1)) == 4 * 4 * len(OFFLOADS)


def test_the_count_is_that_of_the_strategies_built() -> None:
    assert count_strategies(space()) == len(legal_strategies(space()))


def test_no_strategy_appears_twice() -> None:
    rows = np.stack([getattr(legal_strategies(space()), knob) for knob in KNOBS], axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_every_strategy_uses_all_devices() -> None:
    every = legal_strategies(space())
    assert set(every.dp * every.tp * every.cp * every.pp) == {8}


def test_blocks_joined_are_the_whole_space_in_order() -> None:
    joined = join_strategies(strategy_blocks(space(), size=100))
    whole = legal_strategies(space())
    assert all((getattr(joined, knob) == getattr(whole, knob)).all() for knob in KNOBS)


def test_a_fixed_knob_takes_only_its_value() -> None:
    assert set(legal_strategies(space(fixed={"pp": (4,)})).pp) == {4}


def test_a_bounded_knob_stays_below_its_bound() -> None:
    assert set(legal_strategies(space(most={"tp": 2})).tp) == {1, 2}


def test_a_stated_precision_replaces_the_default() -> None:
    fp8 = PRECISIONS.index("fp8")
    assert set(legal_strategies(space(fixed={"precision": (fp8,)})).precision) == {fp8}


def test_a_space_without_strategies_is_an_error() -> None:
    with pytest.raises(BadInput, match="no strategy satisfies the constraints; relax --fix"):
        legal_strategies(space(fixed={"tp": (3,)}))


def test_an_unknown_knob_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match='did you mean "zero"'):
        knob_value("zeroo", "1")


def test_a_choice_is_its_index() -> None:
    assert knob_value("recompute", "full") == RECOMPUTES.index("full")


def test_a_number_is_needed_where_the_knob_is_one() -> None:
    with pytest.raises(BadInput, match="is not a whole number; write it like tp=4"):
        knob_value("tp", "four")


def test_interleaving_needs_microbatches_in_whole_rounds_of_the_stages() -> None:
    every = legal_strategies(space(devices=4, global_batch=8, fixed={"pp": (4,)}))
    interleaved = every.take(every.vpp > 1)
    # eight sequences in microbatches of 1 or 2 are 8 or 4 microbatches for 4 stages; of 4, only 2
    assert set(interleaved.micro_batch) == {1, 2}
    assert set(every.micro_batch) == {1, 2, 4, 8}


@pytest.mark.parametrize("text", ["²", "٣", "1" * 13, "-1", ""])
def test_a_number_is_digits_alone(text: str) -> None:
    with pytest.raises(BadInput, match="is not a whole number; write it like tp=4"):
        knob_value("tp", text)


@pytest.mark.parametrize("knob", ["tp", "pp", "dp", "cp", "vpp", "ep", "etp", "mb"])
def test_degrees_and_the_micro_batch_start_at_one(knob: str) -> None:
    with pytest.raises(BadInput, match=f'value of {knob} "0": is less than 1'):
        knob_value(knob, "0")


@pytest.mark.parametrize("knob", ["zero", "hsdp", "recompute_layers", "offload_layers"])
def test_some_numbers_may_be_zero(knob: str) -> None:
    assert knob_value(knob, "0") == 0


def test_a_stage_of_zero_is_one_of_four() -> None:
    with pytest.raises(BadInput, match="stages are 0, 1, 2 and 3"):
        knob_value("zero", "4")


@pytest.mark.parametrize("knob", ["sp", "overlap"])
def test_a_flag_is_on_or_off(knob: str) -> None:
    assert [knob_value(knob, text) for text in ("1", "on", "True", "0", "off", "false")] == [1, 1, 1, 0, 0, 0]
    with pytest.raises(
        BadInput, match=f'value of {knob} "5": is neither on nor off; write it like {knob}=on'
    ):
        knob_value(knob, "5")


def test_a_knob_may_be_named_as_strategies_write_it() -> None:
    assert (knob_name("mb"), knob_name("hsdp"), knob_name("tp")) == ("micro_batch", "shard", "tp")


def test_a_group_of_shards_goes_with_the_third_stage() -> None:
    every = legal_strategies(space(fixed={"shard": (4,)}))
    assert (set(every.zero), set(every.shard)) == ({3}, {4})
    with pytest.raises(BadInput, match="no strategy satisfies"):
        legal_strategies(space(fixed={"shard": (4,), "zero": (1,)}))


@pytest.mark.parametrize("name", ["gpipe", "interleaved", "zb"])
def test_a_schedule_other_than_1f1b_needs_a_pipeline(name: str) -> None:
    schedule = SCHEDULES.index(name)
    every = legal_strategies(space(fixed={"schedule": (schedule,)}))
    assert set(every.schedule) == {schedule}
    assert every.pp.min() > 1


def test_a_way_to_pass_keys_needs_a_split_context() -> None:
    assert legal_strategies(space(fixed={"cp_kind": (1,)})).cp.min() > 1


def test_a_number_of_recomputed_layers_is_full_recomputation_of_as_many_as_a_stage_has() -> None:
    # eight layers on one, two, four or eight stages: four layers are on stages of eight or four
    every = legal_strategies(space(fixed={"recompute_layers": (4,)}))
    assert set(every.recompute) == {RECOMPUTES.index("full")}
    assert (set(every.recompute_layers), set(every.pp)) == ({4}, {1, 2})


def test_a_number_of_offloaded_layers_moves_activations_of_as_many_as_a_stage_has() -> None:
    every = legal_strategies(space(fixed={"offload_layers": (4,)}))
    assert {OFFLOADS[each] for each in set(every.offload)} == {"activations", "both"}
    assert (set(every.offload_layers), set(every.pp)) == ({4}, {1, 2})
