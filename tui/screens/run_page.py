"""Page about a run beside its logs: metrics, hosts, stacks, cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from launcher.history.control import RunControl
from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase
from tui.screens.run_screen import RunScreen
from tui.widgets.footer import KeyFooter, kill_hint
from tui.widgets.header import RunHeader


class RunPage(Screen[None]):
    """Has the header and the footer of the run; what is wrong with it is told on each page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("exclamation_mark", "trouble", "Trouble: the failed task", id="failure"),
        Binding("r", "restart(False)", "Restart the task", id="task.restart"),
        Binding("R", "restart(True)", "Restart the task at once (KILL)", id="task.restart_hard"),
    ]

    ABOUT_TASKS: ClassVar[bool] = False
    """The cursor is on tasks, which can be restarted."""

    def __init__(self, control: RunControl, alert: Callable[[], str] = str) -> None:
        """`alert` returns the newest complaint of a task, as the run screen's header has it."""
        super().__init__()
        self._control = control
        self._alert = alert

    def show_run(self, hints: Sequence[tuple[str, str]]) -> Snapshot:
        """Shows how the run goes, and the keys behind that for kill-all; returns the run."""
        snapshot = self._control.snapshot()
        self.query_one(RunHeader).show(snapshot, self._alert())
        self.query_one(KeyFooter).show([kill_hint(snapshot), *hints])
        return snapshot

    @property
    def logs(self) -> RunScreen:
        """The screen of the logs, above which the page is."""
        return next(one for one in self.app.screen_stack if isinstance(one, RunScreen))

    @property
    def subject(self) -> TaskId | None:
        """The task that the cursor is on; None where it is on none, or on several."""
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tasks can be restarted while the run is active, where a page is about one."""
        if action == "restart":
            over = self._control.snapshot().state in (RunPhase.KILLING, RunPhase.ENDED)
            return self.ABOUT_TASKS and not over
        return super().check_action(action, parameters)

    def action_restart(self, hard: bool) -> None:
        """Restarts the task under the cursor, and shows its log."""
        if self.subject is None:
            self.notify("this line is not about one task: choose one in the logs", timeout=3)
            return
        logs, task = self.logs, self.subject
        self.app.pop_screen()
        logs.area.show_line(task)
        logs.action_restart(hard)

    def action_trouble(self) -> None:
        """Goes to the log of the task to look at first."""
        logs = self.logs
        self.app.pop_screen()
        logs.area.action_trouble()
