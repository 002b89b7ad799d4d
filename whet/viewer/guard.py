"""What the viewer answers at all: GET requests of bounded size from the pages it sent.

Text of models is shown, so nothing but the viewer's own script and style may run in the page (the
content security policy), and no other site may ask (host names, fetch metadata, a token).
"""

import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_TARGET = 8_192
"""Bytes of a path with its query."""
MAX_HEADERS = 32_768
COOKIE = "whet_token"
LOCAL_NAMES = {"localhost", "127.0.0.1", "[::1]"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No inline script or style, nothing from elsewhere, and no text that becomes markup."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """An ASGI application that lets only such requests through to another."""

    def __init__(self, app: ASGIApp, *, token: str | None, is_local: bool) -> None:
        self._app = app
        self._token = token
        self._is_local = is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                fields = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *fields]
            await send(message)

        answer = self._refuse(scope) or self._take_token(scope) or self._app
        await answer(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope) -> Response | None:
        """Say what is wrong with a request; None if nothing is."""
        fields = Headers(scope=scope)
        size = sum(len(name) + len(value) for name, value in fields.raw)
        target = len(scope["path"]) + len(scope["query_string"])
        site = fields.get("sec-fetch-site", "same-origin")
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the viewer only reads: it answers GET alone", 405)
        if target > MAX_TARGET or size > MAX_HEADERS or fields.get("content-length", "0") != "0":
            return PlainTextResponse("this request is too long", 413)
        if self._is_local and host_name(fields.get("host", "")) not in LOCAL_NAMES:
            return PlainTextResponse("this viewer answers to the name localhost alone", 421)
        if site in ("cross-site", "same-site") and scope["path"] != "/":
            return PlainTextResponse("another site asked for this", 403)
        if self._token is None or self._has_cookie(fields) or self._find_token(scope):
            return None
        return PlainTextResponse("open the address that whet view printed: it has the token", 401)

    def _has_cookie(self, fields: Mapping[str, str]) -> bool:
        return self._is_token(cookie_parser(fields.get("cookie", "")).get(COOKIE, ""))

    def _find_token(self, scope: Scope) -> bool:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"))
        is_given = any(name == "token" and self._is_token(value) for name, value in pairs)
        return scope["path"] == "/" and is_given

    def _take_token(self, scope: Scope) -> Response | None:
        """Move the token of an address into a cookie, so that it is neither shown nor copied."""
        if self._token is None or not self._find_token(scope):
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"))
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        answer = RedirectResponse(f"/?{rest}" if rest else "/", status_code=303)
        answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
        return answer

    def _is_token(self, text: str) -> bool:
        return self._token is not None and hmac.compare_digest(text.encode(), self._token.encode())


def host_name(host: str) -> str:
    """Take the port off; any is right, since a tunnel may have another at its other end.

    >>> host_name("localhost:8024"), host_name("[::1]:1"), host_name("evil.example")
    ('localhost', '[::1]', 'evil.example')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
