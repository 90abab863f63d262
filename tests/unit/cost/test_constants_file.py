"""The file of fitted constants: what is written is what is read."""

from dataclasses import replace
from math import log
from pathlib import Path

import pytest

from tests.builders import round_device
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.load import (
    NINE_IN_TEN,
    UNKNOWN_LEVEL,
    Constants,
    load_constants,
    save_constants,
)
from trainwright.errors import BadInput, UnknownName
from trainwright.stack.load import stack_entries, stack_name

CONSTANTS = Constants(
    efficiencies={"class": Efficiency(gemm=0.5), "hopper": Efficiency(gemm=0.625)},
    stacks={
        "generic": Stack(name="generic", pace=0.75),
        "megatron-deepspeed": Stack(name="megatron-deepspeed", splits_logits=False),
    },
    level_deviations={"both": 0.125, "neither": 0.5},
)


def saved(tmp_path: Path) -> Constants:
    path = tmp_path / "calibration.toml"
    save_constants(path, CONSTANTS)
    return load_constants(path)


def test_constants_survive_the_file(tmp_path: Path) -> None:
    read = saved(tmp_path)
    assert read.efficiencies == CONSTANTS.efficiencies
    assert read.stacks == CONSTANTS.stacks
    assert read.level_deviations == CONSTANTS.level_deviations


def test_a_device_without_data_falls_back_to_its_family_then_to_all() -> None:
    assert CONSTANTS.efficiency(round_device(name="h9", family="hopper")).basis == "family"
    assert CONSTANTS.efficiency(round_device(name="hopper", family="x")).basis == "device"
    assert CONSTANTS.efficiency(round_device(family="x")) == Efficiency(gemm=0.5, basis="class")


def test_a_stack_without_data_borrows_and_says_so() -> None:
    borrowed = CONSTANTS.stack("deepspeed")
    assert (borrowed.name, borrowed.basis, borrowed.splits_logits) == (
        "deepspeed",
        "megatron-deepspeed",
        False,
    )
    assert CONSTANTS.stack("my-own-trainer").basis == "generic"


def test_the_range_is_that_of_what_was_measured() -> None:
    stacks = Stack(name="mine", runs=0, scatter=0.0), Stack(name="known", runs=5, scatter=0.0)
    ranges = {
        (runs > 0, stack.runs > 0): CONSTANTS.interval(Efficiency(runs=runs), stack)
        for runs in (0, 7)
        for stack in stacks
    }
    widths = {known: log(each.high) / NINE_IN_TEN for known, each in ranges.items()}
    assert widths[True, True] == pytest.approx(0.125)
    assert widths[False, False] == pytest.approx(0.5)
    assert widths[True, False] == widths[False, True] == pytest.approx(UNKNOWN_LEVEL)  # not fitted
    assert all(each.low * each.high == pytest.approx(1.0) for each in ranges.values())


def test_scatter_of_runs_adds_to_that_of_levels() -> None:
    stack = Stack(name="known", runs=5, scatter=0.3)
    found = CONSTANTS.interval(Efficiency(runs=7), stack)
    assert log(found.high) / NINE_IN_TEN == pytest.approx((0.125**2 + 0.3**2) ** 0.5)


def test_what_borrows_its_constants_rests_on_no_runs() -> None:
    known = replace(CONSTANTS, stacks={"generic": Stack(name="generic", runs=9)})
    assert known.stack("generic").runs == 9
    assert known.stack("my-own-trainer").runs == 0


def test_an_unknown_key_suggests_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "calibration.toml"
    path.write_text("[stack.generic]\npaces = 1.0\n", encoding="utf-8")
    with pytest.raises(UnknownName, match='did you mean "pace"'):
        load_constants(path)


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="run make calibrate"):
        load_constants(tmp_path / "none.toml")


def test_every_stack_of_the_catalog_has_a_source_and_constants() -> None:
    constants = load_constants()
    for name, entry in stack_entries().items():
        assert entry.description
        assert entry.source
        assert constants.stack(name).name == name


def test_a_stack_is_found_by_its_alias() -> None:
    assert stack_name("mcore") == "megatron-core"
    with pytest.raises(UnknownName, match='did you mean "torchtitan"'):
        stack_name("torchtitn")
