"""Megatron-Bridge's own recipes take the values that are exported for them (make test-bridge)."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.export.handover import Handover
from trainwright.export.targets import export_text
from trainwright.plan.strategy import Strategy, parse_strategy

PARSING = Path(__file__).with_name("bridge_parsing.py")
STRATEGIES = (
    "dp8 mb1 zero0 bf16", "dp8 tp4 sp pp4 vpp2 interleaved mb2 zero1 recompute=mlp bf16",
    "dp8 pp2 mb1 zero1 full4 fp32", "dp16 mb1 zero3 bf16", "dp8 tp2 sp ep4 mb1 zero1 offload-optimizer bf16",
    "dp8 pp2 vpp2 interleaved mb1 zero1 hsdp4 fp8 no-overlap", "dp4 cp2 allgather mb1 zero2 full fp16",
    "dp2 tp2 pp4 mb1 zero1 order=tp-pp-dp bf16", "dp1 mb1 offload-optimizer bf16",
)  # fmt: skip


def is_there() -> bool:
    try:
        return importlib.util.find_spec("megatron.bridge") is not None
    except ModuleNotFoundError:
        return False


def expected(plan: Strategy) -> dict[str, object]:
    sharded = {2: "optim_grads", 3: "optim_grads_params"}
    dtypes = {"fp32": "torch.float32", "fp16": "torch.float16"}
    distributed = plan.zero > 0 or plan.offload == "optimizer"
    return {
        "degrees": [plan.dp, plan.tp, plan.cp, plan.pp, plan.vpp, plan.ep], "sp": plan.sp,
        "recompute": "selective" if plan.recompute == "mlp" else plan.recompute,
        "distributed": [distributed] * 2, "fsdp": sharded.get(plan.zero, ""),
        "instances": plan.dp * plan.cp // plan.shard if plan.shard else 1,
        "overlap": [plan.overlap, plan.overlap and plan.zero > 0, plan.overlap and plan.vpp > 1],
        "offload": plan.offload == "optimizer", "dtype": dtypes.get(plan.precision, "torch.bfloat16"),
        "fp8": "hybrid" if plan.precision == "fp8" else "",
        "batch": [plan.micro_batch, plan.dp * plan.micro_batch * 8], "seq": [4096, 4096],
        "inside": "pp-dp" in plan.order,
    }  # fmt: skip


@pytest.mark.skipif(not is_there(), reason="needs megatron-bridge")
def test_megatron_bridge_validates_every_recipe_and_keeps_every_knob(tmp_path: Path) -> None:
    plans, words = [parse_strategy(text) for text in STRATEGIES], []
    for index, plan in enumerate(plans):
        handover = Handover(strategy=plan, global_batch=plan.dp * plan.micro_batch * 8, seq=4096)
        (tmp_path / f"{index}.py").write_text(export_text(handover, "megatron-bridge"))
        words += [str(tmp_path / f"{index}.py"), str(plan.devices)]
    result = subprocess.run(
        [sys.executable, str(PARSING), *words], capture_output=True, text=True, timeout=500, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    line = next((each for each in result.stdout.splitlines() if each.startswith("PARSED ")), None)
    assert line, result.stderr[-3000:]
    for text, plan, told in zip(STRATEGIES, plans, json.loads(line.removeprefix("PARSED ")), strict=True):
        assert told == expected(plan), text
