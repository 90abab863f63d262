"""What every request passes: who asks, how much, how long; and what every answer tells the browser."""

import asyncio
import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from trainwright.web.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "trainwright-token"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class _TooLarge(Exception):
    pass


class _TooSlow(Exception):
    pass


class Guard:
    """An application behind the rules of the settings."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with limits and headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal:
            await _refuse(_with_headers(send, b""), *refusal)
            return
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await _with_headers(send, self._cookie(scope))(message)

        try:
            body = await self._body(receive, headers, self._most_bytes(scope))
        except _TooLarge:
            most = f"{self._most_bytes(scope):,} bytes"
            await _refuse(noted, 413, f"the request has more than {most}; send less")
            return
        except _TooSlow:
            await _refuse(noted, 408, f"the request took more than {self._settings.body_s:g} s to arrive")
            return
        await self._app(scope, _again(body, receive), noted)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "").rsplit(":", 1)[0].strip("[]")
        if not self._settings.token and host not in LOOPBACK:
            return 421, "this server answers its own machine only; start it with --token for others"
        if self._settings.token and not self._knows(scope, headers):
            return 401, "a token is needed: open the address with ?token=..., or send it as a bearer token"
        if scope["method"] not in ("GET", "HEAD", "POST", "DELETE"):
            return 405, "the method is not known; use GET, POST or DELETE"
        unknown = set(_query(scope)) - {"token"}
        if unknown and scope["path"].startswith("/api/"):
            name = min(unknown)[:80]
            return 422, f'query parameter "{name}": is not known here; send fields as JSON in the body'
        sent = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and sent != "application/json":
            return 415, "the body must be application/json"
        return None

    def _knows(self, scope: Scope, headers: dict[str, str]) -> bool:
        offered = [headers.get("authorization", "").removeprefix("Bearer ")]
        cookie = SimpleCookie()
        with contextlib.suppress(CookieError):
            cookie.load(headers.get("cookie", ""))
        offered += [cookie[COOKIE].value] if COOKIE in cookie else []
        offered += [_token(scope)]
        return any(hmac.compare_digest(each.encode(), self._settings.token.encode()) for each in offered)

    def _cookie(self, scope: Scope) -> bytes:
        """The token as a cookie, when it came with the address."""
        if not self._settings.token or not _token(scope):
            return b""
        return f"{COOKIE}={self._settings.token}; HttpOnly; SameSite=Strict; Path=/".encode()

    def _most_bytes(self, scope: Scope) -> int:
        traces = scope["path"] == "/api/compare"
        return self._settings.most_trace_bytes if traces else self._settings.most_body_bytes

    async def _body(self, receive: Receive, headers: dict[str, str], most_bytes: int) -> bytes:
        """The whole body, if it is neither too large nor too slow."""
        stated = headers.get("content-length", "0")
        if not stated.isdecimal() or int(stated[:20]) > most_bytes:
            raise _TooLarge
        body = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_s):
                while True:
                    message = await receive()
                    body += message.get("body", b"")
                    if len(body) > most_bytes:
                        raise _TooLarge
                    if message["type"] != "http.request" or not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise _TooSlow from None


def _token(scope: Scope) -> str:
    return _query(scope).get("token", [""])[0]


def _query(scope: Scope) -> dict[str, list[str]]:
    return parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read, once more; then whatever follows."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_headers(send: Send, cookie: bytes) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [(b"set-cookie", cookie)] if cookie else []
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS, *extra]}
        await send(message)

    return sent


async def _refuse(send: Send, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
