"""A sample of `make architectures`: every gradient under a plan is that of the module on one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
PLANS = ("tp+sp", "interleaved", "zero3", "ep")
SAMPLE = ("llama", "bert_classifier", "mixtral", "soft_mixture", "towers")


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """The results of all samples, from one command; what it prints if it fails."""
    kept = tmp_path_factory.mktemp("architectures") / "verdicts.jsonl"
    chosen = [word for plan in PLANS for word in ("--plan", plan)]
    ran = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_architectures.py"), *SAMPLE, *chosen, "--kept", str(kept)],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    stored = [json.loads(line)["verdict"] for line in kept.read_text(encoding="utf-8").splitlines()]
    return {(each["name"], each["plan"]): each["result"] for each in stored}


@pytest.mark.parametrize("name", SAMPLE)
def test_every_gradient_is_that_of_one_process(name: str, verdicts: dict[tuple[str, str], str]) -> None:
    found = {plan: result for (each, plan), result in verdicts.items() if each == name}
    assert found == dict.fromkeys(found, "equal")
    assert len(found) == len(PLANS) - (name != "mixtral")
