"""YAML of users as plain values: sizes are limited, and a key stands once."""

import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from trainwright.errors import BadInput, UnknownName
from trainwright.export.reading.known_settings import KnownSettings

_MOST_CHARACTERS = 300_000
_MOST_VALUES = 20_000  # with repeated anchors counted
_MOST_ALIASES = 20


def _check_nodes(text: str, source: str) -> None:
    """Raise for a key that stands twice, and for aliases that would make a short text long."""
    events = yaml.parse(text, yaml.SafeLoader)
    if sum(isinstance(event, yaml.AliasEvent) for event in events) > _MOST_ALIASES:
        raise BadInput(source, "text", f"has more than {_MOST_ALIASES} aliases", "write them out")
    waiting, seen = [yaml.compose(text, yaml.SafeLoader)], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = [name for name, count in Counter(keys).items() if count > 1]
            if twice:
                raise BadInput(f"{source}: key", str(twice[0])[:40], "stands twice", "keep one of them")
            waiting += [value for _, value in node.value]


def parse_yaml(text: str, source: str) -> Mapping[str, Any]:
    """The mapping of a YAML text."""
    if len(text) > _MOST_CHARACTERS:
        raise BadInput(source, "text", f"has more than {_MOST_CHARACTERS:,} characters", "check the path")
    try:
        _check_nodes(text, source)
        tree = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadInput(source, "text", f"is not YAML ({error.problem}{line})", "correct it") from None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError):
        raise BadInput(source, "text", "is not YAML that can be read", "correct it") from None
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise BadInput(source, "text", "is no mapping of names to values", "name a configuration")
    return tree


def flatten(tree: Mapping[str, Any], source: str) -> dict[str, object]:
    """Values by dotted names; lists and empty mappings are values."""
    found: dict[str, object] = {}
    for name, value in _flattened(tree, "", 0):
        found[name] = value
        if len(found) > _MOST_VALUES:
            raise BadInput(source, "text", f"has more than {_MOST_VALUES:,} values", "check the path")
    return found


def _flattened(tree: Mapping[Any, Any], prefix: str, depth: int) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value and depth < 10:
            yield from _flattened(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value


def check_names(
    known: KnownSettings, values: Mapping[str, object], source: str, *, model_stated: bool
) -> None:
    """Raise for a setting that is not known, and for one that is refused and not off.

    One that makes another model is accepted where the user states the model.
    """
    for name, value in values.items():
        kind = known.class_of(name)
        if kind == "unknown":
            raise UnknownName(f"{source}: setting", name, known.names)
        if kind == "model" and model_stated:
            continue
        if kind in _REFUSED and not is_off(value) and value not in known.usual.get(name, ()):
            rule, remedy = _REFUSED[kind]
            raise BadInput(f"{source}: {name}", shown(value), rule, remedy)


_REFUSED = {
    "model": ("makes it another model than the sizes say, which is not read", "state --model"),
    "parallelism": ("splits the job in a way that is not read", "describe the plan as a strategy"),
    "job": ("belongs to another job than pretraining", "name a configuration of pretraining"),
}


def is_off(value: object) -> bool:
    """Whether a setting says what holds without it."""
    if isinstance(value, bool):
        return not value
    return value is None or value in (0, 1, -1, "", "none", "null", [], {})


def shown(value: object) -> str:
    """A value as messages repeat it, nested ones cut short."""
    return value if isinstance(value, str) else reprlib.repr(value)


def matter_notes(known: KnownSettings, values: Mapping[str, object]) -> Iterator[str]:
    """What to say of settings that matter and are not predicted."""
    names = [
        name
        for name, each in values.items()
        if known.class_of(name) == "matters" and not is_off(each) and each not in known.usual.get(name, ())
    ]
    if names:
        yield f"Not considered, and it matters: {', '.join(names)}."
