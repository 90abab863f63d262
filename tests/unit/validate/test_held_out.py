"""Ranges come from sources left out: how far their levels lie, and how far their runs scatter."""

import numpy as np
import pytest

from tests.builders import perfect
from tests.unit.validate.test_rows import row
from trainwright.cost.constants import Stack
from trainwright.cost.load import BASES, Constants
from trainwright.validate.dataset import Dataset, build_dataset
from trainwright.validate.held_out import HeldOut, with_ranges
from trainwright.validate.repeats import repeat_scatter

CONSTANTS = Constants(
    efficiencies={"class": perfect()},
    stacks={name: Stack(name=name) for name in ("generic", "nanotron", "oneflow")},
)
RUNS = 40  # of a source


def table(levels: list[float], scatter: dict[str, float], basis: str) -> tuple[Dataset, HeldOut]:
    """One source per level, alternately of two stacks, with runs that scatter around it."""
    random, rows, logs = np.random.default_rng(7), [], []
    for index, level in enumerate(levels):
        stack = ("nanotron", "oneflow")[index % 2]
        rows += [row(source=f"source {index}", framework=stack)] * RUNS
        logs += list(level + scatter[stack] * random.standard_normal(RUNS))
    dataset = build_dataset(rows, CONSTANTS.stack)
    held = HeldOut(
        ratio=np.exp(logs), basis=(basis,) * len(rows), memory_bytes=np.zeros(0), fits=np.zeros(0, dtype=bool)
    )
    return dataset, held


def test_levels_and_scatter_are_told_apart() -> None:
    scatter = {"nanotron": 0.2, "oneflow": 0.05}
    found = with_ranges(CONSTANTS, *table([0.1, -0.1, 0.1, -0.1], scatter, "both"))
    assert 0.05 < found.level_deviations["both"] < 0.15
    assert found.stacks["nanotron"].scatter == pytest.approx(0.2, rel=0.3)
    assert found.stacks["oneflow"].scatter == pytest.approx(0.06, rel=0.35)  # shrunk to that of all


def test_a_stack_without_runs_scatters_as_all_do() -> None:
    scatter = {"nanotron": 0.2, "oneflow": 0.2}
    found = with_ranges(CONSTANTS, *table([0.0, 0.0], scatter, "both"))
    assert found.stacks["generic"].scatter == pytest.approx(0.2, rel=0.3)


def test_less_knowledge_never_narrows() -> None:
    found = with_ranges(CONSTANTS, *table([0.1, -0.1], {"nanotron": 0.1, "oneflow": 0.1}, "both"))
    deviations = [found.level_deviations[name] for name in BASES]
    assert deviations[0] < deviations[1] == deviations[2] < deviations[3]


def test_ranges_hold_nine_in_ten_in_the_median_over_sources() -> None:
    random = np.random.default_rng(3)
    levels, scatter = list(0.1 * random.standard_normal(30)), {"nanotron": 0.1, "oneflow": 0.1}
    dataset, held = table(levels, scatter, "both")
    found = with_ranges(CONSTANTS, dataset, held)
    interval = found.interval_of("both", found.stacks["nanotron"])
    inside = (interval.low <= held.ratio) & (held.ratio <= interval.high)
    assert 0.85 <= np.median(inside.reshape(len(levels), RUNS).mean(axis=1)) <= 0.95


def test_repeats_of_a_configuration_are_the_noise_floor() -> None:
    same = [row(step_time_s=text) for text in ("1.0", "1.1", "1.21")]
    other = [row(step_time_s="5.0", micro_batch="4"), row(step_time_s="3.0", source="another")]
    scatter = repeat_scatter(build_dataset(same + other, CONSTANTS.stack))
    assert scatter == {"a paper": pytest.approx(np.log(1.1))}
