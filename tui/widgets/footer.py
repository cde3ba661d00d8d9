"""Footer: keys and what they do, in one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual import events
from textual.widget import Widget
from textual.widgets import Input

from launcher.run.states import RunPhase
from tui.keys import KeyHint, display_name, key_hints, key_of
from tui.widgets.colours import theme_colour

if TYPE_CHECKING:
    from launcher.run.snapshot import Snapshot  # it takes longer than the first frame

Hints = Sequence[tuple[str, str]]


def kill_hint(snapshot: Snapshot) -> tuple[str, str]:
    """What the kill key does in a run: after its end it shows the receipt, or kills again where
    that is not clean."""
    if snapshot.state is RunPhase.ENDED:
        return "kill_all", "kill again" if snapshot.unconfirmed else "receipt"
    killing = snapshot.state is RunPhase.KILLING and snapshot.kill_asked
    return "kill_all", "KILL now" if killing else "kill all"


def stacks_hint(phase: RunPhase) -> list[tuple[str, str]]:
    """The key for stacks, while there are tasks that may have some."""
    return [] if phase is RunPhase.ENDED else [("stacks", "stacks")]


class KeyFooter(Widget):
    """Keys and what they do, the most important first; those that do not fit are left out. A click
    on a hint presses its key, but not the kill key, which asks no question: that takes a finger on
    a device without keys, where the app has the class `-touch`."""

    def __init__(self, hints: Hints = ()) -> None:
        super().__init__()
        self._ends: list[tuple[int, str]] = []
        """Cells where the drawn hints end, and their keys."""
        self._shown: tuple[Hints, Hints, bool] = (hints, (), False)

    def show(self, hints: Hints, *, fixed: Hints = (), typing: bool = False) -> None:
        """Shows other keys: pairs of command ids and text, after pairs of `fixed` keys, as they are
        bound, and text.
        While a person is `typing`, keys that type a character are no commands."""
        if (hints, fixed, typing) != self._shown:
            self._shown = (hints, fixed, typing)
            self.refresh()

    def render(self) -> Text:
        """`F9 kill all  q leave …`."""
        hints, fixed, typing = self._shown
        typing = typing or isinstance(self.screen.focused, Input)
        self._ends.clear()
        row = Text(no_wrap=True, end="")
        key_style = f"bold {theme_colour(self.app, 'accent-text')}"
        named = [KeyHint(display_name(key), does, key) for key, does in fixed]
        kill = None if self.app.has_class("-touch") else key_of(self, "kill_all")
        for key, does, first in [*named, *key_hints(self, hints, typing=typing)]:
            if row.cell_len + len(key) + len(does) + 3 > self.size.width:
                break
            row.append("  " if row else "")
            row.append(key, key_style)
            row.append(f" {does}")
            self._ends.append((row.cell_len, "" if key == kill else first))
        return row

    def on_click(self, event: events.Click) -> None:
        """Presses the key of the hint that stands there."""
        at = event.get_content_offset_capture(self).x
        first = next((first for end, first in self._ends if at < end), "")
        if first:
            self.app.simulate_key(first)
