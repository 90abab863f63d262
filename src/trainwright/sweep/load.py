"""A sweep from its TOML file: a baseline, `[[axis]]` tables, constraints. See docs/sweep.md."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.cluster.load import build_cluster, load_cluster
from trainwright.cluster.types import Cluster
from trainwright.cost.expert_imbalance import parse_imbalance
from trainwright.cost.load import load_constants
from trainwright.cost.memory_risk import DEFAULT_RISK, parse_risk
from trainwright.errors import BadInput, UnknownName
from trainwright.input_file import parse_toml, read_text
from trainwright.model.load import load_model
from trainwright.search.batch_target import TOLERANCE, parse_batch_tokens, parse_tolerance
from trainwright.search.rank import objective
from trainwright.search.space import knob_name, knob_value
from trainwright.stack.load import stack_name
from trainwright.stack.optimizer import GRADIENT_BYTES, OPTIMIZERS
from trainwright.sweep.axes import beside, parse_axis
from trainwright.sweep.columns import OF_POINTS, RESULTS, USUAL
from trainwright.sweep.constraints import Constraint
from trainwright.sweep.points import result_constraints
from trainwright.sweep.types import ROWS, SEARCHES, Setting, Sweep
from trainwright.units import parse_quantity

KEYS = (
    "name", "model", "cluster", "stack", "cost", "seq", "batch", "batch_tokens", "batch_tolerance",
    "precision", "optimizer", "grad_dtype", "expert_imbalance", "oom_risk", "electricity", "strategy", "axis",
    "where", "search", "rows", "objective", "columns", "chunk",
)  # fmt: skip
EXAMPLES = Path(__file__).parents[1] / "catalog" / "sweeps"
COSTS = ("calibrated", "roofline")  # measured times are of one machine, and a sweep is of many
_MOST_POINTS = 10**12


def load_sweep(path: Path) -> Sweep:
    """The sweep of a file; models and clusters that it names by path are looked for beside it too."""
    return parse_sweep(read_text(path, "sweep file"), path.stem, path.parent)


def parse_sweep(text: str, name: str = "sweep", folder: Path | None = None) -> Sweep:
    """The sweep that a text of TOML describes; files that it names are looked for in `folder` first."""
    table = parse_toml(text, "sweep", name)
    for key in table:
        if key not in KEYS:
            raise UnknownName("sweep key", key, KEYS)
    setting = _setting(table, folder)
    listed = table.get("axis", [])
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise BadInput("sweep axis", str(listed)[:80], "is no list of tables", "write [[axis]]")
    axes = tuple(parse_axis(each, setting, f"axis {at + 1}", folder) for at, each in enumerate(listed))
    sweep = Sweep(
        name=_text(table, "name", name), setting=setting, axes=axes,
        constraints=tuple(Constraint(text=each) for each in _texts(table, "where")),
        search=_choice(table, "search", SEARCHES), rows=_choice(table, "rows", ROWS),
        objective=_text(table, "objective", "time"), columns=tuple(_texts(table, "columns")),
        points_per_chunk=_whole(table, "chunk"), text=text,
    )  # fmt: skip
    check_sweep(sweep)
    return sweep


def check_sweep(sweep: Sweep) -> None:
    """Raise for what no single part of a sweep can see."""
    objective(sweep.objective)
    names = [axis.name for axis in sweep.axes]
    for name in names:
        if names.count(name) > 1 or name in RESULTS or name == "point":
            rule = "is the name of two axes, or of a result"
            raise BadInput("axis name", name, rule, 'give the axis a name = "..." of its own')
    for constraint in sweep.constraints:
        constraint.check_names([*names, *(each for each in RESULTS if each not in (*OF_POINTS, "strategy"))])
    if sweep.search == "plan" and (asked := result_constraints(sweep)):
        rule = "is about results, and plan leaves out strategies that only lose time"
        raise BadInput("sweep where", asked[0].text, rule, 'add search = "every"')
    for column in sweep.columns:
        if column != "*" and column not in RESULTS:
            raise UnknownName("sweep columns", column, RESULTS)
    if sweep.rows == "all" and sweep.search == "plan":
        raise BadInput("sweep rows", "all", "goes with every strategy evaluated", 'add search = "every"')
    if len(sweep) > _MOST_POINTS:
        raise BadInput("sweep", len(sweep), f"has more than {_MOST_POINTS:,} points", "use fewer values")


def result_columns(sweep: Sweep) -> tuple[str, ...]:
    """The result columns that a sweep writes, in order."""
    if "*" in sweep.columns:
        return tuple(RESULTS)
    return tuple(name for name in RESULTS if name in (sweep.columns or USUAL[sweep.rows]))


def _setting(table: Mapping[str, Any], folder: Path | None) -> Setting:
    if not isinstance(table.get("model"), str):
        raise BadInput("sweep model", table.get("model"), "is missing or not text", 'add model = "..."')
    knobs, most = _knobs(table.get("strategy", {}))
    cost = _text(table, "cost", "calibrated")
    if cost not in COSTS:
        raise UnknownName("sweep cost", cost, COSTS)
    price = table.get("electricity")
    return Setting(
        model=load_model(beside(table["model"], folder)),
        cluster=_cluster(table.get("cluster"), folder),
        stack=load_constants().stack(stack_name(_text(table, "stack", ""))) if "stack" in table else None,
        cost=cost,
        seq=_whole(table, "seq"),
        batch=_whole(table, "batch"),
        batch_tokens=round(parse_batch_tokens(str(table.get("batch_tokens", 0)), "sweep batch_tokens")),
        batch_tolerance=_tolerance(table),
        precision=_text(table, "precision", ""),
        optimizer=_named(table, "optimizer", OPTIMIZERS),
        grad_dtype=_named(table, "grad_dtype", GRADIENT_BYTES),
        expert_imbalance=_imbalance(table),
        oom_risk=parse_risk(str(table.get("oom_risk", DEFAULT_RISK)), "sweep oom_risk"),
        strategy=knobs,
        most=most,
        dollars_per_kwh=parse_quantity(price, "$/kWh", "sweep electricity") if price is not None else 0.0,
    )


def _imbalance(table: Mapping[str, Any]) -> float:
    stated = table.get("expert_imbalance")
    return 0.0 if stated is None else parse_imbalance(str(stated), "sweep expert_imbalance")


def _named(table: Mapping[str, Any], key: str, known: Mapping[str, object]) -> str:
    value = _text(table, key, "")
    if value and value not in known:
        raise UnknownName(f"sweep {key}", value, known)
    return value


def _tolerance(table: Mapping[str, Any]) -> float:
    """How far a batch may be from its tokens; an exact batch has none."""
    for key in ("batch_tokens", "batch_tolerance"):
        if key in table and "batch" in table:
            rule = "is for a batch in tokens, and batch is one in sequences"
            raise BadInput(f"sweep {key}", table[key], rule, "leave out one of the two")
    if "batch_tolerance" not in table:
        return TOLERANCE
    text = _text(table, "batch_tolerance", "")
    if "batch_tokens" not in str(table.get("axis", "")) and "batch_tokens" not in table:
        raise BadInput("sweep batch_tolerance", text, "goes with batch_tokens", "state them, or leave it out")
    return parse_tolerance(text, "sweep batch_tolerance")


def _cluster(given: object, folder: Path | None) -> Cluster:
    """A cluster by name or file, or as a table of what a cluster file has."""
    if isinstance(given, dict):
        cluster = build_cluster(given, "sweep cluster", "of the sweep")
        _ = cluster.levels  # its network must be able to join all devices
        return cluster
    if not isinstance(given, str):
        raise BadInput("sweep cluster", given, "is neither text nor a table", 'add cluster = "h100:512"')
    return load_cluster(beside(given, folder))


def _knobs(table: object) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Knobs that may take some values, and those that have a largest one (`max_tp = 8`)."""
    if not isinstance(table, dict):
        raise BadInput("sweep strategy", table, "is not a table", "write [strategy]")
    fixed, most = {}, {}
    for key, value in table.items():
        words = [_word(each) for each in (value if isinstance(value, list) else [value])]
        if key.startswith("max_"):
            most[knob_name(key.removeprefix("max_"))] = max(
                knob_value(key.removeprefix("max_"), each) for each in words
            )
        else:
            fixed[knob_name(key)] = tuple(dict.fromkeys(knob_value(key, each) for each in words))
    return fixed, most


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(table: Mapping[str, Any], key: str, usual: str) -> str:
    value = table.get(key, usual)
    if not isinstance(value, str):
        raise BadInput(f"sweep {key}", value, "is not text", "write it in quotes")
    return value


def _texts(table: Mapping[str, Any], key: str) -> list[str]:
    value = table.get(key, [])
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise BadInput(f"sweep {key}", value, "is no list of texts", f'write {key} = ["..."]')
    return listed


def _whole(table: Mapping[str, Any], key: str) -> int:
    value = table.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or (value < 1 and key in table):
        raise BadInput(f"sweep {key}", value, "is not a whole number above zero", "write it like 8")
    return value


def _choice(table: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
    value = _text(table, key, known[0])
    if value not in known:
        raise UnknownName(f"sweep {key}", value, known)
    return value
