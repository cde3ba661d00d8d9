"""Details of the entry under Home's cursor: what only its own record, or its plan, says.

Imported once the cursor rests on a row: the first painting of Home does without.
"""

from __future__ import annotations

import shlex

from rich.text import Text

from launcher.cluster.file_model import ClusterModel
from launcher.errors import TfmuxError
from launcher.history.again import editable_file
from launcher.history.run_list import ListedRun
from launcher.history.stored import StoredRun
from launcher.ids import TaskId, named_tasks
from launcher.paths import tilde
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan
from launcher.store.logs import LogStore
from tui.catalog import ClusterEntry, Entry
from tui.failure_report import guilty_lines
from tui.format import StatusColor
from tui.outcome import failure_text, receipt_text, refusals_text, results_text, tasks_text
from tui.screens.home_rows import Colours, append_pair

_LAST_LINES = 8
"""Last lines of a guilty task."""
_MOST_COMMANDS = 8
"""Commands of a cluster that are shown."""
_RUN = "RUN"
"""Stands for the id of a run that has not been launched."""


def read_details(entry: Entry, colours: Colours) -> tuple[Text, Text]:
    """Reads what belongs above and below the few lines that a list knows of an entry: of a run its
    cause, and its tasks and receipt; of a cluster its plan. Blocking."""
    above, below = Text(), Text()
    try:
        match entry:
            case ListedRun(folder=folder):
                now = StoredRun(folder).snapshot()
                lines = guilty_lines(now, LogStore(folder.path, read_only=True))
                above.append_text(failure_text(now, colours, _LAST_LINES, lines=lines).rich)
                above.append_text(refusals_text(now, colours).rich)
                above.append("\n" if above else "")
                append_pair(below, "file", tilde(editable_file(folder)[0]))
                below.append("\n").append_text(tasks_text(now).rich)
                if now.receipt is not None:
                    below.append("\n").append_text(receipt_text(now, colours).rich)
                below.append_text(results_text(now).rich)
            case ClusterEntry(cluster=ClusterModel() as cluster):
                _append_plan(below, make_plan(cluster, _RUN))
    except (TfmuxError, OSError) as error:
        below.append(f"\n! {error}\n", colours[StatusColor.BAD])
    return above, below


def _append_plan(text: Text, plan: Plan) -> None:
    """The order of the start, what ends the run, and each command once."""
    text.append("\n")
    for number, stage in enumerate(plan.stages):
        append_pair(text, "then" if number else "starts", named_tasks(stage))
    append_pair(text, "ends", plan.ending.text.removeprefix("ends "))
    commands: dict[str, list[TaskId]] = {}
    for task in plan.tasks:
        commands.setdefault(shlex.join(task.argv), []).append(task.id)
    for command, tasks in [*commands.items()][:_MOST_COMMANDS]:
        text.append(f"\n{named_tasks(tasks)}\n", "bold")
        text.append(f"{command}\n")
