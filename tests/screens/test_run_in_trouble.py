"""A run that is in trouble and not over: what each page says of it, and the keys that lead on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual import events

from launcher.ids import TaskId
from launcher.run.cause import Evidence, Kind, Verdict
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Snapshot
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import focused_task, run_screen, screen_text, showing, shows, until
from tui.app import TfmuxApp
from tui.config import Config, load_config
from tui.notification import BELL, Notify, RunNews, sequence
from tui.screens.cause_screen import CauseScreen
from tui.screens.dialogs import ReceiptScreen
from tui.screens.hosts_screen import HostsScreen

SIZES = [(80, 24), (200, 50)]
GUILTY = TaskId("worker", 1)


def at_work(run: ScriptedRun) -> None:
    """All tasks run and have printed something."""
    now = time.time()
    run.all_tasks(state=TaskState.RUNNING, attempt=1, step=1200, loss=0.25, last_output=now)
    run.change(state=RunPhase.RUNNING)


def stall(run: ScriptedRun) -> None:
    """One worker makes no step any more."""
    at_work(run)
    run.write("worker:1", b"step 1200\n")
    long_ago = time.time() - 65
    run.task("worker:1", stalled_since=long_ago, last_output=long_ago)
    text = "worker:1 on tf3 has made no step for 60 s, in load data.py:7"
    evidence = (Evidence(GUILTY, "in load data.py:7"),)
    run.change(verdict=Verdict((GUILTY,), Kind.STUCK, True, text, evidence))


def lose(run: ScriptedRun) -> None:
    """One host does not answer any more."""
    at_work(run)
    hosts = run.snapshot().hosts
    now = time.time()
    lost = replace(
        hosts[2],
        state=HostState.LOST,
        reason="the connection ended",
        last_heard=now - 42,
        lease_until=now + 500,
    )
    run.task("worker:1", state=TaskState.LOST)
    run.change(hosts=tuple(lost if host is hosts[2] else host for host in hosts))


def title_of(rows: list[str], task: str) -> str:
    """The row in which a pane's title begins with a task's name."""
    found = [row[row.index(task) :] for row in rows if f"─ {task} " in row or f"▸{task} " in row]
    return found[0] if found else ""


async def test_a_launcher_that_says_nothing_is_in_the_header(run: ScriptedRun) -> None:
    """Given a launcher process that has not answered for a while, then the header says so."""
    async with showing(run, (120, 30)) as (app, pilot):
        at_work(run)
        run.standstill = "no launcher process has answered for 7 s"
        await until(pilot, lambda: "answered for 7 s" in screen_text(app)[0])


@pytest.mark.parametrize("size", SIZES)
async def test_a_lost_host_is_named_on_each_page(run: ScriptedRun, size: tuple[int, int]) -> None:
    """Given a host that is lost while the others train on, when its run is looked at, then the
    header names it and for how long, on the pages beside the logs, too; the page of the cause says
    what becomes of its tasks, and leads to their logs."""
    async with showing(run, size) as (app, pilot):
        lose(run)
        await shows(pilot, "! tf3 lost for ")
        await pilot.press("H")
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
        await until(pilot, lambda: "! tf3 lost for " in screen_text(app)[0])
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, CauseScreen))
        await shows(pilot, "tf3 is lost (the connection ended); tfmux tries to reconnect")
        await shows(pilot, "Without that its")
        await shows(pilot, "! worker:1")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is run_screen(app))
        assert focused_task(app) == "worker:1"


@pytest.mark.parametrize("size", SIZES)
async def test_a_kill_names_the_host_that_it_waits_for(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """Given a lost host, when the run is killed, then the header of each page says for which host
    the kill waits, and the footers what the keys do now; after the end nothing is awaited."""
    async with showing(run, size) as (app, pilot):
        lose(run)
        await shows(pilot, "! tf3 lost for ")
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, CauseScreen))
        await shows(pilot, "r restart")
        await pilot.press("f9")
        await until(pilot, lambda: run.asked == ["kill_all"])
        run.change(kill_deadline=1.0)
        await until(pilot, lambda: "KILL sent, waiting for tf3" in screen_text(app)[0])
        await until(pilot, lambda: "F9 KILL now" in screen_text(app)[-1])
        assert "restart" not in screen_text(app)[-1]
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is run_screen(app))
        await until(pilot, lambda: "F9 KILL now" in screen_text(app)[-1])
        await until(pilot, lambda: app.focused is not None)
        await pilot.press("r")
        told = "the run is being ended: "
        await until(pilot, lambda: any(told in note.message for note in app._notifications))
        assert run.asked == ["kill_all"]
        run.end(Outcome.KILLED, 1, receipt=Receipt((HostReceipt("tf3"),), begun=True))
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is run_screen(app))
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, CauseScreen))
        await shows(pilot, "tf3 was lost when the run ended (the connection ended).")
        assert "reconnect" not in "".join(screen_text(app))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", [stall, lose])
async def test_the_title_of_a_task_in_trouble_has_its_host(
    run: ScriptedRun, size: tuple[int, int], make: Callable[[ScriptedRun], None]
) -> None:
    """Given a task that has stalled or is lost, when its pane is narrow, then its host has room
    before step and loss."""
    async with showing(run, size) as (app, pilot):
        make(run)
        run.task("worker:1", step=12_345_678_901, attempt=12)
        await until(pilot, lambda: "@tf3" in title_of(screen_text(app), "worker:1"))


async def test_long_silence_tells_more_than_the_step_before_it(run: ScriptedRun) -> None:
    """Given a task that has printed nothing for half a minute and is not known to have stalled,
    when its pane has no room for all, then its title has the silence and not the step."""
    async with showing(run, (80, 24)) as (app, pilot):
        at_work(run)
        run.task("worker:1", step=1_234_567, last_output=time.time() - 41)
        await until(pilot, lambda: "quiet " in title_of(screen_text(app), "worker:1"))
        assert "step" not in title_of(screen_text(app), "worker:1")


@pytest.mark.parametrize("size", SIZES)
async def test_the_header_names_the_task_before_what_it_does(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """Given a stall whose cause is known, then the header begins with the name of the task, and
    the cause behind it has what room is left."""
    async with showing(run, size) as (app, pilot):
        stall(run)
        await until(pilot, lambda: "! worker:1 on tf3 stalled for 1:" in screen_text(app)[0])
        assert "cause: worker:1 on tf3 has" in screen_text(app)[0]


@pytest.mark.parametrize("size", SIZES)
async def test_the_footer_leads_with_the_keys_of_the_trouble(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """Given a run that has stalled, when it is on the screen, then the first keys behind that for
    kill-all lead to the task, its cause and its stack, and restart it."""
    async with showing(run, size) as (app, pilot):
        stall(run)
        keys = "F9 kill all  ! to worker:1  C cause  b stacks  r restart"
        await until(pilot, lambda: keys in screen_text(app)[-1])
        run.task("worker:1", stalled_since=None)
        run.change(verdict=None)
        await until(pilot, lambda: "F9 kill all  q leave" in screen_text(app)[-1])


async def test_the_log_of_a_stalled_task_goes_on_in_sight(run: ScriptedRun) -> None:
    """Given a stalled task whose log a key has brought into sight, when the task is started again,
    then its new lines are in sight."""
    async with showing(run, (80, 24)) as (app, pilot):
        stall(run)
        run.write("worker:1", b"".join(b"old line %d\n" % n for n in range(50)))
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: focused_task(app) == "worker:1")
        await shows(pilot, "old line 49")
        run.write("worker:1", b"a new attempt\n")
        await shows(pilot, "a new attempt")


@pytest.mark.parametrize(("key", "word"), [("r", ""), ("R", " hard")])
async def test_the_page_of_the_cause_restarts_its_task(
    run: ScriptedRun, key: str, word: str
) -> None:
    """Given the page of the cause of a hang, when its key for a restart is pressed, then the task
    of the row is restarted, and its log is shown."""
    async with showing(run, (80, 24)) as (app, pilot):
        stall(run)
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, CauseScreen))
        await shows(pilot, "r restart")
        await pilot.press(key)
        await until(pilot, lambda: run.asked == [f"restart worker:1{word}"])
        await until(pilot, lambda: app.screen is run_screen(app))
        assert focused_task(app) == "worker:1"


# Bell and desktop notifications: when, in which form, and that no host's text gets out of it.

RUN = Snapshot("r-1", "r", RunPhase.RUNNING, 100.0)
EVIL = "exit 1\x1b\\\x1b]52;c;ZXZpbA==\x07\x9c\x9d;\n\x00"
FAILED = replace(RUN, first_failure=Failure(TaskId("worker", 1), "tf2", EVIL, 200.0))


def ended(snapshot: Snapshot, outcome: Outcome, code: int, at: float) -> Snapshot:
    return replace(snapshot, state=RunPhase.ENDED, outcome=outcome, exit_code=code, ended=at)


def test_the_end_of_a_run_is_told_once() -> None:
    news = RunNews(Notify.BELL)
    assert news.read(RUN) == news.read(RUN) == ""
    over = ended(RUN, Outcome.SUCCESS, 0, 300.0)
    assert news.read(over) == "r-1: success, exit code 0"
    assert news.read(over) == ""
    assert RunNews(Notify.BELL).read(over) == ""


def test_a_failure_is_told_once_and_the_end_that_follows_from_it_is_not() -> None:
    """An end that comes hours later is; a failure from before the run was opened is not."""
    news = RunNews(Notify.BELL)
    assert news.read(RUN) == ""
    assert news.read(FAILED).startswith("r-1: worker:1 on tf2 failed: exit 1")
    assert news.read(FAILED) == ""
    assert news.read(ended(FAILED, Outcome.FAILED, 1, 210.0)) == ""
    late = RunNews(Notify.BELL)
    assert late.read(FAILED) == ""
    assert late.read(ended(FAILED, Outcome.FAILED, 1, 9000.0)) == "r-1: failed, exit code 1"


@pytest.mark.parametrize(
    ("environ", "form"),
    [
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, r"\x1b\]9;tfmux: ([^\x1b]*)\x1b\\"),
        ({"TERM": "xterm-kitty"}, r"\x1b\]9;tfmux: ([^\x1b]*)\x1b\\"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, r"\x1b\]9;([^\x1b]*)\x1b\\"),
        ({"TERM": "foot"}, r"\x1b\]777;notify;tfmux;([^\x1b;]*)\x1b\\"),
        ({"TERM": "rxvt-unicode-256color"}, r"\x1b\]777;notify;tfmux;([^\x1b;]*)\x1b\\"),
        ({"TERM": "xterm-256color"}, BELL),
        ({"TERM": "tmux-256color", "TERM_PROGRAM": "WezTerm"}, BELL),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x,1,0"}, BELL),
        ({}, BELL),
    ],
)
def test_each_terminal_gets_what_it_knows(environ: dict[str, str], form: str) -> None:
    """One sequence, which no text of a host can end, and nothing behind it."""
    written = sequence(Notify.DESKTOP, f"worker:1 failed: {EVIL}", environ)
    match = re.fullmatch(form, written)
    assert match, written
    assert all(text.isprintable() for text in match.groups())
    assert sequence(Notify.BELL, EVIL, environ) == BELL
    assert sequence(Notify.OFF, EVIL, environ) == ""


def test_a_long_text_is_cut() -> None:
    """A notification has little room."""
    assert len(sequence(Notify.DESKTOP, "x" * 10_000, {"TERM": "foot"})) < 250


@pytest.mark.parametrize("focused", [False, True])
async def test_the_terminal_is_written_to_only_without_the_focus(
    run: ScriptedRun, focused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the run on the screen."""
    monkeypatch.setenv("TERM", "foot")
    for name in ("TMUX", "TERM_PROGRAM", "LC_TERMINAL"):
        monkeypatch.delenv(name, raising=False)
    app = TfmuxApp(run, config=Config(notify=Notify.DESKTOP))
    written: list[str] = []
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app._living is run)
        assert app._driver is not None
        monkeypatch.setattr(app._driver, "write", written.append)
        app.post_message(events.AppFocus() if focused else events.AppBlur())
        await until(pilot, lambda: app.app_focus is focused)
        run.change(state=RunPhase.ENDED, outcome=Outcome.SUCCESS, exit_code=0, ended=time.time())
        await until(pilot, lambda: app._living is None)
    told = [text for text in written if "777;notify" in text]
    run_id = run.snapshot().run_id
    expected = f"\x1b]777;notify;tfmux;{run_id}: success, exit code 0\x1b\\"
    assert told == ([] if focused else [expected])


@pytest.mark.parametrize("value", ["'off'", "'bell'", "'desktop'"])
def test_the_setting_is_read(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.toml").write_text(f"notify = {value}")
    found = load_config(tmp_path / "config.toml")
    assert (found.notify, found.problems) == (Notify(value.strip("'")), ())


@pytest.mark.parametrize("value", ["'loud'", "1", "true", "['bell']"])
def test_a_wrong_setting_is_named(tmp_path: Path, value: str) -> None:
    """And is as if it were not there."""
    (tmp_path / "config.toml").write_text(f"notify = {value}")
    found = load_config(tmp_path / "config.toml")
    assert found.notify is Notify.OFF
    assert 'notify must be "off", "bell" or "desktop"' in found.problems[0]
