from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from tests.runtime.launching import ROOT, torchrun
from trainwright.runtime.shelf import kept_checkpoints

ON_FOUR = ("dp4", "tp2 pp2", "dp4 zero3", "dp2 tp2 zero1", "zoo chimera")
ON_TWO = ("dp2", "tp2", "dp2 zero3")
PLANS = (*ON_FOUR, *ON_TWO)


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of three steps, handed on from plan to plan."""
    path = tmp_path_factory.mktemp("shelves")
    script = str(ROOT / "tests" / "runtime" / "resharding.py")
    for count, first, plans in ((4, 0, ON_FOUR), (2, len(ON_FOUR), ON_TWO)):
        result = torchrun(count, script, str(path), str(first), *plans)
        assert result.returncode == 0, result.stderr
    return path


def content(shelf: Path) -> dict[str, object]:
    """All tensors of the one checkpoint of a directory."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    (kept,) = kept_checkpoints(shelf)
    dcp_to_torch_save(kept.path, shelf / "whole.pt")
    return torch.load(shelf / "whole.pt")  # type: ignore[no-any-return]


@pytest.mark.parametrize("number", range(1, len(PLANS)), ids=PLANS[1:])
def test_a_checkpoint_outlives_the_plan_bit_for_bit(shelves: Path, number: int) -> None:
    first, other = content(shelves / "0"), content(shelves / str(number))
    assert first.keys() == other.keys()
    assert {kind.partition("/")[0] for kind in first} == {"weights", "exp_avg", "exp_avg_sq"}
    assert all(torch.equal(first[name], other[name]) for name in first)
    assert all(tensor.dtype == torch.float32 and tensor.abs().sum() > 0 for tensor in first.values())


def test_training_goes_on_alike_under_all_plans(shelves: Path) -> None:
    found = [float((shelves / f"{number}.loss").read_text()) for number in range(len(PLANS))]
    assert found == pytest.approx([found[0]] * len(PLANS), abs=1e-5)
