"""The first frame of `tfmux`, before anything heavy has been imported."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Sequence

from textual import events
from textual.app import ComposeResult
from textual.widgets import Static

from tui.screens.page import Page
from tui.widgets.footer import KeyFooter

Imported = Callable[[], Sequence[Page]]
"""Makes the pages, on the app's loop."""
Import = Callable[[], Imported]


class Opening(Page):
    """Shown until the home screen has been imported, in a thread: launcher and editor take longer
    than the whole first frame may. Keys pressed meanwhile are handed on."""

    def __init__(self, load: Import, replace: Callable[[Sequence[Page]], Awaitable[Page]]) -> None:
        """`load` imports; `replace` puts the pages over this one."""
        super().__init__()
        self._load = load
        self._replace = replace
        self._typed: list[str] = []
        self._wants_kill = False

    def compose(self) -> ComposeResult:
        yield Static("tfmux", id="title", markup=False)
        yield Static("looking for clusters and runs …", id="about", markup=False)
        yield KeyFooter([("kill_all", "kill all active runs"), ("leave", "leave")])

    def on_mount(self) -> None:
        # The app's worker, not the screen's: it goes on after the screen has been replaced.
        self.call_after_refresh(self.app.run_worker, self._import(), group="import")

    def on_key(self, event: events.Key) -> None:
        self._typed.append(event.key)

    def kill_active_runs(self) -> None:
        """Waits until the active runs are known."""
        self._wants_kill = True

    def leave(self) -> None:
        self.app.exit()

    async def _import(self) -> None:
        app = self.app
        make = await asyncio.to_thread(self._load)
        home = await self._replace(make())
        if self._wants_kill:
            home.kill_active_runs()
        for key in self._typed:
            app.simulate_key(key)
        # The screen needed next, while a person still reads the home screen.
        await asyncio.to_thread(importlib.import_module, "tui.screens.run_screen")
