"""What more devices give: throughput, power, money and communication of a model as its cluster grows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainwright.cost.load import load_constants
from trainwright.cost.source import MEASURED, Source, build_source
from trainwright.errors import BadInput
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.model.load import load_model
from trainwright.stack.load import stack_name
from trainwright.study.scaling_points import (
    ANY,
    FSDP,
    HSDP,
    INTERLEAVED,
    PIPELINE,
    TENSOR,
    Batch,
    Point,
    Setting,
    best_points,
    load_some,
)
from trainwright.study.scaling_returns import Crossing, Curve, crossing, knee

BEST = "best"  # of FSDP, tensor and pipeline parallelism, each alone
ALL = "best of all"  # with sharding in groups and interleaved pipelines, too
PUBLISHED = (128, 2048)  # scales that publications compare
_ALONE = (FSDP, *TENSOR, *PIPELINE)
_FARTHER = 4  # doublings beyond the last scale, in which a knee is looked for
_MOST_DEVICES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The subject of a study, and what is varied around it."""

    model: str = "llama2-7b"
    device: str = "h100"
    devices: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    seq: int = 4096
    local_batch: int = 2  # sequences for each device, where the batch grows with them
    batches: tuple[int, ...] = (32, 1024)  # sequences, where it does not
    stack: str | None = None  # unless stated generic, or on a profiled machine our own runtime
    cost: str | None = None  # where operator times come from, as `--cost` says it
    models: tuple[str, ...] = ("tinyllama-1.1b", "llama2-7b", "llama2-13b", "llama2-70b")
    contexts: tuple[int, ...] = (2048, 4096, 8192, 16384, 32768)
    generations: tuple[str, ...] = ("v100", "a100", "h100", "b200")

    def __post_init__(self) -> None:
        if len(self.devices) < 2 or list(self.devices) != sorted(set(self.devices)):
            raise BadInput(
                "--devices", ",".join(map(str, self.devices)), "are not two or more growing numbers",
                "write them like 8:2048 or 8,64,512",
            )  # fmt: skip

    @property
    def compared(self) -> tuple[int, int]:
        """The two scales between which losses are told: the published ones, or the first and the last."""
        return PUBLISHED if set(PUBLISHED) <= set(self.devices) else (self.devices[0], self.devices[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Every curve, and where they bend and cross."""

    asked: Asked
    curves: tuple[Curve, ...]
    knees: Mapping[str, int | None]  # by plan of weak scaling, looked for beyond the last scale, too
    searched: int  # devices up to which a knee was looked for
    crossings: tuple[Crossing, ...]
    stack: str
    notes: tuple[str, ...]  # on where operator times come from, if that was asked for

    def curve(self, study: str, case: str, plan: str) -> Curve | None:
        """The curve of these names, if any of its plans fit."""
        wanted = (study, case, plan)
        return next((each for each in self.curves if (each.study, each.case, each.plan) == wanted), None)

    def cases(self, study: str, plan: str) -> list[Curve]:
        """The curves of one plan in every case of a study."""
        return [each for each in self.curves if (each.study, each.plan) == (study, plan)]

    def best_degree(self, devices: int) -> int:
        """The degree of model parallelism of the fastest plan in weak scaling; 0 if none fits."""
        best = self.curve("weak", self.asked.model, BEST)
        point = best.at(devices) if best else None
        return point.degree if point else 0


def run_study(asked: Asked) -> Study:
    """All curves that were asked for."""
    setting = build_setting(asked)
    main, knees, searched = _main(asked, setting)
    if not main:
        raise BadInput(
            "study", f"{asked.model} on {asked.device}", "nothing fits at any scale", "ask for more devices"
        )
    curves = [*main, *_varied(asked, setting)]
    fsdp = next((each for each in main if (each.study, each.plan) == ("weak", FSDP.name)), None)
    rivals = [each for each in main if each.study == "degree" or each.plan == HSDP.name]
    crossings = tuple(crossing(each, fsdp) for each in rivals) if fsdp else ()
    return Study(
        asked=asked, curves=tuple(curves), knees=knees, searched=searched, crossings=crossings,
        stack=setting.source.stack.name, notes=_notes(asked),
    )  # fmt: skip


def build_setting(asked: Asked) -> Setting:
    """The subject, loaded."""
    return Setting(
        graph=_graph(asked.model), device=asked.device, seq=asked.seq, source=_source(asked, asked.device)
    )


def _source(asked: Asked, device: str) -> Source:
    """What predictions for a device rest on."""
    constants = load_constants()
    profiled = device.endswith(".toml") or (asked.cost or "").startswith(MEASURED)
    usual = None if profiled else "generic"
    name = asked.stack or usual
    stack = constants.stack(stack_name(name)) if name else None
    return build_source(asked.cost, device, load_some(device, asked.devices[0]), constants, stack)


def _notes(asked: Asked) -> tuple[str, ...]:
    """On the sources of all devices, each once; none of constants that are fitted anyway."""
    if asked.cost is None and not asked.device.endswith(".toml"):
        return ()
    devices = dict.fromkeys((asked.device, *asked.generations))
    return tuple(dict.fromkeys(note for each in devices for note in _source(asked, each).notes))


def _graph(model: str) -> Graph:
    return build_graph(load_model(model))


def _main(asked: Asked, setting: Setting) -> tuple[list[Curve], dict[str, int | None], int]:
    """Weak and strong scaling and all degrees of the subject: at each scale everything at once."""
    kinds = (*_ALONE, HSDP, INTERLEAVED)
    found: dict[tuple[str, str, str], list[Point | None]] = {}
    farther = [asked.devices[-1] << power for power in range(1, _FARTHER + 1)]
    scales = [*asked.devices, *(each for each in farther if each <= _MOST_DEVICES)]
    for count in scales:
        within = count <= asked.devices[-1]
        batches = [Batch(size=asked.local_batch * count, kinds=kinds)]
        strong = [Batch(size=each, kinds=(ANY,)) for each in asked.batches if within]
        weak, *fixed = best_points(setting, count, [*batches, *strong])
        for kind, point in zip(batches[0].kinds, weak, strict=True):
            study = "weak" if kind in (FSDP, HSDP) else "degree"
            found.setdefault((study, asked.model, kind.name), []).append(point)
        found.setdefault(("weak", asked.model, BEST), []).append(_fastest(weak[: len(_ALONE)]))
        found.setdefault(("weak", asked.model, ALL), []).append(_fastest(weak))
        for batch, (point,) in zip(asked.batches, fixed, strict=False):
            found.setdefault(("strong", f"batch {batch}", ANY.name), []).append(point)
    whole = _curves(found)
    knees = {
        each.plan: knee(each)
        for each in whole
        if each.study == "weak" and each.plan in (FSDP.name, BEST, ALL)
    }
    kept = [_until(each, asked.devices[-1]) for each in whole]
    return [each for each in kept if each.points], knees, scales[-1]


def _varied(asked: Asked, setting: Setting) -> list[Curve]:
    """Weak scaling of other models, lengths and devices; the subject itself is among each of them."""
    own = (asked.model, asked.seq, asked.device)
    cases = [
        *(("size", each, (each, *own[1:])) for each in asked.models),
        *(("context", f"{each} tokens", (own[0], each, own[2])) for each in asked.contexts),
        *(("generation", each, (*own[:2], each)) for each in asked.generations),
    ]
    graphs = {each: _graph(each) for each in {own[0], *asked.models}}
    sources = {each: _source(asked, each) for each in {own[2], *asked.generations}}
    known: dict[tuple[str, int, str], list[list[Point | None]]] = {}
    found: dict[tuple[str, str, str], list[Point | None]] = {}
    for study, case, key in cases:
        if key not in known:
            changed = replace(
                setting, graph=graphs[key[0]], seq=key[1], device=key[2], source=sources[key[2]]
            )
            known[key] = [_weak(changed, count, asked.local_batch) for count in asked.devices]
        found[study, case, FSDP.name] = [points[0] for points in known[key]]
        found[study, case, BEST] = [_fastest(points) for points in known[key]]
    return _curves(found)


def _weak(setting: Setting, count: int, local_batch: int) -> list[Point | None]:
    """The fastest of FSDP and of each degree at one scale."""
    (points,) = best_points(setting, count, [Batch(size=local_batch * count, kinds=_ALONE)])
    return points


def _curves(found: Mapping[tuple[str, str, str], list[Point | None]]) -> list[Curve]:
    return [
        Curve(study=study, case=case, plan=plan, points=tuple(each for each in points if each is not None))
        for (study, case, plan), points in found.items()
        if any(points)
    ]


def _until(curve: Curve, most: int) -> Curve:
    return replace(curve, points=tuple(each for each in curve.points if each.devices <= most))


def _fastest(points: Sequence[Point | None]) -> Point | None:
    there = [each for each in points if each is not None]
    return max(there, key=lambda each: each.tokens_per_s, default=None)


__all__ = ["ALL", "BEST", "Asked", "Study", "build_setting", "run_study"]
