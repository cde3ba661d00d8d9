"""Keys and commands of the run screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingsMap, BindingType
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen

from launcher.ids import TaskId
from launcher.run.snapshot import AttemptStart, Failure
from launcher.run.states import Halt, RunPhase, TaskState
from launcher.store.logs import LogFile
from tests.support import patience
from tests.support.fakes import ScriptedRun
from tests.support.patience import PATIENCE
from tests.support.screens import (
    focused_task,
    run_screen,
    screen_text,
    showing,
    shows,
    until,
    visible,
)
from tui.app import TfmuxApp
from tui.config import Config
from tui.keys import bound_keys, classes_with_keys, display_name, key_hints, key_of
from tui.screens.dialogs import Confirm
from tui.screens.help import HelpScreen
from tui.screens.host_key_dialog import HostKeyList
from tui.screens.run_screen import FrameClock, RunScreen
from tui.task_monitor import TaskMonitor
from tui.widgets.pane import Pane
from tui.widgets.pane_area import PaneGrid
from tui.widgets.prompt import Prompt

# Names of bound keys: every text names the key that is bound, not the one of the program.


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("f9", "F9"),
        ("ctrl+p", "Ctrl-P"),
        ("ctrl+shift+f5", "Ctrl-Shift-F5"),
        ("shift+tab", "Shift-Tab"),
        ("escape", "Esc"),
        ("question_mark", "?"),
        ("G", "G"),
        ("left", "←"),
        ("ctrl+left", "Ctrl-←"),
    ],
)
def test_display_names(key: str, name: str) -> None:
    """As people write them."""
    assert display_name(key) == name


SAME: Mapping[str, set[str]] = {
    # To what is to be mended: a problem, a finding, an error, or the file of a run.
    "e": {"edit.problem", "check.next", "error.next", "home.edit", "end.edit"},
    "f4": {"edit.settings", "edit.file", "home.edit"},
    "slash": {"home.filter", "search"},
    "E": {"check.previous", "error.previous"},
    "l": {"again", "check.launch", "edit.launch", "home.launch"},
    "T": {"edit.test", "home.test"},
    "f6": {"edit.test", "home.test"},
    "u": {"edit.undo", "home.undo"},
    "ctrl+z": {"edit.undo", "home.undo"},
    "f5": {"check.again", "home.again", "stacks.again"},
    "space": {"edit.plan", "layout.next"},
    "ctrl+s": {"edit.save", "log.save"},
    "x": {"edit.remove", "home.remove", "check.leftovers", "task.term"},
    "delete": {"edit.remove", "home.remove"},
    "plus": {"edit.add_task", "metrics.smoother"},
    "minus": {"edit.remove_task", "metrics.rougher"},
    "tab": {"home.other", "check.other", "pane.next"},
    "t": {"log.stamps", "metrics.axis"},  # how time is shown
    "o": {"metrics.draw", "task.open"},  # takes a task out of what is drawn, or in
    "left": {"metrics.earlier", "pane.left"},
    "right": {"metrics.later", "pane.right"},
    "ctrl+d": {"check.down", "scroll.half_down"},
    "ctrl+u": {"check.up", "scroll.half_up"},
    "H": {"hosts", "hosts.back"},  # opens and closes
    "M": {"metrics", "metrics.back"},
    "b": {"stacks", "stacks.back"},
    "C": {"cause", "cause.back"},
    "z": {"stacks.zoom", "zoom"},
    "y": {"log.copy", "report"},  # copies
    "r": {"end.again", "task.restart"},  # starts it once more
    # Opens what has the cursor, or what it is about.
    "enter": {"edit.form", "home.open", "cause.go", "check.repair", "zoom"},
    "escape": {
        *("edit.to_table", "edit.back", "hosts.back", "metrics.back", "stacks.back"),
        *("check.back", "cause.back", "back", "home.all"),
    },
    # The one exception: lines are added where there are rows, and in a log the prefix goes.
    "a": {"edit.add", "home.new", "log.prefix"},
}
"""Commands of different screens that mean the same, by their key."""


def test_a_key_has_one_meaning() -> None:
    """Whatever the screen, but for dialogs, whose keys are their answers."""
    found: dict[str, set[str]] = {}
    owners: list[type[DOMNode]] = [TfmuxApp, *classes_with_keys()]
    for owner in owners:
        if not issubclass(owner, ModalScreen | HostKeyList):
            for key, binding in BindingsMap(owner.BINDINGS):
                if binding.id:
                    found.setdefault(key, set()).add(binding.id)
    assert {key: ids for key, ids in found.items() if len(ids) > 1} == SAME


class Letters(Screen[None]):
    """A screen with two commands, one of them on two keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("z,enter", "zoom", id="zoom"),
        Binding("s", "save", id="save"),
    ]


class Small(App[None]):
    """An app with a command that goes first."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f9", "stop", id="stop", priority=True)]

    def get_default_screen(self) -> Letters:
        return Letters()


async def test_keys_in_force() -> None:
    """The program's keys are in force, else the keymap's; a priority key is nobody else's, and a
    command without a key is left out of hints."""
    app = Small()
    async with app.run_test():
        screen = app.screen
        assert key_of(screen, "stop") == "F9"
        assert key_hints(screen, [("zoom save", "both"), ("nothing", "no")]) == [
            ("z s", "both", "z")
        ]
        app.set_keymap({"stop": "z", "save": "ctrl+s,f2"})
        assert bound_keys(app, [Letters]) == {
            "stop": ["z"],
            "zoom": ["enter"],
            "save": ["ctrl+s", "f2"],
        }
        named = [key_of(screen, command) for command in ("stop", "save", "none")]
        assert named == ["z", "Ctrl-S", ""]
        app.set_keymap({"stop": "s"})
        assert key_of(screen, "save") == ""


def test_f5_refreshes_and_nothing_else() -> None:
    """On each screen that has it; `l` launches, on home, in the editor and at a run's end."""
    bound = {
        (key, binding.id)
        for owner in classes_with_keys()
        for binding in vars(owner)["BINDINGS"]
        if isinstance(binding, Binding)
        for key in binding.key.split(",")
    }
    again = {"home.again", "check.again", "stacks.again"}
    assert {name for key, name in bound if key == "f5"} == again
    launching = {"home.launch", "edit.launch", "check.launch", "again", "starting.retry"}
    assert {name for key, name in bound if key == "l"} == launching
    assert {key for key, name in bound if name in again} == {"f5"}


# The cockpit around the panes: search, filter, merged log, errors, choosing, other screens.


def said(app: TfmuxApp, text: str) -> bool:
    return any(note.message == text for note in app._notifications)


async def test_filter_with_exclusion(run: ScriptedRun) -> None:
    """& shows only the lines that hit, & with ! the others, & with nothing all; lines that
    come later are filtered too."""
    run.write("worker:0", b"".join(b"%s %d\n" % ((b"good", b"bad")[i % 2], i) for i in range(20)))
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "bad 19")
        await pilot.press("ampersand", *"!bad", "enter")
        await until(pilot, lambda: visible(app, "good 18") and not visible(app, "bad 19"))
        run.write("worker:0", b"bad 20\ngood 21\n")
        await shows(pilot, "good 21")
        assert not visible(app, "bad 20")
        await pilot.press("ampersand")
        await until(pilot, lambda: app.screen.query_one(Prompt).display)
        await pilot.press("backspace", "enter")
        await shows(pilot, "bad 20")


async def test_merged_log_with_tasks_switched_off(run: ScriptedRun) -> None:
    """m shows all logs by time of receipt, with their tasks; o takes the focused one out."""
    for i in range(6):
        run.write(f"worker:{i % 3}", b"line %d\n" % i, now=1000.0 + i)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("m")
        await shows(pilot, "all logs, 4 of 4 tasks")
        await until(pilot, lambda: visible(app, "worker:2 line 5"))
        rows = [row for row in screen_text(app) if " line " in row]
        assert [row.split("line ")[1][0] for row in rows] == list("012345")
        await pilot.press("o")
        await shows(pilot, "all logs, 3 of 4 tasks")
        await until(pilot, lambda: not visible(app, "worker:0 line 0"))
        assert visible(app, "worker:1 line 1")
        rows = [row.lstrip(" ▸") for row in screen_text(app)]
        boxes = [row[0] for row in rows if row.startswith(("●", "○"))]
        assert boxes == ["●", "○", "●", "●"], "ps:0, then the workers"
        await pilot.press("m")
        await until(pilot, lambda: len(app.screen.query_one(PaneGrid).panes) == 4)


async def test_errors_of_all_panes(run: ScriptedRun) -> None:
    """E goes to the newest error of any task, e around to the oldest, each in its own pane."""
    run.write("worker:2", b"fine\nValueError: first\n" + b"more\n" * 500, now=1000.0)
    run.write("worker:0", b"x\n" * 300 + b"RuntimeError: second\n" + b"more\n" * 300, now=1010.0)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "more")
        await pilot.press("E")
        await shows(pilot, "RuntimeError: second")
        assert run_screen(app).area.pane_layout.focused == TaskId("worker", 0)
        await pilot.press("e")
        await shows(pilot, "ValueError: first")
        assert run_screen(app).area.pane_layout.focused == TaskId("worker", 2)


async def test_without_an_error_that_is_said(run: ScriptedRun) -> None:
    """e says that there is none, and finds the first one that comes later."""
    run.write("worker:1", b"all is well\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "all is well")
        await pilot.press("e")
        await until(pilot, lambda: said(app, "no line of any task looks like an error"))
        run.write("worker:1", b"KeyError: 'late'\n")
        await shows(pilot, "KeyError: 'late'")
        deadline = time.monotonic() + PATIENCE
        while not said(app, "error 1 of 1") and time.monotonic() < deadline:
            await pilot.press("e")  # the search may be a tenth of a second behind the screen
            await pilot.pause(0.05)
        assert said(app, "error 1 of 1")
        assert run_screen(app).area.pane_layout.focused == TaskId("worker", 1)


async def test_choosing_and_copying_lines(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """v and the scroll keys choose lines of one pane only, y copies them without colours and
    says where the log is."""
    run.write("worker:0", b"".join(b"\x1b[31mline\x1b[0m %d\n" % i for i in range(50)))
    run.write("ps:0", b"another pane\n" * 50)
    copied: list[str] = []
    app = TfmuxApp(run, config=Config())
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await shows(pilot, "line 49")
        await pilot.press("v", "k", "k", "y")
        await shows(pilot, "3 lines sent to the terminal's clipboard")
        assert copied == ["line 47\nline 48\nline 49\n"]


async def test_choosing_with_the_mouse_stays_in_the_pane(run: ScriptedRun) -> None:
    """A drag that leaves the pane chooses lines of the pane in which it began."""
    run.write("worker:0", b"".join(b"line %d\n" % i for i in range(50)))
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "line 49")
        pane = app.screen.query_one(PaneGrid).panes[1]
        x, y = pane.content_region.offset
        beside = (pane.region.right + 10, y + 6)
        await pilot.mouse_down(offset=(x + 5, y + 3))
        await pilot.hover(offset=(x + 5, y + 4))
        await pilot.hover(offset=beside)
        assert pane.view and pane.view.selection
        first, last = pane.view.selection
        assert last - first == 3
        views = run_screen(app).area.views
        others = [t.id for t in run_screen(app).snapshot.tasks if t.id != TaskId("worker", 0)]
        assert others and all(views.of(other).selection is None for other in others)
        await pilot.mouse_up(offset=beside)
        await until(pilot, lambda: len(app.clipboard.splitlines()) == 4)


async def test_stamps_wrap_and_prefix(run: ScriptedRun) -> None:
    """t puts times before lines, a hides TensorFlow's prefix, w cuts long lines."""
    prefix = b"2026-11-20 18:30:04.112233: W tensorflow/core/platform/a.cc:210] "
    run.write("worker:0", prefix + b"look out\n" + b"y" * 150 + b" the end\n", now=1_000_000_000.0)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "tensorflow/core/platform")
        await shows(pilot, "the end")
        await pilot.press("a")
        await until(pilot, lambda: visible(app, "W look out") and not visible(app, "2026-11-20"))
        await pilot.press("w")
        await until(pilot, lambda: not visible(app, "the end"))
        await pilot.press("t")
        clock = time.strftime("%H:%M:%S W look out", time.localtime(1_000_000_000.0))
        await shows(pilot, clock)


async def test_go_to_a_task_by_name(run: ScriptedRun) -> None:
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("apostrophe", *"w2", "enter")
        await until(pilot, lambda: run_screen(app).area.pane_layout.focused == TaskId("worker", 2))
        await pilot.press("apostrophe", *"tf2", "enter")
        await until(pilot, lambda: run_screen(app).area.pane_layout.focused == TaskId("worker", 0))


async def test_restart_asks_for_those_whom_others_need(run: ScriptedRun) -> None:
    """A worker restarts at once; a ps while workers run only after a yes."""
    run.all_tasks(state=TaskState.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("4", "r")
        await until(pilot, lambda: run.asked == ["restart worker:2"])
        await pilot.press("1")
        for key in ("r", "X"):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            why = "The run ends with the ps." if key == "X" else "still running and need the ps"
            await shows(pilot, why)
            await pilot.press("n")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
            asked = len(run.asked)
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            await pilot.press("y")
            await until(pilot, lambda: len(run.asked) > asked)  # noqa: B023
        assert run.asked == ["restart worker:2", "restart ps:0", "signal ps:0 KILL"]


@pytest.mark.parametrize(("width", "place"), [(200, "row"), (120, "title"), (80, "title")])
async def test_the_address_of_a_host_is_in_sight(run: ScriptedRun, width: int, place: str) -> None:
    """In its row where there is room, else over its tasks; the login's name is part of it."""
    first, *others = run.snapshot().hosts
    address = f"somebody@{first.name}.example.org"
    run.change(hosts=(replace(first, destination=address, cpu=0.5), *others))
    async with showing(run, (width, 40)) as (app, pilot):
        await pilot.press("H")
        await shows(pilot, address)
        [line] = [row for row in screen_text(app) if address in row]
        assert (f"Tasks on {first.name} ({address})" in line) == (place == "title")


async def test_a_click_on_a_hint_presses_its_key_but_kills_nothing(run: ScriptedRun) -> None:
    """The kill key asks no question: it is for fingers alone."""
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "F9 kill all")
        row = screen_text(app)[-1]
        await pilot.click(offset=(row.index("F9 kill all") + 4, 39))
        await pilot.click(offset=(row.index("? help"), 39))
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        assert run.asked == []


async def test_a_stalled_task_is_flagged(run: ScriptedRun) -> None:
    """No step for ten times the usual time is said in the title and in the header."""
    run.change(state=RunPhase.RUNNING)
    now = time.time()
    run.task("worker:1", stalled_since=now - 36_000)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "! no step for 10 h")
        await shows(pilot, "! worker:1 on tf3 stalled for ")
        run.task("worker:1", stalled_since=None)
        await until(pilot, lambda: not any("! " in row for row in screen_text(app)))


@pytest.mark.parametrize("page", ["", "M", "H", "b", "C"])
async def test_a_stopped_task_is_named_on_every_page(run: ScriptedRun, page: str) -> None:
    """Given a task whose process was stopped, then the header of each page says which, on which
    host and for how long, `!` goes to its pane, and the pane says so, too."""
    run.change(state=RunPhase.RUNNING)
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.task("worker:1", halted=Halt.STOPPED, halted_since=time.time() - 36_000)
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        if page:
            await pilot.press(page)
            await until(pilot, lambda: app.screen is not run_screen(app))
        await shows(pilot, "! worker:1 on tf3 stopped for 10:")
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: focused_task(app) == "worker:1")
        await shows(pilot, "worker:1 @tf3  ! stopped for ")


async def test_attempts_are_separated_in_the_log(run: ScriptedRun) -> None:
    """Where an attempt begins stands a separator with its number and time, also when the one
    before died in the middle of a line, and in the merged log with its task. It is on the screen
    only: counts, hits and what is copied do not know it."""
    run.write("worker:1", b"one\ntwo\nhalf a li", now=1000.0)
    second = run.logs.open(TaskId("worker", 1)).size
    run.write("worker:1", b"glued\nneedle\n", now=1010.0)
    begun = (AttemptStart(1, 0, 1000.0), AttemptStart(2, second, 1010.0))
    run.task("worker:1", attempt=2, attempts=begun)
    stamps = [time.strftime("%H:%M:%S", time.localtime(when)) for when in (1000.0, 1010.0)]
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, f"── attempt 2 · {stamps[1]} ──")
        rows = [row[60:].strip(" ─│") for row in screen_text(app)]
        at = rows.index("half a liglued")
        assert rows[at - 3 : at + 3] == [
            f"attempt 1 · {stamps[0]}",
            "one",
            "two",
            "half a liglued",
            f"attempt 2 · {stamps[1]}",
            "needle",
        ]
        await pilot.press("3", "slash", *"needle", "enter")
        await shows(pilot, "/needle 1 of 1")
        view = run_screen(app).area.views.of(TaskId("worker", 1))
        assert view.lines.count == 4 and view.cursor == 3
        third = run.logs.open(TaskId("worker", 1)).size
        run.task("worker:1", attempt=3, attempts=(*begun, AttemptStart(3, third, 1020.0)))
        run.write("worker:1", b"again\n", now=1020.0)
        await shows(pilot, "── attempt 3 · ")
        await pilot.press("escape", "m")
        await shows(pilot, "── worker:1 attempt 3 · ")


async def test_arrows_scroll_where_one_pane_is_shown(run: ScriptedRun) -> None:
    """Given a zoomed pane with a long log, when a person presses the up arrow, then the same
    task's earlier lines are shown; left and right go to other tasks."""
    run.write("worker:0", b"".join(b"line %d\n" % i for i in range(200)))
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("2", "z")
        await shows(pilot, "line 199")
        layout = run_screen(app).area.pane_layout
        await until(pilot, lambda: layout.zoomed and layout.focused == TaskId("worker", 0))
        await until(pilot, lambda: visible(app, "line 180") and not visible(app, "line 179"))
        await pilot.press(*["up"] * 3)
        await until(pilot, lambda: not visible(app, "line 199") and visible(app, "line 196"))
        assert layout.focused == TaskId("worker", 0)
        await pilot.press("right")
        await until(pilot, lambda: layout.focused == TaskId("worker", 1))


async def test_ending_a_task_asks_and_killing_it_does_not(run: ScriptedRun) -> None:
    """Given a running worker, then `x` asks and one Enter ends the task; Escape leaves it, and
    `X` does not ask. No message says that the run has ended."""
    run.all_tasks(state=TaskState.READY)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("3", "x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Confirm))
        assert run.asked == []
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("enter")
        await until(pilot, lambda: run.asked == ["signal worker:1 TERM"])
        await pilot.press("X")
        await until(pilot, lambda: run.asked[1:] == ["signal worker:1 KILL"])
        assert not any("run has ended" in note.message for note in app._notifications)


@pytest.mark.parametrize("key", ["R", "x", "X"])
async def test_a_key_that_can_do_nothing_says_why(run: ScriptedRun, key: str) -> None:
    """Given a run that has ended, then keys for its tasks say so."""
    run.end()
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press(key)
        await until(
            pilot,
            lambda: any("the run has ended" in note.message for note in app._notifications),
        )
        assert run.asked == []


async def test_the_pane_of_a_stopped_task_follows_on(run: ScriptedRun) -> None:
    """Given a task whose process was stopped, when `!` goes to its pane, then that is not paused:
    what the task prints when it goes on is in sight at once."""
    run.change(state=RunPhase.RUNNING)
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.write("worker:1", b"".join(b"line %d\n" % i for i in range(50)))
    run.task("worker:1", halted=Halt.STOPPED, halted_since=time.time() - 95)
    async with showing(run, (80, 24)) as (app, pilot):
        await shows(pilot, "! stopped for ")
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: focused_task(app) == "worker:1")
        assert not visible(app, "paused")
        run.write("worker:1", b"it goes on\n")
        await shows(pilot, "it goes on")


async def test_a_paused_pane_that_grows_is_filled(run: ScriptedRun) -> None:
    """Given a small pane that is paused near the end of a long log, when it is zoomed, then earlier
    lines fill it, the arrow up scrolls at once, and small again it shows what it showed."""
    run.write("worker:0", b"".join(b"line %d.\n" % i for i in range(200)))
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("2")
        await shows(pilot, "line 199.")
        await pilot.press("slash", *"199", "enter")
        await shows(pilot, "/199 1 of 1")
        before = [row for row in screen_text(app) if "line " in row]
        await pilot.press("z")
        await shows(pilot, "line 182.")
        assert visible(app, "line 199.")
        await pilot.press("z")
        await until(pilot, lambda: [row for row in screen_text(app) if "line " in row] == before)
        await pilot.press("z", "up")
        # Pressed before the zoomed pane has lost a row to the list of tasks, it is two lines.
        await until(pilot, lambda: not visible(app, "line 199.") and visible(app, "line 197."))


async def test_releasing_the_mouse_copies(run: ScriptedRun) -> None:
    """Given lines of a log, when a person drags over two of them and lets go, then both are
    copied, and the message says where they went."""
    run.write("worker:0", b"one\ntwo\nthree\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "three")
        pane = run_screen(app).area.grid.panes[1]
        rows = [row for row, text in enumerate(screen_text(app)) if "one" in text or "two" in text]
        x = pane.region.x + 3
        await pilot.mouse_down(offset=(x, rows[0]))
        await pilot.hover(offset=(x, rows[1]))
        await pilot.mouse_up(offset=(x, rows[1]))
        await until(pilot, lambda: app.clipboard == "one\ntwo\n")
        told = "2 lines sent to the terminal's clipboard"
        await until(pilot, lambda: any(told in note.message for note in app._notifications))


async def test_a_question_is_shown_in_full(run: ScriptedRun) -> None:
    """Given a run at 80×24, when a person asks to detach, then the question's last words are in
    sight."""
    run.change(state=RunPhase.RUNNING)
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await shows(pilot, "again.")


async def test_an_empty_pane_has_nothing_to_copy(run: ScriptedRun) -> None:
    """Given a pane without a line, when `y` is pressed, then a message says that none is copied."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("y")
        await until(pilot, lambda: said(app, "there is no line to copy"))
        assert not app.clipboard and not any("copied" in n.message for n in app._notifications)


# Parts of the run screen: its prompt, its clock, its monitor; and lines that are saved.


async def test_the_first_failure_is_shown_though_a_filter_hides_it(run: ScriptedRun) -> None:
    """The end of its log is in sight; without a failure, and for an unknown name, that is said."""
    run.write("worker:1", b"fine\nValueError: x\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "ValueError: x")
        screen = app.screen
        assert isinstance(screen, RunScreen)
        view = screen.area.views.of(TaskId("worker", 1))
        await pilot.press("exclamation_mark", "apostrophe", *"nobody", "enter")
        told = [note.message for note in app._notifications]
        none = "no task has failed, and none has stalled"
        assert told == [none, "no task is called 'nobody'"]
        await pilot.press("3", "ampersand", *"fine", "enter")
        await until(pilot, lambda: view.lines.count == 1)
        run.end(failure=Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, (), ()))
        await pilot.press("1", "exclamation_mark")
        await until(pilot, lambda: view.lines.count == 2)
        await shows(pilot, "ValueError: x")
        assert screen.area.pane_layout.focused == view.task
        await pilot.press("r", "exclamation_mark")
        assert run.asked == []


async def test_lines_are_selected_and_saved(run: ScriptedRun, tmp_path: Path) -> None:
    """The scroll keys move the end of the selection; a file that is there is not replaced, and a
    name that no file can have is told."""
    run.write("worker:0", b"".join(b"line %d\n" % i for i in range(9)))
    app = TfmuxApp(run, config=Config())
    file = tmp_path / "saved.txt"

    async def save(name: str) -> str:
        count = len(app._notifications)
        await until(pilot, lambda: isinstance(app.focused, Pane))
        saving = asyncio.ensure_future(pilot.press("ctrl+s"))
        prompt = app.screen.query_one(Prompt)
        await until(pilot, lambda: prompt._answer is not None and prompt.display)
        await saving
        prompt._close(name)
        await until(pilot, lambda: len(app._notifications) > count)
        return [note.message for note in app._notifications][-1]

    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "line 8")
        await pilot.press("v", "g")
        assert await save(str(file)) == f"9 lines saved to {file}"
        assert file.read_text().split("\n")[::8] == ["line 0", "line 8"]
        assert (await save(str(file))).startswith("not saved: ")
        missing = "not saved: ~nosuchuser/log.txt: there is no such user"
        assert await save("~nosuchuser/log.txt") == missing
        assert "File name too long" in await save("x" * 300)
        assert await save("\0") == "not saved: embedded null byte"
        await pilot.press("escape")
        pane = app.focused
        assert isinstance(pane, Pane) and pane.view and pane.view.selection is None


async def test_a_prompt_is_awaited() -> None:
    """Enter answers, Escape and a second question answer with nothing; the last answer to the
    same question is offered again."""

    class PromptApp(App[None]):
        def compose(self) -> ComposeResult:
            yield Prompt()

    app = PromptApp()
    async with app.run_test() as pilot:
        prompt = app.query_one(Prompt)

        async def answer(question: str, *keys: str) -> str | None:
            asked = asyncio.ensure_future(prompt.ask(question))
            await asyncio.sleep(0)
            assert prompt.display
            await pilot.press(*keys)
            return await asked

        assert await answer("/", *"one", "enter") == "one"
        assert not prompt.display
        assert await answer("name", "enter") == ""
        assert await answer("/", "enter") == "one"
        assert await answer("/", *"two", "escape") is None
        first = asyncio.ensure_future(prompt.ask("/"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(prompt.ask("name", "x"))
        assert await first is None
        await pilot.press("enter")
        assert await second == "x"


async def test_the_clock_waits_for_news_in_quiet_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there is one frame for what is new, and a few for what a person does."""
    monkeypatch.setattr("tui.screens.run_screen.FRAME", 0.0)
    frames: list[bool] = []
    waits: list[int] = []
    news: set[int] = set()

    def frame() -> bool:
        frames.append(len(frames) in news)
        return frames[-1]

    def rest() -> float:
        waits.append(len(frames))
        return 3600.0

    clock = FrameClock(frame, rest, lambda: True)
    running = asyncio.create_task(clock.run())
    await patience.until(lambda: waits, "rests")
    assert waits == [1]
    clock.hear()
    await patience.until(lambda: len(waits) == 2, "rests after a frame")
    assert waits == [1, 2]
    clock.wake()
    await patience.until(lambda: len(waits) == 3, "rests after some frames")
    assert waits[2] == 2 + 10
    news.add(len(frames))
    clock.hear()
    await patience.until(lambda: len(waits) == 4, "rests after news")
    assert waits[3] == 12 + 2
    running.cancel()


def test_the_clock_rests_after_a_painting(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a frame that took long logs are left alone."""
    clock = FrameClock(lambda: False, lambda: 1.0, lambda: True)
    now = 100.0
    monkeypatch.setattr("tui.screens.run_screen.time.monotonic", lambda: now)
    states = [clock.resting]
    clock.rest_after(now - 0.05)
    states.append(clock.resting)
    now += 0.16
    states.append(clock.resting)
    assert states == [False, True, False]
    clock.rest_after(now)
    assert clock.resting, "lines that scroll by are painted at most ten times a second"
    now += 0.11
    assert not clock.resting


def test_the_monitor_finds_alerts(run: ScriptedRun) -> None:
    """The newest complaint of a live task."""
    for i in range(10):
        run.write(
            "worker:1",
            b"After %d training steps (%d global steps), loss on training batch is 0.5.\n" % (i, i),
            now=1000.0 + i,
        )
    run.task("worker:0", state=TaskState.READY, last_output=1099.0)
    run.write("worker:0", b"UnknownError: Could not start gRPC server\n", now=1099.0)
    monitor = TaskMonitor(run)
    monitor.update(run.snapshot(), [TaskId("worker", 1)], {}, 1100.0)
    assert monitor.alert == "! worker:0: port in use"
    assert monitor.sparklines.keys() == {TaskId("worker", 1)}


def test_alerts_of_a_thousand_logs_come_little_by_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each second a few logs are read, in turn: the screen has its keys to answer meanwhile."""
    run = ScriptedRun(tmp_path, workers=300)
    read: list[str] = []
    for task in run.snapshot().tasks:
        run.task(str(task.id), state=TaskState.RUNNING, last_output=1099.0)
        run.write(str(task.id), b"working\n", now=1099.0)
    run.write("worker:299", b"UnknownError: Could not start gRPC server\n", now=1099.0)
    reading = LogFile.read

    def counted(file: LogFile, *where: int) -> bytes:
        read.append(file.path.stem)
        return reading(file, *where)

    monkeypatch.setattr(LogFile, "read", counted)
    monitor = TaskMonitor(run)
    counts = []
    while not monitor.alert:
        before = len(read)
        monitor.update(run.snapshot(), [], {}, 1100.0)
        counts.append(len(read) - before)
    assert counts == [64, 64, 64, 64, 45] and len(set(read)) == 301
    assert monitor.alert == "! worker:299: port in use"
    for _ in range(5):
        monitor.update(run.snapshot(), [], {}, 1100.0)
    assert len(read) == 301, "a log that has not grown is not read again"
