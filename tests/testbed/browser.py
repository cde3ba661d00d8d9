"""A real browser without a window, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from tests.support.patience import PATIENCE

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--window-size=1280,800",
)
# The page keeps its terminal to itself: it is caught where it is stored.
_CATCH = """
Object.defineProperty(Object.prototype, 'terminal', {
  configurable: true,
  set(value) {
    if (value && value.buffer) window.caught = value;
    Object.defineProperty(this, 'terminal', {value, writable: true, configurable: true});
  },
});
"""
_READ = """
(() => {
  const buffer = window.caught?.buffer?.active;
  if (!buffer) return '';
  const lines = [];
  for (let y = 0; y < buffer.length; y++) lines.push(buffer.getLine(y).translateToString(true));
  return lines.join('\\n');
})()
"""
_PLACE = """
(() => {
  const {buffer: {active}, cols, rows} = window.caught;
  const box = document.querySelector('.xterm-screen').getBoundingClientRect();
  for (let y = 0; y < active.length; y++) {
    const found = active.getLine(y).translateToString().indexOf(TEXT);
    if (found < 0) continue;
    const x = box.left + (found + TEXT.length / 2) * box.width / cols;
    return JSON.stringify([x, box.top + (y + 0.5) * box.height / rows]);
  }
})()
"""
_KEYS = {
    "F9": ("F9", 120, ""),
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
}


_CUT = "net::ERR_NETWORK_CHANGED"
"""Chromium gives up what it loads when a testbed beside it makes a network."""


def missing() -> str | None:
    """Why there is no browser here, or None."""
    return None if shutil.which("chromium") else "no chromium here"


class Tab:
    """One page."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session
        self.requested: list[str] = []
        """Every address that the page has asked for."""
        self.errors: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol."""
        return await self._browser.call(method, params, self._session)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=script, awaitPromise=True)
        return answer["result"].get("value")

    async def open(self, url: str) -> None:
        """Goes to an address."""
        await self.call("Page.navigate", url=url)

    async def reload(self) -> None:
        """What F5 does."""
        await self.evaluate("window.caught = undefined")
        await self.call("Page.reload")

    async def screen(self) -> str:
        """What stands in the page's terminal."""
        return str(await self.evaluate(_READ) or "")

    async def shown(self, selector: str) -> str:
        """The text of an element of the page; empty where it cannot be seen."""
        found = f"document.querySelector({json.dumps(selector)})"
        return str(await self.evaluate(f"{found}?.checkVisibility() ? {found}.innerText : ''"))

    async def wait_until_shown(self, selector: str, text: str = "") -> str:
        """Waits until an element can be seen and says a text."""
        deadline = time.monotonic() + PATIENCE
        while not (said := await self.shown(selector)) or text not in said:
            assert time.monotonic() < deadline, f"never in {selector}: {text!r}, but {said!r}"
            await asyncio.sleep(0.1)
        return said

    async def banner(self) -> str:
        """What the page says about its connection, over its terminal; empty where nothing."""
        return await self.shown("#banner")

    async def wait_for_banner(self, text: str) -> str:
        """Waits until the page says a text about its connection; for none, until it says
        nothing."""
        if text:
            return await self.wait_until_shown("#banner", text)
        deadline = time.monotonic() + PATIENCE
        while said := await self.banner():
            assert time.monotonic() < deadline, f"still in the banner: {said!r}"
            await asyncio.sleep(0.1)
        return ""

    async def _place(self, text: str) -> tuple[float, float]:
        x, y = json.loads(await self.evaluate(_PLACE.replace("TEXT", json.dumps(text))))
        return x, y

    async def touch(self, text: str) -> None:
        """Touches the middle of a text on the screen with a finger."""
        x, y = await self._place(text)
        points = [{"x": x, "y": y}]
        await self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=points)
        await self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    async def click(self, text: str) -> None:
        """Clicks on the middle of a text on the screen with a mouse."""
        x, y = await self._place(text)
        for kind in ("mousePressed", "mouseReleased"):
            body = {"x": x, "y": y, "button": "left", "clickCount": 1}
            await self.call("Input.dispatchMouseEvent", type=kind, **body)

    async def wait_for(self, *texts: str, timeout: float = PATIENCE) -> str:
        """Waits until all texts stand on the screen together."""
        return await self.wait_until(lambda s: all(t in s for t in texts), str(texts), timeout)

    async def wait_until(
        self, condition: Callable[[str], bool], what: str, timeout: float = PATIENCE
    ) -> str:
        """Waits until the screen is as wanted."""
        deadline = time.monotonic() + timeout
        while not condition(screen := await self.screen()):
            if time.monotonic() > deadline:
                around = await self.evaluate("document.body.className")
                raise AssertionError(f"never in the page: {what}\n{screen}\n{around} {self.errors}")
            if any(_CUT in error for error in self.errors):
                self.errors = [error for error in self.errors if _CUT not in error]
                await self.reload()
            await asyncio.sleep(0.1)
        return screen

    async def keys(self, *keys: str) -> None:
        """Presses keys: one character, or a name."""
        for key in keys:
            name, code, text = _KEYS.get(key, (key, ord(key.upper()) if len(key) == 1 else 0, key))
            body = {"key": name, "windowsVirtualKeyCode": code, "code": name}
            kind = "keyDown" if text else "rawKeyDown"
            await self.call("Input.dispatchKeyEvent", type=kind, text=text, **body)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **body)

    async def picture(self, path: Path) -> None:
        """A PNG of the page."""
        answer = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    async def close(self) -> None:
        """Closes the tab."""
        await self._browser.call("Target.closeTarget", {"targetId": self._target})


class Browser:
    """Chromium with a profile of its own; all that it asks for on the network is kept."""

    def __init__(self, folder: Path) -> None:
        self._profile = folder
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}

    async def __aenter__(self) -> Self:
        self._process = subprocess.Popen(
            ["chromium", *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            port, path = await self._listens()
            self._http = aiohttp.ClientSession()
            self._socket = await self._http.ws_connect(
                f"ws://127.0.0.1:{port}{path}", max_msg_size=0
            )
        except BaseException:
            self._kill()
            raise
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader.cancel()
        await self._socket.close()
        await self._http.close()
        self._kill()

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # its own session: nobody else's browser
        self._process.wait()

    async def _listens(self) -> tuple[str, str]:
        told = self._profile / "DevToolsActivePort"
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self._process.poll() is None, "chromium ended"
            assert time.monotonic() < deadline, "chromium never listened"
            if told.exists() and len(lines := told.read_text().splitlines()) == 2:
                return lines[0], lines[1]
            await asyncio.sleep(0.05)

    async def call(
        self, method: str, params: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        """A command of the protocol; its result."""
        self._numbers += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._numbers] = answer
        body: dict[str, Any] = {"id": self._numbers, "method": method, "params": params}
        await self._socket.send_json(body | ({"sessionId": session} if session else {}))
        async with asyncio.timeout(PATIENCE):
            said: dict[str, Any] = await answer
        assert "error" not in said, (method, said)
        return dict(said["result"])

    async def tab(self) -> Tab:
        """A new tab that shows nothing yet."""
        target = (await self.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
        answer = await self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = self._tabs[answer["sessionId"]] = Tab(self, target, answer["sessionId"])
        for domain in ("Network", "Page", "Runtime", "Log"):
            await tab.call(f"{domain}.enable")
        await tab.call("Page.addScriptToEvaluateOnNewDocument", source=_CATCH)
        return tab

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif (tab := self._tabs.get(said.get("sessionId", ""))) is not None:
                _note(tab, said["method"], said["params"])


def _note(tab: Tab, method: str, params: dict[str, Any]) -> None:
    match method:
        case "Network.requestWillBeSent":
            tab.requested.append(params["request"]["url"])
        case "Network.webSocketCreated":
            tab.requested.append(params["url"])
        case "Runtime.exceptionThrown":
            tab.errors.append(json.dumps(params["exceptionDetails"])[:500])
        case "Log.entryAdded" if params["entry"]["level"] == "error":
            tab.errors.append(params["entry"]["text"])
