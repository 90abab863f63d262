"""YAML of nested mappings of plain values: what configuration files need, and no more."""

import json
from collections.abc import Mapping


def render_yaml(tree: Mapping[str, object], depth: int = 0) -> str:
    """The YAML of a tree; every text is quoted, so that none is taken for a number or a truth."""
    return "".join(_line(key, value, depth) for key, value in tree.items())


def _line(key: str, value: object, depth: int) -> str:
    indent = "  " * depth
    if isinstance(value, Mapping):
        return f"{indent}{key}:\n{render_yaml(value, depth + 1)}" if value else f"{indent}{key}: {{}}\n"
    return f"{indent}{key}: {_scalar(value)}\n"


def _scalar(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.12f}".rstrip("0") + ("0" if value == int(value) else "")  # 1e-05 would be a text
    return json.dumps(value, ensure_ascii=False)  # texts, numbers, truths, null and lists are YAML too
