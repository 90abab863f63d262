"""Flexible plans against the best of what known systems search: SuperScaler's comparison, simulated."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import Cluster
from trainwright.cost.load import load_constants
from trainwright.cost.source import Source, build_source, parse_cost
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.output_file import save_text
from trainwright.program.setting import Setting
from trainwright.report.files import render_json
from trainwright.search.findings import Findings
from trainwright.search.flexible import tried_recipes
from trainwright.search.reasons import explain
from trainwright.search.recipes import Drafts
from trainwright.search.skeletons import Freedoms
from trainwright.search.trial import Trial
from trainwright.study.systems import SYSTEMS, best_of

# Sizes as published, by devices.
FAMILIES: Mapping[str, Mapping[int, str]] = {
    "swin": {4: "swin-1.8b", 8: "swin-5b", 16: "swin-10b", 32: "swin-27b"},
    "alphafold2": {4: "alphafold2-87m", 8: "alphafold2-930m", 16: "alphafold2-2.4b", 32: "alphafold2-3.2b"},
    "mbart": {4: "mbart-4.7b", 8: "mbart-9.6b", 16: "mbart-20b", 32: "mbart-43b"},
    "gpt3": {4: "gpt3-1.3b-16k", 8: "gpt3-2.6b-16k", 16: "gpt3-6.7b-16k", 32: "gpt3-15b-16k"},
}
_BATCHES = {"alphafold2": 128}  # samples a step; 256 otherwise
_SOFTWARE = {"v100": ("megatron-lm", "fp16", "unfused"), "h100": ("megatron-core", "bf16", "flash")}
_MOST_TRIALS = 4  # flexible plans that are simulated
DEVICES = tuple(_SOFTWARE)
RIVALS = ("megatron-2022", "deepspeed-2022", "alpa-2022", "dap-2022")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A family of models on so many devices; with other memory or links than theirs, if stated."""

    family: str
    device: str
    count: int
    memory_gib: int = 0  # 0: the device's own
    links: float = 1.0  # times the bandwidth of all levels
    cost: str = ""  # where operator times come from, as `--cost` says it; by nothing, fitted constants

    @property
    def model(self) -> str:
        """The model of the published size."""
        return FAMILIES[self.family][self.count]

    @property
    def name(self) -> str:
        """A name that a file can have."""
        memory = f"-{self.memory_gib}gib" if self.memory_gib else ""
        links = f"-links{self.links:g}" if self.links != 1.0 else ""
        return f"{self.model}-{self.device}-{self.count}{memory}{links}{self._cost_name}"

    @property
    def _cost_name(self) -> str:
        """The source's name, and a digest of its file: outcomes of another one are not to be mistaken."""
        if not self.cost:
            return ""
        name, file = parse_cost(self.cost)
        return f"-{name}" + (f"-{sha256(Path(file).read_bytes()).hexdigest()[:8]}" if file else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The best plan of each system's space, of all knobs, and of all plans; None where nothing fits."""

    case: Case
    best: Mapping[str, Trial | None]
    flexible: Trial | None
    reason: str

    @property
    def rival(self) -> tuple[str, Trial] | None:
        """The fastest of the systems' plans."""
        fitting = [(name, each) for name in RIVALS if (each := self.best.get(name)) is not None]
        return min(fitting, key=lambda each: each[1].step_s, default=None)

    @property
    def speedup(self) -> float | None:
        """Of the flexible plan over the best of the systems'."""
        if self.rival is None or self.flexible is None:
            return None
        return self.rival[1].step_s / self.flexible.step_s


def published_cases(
    devices: Sequence[str] = ("v100", "h100"), counts: Sequence[int] = (8, 16, 32)
) -> list[Case]:
    """Every family on every cluster at its published size."""
    return [
        Case(family=family, device=device, count=count)
        for device in devices
        for count in counts
        for family in FAMILIES
    ]


def sensitivity_cases(count: int = 16) -> list[Case]:
    """Every family on V100s with slower links, and with less memory."""
    changes: tuple[tuple[int, float], ...] = ((0, 0.1), (0, 0.3), (16, 1.0))
    return [
        Case(family=family, device="v100", count=count, memory_gib=memory, links=links)
        for memory, links in changes
        for family in FAMILIES
    ]


def run_cases(
    cases: Sequence[Case], folder: Path | None, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Outcome]:
    """The outcome of each case as it is found; those that a folder has are read, new ones are kept there."""
    for number, case in enumerate(cases, start=1):
        path = folder / f"{case.name}.json" if folder else None
        if path and (kept := _read(path)):
            yield kept
            continue
        tell(f"{number}/{len(cases)} {case.model} on {case.count} {case.device}")
        outcome = compare(case)
        if path:
            save_text(path, render_json(asdict(outcome)))
        yield outcome


def compare(case: Case) -> Outcome:
    """Search each system's space and beyond, everything simulated alike."""
    findings = Findings(setting=setting_of(case))
    batch = _BATCHES.get(case.family, 256)
    best = {name: best_of(system, findings, batch) for name, system in SYSTEMS.items()}
    best["knobs"] = _fastest(each for each in best.values() if each and not each.plan.startswith("mixed"))
    outcome = Outcome(case=case, best=best, flexible=None, reason="")
    drafts = Drafts(batch=batch, freedoms=Freedoms(), findings=findings)
    rival = outcome.rival[1] if outcome.rival else None
    tried = tried_recipes(drafts, drafts.best(), _MOST_TRIALS, _fastest(best.values()))
    flexible = _fastest([*tried, *best.values()])
    reason = explain(flexible, rival) if flexible else "Nothing fits."
    return replace(outcome, flexible=flexible, reason=reason)


def _fastest(trials: Iterable[Trial | None]) -> Trial | None:
    return min((each for each in trials if each), key=lambda each: each.step_s, default=None)


def setting_of(case: Case) -> Setting:
    """The model on the cluster: V100s in fp16 without fused attention, H100s in bf16 with it."""
    _, precision, attention = _SOFTWARE[case.device]
    architecture = load_model(case.model)
    cluster = _changed(load_cluster(f"{case.device}:{case.count}"), case)
    source = source_of(case, cluster)
    stack = replace(source.stack, attention=attention)  # type: ignore[arg-type]
    return Setting(
        graph=build_graph(architecture), cluster=cluster, stack=stack, efficiency=source.efficiency,
        seq=architecture.max_seq, precision=precision,
    )  # fmt: skip


def source_of(case: Case, cluster: Cluster | None = None) -> Source:
    """What predictions of a case rest on."""
    constants = load_constants()
    cluster = cluster or _changed(load_cluster(f"{case.device}:{case.count}"), case)
    stack = constants.stack(_SOFTWARE[case.device][0])
    return build_source(case.cost or None, case.device, cluster, constants, stack)


def _changed(cluster: Cluster, case: Case) -> Cluster:
    own, *others = cluster.device.memory
    if case.memory_gib:
        own = replace(own, capacity_bytes=case.memory_gib * 2.0**30, usable_fraction=None)
    network = cluster.network
    levels = tuple(replace(each, bytes_per_s=case.links * each.bytes_per_s) for each in network.levels)
    return replace(
        cluster,
        device=replace(cluster.device, memory=(own, *others)),
        network=replace(network, levels=levels),
    )


def _read(path: Path) -> Outcome | None:
    """What a file has; nothing if there is none, it is damaged, or a release that kept less wrote it."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return Outcome(
            case=Case(**tree["case"]), best={name: _trial(each) for name, each in tree["best"].items()},
            flexible=_trial(tree["flexible"]), reason=tree["reason"],
        )  # fmt: skip
    except (FileNotFoundError, TypeError, KeyError, ValueError):
        return None


def _trial(tree: dict[str, Any] | None) -> Trial | None:
    return Trial(**(tree | {"row_bytes": tuple(tree["row_bytes"])})) if tree else None
