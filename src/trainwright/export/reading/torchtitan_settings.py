"""torchtitan's settings by dotted name, from any of the forms in which they are written."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainwright.errors import BadInput
from trainwright.export.reading.configured import StatedSettings
from trainwright.export.reading.known_settings import load_known, load_table, not_considered
from trainwright.export.reading.launch_flags import parse_flags
from trainwright.export.reading.python_text import parse_expression
from trainwright.export.reading.torchtitan_registry import UnresolvedValue, read_registry

_SECTIONS = (
    "parallelism",
    "training",
    "model",
    "activation-checkpoint",
    "activation_checkpoint",
    "job",
    "optimizer",
)
_STRUCTURAL = re.compile(
    r"degree|batch|parallel|micro|seq_len|token|layer|dim|head|shard|replica|expert|group"
)
_USUAL = {
    "training.dtype": "float32", "parallelism.expert_parallel_comm_backend": "standard",
    "parallelism.pipeline_parallel_expert_parallel_overlap": True, "quantize": {},
}  # fmt: skip
_REFUSED = {
    "parallelism": ("splits the job in a way that is not read", "describe the plan as a strategy"),
    "job": ("makes several jobs of it, which is not read", "describe the plan as a strategy"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanSettings:
    """Settings by dotted name; `form` is `toml`, `python` or `flags`.

    `base` is a function of torchtitan's own that sets what the text does not.
    """

    values: Mapping[str, object]
    source: str
    form: str
    base: str = ""
    renamed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def section(self, name: str) -> dict[str, object]:
        """The settings of a section."""
        found = {}
        for key, value in self.values.items():
            if key.startswith(f"{name}."):
                if (
                    isinstance(value, UnresolvedValue)
                    and load_known("torchtitan").class_of(key) == "understood"
                ):
                    rule = f'is "{value.text}", which is not a plain value'
                    raise BadInput(f"{self.source}: {key}", "", rule, "write the value")
                found[key.partition(".")[2]] = value
        return found


def read_settings(text: str, source: str, stated: StatedSettings) -> TitanSettings:
    """The settings of a text, with names of older releases as they are now."""
    found = _read(text, source, stated)
    values, renamed = _with_new_names(found.values, source)
    values = {name: value for name, value in values.items() if not _is_off(name, value, values)}
    _check_scope(values, source)
    known = load_known("torchtitan")
    return TitanSettings(
        values=values, source=source, form=found.form, base=found.base, renamed=renamed,
        notes=(*found.notes, *not_considered(known, values)),
    )  # fmt: skip


def _read(text: str, source: str, stated: StatedSettings) -> TitanSettings:
    if stated.function or re.search(r"^\s*(def|import|from|class) ", text, re.MULTILINE):
        registry = read_registry(text, source, stated.function)
        return TitanSettings(values=registry.values, source=source, form="python", base=registry.base)
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        if any(f"--{name}." in text for name in _SECTIONS):
            return _of_flags(text, source, stated)
        rule = f"is not TOML ({error})"
        raise BadInput(source, "text", rule, "name torchtitan's configuration") from None
    for name in ("parallelism", "training", "model", "activation_checkpoint"):
        if not isinstance(tables.get(name, {}), Mapping):
            rule = "must be a table of settings"
            raise BadInput(f"{source}: {name}", str(tables[name])[:80], rule, "correct it")
    return TitanSettings(values=dict(_flattened(tables)), source=source, form="toml")


def _flattened(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}" if prefix else f"{name}.", value


def _of_flags(text: str, source: str, stated: StatedSettings) -> TitanSettings:
    known = load_known("torchtitan")

    def harmless(name: str) -> bool:
        return known.is_harmless(name.replace("-", "_"))

    def is_wanted(name: str) -> bool:
        return name.partition(".")[0] in _SECTIONS and "." in name

    flags = parse_flags(text, source, is_wanted, stated=stated.variables, harmless=harmless)
    for name, part in flags.undecided.items():
        raise flags.unsettled(name, part)
    values: dict[str, object] = {}
    base = ""
    for name, words in flags.values.items():
        key = name.replace("-", "_")
        if name == "config" and words:
            base = flags.word(name, "")
        elif "." in key and not known.is_harmless(key):
            values[key] = _literal(flags.word(name, "")) if words else True
    if flags.has("job.config-file"):
        shown = flags.values["job.config-file"][0].shown if flags.values["job.config-file"] else ""
        rule = "holds settings that are not in the text"
        raise BadInput(f"{source}: --job.config_file", shown, rule, "name that file")
    if base:
        values["model.function"] = base
    return TitanSettings(values=values, source=source, form="flags", base=base, notes=flags.notes)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(parse_expression(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def _with_new_names(values: Mapping[str, object], source: str) -> tuple[dict[str, object], tuple[str, ...]]:
    renames = load_table("torchtitan")["renamed"]
    found, renamed = dict(values), []
    for old, new in renames.items():
        if old not in found:
            continue
        value = found.pop(old)
        if found.setdefault(new, value) != value:
            rule = f"differs from {new}, of which it is the older name"
            raise BadInput(f"{source}: {old}", str(value), rule, "keep one of them")
        renamed.append(old)
    return found, tuple(renamed)


def _is_off(name: str, value: object, values: Mapping[str, object]) -> bool:
    """Whether a setting says what holds without it."""
    known = load_known("torchtitan").class_of(name)
    if known in ("understood", "harmless"):
        return False
    section = name.partition(".")[0]
    if section in ("fault_tolerance", "compile") and values.get(f"{section}.enable", False) is not True:
        return True
    if section == "float8" and not _is_fp8(values):
        return True
    if name in _USUAL:
        return value == _USUAL[name]
    return value is None or value is False or value in (0, "", [], {}, "disabled")


def _is_fp8(values: Mapping[str, object]) -> bool:
    return "float8" in str(values.get("model.converters", "")) or any(
        values.get(name) is True for name in ("float8.enable_float8_linear", "float8.enable_fp8_linear")
    )


def _check_scope(values: Mapping[str, object], source: str) -> None:
    known = load_known("torchtitan")
    for name, value in values.items():
        kind = known.class_of(name)
        if kind in _REFUSED:
            rule, remedy = _REFUSED[kind]
            raise BadInput(f"{source}: {name}", str(value), rule, remedy)
        if kind == "unknown" and _STRUCTURAL.search(name.partition(".")[2] or name):
            rule = "is not a setting that is known, and may change the plan"
            raise BadInput(f"{source}: {name.rstrip('.')}", str(value), rule, "correct it, or remove it")
