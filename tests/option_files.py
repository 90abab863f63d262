"""The files that commands read in tests of their options."""

import atexit
import json
import shutil
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from tests.fuzz.stacks import DEEPSPEED, TITAN
from tests.unit.sweep.small import small_sweep
from trainwright.cli.main import main
from trainwright.study.comp_vs_comm import SHIPPED
from trainwright.sweep.run import run_sweep
from trainwright.validate.dataset import PUBLISHED

FOLDER = Path(mkdtemp(prefix="option-files-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
DENSE, MIXTURE, RECOMMENDER = str(FOLDER / "dense.toml"), str(FOLDER / "mixture.toml"), "dlrm-mlperf"
SITES = "h100:2x2@10Gbps"
_SIZES = "layers = 4\nhidden = 64\nheads = 4\nffn = 256\nvocab = 256\ngated = true\nmax_seq = 128\n"
_SCRIPT = (
    "torchrun --nproc-per-node 4 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
    "--ffn-hidden-size 256 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 "
    "--global-batch-size ${GBS:-8} --vocab-size 256 --bf16 --tensor-model-parallel-size 2\n"
)
_CPU = """count = 1
network = { name = "here", host_power = "0 W", host_bandwidth = "10 GB/s", source = "test", \
level = [{ name = "node", bandwidth = "1 GB/s", latency = "1 us" }] }
[device]
name = "cpu"
family = "cpu"
compute_units = 1
buffer = "1 MiB"
idle_power = "5 W"
peak_power = "15 W"
price_per_hour = "0 $/h"
source = "test"
peak = { fp32 = "2000 GFLOP/s", bf16 = "2000 GFLOP/s" }
memory = [{ name = "ram", capacity = "16 GiB", bandwidth = "200 GB/s" }]
"""

_OWN_RUNS = (
    "framework,hardware,model,layers,hidden,heads,ffn_hidden,gated_ffn,vocab,seq_len,global_batch,micro_batch,"
    "tp,pp,precision,gpus,step_time_s,memory_gib\n"
    "megatron-core,h100,small,4,64,4,256,1,256,128,64,8,1,1,bf16,"
)


def prepare_files() -> None:
    """Write all of them."""
    _models()
    _plans()
    _tables()
    _traces()


def _models() -> None:
    Path(DENSE).write_text(_SIZES)
    Path(MIXTURE).write_text(_SIZES + "experts = 4\ntop_k = 2\n")
    (FOLDER / "train.sh").write_text(_SCRIPT)
    (FOLDER / "titan.toml").write_text(TITAN)
    (FOLDER / "deepspeed.json").write_text(DEEPSPEED)
    (FOLDER / "cpu.toml").write_text(_CPU)
    slower = SHIPPED.read_text(encoding="utf-8").replace('time = "', 'time = "1')
    (FOLDER / "profile.toml").write_text(slower)


def _plans() -> None:
    _run("simulate", DENSE, "h100:4", "dp4", "--batch", "8", save_plan="dense.plan", trace="trace.json")
    _run("simulate", DENSE, "h100:4", "co-shard", "tp=2", "chunks=2", "--batch", "8", save_plan="uneven.plan")
    _run("simulate", DENSE, "h100:2", "dp2", "fp32", "--batch", "8", save_plan="fp32.plan")
    island = ["--algorithm", "diloco", "--batch", "8"]
    _run("simulate", DENSE, SITES, "dp2", *island, save_plan="islands.plan")
    _run("simulate", DENSE, "h100:1x2@10Gbps", "dp1", *island, save_plan="single.plan")
    sizes = ("--model", DENSE, "--cluster", "h100:4", "--batch", "8")
    for to, file in (
        ("nanotron", "nanotron.yaml"), ("maxtext", "maxtext.yaml"), ("accelerate", "accelerate.yaml"),
        ("nemo", "bridge.py"), ("trainwright", "own.plan"),
    ):  # fmt: skip
        zero = "zero1" if to == "nanotron" else "zero3"
        _run("export", "dp4", "mb1", zero, "--to", to, *sizes, out=file)
    _run("plan", DENSE, SITES, "--algorithm", "diloco,local-sgd", json="islands.json")
    _run("plan", "gpt2", "h100:4", "--batch", "64", "--stack", "megatron-core", json="answer.json")


def _run(*words: str, **files: str) -> None:
    named = [(f"--{name.replace('_', '-')}", str(FOLDER / file)) for name, file in files.items()]
    assert main([*words, *(word for pair in named for word in pair)]) == 0


def _tables() -> None:
    numbers = np.random.default_rng(0)
    np.save(FOLDER / "tokens.npy", numbers.integers(0, 256, 20_000).astype(np.uint16))
    inputs, labels = numbers.normal(size=(256, 8)).astype(np.float32), np.arange(256) % 4
    np.savez(FOLDER / "samples.npz", inputs=inputs, labels=labels)
    np.savez(FOLDER / "scaled.npz", inputs=2 * inputs, labels=labels)
    lines = PUBLISHED.read_text(encoding="utf-8").splitlines()
    (FOLDER / "runs.csv").write_text("\n".join(lines[:4]) + "\n")
    for name, step_s in (("own_runs.csv", 0.2), ("slower_runs.csv", 0.4)):
        (FOLDER / name).write_text(_OWN_RUNS + f"8,{step_s},2\n")
    sweep = small_sweep()
    (FOLDER / "small.toml").write_text(sweep.text)
    run_sweep(sweep, FOLDER / "dataset", workers=1)


def _traces() -> None:
    from tests.tools.kineto_traces import record  # which needs torch

    record(FOLDER / "kineto.json", steps=2, width=256, rows=512)
    trace = json.loads((FOLDER / "kineto.json").read_text())
    assert any(str(each.get("name", "")).startswith("ProfilerStep") for each in trace["traceEvents"])
    for event in trace["traceEvents"]:
        event.update({"dur": 2 * event["dur"]} if "dur" in event else {})
    (FOLDER / "slower.json").write_text(json.dumps(trace))
