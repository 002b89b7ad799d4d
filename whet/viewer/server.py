"""`whet view`: serve a folder of runs as a web page, with its files, and JSON under /api.

Only GET requests of bounded size are answered, and only for the viewer's own pages. Pages show text
of models, so the content security policy allows only the viewer's own scripts and styles, and no
other site may send requests (host names, fetch metadata, a token). Responses of the API are tagged:
if nothing has changed, a page gets an empty 304.
"""

import hashlib
import hmac
import json
import secrets
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request, cookie_parser
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.errors import ConfigError, DataError, WhetError
from whet.store.files import to_finite
from whet.store.view_cache import cache_folder
from whet.track.progress import say
from whet.types import Json
from whet.viewer.api import Api, Params
from whet.viewer.facts import Facts
from whet.viewer.run_folders import Root

STATIC = Path(__file__).parent / "static"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
PORT = 8024
TRIED_PORTS = 20
"""Ports tried from the first on, if none is asked for."""
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
REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""A report is a page of its own, which anybody may have written: it runs no script here, and is
not of the viewer's origin."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def serve_viewer(
    folder: Path, *, host: str, port: int | None, token: bool, is_opened: bool
) -> None:
    """Serve a folder; an address other than this machine's own needs a token."""
    is_local = host in LOCAL_HOSTS
    secret = secrets.token_urlsafe(24) if token or not is_local else None
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    app = build_app(folder, cache, token=secret, is_local=is_local)
    listener = _listen(host, port)
    actual = listener.getsockname()[1]
    shown = host if is_local and ":" not in host else socket.gethostname()
    address = f"http://{shown}:{actual}/" + (f"?token={secret}" if secret else "")
    say(f"{folder} at {address}")
    if is_local:
        say(f"from another machine: ssh -L {actual}:localhost:{actual} {socket.gethostname()}")
    say("Ctrl-C stops it; runs are only read")
    if is_opened:
        webbrowser.open(address)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=65_536,
    )
    uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int | None) -> socket.socket:
    """Open the requested port, or the first free one of a few."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = "127.0.0.1" if host == "localhost" else host
    ports = range(PORT, PORT + TRIED_PORTS) if port is None else [port]
    for number in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, number))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            if port is not None:
                raise ConfigError(f"--host {host} --port {port}: {error.strerror}") from error
    raise ConfigError(f"no port from {PORT} to {PORT + TRIED_PORTS - 1} is free; give one: --port")


def build_app(folder: Path, cache: Path, *, token: str | None, is_local: bool) -> ASGIApp:
    """Make the application for a folder of runs."""
    facts = Facts(cache)
    facts.start()
    api = Api(Root(folder), cache, facts)
    routes = [Route(f"/api/{name}", _to_route(ask)) for name, ask in api.routes().items()]
    app = Starlette(
        routes=[
            Route("/", lambda request: FileResponse(STATIC / "index.html")),
            *routes,
            Route("/report", _to_report(api)),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )
    return Guard(GZipMiddleware(app, compresslevel=5), token=token, is_local=is_local)


def _to_route(ask: Callable[[Params], Json]) -> Callable[[Request], object]:
    async def answer(request: Request) -> Response:
        params = dict(request.query_params)
        status, body = await run_in_threadpool(_answer, ask, params)
        tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        fields = {"etag": tag, "cache-control": "no-cache"}
        if status == 200 and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=fields)
        return Response(body, status, fields, media_type="application/json")

    return answer


def _to_report(api: Api) -> Callable[[Request], object]:
    async def answer(request: Request) -> Response:
        try:
            path = await run_in_threadpool(api.report, request.query_params.get("folder", ""))
        except DataError as error:
            return PlainTextResponse(str(error), 404)
        fields = {"content-security-policy": REPORT_POLICY, "cache-control": "no-cache"}
        return FileResponse(path, headers=fields, media_type="text/html; charset=utf-8")

    return answer


def _answer(ask: Callable[[Params], Json], params: Params) -> tuple[int, bytes]:
    """Answer a request; an error in the request or in a file becomes a sentence."""
    try:
        return 200, _to_body(ask(params))
    except KeyError as error:
        return 400, _to_body({"error": f"this request needs {error}"})
    except DataError as error:
        return 404, _to_body({"error": str(error)})
    except WhetError as error:
        return 400, _to_body({"error": str(error)})
    except RecursionError:
        return 400, _to_body({"error": "this is nested too deeply to be shown"})
    except OSError as error:
        return 404, _to_body({"error": error.strerror or "a file cannot be read"})


def _to_body(value: Json) -> bytes:
    return json.dumps(to_finite(value), separators=(",", ":"), allow_nan=False).encode()


class Guard:
    """An ASGI application that passes allowed requests on to another."""

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
                own = {name for name, _ in message.get("headers", ())}
                fields = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                missing = [field for field in fields if field[0] not in own]
                message["headers"] = [*message.get("headers", ()), *missing]
            await send(message)

        respond = self._refuse_request(scope) or self._take_token(scope) or self._app
        await respond(scope, receive, send_with_headers)

    def _refuse_request(self, scope: Scope) -> Response | None:
        """Return an error response if a request is not allowed, else None."""
        fields = Headers(scope=scope)
        size = sum(len(name) + len(value) for name, value in fields.raw)
        target = len(scope["path"]) + len(scope["query_string"])
        site = fields.get("sec-fetch-site", "same-origin")
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the viewer only reads: it answers only GET", 405)
        if target > MAX_TARGET or size > MAX_HEADERS or fields.get("content-length", "0") != "0":
            return PlainTextResponse("this request is too long", 413)
        if self._is_local and host_name(fields.get("host", "")) not in LOCAL_NAMES:
            return PlainTextResponse("this viewer answers only to the name localhost", 421)
        if site in ("cross-site", "same-site") and scope["path"] != "/":
            return PlainTextResponse("another site asked for this", 403)
        cookie = cookie_parser(fields.get("cookie", "")).get(COOKIE, "")
        if self._token is None or self._is_token(cookie) or self._find_token(scope):
            return None
        return PlainTextResponse("open the address that whet view printed: it has the token", 401)

    def _find_token(self, scope: Scope) -> bool:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"))
        is_given = any(name == "token" and self._is_token(value) for name, value in pairs)
        return scope["path"] == "/" and is_given

    def _take_token(self, scope: Scope) -> Response | None:
        """Move the token from the address into a cookie, so that it is neither shown nor copied."""
        if self._token is None or not self._find_token(scope):
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"))
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        redirect = RedirectResponse(f"/?{rest}" if rest else "/", status_code=303)
        redirect.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
        return redirect

    def _is_token(self, text: str) -> bool:
        return self._token is not None and hmac.compare_digest(text.encode(), self._token.encode())


def host_name(host: str) -> str:
    """Return a host without its port, which a tunnel may change.

    >>> host_name("localhost:8024"), host_name("[::1]:1"), host_name("evil.example")
    ('localhost', '[::1]', 'evil.example')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
