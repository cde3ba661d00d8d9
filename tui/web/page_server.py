"""Textual's server of pages, with our page, our guard and our way of ending."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from aiohttp import WSCloseCode, web
from textual_serve.app_service import AppService
from textual_serve.server import Server

from tui.web.access import RequestGuard
from tui.web.clients import TOUCH

_HERE = Path(__file__).resolve().parent
_GOODBYE = 3.0
_HEARTBEAT = 15.0
_KEEP_ALIVE = 2.0
"""Short: a browser would ask over a connection that its network has long forgotten."""


class PageServer(Server):
    """Serves one command, a process a page."""

    def __init__(
        self, command: str, guard: RequestGuard, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(command, title="tfmux", templates_path=_HERE / "templates")
        self._guard = guard
        self._tls = tls
        self._pages: set[asyncio.Task[object]] = set()

    async def run(self, listener: socket.socket, listening: Callable[[], None]) -> None:
        """Serves until SIGINT or SIGTERM; `listening` is called when pages may come."""
        enough = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, enough.set)
        runner = web.AppRunner(
            await self._make_app(),
            access_log=None,
            shutdown_timeout=_GOODBYE,
            keepalive_timeout=_KEEP_ALIVE,
        )
        await runner.setup()
        try:
            await web.SockSite(runner, listener, ssl_context=self._tls).start()
            listening()
            await enough.wait()
        finally:
            await runner.cleanup()

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        self._guard.watch(app)
        app.router.add_static("/page", _HERE / "static")
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Says nothing: stdout is for the address."""

    async def on_shutdown(self, app: web.Application) -> None:
        """Closes the pages; else the server would wait for them to go by themselves."""
        for page in self._pages:
            page.cancel()
        if self._pages:
            await asyncio.wait(self._pages, timeout=3 * _GOODBYE)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Runs a page's process until either side closes."""
        websocket = web.WebSocketResponse(heartbeat=_HEARTBEAT, timeout=_GOODBYE)
        await websocket.prepare(request)
        page = _Page(
            f"{self.command} {TOUCH}" if "touch" in request.query else self.command,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=partial(_close, websocket),
            download_manager=self.download_manager,
        )
        task = asyncio.current_task()
        assert task is not None
        self._pages.add(task)
        try:
            width, height = (_cells(request, name) for name in ("width", "height"))
            await page.start(width or 80, height or 24)
            await self._process_messages(websocket, page)
        except (ConnectionError, ValueError, KeyError, TypeError, AssertionError):
            pass  # the browser has gone, or says what no page of ours says
        except asyncio.CancelledError:
            with suppress(TimeoutError, ConnectionError):  # the server ends
                async with asyncio.timeout(_GOODBYE):
                    await websocket.close(code=WSCloseCode.GOING_AWAY)
        finally:
            self._pages.discard(task)
            await _end(page)
            await websocket.close()
        return websocket


class _Page(AppService):
    """A page's process; the connection ends with it, however it ended."""

    async def run(self) -> None:
        """Passes on what the process writes."""
        try:
            await super().run()
        finally:
            await self.remote_close()


async def _end(page: AppService) -> None:
    """Asks the page's process to go; one that cannot, as it writes to nobody, is killed."""
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(_GOODBYE):
            await page.stop()
    process = page._process
    if process is None:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_GOODBYE):
            await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _close(websocket: web.WebSocketResponse) -> None:
    await websocket.close()


def _cells(request: web.Request, name: str) -> int:
    value = request.query.get(name, "")
    return min(int(value), 1000) if value.isdecimal() else 0
