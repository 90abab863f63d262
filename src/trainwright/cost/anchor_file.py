"""Anchor files: measured runs beside what was predicted for them, as TOML with units and provenance."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from trainwright.checksum import digest
from trainwright.cost.anchor import PRECISION_CLASSES, Anchor, AnchorRun, RunConditions
from trainwright.cost.load import CALIBRATION
from trainwright.errors import BadInput, UnknownName
from trainwright.output_file import save_text
from trainwright.units import parse_quantity

_REMEDY = "make it again with trainwright calibrate CLUSTER --runs"
_HEAD_KEYS = ("made", "table", "cluster", "constants", "run")
_TEXTS = ("id", "model", "stack", "release", "device", "family", "precision")
_COUNTS = ("layers", "parameters")
_FIGURES = {
    "step_time": "s", "predicted_step_time": "s", "memory": "bytes", "predicted_memory": "bytes",
}  # fmt: skip
_RUN_KEYS = (*_TEXTS, *_COUNTS, *_FIGURES)
_HEADER = """# Written by `trainwright calibrate --runs`; give it as --runs to plan, simulate and validate.
# Each run has what was measured and what Trainwright predicts for it, with the constants named below.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorProvenance:
    """Where the runs of an anchor file are from: the table, the cluster, the day on which it was made."""

    made: str
    table: str
    cluster: str


def constants_checksum() -> str:
    """What tells the fitted constants from those of another release."""
    return digest(CALIBRATION.read_bytes())[:16]


def save_anchor(path: Path, anchor: Anchor, provenance: AnchorProvenance) -> None:
    """Write an anchor file; a reader sees the old file or the new one, never half of it."""
    head = {
        "made": provenance.made, "table": provenance.table, "cluster": provenance.cluster,
        "constants": constants_checksum(),
    }  # fmt: skip
    lines = [_HEADER, *(f"{key} = {_text(value)}" for key, value in head.items())]
    for run in anchor.runs:
        lines += ["", "[[run]]", *_run_lines(run)]
    save_text(path, "\n".join(lines) + "\n")


def _run_lines(run: AnchorRun) -> list[str]:
    own = run.conditions
    texts = {
        "id": run.id, "model": run.model, "stack": own.stack, "release": own.release, "device": own.device,
        "family": own.family, "precision": own.precision,
    }  # fmt: skip
    lines = [f"{key} = {_text(value)}" for key, value in texts.items() if value]
    lines += [f"layers = {own.layers}", f"parameters = {own.parameters}"]
    seconds = {"step_time": run.step_s, "predicted_step_time": run.predicted_step_s}
    lines += [f'{key} = "{value:.8g} s"' for key, value in seconds.items() if value is not None]
    peaks = {"memory": run.memory_bytes, "predicted_memory": run.predicted_memory_bytes}
    lines += [f'{key} = "{value / 2**30:.8g} GiB"' for key, value in peaks.items() if value is not None]
    return lines


def _text(value: str) -> str:
    """A text as a basic string of TOML."""
    kept = "".join(each if each.isprintable() else " " for each in value)
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"') + '"'


def load_anchor(path: Path) -> Anchor:
    """The anchor that a file holds; raises for one made with other constants."""
    thing = f"anchor file {path}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadInput(
            "anchor file", str(path), f"cannot be read ({error.strerror})", "check the path"
        ) from None
    except ValueError as error:
        raise BadInput("anchor file", str(path), f"is not TOML ({error})", _REMEDY) from None
    _check_keys(table, _HEAD_KEYS, thing)
    for key in _HEAD_KEYS[:-1]:
        _string(table, key, thing)
    runs = table.get("run")
    if not isinstance(runs, list) or not runs:
        raise BadInput(thing, "run", "is not a list of at least one [[run]]", _REMEDY)
    if table["constants"] != constants_checksum():
        rule = f"was made with other constants than the present ones ({constants_checksum()})"
        raise BadInput(f"{thing} constants", table["constants"], rule, _REMEDY)
    return Anchor(
        name=path.name,
        runs=tuple(_run(each, f"{thing} run {number}") for number, each in enumerate(runs, start=1)),
    )


def _run(table: object, thing: str) -> AnchorRun:
    if not isinstance(table, Mapping):
        raise BadInput(thing, str(table), "is not a table", "write it under [[run]]")
    _check_keys(table, _RUN_KEYS, thing)
    texts = {key: _string(table, key, thing) if key in table else "" for key in ("id", "model", "release")}
    stated = {key: _string(table, key, thing) for key in ("stack", "device", "family", "precision")}
    classes = tuple(dict.fromkeys(PRECISION_CLASSES.values()))
    if stated["precision"] not in classes:
        raise UnknownName(f"{thing} precision", stated["precision"], classes)
    figures = {key: _figure(table, key, unit, thing) for key, unit in _FIGURES.items()}
    for key in ("step_time", "memory"):
        if (figures[key] is None) != (figures[f"predicted_{key}"] is None):
            rule = f"has one of {key} and predicted_{key}, and needs both or neither"
            raise BadInput(thing, texts["id"], rule, _REMEDY)
    if figures["step_time"] is None and figures["memory"] is None:
        raise BadInput(thing, texts["id"], "has neither step_time nor memory", _REMEDY)
    return AnchorRun(
        id=texts["id"], model=texts["model"],
        conditions=RunConditions(
            **stated, release=texts["release"], layers=_count(table, "layers", thing),
            parameters=_count(table, "parameters", thing),
        ),
        step_s=figures["step_time"], predicted_step_s=figures["predicted_step_time"],
        memory_bytes=figures["memory"], predicted_memory_bytes=figures["predicted_memory"],
    )  # fmt: skip


def _check_keys(table: Mapping[str, Any], known: Sequence[str], thing: str) -> None:
    for key in table:
        if key not in known:
            raise UnknownName(f"{thing} key", key, known)


def _string(table: Mapping[str, Any], key: str, thing: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        rule = "is missing" if key not in table else "is not text"
        raise BadInput(f"{thing} {key}", "" if value is None else value, rule, _REMEDY)
    return value


def _count(table: Mapping[str, Any], key: str, thing: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        shown = "" if value is None else value
        raise BadInput(f"{thing} {key}", shown, "is not a whole number above zero", _REMEDY)
    return value


def _figure(table: Mapping[str, Any], key: str, unit: str, thing: str) -> float | None:
    if key not in table:
        return None
    value = parse_quantity(table[key], unit, f"{thing} {key}")
    if not isfinite(value) or value <= 0.0:
        raise BadInput(f"{thing} {key}", table[key], "is not above zero", "correct it, or leave out the run")
    return value
