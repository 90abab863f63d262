"""Ray's token authentication: a connection that presents the token this machine has, if it has one.

Ray reads the token from RAY_AUTH_TOKEN, from the file that RAY_AUTH_TOKEN_PATH names, or from
~/.ray/auth_token, and asks for one if RAY_AUTH_MODE is "token". `ray start` turns that on where it finds a
token, but a driver that connects to HOST:PORT does not, and fails after half a minute. A cluster without
authentication ignores tokens.
"""

import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_MODE, _TOKEN, _PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


@contextmanager
def token_authentication(address: str) -> Iterator[None]:
    """Connections to Ray inside use a token: the one there is, or for a `local` cluster one of its own.

    A mode that the user has set is kept. Ray changes these variables too; those from before hold afterwards.
    """
    before = {name: os.environ.get(name) for name in (_MODE, _TOKEN, _PATH)}
    os.environ.update(_settings(address, os.environ))
    _reload_settings()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _reload_settings()


def _settings(address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to set for a connection, given those that are set."""
    if _MODE in environment:
        return {}
    if has_token(environment):
        return {_MODE: "token"}
    if address == "local":  # otherwise Ray writes a token to the home directory
        return {_MODE: "token", _TOKEN: secrets.token_hex(32)}
    return {}


def has_token(environment: Mapping[str, str]) -> bool:
    """Whether there is a token where Ray looks for one."""
    if environment.get(_TOKEN):
        return True
    path = environment.get(_PATH)
    try:
        return bool((Path(path) if path else Path.home() / ".ray" / "auth_token").read_text().strip())
    except (OSError, ValueError, RuntimeError):  # no file, no text, no home
        return False


def _reload_settings() -> None:
    """Have Ray read the variables again, if it has read them; a release without tokens reads nothing."""
    raylet = sys.modules.get("ray._raylet")
    loader = getattr(raylet, "AuthenticationTokenLoader", None)
    if raylet is not None and loader is not None:
        raylet.Config.initialize("")
        loader.instance().reset_cache()
