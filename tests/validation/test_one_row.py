"""One published run of a machine and its software foretells the others."""

from pathlib import Path
from statistics import median

import pytest

from trainwright.cost.load import PRIOR, load_constants
from trainwright.validate.dataset import PUBLISHED, Row, build_dataset, load_rows
from trainwright.validate.one_row import Projected, project_rows

TABLES = Path(__file__).parents[3] / "shared" / "validation"
STACK = "megatron-deepspeed"


def single_node(path: Path) -> list[Row]:
    """Runs of one node of A100s."""
    return [
        row
        for row in load_rows(path)
        if row["framework"] == STACK and "A100" in row["hardware"] and int(row["gpus"]) <= 8
    ]


def projected(path: Path) -> tuple[Projected, ...]:
    constants = load_constants(PRIOR)  # fitted to no run
    return project_rows(build_dataset(single_node(path), constants.stack), constants, STACK)


@pytest.mark.skipif(not TABLES.is_dir(), reason=f"no published tables at {TABLES}")
def test_from_one_run_of_a_node_the_others_follow_within_fifteen_percent() -> None:
    found = projected(TABLES / "runs.csv")
    assert len(found) > 20
    assert all(len(each.errors) > 700 for each in found)
    assert median(each.median for each in found) < 0.15  # whichever of them is the baseline
    assert found[0].median < 0.15


def test_the_shipped_runs_follow_from_one_of_them() -> None:
    found = projected(PUBLISHED)
    assert found
    assert median(each.median for each in found) < 0.20
