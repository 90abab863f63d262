"""What was measured of a machine: times of kernels by shape, and of collectives by size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

from trainwright.cluster.types import DTYPES
from trainwright.errors import BadInput, UnknownName
from trainwright.units import parse_quantity

PRODUCTS = ("product.forward", "product.data", "product.weight")  # sizes: rows, columns, depth
ATTENTIONS = (
    "attention.forward",
    "attention.backward",
    "unfused.forward",
    "unfused.backward",
)  # sizes: groups (a head of a sequence each), queries, keys, columns of a query and of a value; not causal
STREAMS = (
    "norm",
    "rms_norm",
    "add",
    "gelu",
    "swiglu",
    "rope",
    "gather",
    "loss",
    "permute",
    "copy",
    "optimizer",
)  # sizes: bytes that are read and written, each with .forward and .backward but the last two
WORKS = (
    *PRODUCTS,
    *ATTENTIONS,
    *(f"{name}.{way}" for name in STREAMS[:-2] for way in ("forward", "backward")),
    *STREAMS[-2:],
)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
_KEYS = (
    "dtype", "software", "measured", "threads", "processes", "operator", "step", "interference", "block",
    "kernel", "collective", "missing", "source", "checksum", "cluster_checksum",
)  # fmt: skip
_BLOCK_KEYS = ("batch", "seq", "hidden", "ffn", "heads", "vocab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel at one shape: its median time, and half the width of the middle half of its times."""

    work: str
    sizes: tuple[float, ...]
    seconds: float
    spread: float = 0.0  # as a share of the median
    region: bool = False  # an operator of the baseline block

    @property
    def amount(self) -> float:
        """The work done: FLOPs of products and attention, bytes of the rest."""
        return float(work_amount(self.work, self.sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective among some members; bytes as `cost.collective` counts them."""

    kind: str
    members: int
    size_bytes: float
    seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineBlock:
    """The layer whose operators were measured, and from which others are projected."""

    batch: int
    seq: int
    hidden: int
    ffn: int
    heads: int
    vocab: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Everything that was measured of a machine, with every process busy."""

    dtype: str
    software: str
    measured: str  # when, or by whom
    source: str
    kernels: tuple[Kernel, ...]
    collectives: tuple[Collective, ...]
    block: BaselineBlock
    threads: int = 1
    processes: int = 1
    operator_s: float = 0.0  # of an operator of the runtime, however small
    step_s: float = 0.0  # of a step of the runtime, beside its operators
    interference: float = 0.0  # seconds that compute loses for each second of communication beside it
    missing: tuple[str, ...] = ()  # what a shorter budget or an interruption left out
    changed: bool = False  # whether the device or network in its file is not as it was written


def work_amount(work: str, sizes: Sequence[Any]) -> Any:
    """FLOPs of products and attention, bytes of the rest; sizes may be numbers or arrays."""
    if work in PRODUCTS:
        return 2.0 * sizes[0] * sizes[1] * sizes[2]
    if work in ATTENTIONS:  # two products; a backward pass has five of them for two
        return (5.0 if work.endswith("backward") else 2.0) * prod(sizes)
    return sizes[0]


def build_profile(table: Mapping[str, Any], thing: str) -> Profile:
    """The profile that a table of a cluster file describes; errors name `thing`."""
    _known(table, _KEYS, thing)
    block = _part(table, "block", thing, dict)
    _known(block, _BLOCK_KEYS, f"{thing} block")
    for key in _BLOCK_KEYS:
        _count(block, key, f"{thing} block")
    return Profile(
        dtype=_dtype(_part(table, "dtype", thing, str), thing),
        software=_part(table, "software", thing, str),
        measured=_part(table, "measured", thing, str),
        source=str(table.get("source", "measured by trainwright profile")),
        kernels=tuple(_kernel(each, f"{thing} kernel") for each in _part(table, "kernel", thing, list)),
        collectives=tuple(
            _collective(each, f"{thing} collective")
            for each in _part({"collective": []} | dict(table), "collective", thing, list)
        ),
        block=BaselineBlock(**block),
        threads=_count(table, "threads", thing) if "threads" in table else 1,
        processes=_count(table, "processes", thing) if "processes" in table else 1,
        operator_s=_seconds(table.get("operator", "0 s"), f"{thing} operator"),
        step_s=_seconds(table.get("step", "0 s"), f"{thing} step"),
        interference=_share(table.get("interference", 0.0), f"{thing} interference"),
        missing=tuple(map(str, _part({"missing": []} | dict(table), "missing", thing, list))),
    )


def _dtype(name: str, thing: str) -> str:
    if name not in DTYPES:
        raise UnknownName(f"{thing} dtype", name, DTYPES)
    return name


def _kernel(table: Mapping[str, Any], thing: str) -> Kernel:
    _known(table, ("work", "sizes", "time", "spread", "region"), thing)
    work, sizes = _part(table, "work", thing, str), _part(table, "sizes", thing, list)
    if work not in WORKS:
        raise UnknownName(f"{thing} work", work, WORKS)
    wanted = 3 if work in PRODUCTS else 4 if work in ATTENTIONS else 1
    numbers = all(isinstance(each, int | float) and isfinite(each) and each > 0 for each in sizes)
    if len(sizes) != wanted or not numbers:
        raise BadInput(f"{thing} sizes", sizes, f"are not {wanted} numbers above zero", "measure it again")
    return Kernel(
        work=work, sizes=tuple(map(float, sizes)), seconds=_time(table, thing),
        spread=_share(table.get("spread", 0.0), f"{thing} spread"), region=table.get("region", False) is True,
    )  # fmt: skip


def _collective(table: Mapping[str, Any], thing: str) -> Collective:
    _known(table, ("kind", "members", "bytes", "time", "spread"), thing)
    kind = _part(table, "kind", thing, str)
    if kind not in COLLECTIVES:
        raise UnknownName(f"{thing} kind", kind, COLLECTIVES)
    return Collective(
        kind=kind, members=_count(table, "members", thing), size_bytes=float(_count(table, "bytes", thing)),
        seconds=_time(table, thing), spread=_share(table.get("spread", 0.0), f"{thing} spread"),
    )  # fmt: skip


def _known(table: object, names: Sequence[str], thing: str) -> None:
    if not isinstance(table, Mapping):
        raise BadInput(thing, str(table), "is not a table", "measure the machine again")
    for key in table:
        if key not in names:
            raise UnknownName(f"{thing} key", key, names)


def _part(table: Mapping[str, Any], key: str, thing: str, kind: type) -> Any:
    if key not in table:
        raise BadInput(thing, key, "is missing", "measure the machine again")
    if type(table[key]) is not kind:
        names: dict[type, str] = {dict: "a table", list: "a list", str: "text"}
        raise BadInput(f"{thing} {key}", table[key], f"is not {names[kind]}", "measure the machine again")
    return table[key]


def _count(table: Mapping[str, Any], key: str, thing: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{thing} {key}", value, "is not a whole number above zero", "measure it again")
    return value


def _time(table: Mapping[str, Any], thing: str) -> float:
    seconds = _seconds(table.get("time", ""), f"{thing} time")
    if seconds <= 0:
        raise BadInput(f"{thing} time", table.get("time"), "is not above zero", "measure it again")
    return seconds


def _seconds(value: object, thing: str) -> float:
    return parse_quantity(value, "s", thing)


def _share(value: object, thing: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e6:
        raise BadInput(thing, value, "is not a number of at least 0", "measure it again")
    return float(value)
