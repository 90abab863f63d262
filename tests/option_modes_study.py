"""The modes of sweep, study and the commands with few options, with a sample value for each option."""

from collections.abc import Mapping

from tests.option_files import FOLDER
from tests.option_modes import PAGES
from tests.option_spies import compared, designed, learned, listening, measured, swept
from tests.options import CommandMode

_SWEEP = {
    "--out": "there", "--workers": "2", "--ray": "local", "--json": None, "--csv": None, **PAGES,
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
_WRITTEN = {"--out": "there", **PAGES, "--json": "answer.json"}


def _study(name: str, words: tuple[str, ...], samples: Mapping[str, str | None]) -> CommandMode:
    spied = {"flexible-plans": compared, "subnetworks": learned, "cluster-design": designed}
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
    "--model": "gpt2-xl", "--device": "a100", "--devices": "8,32", "--seq": "1024", "--local-batch": "4",
    "--batch": "64", "--stack": "megatron-core", "--cost": "roofline", "--models": "gpt2",
    "--contexts": "1024",
    "--generations": "a100", "--csv": "points.csv",
}  # fmt: skip
_FLEXIBLE_PLANS = {
    "--model": "mbart", "--device": "h100", "--devices": "16", "--sensitivity": None, "--cost": "roofline",
    "--csv": "cases.csv",
}  # fmt: skip
_SUBNETWORKS = {"--quick": None, "--data": str(FOLDER / "scaled.npz"), "--risk": "risk.toml"}
_CLUSTER_DESIGN = {
    "--model": "gpt2", "--recommender": "dlrm-mlperf", "--devices": "64", "--batch": "64",
    "--clusters": "h100,a100",
}  # fmt: skip
STUDIES = (
    _study("cluster-design", (), _CLUSTER_DESIGN),
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
    CommandMode(name="catalog", words=("catalog",), samples={"--json": None}),
    CommandMode(name="catalog-kind", words=("catalog", "stacks"), samples={"--json": None}),
    CommandMode(name="catalog-entry", words=("catalog", "devices", "h100"), samples={"--json": None}),
    CommandMode(
        name="validate", words=("validate", str(FOLDER / "runs.csv")),
        samples={
            "--cost": "roofline", "--runs": str(FOLDER / "runs.csv"), "--out": "rows.csv", "--json": None,
        },
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
        samples={
            "--from": str(FOLDER / "slower.json"), "--runs": str(FOLDER / "own_runs.csv"),
            "--out": "refined.toml", "--json": "answer.json",
        },
    ),
    CommandMode(
        name="calibrate-runs", words=("calibrate", "h100:8", "--runs", str(FOLDER / "own_runs.csv")),
        samples={
            "--from": str(FOLDER / "slower.json"), "--runs": str(FOLDER / "slower_runs.csv"),
            "--out": "anchor.toml", "--json": "answer.json",
        },
    ),
    CommandMode(
        name="profile", words=("profile",), spied=measured,
        samples={"--out": "other.toml", "--budget": "9s", "--processes": "3", "--threads": "3",
            "--name": "x"},
    ),
    CommandMode(
        name="serve", words=("serve", "--port", "0"), spied=listening,
        needs={"--host": ("--token", "y" * 20)},
        samples={
            "--host": "127.0.0.2", "--port": "65535", "--token": "x" * 20, "--workers": "3", "--jobs": "3",
        },
    ),
)  # fmt: skip
