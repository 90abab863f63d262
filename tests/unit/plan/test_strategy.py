"""A strategy is a line of text, a value, and a column of arrays."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trainwright.errors import BadInput, UnknownName
from trainwright.plan.strategy import (
    SCHEDULES,
    Strategy,
    join_strategies,
    parse_strategy,
    stack_strategies,
)

EVERYTHING = Strategy(
    dp=8, tp=4, sp=True, cp=2, cp_kind="allgather", pp=2, vpp=3, ep=4, etp=2, zero=3, shard=4,
    micro_batch=2, schedule="interleaved", recompute="full", recompute_layers=5, offload="both",
    offload_layers=6, precision="fp8", overlap=False,
)  # fmt: skip


class TestText:
    def test_a_line_is_read(self) -> None:
        strategy = parse_strategy("dp8 tp4 pp2 mb1 zero1 1f1b")
        assert strategy == Strategy(dp=8, tp=4, pp=2, micro_batch=1, zero=1, schedule="1f1b")

    def test_words_may_come_in_any_order(self) -> None:
        assert parse_strategy("zero1 pp2 tp4 1f1b dp8") == parse_strategy("dp8 tp4 pp2 zero1 1f1b")

    def test_every_knob_has_a_word(self) -> None:
        assert str(EVERYTHING) == (
            "dp8 tp4 sp cp2 allgather pp2 vpp3 ep4 etp2 mb2 zero3 hsdp4 interleaved full5 "
            "offload-both6 fp8 no-overlap"
        )
        assert parse_strategy(str(EVERYTHING)) == EVERYTHING

    def test_a_number_of_offloaded_layers_follows_what_is_offloaded(self) -> None:
        strategy = parse_strategy("dp8 offload-activations40")
        assert strategy == Strategy(dp=8, offload="activations", offload_layers=40)
        assert str(strategy) == "dp8 mb1 zero0 offload-activations40 bf16"
        assert parse_strategy("dp8 offload-activations0") == parse_strategy("dp8 offload-activations")

    def test_degrees_of_one_are_not_written(self) -> None:
        assert str(Strategy(dp=8)) == "dp8 mb1 zero0 bf16"

    def test_nothing_at_all_is_one_device(self) -> None:
        assert parse_strategy("") == Strategy()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("dp8 tpp4", 'word "tpp4": no such name; did you mean "tp1"'),
            ("dp", 'word "dp": no such name'),
            ("dp8 selectiv", 'did you mean "selective"'),
            ("dp8 tp-4", 'word "tp-4"'),
            ("dp8 offload-optimizer4", 'did you mean "offload-optimizer"'),
        ],
    )
    def test_an_unknown_word_is_named_with_the_nearest(self, text: str, message: str) -> None:
        with pytest.raises(UnknownName, match=message):
            parse_strategy(text)

    @pytest.mark.parametrize(
        ("text", "knob"),
        [
            ("dp8 dp4", "dp"),
            ("dp8 full full4", "recompute"),
            ("pp2 1f1b zb", "schedule"),
            ("bf16 fp8", "precision"),
            ("offload-activations offload-activations4", "offload"),
        ],
    )
    def test_a_knob_stated_twice_is_refused(self, text: str, knob: str) -> None:
        with pytest.raises(BadInput, match=f"{knob} is stated twice"):
            parse_strategy(text)


class TestRules:
    def test_devices_are_the_product_of_the_four_axes(self) -> None:
        assert EVERYTHING.devices == 8 * 4 * 2 * 2  # experts reuse dp, cp and tp

    @pytest.mark.parametrize("knob", ["dp", "tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch"])
    def test_degrees_start_at_one(self, knob: str) -> None:
        with pytest.raises(BadInput, match=f"strategy {knob} 0: degrees start at 1"):
            replace(Strategy(), **{knob: 0})  # type: ignore[arg-type]

    def test_zero_has_four_stages(self) -> None:
        with pytest.raises(BadInput, match="stages are 0, 1, 2 and 3"):
            Strategy(zero=4)

    @pytest.mark.parametrize(
        ("knobs", "message"),
        [
            ({"vpp": 2}, "schedules need pp > 1"),
            ({"schedule": "gpipe"}, "schedules need pp > 1"),
            ({"cp_kind": "allgather"}, "needs cp > 1"),
            ({"recompute_layers": 3}, "needs full recomputation"),
            ({"offload_layers": 3}, "needs activations on the host; write offload-activations4"),
            ({"offload": "optimizer", "offload_layers": 3}, "needs activations on the host"),
            ({"offload": "both", "offload_layers": -1}, "layers"),
            ({"shard": -1}, "shard"),
            ({"recompute": "full", "recompute_layers": -1}, "layers"),
        ],
    )
    def test_a_knob_without_a_meaning_is_refused(self, knobs: dict[str, Any], message: str) -> None:
        with pytest.raises(BadInput, match=message):
            Strategy(**knobs)

    @pytest.mark.parametrize("knob", ["schedule", "recompute", "offload", "cp_kind", "precision"])
    def test_a_choice_is_one_of_its_words(self, knob: str) -> None:
        with pytest.raises(UnknownName, match=f'strategy {knob} "maybe": no such name'):
            replace(Strategy(), **{knob: "maybe"})  # type: ignore[arg-type]


class TestArrays:
    def test_a_stacked_strategy_comes_back(self) -> None:
        batch = stack_strategies([Strategy(dp=2), EVERYTHING])
        assert len(batch) == 2
        assert (batch[0], batch[1]) == (Strategy(dp=2), EVERYTHING)

    def test_choices_are_indices(self) -> None:
        assert stack_strategies([EVERYTHING]).schedule.tolist() == [SCHEDULES.index("interleaved")]

    def test_nothing_stacks_to_nothing(self) -> None:
        assert len(stack_strategies([])) == 0

    def test_some_can_be_taken_and_joined(self) -> None:
        batch = stack_strategies([Strategy(dp=d) for d in (1, 2, 4, 8)])
        assert batch.take(np.array([3, 0])).dp.tolist() == [8, 1]
        assert batch.take(batch.dp > 2).dp.tolist() == [4, 8]
        joined = join_strategies([batch.take(slice(0, 1)), batch.take(slice(2, 4))])
        assert joined.dp.tolist() == [1, 4, 8]
