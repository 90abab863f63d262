"""`trainwright serve`: the planner in a browser."""

import argparse
import os
from importlib.util import find_spec

from trainwright.errors import BadInput

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LEAST_TOKEN = 16  # characters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)"
    )
    parser.add_argument("--port", default="8321", metavar="N", help="the port (default: 8321; 0: any)")
    parser.add_argument(
        "--token", metavar="TEXT",
        help="whoever asks must know it; needed for other addresses than this machine's "
        "(also: the variable TRAINWRIGHT_TOKEN, which other users of the machine do not see)",
    )  # fmt: skip
    parser.add_argument("--workers", metavar="N", help="processes that answer (default: one a core, 2 to 8)")
    parser.add_argument("--jobs", default="2", metavar="N", help="studies and sweeps at a time (default: 2)")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    for name in ("fastapi", "uvicorn"):
        if find_spec(name) is None:
            raise BadInput("serve", name, "is not installed", "pip install 'trainwright[web]'")
    import uvicorn

    from trainwright.units import parse_whole
    from trainwright.web.app import build_app
    from trainwright.web.settings import Settings

    token = options.token or os.environ.get("TRAINWRIGHT_TOKEN", "")
    _check_token(options.host, token)
    usual = min(max(os.cpu_count() or 1, 2), 8)
    settings = Settings(
        host=options.host, token=token,
        port=0 if options.port == "0" else parse_whole(options.port, "--port", most=65_535),
        workers=parse_whole(options.workers, "--workers", most=256) if options.workers else usual,
        most_jobs=parse_whole(options.jobs, "--jobs", most=64),
    )  # fmt: skip
    listening = _listen(settings)
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    print(f"Trainwright: http://{shown}:{listening.getsockname()[1]}/  (Ctrl-C ends it)", flush=True)
    config = uvicorn.Config(
        build_app(settings), log_level="warning", timeout_keep_alive=10, limit_concurrency=1_000,
        server_header=False, timeout_graceful_shutdown=3,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])
    return 0


def _check_token(host: str, token: str) -> None:
    if host not in _LOOPBACK and not token:
        rule = "can be reached from other machines"
        raise BadInput("--host", host, rule, "add --token with a secret that users must know")
    if token and (len(token) < _LEAST_TOKEN or not all(each.isalnum() or each in "-_.~" for each in token)):
        rule = f"is not {_LEAST_TOKEN} or more letters, digits and -_.~"
        raise BadInput(
            "--token", "…", rule, "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )


def _listen(settings: "Settings") -> "socket.socket":  # type: ignore[name-defined]  # noqa: F821
    import socket

    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        where = f"{settings.host}:{settings.port}"
        raise BadInput(
            "serve", where, f"cannot listen there ({error.strerror})", "choose another --port"
        ) from None
    listening.listen(512)
    return listening
