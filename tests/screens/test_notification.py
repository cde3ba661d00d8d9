"""Bell and desktop notifications: when, in which form, and that no host's text gets out of it."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from textual import events

from launcher.ids import TaskId
from launcher.run.snapshot import Failure, Snapshot
from launcher.run.states import Outcome, RunPhase
from tests.support.fakes import ScriptedRun
from tests.support.screens import until
from tui.app import TfmuxApp
from tui.config import Config, load_config
from tui.notification import BELL, Notify, RunNews, sequence

RUN = Snapshot("r-1", "r", RunPhase.RUNNING, 100.0)
EVIL = "exit 1\x1b\\\x1b]52;c;ZXZpbA==\x07\x9c\x9d;\n\x00"
FAILED = replace(RUN, first_failure=Failure(TaskId("worker", 1), "tf2", EVIL, 200.0))


def ended(snapshot: Snapshot, outcome: Outcome, code: int, at: float) -> Snapshot:
    return replace(snapshot, state=RunPhase.ENDED, outcome=outcome, exit_code=code, ended=at)


def test_the_end_of_a_run_is_told_once() -> None:
    """The end is told of a run that was seen alive."""
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
    """Three words."""
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
