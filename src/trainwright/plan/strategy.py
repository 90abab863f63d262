"""A strategy: the structured knobs of a training plan, as one line of text or as arrays of many."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput, UnknownName
from trainwright.plan.mapping import AXES, ORDERS, canonical_order
from trainwright.plan.recompute_modules import RECOMPUTES, SELECTIVE_UNFUSED, canonical_recompute

Ints = NDArray[np.int64]

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb")
OFFLOADS = ("none", "optimizer", "activations", "both")
CP_KINDS = ("ring", "allgather", "ulysses")
PRECISIONS = ("fp32", "bf16", "fp16", "fp8", "fp4")
ACTIVATION_OFFLOADS = ("activations", "both")  # the choices of `offload` that take a number of layers
EVERY_LAYER = 0  # of recompute_layers and offload_layers: all the layers of a stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One structured way to train: degrees, batch split, schedule, and what is traded for memory.

    `dp` counts data-parallel replicas of a tensor-, context- and pipeline-parallel group, so that
    dp·tp·cp·pp devices take part; `ep` and `etp` re-use the dp, cp and tp axes inside a stage.
    `shard` is the number of dp·cp ranks that share ZeRO shards (0: all of them; less is HSDP).
    `order` says which axis is innermost on the network, which next: tp, cp, dp, pp unless stated.
    `recompute` is "none", "full", or names of modules joined by "+" (`recompute_modules.py` lists them).
    `offload_layers` is the number of layers of a stage, the first ones, whose activations go to the host.
    """

    dp: int = 1
    tp: int = 1
    sp: bool = False
    cp: int = 1
    cp_kind: str = "ring"
    pp: int = 1
    vpp: int = 1
    ep: int = 1
    etp: int = 1
    zero: int = 0
    shard: int = 0
    micro_batch: int = 1
    schedule: str = "1f1b"
    recompute: str = "none"
    recompute_layers: int = EVERY_LAYER
    offload: str = "none"
    offload_layers: int = EVERY_LAYER
    precision: str = "bf16"
    overlap: bool = True
    order: str = ORDERS[0]

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch"):
            if getattr(self, name) < 1:
                raise BadInput(f"strategy {name}", getattr(self, name), "degrees start at 1", "use 1 or more")
        if self.order != ORDERS[0]:
            sizes = {axis: getattr(self, axis) for axis in AXES}
            object.__setattr__(self, "order", canonical_order(self.order, sizes))
        object.__setattr__(self, "recompute", canonical_recompute(self.recompute))
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise UnknownName(f"strategy {name}", str(getattr(self, name)), known)
        if self.zero not in (0, 1, 2, 3):
            raise BadInput("strategy zero", self.zero, "stages are 0, 1, 2 and 3", "use one of them")
        least = min(self.shard, self.recompute_layers, self.offload_layers)
        if least < 0:
            raise BadInput("strategy shard or layers", least, "is negative", "use 0 or more")
        self._check_sense()

    def _check_sense(self) -> None:
        """Raise if a knob is set that the others leave without a meaning."""
        if self.pp == 1 and (self.vpp > 1 or self.schedule != "1f1b"):
            raise BadInput(
                "strategy", f"vpp{self.vpp} {self.schedule}", "schedules need pp > 1", "raise pp or drop them"
            )
        if self.cp == 1 and self.cp_kind != "ring":
            raise BadInput("strategy cp_kind", self.cp_kind, "needs cp > 1", "raise cp or drop it")
        if self.recompute_layers and self.recompute != "full":
            raise BadInput(
                "strategy recompute_layers", self.recompute_layers, "needs full recomputation", "write full4"
            )
        if self.offload_layers and self.offload not in ACTIVATION_OFFLOADS:
            raise BadInput(
                "strategy offload_layers", self.offload_layers, "needs activations on the host",
                "write offload-activations4",
            )  # fmt: skip

    @property
    def devices(self) -> int:
        """Devices that take part."""
        return self.dp * self.tp * self.cp * self.pp

    def __str__(self) -> str:
        return " ".join(_words(self))


CHOICES: Mapping[str, Sequence[str]] = {
    "schedule": SCHEDULES,
    "recompute": RECOMPUTES,
    "offload": OFFLOADS,
    "cp_kind": CP_KINDS,
    "precision": PRECISIONS,
    "order": ORDERS,
}
ALIASES = {"mb": "micro_batch", "hsdp": "shard"}  # knobs as they are said in text
_NUMBERED = {
    "dp": "dp", "tp": "tp", "cp": "cp", "pp": "pp", "vpp": "vpp", "ep": "ep", "etp": "etp",
    "zero": "zero", "full": "recompute_layers", **ALIASES,
}  # fmt: skip
_WORD = re.compile(r"([a-z-]+)(\d*)$")


def _words(strategy: Strategy) -> Iterable[str]:
    yield f"dp{strategy.dp}"
    for name in ("tp", "cp", "pp", "vpp", "ep", "etp"):
        if getattr(strategy, name) > 1:
            yield f"{name}{getattr(strategy, name)}"
        if name == "tp" and strategy.sp:
            yield "sp"
        if name == "cp" and strategy.cp > 1 and strategy.cp_kind != "ring":
            yield strategy.cp_kind
    yield f"mb{strategy.micro_batch}"
    yield f"zero{strategy.zero}"
    if strategy.shard:
        yield f"hsdp{strategy.shard}"
    if strategy.pp > 1:
        yield strategy.schedule
    if strategy.recompute == "full":
        yield f"full{strategy.recompute_layers}" if strategy.recompute_layers else "full"
    elif strategy.recompute != "none":
        yield f"recompute={strategy.recompute}"
    if strategy.offload != "none":
        yield f"offload-{strategy.offload}{strategy.offload_layers or ''}"
    yield strategy.precision
    if not strategy.overlap:
        yield "no-overlap"
    if strategy.order != ORDERS[0]:
        shown = [axis for axis in strategy.order.split("-") if getattr(strategy, axis) > 1]
        yield f"order={'-'.join(shown)}"


def parse_strategy(text: str, *, unfused: bool = False) -> Strategy:
    """The strategy that a line such as `dp8 tp4 pp2 mb1 zero1 1f1b` describes.

    `unfused` is whether it is for software without fused attention, where `selective` means core_attn.
    """
    values: dict[str, object] = {}
    for word in text.split():
        found = _parse_word(word, text)
        for knob in found:
            if knob in values:
                raise BadInput(f'strategy "{text}"', word, f"{knob} is stated twice", "state it once")
        values |= found
    if values.get("recompute") == "selective" and unfused:
        values["recompute"] = SELECTIVE_UNFUSED
    return Strategy(**values)  # type: ignore[arg-type]


def _parse_word(word: str, text: str) -> dict[str, object]:
    flags: dict[str, dict[str, object]] = {
        "sp": {"sp": True},
        "no-overlap": {"overlap": False},
        "full": {"recompute": "full"},
        **{f"offload-{name}": {"offload": name} for name in OFFLOADS[1:]},
        **{name: {"schedule": name} for name in SCHEDULES},
        **{name: {"recompute": name} for name in ("none", "selective")},
        **{name: {"precision": name} for name in PRECISIONS},
        **{name: {"cp_kind": name} for name in CP_KINDS},
    }
    if word in flags:
        return flags[word]
    knob, stated, value = word.partition("=")
    if stated and knob in ("order", "recompute"):
        return {knob: value}
    match = _WORD.match(word)
    counted = [f"offload-{name}" for name in ACTIVATION_OFFLOADS]
    if match is None or match[1] not in (*_NUMBERED, *counted) or not match[2]:
        known = [*flags, *(f"{name}1" for name in (*_NUMBERED, *counted))]
        raise UnknownName(f'strategy "{text}": word', word, known)
    if match[1] in counted:
        return flags[match[1]] | {"offload_layers": int(match[2])}
    field = _NUMBERED[match[1]]
    return {field: int(match[2])} | ({"recompute": "full"} if field == "recompute_layers" else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategies:
    """Many strategies as one array per knob; choices are indices into their tuples above."""

    dp: Ints
    tp: Ints
    sp: Ints
    cp: Ints
    cp_kind: Ints
    pp: Ints
    vpp: Ints
    ep: Ints
    etp: Ints
    zero: Ints
    shard: Ints
    micro_batch: Ints
    schedule: Ints
    recompute: Ints
    recompute_layers: Ints
    offload: Ints
    offload_layers: Ints
    precision: Ints
    overlap: Ints
    order: Ints

    def __len__(self) -> int:
        return len(self.dp)

    def __getitem__(self, index: int) -> Strategy:
        values = {field.name: int(getattr(self, field.name)[index]) for field in fields(self)}
        named: dict[str, object] = {name: CHOICES[name][values[name]] for name in CHOICES}
        flags: dict[str, object] = {"sp": bool(values["sp"]), "overlap": bool(values["overlap"])}
        return Strategy(**(values | named | flags))  # type: ignore[arg-type]

    def take(self, where: NDArray[np.int64] | NDArray[np.bool_] | slice) -> "Strategies":
        """The strategies at some indices."""
        columns = {name: getattr(self, name) for name in _KNOBS}
        # A column that is broadcast has one value, and stays so.
        taken = {name: column[where] for name, column in columns.items() if column.strides != (0,)}
        if len(taken) == len(columns):
            return Strategies(**taken)
        count = len(next(iter(taken.values()), self.dp[where]))
        same = {name: np.broadcast_to(columns[name][:1], count) for name in columns.keys() - taken.keys()}
        return Strategies(**taken, **same)


_KNOBS = tuple(field.name for field in fields(Strategies))


def stack_strategies(strategies: Iterable[Strategy]) -> Strategies:
    """Arrays of the knobs of given strategies."""
    rows = [
        [
            CHOICES[f.name].index(getattr(s, f.name)) if f.name in CHOICES else int(getattr(s, f.name))
            for f in fields(s)
        ]
        for s in strategies
    ]
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), len(fields(Strategy))).T
    return Strategies(**{field.name: column for field, column in zip(fields(Strategy), columns, strict=True)})


def join_strategies(parts: Iterable[Strategies]) -> Strategies:
    """One batch of the strategies of several."""
    listed = list(parts)
    return Strategies(
        **{f.name: np.concatenate([getattr(p, f.name) for p in listed]) for f in fields(Strategies)}
    )


__all__ = [
    "ACTIVATION_OFFLOADS", "ALIASES", "CHOICES", "CP_KINDS", "EVERY_LAYER", "OFFLOADS", "ORDERS",
    "PRECISIONS", "RECOMPUTES", "SCHEDULES", "Strategies", "Strategy", "join_strategies", "parse_strategy",
    "stack_strategies",
]  # fmt: skip
