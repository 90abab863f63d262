"""DeepSpeed trains from the JSON that is exported for it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.export.handover import Handover
from trainwright.export.targets import export_text
from trainwright.plan.strategy import parse_strategy

TRAINING = Path(__file__).with_name("deepspeed_training.py")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")


STRATEGIES = (
    "dp2 mb2 zero0 bf16", "dp2 mb2 zero1 bf16", "dp2 mb1 zero2 bf16 no-overlap", "dp2 mb2 zero3 fp32",
)  # fmt: skip


def test_deepspeed_trains_under_every_stage_of_zero(tmp_path: Path) -> None:
    paths = []
    for text in STRATEGIES:
        plan = parse_strategy(text)
        handover = Handover(strategy=plan, global_batch=plan.dp * plan.micro_batch * 2)
        paths.append(tmp_path / f"zero{plan.zero}.json")
        paths[-1].write_text(export_text(handover, "deepspeed"))
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(TRAINING),
         *map(str, paths)],
        capture_output=True, text=True, timeout=500, cwd=tmp_path, check=False,
        env=os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    line = next((each for each in result.stdout.splitlines() if each.startswith("LOSSES ")), None)
    assert line, result.stderr[-3000:]
    for told in json.loads(line.removeprefix("LOSSES ")):
        assert told["steps"] == 8  # two microbatches are one step
        assert told["losses"][-1] < 0.7 * told["losses"][0]
