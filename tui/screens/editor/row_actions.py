"""The editor's rows: adding, copying, deleting, pasting."""

from __future__ import annotations

from launcher.cluster.edit import ClusterText
from launcher.cluster.paste import PasteError, entries, hosts, spec
from launcher.cluster.ssh_aliases import aliases
from tui.screens.ask import AskText
from tui.screens.editor.completion import Completion
from tui.screens.editor.shown import ShownDraft
from tui.screens.editor.table_models import add_missing, paste, undefined_hosts

JOB_NAMES = ("ps", "worker", "chief", "evaluator", "tensorboard")


class RowActions(ShownDraft):
    """The part of the editor that works on rows."""

    def action_add(self) -> None:
        """Adds hosts, a job, or tasks: many with one line."""
        table, document = self._table, self.draft.now.document
        if table is None or document is None:
            return
        body = table.body

        def add(line: str | None) -> None:
            if not line:
                return
            match table.id:
                case "hosts":
                    self._try(lambda d: self._host.add(d, hosts(line)))
                case "jobs":
                    self._try(lambda d: self._job.add(d, line.strip()))
                case "tasks":
                    self._try(lambda d: self._tasks.add(d, entries(line)))
            body.go_to(len(body.rows) - 1, body.column if table.id == "tasks" else 0)

        match table.id:
            case "hosts":
                title, about = "Add hosts", "as you log in: root@tf[1-4], gpu7 — one line for many"
                dialog = AskText(title, "", _expands, about, Completion(lambda _: aliases()))
            case "jobs":
                free = [name for name in JOB_NAMES if name not in document.table("jobs")]
                about = f"its name, such as {', '.join(free[:4]) or 'helper'}"
                dialog = AskText(
                    "Add a job",
                    next(iter(free), ""),
                    lambda _: "",
                    about,
                    Completion(lambda _: free),
                )
            case "tasks":
                about = "host:port, … ; tf[2-6]:2222 is five tasks, localhost:auto*5 too"
                known = [f"{host}:" for host in document.table("hosts")]
                start = self._tasks.next(document)
                dialog = AskText(
                    f"Add tasks to {self._tasks.job}",
                    start,
                    _expands,
                    about,
                    Completion(lambda _: known),
                )
            case _:
                return
        self.app.push_screen(dialog, add)

    def action_copy_row(self) -> None:
        """One more host or job like this."""
        table = self._table
        if table is not None and table.body.rows and table.id in ("hosts", "jobs"):
            sheet = self._host if table.id == "hosts" else self._job
            self._try(lambda d: sheet.copy(d, table.body.row))
            table.body.go_to(len(table.body.rows) - 1, 0)

    def action_remove(self) -> None:
        """Deletes the row; u brings it back."""
        table = self._table
        if table is not None and table.body.rows:
            self._try(lambda d: self._sheet(table).remove(d, table.body.row))

    def action_clear(self) -> None:
        """Empties the cell."""
        table = self._table
        if table is not None and table.body.rows:
            row, column = table.body.row, table.body.column
            self._try(lambda d: self._sheet(table).put(d, row, column, ""))

    def action_paste(self) -> None:
        """Asks for a cluster spec in any form, and makes jobs, tasks and hosts of it."""

        def take(line: str | None) -> None:
            if not line:
                return

            def change(document: ClusterText) -> ClusterText:
                found = spec(line)
                if found is None:
                    job = self._tasks.job or "worker"
                    found = {job: entries(line)}
                return paste(document, found)

            self._try(change)

        about = "a TF_CONFIG, ps=tf1:2222 worker=tf2:2222,tf3:2222, or tasks for "
        about += f"{self._tasks.job or 'worker'}: tf1:2222,tf2:2222"
        self.app.push_screen(AskText("Paste a cluster", "", _expands, about), take)

    def action_missing(self) -> None:
        """Defines the hosts that tasks name and that are nowhere defined."""
        missing = self._missing()
        if missing:
            self._try(lambda d: add_missing(d, undefined_hosts(d)))
            self.notify(f"added {', '.join(missing[:8])}, each reached by its own name")


def _expands(line: str) -> str:
    """What is wrong with a line that stands for many entries."""
    try:
        if spec(line) is None:
            entries(line)
    except PasteError as error:
        return str(error)
    return ""
