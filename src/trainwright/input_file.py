"""Text and TOML that commands read; an error names the file and what is wrong with it."""

import tomllib
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput

TOO_LARGE = "has numbers too long or parts too deep"


def read_text(path: Path, thing: str) -> str:
    """The text of a file in UTF-8, with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadInput(thing, str(path), "does not exist", "check the path") from None
    except OSError as error:
        raise BadInput(thing, str(path), f"cannot be read ({error.strerror})", "check the path") from None
    except UnicodeDecodeError as error:
        raise BadInput(thing, str(path), f"is not text in UTF-8 ({error.reason})", "check the file") from None


def load_toml(path: Path, thing: str) -> dict[str, Any]:
    """The table in a file."""
    return parse_toml(read_text(path, thing), thing, str(path))


def parse_toml(text: str, thing: str, name: str) -> dict[str, Any]:
    """The table that a text describes; errors call it by its name."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(thing, name, f"is not TOML ({error})", "fix that line") from None
    except (ValueError, RecursionError):
        raise BadInput(thing, name, TOO_LARGE, "fix it") from None
