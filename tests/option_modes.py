"""The modes of plan, simulate and run, with a sample value for each of their options."""

from dataclasses import replace

from tests.option_files import DENSE, FOLDER, MIXTURE, RECOMMENDER, SITES
from tests.option_spies import drafted, launched, trained
from tests.options import CommandMode

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
PAGES = {"--report": "page.html", "--figures": "drawn"}
_SUBJECT = {
    "--batch": "256", "--batch-tokens": "32768", "--batch-tolerance": "20%", "--seq": "64",
    "--change": "compute=0.5", "--stack": "generic", "--cost": "roofline",
    "--runs": str(FOLDER / "own_runs.csv"), "--optimizer": "precision-aware-bf16", "--grad-dtype": "bf16",
    "--expert-imbalance": "1.5",
}  # fmt: skip
_PLAN = {
    **_SUBJECT, "--batch-range": "8:16", "--precision": "fp16", "--objective": "energy", "--fix": "pp=1",
    **{f"--max-{knob}": "1" for knob in ("tp", "pp", "vpp", "cp", "ep", "dp", "mb")}, "--top": "1",
    "--all-variants": None, "--oom-risk": "20%", "--headroom": "30%", "--pareto": None,
    "--flexible": None, "--algorithm": "local-sgd", "--islands": "4", "--save-plans": "plans",
    "--json": "answer.json", "--csv": "rows.csv", "--quiet": None,
    **_TARGET,
    "--max-days": "9000", "--max-dollars": "9e9", "--devices-range": "2..2", **_INTERRUPTIONS, **_MONEY,
    **PAGES,
}  # fmt: skip
_SIMULATE = {
    **_SUBJECT, "--algorithm": "local-sgd", "--islands": "4", "--free": None, "--width": "40",
    "--trace": "trace.json", "--save-plan": "saved.plan", "--json": "answer.json", **_TARGET,
    **_INTERRUPTIONS, **_MONEY, **PAGES,
}  # fmt: skip
_OWNED = dict.fromkeys(("--capital", "--network-share", "--amortize", "--electricity"), ("--own",))
_NEEDS = {
    **_OWNED, "--scaling-law": ("--target-loss", "9"), "--devices-range": ("--max-days", "9000"),
    "--batch-tolerance": ("--batch-tokens", "32k"), "--critical-batch": ("--tokens", "1T"),
    "--checkpoint-size": ("--checkpoint-bandwidth", "1 MB/s"),
}  # fmt: skip


def _plan(name: str, *words: str, **samples: str) -> CommandMode:
    stated = {f"--{key.replace('_', '-')}": value for key, value in samples.items()}
    words = ("plan", *words, "--top", "2")
    return CommandMode(name=f"plan-{name}", words=words, samples=_PLAN | stated, needs=_NEEDS)


def _simulate(name: str, *words: str, **samples: str) -> CommandMode:
    stated = {f"--{key.replace('_', '-')}": value for key, value in samples.items()}
    return CommandMode(
        name=f"simulate-{name}", words=("simulate", *words), samples=_SIMULATE | stated, needs=_NEEDS
    )


PLANS = (
    _plan("strategies", MIXTURE, SITES),
    _plan("smallest", MIXTURE, SITES, "--max-dollars", "8e9"),
    _plan("algorithms", MIXTURE, SITES, "--algorithm", "diloco"),
    _plan("batches", MIXTURE, SITES, "--batch-range", "64:128"),
    _plan("recommender", RECOMMENDER, "a100:8", batch="8192"),
    replace(_plan("flexible", MIXTURE, SITES, "--flexible"), spied=drafted),
)
SIMULATIONS = (
    _simulate("strategy", DENSE, SITES, "dp4", "mb64"),
    _simulate("experts", MIXTURE, SITES, "dp4", "ep2", "mb16"),
    _simulate("named-plan", DENSE, SITES, "co-shard", "tp=2", "chunks=2", "micro_batch=64"),
    _simulate("plan-file", DENSE, SITES, str(FOLDER / "dense.plan")),
    _simulate(
        "islands", DENSE, SITES, "co-shard", "tp=1", "chunks=2", "micro_batch=64", "--algorithm", "diloco"
    ),
    _simulate("islands-file", DENSE, SITES, str(FOLDER / "islands.plan")),
    _simulate("islands-answer", DENSE, SITES, str(FOLDER / "islands.json"), "--algorithm", "diloco"),
    _simulate("recommender", RECOMMENDER, "a100:16", "table-parallel", "tables=16", batch="16384"),
)
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
    replace(_run("torchrun", DENSE, "dp2"), spied=launched),
)
