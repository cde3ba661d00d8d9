"""A crash of the screen is no wish of a person: the run goes on, and the terminal says so."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import command
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import write
from tests.support.patience import PATIENCE, wait_until
from tests.support.terminal import Terminal, cluster, living
from tests.testbed import guard
from tui.crash import FILE_NAME

PROGRAM = """
import os, signal, sys, time
from pathlib import Path

where, trigger, *words = sys.argv[1:]

def fail(*_):
    raise RuntimeError("broken \\x1b[31m[bold] on purpose")

def failing(act):
    def acts(self, *rest):
        if Path(trigger).exists():
            fail()
        return act(self, *rest)
    return acts

from tui.widgets.pane_area import PaneArea
from tui.screens.run_screen import RunScreen
from tui.widgets.header import RunHeader
from tui.widgets.pane import Pane

if where == "drawing":
    Pane.render_lines = failing(Pane.render_lines)
elif where == "worker":
    RunScreen._frame = failing(RunScreen._frame)
elif where == "thread":
    def act(self):
        self.run_worker(fail, thread=True)
    PaneArea.action_wrap = act
elif where == "key":
    PaneArea.action_wrap = fail
elif where == "between":
    PaneArea.action_wrap = fail
    from tui import crash
    report = crash.report
    def reports(*rest):
        report(*rest)
        Path(trigger).touch()
        while Path(trigger).exists():
            time.sleep(0.01)
    crash.report = reports
elif where == "told to end":
    def told(self):
        os.kill(os.getpid(), signal.SIGTERM)
        fail()
    from tui.screens.editor.screen import EditorScreen
    EditorScreen.on_mount = told
elif where == "hangs":
    def hang(self):
        Path(trigger).touch()
        time.sleep(40)
    PaneArea.action_wrap = hang

from tui.main import main
sys.exit(main(words))
"""
EVERYONE = {"ps:0", "worker:0", "worker:1"}


def crashed_run(screen: str) -> str:
    """The run that the terminal says to come back to."""
    match = re.search(r"come back with: tfmux attach (\S+)", screen)
    assert match is not None, screen
    return match.group(1)


def said_so(home: Path) -> int:
    """How many failures of the screen were saved."""
    files = list((home / ".local/share/tfmux/runs").glob(f"*/{FILE_NAME}"))
    return sum(file.read_text().count("RuntimeError: broken") for file in files)


@variants(
    ("where", "command_word"),
    [
        ("drawing", "open"),
        ("thread", "up"),
        soak("drawing", "up"),
        soak("worker", "up"),
        soak("key", "up"),
    ],
    test=1,
)
def test_the_run_goes_on_when_the_screen_fails(
    terminal: Callable[[int, int], Terminal],
    tmp_path: Path,
    tfmux_home: Path,
    where: str,
    command_word: str,
) -> None:
    """Whatever part of the screen fails, and wherever the run was launched: every task lives on
    under a launcher in the background, the terminal names the error, its file and the way back, and
    `tfmux kill` ends it all."""
    program, trigger = tmp_path / "program.py", tmp_path / "now"
    program.write_text(PROGRAM)
    window = terminal(200, 50)
    file = cluster(tmp_path)
    window.start([sys.executable, str(program), where, str(trigger), command_word, str(file)])
    if command_word == "open":
        window.wait_for("hosts × jobs", "launch")
        window.keys("l")
    window.wait_for("worker:1 @localhost", "step 2")
    window.wait_until(lambda _: living() == EVERYONE, "all three processes")
    before = guard.first_pids()
    trigger.touch()
    window.keys("w")
    if where in ("thread", "key"):  # the screen is open again, once
        wait_until(lambda: said_so(tfmux_home) == 1, "the first failure")
        window.wait_for("worker:1 @localhost", "F9")
        window.keys("w")
    screen = window.wait_for("EXIT-CODE 70", "come back with: tfmux attach")
    try:
        said = "tfmux: the screen failed: RuntimeError: broken ␛[31m[bold] on purpose"
        assert said in screen
        run = crashed_run(screen)
        saved = tfmux_home / ".local/share/tfmux/runs" / run / FILE_NAME
        assert f"tfmux: the whole error is in {saved}" in "".join(screen.split("\n"))
        assert "in fail" in saved.read_text() and "Traceback" in saved.read_text()
        assert guard.first_pids() == before, "the tasks are the same processes as before"
        shown = command.run("ps").stdout
        assert run in shown and "unsupervised" not in shown
    finally:
        ended = command.run("kill", "--all")
    assert ended.returncode == 0 and "no process is left" in ended.stdout
    assert not living()


def test_a_screen_that_fails_when_it_is_told_to_end_is_not_opened_again(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """Given a page that is just being opened, when the screen gets SIGTERM and the page fails on
    its way out, then the command ends."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    window = terminal(200, 50)
    words = ["told to end", str(tmp_path / "never"), "open", str(cluster(tmp_path))]
    window.start([sys.executable, str(program), *words])
    screen = window.wait_for("EXIT-CODE 0")
    assert "failed" not in screen


def test_a_crash_after_f9_does_not_save_the_run(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """A kill that a person has asked for is carried out, whatever the screen does meanwhile. The
    tasks do not end before the grace, so the screen fails first."""
    program, trigger = tmp_path / "program.py", tmp_path / "now"
    program.write_text(PROGRAM)
    window = terminal(200, 50)
    stubborn = ["sh", "-c", "trap '' TERM; echo step 2; while :; do sleep 1; done"]
    jobs = {"worker": {"tasks": 2, "ready": "started"}}
    text = cluster_text(jobs, command=stubborn, workdir="", grace=15.0)
    file = write(tmp_path, text)
    window.start([sys.executable, str(program), "key", str(trigger), "up", str(file)])
    window.wait_for("worker:1 @localhost", "step 2")
    window.keys("F9")
    window.wait_for("killing all")
    window.keys("w")
    screen = window.wait_for("EXIT-CODE 130", "no process is left")
    assert "the screen failed: RuntimeError" in screen
    assert not living()


def test_the_kill_key_does_not_wait_for_a_screen_that_hangs(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """The loop of the screen stands still: F9 ends every task all the same."""
    program, hangs = tmp_path / "program.py", tmp_path / "hangs"
    program.write_text(PROGRAM)
    window = terminal(120, 40)
    words = [str(program), "hangs", str(hangs), "up", str(cluster(tmp_path))]
    window.start([sys.executable, *words])
    window.wait_for("worker:1 @localhost", "step 2")
    window.wait_until(lambda _: living() == EVERYONE, "all three processes")
    window.keys("w")
    window.wait_until(lambda _: hangs.exists(), "the screen hangs")
    window.keys("F9")
    window.wait_until(lambda _: not living(), "F9's effect", timeout=PATIENCE)


@variants("command_word", ["up", "open"], test=1)
def test_what_is_typed_between_two_screens_is_read(
    terminal: Callable[[int, int], Terminal], tmp_path: Path, command_word: str
) -> None:
    """Given a screen that has failed, when keys are pressed before the next one reads any, then
    they are for that: F9 ends every task without a question, and a letter opens its page."""
    program, trigger = tmp_path / "program.py", tmp_path / "failed"
    program.write_text(PROGRAM)
    window = terminal(120, 40)
    file = cluster(tmp_path)
    window.start([sys.executable, str(program), "between", str(trigger), command_word, str(file)])
    if command_word == "open":
        window.wait_for("hosts × jobs", "launch")
        window.keys("l")
    window.wait_for("worker:1 @localhost", "step 2")
    window.wait_until(lambda _: living() == EVERYONE, "all three processes")
    window.keys("w")
    window.wait_until(lambda _: trigger.exists(), "the end of the first screen")
    if command_word == "up":
        window.keys("?")
        trigger.unlink()
        window.wait_for("Everywhere", "Kill all, on all hosts")
        window.keys("Escape")
    else:
        window.keys("F9")
        trigger.unlink()
    if command_word == "up":
        window.keys("F9")
    window.wait_until(lambda _: not living(), "F9's effect")
    window.wait_for("no process is left")


@pytest.mark.parametrize(("width", "height"), [(5, 3), soak(1, 1), soak(15, 60), soak(200, 4)])
def test_a_terminal_without_room_for_a_screen_has_its_keys(
    terminal: Callable[[int, int], Terminal],
    tmp_path: Path,
    width: int,
    height: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a terminal in which no screen has room, whatever `COLUMNS` and `LINES` say, when a run
    is launched there, then it says how the run stands, F9 ends it, and in a larger terminal its
    screen is there."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    window = terminal(width, height)
    window.run("up", str(cluster(tmp_path)))
    window.wait_until(lambda _: living() == EVERYONE, "all three processes")
    window.wait_until(lambda screen: screen.startswith("running"[:width]), "the run's state")
    window.resize(120, 40)
    window.wait_for("worker:1 @localhost", "step 2")
    window.resize(width, height)
    window.wait_until(lambda screen: screen.startswith("running"[:width]), "the run's state")
    window.keys("F9")
    window.wait_until(lambda _: not living(), "F9's effect")
    window.resize(120, 40)
    window.wait_for("no process is left")
    window.keys("q")
    window.wait_for("EXIT-CODE 130")
