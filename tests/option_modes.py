"""What commands can be asked to do, with a value for each of their options: a new option needs one."""

import atexit
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

from tests.option_spies import launched, listening, measured, swept, told_cases, told_runs, trained
from tests.options import CommandMode

FOLDER = Path(mkdtemp(prefix="option-modes-"))  # of the files that words name; see prepare_files
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
DENSE, MIXTURE, RECOMMENDER = str(FOLDER / "dense.toml"), str(FOLDER / "mixture.toml"), "dlrm-mlperf"
SITES = "h100:2x2@10Gbps"

_MONEY = {
    "--price": "9 $/h", "--own": None, "--capital": "9 $", "--network-share": "0.5", "--amortize": "9 years",
    "--electricity": "9 $/kWh", "--grid": "9 g/kWh",
}  # fmt: skip
_INTERRUPTIONS = {
    "--failures": "1 /device-day", "--detection": "9 min", "--restart": "99 min",
    "--checkpoint-bandwidth": "1 kB/s", "--storage-bandwidth": "1 kB/s", "--checkpoint-size": "1 TB",
    "--checkpoint-interval": "9 min", "--planned": "9 /day", "--planned-time": "99 min", "--jitter": "0.2",
}  # fmt: skip
_TARGET = {"--tokens": "1T", "--target-loss": "9", "--scaling-law": "besiroglu", "--critical-batch": "8k"}
_PAGES = {"--report": "page.html", "--figures": "drawn"}
_SUBJECT = {
    "--batch": "256", "--batch-tokens": "32768", "--seq": "64", "--change": "compute=0.5",
    "--stack": "generic",
    "--cost": "roofline", "--optimizer": "precision-aware-bf16", "--grad-dtype": "bf16",
}  # fmt: skip
_PLAN = {
    **_SUBJECT, "--batch-range": "8:16", "--precision": "fp16", "--objective": "energy", "--fix": "pp=1",
    **{f"--max-{knob}": "1" for knob in ("tp", "pp", "vpp", "cp", "ep", "dp", "mb")}, "--top": "1",
    "--all-variants": None, "--pareto": None, "--flexible": None, "--algorithm": "local-sgd",
    "--islands": "4", "--save-plans": "plans", "--json": "answer.json", "--csv": "rows.csv", "--quiet": None,
    **_TARGET,
    "--max-days": "9000", "--max-dollars": "9e9", "--devices-range": "2..2", **_INTERRUPTIONS, **_MONEY,
    **_PAGES,
}  # fmt: skip
_SIMULATE = {
    **_SUBJECT, "--algorithm": "local-sgd", "--islands": "4", "--free": None, "--width": "40",
    "--trace": "trace.json", "--save-plan": "saved.plan", "--json": "answer.json", **_TARGET,
    **_INTERRUPTIONS, **_MONEY, **_PAGES,
}  # fmt: skip
_OWNED = dict.fromkeys(("--capital", "--network-share", "--amortize", "--electricity"), ("--own",))
_NEEDS = {
    **_OWNED, "--scaling-law": ("--target-loss", "9"), "--devices-range": ("--max-days", "9000"),
    "--critical-batch": ("--tokens", "1T"), "--checkpoint-size": ("--checkpoint-bandwidth", "1 MB/s"),
}  # fmt: skip


def _plan(name: str, *words: str, **samples: str) -> CommandMode:
    stated = {f"--{key.replace('_', '-')}": value for key, value in samples.items()}
    return CommandMode(name=f"plan-{name}", words=("plan", *words), samples=_PLAN | stated, needs=_NEEDS)


def _simulate(name: str, *words: str, **samples: str) -> CommandMode:
    stated = {f"--{key.replace('_', '-')}": value for key, value in samples.items()}
    return CommandMode(
        name=f"simulate-{name}", words=("simulate", *words), samples=_SIMULATE | stated, needs=_NEEDS
    )


PLANS = (
    _plan("strategies", MIXTURE, SITES),
    _plan("smallest", MIXTURE, SITES, "--max-dollars", "8e9"),
    _plan("algorithms", MIXTURE, SITES, "--algorithm", "diloco"),
    _plan("recommender", RECOMMENDER, "a100:8", batch="8192"),
)
FLEXIBLE = _plan("flexible", DENSE, "h100:2", "--flexible")
SIMULATIONS = (
    _simulate("strategy", DENSE, SITES, "dp4", "mb64"),
    _simulate("named-plan", DENSE, SITES, "co-shard", "tp=2", "chunks=2", "micro_batch=64"),
    _simulate("plan-file", DENSE, SITES, str(FOLDER / "dense.plan")),
    _simulate(
        "islands", DENSE, SITES, "co-shard", "tp=1", "chunks=2", "micro_batch=64", "--algorithm", "diloco"
    ),
    _simulate("islands-file", DENSE, SITES, str(FOLDER / "islands.plan")),
    _simulate("islands-answer", DENSE, SITES, str(FOLDER / "islands.json"), "--algorithm", "diloco"),
    _simulate("recommender", RECOMMENDER, "a100:8", "table-parallel", "tables=8", batch="8192"),
)
_ADVISE = {
    "--model": MIXTURE, "--batch": "16", "--seq": "64", "--stack": "generic", "--cost": "roofline",
    "--json": "answer.json", "--micro-batch": "2", "--precision": "fp16", "--vocab": "512", "--set": "GBS=16",
    "--optimizer": "precision-aware-bf16", "--grad-dtype": "bf16",
}  # fmt: skip
ADVICE = (
    CommandMode(name="advise-strategy", words=("advise", "dp4", "h100:4", "--model", DENSE), samples=_ADVISE),
    CommandMode(name="advise-script", words=("advise", str(FOLDER / "train.sh"), "h100:4"), samples=_ADVISE),
    *(
        CommandMode(
            name=f"advise-{file}", words=("advise", str(FOLDER / file), "h100:4", *more), samples=_ADVISE
        )
        for file, more in (
            ("nanotron.yaml", ()),
            ("maxtext.yaml", ()),
            ("accelerate.yaml", ("--model", DENSE)),
            ("bridge.py", ("--model", DENSE)),
            ("own.plan", ("--model", DENSE)),
        )
    ),
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
    _export("answer", str(FOLDER / "answer.json"), "--to", "megatron"),
    _export(
        "plan-file", str(FOLDER / "uneven.plan"), "--to", "trainwright", "--model", DENSE,
        cluster="h100:2", to="megatron",
    ),
    _export(
        "chakra", "dp4", "--to", "chakra", "--model", DENSE, "--cluster", "h100:4", "--out", "traces",
        model=MIXTURE, seq="64",
    ),
)  # fmt: skip
_RUN = {
    "--data": str(FOLDER / "tokens.npy"), "--batch": "16", "--seq": "32", "--seed": "9",
    "--from": "first.pt", "--steps": "9", "--rate": "1e-3", "--warmup": "3", "--clip": "9",
    "--schedule": "linear", "--precision": "bf16", "--checkpoint": "kept", "--every": "3", "--keep": "9",
    "--resume": None, "--evaluate-every": "3", "--metrics": "numbers.jsonl", "--tensorboard": "board",
    "--record": "trace.json", "--cost": "roofline", "--export": "last.pt", "--processes": "4",
    "--algorithm": "local-sgd", "--restarts": "9", "--elastic": None, "--timeout": "9", "--no-check": None,
}  # fmt: skip
_KEPT = dict.fromkeys(("--every", "--keep", "--resume"), ("--checkpoint", "kept"))
_RUN_NEEDS = {**_KEPT, "--cost": ("--record", "trace.json")}


def _run(name: str, *words: str) -> CommandMode:
    return CommandMode(
        name=f"run-{name}", words=("run", *words), samples=_RUN, needs=_RUN_NEEDS, spied=trained
    )


RUNS = (
    _run("strategy", DENSE, "dp2"),
    _run("named-plan", DENSE, "co-shard", "tp=2", "chunks=2", "--processes", "2"),
    _run("plan-file", DENSE, str(FOLDER / "fp32.plan")),
    _run("own-module", "module.py:build", "dp2"),
    _run("algorithm", DENSE, "dp2", "--algorithm", "diloco"),
    _run("islands-file", DENSE, str(FOLDER / "single.plan")),
    CommandMode(
        name="run-torchrun", words=("run", DENSE, "dp2"), samples=_RUN, needs=_RUN_NEEDS, spied=launched
    ),
)
_SWEEP = {
    "--out": "there", "--workers": "2", "--ray": "local", "--json": None, "--csv": None, **_PAGES,
    "--x": "inner", "--y": "mfu", "--z": "mfu", "--color": "inner", "--best": "max",
    "--where": "compute > 1", "--log": None,
}  # fmt: skip


def _sweep(name: str, *words: str, **samples: str | None) -> CommandMode:
    return CommandMode(name=f"sweep-{name}", words=("sweep", *words), samples=_SWEEP | samples, spied=swept)


_DATASET = str(FOLDER / "dataset")
SWEEPS = (
    _sweep("run", str(FOLDER / "small.toml")),
    _sweep("query", "query", _DATASET, "select count(*) from points"),
    _sweep("lines", "plot", _DATASET, "--x", "capacity", "--y", "step_s"),
    _sweep("heat-map", "plot", _DATASET, "--x", "capacity", "--y", "compute", "--z", "step_s"),
    _sweep("check", "check", _DATASET),
    _sweep("example", "example"),
)
_WRITTEN = {"--out": "there", **_PAGES, "--json": "answer.json"}


def _study(name: str, words: tuple[str, ...], samples: Mapping[str, str | None]) -> CommandMode:
    spied = {"flexible-plans": told_cases, "subnetworks": told_runs}
    more = {"spied": spied[name]} if name in spied else {}
    mode = "-".join(("study", name, *(word.strip("-") for word in words if word in _SWITCHES)))
    return CommandMode(name=mode, words=("study", name, *words), samples=_WRITTEN | samples, **more)


_SWITCHES = ("--inference", "--sensitivity", "--fsdp", "--data")
_COMP_VS_COMM = {
    "--profile": str(FOLDER / "profile.toml"), "--cost": f"projected:{FOLDER / 'profile.toml'}",
    "--moe": "8:2", "--sequence-parallel": None, "--pipeline": "4", "--fsdp": None, "--inference": None,
    "--in-network-reduction": None, "--interference": "0.7", "--offload-communication": None,
    "--replicas": "64",
}  # fmt: skip
_SCALING = {
    "--model": "gpt2-xl", "--device": "a100", "--devices": "8", "--seq": "1024", "--local-batch": "4",
    "--batch": "64", "--stack": "megatron-core", "--cost": "roofline", "--models": "gpt2",
    "--contexts": "1024",
    "--generations": "a100", "--csv": "points.csv",
}  # fmt: skip
_FLEXIBLE_PLANS = {
    "--model": "mbart", "--device": "h100", "--devices": "16", "--sensitivity": None, "--cost": "roofline",
    "--csv": "cases.csv",
}  # fmt: skip
_SUBNETWORKS = {"--quick": None, "--data": str(FOLDER / "samples.npz"), "--risk": "risk.toml"}
STUDIES = (
    _study("comp-vs-comm", (), _COMP_VS_COMM),
    _study("comp-vs-comm", ("--inference",), _COMP_VS_COMM),
    _study("comp-vs-comm", ("--fsdp",), _COMP_VS_COMM),
    _study(
        "scaling",
        ("--devices", "8,16", "--models", "llama2-7b", "--generations", "h100", "--contexts", "2048"),
        _SCALING,
    ),
    _study("flexible-plans", ("--model", "swin", "--device", "v100", "--devices", "8"), _FLEXIBLE_PLANS),
    _study("flexible-plans", ("--sensitivity", "--model", "swin"), _FLEXIBLE_PLANS),
    _study("subnetworks", (), _SUBNETWORKS),
    _study("subnetworks", ("--data", str(FOLDER / "samples.npz")), _SUBNETWORKS),
)  # fmt: skip
OTHERS = (
    CommandMode(name="catalog", words=("catalog", "stacks"), samples={"--json": None}),
    CommandMode(
        name="validate", words=("validate", str(FOLDER / "runs.csv")),
        samples={"--cost": "roofline", "--out": "rows.csv", "--json": None},
    ),
    CommandMode(
        name="compare-own", words=("compare", str(FOLDER / "trace.json"), str(FOLDER / "trace.json")),
        samples={"--step": "1", "--json": "answer.json"},
    ),
    CommandMode(
        name="compare-profiler", words=("compare", str(FOLDER / "trace.json"), str(FOLDER / "kineto.json")),
        samples={"--step": "1", "--json": "answer.json"},
    ),
    CommandMode(
        name="calibrate", words=("calibrate", str(FOLDER / "cpu.toml"), "--from",
            str(FOLDER / "kineto.json")),
        samples={"--from": str(FOLDER / "longer.json"), "--out": "refined.toml", "--json": "answer.json"},
    ),
    CommandMode(
        name="profile", words=("profile",), spied=measured,
        samples={"--out": "other.toml", "--budget": "9s", "--processes": "3", "--threads": "3",
            "--name": "x"},
    ),
    CommandMode(
        name="serve", words=("serve", "--port", "0"), spied=listening,
        samples={
            "--host": "127.0.0.2", "--port": "65535", "--token": "x" * 20, "--workers": "3", "--jobs": "3",
        },
    ),
)  # fmt: skip
_LATER = ("export-torchtitan", "export-maxtext", "export-answer", "export-chakra")  # not yet seen to pass
MODES = (
    *PLANS[:2], PLANS[3], SIMULATIONS[1], *ADVICE, *RUNS, *SWEEPS, STUDIES[3], *OTHERS[:4], *OTHERS[5:],
    *(mode for mode in EXPORTS if not mode.name.startswith(_LATER)),
)  # fmt: skip
