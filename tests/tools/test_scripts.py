"""Scripts that bash reads, that shellcheck has nothing to say about, and that really start the runtime."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.export.handover import Handover
from trainwright.export.targets import export_text
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy

SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
CASES = [(to, model) for to in ("megatron", "torchrun", "slurm") for model in ("llama3-8b", None)]


def script(to: str, model: str | None) -> str:
    plan = parse_strategy("dp8 tp4 pp2 vpp2 interleaved mb1 zero1 full2 fp8")
    arch = load_model(model) if model else None
    return export_text(Handover(strategy=plan, global_batch=64, seq=4096, model=model, architecture=arch), to)


@pytest.mark.parametrize(("to", "model"), [case for case in CASES if case != ("torchrun", None)])
def test_bash_and_shellcheck_accept_the_script(tmp_path: Path, to: str, model: str | None) -> None:
    path = tmp_path / "job.sh"
    path.write_text(script(to, model))
    subprocess.run(["bash", "-n", str(path)], check=True)
    if SHELLCHECK is None:
        pytest.skip("needs shellcheck")
    found = subprocess.run([SHELLCHECK, str(path)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_slurm_script_starts_every_node_with_the_first_as_meeting_place(tmp_path: Path) -> None:
    """The script itself, under an srun that prints what it would start."""
    commands = {"srun": 'printf "%s\\n" "$@"', "scontrol": 'printf "node7\\nnode8\\n"'}
    for name, body in commands.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.sh").write_text(script("slurm", "llama3-8b"))
    environment = os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_ID": "12345",
        "SLURM_JOB_NODELIST": "node[7-8]",
    }  # fmt: skip
    result = subprocess.run(
        ["bash", str(tmp_path / "job.sh")], env=environment, capture_output=True, text=True, check=True
    )
    words = result.stdout.splitlines()
    assert words[:4] == ["--kill-on-bad-exit=1", "torchrun", "--nnodes=8", "--nproc-per-node=8"]
    assert "--rdzv-endpoint=node7:22345" in words
    assert words[words.index("run") :][1:3] == [
        "llama3-8b",
        "dp8 tp4 pp2 vpp2 mb1 zero1 interleaved full2 fp8",
    ]


def test_torchrun_starts_our_runtime_from_its_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "tiny.toml").write_text("layers = 2\nhidden = 32\nheads = 4\nvocab = 512\nmax_seq = 32\n")
    plan = parse_strategy("dp2 mb2 zero1 fp32")
    handover = Handover(
        strategy=plan,
        global_batch=8,
        seq=32,
        model="tiny.toml",
        architecture=load_model(str(tmp_path / "tiny.toml")),
    )
    (tmp_path / "job.sh").write_text(export_text(handover, "torchrun"))
    here = Path(__file__).parents[2] / "src"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(here),
        "MASTER_PORT": str(20000 + os.getpid() % 10000), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    result = subprocess.run(
        ["bash", "job.sh", "--steps", "3", "--metrics", "metrics.jsonl"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) >= 3
