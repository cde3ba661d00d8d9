"""The first frame of `tfmux`, before anything heavy has been imported."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Sequence

from textual import events
from textual.app import ComposeResult
from textual.widgets import Static

from tui.keys import key_of
from tui.screens.page import Page
from tui.widgets.footer import KeyFooter

Imported = Callable[[], Sequence[Page]]
"""Makes the pages, on the app's loop."""
Import = Callable[[], Imported]


class Opening(Page):
    """Stands where the home screen will, and imports what that needs in a thread of its own: the
    launcher and the editor take longer than the whole first frame may. What is typed meanwhile
    is handed on."""

    def __init__(self, load: Import, replace: Callable[[Sequence[Page]], Awaitable[Page]]) -> None:
        """`load` imports; `replace` is the app's, and puts the pages in this one's place."""
        super().__init__()
        self._load = load
        self._replace = replace
        self._typed: list[str] = []
        self._wants_kill = False

    def compose(self) -> ComposeResult:
        """The frame of the home screen."""
        yield Static("tfmux", id="title", markup=False)
        yield Static("looking for clusters and runs …", id="about", markup=False)
        yield KeyFooter([(key_of(self, "kill_all"), "kill all living runs"), ("q", "leave")])

    def on_mount(self) -> None:
        # The app's worker, not the screen's: it goes on after the screen has been replaced.
        self.call_after_refresh(self.app.run_worker, self._import(), group="import")

    def on_key(self, event: events.Key) -> None:
        self._typed.append(event.key)

    def kill_living(self) -> None:
        """F9: as soon as the living runs are known."""
        self._wants_kill = True

    def leave(self) -> None:
        """Nothing has begun."""
        self.app.exit()

    async def _import(self) -> None:
        app = self.app
        make = await asyncio.to_thread(self._load)
        home = await self._replace(make())
        if self._wants_kill:
            home.kill_living()
        for key in self._typed:
            app.simulate_key(key)
        await asyncio.to_thread(_prefetch)


def _prefetch() -> None:
    """What is needed next, while a person still reads the home screen."""
    for name in ("tui.screens.run.screen", "textual_plotext"):
        importlib.import_module(name)
