"""A cell of the editor that is open while another command is given."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import TextArea

from launcher.cluster import library
from launcher.cluster.draft import ParsedDraft, parse
from tests.tui.conftest import shows, until
from tests.tui.test_editor import editor, screen_of, text_of
from tui.screens.editor import table
from tui.screens.editor.file_pane import FilePane
from tui.screens.editor.table import EditTable
from tui.screens.home import HomeScreen
from tui.screens.run import RunScreen

PYTHON = ("right", "right", "right", "enter")
"""Keys that open the cell `python` of the first host."""
KEPT = ("[hosts.tf1]", 'ssh = "tf1"', "[jobs.ps]", 'tasks = ["tf1:1"]')
"""Lines of a file with one host and one job."""
TASK = '[jobs.worker]\ntasks = ["localhost:auto"]\nready = "started"\n'


def table_of(pilot: Pilot[int], name: str) -> EditTable:
    """A table of the editor."""
    return screen_of(pilot).query_one(f"#{name}", EditTable)


def hosts_with(pilot: Pilot[int], python: str) -> list[str]:
    """Tables of the file that have this interpreter."""
    tables = text_of(pilot).split("\n[")
    return [table.partition("]")[0] for table in tables if f'python = "{python}"' in table]


async def click_row(pilot: Pilot[int], table: EditTable, row: int, column: int = 1) -> None:
    """Clicks on a cell of a table."""
    x, y = table.body.cell_offset(row, column)
    assert await pilot.click(table.body, offset=(x, y))


@pytest.mark.large
async def test_saving_accepts_the_open_cell() -> None:
    """Its text is in the file, and nothing is left to be saved."""
    async with editor() as pilot:
        await pilot.press(*PYTHON, *"/opt/py", "ctrl+s")
        await shows(pilot, "saved in")
        assert 'python = "/opt/py"' in library.path_of("mission").read_text()
        assert hosts_with(pilot, "/opt/py") == ["hosts.tf1"]
        assert not table_of(pilot, "hosts").editing() and not screen_of(pilot).draft.modified


@pytest.mark.large
async def test_a_text_that_is_refused_keeps_its_field_and_stops_the_command() -> None:
    """Neither saving nor leaving nor another page goes on without it; corrected, it is saved."""
    async with editor() as pilot:
        before = library.path_of("mission").read_text()
        await pilot.press("3", "down", "enter", *' "', "ctrl+s")
        await shows(pilot, "! a quote is not closed")
        run = table_of(pilot, "run")
        for command in (
            screen_of(pilot).leave,
            screen_of(pilot).action_launch,
            screen_of(pilot).action_test,
            lambda: screen_of(pilot).action_page("hosts"),
        ):
            command()
            await pilot.pause()
            assert pilot.app.screen is screen_of(pilot) and run.editing() and run.has_focus_within
        assert library.path_of("mission").read_text() == before
        await pilot.press(*'x"', "ctrl+s")
        await shows(pilot, "saved in")
        assert '"x"]' in library.path_of("mission").read_text()


@pytest.mark.large
async def test_leaving_asks_about_the_open_cell() -> None:
    """Its text counts as a change that is not saved."""
    async with editor() as pilot:
        await pilot.press(*PYTHON, *"/opt/py", "ctrl+q")
        await shows(pilot, "Unsaved changes")
        await pilot.press("s")
        await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
        assert 'python = "/opt/py"' in library.path_of("mission").read_text()


@pytest.mark.processes
async def test_launching_accepts_the_open_cell(tmp_path: Path) -> None:
    """The run has what is on the screen."""
    path = tmp_path / "quick.toml"
    path.write_text(TASK + '[run]\ncommand = ["echo", "from"]\nworkdir = ""\n')
    async with editor(path) as pilot:
        await pilot.press("3", "down", "enter", *" the-cell")
        screen_of(pilot).action_launch()  # as the palette does: in a cell `l` is typed
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        await shows(pilot, "from the-cell")
        await shows(pilot, "✓ success")


@pytest.mark.large
async def test_another_page_accepts_the_open_cell() -> None:
    """As the palette can show one at any time."""
    async with editor() as pilot:
        await pilot.press(*PYTHON, *"/opt/py")
        screen_of(pilot).action_page("jobs")
        await until(pilot, lambda: hosts_with(pilot, "/opt/py") == ["hosts.tf1"])
        assert table_of(pilot, "jobs").has_focus_within


@pytest.mark.large
async def test_a_click_on_another_row_accepts_the_open_cell() -> None:
    """Into the row for which it was opened, wherever the cursor is now."""
    async with editor() as pilot:
        hosts = table_of(pilot, "hosts")
        await pilot.press(*PYTHON, *"/opt/py")
        await click_row(pilot, hosts, 2)
        await until(pilot, lambda: not hosts.editing())
        assert hosts_with(pilot, "/opt/py") == ["hosts.tf1"]
        await until(pilot, lambda: hosts.key == "tf3" and hosts.body.has_focus)


@pytest.mark.large
async def test_a_click_does_not_leave_a_text_that_is_refused() -> None:
    """The field keeps the focus, and its text goes into its own row when it is corrected."""
    async with editor() as pilot:
        hosts = table_of(pilot, "hosts")
        env = hosts.model.titles.index("env")
        hosts.body.go_to(0, env)
        await pilot.press("enter", *"A")
        await click_row(pilot, hosts, 2, 0)
        await shows(pilot, "! A has no value")
        await until(pilot, lambda: hosts.editing() and hosts.has_focus_within)
        await until(pilot, lambda: not hosts.body.has_focus)
        await pilot.press(*"=1", "enter")
        await until(pilot, lambda: not hosts.editing())
        assert text_of(pilot).index('A = "1"') < text_of(pilot).index("[hosts.tf2]")


@pytest.mark.large
async def test_another_window_of_the_desktop_does_not_close_the_cell() -> None:
    """What is typed afterwards goes on in it, and is no command."""
    async with editor() as pilot:
        before = text_of(pilot)
        await pilot.press(*PYTHON, *"/opt")
        pilot.app.app_focus = False
        await pilot.pause()
        pilot.app.app_focus = True
        await pilot.pause()
        assert table_of(pilot, "hosts").editing() and text_of(pilot) == before
        await pilot.press(*"/py", "enter")
        await until(pilot, lambda: hosts_with(pilot, "/opt/py") == ["hosts.tf1"])


@pytest.mark.large
async def test_a_task_stays_in_its_job_when_another_job_is_clicked() -> None:
    """The table of tasks follows the cursor in that of jobs only when its cell is closed."""
    async with editor() as pilot:
        await pilot.press("2")
        jobs, tasks = table_of(pilot, "jobs"), table_of(pilot, "tasks")
        await pilot.press("tab", "right", "enter", "ctrl+u", *"4711")
        assert tasks.editing() and jobs.key == "ps"
        await click_row(pilot, jobs, 1, 0)
        await until(pilot, lambda: ":4711" in text_of(pilot))
        document = screen_of(pilot).draft.now.document
        assert document is not None
        assert str(document.get("jobs", "ps", "tasks")[0]).endswith(":4711")
        await until(pilot, lambda: tasks.body.rows[0].cells[0].text == "worker:0")


@pytest.mark.large
@pytest.mark.parametrize("key", ["ctrl+z", "ctrl+y"])
async def test_undo_closes_an_open_cell_and_leaves_the_draft(key: str) -> None:
    """The row added last stays, its cell as it was; the next undo is of the draft."""
    async with editor() as pilot:
        start = text_of(pilot)
        await pilot.press("2", "a")
        await shows(pilot, "Add a job")
        await pilot.press("enter")
        await until(pilot, lambda: "[jobs.chief]" in text_of(pilot))
        jobs, before = table_of(pilot, "jobs"), text_of(pilot)
        await until(pilot, lambda: jobs.key == "chief")
        await pilot.press("enter", *"x")
        await until(pilot, lambda: jobs.body.rows[-1].key == "chiefx")
        await pilot.press(key)
        await until(pilot, lambda: not jobs.editing())
        await until(pilot, lambda: jobs.key == "chief")
        assert text_of(pilot) == before and jobs.body.has_focus
        await pilot.press("ctrl+z")
        await until(pilot, lambda: text_of(pilot) == start)


@pytest.mark.large
@pytest.mark.parametrize("page", ["hosts", "jobs"])
async def test_a_cell_whose_row_has_gone_is_refused(page: str) -> None:
    """As after the file was read again: not written into another row, such as that of all hosts."""
    async with editor() as pilot:
        table = table_of(pilot, page)
        await pilot.press("1" if page == "hosts" else "2")
        last = 2 if page == "hosts" else 1
        table.body.go_to(last, table.model.titles.index("env"))
        await pilot.press("enter", *"A=1")
        screen_of(pilot).draft.edit(parse("\n".join(KEPT), library.path_of("mission")))
        after = text_of(pilot)
        await pilot.press("enter")
        await shows(pilot, "! the row of this cell no longer exists")
        assert table.editing() and text_of(pilot) == after
        await pilot.press("escape")
        await until(pilot, lambda: not table.editing())
        assert text_of(pilot) == after


@pytest.mark.large
async def test_a_cell_of_an_engine_that_has_gone_is_refused() -> None:
    """Its table is not written again; as nobody sees the field then, it is closed."""
    path = library.create("onslurm", f"[slurm]\nnodes = 1\n{TASK}")
    async with editor(path) as pilot:
        slurm = table_of(pilot, "slurm")
        await pilot.press("enter", *"7")
        assert slurm.editing()
        await until(pilot, lambda: screen_of(pilot)._state.trial is not None)
        screen_of(pilot).draft.edit(parse(TASK, path))
        screen_of(pilot)._show()
        await until(pilot, lambda: not slurm.editing())
        assert text_of(pilot) == TASK


@pytest.mark.large
async def test_ctrl_c_copies_selected_text_of_the_file() -> None:
    """It does not leave the editor."""
    path = library.create("text", "\n".join(KEPT) + "\n")
    async with editor(path) as pilot:
        await pilot.press("4")
        await until(pilot, lambda: isinstance(pilot.app.focused, TextArea))
        await pilot.press("ctrl+home", "shift+end", "ctrl+c")
        await until(pilot, lambda: pilot.app.clipboard != "")
        assert pilot.app.clipboard in (*KEPT, path.read_text().splitlines()[0])
        assert pilot.app.screen is screen_of(pilot)


@pytest.mark.large
async def test_a_check_that_ends_when_its_table_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """tfmux is left while a thread checks what was typed: its answer finds no field any more."""
    begun, gate = threading.Event(), threading.Event()

    def slow(text: str, path: Path) -> ParsedDraft:
        begun.set()
        assert gate.wait(60)
        return parse(text, path)

    monkeypatch.setattr(table, "parse", slow)
    async with editor() as pilot:
        await pilot.press("3", "down", "enter", "x")
        await until(pilot, begun.is_set)
        run = table_of(pilot, "run")
        (check,) = [worker for worker in run.workers if worker.group == "check"]
        await run.query("*").remove()
        gate.set()
        await until(pilot, lambda: check.is_finished)
        assert check.error is None


@pytest.mark.large
async def test_typed_text_is_committed_when_its_page_goes() -> None:
    """tfmux is left before the pause after the last key is over."""
    async with editor() as pilot:
        await pilot.press("4", "x")
        pane = screen_of(pilot).query_one(FilePane)
        with pilot.app.batch_update():  # a text area that is being removed must not be painted
            await pane.query("*").remove()
        commit = pane._commit_soon()
        await until(pilot, lambda: commit.is_finished)
        assert commit.error is None
