"""An axis as a sweep file writes it, made into values.

field = "cluster.levels.0.bandwidth"
values = ["300 GB/s", "450 GB/s"]                       a list, or one of
range = { from = "100 GB/s", to = "900 GB/s", step = "200 GB/s" }
log = { from = "25 GB/s", to = "400 GB/s", factor = 2 }  or count = 5
ratio = [1, 2, 4]                                        times the baseline; values = ["x1", "x2"] too
"""

import re
from collections.abc import Callable, Mapping
from math import floor, isfinite, log
from pathlib import Path as FilePath
from typing import Any

from trainwright.cluster.load import load_cluster, load_device, load_network
from trainwright.cost.load import load_constants
from trainwright.cost.memory_risk import parse_risk
from trainwright.errors import BadInput, UnknownName
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.search.batch_target import parse_batch_tokens, parse_tolerance
from trainwright.search.space import KNOBS, knob_name, knob_value
from trainwright.stack.load import stack_name
from trainwright.sweep.columns import RESULTS
from trainwright.sweep.paths import Path, resolve, unit_of, value_at
from trainwright.sweep.types import Axis, Label, Setting
from trainwright.units import parse_quantity

AXIS_KEYS = ("field", "name", "values", "range", "log", "ratio", "zip")
ALIASES = {"compute": "cluster.device.peak_flops_per_s", "devices": "cluster.count"}
_WAYS = ("values", "range", "log", "ratio")
_MOST_VALUES = 1_000_000
_TIMES = re.compile(r"x([0-9.]+(?:e[-+]?[0-9]+)?)|([0-9.]+(?:e[-+]?[0-9]+)?)x")

# Fields whose values are named, and what finds them.
LOADERS: Mapping[Path, Callable[[str], Any]] = {
    ("model",): load_model,
    ("cluster",): load_cluster,
    ("cluster", "device"): load_device,
    ("cluster", "network"): load_network,
    ("stack",): lambda text: load_constants().stack(stack_name(text)),
    ("strategy",): lambda text: fixed_knobs(text),
}


def fixed_knobs(text: str) -> dict[str, tuple[int, ...]]:
    """Every knob of a strategy's text as the one value that it may take."""
    columns = stack_strategies([parse_strategy(text)])
    return {knob: (int(getattr(columns, knob)[0]),) for knob in KNOBS}


def resolve_field(setting: Setting, field: str) -> Path:
    """The path of an axis's field from a setting."""
    text = ALIASES.get(field, field)
    root, _, knob = text.partition(".")
    if root == "strategy" and knob:
        return ("strategy", knob_name(knob))
    return resolve(setting, text)


def beside(text: str, folder: FilePath | None) -> str:
    """The path of a file that a sweep names, if there is one beside it; else the text itself."""
    is_file = text.endswith((".toml", ".json")) and folder is not None
    return str(folder / text) if is_file and folder is not None and (folder / text).is_file() else text


def parse_axis(
    table: Mapping[str, Any], setting: Setting, where: str, folder: FilePath | None = None
) -> Axis:
    """The axis that a table of `AXIS_KEYS` describes; errors name `where`."""
    for key in table:
        if key not in AXIS_KEYS:
            raise UnknownName(f"{where} key", key, AXIS_KEYS)
    field = _text(table, "field", where)
    where = f"axis {field}"
    ways = [way for way in _WAYS if way in table]
    if len(ways) != 1:
        raise BadInput(where, ", ".join(ways), "states its values not once", "use one of " + ", ".join(_WAYS))
    path = resolve_field(setting, field)
    values, labels, ratio = _values(table, ways[0], setting, path, where, folder)
    name = _text(table, "name", where) if "name" in table else _default_name(field, path, ratio)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BadInput(f"{where} name", name, "is no word", "use letters, digits and _")
    if not values or len(values) > _MOST_VALUES:
        raise BadInput(where, len(values), f"has no values, or more than {_MOST_VALUES:,}", "change them")
    if unit_of(path).endswith("/s") and 0.0 in values:
        raise BadInput(where, 0, "a rate of zero moves nothing", "start above zero")
    zipped = _text(table, "zip", where) if "zip" in table else ""
    return Axis(name=name, field=field, values=values, labels=labels, ratio=ratio, zipped=zipped)


Values = tuple[tuple[Any, ...], tuple[Label, ...], bool]


def _values(
    table: Mapping[str, Any], way: str, setting: Setting, path: Path, where: str, folder: FilePath | None
) -> Values:
    given = table[way]
    if isinstance(given, str):
        given = [each.strip() for each in given.split(",")]
    if way == "ratio" or (way == "values" and _are_ratios(given)):
        return _ratios(given, setting, path, where)
    if way == "values":
        return _listed(given, setting, path, where, folder)
    numbers = _spread(given, way, path, where)
    if not isinstance(_baseline(setting, path), float):
        numbers = list(dict.fromkeys(round(each) for each in numbers))
    return tuple(numbers), tuple(numbers), False


def _listed(given: object, setting: Setting, path: Path, where: str, folder: FilePath | None) -> Values:
    if not isinstance(given, list):
        raise BadInput(where, given, "is not a list", "write values = [...]")
    if path in LOADERS:
        names = [_named(each, where) for each in given]
        return tuple(LOADERS[path](beside(each, folder)) for each in names), tuple(names), False
    if path[0] == "strategy":
        knob = str(path[1])
        words = [str(each).lower() if isinstance(each, bool) else str(each) for each in given]
        labels: tuple[Label, ...] = tuple(int(each) if each.isdigit() else each for each in words)
        return tuple((knob_value(knob, each),) for each in words), labels, False
    numbers = tuple(_scalar(each, _baseline(setting, path), path, where) for each in given)
    return numbers, numbers, False


def _ratios(given: object, setting: Setting, path: Path, where: str) -> Values:
    base = _baseline(setting, path)
    plain = isinstance(base, int | float) and not isinstance(base, bool)
    if not plain and not (isinstance(base, Mapping) and path[0] != "strategy"):
        raise BadInput(where, str(base)[:40], "is no number, so it has no ratios", "state values")
    if not isinstance(given, list) or not given:
        raise BadInput(where, given, "is not a list", "write ratio = [1, 2, 4]")
    times = tuple(_times(each, where) for each in given)
    return times, times, True


def _are_ratios(given: object) -> bool:
    return (
        isinstance(given, list)
        and given != []
        and all(isinstance(e, str) and _TIMES.fullmatch(e) for e in given)
    )


def _times(value: object, where: str) -> float:
    match = _TIMES.fullmatch(value) if isinstance(value, str) else None
    try:
        number = float(match[1] or match[2]) if match else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = 0.0
    if isinstance(value, bool) or not (number > 0 and isfinite(number)):
        raise BadInput(where, value, "is no ratio above zero", 'write it like 2 or "x2"')
    return number


def _spread(given: object, way: str, path: Path, where: str) -> list[float]:
    """Numbers from a first to a last one, by equal steps or by equal factors."""
    by = ("step", "count") if way == "range" else ("factor", "count")
    if not isinstance(given, dict) or not {"from", "to"} <= given.keys() or len(given.keys() & set(by)) != 1:
        raise BadInput(where, given, f"{way} needs from, to, and {by[0]} or count", f"write {way} = {{...}}")
    for key in given:
        if key not in ("from", "to", *by):
            raise UnknownName(f"{where} {way} key", key, ("from", "to", *by))
    low, high = (_number(given[key], path, f"{where} {key}") for key in ("from", "to"))
    if not low <= high or (way == "log" and low <= 0):
        raise BadInput(where, given, "ends before it starts, or starts at zero", "correct from and to")
    if "count" in given:
        count = given["count"]
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_VALUES:
            raise BadInput(f"{where} count", count, "is no whole number above zero", "write it like 5")
        shares = [at / (count - 1) for at in range(count)] if count > 1 else [0.0]
        if way == "range":
            return [low + (high - low) * share for share in shares]
        return [low * (high / low) ** share for share in shares]
    if way == "range":
        step = _number(given["step"], path, f"{where} step")
        return [low + step * at for at in range(_steps((high - low) / step if step else -1, where) + 1)]
    factor = _times(given["factor"], f"{where} factor")
    wanted = log(high / low) / log(factor) if factor > 1 else -1
    return [low * factor**at for at in range(_steps(wanted, where) + 1)]


def _steps(wanted: float, where: str) -> int:
    if not 0 <= wanted <= _MOST_VALUES:
        raise BadInput(where, wanted, "steps lead nowhere, or are too many", "correct step or factor")
    return floor(wanted * (1 + 1e-12) + 1e-9)


def _scalar(value: object, base: object, path: Path, where: str) -> Any:
    """A value of the kind that the field has."""
    if isinstance(base, bool) or base is None:
        if not isinstance(value, bool):
            raise BadInput(where, value, "is neither true nor false", "write true or false")
        return value
    if isinstance(base, str):
        return _named(value, where)
    if isinstance(base, int | float):
        number = _number(value, path, where)
        if isinstance(base, int) and not float(number).is_integer():
            raise BadInput(where, value, "is not a whole number", "write it like 8")
        return int(number) if isinstance(base, int) else float(number)
    kind = "a list" if isinstance(base, tuple) else "several values"
    raise BadInput(where, value, f"the field holds {kind}", "name one part of it, like memory.0.capacity")


def _number(value: object, path: Path, where: str) -> float:
    """A number in base units, from text with a unit where the field has one."""
    unit = unit_of(path)
    if unit:
        return parse_quantity(value, unit, where)
    if isinstance(value, str) and path[0] == "batch_tokens":
        return parse_batch_tokens(value, where)
    if isinstance(value, str) and path[0] == "batch_tolerance":
        return parse_tolerance(value, where)
    if path[0] == "oom_risk":
        return parse_risk(str(value), where)
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        raise BadInput(where, value, "is not a number", "write it like 8")
    return float(value)


def _baseline(setting: Setting, path: Path) -> Any:
    if path[0] == "strategy":
        return 0
    return value_at(setting, path)


def _default_name(field: str, path: Path, ratio: bool) -> str:
    """The column of an axis: as its field is called, with the unit; as it was written if it has ratios."""
    words = field if ratio else ".".join(map(str, path))
    name = re.sub(r"[^A-Za-z0-9_]+", "_", words.removeprefix("cluster."))
    return f"asked_{name}" if name in RESULTS else name


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    if not isinstance(table.get(key), str) or not table[key]:
        raise BadInput(f"{where} {key}", table.get(key), "is not text", f'write {key} = "..."')
    return str(table[key])


def _named(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise BadInput(where, value, "is not text", "write it in quotes")
    return value
