"""Files that are whole or not there."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from math import isfinite
from pathlib import Path

from trainwright.errors import BadInput
from trainwright.plan.strategy import Strategy


def save_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, then rename it: a reader never sees half of it."""
    save_bytes(path, text.encode())


def save_bytes(path: Path, content: bytes) -> None:
    """As `save_text`, for what is no text."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise BadInput(
            "file", str(path), f"cannot be written ({error.strerror})", "choose another path"
        ) from None


def make_folder(path: Path) -> None:
    """Make a directory, and those around it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            "directory", str(path), f"cannot be made ({error.strerror})", "choose another path"
        ) from None


def render_json(value: object) -> str:
    """JSON of dataclasses, mappings and sequences; a strategy is its line of text and its knobs."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n"


def render_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """CSV with a header line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


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
