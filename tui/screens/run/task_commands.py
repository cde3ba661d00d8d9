"""Commands about the focused task: restart, signals, its web page."""

from __future__ import annotations

from collections.abc import Callable

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot, TaskView
from launcher.session.control import RunControl
from tui.pane_layout import PaneLayout
from tui.screens.run.interaction import Interaction


class TaskCommands:
    """Acts on the task that has the focus."""

    def __init__(
        self, control: RunControl, pane_layout: PaneLayout, interaction: Interaction
    ) -> None:
        self._control = control
        self._layout = pane_layout
        self._interaction = interaction

    async def restart(self, hard: bool) -> None:
        """Ends the task and starts it again; hard: KILL instead of TERM and grace."""
        word = "hard restart" if hard else "restart"
        await self._confirmed(word, lambda task: self._control.restart(task, hard=hard))

    async def signal(self, name: str) -> None:
        """Sends TERM (KILL after the grace) or KILL to the task alone."""
        await self._confirmed(f"send {name} to", lambda task: self._control.signal(task, name))

    def open_page(self) -> None:
        """Opens the task's web page (TensorBoard's, say), else the only one that there is. Where
        there can be no browser, its address goes to the clipboard."""
        name = self._layout.focused
        snapshot = self._control.snapshot()
        url = snapshot.task(name).url if name else ""
        pages = [task.url for task in snapshot.tasks if task.url]
        if not url and len(pages) == 1:
            url = pages[0]
        if not url:
            why = "it has no forward = true, or is not ready"
            self._interaction.notify(f"{name} has no page: {why}", timeout=3)
        elif self._interaction.open_url(url):
            self._interaction.notify(f"opened {url}", timeout=4)
        else:
            self._interaction.copy(url)
            self._interaction.notify(f"{url} — no browser here; copied", timeout=8)

    async def _confirmed(self, word: str, act: Callable[[TaskId], None]) -> None:
        """Acts at once, or after a yes where other tasks depend on this one."""
        name = self._layout.focused
        if name is None:
            return
        snapshot = self._control.snapshot()
        if not self._control.living or snapshot.ended is not None:
            self._interaction.notify("the run is over", timeout=2)
            return
        task = snapshot.task(name)
        if _others_depend_on(task, snapshot):
            who = "The ps" if task.id.job == "ps" else "The chief"
            why = f"{who} serves workers that still run."
            if not await self._interaction.confirm(f"{word} {name}?", why):
                return
        act(name)
        self._interaction.notify(f"{word} {name}", timeout=3)


def _others_depend_on(task: TaskView, snapshot: Snapshot) -> bool:
    """A ps or the chief, while other cluster tasks run."""
    if task.id.job != "ps" and not task.is_chief:
        return False
    return any(
        other.state.live and other.in_cluster and other.id != task.id and other.id.job != "ps"
        for other in snapshot.tasks
    )
