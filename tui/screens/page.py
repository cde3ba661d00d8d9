"""What all screens outside of a run, and all that lie above others, have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from textual.await_complete import AwaitComplete
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launcher.history.again import EditableFile
    from launcher.history.control import RunControl
    from launcher.run.snapshot import Snapshot


Answer = TypeVar("Answer")
STYLES = Path(__file__).parents[1] / "app.tcss"
"""Styles that several screens and dialogs share; reading them would delay the first frame."""


class OpenRun(Message):
    """Asks the app to have a run begin, in a thread, and to show it above the pages."""

    def __init__(
        self, what: str, begin: Callable[[], RunControl], *, launches: bool = False
    ) -> None:
        """`what` is done, for the person who waits; `begin` does it, or raises a `TfmuxError`."""
        self.what = what
        self.begin = begin
        self.launches = launches
        super().__init__()


def fit(screen: Screen[Any]) -> None:
    """Gives a screen the classes of its size; to be called when it is mounted. Textual gives them
    when it tells a screen its size, which is after its first frame."""
    app = screen.app
    for cells, own, common in (
        (app.size.width, screen.HORIZONTAL_BREAKPOINTS, app.HORIZONTAL_BREAKPOINTS),
        (app.size.height, screen.VERTICAL_BREAKPOINTS, app.VERTICAL_BREAKPOINTS),
    ):
        reached = [point for point in own or common or () if point[0] <= cells]
        if reached:
            screen.add_class(max(reached)[1])


def entitle(widget: Widget, title: str) -> None:
    """Puts a title into a widget's frame; Textual would draw the whole widget for the same one."""
    content = Content(title)
    if widget.border_title != content.markup:
        widget.border_title = content


class Page(Screen[None]):
    """A screen without a run. The app's keys for leaving end up in `leave`, and the kill key in
    `kill_active_runs` of the page at the bottom, which knows all active runs."""

    def on_mount(self) -> None:
        fit(self)

    @property
    def modified(self) -> bool:
        """Leaving would lose something: it is asked for first."""
        return False

    def leave(self) -> None:
        """Goes back to the page below; may ask first."""
        self.app.pop_screen()

    @property
    def has_active_runs(self) -> bool:
        """Runs are active, as far as this page knows."""
        return False

    @property
    def kill_hints(self) -> list[tuple[str, str]]:
        """The kill key, where there is a run that it could kill."""
        pages = (screen for screen in self.app.screen_stack if isinstance(screen, Page))
        return [("kill_all", "kill all")] if any(page.has_active_runs for page in pages) else []

    def show_hints(self) -> None:
        """Shows the keys of the page anew: which runs are active has changed."""

    def look_again(self) -> None:
        """Reads again what may have changed while a run was on the screen."""

    def kill_active_runs(self) -> None:
        """Kills all active runs, after one question."""

    def launch_again(self, run_id: str) -> RunControl:
        """Launches a past run again as it was.

        Raises:
            TfmuxError: it cannot be launched.
        """
        raise NotImplementedError

    def kill_again(self, run_id: str) -> Future[RunControl]:
        """Kills what the end of a run may have left on hosts."""
        raise NotImplementedError

    def edit_run(self, file: EditableFile, snapshot: Snapshot) -> None:
        """Opens the file that a run was launched from, where its trouble is."""


class Overlay(ModalScreen[Answer]):
    """Screen above others that closes itself, and itself alone. Two Enters at once answer a dialog
    twice; Textual's second answer would close the screen below."""

    _late: tuple[Answer | None] | None = None
    """Answer that was given while another screen was on top; it counts when that has gone."""

    def on_mount(self) -> None:
        fit(self)

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Closes the screen with an answer, once."""
        if self.app.screen is self:
            return super().dismiss(result)
        if self in self.app.screen_stack:
            self._late = (result,)
        return AwaitComplete()

    def on_screen_resume(self) -> None:
        """Closes a screen that was answered below another one."""
        if self._late is not None:
            self.dismiss(*self._late)
