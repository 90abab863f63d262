"""Constants of time come down a tree: what rows say moves them, what they do not say is the parent's."""

from dataclasses import replace

import numpy as np
import pytest

from tests.builders import perfect
from tests.unit.validate.test_rows import row
from trainwright.cost.constants import Stack, level_at
from trainwright.cost.load import CALIBRATION, PRIOR, Constants, load_constants
from trainwright.stack.load import stack_entries
from trainwright.validate.calibrate import fit_times, leave_out, stated_fields, time_model, timed, with_forks
from trainwright.validate.dataset import Dataset, build_dataset, predict
from trainwright.validate.hierarchy import BOUNDS, SHARES, STACK_SPREAD, build_hierarchy, parent_of

NAMES = ("generic", "megatron-lm", "megatron-lm-2022", "megatron-core", "nemo", "torchtitan")
PRIOR_OF_TESTS = Constants(
    efficiencies={"class": perfect()}, stacks={name: Stack(name=name, pace=0.8) for name in NAMES}
)


def quiet(text: str) -> None:
    """Say nothing."""


def runs(framework: str, source: str, **cells: str) -> list[dict[str, str]]:
    layouts = [("1", "64"), ("2", "32"), ("4", "16")]
    return [
        row(
            framework=framework, source=source, tp=tp, dp=dp, micro_batch=micro, recompute="none",
            precision="bf16", zero="1", sequence_parallel="0", hardware="H100-SXM-80GB", **cells,
        )
        for tp, dp in layouts
        for micro in ("1", "2")
    ]  # fmt: skip


def measured_as(rows: list[dict[str, str]], truth: Constants) -> list[dict[str, str]]:
    """The rows with the step times that they have under planted constants."""
    dataset = build_dataset(rows, truth.stack)
    times = predict(dataset, truth.stack, truth.efficiency).step_s
    return [each | {"step_time_s": f"{time:.8g}"} for each, time in zip(rows, times, strict=True)]


def planted(**stacks: Stack) -> Constants:
    named = {name.replace("_", "-"): each for name, each in stacks.items()}
    return replace(PRIOR_OF_TESTS, stacks={**PRIOR_OF_TESTS.stacks, **named})


def dataset_of(rows: list[dict[str, str]]) -> Dataset:
    return build_dataset(rows, PRIOR_OF_TESTS.stack)


def test_every_stack_descends_from_the_root() -> None:
    for name in stack_entries():
        seen = [name]
        while above := parent_of(seen[-1]):
            assert above not in seen
            seen.append(above)
        assert seen[-1] == "generic"


def test_a_stack_without_rows_is_its_kin() -> None:
    truth = planted(megatron_core=Stack(name="megatron-core", pace=0.65))
    dataset = dataset_of(measured_as(runs("megatron-core", "a paper"), truth))
    model, near = fit_times(dataset, PRIOR_OF_TESTS, 8, quiet)
    found = model.hierarchy.constants(near.x)
    own, child, other = (found.stacks[name] for name in ("megatron-core", "nemo", "torchtitan"))
    level = own.pace_on("hopper", "bf16")
    assert 0.62 < level < 0.72  # shrunk to the prior of 0.8
    assert child.pace_on("hopper", "bf16") == level  # inherits family and pace
    assert abs(other.pace_on("hopper", "bf16") / 0.8 - 1.0) < abs(level / 0.8 - 1.0)  # the root moved less


def test_a_left_out_source_takes_back_what_only_it_said() -> None:
    truth = planted(torchtitan=Stack(name="torchtitan", pace=0.6))
    rows = runs("megatron-core", "a paper") + runs("torchtitan", "a book")
    dataset = dataset_of(measured_as(rows, truth))
    model, near = fit_times(dataset, PRIOR_OF_TESTS, 8, quiet)
    whole, without = model.hierarchy.constants(near.x), leave_out(model, near, "a book")
    assert 0.57 < whole.stacks["torchtitan"].pace_on("hopper", "bf16") < 0.7  # shrunk to the prior of 0.8
    assert without.stacks["torchtitan"].pace_on("hopper", "bf16") == pytest.approx(0.8, rel=0.04)
    assert (without.stacks["torchtitan"].runs, without.stacks["megatron-core"].runs) == (0, 6)


def test_a_new_release_starts_from_the_one_before() -> None:
    old, new = (runs("megatron-core", "a paper", release=text) for text in ("NeMo 25.09", "NeMo 26.02"))
    slow = planted(megatron_core=Stack(name="megatron-core", pace=0.7))
    dataset = dataset_of(measured_as(old, PRIOR_OF_TESTS) + measured_as(new, slow))
    model, near = fit_times(dataset, PRIOR_OF_TESTS, 8, quiet)
    stack = model.hierarchy.constants(near.x).stacks["megatron-core"]
    assert stack.release_levels["2026-02"] < 0.99
    at = {
        month: replace(stack, release=month).pace_on("hopper", "bf16") for month in ("2025-09", "2026-02", "")
    }
    assert at["2026-02"] == at[""] < at["2025-09"]  # the newest unless stated
    assert replace(stack, release="2027-01").pace_on("hopper", "bf16") == at["2026-02"]


@pytest.mark.parametrize(
    ("release", "level"), [("", 3.0), ("2026-01", 3.0), ("2025-07", 2.0), ("2025-06", 2.0), ("2024-01", 1.0)]
)
def test_the_level_of_a_release_is_that_of_the_last_one_known(release: str, level: float) -> None:
    assert level_at({"": 1.0, "2025-06": 2.0, "2026-01": 3.0}, release) == level
    assert level_at({}, release) == 1.0


def test_derivatives_follow_the_predictions() -> None:
    rows = runs("nemo", "a paper") + runs("megatron-core", "a book", release="NeMo 26.02")
    dataset = dataset_of(measured_as(rows, PRIOR_OF_TESTS))
    model = time_model(dataset, PRIOR_OF_TESTS, timed(dataset))
    x = np.zeros(len(model.hierarchy.moves))
    logs = model.logs(x)
    jacobian = model.jacobian(x, logs)
    for index, move in enumerate(model.hierarchy.moves):
        if move.field in ("pace", "gemm", "memory", "traffic", "family_levels", "step_s"):
            moved = x.copy()
            moved[index] = 0.02 / move.spread
            slope = (model.logs(moved) - logs) / moved[index]
            assert jacobian[:, index] == pytest.approx(slope, abs=2e-3), move


def test_forks_have_their_kins_numbers() -> None:
    dataset = dataset_of(measured_as(runs("primus-megatron", "a paper"), PRIOR_OF_TESTS))
    found = with_forks(PRIOR_OF_TESTS, dataset)
    assert found.stacks["primus-megatron"] == replace(found.stacks["megatron-core"], name="primus-megatron")


def test_only_used_numbers_move() -> None:
    dataset = dataset_of(measured_as(runs("torchtitan", "a paper"), PRIOR_OF_TESTS))
    hierarchy = build_hierarchy(dataset, PRIOR_OF_TESTS, stated_fields(), timed(dataset))
    assert {move.unit for move in hierarchy.moves} == {"class", "generic", "torchtitan"}


class TestShippedConstants:
    """What ships is within physical bounds."""

    def test_no_rate_of_fewer_bits_has_a_larger_share_of_its_peak(self) -> None:
        for unit, each in load_constants(CALIBRATION).efficiencies.items():
            assert each.gemm_fp4 <= each.gemm_fp8 * (1 + 1e-6), unit
            assert each.gemm_fp8 <= each.gemm * (1 + 1e-6), unit
            assert 0.2 <= each.gemm <= 0.95, unit
            assert each.attention_backward <= each.attention_forward <= 1.0, unit
            assert 0.4 <= each.memory <= 1.0, unit

    def test_every_constant_of_a_stack_is_within_its_bounds(self) -> None:
        for name, each in load_constants(CALIBRATION).stacks.items():
            for field in STACK_SPREAD:
                low, high = BOUNDS.get(field, (0.0, 1.0))
                assert low <= getattr(each, field) <= high * (1 + 1e-6), (name, field)
            levels = (*each.family_levels.values(), *each.release_levels.values())
            assert all(0.6 <= level <= 1.6 for level in levels), name
            assert all(0.3 <= level <= 3.0 for level in each.expert_release_levels.values()), name
            # Kernels alone run at most as fast as their published rates.
            ran = [family for family in each.family_levels if " " not in family]
            assert all(each.pace_on(family, "bf16") <= 1.2 for family in ran), name

    def test_a_send_costs_what_hosts_need_for_it(self) -> None:
        for name, each in load_constants(CALIBRATION).stacks.items():
            assert 5e-6 <= each.send_s <= 1e-4 or name in ("torchrec", "trainwright"), name

    def test_the_prior_states_facts_of_known_fields(self) -> None:
        assert set(stated_fields()) == set(load_constants(PRIOR).stacks)
        assert {"dp_overlap", "zero_overlap"} <= SHARES
