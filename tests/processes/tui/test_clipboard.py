"""Copies inside tmux, which drops a program's OSC 52 in its default setting."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fakes import ScriptedRun
from tests.support.screens import showing, shows, until


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A tmux server, in one of whose windows the test seems to run."""
    tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "sleep 1000"], check=True)
    monkeypatch.setenv("TMUX", f"{tmp_path / 'tmux'},{os.getpid()},0")
    yield tmux
    subprocess.run([*tmux, "kill-server"], check=True)


async def test_lines_go_to_the_buffer_of_tmux(run: ScriptedRun, server: list[str]) -> None:
    """Given a screen inside tmux, when a person copies lines, then tmux has them, and the message
    says so."""
    run.write("worker:0", b"one\ntwo\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "two")
        await pilot.press("2", "v", "k", "y")
        told = "2 lines copied to tmux's buffer"
        await until(pilot, lambda: any(told in note.message for note in app._notifications))
    shown = subprocess.run([*server, "show-buffer"], capture_output=True, check=True)
    assert shown.stdout == b"one\ntwo\n"


async def test_a_tmux_that_is_gone_is_no_error(
    run: ScriptedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a variable of a tmux server that has ended, then the terminal gets the text."""
    assert shutil.which("tmux")
    monkeypatch.setenv("TMUX", f"{tmp_path / 'none'},1,0")
    run.write("worker:0", b"one\ntwo\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "two")
        await pilot.press("2", "v", "k", "y")
        await until(pilot, lambda: app.clipboard == "one\ntwo\n")
        told = "2 lines sent to the terminal's clipboard"
        await until(pilot, lambda: any(told in note.message for note in app._notifications))
