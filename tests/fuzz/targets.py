"""Readers and the commands that reach them, each with its valid inputs."""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.fuzz import models, stacks, traces
from trainwright.cli.main import main
from trainwright.errors import TrainwrightError

EXPORTED = (
    "megatron", "torchtitan", "torchtitan-toml", "deepspeed", "nanotron", "maxtext", "accelerate",
    "megatron-bridge", "trainwright",
)  # fmt: skip
CLUSTER, SMALL = "h100:2", ("gpt2", "h100:2")
SITES = "h100:1x2@10Gbps"


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTarget:
    """A reader: how often it is chosen, what it reads as a file of which name, and what calls it.

    `call` gets the path of the input and the folder of valid files beside it; it returns an exit code.
    """

    name: str
    kind: str
    file: str
    seeds: tuple[bytes, ...]
    call: Callable[[Path, Path], int]
    weight: int = 1


def write_valid_files(folder: Path) -> None:
    """Make with the package's own commands what others of them read."""
    made = {name: str(folder / name) for name in ("trace.json", "plan.txt", "stages.txt", "plan.json")}
    _must(
        "simulate",
        *SMALL,
        "dp2 mb1",
        "--batch",
        "2",
        "--trace",
        made["trace.json"],
        "--save-plan",
        made["plan.txt"],
    )
    _must("simulate", *SMALL, "1f1b pp=2", "--batch", "4", "--save-plan", made["stages.txt"])
    _must("plan", *SMALL, "--batch", "4", "--top", "2", "--json", made["plan.json"])
    islands = str(folder / "islands.json")
    _must("plan", "gpt2", SITES, "--batch", "4", "--algorithm", "diloco", "--json", islands)
    for name in EXPORTED:
        knobs = "dp2 mb1 zero1" if name in ("megatron", "deepspeed", "nanotron") else "dp2 mb1 zero3"
        _must(
            "export",
            "--to",
            name,
            *knobs.split(),
            "--model",
            "llama3-8b",
            "--cluster",
            CLUSTER,
            "--batch",
            "4",
            "--lenient",
            "--out",
            str(folder / name),
        )
    measured = json.loads((folder / "trace.json").read_bytes())
    measured.pop("checksum", None)  # which would keep readers from every mutated value
    measured["otherData"]["kind"] = "measured"
    measured["traceEvents"] = _thinned(measured["traceEvents"])
    (folder / "measured.json").write_text(json.dumps(measured), encoding="utf-8")
    (folder / "profile.toml").write_bytes(
        files("trainwright").joinpath("catalog/profiles/mi210-node.toml").read_bytes()
    )


def _thinned(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events without most of the counters and arrows, of which one is as good as a thousand."""
    return [each for at, each in enumerate(events) if each["ph"] in "MX" or at % 50 == 0][:150]


def _must(*arguments: str) -> None:
    code = main(list(arguments))
    assert code == 0, f"{arguments}: exit code {code}"


def build_targets(folder: Path) -> tuple[FuzzTarget, ...]:
    """Every reader, with seeds from a folder of `write_valid_files`."""

    def made(name: str) -> bytes:
        return (folder / name).read_bytes()

    plans = (made("plan.txt"), made("stages.txt"))
    runs = files("trainwright").joinpath("catalog/published.csv").read_text(encoding="utf-8").splitlines()[:5]
    configs = tuple(text.encode() for text in models.CONFIGS.values())
    profile = made("profile.toml")
    kineto = (traces.gpu_trace().encode(), traces.host_trace().encode())
    megatron = tuple(text.encode() for text in (stacks.FLAGS, stacks.ARRAYS, stacks.QUOTED))
    return (
        FuzzTarget(name="config", kind="json", file="config.json", seeds=configs, call=_plan_model, weight=8),
        FuzzTarget(
            name="config-simulate",
            kind="json",
            file="config.json",
            seeds=configs,
            call=_simulate_model,
            weight=4,
        ),
        FuzzTarget(
            name="model-toml",
            kind="toml",
            file="m.toml",
            call=_plan_model,
            weight=4,
            seeds=(models.MODEL.encode(), models.EXPERTS.encode()),
        ),
        FuzzTarget(
            name="cluster-toml",
            kind="toml",
            file="c.toml",
            call=_plan_cluster,
            weight=6,
            seeds=(models.CLUSTER.encode(), models.OWN_CLUSTER.encode()),
        ),
        FuzzTarget(
            name="profile-toml", kind="toml", file="c.toml", seeds=(profile,), call=_profiled, weight=3
        ),
        FuzzTarget(
            name="sweep-toml",
            kind="toml",
            file="s.toml",
            seeds=(models.SWEEP.encode(),),
            call=_sweep,
            weight=5,
        ),
        FuzzTarget(name="plan-text", kind="text", file="p.plan", seeds=plans, call=_simulate_plan, weight=6),
        FuzzTarget(name="plan-export", kind="text", file="p.plan", seeds=plans, call=_export_plan, weight=2),
        FuzzTarget(
            name="answer-export",
            kind="json",
            file="a.json",
            seeds=(made("plan.json"),),
            call=_export_answer,
            weight=3,
        ),
        FuzzTarget(
            name="answer-simulate",
            kind="json",
            file="a.json",
            seeds=(made("islands.json"),),
            call=_simulate_islands,
            weight=2,
        ),
        FuzzTarget(
            name="answer-advise",
            kind="json",
            file="a.json",
            seeds=(made("plan.json"),),
            call=_advise,
            weight=1,
        ),
        FuzzTarget(
            name="runs-csv",
            kind="text",
            file="r.csv",
            seeds=("\n".join(runs).encode(),),
            call=_validate,
            weight=4,
        ),
        FuzzTarget(
            name="trace-predicted",
            kind="json",
            file="t.json",
            seeds=(made("measured.json"),),
            call=_compare_predicted,
            weight=6,
        ),
        FuzzTarget(
            name="trace-measured",
            kind="json",
            file="t.json",
            seeds=(made("measured.json"),),
            call=_compare_measured,
            weight=8,
        ),
        FuzzTarget(
            name="kineto-compare", kind="json", file="k.json", seeds=kineto, call=_compare_measured, weight=8
        ),
        FuzzTarget(
            name="kineto-calibrate", kind="json", file="k.json", seeds=kineto, call=_calibrate, weight=8
        ),
        FuzzTarget(
            name="kineto-gzip",
            kind="binary",
            file="k.json.gz",
            call=_compare_measured,
            seeds=tuple(gzip.compress(each, mtime=0) for each in kineto),
        ),
        FuzzTarget(
            name="megatron",
            kind="text",
            file="train.sh",
            seeds=(*megatron, stacks.LAYOUT.encode(), made("megatron")),
            call=_advise,
            weight=8,
        ),
        FuzzTarget(
            name="deepspeed",
            kind="json",
            file="ds.json",
            call=_advise_with_model,
            weight=6,
            seeds=(stacks.DEEPSPEED.encode(), made("deepspeed")),
        ),
        FuzzTarget(
            name="torchtitan-toml",
            kind="toml",
            file="t.toml",
            call=_advise_with_model,
            weight=5,
            seeds=(stacks.TITAN.encode(), made("torchtitan-toml")),
        ),
        FuzzTarget(
            name="torchtitan-python",
            kind="text",
            file="t.py",
            call=_advise_with_model,
            weight=4,
            seeds=(stacks.REGISTRY.encode(), made("torchtitan")),
        ),
        *_read_back_targets(made),
        FuzzTarget(name="library", kind="json", file="l.json", seeds=LIBRARY, call=_library, weight=5),
        FuzzTarget(name="http", kind="json", file="h.json", seeds=HTTP, call=_http, weight=5),
        FuzzTarget(
            name="http-compare",
            kind="json",
            file="h.json",
            seeds=(_compare_body(folder),),
            call=_http,
            weight=2,
        ),
        *_stored_targets(folder),
    )


def _read_back_targets(made: Callable[[str], bytes]) -> tuple[FuzzTarget, ...]:
    """Readers of YAML, of Megatron-Bridge's Python and of plans as text."""
    listed = (
        ("nanotron", "n.yaml", stacks.NANOTRON, _advise, 4),
        ("maxtext", "m.yml", stacks.MAXTEXT, _advise, 4),
        ("accelerate", "a.yaml", stacks.ACCELERATE, _advise_with_model, 4),
        ("megatron-bridge", "b.py", stacks.BRIDGE, _advise_with_model, 4),
        ("trainwright", "p.plan", "", _advise, 2),
    )
    return tuple(
        FuzzTarget(
            name=f"{name}-advise",
            kind="text",
            file=file,
            call=call,
            weight=weight,
            seeds=(*((own.encode(),) if own else ()), made(name)),
        )
        for name, file, own, call, weight in listed
    )


LIBRARY = tuple(
    json.dumps(tree).encode()
    for tree in (
        ["plan", "gpt2", "h100:2", {"batch": 4, "top": 2, "fix": {"tp": 1}}],
        ["simulate", "gpt2", "h100:2", {"plan": "dp2 mb1", "batch": 2}],
        ["export", "dp2 mb1", {"to": "megatron", "model": "gpt2", "cluster": "h100:2", "batch": 4}],
        ["advise", "dp2 mb1", "h100:2", {"model": "gpt2", "batch": 4}],
    )
)
HTTP = tuple(
    json.dumps(tree).encode()
    for tree in (
        [
            "plan",
            {"model": "gpt2", "device": "h100", "count": 2, "batch": 4, "top": 2, "change": {"compute": 1.5}},
        ],
        ["plan", {"config": json.loads(models.CONFIGS["dense"]), "device": "h100", "count": 2, "batch": 4}],
        [
            "simulate",
            {"model": "gpt2", "device": "h100", "count": 2, "batch": 2, "plan": "dp2 mb1", "tokens": "1B"},
        ],
    )
)


def _compare_body(folder: Path) -> bytes:
    measured = json.loads((folder / "measured.json").read_bytes())
    return json.dumps(["compare", {"predicted": measured, "measured": measured}]).encode()


def _plan_model(path: Path, _: Path) -> int:
    return main(["plan", str(path), CLUSTER, "--batch", "4", "--top", "2"])


def _simulate_model(path: Path, _: Path) -> int:
    return main(["simulate", str(path), CLUSTER, "dp2 mb1", "--batch", "2"])


def _plan_cluster(path: Path, _: Path) -> int:
    return main(["plan", "gpt2", str(path), "--batch", "32", "--top", "2"])


def _profiled(path: Path, _: Path) -> int:
    return main(["simulate", "gpt2", str(path), "dp2 mb1", "--batch", "4"])


def _sweep(path: Path, _: Path) -> int:
    """A sweep as the command reads it; a small one is run, here and in no other process."""
    from trainwright.sweep.load import load_sweep
    from trainwright.sweep.run import run_sweep

    try:
        sweep = load_sweep(path)
        if len(sweep) <= 8:
            run_sweep(sweep, path.parent / "out", workers=1)
    except TrainwrightError:
        return 1
    return 0


def _simulate_plan(path: Path, _: Path) -> int:
    return main(["simulate", *SMALL, str(path)])


def _simulate_islands(path: Path, _: Path) -> int:
    return main(["simulate", "gpt2", SITES, str(path), "--batch", "4"])


def _export_plan(path: Path, _: Path) -> int:
    return main(["export", "--to", "trainwright", str(path), "--model", "gpt2", "--cluster", CLUSTER])


def _export_answer(path: Path, _: Path) -> int:
    return main(["export", "--to", "megatron", str(path), "--lenient"])


def _validate(path: Path, _: Path) -> int:
    return main(["validate", str(path)])


def _compare_predicted(path: Path, folder: Path) -> int:
    return main(["compare", str(path), str(folder / "measured.json")])


def _compare_measured(path: Path, folder: Path) -> int:
    return main(["compare", str(folder / "measured.json"), str(path)])


def _calibrate(path: Path, _: Path) -> int:
    return main(["calibrate", CLUSTER, "--from", str(path)])


def _advise(path: Path, _: Path) -> int:
    return main(["advise", str(path), CLUSTER])


def _advise_with_model(path: Path, _: Path) -> int:
    return main(["advise", str(path), CLUSTER, "--model", "gpt2"])


def _library(path: Path, _: Path) -> int:
    """A call of the library, whose words and options are those of a list in the file."""
    import trainwright

    tree = json.loads(_valid_json(path, list, LIBRARY[0]))
    name, *words = tree if tree else [""]
    options = words.pop() if words and isinstance(words[-1], dict) else {}
    if name not in ("plan", "simulate", "export", "advise") or not {
        "out",
        "report",
        "json",
        "csv",
    }.isdisjoint(options):
        return 1
    if name == "simulate" and isinstance(options.get("plan"), str):
        words.append(options.pop("plan"))
    words = [str(each) for each in words]  # as their types say
    function: Callable[..., Any] = getattr(trainwright, name)
    try:
        function(*words, **options)
    except TrainwrightError:
        return 1
    except TypeError as error:  # as of every function: arguments that it does not have
        if "argument" in str(error):
            return 1
        raise
    return 0


def _http(path: Path, _: Path) -> int:
    """A body as the server reads it and as its workers answer it."""
    from pydantic import ValidationError

    from trainwright.api.fields import Request
    from trainwright.api.plan_request import PlanRequest
    from trainwright.api.requests import CompareRequest, SimulateRequest
    from trainwright.web import questions
    from trainwright.web.answering import answer

    tree = json.loads(_valid_json(path, list, HTTP[0]))
    kinds: Mapping[str, Any] = {
        "plan": questions.Plan,
        "simulate": questions.Simulate,
        "compare": questions.Compare,
    }
    if len(tree) != 2 or not isinstance(tree[0], str) or tree[0] not in kinds:
        return 1
    try:
        question = kinds[tree[0]].model_validate(tree[1])
    except (ValidationError, RecursionError):
        return 1
    try:
        if tree[0] == "compare":
            request: Request = CompareRequest(question.predicted, question.measured)
        else:
            request = question.build(PlanRequest if tree[0] == "plan" else SimulateRequest)
    except TrainwrightError:
        return 1
    status, body = answer(tree[0], request)
    json.loads(body)
    return 0 if status == 200 else 1


def _valid_json(path: Path, kind: type, otherwise: bytes) -> bytes:
    """What is sent if it is JSON of a kind, which the server sees to itself."""
    content = path.read_bytes()
    try:
        return content if isinstance(json.loads(content), kind) else otherwise
    except (ValueError, RecursionError):
        return otherwise


def _stored_targets(folder: Path) -> tuple[FuzzTarget, ...]:
    """Readers of weights and checkpoints, where torch is installed."""
    try:
        import torch
    except ImportError:
        return ()
    from trainwright.runtime.state_file import save_values

    weights = {"embed": torch.ones(4, 3), "bias": torch.zeros(5, dtype=torch.bfloat16)}
    for suffix in ("pt", "safetensors"):
        save_values(folder / f"weights.{suffix}", weights)
    marker = {"step": 3, "plan": "dp2", "files": {"trainwright.json": 10}}
    found = [
        FuzzTarget(
            name=f"weights-{each}", kind="binary", file=f"w.{each}", call=_weights,
            seeds=((folder / f"weights.{each}").read_bytes(),),
        )
        for each in ("pt", "safetensors")
    ]  # fmt: skip
    seeds = (json.dumps(marker).encode(),)
    own = FuzzTarget(name="checkpoint", kind="json", file="trainwright.json", seeds=seeds, call=_checkpoint)
    return (*found, own)


def _weights(path: Path, _: Path) -> int:
    from trainwright.runtime.state_file import read_state

    try:
        read_state(path)
    except TrainwrightError:
        return 1
    return 0


def _checkpoint(path: Path, _: Path) -> int:
    from trainwright.runtime.shelf import kept_checkpoints

    place = path.parent / "shelf" / "step-00000003"
    place.mkdir(parents=True)
    (place / "trainwright.json").write_bytes(path.read_bytes())
    kept_checkpoints(path.parent / "shelf")
    return 0
