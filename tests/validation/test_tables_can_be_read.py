"""The published tables beside the repository are read almost whole."""

from pathlib import Path

import pytest

from trainwright.cost.constants import Stack
from trainwright.validate.dataset import build_dataset, load_rows

TABLES = Path(__file__).parents[3] / "shared" / "validation"

pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason=f"no published tables at {TABLES}")


@pytest.mark.parametrize(("name", "share"), [("runs.csv", 0.98), ("oom.csv", 0.90)])
def test_almost_every_row_becomes_a_case(name: str, share: float) -> None:
    dataset = build_dataset(load_rows(TABLES / name), lambda stack: Stack(name=stack))
    read = sum(case is not None for case in dataset.cases)
    reasons = sorted({reason for reason in dataset.reasons if reason})
    assert read >= share * len(dataset.rows), reasons[:10]
