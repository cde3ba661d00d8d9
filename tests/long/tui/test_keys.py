"""Keys: named as they are bound, each goes where the key before it has led; hints beside lines."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from textual import events
from textual.binding import Binding

from launcher.cluster import library
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import load
from launcher.cluster.templates import ONE_MACHINE, render
from launcher.history.run_list import ListedRun
from launcher.hosts.auth_prompt import AuthPrompt, OfferedKey, PromptKind
from launcher.ids import TaskId
from launcher.preflight import Report
from launcher.run.snapshot import Failure, Snapshot
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.store.runs import RunFolder
from launcher.store.stream import Summary
from tests.support import patience
from tests.support.fakes import STEP, ScriptedRun
from tests.support.screens import screen_text, showing, shows, until, visible
from tui.app import TfmuxApp
from tui.config import Config
from tui.keys import classes_with_keys, display_name
from tui.run_clients import RunClients
from tui.screens.dialogs import Confirm
from tui.screens.home import HomeScreen
from tui.screens.host_key_dialog import HostKeyDialog, OpenPrompt
from tui.screens.hosts_screen import HostsScreen
from tui.screens.kill_runs import KillRunsDialog
from tui.screens.opening import Opening
from tui.screens.page import Page
from tui.screens.prompt_dialogs import PromptDialog
from tui.screens.run_screen import RunScreen
from tui.widgets.footer import KeyFooter
from tui.widgets.pane import Pane

# Names of bound keys: every text names the key that is bound, not the one of the program.

IDS = {
    binding.id: binding.key.split(",")[0]
    for owner in (TfmuxApp, *classes_with_keys())
    for binding in vars(owner)["BINDINGS"]
    if isinstance(binding, Binding) and binding.id
}
OTHERS = dict(
    zip(
        IDS,
        (f"{modifiers}f{number}" for modifiers in
         ("", "ctrl+", "shift+", "alt+", "ctrl+shift+", "ctrl+alt+", "alt+shift+",
          "ctrl+alt+shift+", "super+", "ctrl+super+")
         for number in range(10, 25)),
        strict=False,
    )
)  # fmt: skip
"""Every command on a key that is nobody's default."""
assert OTHERS.keys() == IDS.keys()
FIXED = {"Enter", "Tab", "→", "Ctrl-Z"}
"""Keys of text fields, and of lists."""
DEFAULTS = {display_name(key) for key in IDS.values()} - FIXED
_NAMED = re.compile(
    r"(?<![\w-])(?:" + "|".join(re.escape(n) for n in DEFAULTS if len(n) > 1) + r")(?![\w-])"
    r"|(?:^|[\s:;,(])[A-Za-z] "
    r"(?:adds?|creates|removes|edits|brings|goes|pastes|copies|saves|leaves?|kills?)\b"
)


def names_no_default(app: TfmuxApp) -> None:
    """No default key stands on the screen, and the footer has only keys in force."""
    text = "\n".join(screen_text(app))
    assert not (found := _NAMED.search(text)), f"{found}\n{text}"
    for footer in app.screen.query(KeyFooter):
        row = footer.render()
        keys = {row.plain[span.start : span.end] for span in row.spans}
        names = {display_name(key) for key in OTHERS.values()}
        assert all(set(key.split()) <= names | FIXED for key in keys), keys


async def test_no_screen_of_a_run_names_a_default_key(run: ScriptedRun) -> None:
    """With every command on another key: panes, merged log, metrics, hosts, help, receipt."""
    app = TfmuxApp(run, config=Config(keys=OTHERS))
    run.all_tasks(state=TaskState.RUNNING)
    async with app.run_test(size=(240, 60), notifications=True) as pilot:
        await shows(pilot, f"{display_name(OTHERS['kill_all'])} kill all")
        names_no_default(app)
        screen = app.screen
        assert isinstance(screen, RunScreen)
        for command, text, back in (
            ("layout.merged", "task on/off", "layout.merged"),
            ("metrics", "smoothing", "metrics.back"),
            ("hosts", "tf1:2222", "hosts.back"),
            ("help", "Letters of the status strip", "help"),
            ("leave", "Stay", "leave"),
        ):
            await pilot.press(OTHERS[command])
            await shows(pilot, text)
            names_no_default(app)
            await pilot.press(OTHERS[back])
            await until(pilot, lambda: app.screen is screen)
        offered = [OfferedKey(host, "ssh-ed25519", "SHA256:abc") for host in ("tf1", "tf2")]
        keys = [AuthPrompt(each.place, "", False, PromptKind.HOST_KEY, each) for each in offered]
        for dialog in (
            Confirm("Detach?", "The run goes on."),
            PromptDialog(AuthPrompt("tf1", "Password", True)),
            HostKeyDialog([OpenPrompt(key) for key in keys]),
        ):
            app.push_screen(dialog)
            await until(pilot, lambda shown=dialog: app.screen is shown)  # type: ignore[misc]
            await shows(pilot, dialog.note())
            names_no_default(app)
            await pilot.press(OTHERS["dialog.back"])
            await until(pilot, lambda: app.screen is screen)
        await pilot.press(OTHERS["kill_all"])
        await until(pilot, lambda: run.asked == ["kill_all"])
        await shows(pilot, "again: KILL now")
        names_no_default(app)
        run.end(Outcome.KILLED, 130)
        await shows(pilot, " back   ")
        names_no_default(app)
        await pilot.press(OTHERS["dialog.back"])
        await shows(pilot, "receipt")
        names_no_default(app)
        await pilot.press(OTHERS["leave"])
    assert app.return_value == 130


async def test_no_page_names_a_default_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first frame, home, its dialogs, the editor, and the preflight."""

    async def fake(cluster: ClusterModel, *_: object) -> Report:
        return Report(cluster.name, (), (), (), (), 0.1)

    monkeypatch.setattr("tui.screens.preflight_screen.preflight", fake)
    path = library.create("mine", render(ONE_MACHINE, "mine", {}, tmp_path))
    clients = RunClients()
    home = HomeScreen(clients)
    app = TfmuxApp(pages=[home], config=Config(keys=OTHERS))

    async def stay(pages: Sequence[Page]) -> Page:
        return pages[0]

    async def press(command: str, text: str) -> None:
        await pilot.press(OTHERS.get(command, command))
        await shows(pilot, text)
        names_no_default(app)

    async with app.run_test(size=(240, 60), notifications=True) as pilot:
        await shows(pilot, "1 ps + 2 workers on this machine")
        names_no_default(app)
        await press("kill_all", "no active runs")
        await press("home.test", "ready to launch")
        await press("check.other", "Connections between hosts")
        await press("check.back", "demos")
        await press("home.copy", "the name of the new file")
        await press("dialog.back", "demos")
        await press("home.open", "this machine")
        await press("edit.add", "Add hosts")
        await press("dialog.back", "adds a ps task")
        await press("edit.form", "Enter accepts")
        await press("dialog.back", "adds a ps task")
        await press("edit.settings", "[metrics]")
        await press("dialog.back", "adds a ps task")
        await press("tab", f"{display_name(OTHERS['edit.to_table'])} table")
        await press("edit.to_table", "adds a ps task")
        await press("edit.plan", "TF_CONFIG")
        await press("edit.back", "adds a ps task")
        await press("edit.back", "demos")
        path.write_text("name = 7\n")
        await press("home.again", "the file has no jobs")
        await press("home.open", "next problem")
        await press("edit.test", "fix the problems first")
        await press("edit.back", "demos")
        await press("home.remove", "brings it back")
        await press("home.again", "creates one from a template")
        await press("home.new", "Enter chooses")
        await press("dialog.back", "creates one from a template")
        seen = Summary("mine-1", "mine", RunPhase.RUNNING, 1000.0)
        run = ListedRun(seen, RunFolder(tmp_path), launcher=4121)
        app.push_screen(KillRunsDialog([run], clients, home.prompts))
        await shows(pilot, f"{display_name(OTHERS['kill_all'])} kills")
        names_no_default(app)
        await pilot.press(OTHERS["dialog.no"])
        await until(pilot, lambda: app.screen is home)
        app.push_screen(Opening(lambda: lambda: [home], stay))
        await shows(pilot, "kill all active runs")
        names_no_default(app)
        assert "no such command" not in "\n".join(screen_text(app))
    clients.close()


# Keys that come in one burst, as from a paste, a script or a slow connection: each goes where the
# key before it has led.


def burst(app: TfmuxApp, keys: Iterable[str]) -> None:
    """Keys that are all there before the app has a turn."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.parametrize("to_the_hosts", ["tab", "enter"])
async def test_from_a_template_to_a_cluster(to_the_hosts: str) -> None:
    """Template, name, Tab or Enter, hosts, Enter; a paste waits for its turn, too."""
    clients = RunClients()
    app = TfmuxApp(pages=[HomeScreen(clients)], config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "demos")
        erase = ["backspace"] * len("ps-workers")
        burst(app, ["a", "2", *erase, *"mission", to_the_hosts])
        app.post_message(events.Paste("tf[1-4]"))
        burst(app, ["enter"])
        await shows(pilot, "hosts × jobs")
    clients.close()
    assert list(load(library.path_of("mission")).hosts) == ["tf1", "tf2", "tf3", "tf4"]


async def test_a_form_a_text_and_the_key_that_saves(tmp_path: Path) -> None:
    """Ctrl-S has priority over the text's own keys, but does not overtake what was typed."""
    path = library.create("mine", render(ONE_MACHINE, "mine", {}, tmp_path))
    clients = RunClients()
    home = HomeScreen(clients)
    app = TfmuxApp(pages=[home], config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        app.push_screen(home.editor(path))
        await shows(pilot, "hosts × jobs")
        burst(app, ["f4", "1", *" --seed=7", "enter", "tab", "#", "4", "enter", "ctrl+s"])
        await until(pilot, lambda: '"--seed=7"' in path.read_text())
        assert "#4\n" in path.read_text()
    clients.close()


async def test_the_answer_right_behind_a_command_that_asks(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer waits for the dialog; that one waits for nothing, whatever else the app does."""
    app, release, snapshot = TfmuxApp(run, config=Config()), asyncio.Event(), run.snapshot
    run.all_tasks(state=TaskState.RUNNING)

    def busy() -> Snapshot:
        app.call_next(release.wait)
        return snapshot()

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert isinstance(app.screen, RunScreen)
        monkeypatch.setattr(run, "snapshot", busy)
        burst(app, "xyrn")
        asyncio.get_running_loop().call_later(1, release.set)
        await until(pilot, lambda: bool(run.asked))
        await until(pilot, lambda: not isinstance(app.screen, Confirm))
        burst(app, "H")
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
    assert run.asked == ["signal worker:0 TERM"]


async def test_a_search_and_what_follows_it(run: ScriptedRun) -> None:
    """The prompt has the letters, and the screen what comes behind Enter."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        burst(app, ["slash", *"xH", "enter", "H"])
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
    assert run.asked == []


async def test_the_kill_key_waits_for_no_other(run: ScriptedRun) -> None:
    held = asyncio.Event()
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert app.focused is not None
        app.focused.call_later(held.wait)  # the focused widget is busy
        burst(app, ["j", "k", "f9"])
        try:
            await patience.until(lambda: run.asked, "the kill")
        finally:
            held.set()
    assert run.asked == ["kill_all"]


async def test_a_key_that_is_held_down_leaves_nothing_to_be_done(run: ScriptedRun) -> None:
    """What has come while the screen was busy is handled in one turn, and another key after it."""
    for number in range(2000):
        run.write("worker:0", b"line %d\n" % number)
    turns = 0
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "line 1999")
        burst(app, [*["k"] * 1000, "H"])
        while not isinstance(app.screen, HostsScreen):
            await asyncio.sleep(0)
            turns += 1
        assert turns < 1000
        await pilot.press("escape")
        await shows(pilot, "line 999")


async def test_each_step_of_a_search_counts(run: ScriptedRun) -> None:
    """Steps that are asked for before the first hit is found, and several within one frame."""
    run.write(
        "worker:0", b"".join(b"needle %d\n" % i if i % 100 == 5 else b"hay\n" for i in range(1000))
    )
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "hay")
        burst(app, ["slash", *"needle", "enter", "N", "N"])
        await shows(pilot, "/needle 8 of 10")
        burst(app, ["n", "n", "n", "n"])
        await shows(pilot, "/needle 2 of 10")
        burst(app, ["N", "n", "n", "N", "n"])
        await shows(pilot, "/needle 3 of 10")
        await shows(pilot, "needle 205")


async def test_each_step_from_error_to_error_counts(run: ScriptedRun) -> None:
    """Steps that are asked for before all logs have been searched, and several within one frame."""
    for number in range(5):
        run.write("worker:0", b"fine\nValueError: bad %d\n" % number)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "fine")
        burst(app, ["e", "e", "e"])
        await until(pilot, lambda: "error 3 of 5" in messages(app))
        burst(app, ["E", "E", "e", "e", "e"])
        await until(pilot, lambda: "error 4 of 5" in messages(app))


def messages(app: TfmuxApp) -> list[str]:
    """What notifications say."""
    return [note.message for note in app._notifications]


# Hints beside lines of a log, and in the header.


async def test_a_hint_stands_beside_its_line(run: ScriptedRun) -> None:
    """A known failure is explained where it stands, and in the headline when it was first."""
    run.write("worker:1", b"ModuleNotFoundError: No module named 'tensorflow'\n")
    async with showing(run, (300, 50)) as (_, pilot):
        await shows(pilot, "◂ no such module: the host's Python has no tensorflow")
        tail = ("ModuleNotFoundError: No module named 'tensorflow'",)
        failure = Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, (), tail)
        run.end(Outcome.FAILED, 1, failure=failure)
        await shows(pilot, "first failure: worker:1 on tf3: exit 1")
        await pilot.press("escape")
        await shows(pilot, "first failure: worker:1 @tf3 exit 1 — no such module")


WAITING = (
    b"2026-11-20 18:30:04.112233: I tensorflow/core/distributed_runtime/master.cc:267] "
    b"CreateSession still waiting for response from worker: /job:worker/replica:0/task:1\n"
)


async def test_a_wait_names_the_task_and_its_state(run: ScriptedRun) -> None:
    """`CreateSession still waiting` is joined with how that task stands, beside the line and,
    while nothing has failed, in the header; both follow as it changes. When the one that waited
    makes steps, the header is silent."""
    run.change(state=RunPhase.RUNNING)
    run.task("worker:0", state=TaskState.READY, last_output=time.time())
    run.task("worker:1", state=TaskState.STARTING, reason="its port is held by pid 7 (nc -l)")
    run.write("worker:0", WAITING)
    async with showing(run, (300, 50)) as (app, pilot):
        beside = "◂ waiting for a task: worker:1 @tf3 is starting (its port is held by pid 7"
        await shows(pilot, beside)
        await shows(pilot, "! worker:0: waiting for a task: worker:1 @tf3 is starting")
        run.task("worker:1", state=TaskState.FAILED, exit_code=1, reason="")
        await shows(pilot, "◂ waiting for a task: worker:1 @tf3 has ended: exit 1")
        run.write("worker:0", STEP % (1, 1, 0.5))
        await until(pilot, lambda: not visible(app, "! worker:0"))


async def test_a_taken_port_names_its_holder(run: ScriptedRun) -> None:
    """`Could not start gRPC server` is joined with who holds the port, beside the line, in the
    header before and after the task has failed, and in the outcome."""
    line = "UnknownError: Could not start gRPC server"
    held = "its port is held by pid 4121 (python -m http.server 2222)"
    run.change(state=RunPhase.RUNNING)
    run.task("ps:0", state=TaskState.STARTING, last_output=time.time(), reason=held)
    run.write("ps:0", f"{line}\n".encode())
    async with showing(run, (300, 50)) as (_, pilot):
        await shows(pilot, f"{line}  ◂ port in use: {held}")
        await shows(pilot, f"! ps:0: port in use: {held}")
        run.task("ps:0", state=TaskState.FAILED, exit_code=1, ended=1000.0)
        failure = Failure(TaskId("ps", 0), "tf1", "exit 1", 1000.0, (), (line,))
        run.end(Outcome.FAILED, 1, failure=failure)
        await shows(pilot, "first failure: ps:0 on tf1: exit 1")
        await shows(pilot, f"  ◂ port in use: {held}")
        await pilot.press("escape")
        await shows(pilot, f"first failure: ps:0 @tf1 exit 1 — port in use: {held}")
