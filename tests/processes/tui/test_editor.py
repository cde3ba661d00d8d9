"""The cluster editor, driven by its keys."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from textual import events
from textual.geometry import Region
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import DataTable

from launcher.cluster import library
from launcher.cluster.draft import Draft, FileStatus
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.templates import PS_WORKERS, render
from launcher.preflight import Report
from tests.support.editing import (
    HOSTS,
    editor,
    form,
    gone,
    open_instead,
    row_of,
    said,
    screen_of,
    table_of,
    text_of,
)
from tests.support.paths import REPOSITORY
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.editor.cluster_table import ClusterTable
from tui.screens.editor.cluster_text import ClusterText
from tui.screens.editor.form import Form
from tui.screens.editor.screen import EditorScreen
from tui.screens.home import HomeScreen
from tui.screens.preflight_screen import PreflightScreen
from tui.screens.run_screen import RunScreen
from tui.widgets.colours import theme_colour
from tui.widgets.line_input import LineInput


async def to_text(pilot: Pilot[int]) -> None:
    """Moves the focus from the table to the text."""
    await pilot.press("tab")
    await until(pilot, lambda: isinstance(pilot.app.focused, ClusterText))


class Typing:
    """A person at the keys: counts those that are no words."""

    def __init__(self, pilot: Pilot[int]) -> None:
        self._pilot = pilot
        self.keys = 0

    async def press(self, *keys: str) -> None:
        """Presses keys that count."""
        self.keys += len(keys)
        await self._pilot.press(*keys)

    async def words(self, text: str) -> None:
        """Types words, which do not count."""
        await self._pilot.press(*text)


async def checked(cluster: ClusterModel, *_: object) -> Report:
    """A preflight that finds nothing."""
    return Report(cluster.name, tuple(cluster.hosts), (), (), (), 0.1)


async def save_check_launch(pilot: Pilot[int], person: Typing, path: Path) -> list[ClusterModel]:
    """Saves, tests and launches; returns what was launched, which nothing really starts."""
    launched: list[ClusterModel] = []

    def launch(cluster: ClusterModel, text: str, ask: object) -> None:
        assert text == path.read_text()
        launched.append(cluster)
        raise OSError("started")

    await person.press("ctrl+s")
    await shows(pilot, "saved in")
    with patch("tui.screens.preflight_screen.preflight", checked):
        await person.press("T")
        await until(pilot, lambda: isinstance(pilot.app.screen, PreflightScreen))
        await shows(pilot, "ready to launch")
        await person.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, EditorScreen))
    with patch.object(RunClients, "launch", side_effect=launch):
        await person.press("l")
        await until(pilot, lambda: bool(launched))
    return launched


def is_the_mission(cluster: ClusterModel) -> None:
    """Four hosts with one Python, 1 ps and 3 workers."""
    assert [str(host.ssh) for host in cluster.hosts.values()] == ["tf1", "tf2", "tf3", "tf4"]
    assert {host.python for host in cluster.hosts.values()} == {"/opt/tf/bin/python"}
    tasks = {name: [task.host for task in job.tasks] for name, job in cluster.jobs.items()}
    assert tasks == {"ps": ["tf1"], "worker": ["tf2", "tf3", "tf4"]}


async def test_from_a_template_to_a_launch_takes_eleven_keys_beside_the_words() -> None:
    """Nothing is there at first; four SSH hosts, 1 ps and 3 workers, one Python for all."""
    clients = RunClients()
    app = TfmuxApp(pages=[HomeScreen(clients)])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        person = Typing(pilot)
        await shows(pilot, "a creates one from a template")
        await person.press("a", "2")
        await shows(pilot, "Name")
        await person.press("enter")
        await person.words("tf[1-4]")
        await shows(pilot, "4 hosts: tf1, tf2, tf3, tf4")
        await person.press("enter")
        await shows(pilot, "hosts × jobs")
        await person.press("home", "enter")
        await form(pilot, "[defaults.host]")
        await person.words("/opt/tf/bin/python")
        await person.press("enter")
        await until(pilot, lambda: "[defaults.host]" in text_of(pilot))
        (launched,) = await save_check_launch(pilot, person, library.path_of("ps-workers"))
    clients.close()
    is_the_mission(launched)
    assert person.keys == 11


async def test_from_an_empty_file_to_a_launch_takes_21_keys_beside_the_words(
    tmp_path: Path,
) -> None:
    """Hosts, tasks, Python and command by the table and its forms; no TOML is typed."""
    path = tmp_path / "mission.toml"
    async with editor(path, size=(80, 24)) as pilot:
        person = Typing(pilot)
        await shows(pilot, "this machine")
        await person.press("a")
        await shows(pilot, "Add hosts")
        await person.words("tf[1-4]")
        await person.press("enter")
        await shows(pilot, "all hosts")
        await person.press("plus")
        await person.press("right", "down", "plus", "down", "plus", "down", "plus")
        await until(pilot, lambda: text_of(pilot).count(":auto") == 4)
        await person.press("g", "home", "enter")
        await form(pilot, "[defaults.host]")
        await person.words("/opt/tf/bin/python")
        await person.press("enter")
        await until(pilot, lambda: "[defaults.host]" in text_of(pilot))
        await person.press("f4")
        await shows(pilot, "[metrics]")
        await person.press("1")
        await form(pilot, "[run]")
        await person.words("{python} train.py")
        await person.press("enter")
        await shows(pilot, "✓")
        (launched,) = await save_check_launch(pilot, person, path)
    is_the_mission(launched)
    assert launched.run.command == ("{python}", "train.py")
    assert person.keys == 21


# --- the table ------------------------------------------------------------------------------------


async def test_tasks_come_and_go_where_the_cursor_is() -> None:
    """A task more on (tf2, worker), on its port where that is free; one less; of all hosts on
    each. Comments stay; each press is one step of undo. The last task of a job takes the job with
    it, where the job says nothing else and no comment is lost."""
    async with editor() as pilot:
        before, table = text_of(pilot), table_of(pilot)
        table.go("tf2", "worker")
        await pilot.press("plus")
        await until(pilot, lambda: 'tasks = ["tf2:2222", "tf3:2222", "tf2:auto"]' in text_of(pilot))
        await shows(pilot, ":2222 :auto")
        await pilot.press("up", "plus")
        await until(pilot, lambda: '"tf2:auto", "tf1:auto"]' in text_of(pilot))
        await pilot.press("up", "plus")
        await until(pilot, lambda: text_of(pilot).count("auto") == 5)
        await pilot.press("minus", "minus")
        await until(pilot, lambda: '["tf2:2222"]' in text_of(pilot))
        assert [line for line in before.splitlines() if "#" in line] == [
            line for line in text_of(pilot).splitlines() if "#" in line
        ]
        await pilot.press(*"uuuuu")
        await until(pilot, lambda: text_of(pilot) == before)
        await pilot.press("u")
        await shows(pilot, "nothing to undo")
        await pilot.press("ctrl+y")
        await until(pilot, lambda: '"tf2:auto"]' in text_of(pilot))
        await pilot.press("u")
        await until(pilot, lambda: text_of(pilot) == before)
        table.go("tf1", "ps")
        await pilot.press("minus")
        await until(pilot, lambda: "jobs.ps" not in text_of(pilot))
        await pilot.press("minus")
        await until(pilot, lambda: gone(pilot, "1 task"))
        table.go("tf1", "worker")
        await pilot.press("plus")
        await until(pilot, lambda: '"tf3:2222", "tf1:2222"]' in text_of(pilot))
        await pilot.press("ctrl+z", "ctrl+z")
        await until(pilot, lambda: text_of(pilot) == before)


async def test_a_job_of_any_name_is_added_in_the_last_column() -> None:
    """TensorBoard comes with its command; what is offered is what is not there."""
    async with editor() as pilot:
        await pilot.press("down", "end", "plus")
        await shows(pilot, "Add a job")
        await shows(pilot, "such as chief, evaluator, tensorboard")
        await pilot.press(*"tens", "right", "enter")
        await until(pilot, lambda: "[jobs.tensorboard]" in text_of(pilot))
        assert "tensorboard.main" in text_of(pilot) and "forward = true" in text_of(pilot)
        await until(pilot, lambda: table_of(pilot).job == "tensorboard")
        await pilot.press("minus")
        await until(pilot, lambda: "tasks = []" in text_of(pilot))  # its command stays
        await shows(pilot, "! 1 problem")


async def test_hosts_come_and_go() -> None:
    """Added with one line; deleted with their tasks, as one step; hosts that tasks name and the
    file does not are what `a` offers."""
    async with editor(size=(120, 40)) as pilot:
        await pilot.press("a")
        await shows(pilot, "Add hosts")
        await pilot.press(*"me@gpu[1-2]", "enter")
        await shows(pilot, "me@gpu2")
        await until(pilot, lambda: table_of(pilot).host == "gpu1")
        before = text_of(pilot)
        table_of(pilot).go("tf2", None)
        await pilot.press("home", "x")
        await shows(pilot, "tf2 and its tasks deleted")
        assert "tf2" not in text_of(pilot)
        await pilot.press("u")
        await until(pilot, lambda: text_of(pilot) == before)
        table_of(pilot).go("tf3", "worker")
        await pilot.press("x")
        await until(pilot, lambda: '["tf2:2222"]' in text_of(pilot))
        text = text_of(pilot)
        screen_of(pilot).query_one(ClusterText).put(text.replace('["tf2:', '["new:'))
        await shows(pilot, "! 1 problem")
        assert "the host new is not defined" in said(pilot)
        await pilot.press("a")
        await shows(pilot, "Add hosts")
        await pilot.press("enter")
        await until(pilot, lambda: '[hosts.new]\nssh = "new"' in text_of(pilot))
        await shows(pilot, "✓")


async def test_another_account_of_this_machine_is_added() -> None:
    """Given an account of this machine, which needs a login, when it is typed as a host, then the
    host has a name of its own, and the cluster has no problem."""
    async with editor() as pilot:
        await pilot.press("a")
        await shows(pilot, "Add hosts")
        await pilot.press(*"me@localhost", "enter")
        await until(pilot, lambda: '[hosts.localhost2]\nssh = "me@localhost"' in text_of(pilot))
        await shows(pilot, "✓")


async def test_a_cluster_is_pasted() -> None:
    """A TF_CONFIG or a cluster spec: jobs, tasks and hosts appear, and go as one step of undo."""
    async with editor() as pilot:
        before = text_of(pilot)
        for pasted in (
            '{"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"]}}',
            "ps=c:1 worker=a:1,b:1",
        ):
            await pilot.press("a")
            await shows(pilot, "Add hosts")
            pilot.app.post_message(events.Paste(pasted))
            await pilot.press("enter")
            await until(pilot, lambda: "[hosts.c]" in text_of(pilot))
            document = screen_of(pilot).now.document
            assert document is not None, pasted
            assert document.tasks("worker") == ["a:1", "b:1"], pasted
            assert document.tasks("ps") == ["c:1"], pasted
            await pilot.press("u")
            await until(pilot, lambda: text_of(pilot) == before)


@pytest.mark.parametrize("where", ["table", "text", "field"])
@pytest.mark.parametrize(
    "pasted",
    ["tf1, tf2\n" * 120_000, "step 7 loss 0.1 Error\n" * 50_000, "x" * 1_000_000],
    ids=["hosts", "log", "line"],
)
async def test_a_pasted_megabyte_is_refused_and_keys_are_answered(where: str, pasted: str) -> None:
    """What was pasted by mistake is entered nowhere, which is said, and the next key does what it
    does; a page of text is entered."""
    async with editor() as pilot:
        if where == "text":
            await to_text(pilot)
        if where == "field":
            await pilot.press("a")
            await until(pilot, lambda: isinstance(pilot.app.focused, LineInput))
        before = text_of(pilot)
        pilot.app.post_message(events.Paste(pasted))
        if where == "table":
            await pilot.press("a")
            await until(pilot, lambda: isinstance(pilot.app.focused, LineInput))
        await pilot.press("Z")
        await until(pilot, lambda: not gone(pilot, "nothing was entered"))
        focused = pilot.app.focused
        if isinstance(focused, LineInput):
            await until(pilot, lambda: focused.value == "Z")
            assert text_of(pilot) == before
        else:
            await until(pilot, lambda: "Z" in text_of(pilot))
            assert text_of(pilot).replace("Z", "") == before
            pilot.app.post_message(events.Paste("# a comment\n" * 1000))
            await until(pilot, lambda: "# a comment" in text_of(pilot))


async def test_a_script_is_pasted(tmp_path: Path) -> None:
    """Given a script of several lines with a TF_CONFIG and an old line, when it is pasted over the
    table, then the dialog says what was understood, and Enter takes it; prose is refused whole."""
    path = tmp_path / "new.toml"
    script = (
        '# TF_CONFIG=\'{"cluster": {"worker": ["old:1"]}}\'\n'
        'TF_CONFIG=\'{"cluster": {"ps": ["tf1:2222"],\n'
        ' "worker": ["tf2:2222", "tf3:2222"]}}\' python3 train.py --lr 0.1\n'
    )
    async with editor(path, size=(80, 24)) as pilot:
        pilot.app.post_message(events.Paste("please use tf1 and tf2"))
        await shows(pilot, "'please' is not a host")
        await pilot.press("enter", "escape")
        assert text_of(pilot) == ""
        pilot.app.post_message(events.Paste(script))
        await shows(pilot, "a TF_CONFIG: 1 ps and 2 workers on tf1–tf3, ports as given")
        await pilot.press("enter")
        await until(pilot, lambda: "[hosts.tf3]" in text_of(pilot))
        document = screen_of(pilot).now.document
        assert document is not None and document.tasks("worker") == ["tf2:2222", "tf3:2222"]
        assert document.get("run", "command") == ["{python}", "train.py", "--lr", "0.1"]
        assert "old" not in text_of(pilot)


async def test_a_file_of_another_program_is_a_new_cluster(tmp_path: Path) -> None:
    """Given a Compose file, when it is opened, then the editor has a new cluster of it, not saved
    yet, with what was left out above it, and the Compose file stays as it is."""
    path = tmp_path / "compose.yaml"
    path.write_text("services:\n  ps: {command: a b}\n  worker: {command: a b, image: me/x}\n")
    before = path.read_text()
    clients = RunClients()
    home = HomeScreen(clients)
    app = TfmuxApp(pages=[home, home.editor(path)])
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        await shows(pilot, "not saved")
        await shows(pilot, "1 ps and 1 worker on this machine")
        assert "image me/x is left out" in text_of(pilot)
        await pilot.press("ctrl+s")
        await until(pilot, (tmp_path / "compose.toml").exists)
    clients.close()
    assert path.read_text() == before


async def test_each_key_of_a_host_has_a_column(tmp_path: Path) -> None:
    """Behind the jobs stand keys that the file sets for any host; Enter opens the form at one."""
    file = tmp_path / "keys.toml"
    file.write_text(
        '[defaults.host]\nsetup = "source env"\n[hosts.a]\nssh = "a"\ngpus = 2\n'
        '[hosts.b]\nssh = "b"\nenv = { X = "1" }\n[jobs.worker]\ntasks = ["a:1", "b:1"]\n'
    )
    async with editor(file, size=(160, 40)) as pilot:
        await shows(pilot, "source env  X=1")
        table = table_of(pilot)
        titles = [str(column.label) for column in table.ordered_columns]
        assert titles[-4:] == ["+ job", "gpus", "setup", "env"]
        table.go("b")
        await pilot.press("end", "enter")
        await form(pilot, "[hosts.b]")
        assert isinstance(pilot.app.focused, LineInput)
        assert pilot.app.focused.value == "X=1"


async def test_what_the_table_does_not_understand_it_never_overwrites(tmp_path: Path) -> None:
    """The refusal says why, and the text stays."""
    odd = {
        "hosts = 3\n": (["a", *"tf9", "enter"], "unusual form"),
        '[jobs.ps]\ntasks = "tf1:1"\n': (["plus"], "the tasks of ps are not a list"),
        '[jobs]\nps = 3\n[hosts.a]\nssh="a"\n': (["plus"], "unusual form"),
    }
    async with editor() as pilot:
        for number, (text, (keys, said)) in enumerate(odd.items()):
            path = tmp_path / f"{number}-odd.toml"
            path.write_text(text)
            pilot.app.clear_notifications()
            await open_instead(pilot, path)
            await until(pilot, lambda said=said: gone(pilot, said))  # type: ignore[misc]
            await pilot.press(*keys)
            await shows(pilot, said)
            assert text_of(pilot) == text


async def test_a_file_that_is_no_toml_is_shown_and_never_changed_by_the_table() -> None:
    """Instead of the table stands why there is none; the cursor is in the text. Nothing is saved
    until it is corrected, and then the table is there."""
    path = library.create("mission", render(PS_WORKERS, "mission", HOSTS, Path("/srv")))
    good = path.read_text()
    path.write_text("tfmux\n" + good)
    async with editor(path) as pilot:
        await shows(pilot, "The table of hosts and jobs needs a file in valid TOML")
        await shows(pilot, "line 1")
        await until(pilot, lambda: isinstance(pilot.app.focused, ClusterText))
        assert gone(pilot, "hosts × jobs")
        for action in ("add_task", "remove_task", "add", "remove", "settings", "launch", "save"):
            await screen_of(pilot).run_action(f"screen.{action}")
            await pilot.pause()
        await shows(pilot, "Not saved")
        assert text_of(pilot) == path.read_text() == "tfmux\n" + good
        await pilot.press("ctrl+home", *["delete"] * 6)
        await shows(pilot, "hosts × jobs")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: path.read_text() == good)


async def test_the_mouse_moves_the_cursor_opens_a_form_and_undoes() -> None:
    """A click on a host moves the cursor to it, and another opens its form. A text has its own
    footer: where it is no TOML there is no table to go to, and Escape leaves."""
    async with editor() as pilot:
        before, table = text_of(pilot), table_of(pilot)
        assert await pilot.click(table, offset=(2, 4))
        await until(pilot, lambda: table.host == "tf2")
        assert isinstance(pilot.app.screen, EditorScreen)
        assert await pilot.click(table, offset=(2, 4))
        await form(pilot, "[hosts.tf2]")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, EditorScreen))
        assert await pilot.click(ClusterText, offset=(10, 3))
        await until(pilot, lambda: isinstance(pilot.app.focused, ClusterText))
        await shows(pilot, "Esc table")
        await pilot.press("ctrl+home", "x")
        await shows(pilot, "Esc back")
        row = screen_text(pilot.app)[-1]
        assert "form" not in row
        assert await pilot.click(offset=(row.index("undo"), pilot.app.size.height - 1))
        await until(pilot, lambda: text_of(pilot) == before)
        await shows(pilot, "Esc table")


# --- forms ----------------------------------------------------------------------------------------


async def test_a_form_explains_and_takes_what_is_typed() -> None:
    """A wrong value is explained below the form, and Escape leaves everything as it was; a right
    one is taken, as one step of undo. ↑ and ↓ lead from key to key; a line that stands for nothing
    keeps the form open until it is corrected. A host that gets another name keeps its tasks, and
    the cursor; a name that is taken is refused."""
    async with editor() as pilot:
        before = text_of(pilot)
        await pilot.press("down", "home", "right", "enter")
        await form(pilot, "[hosts.tf1]")
        await pilot.press(*":0")
        await shows(pilot, "! the port is out of range: write 1 to 65535")
        await pilot.press("escape")
        await until(pilot, lambda: gone(pilot, "out of range"))
        assert text_of(pilot) == before
        await pilot.press("enter", *":2200", "enter")
        await until(pilot, lambda: 'ssh = "root@tf1:2200"' in text_of(pilot))
        await shows(pilot, "● not saved")
        await pilot.press("ctrl+z")
        await until(pilot, lambda: text_of(pilot) == before)

        table_of(pilot).go("", "ps")
        await pilot.press("enter")
        await form(pilot, "[jobs.ps]")
        await pilot.press("down", "down", *'python "x', "enter")
        await shows(pilot, "! a quote is not closed")
        assert isinstance(pilot.app.screen, Form)
        await pilot.press('"', "enter")
        await until(pilot, lambda: 'command = ["python", "x"]' in text_of(pilot))

        table_of(pilot).go("tf2", None)
        await pilot.press("home", "enter")
        await form(pilot, "[hosts.tf2]")
        await pilot.press("backspace", "3", "enter")
        await shows(pilot, "already a host tf3")
        await pilot.press("backspace", "9", "enter")
        await until(pilot, lambda: 'tasks = ["tf9:2222", "tf3:2222"]' in text_of(pilot))
        await until(pilot, lambda: table_of(pilot).host == "tf9")


async def test_a_wrong_value_may_be_taken_and_is_marked() -> None:
    """In the table, at its line and below; it can be saved, and `e` goes to its line."""
    async with editor(size=(120, 40)) as pilot:
        await pilot.press("down", "home", "right", "enter")
        await form(pilot, "[hosts.tf1]")
        await pilot.press(*" x", "enter")
        await shows(pilot, "! 1 problem")
        await shows(pilot, "tf1 !")
        await shows(pilot, "problems, and the plan before them")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.focused, ClusterText))
        await shows(pilot, 'it contains blanks or quotes: write "root@tf1x"')
        await pilot.press("ctrl+s")
        await shows(pilot, "saved in")
        assert "root@tf1 x" in library.path_of("mission").read_text()


async def test_the_whole_editor_at_80_by_24() -> None:
    """Table and file one above the other; the plan on a key, and back. The keys of the longest form
    scroll below its title, and the key for accepting is always in sight; of a long line its end is
    shown, where the cursor is. An editor knows how small it is before it is drawn: nothing is seen
    to jump."""
    async with editor(size=(80, 24)) as pilot:
        await shows(pilot, "root@tf3")
        await shows(pilot, "[jobs.ps]")
        await shows(pilot, "l launch")
        await pilot.press("space")
        await shows(pilot, "starts ps:0")
        await until(pilot, lambda: gone(pilot, "root@tf3"))
        await pilot.press("down")
        await shows(pilot, "worker:0 on tf2")
        await pilot.press("escape")
        await shows(pilot, "root@tf3")

        await pilot.press("f4", "1")
        await form(pilot, "[run]")
        await shows(pilot, "program and arguments")
        await shows(pilot, "--steps=2000")
        await shows(pilot, "Enter accepts")
        await pilot.press("up")
        await shows(pilot, "log limit")
        await shows(pilot, "Enter accepts")
        await pilot.press("x")
        await shows(pilot, "! ")
        await shows(pilot, "Enter accepts")
        await pilot.press("down", "down")
        await shows(pilot, "workdir")
        await until(pilot, lambda: getattr(pilot.app.focused, "name", "") == "workdir")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, EditorScreen))

        home, classes = pilot.app.screen_stack[1], []
        assert isinstance(home, HomeScreen)

        def drawn(table: ClusterTable, crop: Region) -> list[Strip]:
            classes.append(table.screen.classes)
            return DataTable.render_lines(table, crop)

        with patch.object(ClusterTable, "render_lines", drawn):
            await pilot.app.switch_screen(home.editor(screen_of(pilot).draft.path))
            await until(pilot, lambda: bool(classes))
        assert {"-low", "-below"} <= classes[0]

        await pilot.resize_terminal(60, 16)
        await shows(pilot, "tf1")
        await shows(pilot, "[jobs.ps]")


async def test_the_form_of_the_text_s_table(tmp_path: Path) -> None:
    """F4 in the text opens the form of the table that the cursor is in, at its key. What is typed
    last is saved: that does not wait for the pause after the last key."""
    path = tmp_path / "text.toml"
    path.write_text(render(PS_WORKERS, "text", HOSTS, Path("/srv")) + "[start]\ntimeout = 9\n")
    async with editor(path) as pilot:
        await to_text(pilot)
        await pilot.press("ctrl+end", "up", "f4")
        await form(pilot, "[start]")
        await pilot.press("0", "enter")
        await until(pilot, lambda: "timeout = 90" in text_of(pilot))
        await until(pilot, lambda: isinstance(pilot.app.focused, ClusterText))
        await pilot.press("ctrl+home", "#", "1", "enter", "ctrl+s")
        await until(pilot, lambda: path.read_text().startswith("#1\n"))


# --- the text -------------------------------------------------------------------------------------


async def test_the_number_of_problems_is_in_sight_at_80_columns(tmp_path: Path) -> None:
    """Whatever the name, and also when the file is not saved."""
    async with editor(size=(80, 24)) as pilot:
        for name in ("another", "a-long-name-of-a-cluster-on-many-hosts"):
            path = tmp_path / f"{name}.toml"
            path.write_text("[jobs.worker]\ntasks = 0\n[run]\ncommand = []\nkind = 3\n")
            await open_instead(pilot, path)
            await to_text(pilot)
            await pilot.press("#")
            await shows(pilot, "● not saved")
            row = row_of(pilot, "● not saved")
            assert f"! {len(screen_of(pilot).now.problems)} problems" in row
            assert row.lstrip().startswith(name[:5])


async def test_the_text_itself_is_edited() -> None:
    """Broken TOML is explained with its line and is not saved; repaired, it is, and the table
    shows it. Typing is one step of undo, from the table, too."""
    async with editor() as pilot:
        saved = library.path_of("mission").read_text()
        text = screen_of(pilot).query_one(ClusterText)
        text.history.checkpoint_timer = 600.0  # a busy machine types slowly
        await to_text(pilot)
        await pilot.press("ctrl+home", "x", "enter")
        await shows(pilot, "The table of hosts and jobs needs a file in valid TOML")
        await pilot.press("ctrl+s")
        await shows(pilot, "Not saved")
        assert library.path_of("mission").read_text() == saved
        await pilot.press("backspace", "backspace", *"# hi", "enter", "escape")
        await until(pilot, lambda: isinstance(pilot.app.focused, ClusterTable))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: library.path_of("mission").read_text().startswith("# hi\n"))
        await pilot.press("u", "u")
        await until(pilot, lambda: text_of(pilot) == saved)


async def test_digits_letters_and_ctrl_c_are_the_text_s_own() -> None:
    """In the table digits do nothing; in the text nothing is a command but what is no letter.
    Ctrl-C copies selected text, and does not leave the editor."""
    async with editor() as pilot:
        before = text_of(pilot)
        await pilot.press(*"123456789", "f5")
        assert text_of(pilot) == before and isinstance(pilot.app.screen, EditorScreen)
        await to_text(pilot)
        typed = "123 ltaxqu+-? S"
        await pilot.press("ctrl+home", "#", *typed)
        await until(pilot, lambda: text_of(pilot).startswith(f"#{typed}"))
        assert isinstance(pilot.app.screen, EditorScreen)
        await pilot.press("ctrl+home", "shift+end", "ctrl+c")
        await until(pilot, lambda: pilot.app.clipboard != "")
        assert pilot.app.clipboard == text_of(pilot).splitlines()[0]
        assert pilot.app.screen is screen_of(pilot)


async def test_every_character_of_a_file_is_kept(tmp_path: Path) -> None:
    """Line ends of two kinds, and characters that are line ends elsewhere: opening the file
    changes nothing, nor does an edit of the table or the text change another line, and undo
    brings back every byte."""
    mixed = "# a\u2028b\n# a\x85b\n# a\tb\n# a\r\n# b\n"  # TOML has no form feed
    mixed += render(PS_WORKERS, "lines", HOSTS, Path("/srv"))
    windows = mixed.replace("\r\n", "\n").replace("\n", "\r\n")
    async with editor() as pilot:
        for name, text in (("mixed", mixed), ("windows", windows)):
            path = tmp_path / f"{name}.toml"
            path.write_bytes(text.encode())
            pilot.app.clear_notifications()
            await open_instead(pilot, path)
            await until(pilot, lambda: gone(pilot, "saved in"))
            await shows(pilot, "root@tf1")
            assert text_of(pilot) == text and not screen_of(pilot).modified
            await to_text(pilot)
            await pilot.press("ctrl+end", "#", "enter", "ctrl+home", "#", "delete", "escape")
            await until(pilot, lambda: isinstance(pilot.app.focused, ClusterTable))
            await pilot.press(*"uuuu")
            await until(pilot, lambda text=text: text_of(pilot) == text)  # type: ignore[misc]
            table_of(pilot).go("tf1", "ps")
            await pilot.press("plus", "ctrl+s")
            await shows(pilot, "saved in")
            changed = path.read_bytes().decode()
            assert changed == text.replace('["tf1:2222"]', '["tf1:2222", "tf1:auto"]')
            await pilot.press("u", "ctrl+s")
            undone = partial(lambda path, text: path.read_bytes().decode() == text, path, text)
            await until(pilot, undone)


async def test_keys_under_the_cursor_in_the_colours_of_the_theme() -> None:
    """The table's keys with their sentences, in a list; the one under the cursor also above the
    footer. The text follows the cursor of the table. No colour of the theme before is left."""
    async with editor(size=(120, 40)) as pilot:
        await shows(pilot, "settings of [jobs")
        await shows(pilot, "when a task is ready and the next stage may start")
        await shows(pilot, "✓")
        before = [theme_colour(pilot.app, name) for name in ("accent-text", "status-good")]
        assert all(colour in pilot.app.export_screenshot() for colour in before)
        pilot.app.theme = "textual-light"
        await until(
            pilot, lambda: not any(colour in pilot.app.export_screenshot() for colour in before)
        )
        await pilot.press("down", "home", "right")
        await shows(pilot, "settings of [hosts")
        await shows(pilot, "ssh: ")
        text = screen_of(pilot).query_one(ClusterText)
        await until(pilot, lambda: text.get_line(text.cursor_location[0]).plain == "[hosts.tf1]")
        await to_text(pilot)
        await pilot.press("ctrl+end", "up")
        await shows(pilot, "settings of [metrics")
        await shows(pilot, "total: ")


# --- the plan -------------------------------------------------------------------------------------


async def test_the_plan_follows_what_is_typed_and_pasted() -> None:
    """Beside the table on a wide screen: command, environment and TF_CONFIG of a task. A script's
    line that is pasted over the table is its cluster: it stands in the dialog, to be looked at
    first; the plan shows it as flags again."""
    flags = "--ps_hosts=c:1 --worker_hosts=a:1,b:1"
    async with editor(size=(200, 50)) as pilot:
        await shows(pilot, "starts ps:0")
        await shows(pilot, "TF_CONFIG")
        assert gone(pilot, flags)
        pilot.app.post_message(events.Paste(f"python train.py \\\n  {flags} --task_index=0\n"))
        await shows(pilot, "Add hosts")
        await pilot.press("enter")
        await until(pilot, lambda: "[hosts.c]" in text_of(pilot))
        await shows(pilot, flags)
        await to_text(pilot)
        text = text_of(pilot)
        row = text[: text.index('"--steps=2000"')].count("\n")
        screen_of(pilot).query_one(ClusterText).move_cursor((row, 0))
        await pilot.press("end", "left", "left", *"7")
        await shows(pilot, "--steps=20007")


async def test_problems_and_the_plan_before_them_are_in_sight() -> None:
    """While a word is half typed the plan does not go; all problems stand above it. A click on a
    problem, also on its second row, goes to its line in the text, which then has the focus."""
    async with editor(size=(120, 40)) as pilot:
        await shows(pilot, "starts ps:0")
        text = screen_of(pilot).query_one(ClusterText)
        text.put(re.sub(r'"tf(\d):2222"', r'"un\1:2222"', text_of(pilot)))
        await shows(pilot, "problems, and the plan before them")
        rows = screen_text(screen_of(pilot).app)
        seen = [row[76:].strip(" │") for row in rows]
        assert {number for row in seen for number in re.findall(r"! line (\d+)", row)} == {
            str(problem.line) for problem in screen_of(pilot).now.problems
        }
        assert len(screen_of(pilot).now.problems) >= 3
        assert any("worker:0  on tf2" in row for row in seen)
        starts = [y for y, row in enumerate(rows) if "! line " in row]
        number = int(re.findall(r"! line (\d+)", rows[starts[1]])[0])
        for y in (starts[1], starts[2] - 1):
            text.move_cursor((0, 0))
            await pilot.click(offset=(80, y))
            await until(pilot, lambda: text.has_focus and text.cursor_location[0] == number - 1)
        await pilot.press("ctrl+z")
        await shows(pilot, "starts ps:0")


# --- the file -------------------------------------------------------------------------------------


async def test_a_file_changed_or_deleted_meanwhile_is_noticed() -> None:
    """Where nothing is unsaved the file is read again, and that is said; otherwise the screen asks
    which version counts. Reading the file again can be undone. That it was
    deleted is said, and saving brings it back. What is not saved is asked about by Escape, once,
    also where that is pressed faster than the question appears: Escape stays, `d` leaves without
    saving."""
    async with editor() as pilot:
        path = library.path_of("mission")
        path.write_text(path.read_text() + "# by another\n")
        await shows(pilot, "changed on disk, read again")
        assert "# by another" in text_of(pilot)
        await pilot.press("plus")
        path.write_text(path.read_text() + "# by a third\n")
        await shows(pilot, "The file has changed on disk")
        await pilot.press("r")
        await until(pilot, lambda: "# by a third" in text_of(pilot))
        await pilot.press("ctrl+z")
        await until(pilot, lambda: "# by a third" not in text_of(pilot))

        path.unlink()
        await shows(pilot, "the file was deleted")
        await pilot.press("ctrl+s")
        await until(pilot, path.exists)
        saved = path.read_text()
        assert saved == text_of(pilot)

        await pilot.press("plus")
        screen = screen_of(pilot)
        screen.action_back()
        screen.action_back()
        await shows(pilot, "Unsaved changes")
        await pilot.press("escape")
        await until(pilot, lambda: gone(pilot, "Unsaved changes"))
        assert pilot.app.screen is screen
        await pilot.press("escape", "d")
        await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
        assert path.read_text() == saved


async def test_the_question_about_a_changed_file_waits_for_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Further looks at the disk neither ask again nor take the question away; `k` keeps the text
    from here, and saving then overwrites the file without asking."""
    looks = 0
    disk = Draft.file_status

    def counted(draft: Draft) -> FileStatus:
        nonlocal looks
        looks += 1
        return disk(draft)

    monkeypatch.setattr("tui.screens.editor.screen.DISK_SECONDS", 0.02)
    monkeypatch.setattr(Draft, "file_status", counted)
    async with editor() as pilot:
        path = library.path_of("mission")
        await pilot.press("plus")
        path.write_text(path.read_text() + "# by another\n")
        await shows(pilot, "The file has changed on disk")
        dialog, before = pilot.app.screen, looks
        ticks: list[int] = []
        pilot.app.set_interval(0.02, lambda: ticks.append(1))
        await until(pilot, lambda: len(ticks) > 10)
        assert pilot.app.screen is dialog and looks == before
        await pilot.press("k")
        await until(pilot, lambda: looks > before)
        await pilot.press("ctrl+s")
        await shows(pilot, "saved in")
        assert "# by another" not in path.read_text()


async def test_a_changed_file_does_not_interrupt_typing() -> None:
    """In the text no letter answers the question: it comes at saving."""
    async with editor() as pilot:
        path = library.path_of("mission")
        await to_text(pilot)
        path.write_text(path.read_text() + "# by another\n")
        await shows(pilot, "the file has changed on disk")
        await pilot.press("#", *"rk", "enter", "ctrl+s")
        await shows(pilot, "The file has changed on disk")
        assert "rk" in text_of(pilot) and "# by another" in path.read_text()


async def test_save_and_leave_asks_about_a_changed_file() -> None:
    """Also when the question was put off before: going back stays and writes nothing, `k`
    overwrites and leaves. Saving under the file's own name asks, too."""
    async with editor() as pilot:
        path = library.path_of("mission")
        await pilot.press("plus")
        path.write_text(path.read_text() + "# by another\n")
        await shows(pilot, "The file has changed on disk")
        await pilot.press("escape")
        await until(pilot, lambda: gone(pilot, "The file has changed on disk"))
        screen_of(pilot).action_save_as()
        await shows(pilot, "a name, or the path of a .toml file")
        pilot.app.screen.query_one(LineInput).value = "mission"
        await pilot.press("enter")
        for answer in ("escape", "escape", "k"):
            await shows(pilot, "The file has changed on disk")
            assert "# by another" in path.read_text()
            await pilot.press(answer)
            await until(pilot, lambda: gone(pilot, "The file has changed on disk"))
            if answer == "escape":
                await pilot.press("escape")
                await shows(pilot, "Unsaved changes")
                await pilot.press("s")
        await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
        assert "# by another" not in path.read_text()


async def test_a_read_only_file_is_saved_under_another_name(tmp_path: Path) -> None:
    """The refusal says what to do, and S does it."""
    path = tmp_path / "fixed.toml"
    path.write_text(render(PS_WORKERS, "fixed", HOSTS, Path("/srv")))
    path.chmod(0o444)
    async with editor(path) as pilot:
        await pilot.press("plus", "ctrl+s")
        await shows(pilot, "read-only")
        await pilot.press("S")
        await shows(pilot, "a name, or the path of a .toml file")
        await pilot.press("enter")
        await until(pilot, lambda: library.path_of("fixed").exists())
    assert "auto" not in path.read_text()
    assert "tf1:auto" in library.path_of("fixed").read_text()


async def test_a_name_that_no_file_can_have_loses_nothing() -> None:
    """The refusal says why, and the editor keeps what was not saved."""
    async with editor() as pilot:
        await pilot.press("plus")
        for answer, said in (
            ("~nosuchuser/x.toml", "there is no such user"),
            (f"/tmp/{'x' * 300}.toml", "File name too long"),
        ):
            await pilot.press("S")
            await shows(pilot, "a name, or the path of a .toml file")
            pilot.app.screen.query_one(LineInput).value = answer
            await pilot.press("enter")
            await shows(pilot, said)
            assert pilot.app.screen is screen_of(pilot) and screen_of(pilot).modified


async def test_launch_from_the_editor_and_back(tmp_path: Path) -> None:
    """The key that the README names launches what is on the screen; after the run one is back in
    the editor."""
    readme = (REPOSITORY / "README.md").read_text()
    named = re.search(r"`tfmux cluster\.toml`, then `(\w+)`", readme)
    assert named is not None
    path = tmp_path / "quick.toml"
    path.write_text(
        '[jobs.worker]\ntasks = ["localhost:auto"]\nready = "started"\n'
        '[run]\ncommand = ["echo", "from the first"]\nworkdir = ""\n'
    )
    async with editor(path) as pilot:
        await pilot.press(named[1])
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        await shows(pilot, "from the first")
        await shows(pilot, "✓ success")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, EditorScreen))


async def test_what_is_not_saved_is_never_launched_silently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The screen asks: Enter saves and launches, `l` launches what is on the screen, Escape stays.
    A cluster with something wrong starts nothing."""
    launched: list[str] = []

    def launch(clients: RunClients, cluster: ClusterModel, text: str, ask: object) -> None:
        launched.append(text)
        raise OSError("started")

    monkeypatch.setattr(RunClients, "launch", launch)
    async with editor() as pilot:
        path = library.path_of("mission")
        before = path.read_text()
        await pilot.press("plus", "l")
        await shows(pilot, "The file is not saved")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, EditorScreen))
        assert not launched and path.read_text() == before
        await pilot.press("l")
        await shows(pilot, "The file is not saved")
        await pilot.press("l")
        await until(pilot, lambda: launched == [text_of(pilot)])
        assert path.read_text() == before
        await until(pilot, lambda: isinstance(pilot.app.screen, EditorScreen))
        await pilot.press("l")
        await shows(pilot, "The file is not saved")
        await pilot.press("enter")
        await until(pilot, lambda: len(launched) == 2)
        assert path.read_text() == launched[1] == text_of(pilot) != before
        await until(pilot, lambda: isinstance(pilot.app.screen, EditorScreen))
        table_of(pilot).go("", "ps")
        await pilot.press("enter")
        await form(pilot, "[jobs.ps]")
        await pilot.press("down", *"x", "enter", "l")
        await shows(pilot, "Not launched")
        assert isinstance(pilot.app.screen, EditorScreen) and len(launched) == 2
