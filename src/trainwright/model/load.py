"""Models by name or file: the catalog, Hugging Face configurations, TOML files of architecture fields."""

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput, UnknownName
from trainwright.input_file import TOO_LARGE, load_toml, read_text
from trainwright.model.architecture import Architecture
from trainwright.model.huggingface import parse_config

_CATALOG = Path(__file__).parents[1] / "catalog" / "models"
_FIELDS = {field.name: field for field in fields(Architecture)}
_NOTES = ("aliases", "published_parameters", "source")
_MOST_LAYERS = 10_000
_MOST_ROWS = 1_000_000_000_000  # of a table
_MOST = 100_000_000  # of every other size

_MOSTS = {"layers": _MOST_LAYERS, "encoder_layers": _MOST_LAYERS, "table_rows": _MOST_ROWS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model of the catalog: its architecture, and what is published about it."""

    architecture: Architecture
    aliases: tuple[str, ...] = ()
    published_parameters: int | None = None
    source: str = ""


def model_names() -> tuple[str, ...]:
    """The names of the catalog's models, sorted."""
    return tuple(sorted(path.stem for path in _CATALOG.glob("*.toml")))


def load_model(text: str) -> Architecture:
    """The model that `text` names: a catalog name or alias, a `config.json` or its directory, a TOML file."""
    path = Path(text)
    if path.suffix == ".json":
        return _load_config(path)
    if path.suffix == ".toml":
        entry = parse_entry(load_toml(path, "model file"), path.stem, source=str(path))
        return check_sizes(entry.architecture, str(path))
    if _is_file(path / "config.json"):
        return _load_config(path / "config.json")
    return load_entry(text).architecture


def check_sizes(architecture: Architecture, source: str) -> Architecture:
    """The architecture, if no size of it is beyond all reason."""
    for name in _FIELDS:
        value = getattr(architecture, name)
        most = _MOSTS.get(name, _MOST)
        if isinstance(value, int) and value > most:
            raise BadInput(f"{source}: {name}", value, f"is more than {most:,}", "correct it")
    return architecture


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # such as a name that is too long
        raise BadInput("model", str(path.parent), str(error.strerror), "check the name") from error


def load_entry(name: str) -> ModelEntry:
    """The catalog's entry for a name or alias; case, dashes and an organisation before "/" do not matter."""
    key = _key(name)
    by_key = {_key(known): known for known in model_names()}
    found = by_key.get(key) or _aliases().get(key)
    if found is None:
        raise UnknownName("model", name, by_key.values())
    path = _CATALOG / f"{found}.toml"
    return parse_entry(load_toml(path, "model file"), found, source=path.name)


def parse_entry(values: Mapping[str, Any], name: str, source: str) -> ModelEntry:
    """The entry that a table of architecture fields describes; errors name `source`."""
    for key in values:
        if key not in _FIELDS and key not in _NOTES:
            raise UnknownName(f"{source}: key", key, (*_FIELDS, *_NOTES))
    stated = {"name": name} | {key: value for key, value in values.items() if key in _FIELDS}
    for key, field in _FIELDS.items():
        if field.default is MISSING and key not in stated:
            raise BadInput(f"{source}: key", key, "is missing", f"add {key}")
    return ModelEntry(
        architecture=Architecture(**stated),
        aliases=tuple(values.get("aliases", ())),
        published_parameters=values.get("published_parameters"),
        source=values.get("source", ""),
    )


@cache
def _aliases() -> dict[str, str]:
    """Catalog names by the key of each alias; reads every entry, so it is asked only after the names."""
    return {
        _key(alias): name
        for name in model_names()
        for alias in load_toml(_CATALOG / f"{name}.toml", "model file").get("aliases", ())
    }


def _key(name: str) -> str:
    """A name without its separators, except between digits: `Llama-3-8B` is `llama3-8b`, not `llama-38b`."""
    words = re.sub(r"[^a-z0-9.]+", "-", name.rpartition("/")[2].lower())
    return re.sub(r"(?<!\d)-|-(?!\d)", "", words)


def _load_config(path: Path) -> Architecture:
    try:
        config = json.loads(read_text(path, "model file"))
    except json.JSONDecodeError as error:
        problem = f"is not JSON, line {error.lineno}"
        raise BadInput("model file", str(path), problem, "use a model's config.json") from error
    except (ValueError, RecursionError) as error:  # thousands of digits, or of brackets
        raise BadInput("model file", str(path), TOO_LARGE, "use a model's config.json") from error
    if not isinstance(config, dict):
        raise BadInput("model file", str(path), "is not a JSON object", "use a model's config.json")
    name = path.parent.name if path.stem == "config" else path.stem
    return check_sizes(parse_config(config, name, source=str(path)), str(path))
