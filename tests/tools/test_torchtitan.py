"""torchtitan's own configuration classes take what is exported for it."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.export.handover import Handover
from trainwright.export.targets import export_text
from trainwright.model.load import load_model
from trainwright.plan.strategy import Strategy, parse_strategy

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchtitan") is None, reason="needs torchtitan")
PARSING = Path(__file__).with_name("torchtitan_parsing.py")
CASES = (
    ("llama3-8b", "dp8 mb2 zero3 recompute=dots bf16"),
    ("llama3-8b", "dp8 mb1 zero3 full"),  # fp8 is built on devices that have it only
    ("llama3-70b", "dp8 tp8 sp pp4 vpp4 interleaved mb1 zero2 full bf16"),
    ("llama3-70b", "dp16 tp4 mb1 zero3 hsdp4 fp32"),
    ("qwen3-14b", "dp2 cp4 allgather tp8 sp pp2 mb1 zero3 gpipe bf16"),
    ("qwen3-30b-a3b", "dp16 ep8 mb1 zero3 recompute=dots bf16"),
)


def handover(model: str, plan: Strategy) -> Handover:
    return Handover(
        strategy=plan, global_batch=plan.dp * plan.micro_batch * 8, seq=4096, model=model,
        architecture=load_model(model),
    )  # fmt: skip


def test_torchtitan_builds_every_configuration(tmp_path: Path) -> None:
    plans = [parse_strategy(text) for _, text in CASES]
    for index, ((model, _), plan) in enumerate(zip(CASES, plans, strict=True)):
        (tmp_path / f"plan_{index}.py").write_text(export_text(handover(model, plan), "torchtitan"))
    result = subprocess.run(
        [sys.executable, str(PARSING), str(tmp_path), *(f"plan_{index}" for index in range(len(CASES)))],
        capture_output=True, text=True, timeout=500, cwd=tmp_path, check=False,
    )  # fmt: skip
    line = next((each for each in result.stdout.splitlines() if each.startswith("PARSED ")), None)
    assert line, result.stderr[-3000:]
    for (model, _), plan, told in zip(CASES, plans, json.loads(line.removeprefix("PARSED ")), strict=True):
        degrees = told["parallelism"]
        assert math.prod(degrees.values()) == plan.devices * plan.ep
        assert degrees["data_parallel_shard_degree"] * plan.cp == (plan.shard or plan.dp * plan.cp)
        assert told["batch"] == plan.dp * plan.micro_batch * 8
        assert told["local"] == plan.micro_batch * (8 if plan.pp > 1 else 1)
        assert told["layers"] == load_model(model).layers
        assert told["stages"] == plan.pp * plan.vpp
        policy = {"none": "NoneType", "dots": "SelectiveAC.Config", "full": "FullAC.Config"}
        assert told["checkpoint"] == policy[plan.recompute]
