"""nanotron's own configuration classes take what is exported for its last release."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.export.handover import Handover
from trainwright.export.targets import export_text
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nanotron") is None, reason="needs nanotron")
PARSING = Path(__file__).with_name("nanotron_parsing.py")
STRATEGIES = (
    "dp4 tp2 sp pp2 mb1 zero1 1f1b bf16", "dp2 tp4 mb2 zero0 fp32", "dp2 pp4 mb1 zero1 gpipe fp16",
)  # fmt: skip


def test_nanotron_builds_every_configuration(tmp_path: Path) -> None:
    plans, paths = [parse_strategy(text) for text in STRATEGIES], []
    for index, plan in enumerate(plans):
        handover = Handover(
            strategy=plan, global_batch=plan.dp * plan.micro_batch * 8, seq=4096, model="llama3-8b",
            architecture=load_model("llama3-8b"),
        )  # fmt: skip
        paths.append(tmp_path / f"{index}.yaml")
        paths[-1].write_text(export_text(handover, "nanotron-0.4"))
    result = subprocess.run(
        [sys.executable, str(PARSING), *map(str, paths)], capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    line = next((each for each in result.stdout.splitlines() if each.startswith("PARSED ")), None)
    assert line, result.stderr[-3000:]
    engines = {"1f1b": "OneForwardOneBackward", "gpipe": "AllForwardAllBackward"}
    dtypes = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}
    for plan, told in zip(plans, json.loads(line.removeprefix("PARSED ")), strict=True):
        assert told == {
            "degrees": [plan.dp, plan.tp, plan.pp], "engine": f"{engines[plan.schedule]}PipelineEngine",
            "mode": "REDUCE_SCATTER" if plan.sp else "ALL_REDUCE", "batch": plan.dp * plan.micro_batch * 8,
            "micro": plan.micro_batch, "zero": plan.zero, "dtype": dtypes[plan.precision], "layers": 32,
        }  # fmt: skip
