"""What the keys do to the focused task: restart and signals."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot, TaskView
from tui.screens.dialogs import Confirm
from tui.screens.run.surroundings import Surroundings

_Act = Callable[[TaskId], None]
_GRAPHIC = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class TaskActions(Surroundings):
    """The part of the run screen that acts on one task."""

    def action_restart(self, hard: bool) -> None:
        """Ends the task and starts it again; hard: KILL instead of TERM and grace."""
        word = "hard restart" if hard else "restart"
        self._ask(word, lambda task: self.control.restart(task, hard=hard))

    def action_signal(self, name: str) -> None:
        """TERM (KILL after the grace) or KILL to the task alone."""
        self._ask(f"send {name} to", lambda task: self.control.signal(task, name))

    def open_page(self) -> None:
        """The focused task's page (TensorBoard's, say), else the only one that there is, in a
        browser; where there can be none, its address goes to the clipboard."""
        name = self.board.focused
        url = self.snapshot.task(name).url if name else ""
        pages = [task.url for task in self.snapshot.tasks if task.url]
        if not url and len(pages) == 1:
            url = pages[0]
        if not url:
            self.notify(f"{name} has no page: it has no forward = true, or is not ready", timeout=3)
        elif self.app.is_web or sys.platform == "darwin" or any(map(os.environ.get, _GRAPHIC)):
            self.app.open_url(url)
            self.notify(f"opened {url}", timeout=4)
        else:  # the standard library would start a text browser over this screen
            self.app.copy_to_clipboard(url)
            self.notify(f"{url} — no browser here; copied", timeout=8)

    def _ask(self, word: str, act: _Act) -> None:
        name = self.board.focused
        if name is None:
            return
        if not self.control.living or self.snapshot.ended is not None:
            self.notify("the run is over", timeout=2)
            return
        task = self.snapshot.task(name)

        def answered(yes: bool | None) -> None:
            if yes:
                act(name)
                self.notify(f"{word} {name}", timeout=3)

        if _others_depend_on(task, self.snapshot):
            why = "The ps" if task.id.job == "ps" else "The chief"
            self.app.push_screen(
                Confirm(f"{word} {name}?", f"{why} serves workers that still run."), answered
            )
        else:
            answered(True)


def _others_depend_on(task: TaskView, snapshot: Snapshot) -> bool:
    """A ps or the chief, while other cluster tasks run."""
    if task.id.job != "ps" and not task.is_chief:
        return False
    return any(
        other.state.live and other.in_cluster and other.id != task.id and other.id.job != "ps"
        for other in snapshot.tasks
    )
