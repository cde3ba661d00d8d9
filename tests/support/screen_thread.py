"""A guard for the thread of a screen: what may wait, for a file or another process, fails there.

It judges by who asks: code of `tui` or `launcher` that a screen's loop has called. What a test does
itself, on the same loop, is its own affair; imports are no reads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from textual.app import App

from launcher.client.latch import Latch
from tests.support.paths import REPOSITORY

_READS = frozenset(("open", "os.listdir", "os.scandir"))
_ALLOWED = {
    "tui/config.py": "settings of the screen, which the first frame needs",
    "tui/memory.py": "what the screen remembers, the same",
    "launcher/store/logs.py": "rows of logs that are drawn",
    "launcher/store/metrics.py": "figures that are drawn",
    "launcher/cluster/draft.py": "the file of an editor that opens: the next key is for it",
    "launcher/cluster/saved_file.py": "a person saves, and the next key counts on it",
    "launcher/cluster/library.py": "a free name for the dialog that the next letter goes to",
    "launcher/cluster/ssh_aliases.py": "the same, of hosts",
}
"""Modules that may read on the screen's thread, and why."""
_OWN = tuple(f"{REPOSITORY / name}/" for name in ("tui", "launcher"))
_TESTS = f"{REPOSITORY / 'tests'}/"
_loops: set[int] = set()
"""Threads on which the loop of an app runs in a test that is guarded."""
_found: list[str] = []


def _caller() -> str:
    """Who asks for something on a screen's thread, from the inside out; empty where that is a test,
    an import, a library by itself, or a module that may."""
    frame: FrameType | None = sys._getframe(2)
    own: list[str] = []
    by_the_screen = False
    while frame is not None:
        name = frame.f_code.co_filename
        if "importlib" in name or "/textual/css/" in name:
            return ""
        if "/textual/" in name:
            by_the_screen = True
        if name.startswith(_TESTS):
            break
        if name.startswith(_OWN):
            module = str(Path(name).relative_to(REPOSITORY))
            if module in _ALLOWED:
                return ""
            own.append(f"{module}:{frame.f_lineno}")
        frame = frame.f_back
    asked = by_the_screen and any(each.startswith("tui/") for each in own)
    return " < ".join(own) if asked else ""


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _READS and threading.get_ident() in _loops and (who := _caller()):
        _found.append(f"{event} {arguments[0]!r}: {who}")


sys.addaudithook(_on_audit)


@pytest.fixture(autouse=True)
def no_screen_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test in which the thread of a screen reads a file, or waits for another thread."""
    process = App._process_messages

    async def noted(app: App[Any], *arguments: Any, **options: Any) -> None:
        ident = threading.get_ident()
        _loops.add(ident)
        try:
            await process(app, *arguments, **options)
        finally:
            _loops.discard(ident)

    def refused(kind: type[Any], method: str) -> None:
        wait = getattr(kind, method)

        def waits(self: Any, *arguments: Any, **options: Any) -> Any:
            if threading.get_ident() in _loops and (who := _caller()):
                _found.append(f"{kind.__name__}.{method}: {who}")
            return wait(self, *arguments, **options)

        monkeypatch.setattr(kind, method, waits)

    monkeypatch.setattr(App, "_process_messages", noted)
    for kind, method in ((Latch, "wait"), (threading.Thread, "join")):
        refused(kind, method)
    _found.clear()
    yield
    found, _found[:] = sorted(set(_found)), []
    if found:
        pytest.fail("on the thread of a screen:\n" + "\n".join(found), pytrace=False)
