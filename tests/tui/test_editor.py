"""The cluster editor, driven by its keys."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from launcher.cluster import library
from launcher.cluster.draft import Draft, FileStatus
from launcher.cluster.templates import PS_WORKERS, render
from tests.tui.conftest import screen_text, shows, until
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.editor.screen import EditorScreen
from tui.screens.editor.table import EditTable
from tui.screens.home import HomeScreen
from tui.screens.run import RunScreen
from tui.widgets.line_input import LineInput

HOSTS = {"tf1": "root@tf1", "tf2": "root@tf2", "tf3": "root@tf3"}


@asynccontextmanager
async def editor(
    path: Path | None = None, size: tuple[int, int] = (100, 30)
) -> AsyncIterator[Pilot[int]]:
    """The app with the editor open on a saved cluster of three hosts, or on another file."""
    clients = RunClients()
    if path is None:
        path = library.create("mission", render(PS_WORKERS, "mission", HOSTS, Path("/srv")))
    home = HomeScreen(clients)
    app = TfmuxApp(pages=[home, home.editor(path)])
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(pilot, lambda: isinstance(app.screen, EditorScreen))
            await shows(pilot, "5 Plan")
            yield pilot
    finally:
        clients.close()


def screen_of(pilot: Pilot[int]) -> EditorScreen:
    """The editor."""
    screen = next(s for s in pilot.app.screen_stack if isinstance(s, EditorScreen))
    assert isinstance(screen, EditorScreen)
    return screen


def text_of(pilot: Pilot[int]) -> str:
    """The file as it stands in the editor."""
    return screen_of(pilot).draft.now.text


def gone(pilot: Pilot[int], text: str) -> bool:
    """A text is not on the screen."""
    assert isinstance(pilot.app, TfmuxApp)
    return not any(text in row for row in screen_text(pilot.app))


@pytest.mark.large
async def test_a_cell_is_edited_in_place_and_explained_as_it_is_typed() -> None:
    """The message comes while typing, below the field; Escape leaves everything as it was;
    a right value is taken, and undone."""
    async with editor() as pilot:
        before = text_of(pilot)
        await pilot.press("right", "enter")
        await shows(pilot, "Enter accept")
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


@pytest.mark.parametrize("name", ["mission", "a-long-name-of-a-cluster-on-many-hosts"])
async def test_the_number_of_problems_is_in_sight_at_80_columns(tmp_path: Path, name: str) -> None:
    """With the pages, whatever the name, and also when the file is not saved."""
    path = tmp_path / f"{name}.toml"
    path.write_text("[jobs.worker]\ntasks = 0\n[run]\ncommand = []\nkind = 3\n")
    async with editor(path, size=(80, 24)) as pilot:
        await pilot.press("4", "#")
        await shows(pilot, "●")
        row = row_of(pilot, "1 Hosts")
        assert f"! {len(screen_of(pilot).draft.now.problems)} problems" in row
        assert "5 Plan" in row and "●" in row and row.lstrip().startswith(name[:5])


def row_of(pilot: Pilot[int], text: str) -> str:
    """The first row with a text."""
    assert isinstance(pilot.app, TfmuxApp)
    return next(row for row in screen_text(pilot.app) if text in row)


@pytest.mark.large
async def test_a_value_typed_slowly_is_taken_like_any_other() -> None:
    """By then it has been checked, and the table already shows it."""
    async with editor() as pilot:
        await pilot.press("right", "right", "right", "enter", *"/opt/py")
        body = screen_of(pilot).query_one("#hosts", EditTable).body
        await until(pilot, lambda: body.cell is not None and body.cell.text == "/opt/py")
        await pilot.press("enter")
        await until(pilot, lambda: 'python = "/opt/py"' in text_of(pilot))


@pytest.mark.large
async def test_escape_leads_from_the_text_to_the_tables() -> None:
    """As the footer says; from a file that nobody can read there is only the way out."""
    async with editor() as pilot:
        before = text_of(pilot)
        await pilot.press("4")
        await shows(pilot, "Esc tables")
        await pilot.press("x", "escape")
        await shows(pilot, "Unsaved changes")
        await pilot.press("escape")
        await until(pilot, lambda: gone(pilot, "Unsaved changes"))
        await pilot.press("ctrl+z")
        await until(pilot, lambda: text_of(pilot) == before)
        await pilot.press("escape")
        await shows(pilot, "SSH host name")


@pytest.mark.large
async def test_what_is_wrong_stays_below_its_row_and_e_goes_there() -> None:
    """A wrong value may be taken: it is shown at its field, on the plan, and can be saved."""
    async with editor() as pilot:
        await pilot.press("right", "enter", *" x", "enter")
        await shows(pilot, '! ssh: it contains blanks or quotes: write "root@tf1x"')
        await shows(pilot, "! 1 problem")
        await pilot.press("5")
        await shows(pilot, "no plan until these problems are fixed")
        await pilot.press("e")
        await shows(pilot, "! it contains blanks or quotes")  # in full, below the tables
        await pilot.press("ctrl+s")
        await shows(pilot, "saved in")
        assert "root@tf1 x" in library.path_of("mission").read_text()


@pytest.mark.large
async def test_five_workers_in_one_line_and_undo_in_one_step() -> None:
    """On the Jobs page, a adds tasks to the job that was chosen above."""
    async with editor() as pilot:
        await pilot.press("2", "down", "tab", "a")
        await shows(pilot, "Add tasks to worker")
        await pilot.press("ctrl+a", "delete", *"tf3:[4001-4005]", "enter")
        await shows(pilot, "worker:6")
        assert text_of(pilot).count("tf3:400") == 5
        await pilot.press("u")
        await until(pilot, lambda: "tf3:400" not in text_of(pilot))


@pytest.mark.large
async def test_a_tf_config_is_pasted() -> None:
    """p takes it; jobs, tasks and hosts appear."""
    async with editor() as pilot:
        await pilot.press("2", "p")
        await shows(pilot, "Paste a cluster")
        pasted = '{"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"]}}'
        pilot.app.post_message(events.Paste(pasted))
        await pilot.press("enter")
        await until(pilot, lambda: "[hosts.c]" in text_of(pilot))
        await shows(pilot, "a:1, b:1")
        await pilot.press("1")
        await shows(pilot, "tf3")


@pytest.mark.large
async def test_rows_come_and_go() -> None:
    """Hosts added with one line, copied, deleted; m defines hosts that tasks name."""
    async with editor() as pilot:
        await pilot.press("a")
        await shows(pilot, "Add hosts")
        await pilot.press(*"me@gpu[1-2]", "enter")
        await shows(pilot, "me@gpu2")
        await pilot.press("c")
        await shows(pilot, "me@gpu3")
        await pilot.press("ctrl+home", "x")
        await shows(pilot, "! 1 problem")
        await pilot.press("2")
        await shows(pilot, "the host tf1 is not defined")
        await pilot.press("m")
        await shows(pilot, "✓")
        assert '[hosts.tf1]\nssh = "tf1"' in text_of(pilot)


@pytest.mark.large
async def test_one_python_for_all_hosts() -> None:
    """In the last row it is the default of all hosts; f gives all rows the value of a cell. Each
    is one step of undo."""
    async with editor() as pilot:
        before = text_of(pilot)
        await pilot.press("G")
        await shows(pilot, "values of every host that has none of its own: [defaults.host]")
        await pilot.press("right", "right", "right", "enter", *"/opt/py", "enter")
        await until(pilot, lambda: '[defaults.host]\npython = "/opt/py"' in text_of(pilot))
        app = pilot.app
        assert isinstance(app, TfmuxApp)
        await until(pilot, lambda: sum("/opt/py" in row for row in screen_text(app)) >= len(HOSTS))
        await pilot.press("u")
        await until(pilot, lambda: text_of(pilot) == before)
        await pilot.press("up", "enter", *"/own/py", "enter", "f")
        await shows(pilot, "python is the same in all rows")
        assert text_of(pilot).count('python = "/own/py"') == len(HOSTS)
        await pilot.press("u")
        await until(pilot, lambda: text_of(pilot).count('python = "/own/py"') == 1)


@pytest.mark.large
async def test_the_plan_follows_what_is_typed() -> None:
    """Beside the tables on a wide screen: command, environment and TF_CONFIG of a task."""
    async with editor(size=(200, 50)) as pilot:
        await pilot.press("3", "down", "enter")
        await shows(pilot, "Enter accept")
        await pilot.press(*" --batch=7")
        await shows(pilot, "--steps=2000 --batch=7")
        await shows(pilot, "TF_CONFIG")
        await shows(pilot, "starts ps:0")


@pytest.mark.large
async def test_the_text_itself_is_edited_and_kept_readable() -> None:
    """On the File page: broken TOML is explained with its line and is not saved; repaired, it
    is, and the tables show it."""
    async with editor() as pilot:
        saved = library.path_of("mission").read_text()
        await pilot.press("4", "ctrl+home", "x", "enter")
        await shows(pilot, "not valid TOML: fix it before saving")
        await pilot.press("ctrl+s")
        await shows(pilot, "Not saved")
        assert library.path_of("mission").read_text() == saved
        await pilot.press("backspace", "backspace", *"# hi", "enter", "escape")
        await shows(pilot, "root@tf1")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: library.path_of("mission").read_text().startswith("# hi\n"))


@pytest.mark.large
@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("# a\u2028b\n", "line 1 has \\u2028"),
        ("# a\x85b\n", "line 1 has \\x85"),
        ("# a\r\n", "LF and CRLF"),
    ],
)
async def test_a_text_that_the_file_page_would_alter_is_read_only(
    tmp_path: Path, ending: str, why: str
) -> None:
    """Opening it changes nothing, the page says why nothing can be typed there, and no letter is
    taken for a command; the tables still edit it."""
    path = tmp_path / "lines.toml"
    text = ending + render(PS_WORKERS, "lines", HOSTS, Path("/srv"))
    path.write_bytes(text.encode())
    async with editor(path) as pilot:
        await shows(pilot, "root@tf1")
        await pilot.press("4")
        await shows(pilot, "read-only here")
        await shows(pilot, why)
        await pilot.press(*"xl", "enter", "escape")
        await shows(pilot, "SSH host name")
        assert text_of(pilot) == text and not screen_of(pilot).draft.modified
        await pilot.press("x", "ctrl+s")
        await shows(pilot, "saved in")
        assert path.read_bytes().decode().startswith(ending)
        assert "[hosts.tf1]" not in path.read_text()


@pytest.mark.large
async def test_a_file_changed_meanwhile_is_noticed() -> None:
    """It is asked which one counts; reading it again can be undone."""
    async with editor() as pilot:
        path = library.path_of("mission")
        path.write_text(path.read_text() + "# by another\n")
        await shows(pilot, "The file has changed on disk")
        await pilot.press("r")
        await until(pilot, lambda: "# by another" in text_of(pilot))
        await pilot.press("ctrl+z")
        await until(pilot, lambda: "# by another" not in text_of(pilot))


@pytest.mark.large
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
        path.write_text(path.read_text() + "# by another\n")
        await shows(pilot, "The file has changed on disk")
        dialog, before = pilot.app.screen, looks
        await pilot.pause(0.2)
        assert pilot.app.screen is dialog and looks == before
        await pilot.press("k")
        await until(pilot, lambda: looks > before)
        await pilot.press("ctrl+s")
        await shows(pilot, "saved in")
        assert "# by another" not in path.read_text()


@pytest.mark.large
@pytest.mark.parametrize("keys", [("4",), ("right", "enter")])
async def test_a_changed_file_does_not_interrupt_typing(keys: tuple[str, ...]) -> None:
    """On the File page and in a cell no letter answers the question: it comes at saving."""
    async with editor() as pilot:
        path = library.path_of("mission")
        await pilot.press(*keys)
        await until(pilot, lambda: isinstance(pilot.app.focused, Input | TextArea))
        path.write_text(path.read_text() + "# by another\n")
        await shows(pilot, "the file has changed on disk")
        await pilot.press(*"rk", "enter", "ctrl+s")
        await shows(pilot, "The file has changed on disk")
        assert "rk" in text_of(pilot) and "# by another" in path.read_text()


@pytest.mark.large
async def test_save_and_leave_asks_about_a_changed_file() -> None:
    """Also when the question was put off before: going back stays and writes nothing, `k`
    overwrites and leaves. Saving under the file's own name asks, too."""
    async with editor() as pilot:
        path = library.path_of("mission")
        await pilot.press("x")
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


@pytest.mark.large
async def test_leaving_twice_asks_once() -> None:
    """Escape pressed faster than the question appears."""
    async with editor() as pilot:
        await pilot.press("x")
        screen = screen_of(pilot)
        screen.action_back()
        screen.action_back()
        await shows(pilot, "Unsaved changes")
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen)


@pytest.mark.large
async def test_a_file_deleted_meanwhile_is_written_anew() -> None:
    """It is said, and saving brings it back."""
    async with editor() as pilot:
        path = library.path_of("mission")
        path.unlink()
        await shows(pilot, "the file was deleted")
        await pilot.press("ctrl+s")
        await until(pilot, path.exists)


@pytest.mark.large
async def test_a_read_only_file_is_saved_under_another_name(tmp_path: Path) -> None:
    """The refusal says what to do, and S does it."""
    path = tmp_path / "fixed.toml"
    path.write_text(render(PS_WORKERS, "fixed", HOSTS, Path("/srv")))
    path.chmod(0o444)
    async with editor(path) as pilot:
        await pilot.press("x", "ctrl+s")
        await shows(pilot, "read-only")
        await pilot.press("S")
        await shows(pilot, "a name, or the path of a .toml file")
        await pilot.press("enter")
        await until(pilot, lambda: library.path_of("fixed").exists())
    assert "[hosts.tf1]" in path.read_text()
    assert "[hosts.tf1]" not in library.path_of("fixed").read_text()


@pytest.mark.large
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("~nosuchuser/x.toml", "there is no such user"),
        (f"/tmp/{'x' * 300}.toml", "File name too long"),
    ],
)
async def test_a_name_that_no_file_can_have_loses_nothing(answer: str, said: str) -> None:
    """The refusal says why, and the editor keeps what was not saved."""
    async with editor() as pilot:
        await pilot.press("x", "S")
        await shows(pilot, "a name, or the path of a .toml file")
        dialog = pilot.app.screen
        dialog.query_one(LineInput).value = answer
        await pilot.press("enter")
        await shows(pilot, said)
        assert pilot.app.screen is screen_of(pilot) and screen_of(pilot).draft.modified


@pytest.mark.large
async def test_leaving_asks_about_what_is_not_saved() -> None:
    """Esc asks, Esc stays, d leaves without saving."""
    async with editor() as pilot:
        saved = library.path_of("mission").read_text()
        await pilot.press("x", "escape")
        await shows(pilot, "Unsaved changes")
        await pilot.press("escape")
        await until(pilot, lambda: gone(pilot, "Unsaved changes"))
        assert isinstance(pilot.app.screen, EditorScreen)
        await pilot.press("escape", "d")
        await until(pilot, lambda: isinstance(pilot.app.screen, HomeScreen))
        assert library.path_of("mission").read_text() == saved


@pytest.mark.processes
async def test_launch_from_the_editor_and_back(tmp_path: Path) -> None:
    """The key that the README names launches what is on the screen; after the run one is back in
    the editor."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
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


@pytest.mark.large
async def test_what_cannot_be_launched_says_why() -> None:
    """A cluster with something wrong starts nothing."""
    async with editor() as pilot:
        await pilot.press("x", "l")
        await shows(pilot, "Not launched")
        assert isinstance(pilot.app.screen, EditorScreen)


@pytest.mark.large
async def test_every_page_at_80_by_24() -> None:
    """Titles, cells and keys are there on the smallest screen; the field over a cell fits."""
    async with editor(size=(80, 24)) as pilot:
        await shows(pilot, "root@tf3")
        for page, text in (("2", "ps:0"), ("3", "on failure"), ("5", "starts ps:0")):
            await pilot.press(page)
            await shows(pilot, text)
        await pilot.press("3", "down", "enter")
        await shows(pilot, "--steps=2000")
        table = screen_of(pilot).query_one("#run", EditTable)
        assert table.query_one("#field").region.right <= 80
