"""Keys of a Hugging Face configuration that are not read: refused, named, or without effect."""

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput
from trainwright.model.config_fields import Config

_TABLE = Path(__file__).parents[1] / "catalog" / "settings" / "model_keys.toml"
# Parts of a model, as keys speak of them.
_PART = re.compile(
    r"layer|head|hidden|intermediate|expert|moe|mlp|ffn|feed_forward|attn|attention|dim|rank|window|conv|ssm|mamba"
    r"|state_size|embed|kv|norm|bias|pattern|block|position|vision|audio|image|tower|encoder|decoder|adapter|lora"
    r"|router|gate|sparse|index|share|group|cross|num_|n_|size|predict|mtp|linear|recurrent|delta|hyper|alibi|learned"
)
_NONE = (None, False, 0, 0.0, "", "none")


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def check_unread(config: Config) -> tuple[str, ...]:
    """What to say of keys that are not read; raises for one that may make it another model."""
    named = []
    for key, value in _unread(config):
        if _is(key, "named"):
            named.append(key)
        elif _PART.search(key.rpartition(".")[2].lower()):
            shown = value if isinstance(value, int | float | str) else f"of type {type(value).__name__}"
            rule = "is not understood, and may change the model"
            raise BadInput(f"{config.source}: {key}", shown, rule, "describe the model in TOML")
        else:
            named.append(key)
    return (f"Not considered: {', '.join(named)}.",) if named else ()


def _unread(config: Config, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in config.values.items():
        if key in config.parts:
            yield from _unread(config.parts[key], f"{prefix}{key}.")
            continue
        expected = _table()["expected"].get(key)
        if expected is not None and value is not None and key not in config.seen:
            if value != expected:
                rule = f"must be {expected}: no other is modelled"
                raise BadInput(f"{config.source}: {key}", str(value), rule, "describe the model in TOML")
            continue
        if key in config.seen or _is_none(value) or _is(key, "harmless"):
            continue
        yield prefix + key, value


def _is_none(value: object) -> bool:
    """Whether a value leaves a part out."""
    if isinstance(value, list | dict):
        return not value
    return any(value is each or value == each for each in _NONE)


def _is(key: str, kind: str) -> bool:
    last = key.rpartition(".")[2]
    return any(fnmatchcase(last, pattern) for pattern in _table()[kind])
