"""Standard output and standard error of any encoding, on terminals, pipes and devices."""

import codecs
import contextlib
import io
import os
import sys
import unicodedata

from trainwright.errors import BadInput, TrainwrightError

_HANDLER = "trainwright.nearest"
_LOSSY = ("strict", "surrogateescape", "backslashreplace")  # what Python sets of its own accord
# What an encoding may lack and Unicode does not decompose: one character each, so that columns stay aligned.
_NEAREST = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "─": "-", "━": "-", "│": "|", "└": "`", "├": "|", "►": ">", "·": ".",
        "×": "x", "µ": "u", "→": ">", "τ": "t", "λ": "l", "±": "~", "⌈": "[", "⌉": "]", "…": "~", "≤": "<",
        "≥": ">", "█": "#", "▒": "+", "░": ".",
    }
)  # fmt: skip


def prepare_streams() -> None:
    """Have characters that an encoding lacks printed as their nearest ones, instead of an error."""
    codecs.register_error(_HANDLER, _nearest)
    if sys.stderr is None:  # closed by who started the program
        sys.stderr = io.StringIO()
    if sys.stdout is None:
        raise TrainwrightError("standard output: is closed; redirect it, to /dev/null if need be")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in _LOSSY:
            stream.reconfigure(errors=_HANDLER)


def _nearest(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(nearest, error.object[error.start : error.end])), error.end


def nearest(character: str) -> str:
    """A character in ASCII: as it looks, or as Unicode decomposes it, or a question mark."""
    text = unicodedata.normalize("NFKD", character.translate(_NEAREST))
    return text.encode("ascii", "ignore").decode("ascii")[:1] or "?"


def output_failure(error: OSError) -> TrainwrightError:
    """What to say of an error of the system that no command has explained: files have names, streams none."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return BadInput("file", str(error.filename), reason, "check the path")
    drop_output()
    return TrainwrightError(
        f"standard output: cannot be written ({reason}); redirect it to where there is room"
    )


def drop_output() -> None:
    """Forget what was printed and not taken, which Python would try to print again at its end."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
