"""JSON and CSV of what commands answer."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from math import isfinite
from typing import Any

from trainwright.plan.strategy import Strategy


def render_json(value: object) -> str:
    """JSON of dataclasses, mappings and sequences; a strategy is its line of text and its knobs.

    It is ASCII, so that it says the same in every encoding that it may be printed in.
    """
    return json.dumps(plain(value), indent=2) + "\n"


def render_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """CSV with a header line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def plain_tree(tree: Mapping[str, object]) -> dict[str, Any]:
    """A mapping as what JSON has."""
    return {str(key): plain(each) for key, each in tree.items()}


def plain(value: object) -> object:
    """Dataclasses, mappings and sequences as what JSON has."""
    if isinstance(value, Strategy):
        return {"text": str(value)} | asdict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return None  # JSON has no infinities
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return plain(value.item())  # one number or truth value of an array
    return value
