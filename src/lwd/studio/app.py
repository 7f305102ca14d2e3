"""The Gradio app around the page: it serves on this machine, over a share link and as a Space."""

import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lwd.errors import InputError, SolveError, import_extra
from lwd.report.html import PAGE as SHARED
from lwd.studio.jobs import Cancelled
from lwd.studio.page import PAGE
from lwd.studio.service import Studio
from lwd.studio.settings import LETTERS, StudioSettings

FILES = {
    "draw.js": (SHARED / "draw.js", "text/javascript"),
    "studio.js": (PAGE / "studio.js", "text/javascript"),
    "page.css": (SHARED / "page.css", "text/css"),
    "studio.css": (PAGE / "studio.css", "text/css"),
}
HEAD = '<script src="studio/draw.js" defer></script>\n<script src="studio/studio.js" defer></script>\n'
HTML = '<div id="studio"><p>The studio needs JavaScript; nothing is loaded from elsewhere.</p></div>'
CSS = """
body, gradio-app, .gradio-container { background: #fdfdfb !important; }
@media (prefers-color-scheme: dark) { body, gradio-app, .gradio-container { background: #14161a !important; } }
.gradio-container, .gradio-container * { padding: 0 !important; max-width: none !important; border: 0 !important; }
.gradio-container main, .gradio-container .wrap { margin: 0 !important; }
footer { display: none !important; }
"""
"""Gradio's frame steps back: the page has the report's look."""
OPEN = re.compile(
    r"/|/config/?|/info|/theme\.css|/favicon\.ico|/robots\.txt|/manifest\.json|/(?:assets|static|svelte|studio)/.*"
    r"|/gradio_api/(?:info|startup-events|heartbeat/\w+|theme\.css|app_id)/?"
)
"""All that is served; Gradio's routes for files, uploads and proxies are not."""
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; font-src 'self' data:; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; base-uri 'self'; form-action 'none'"
)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OTHER_NAME = "the studio answers as localhost only; start it with another --host to use other names"
USER = re.compile(r"[0-9a-f]{32}")


class Guard:
    """Serve only what the page needs; forbid the page to ask other machines for anything.

    hosts: names under which the studio answers (none: all). A page of another site whose name was pointed at this
    machine (DNS rebinding) asks under its own name.
    """

    def __init__(self, app: ASGIApp, policy: str, hosts: tuple[str, ...] = ()) -> None:
        self.app, self.policy, self.hosts = app, policy, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if self.hosts and _host(scope) not in self.hosts:
            return await PlainTextResponse(OTHER_NAME, 403)(scope, receive, send)
        if not OPEN.fullmatch(scope["path"]):
            return await PlainTextResponse("not found", 404)(scope, receive, send)

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start" and self.policy:
                headers = {"content-security-policy": self.policy, "referrer-policy": "no-referrer"}
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in headers.items())]
            await send(message)

        return await self.app(scope, receive, with_policy)


def _host(scope: Scope) -> str:
    """The name that a request was sent to, without the port."""
    found = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
    return re.sub(r":\d+$", "", found)


class Routes:
    """The page's own requests."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio

    def all(self) -> list[Route]:
        return [
            Route("/studio/run/{name}", self.run, methods=["POST"]),
            Route("/studio/cancel", self.cancel, methods=["POST"]),
            Route("/studio/{name}", self.answer, methods=["POST"]),
            Route("/studio/{name}", self.file, methods=["GET"]),
        ]

    async def file(self, request: Request) -> Response:
        found = FILES.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("not found", 404)
        return Response(found[0].read_bytes(), media_type=found[1], headers={"cache-control": "no-cache"})

    async def answer(self, request: Request) -> Response:
        try:
            value = await _body(request)
            answer = await run_in_threadpool(self.studio.answer, request.path_params["name"], value)
            return JSONResponse(answer)  # refuses numbers that JSON does not have
        except Exception as error:
            return JSONResponse({"error": explained(error)}, 400)

    async def run(self, request: Request) -> Response:
        try:
            user, value = _user(request), await _body(request)
            reports = await run_in_threadpool(self.studio.run, request.path_params["name"], user, value)
        except Exception as error:
            return JSONResponse({"error": explained(error)}, 400)
        lines = iterate_in_threadpool(_lines(reports))
        # Not compressed, or reports would wait in the compressor.
        headers = {"content-encoding": "identity", "cache-control": "no-store"}
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)

    async def cancel(self, request: Request) -> Response:
        try:
            return JSONResponse({"cancelled": self.studio.desk.cancel(_user(request))})
        except InputError as error:
            return JSONResponse({"error": str(error)}, 400)


def _lines(reports: Iterator[dict[str, Any]]) -> Iterator[str]:
    try:
        for report in reports:
            yield json.dumps(report, allow_nan=False) + "\n"
    except Exception as error:
        yield json.dumps({"error": explained(error)}) + "\n"


def explained(error: Exception) -> str:
    """One line for the user; anything unexpected is printed in full for whoever runs the studio."""
    if isinstance(error, InputError | SolveError):
        return str(error)
    if isinstance(error, Cancelled):
        return "cancelled"
    traceback.print_exception(error, file=sys.stderr)
    return f"internal error ({type(error).__name__}); the terminal of the studio shows more"


def _user(request: Request) -> str:
    user = request.headers.get("x-studio-user", "")
    if not USER.fullmatch(user):
        raise InputError("a request must carry the key of its page")
    return user


async def _body(request: Request) -> Any:
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise InputError("a request must be JSON")  # no other page can send this without being asked first
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > LETTERS:
            raise InputError(f"a request has at most {LETTERS} characters")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError("a request must be JSON") from error


def launch(settings: StudioSettings | None = None, block: bool = True, browser: bool = False) -> tuple[Any, str]:
    """Serve the studio; returns Gradio's Blocks and the local address. block: until Ctrl-C.

    In app.py of a Space: `from lwd.studio.app import launch; launch()`.
    """
    settings = settings or StudioSettings()
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # no request leaves the machine
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    gradio = import_extra("gradio", "studio", "the studio")
    studio = Studio(settings)
    with gradio.Blocks(title="lwd studio", analytics_enabled=False) as blocks:
        gradio.HTML(HTML, padding=False)
    policy = "" if settings.share else POLICY
    elsewhere = settings.share or os.environ.get("GRADIO_SERVER_NAME") or os.environ.get("SPACE_ID")
    hosts = LOOPBACK if settings.host in LOOPBACK and not elsewhere else ()
    _, address, shared = blocks.launch(
        # Without a wish, Gradio asks the environment: a Space sets its own address.
        server_name=settings.host if "host" in settings.model_fields_set else None,
        server_port=settings.port,
        share=settings.share,
        inbrowser=browser,
        prevent_thread_lock=True,
        quiet=True,
        ssr_mode=False,
        footer_links=[],
        enable_monitoring=False,
        theme=gradio.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
        css=CSS,
        head=HEAD,
        app_kwargs={"routes": Routes(studio).all(), "middleware": [Middleware(Guard, policy=policy, hosts=hosts)]},
    )
    print(f"lwd studio: {shared or address}    (Ctrl-C ends it)", flush=True)
    if block:
        blocks.block_thread()
    return blocks, address
