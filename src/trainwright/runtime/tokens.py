"""Files of tokens, mapped into memory: numbers one after another, with a note of what they are."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput
from trainwright.runtime.corpus import TEXT

BUILT_IN = "built-in"  # names the corpus that needs no file
_DTYPES = {"uint8": "<u1", "uint16": "<u2", "uint32": "<u4"}
_DEFAULT_DTYPE = "uint16"
_SCANNED = 1 << 26  # tokens that are checked before a run; all others when they are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A text as tokens; `vocab` is how many kinds there are, if the file says so."""

    name: str
    values: NDArray[np.unsignedinteger[Any]]
    vocab: int | None = None


def load_tokens(text: str) -> Tokens:
    """The tokens of a `.bin` or `.npy` file, or of the built-in corpus, whose tokens are bytes.

    A `.bin` file is raw little-endian numbers: uint16, unless `FILE.json` beside it says
    `{"dtype": "uint32"}`; there `vocab` may be stated too. A `.npy` file is an array of one dim.
    """
    if text == BUILT_IN:
        return Tokens(name=text, values=np.frombuffer(TEXT.encode(), dtype=np.uint8), vocab=256)
    path = Path(text)
    try:
        if path.suffix == ".npy":
            return Tokens(name=text, values=_array(path))
        note = _note(Path(f"{text}.json"))
        return Tokens(name=text, values=_numbers(path, note), vocab=note.get("vocab"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise _bad(text, f"cannot be read ({reason})", f'check the path, or use "{BUILT_IN}"') from None


def _array(path: Path) -> NDArray[Any]:
    try:
        found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError):
        raise _bad(str(path), "is not a NumPy array", "save it with numpy.save") from None
    if found.ndim != 1 or found.dtype.kind not in "iu":
        rule = f"is {found.dtype} of shape {found.shape}"
        raise _bad(str(path), rule, "save whole numbers in one dim")
    return found


def _numbers(path: Path, note: Mapping[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(_DTYPES[note.get("dtype", _DEFAULT_DTYPE)])
    size = path.stat().st_size
    if size == 0 or size % dtype.itemsize:
        rule = f"has {size} bytes, which are no whole count of {dtype.name}"
        raise _bad(str(path), rule, f"write it anew, or state the dtype in {path.name}.json")
    return np.memmap(path, dtype=dtype, mode="r")


def _note(path: Path) -> Mapping[str, Any]:
    """What the file beside a `.bin` says, checked; nothing if there is none."""
    if not path.exists():
        return {}
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise _bad(str(path), "is not JSON", 'write it like {"dtype": "uint16"}') from None
    if not isinstance(note, dict) or note.get("dtype", _DEFAULT_DTYPE) not in _DTYPES:
        raise _bad(str(path), "states no dtype that is known", f"use one of {', '.join(_DTYPES)}")
    if not isinstance(note.get("vocab", 1), int):
        raise _bad(str(path), "vocab is no whole number", "correct it")
    return note


def check_tokens(tokens: Tokens, vocab: int) -> None:
    """Raise if a model would be given tokens that it has no row for; looks at the first 64 million."""
    if tokens.vocab is not None and tokens.vocab > vocab:
        rule = f"has a vocabulary of {tokens.vocab}, and the model one of {vocab}"
        raise _bad(tokens.name, rule, "use a model or a file with the other's vocabulary")
    check_values(tokens, tokens.values[:_SCANNED], vocab, 0)


def check_values(tokens: Tokens, values: NDArray[Any], vocab: int, start: int) -> None:
    """Raise if a token among some values, which start at a place of the file, is none of the model's."""
    wrong = (values >= vocab) | (values < 0)
    if wrong.any():
        at = int(np.argmax(wrong))
        rule = f"token {start + at} is {int(values[at])}, and the model's vocabulary is {vocab}"
        raise _bad(tokens.name, rule, "use the tokenizer of the model, or state the dtype of the file")


def _bad(name: str, rule: str, remedy: str) -> BadInput:
    return BadInput("token file", name, rule, remedy)
