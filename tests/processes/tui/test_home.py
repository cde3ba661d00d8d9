"""The home screen, driven by its keys."""

from __future__ import annotations

import asyncio
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from launcher.cluster import library
from launcher.history.run_list import ListedRun
from launcher.ids import TaskId
from launcher.paths import runs_home
from launcher.plan.facts import HostFacts
from launcher.run import events as ev
from launcher.run.snapshot import Failure, Metric
from launcher.run.states import Outcome
from launcher.store.stream import encode
from tests.support.command import Up, write
from tests.support.homes import TEXT, begun_run, ended_run, home
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp
from tui.catalog import Catalog, ClusterEntry, Entries
from tui.config import Config
from tui.run_clients import RunClients
from tui.screens import home as screens_home
from tui.screens.dialogs import ReceiptScreen
from tui.screens.editor.screen import EditorScreen
from tui.screens.home import HomeScreen
from tui.screens.kill_runs import KillRunsDialog
from tui.screens.run_screen import RunScreen

STARTED = (
    ev.HostUp(1001.0, "localhost"),
    ev.HostsChecked(1001.0, {"localhost": HostFacts(ports={TaskId("ps", 0): 1})}),
    ev.Staged(1001.0, "localhost"),
    ev.TaskStarted(1001.0, TaskId("ps", 0), 1, pid=1),
)
"""What a launcher writes until the first task has a process."""


def on(pilot: Pilot[int]) -> str:
    """The name of the cluster that the cursor is on."""
    screen = pilot.app.screen
    entry = screen.entry if isinstance(screen, HomeScreen) else None
    return entry.path.stem if isinstance(entry, ClusterEntry) else ""


def missing(pilot: Pilot[int], text: str) -> bool:
    """A text is not on the screen."""
    assert isinstance(pilot.app, TfmuxApp)
    return not any(text in row for row in screen_text(pilot.app))


async def test_an_empty_home_says_how_to_begin() -> None:
    """No clusters, no runs: the demos stand there, and a is named. F9 has nothing to kill, says so
    and asks nothing."""
    async with home() as pilot:
        await pilot.press("f9")
        await shows(pilot, "no active runs")
        await shows(pilot, "a creates one from a template")
        await shows(pilot, "1 ps + 2 workers train")
        await shows(pilot, "Enter add a cluster")
        await shows(pilot, "A cluster file names the hosts")
        await pilot.press("down")
        await shows(pilot, "Trainings and tours on this machine")
        await pilot.press("down")
        await shows(pilot, "l launch")
        await pilot.press("up", "enter")
        await until(pilot, lambda: missing(pilot, "1 ps + 2 workers train"))
        await shows(pilot, "▸ 25 demos")


async def test_saved_clusters_and_files_of_the_command_line(tmp_path: Path) -> None:
    """Each with its shape; a broken one with its first problem and its line."""
    library.create("mine", TEXT)
    library.create("broken", 'name = "broken"\n[jobs.worker]\ntasks = ["a"]\ncommand = ["x"]\n')
    file = tmp_path / "given.toml"
    file.write_text(TEXT)
    async with home(file) as pilot:
        await shows(pilot, "Clusters 3")
        await shows(pilot, "1 ps + 2 workers on this machine")
        await shows(pilot, "! line 4: jobs.worker.tasks[0]: the port is missing")
        await shows(pilot, str(file)[:40])


async def test_copy_rename_delete_and_undo() -> None:
    """The cursor's cluster is copied under a free name, and the cursor goes to what was made:
    there it is renamed, deleted and brought back."""
    library.create("mine", TEXT)
    async with home() as pilot:
        await pilot.press("c")
        await shows(pilot, "the name of the new file")
        await pilot.press("enter")
        await until(pilot, lambda: len(library.saved()) == 2)
        assert [path.stem for path in library.saved()] == ["mine", "mine-2"]
        await until(pilot, lambda: on(pilot) == "mine-2")
        await pilot.press("f2", *"a", "enter")
        await until(pilot, lambda: [p.stem for p in library.saved()] == ["a", "mine"])
        await until(pilot, lambda: on(pilot) == "a")
        await pilot.press("x")
        await until(pilot, lambda: [p.stem for p in library.saved()] == ["mine"])
        await shows(pilot, "u brings it back")
        await pilot.press("u")
        await until(pilot, lambda: len(library.saved()) == 2)
        await shows(pilot, "Clusters 2")
        await until(pilot, lambda: on(pilot) == "a")


async def test_a_run_that_has_ended_is_not_taken_up_again() -> None:
    """Its row may be older than its end: Enter shows it as it was."""
    ended = ended_run("fine")
    clients = RunClients()
    shown = clients.attach(ended.run_id, no_answer)
    assert shown.snapshot().outcome is Outcome.SUCCESS and not shown.living
    shown.close()
    clients.close()
    assert ended.launcher_pid() is None


async def no_answer(_: object) -> None:
    """Answers no prompt."""


async def test_undo_after_a_restart() -> None:
    """The last one that was deleted comes back first; then there is nothing any more."""
    for name in ("first", "last"):
        library.delete(library.create(name, TEXT))
        await asyncio.sleep(0.02)  # file systems have times of a few milliseconds
    async with home() as pilot:
        await pilot.press("u")
        await until(pilot, lambda: [path.stem for path in library.saved()] == ["last"])
        await pilot.press("u")
        await until(pilot, lambda: len(library.saved()) == 2)
        await pilot.press("u")
        await shows(pilot, "nothing is deleted")


async def test_a_bad_name_is_explained_and_not_taken() -> None:
    """The sentence stands at the field, Enter does nothing, no file appears."""
    library.create("mine", TEXT)
    async with home() as pilot:
        await pilot.press("c")
        await shows(pilot, "the name of the new file")
        dialog = pilot.app.screen
        for name in ("", " ", "../../x", "$(reboot)", "-x", "ü", "y" * 10_000):
            field = dialog.query_one(Input)
            field.value = "good"
            await until(pilot, lambda: missing(pilot, "! "))
            field.value = name
            await shows(pilot, "! ")
            await pilot.press("enter")
            assert pilot.app.screen is dialog, name
            assert [path.stem for path in library.saved()] == ["mine"], name
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
        assert [path.stem for path in library.saved()] == ["mine"]


async def test_odd_records_and_odd_runs_are_named_beside_the_others() -> None:
    """What cannot be read is said in its row, and F9 does not say that nothing is active."""
    ended_run("fine")
    odd = ended_run("odd")
    with odd.events.open("a") as stream:
        stream.write('null\n{"time": 1, "event": "receipt", "hosts": null}\n')
    (runs_home() / "circle").symlink_to("circle")
    broken = begun_run("broken")
    broken.cluster_file.write_text("name = [[[")
    async with home(size=(500, 40)) as pilot:
        await shows(pilot, "✓ success")
        await shows(pilot, f"2 records of {odd.run_id} could not be read")
        await shows(pilot, "could not be read: Too many levels of symbolic links")
        await shows(pilot, "toml:1: ")
        await pilot.press("f9")
        await shows(pilot, "no active runs found; ")


async def test_past_runs_from_their_rows_to_their_screens_and_the_shell() -> None:
    """One that ended, one that failed with its first failure, one whose launcher died: each row has
    outcome, duration, step and loss. Enter opens a run from disk, with its states and logs, and Esc
    comes back here; where the record breaks off it says so and shows nothing as running. One `q`
    leads from the end of a run to the shell, although it was opened from here."""
    good = ended_run("good")
    (good.path / "worker-0.log").write_bytes(b"the very first line\nthe last\n")
    failure = Failure(TaskId("worker", 1), "tf3", "exit 1", 1.0)
    bad = ended_run("bad", outcome=Outcome.FAILED, exit_code=1, first_failure=failure)
    lost = begun_run("lost", *STARTED)
    async with home() as pilot:
        await shows(pilot, "Runs 3")
        await shows(pilot, "time   step   loss")
        await shows(pilot, f"✓ success  {good.run_id}  1:02  1,200  0.250")
        await shows(pilot, f"✗ failed   {bad.run_id}   1:02")
        await shows(pilot, "worker:1 @tf3 exit 1")
        await shows(pilot, f"? unknown  {lost.run_id}  0:01")
        await open_run(pilot, "lost")
        await shows(pilot, "ps:0 @localhost  lost")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
        await open_run(pilot, "good")
        await shows(pilot, "the very first line")
        await shows(pilot, "✓ success")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
        await open_run(pilot, "good")
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running or pilot.app._exit)


async def open_run(pilot: Pilot[int], name: str) -> None:
    """Opens a run of a list in the run screen."""
    screen = pilot.app.screen
    assert isinstance(screen, HomeScreen)
    screen.query_one("#runs").focus()
    await pilot.press("home")

    def run_id() -> str:
        return screen.entry.summary.run_id if isinstance(screen.entry, ListedRun) else ""

    while not (before := run_id()).startswith(name):
        await pilot.press("down")
        await until(pilot, partial(lambda above: run_id() != above, before))
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))


async def test_a_failed_past_run_opens_at_its_first_failure() -> None:
    """The failed task has the focus, and its last lines are in sight beside the summary."""
    failure = Failure(TaskId("worker", 0), "localhost", "exit 1", 1.0, (), ("what went wrong",))
    folder = ended_run("bad", outcome=Outcome.FAILED, exit_code=1, first_failure=failure)
    (folder.path / "ps-0.log").write_bytes(b"I am the ps\n")
    (folder.path / "worker-0.log").write_bytes(b"what went wrong\n")
    async with home(size=(80, 24)) as pilot:
        await shows(pilot, "Runs 1")
        pilot.app.screen.query_one("#runs").focus()
        await pilot.press("home", "enter")
        await shows(pilot, "✗ failed")
        await shows(pilot, "what went wrong")
        await shows(pilot, "▸worker:0")
        await shows(pilot, "Esc hide")
        await pilot.press("escape")
        await shows(pilot, "I am the ps")
        await until(pilot, lambda: missing(pilot, "Esc hide"))


def active(pilot: Pilot[int], run_id: str) -> bool:
    """A row says that a launcher supervises the run."""
    assert isinstance(pilot.app, TfmuxApp)
    return any("▸" in row and run_id in row for row in screen_text(pilot.app))


async def test_an_active_run_is_shown_and_ended_by_its_launcher(tmp_path: Path) -> None:
    """Nobody takes the run away: after F9, here or on its screen, who launched it sees it killed,
    and the receipt is here too. F9 again is a yes, as `y` is."""
    file = write(tmp_path, TEXT.replace('["sleep", "{port}"]', '["sleep", "600"]'))
    async with home() as pilot:
        for number, way in enumerate(("f9", "y", "on its screen"), 1):
            with Up("up", str(file), "--json") as up:
                up.state("ps:0", "starting")
                await until(pilot, partial(active, pilot, up.run_id))
                launcher = up.launcher
                if way == "on its screen":
                    await open_run(pilot, up.run_id)
                    await shows(pilot, "ps:0 @localhost")
                    assert up.launcher == launcher
                    await pilot.press("f9")
                else:
                    await pilot.press("f9")
                    await shows(pilot, "Kill this run, on all hosts?")
                    await pilot.press(way)
                receipts = ReceiptScreen if way == "on its screen" else KillRunsDialog
                await until(pilot, lambda kind=receipts: isinstance(pilot.app.screen, kind))  # type: ignore[misc]
                await shows(pilot, "no process is left")
                await pilot.press("escape")
                assert up.wait() == 130, up.transcript()
                if way == "on its screen":
                    await pilot.press("escape", "escape")
                    await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
                await shows(pilot, f"Runs {number}")


async def test_launch_kill_and_back_home(tmp_path: Path) -> None:
    """l launches the file under the cursor, F9 kills it on the run screen, Esc comes back, and
    the run is among the past ones."""
    sleeper = library.create("sleeper", TEXT.replace('["sleep", "{port}"]', '["sleep", "600"]'))
    sleeper.write_text(sleeper.read_text() + '[start.ready]\nps = "started"\nworker = "started"\n')
    async with home() as pilot:
        await shows(pilot, "sleeper")
        await pilot.press("l")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        await shows(pilot, "worker:1 @localhost  ready")
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(pilot.app.screen, ReceiptScreen))
        await shows(pilot, "no process is left")
        await pilot.press("escape", "escape", "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
        await shows(pilot, "■ killed")


async def test_a_template_becomes_a_cluster_in_the_editor(tfmux_home: Path) -> None:
    """a, a number, a name: the file is saved and the editor opens on it."""
    async with home() as pilot:
        await pilot.press("a")
        await shows(pilot, "One machine")
        await pilot.press("1")
        await shows(pilot, "Name")
        await pilot.press(*"mine", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, EditorScreen))
        assert [path.stem for path in library.saved()] == ["mine"]
        await pilot.press("escape")
        await shows(pilot, "1 ps + 2 workers on this machine")


async def test_everything_fits_80_by_24() -> None:
    """No row is wider than the screen, and the cursor's keys stand at the bottom."""
    library.create("mine", TEXT)
    good = ended_run("good").run_id
    async with home(size=(80, 24)) as pilot:
        await shows(pilot, "Runs 1")
        await shows(pilot, "Enter open  l launch")
        await shows(pilot, f"✓ success  {good[:8]}…{good[-11:]}  1:02  1,200  0.250")
        shutil.rmtree(library.folder())
        await pilot.press("f5")
        await shows(pilot, "a creates one from a template")


async def test_descriptions_stand_whole() -> None:
    """One row a demo, and that under the cursor below or beside it: no word is missing."""
    async with home(size=(80, 24)) as pilot:
        app = pilot.app
        assert isinstance(app, TfmuxApp)
        detail = app.screen.query_one("#detail")

        def seen() -> str:
            rows = (row[detail.region.x :].strip(" │") for row in screen_text(app))
            return " ".join(" ".join(rows).split())

        whole = "two tasks of one job: how the first waits for the second, and where operations run"
        for size in ((80, 24), (120, 40), (200, 50)):
            await pilot.resize_terminal(*size)
            await pilot.press("end")
            await until(pilot, lambda: whole in seen())
            rows = [row for row in screen_text(app) if "tour: " in row[: detail.region.x or None]]
            names = [row.split()[1 if "│" in row else 0] for row in rows]
            assert len(names) == len(set(names)) > 5, size


async def test_a_home_below_another_page_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees it, and a run on this machine needs the processor; it reads again when shown."""
    monkeypatch.setattr(screens_home, "POLL_SECONDS", 0.02)
    reads, read = [], Catalog.read

    def counted(catalog: Catalog) -> Entries:
        reads.append(1)
        return read(catalog)

    monkeypatch.setattr(Catalog, "read", counted)
    library.create("mine", TEXT)
    async with home() as pilot:
        await until(pilot, lambda: len(reads) > 2)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, EditorScreen))
        workers = pilot.app.workers
        await until(pilot, lambda: all(w.is_finished for w in workers if w.group == "read"))
        before, ticks = len(reads), []
        pilot.app.set_interval(0.02, lambda: ticks.append(1))
        await until(pilot, lambda: len(ticks) > 10)
        assert len(reads) == before
        await pilot.press("escape")
        await until(pilot, lambda: len(reads) > before)


async def test_active_runs_stand_first_with_phase_tasks_and_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whose launcher holds its lock: above the clusters, under titles, and the cursor is there. F9
    asks about it, and Esc leaves it."""
    library.create("mine", TEXT)
    folder = begun_run("living", *STARTED)
    metric = Metric(TaskId("worker", 0), "localhost", {"step": 1200, "loss": 0.25}, time=1030.0)
    folder.metrics.write_bytes(encode(metric))
    lock = folder.take_lock()
    assert lock is not None
    killed: list[str] = []
    monkeypatch.setattr(RunClients, "kill", lambda _, run_id, ask: killed.append(run_id))
    try:
        async with home() as pilot:
            await shows(pilot, "time   step   loss  tasks")
            await shows(pilot, "1 run active")
            assert isinstance(pilot.app, TfmuxApp)
            rows = screen_text(pilot.app)
            (number,) = (n for n, row in enumerate(rows) if "living-2026" in row and "▸" in row)
            assert "1,200  0.250    1/3" in rows[number]
            assert number < next(n for n, row in enumerate(rows) if "Clusters 1" in row)
            await shows(pilot, "x kill")
            await pilot.press("f9")
            await shows(pilot, "Kill this run, on all hosts?")
            await pilot.press("escape")
            await until(pilot, lambda: missing(pilot, "on all hosts?"))
            assert killed == []
    finally:
        os.close(lock)


async def test_dialogs_name_the_keys_that_are_bound() -> None:
    """Dialogs name the keys of going back and of yes, wherever they are asked for."""
    folder = begun_run("living")
    lock = folder.take_lock()
    assert lock is not None
    keys = {"dialog.back": "f2", "dialog.yes": "f3"}
    app = TfmuxApp(pages=[HomeScreen(RunClients())], config=Config(keys=keys))
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            await shows(pilot, "▸ ")
            await pilot.press("f9")
            await shows(pilot, "F3 or F9 kills   F2 cancels")
            await pilot.press("escape", "f2")
            await until(pilot, lambda: missing(pilot, "on all hosts?"))
            await pilot.press("a")
            await shows(pilot, "Enter chooses, F2 cancels")
            await pilot.press("f2", "question_mark")
            await shows(pilot, "F2 back")
            assert missing(pilot, "no such command")
    finally:
        os.close(lock)
