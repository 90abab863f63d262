"""The modes of advise and export, with a sample value for each of their options."""

from tests.option_files import DENSE, FOLDER, MIXTURE, SITES
from tests.options import CommandMode

_ADVISE = {
    "--model": MIXTURE, "--batch": "16", "--seq": "64", "--stack": "generic", "--cost": "roofline",
    "--json": "answer.json", "--micro-batch": "2", "--precision": "fp16", "--vocab": "512", "--set": "GBS=16",
    "--optimizer": "precision-aware-bf16", "--grad-dtype": "bf16", "--oom-risk": "20%", "--headroom": "30%",
    "--expert-imbalance": "1.5",
}  # fmt: skip


def _advise(name: str, *words: str, **samples: str) -> CommandMode:
    stated = {f"--{key.replace('_', '-')}": value for key, value in samples.items()}
    return CommandMode(name=f"advise-{name}", words=("advise", *words), samples=_ADVISE | stated)


ADVICE = (
    _advise("strategy", "dp4", "h100:4", "--model", DENSE),
    _advise("experts", "dp4 ep2", "h100:4", "--model", MIXTURE, model=DENSE),
    _advise("script", str(FOLDER / "train.sh"), "h100:4"),
    _advise("torchtitan", str(FOLDER / "titan.toml"), "h100:4", model="llama2-7b", vocab="32000"),
    _advise("deepspeed", str(FOLDER / "deepspeed.json"), "h100:2", "--model", DENSE, micro_batch="4"),
    _advise("answer", str(FOLDER / "answer.json"), "h100:4", batch="128"),
    _advise("nanotron", str(FOLDER / "nanotron.yaml"), "h100:4"),
    _advise("maxtext", str(FOLDER / "maxtext.yaml"), "h100:4"),
    _advise("accelerate", str(FOLDER / "accelerate.yaml"), "h100:4", "--model", DENSE),
    _advise("bridge", str(FOLDER / "bridge.py"), "h100:4", "--model", DENSE),
    _advise("own-plan", str(FOLDER / "own.plan"), "h100:4", "--model", DENSE),
)
_EXPORT = {
    "--to": "slurm", "--out": "written", "--model": "llama3-70b", "--cluster": "v100:4", "--per-node": "2",
    "--batch": "16", "--seq": "512", "--stack": "generic", "--per-class": None, "--lenient": None,
    "--optimizer": "sgd", "--grad-dtype": "bf16",
}  # fmt: skip
_TARGETS = (
    "megatron", "megatron-bridge", "nemo", "torchtitan", "torchtitan-toml", "deepspeed", "nanotron",
    "nanotron-0.4", "accelerate", "maxtext", "torchrun", "slurm", "trainwright",
)  # fmt: skip


_WITH_MODEL = ("torchrun", "trainwright")  # targets that need one


def _export(name: str, *words: str, **samples: str) -> CommandMode:
    stated = {f"--{key}": value for key, value in samples.items()}
    return CommandMode(name=f"export-{name}", words=("export", *words), samples=_EXPORT | stated)


def _other(to: str) -> dict[str, str]:
    """A target other than this one."""
    return {"to": "megatron" if to == "slurm" else "slurm"}


_MODEL = ("--model", "llama3-8b")
EXPORTS = (
    *(_export(to, "dp4", "--to", to, *_MODEL, **_other(to)) for to in _TARGETS),
    *(_export(f"{to}-alone", "dp4", "--to", to, **_other(to)) for to in _TARGETS if to not in _WITH_MODEL),
    _export("lenient", "dp4", "fp16", "--to", "maxtext", *_MODEL, "--lenient", cluster="h100:2"),
    _export("answer", str(FOLDER / "answer.json"), "--to", "megatron", batch="128"),
    _export("strategy-file", str(FOLDER / "dense.plan"), "--to", "megatron", "--model", DENSE, model=MIXTURE),
    _export(
        "plan-file", str(FOLDER / "uneven.plan"), "--to", "trainwright", "--model", DENSE, to="megatron"
    ),
    _export("islands-file", str(FOLDER / "islands.plan"), "--to", "trainwright", "--model", DENSE),
    _export(
        "named-plan", "co-shard", "tp=2", "chunks=2", "--to", "trainwright", "--model", DENSE, "--cluster",
        SITES, cluster="h100:2", to="megatron",
    ),
    _export(
        "chakra", "dp4", "--to", "chakra", "--model", DENSE, "--cluster", "h100:4", "--out", "traces",
        "--batch", "8", model=MIXTURE, seq="64",
    ),
)  # fmt: skip
