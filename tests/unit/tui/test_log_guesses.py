"""Faults in what a front end guesses from text: each costs its sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import Failure
from launcher.run.states import Outcome, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tui.crash import FILE_NAME, report_guesses
from tui.log import hints, remarks
from tui.log.guesses import MISSING, say_faults
from tui.log.hints import Hint, hint_for, known_cause
from tui.log.remarks import remark_source
from tui.outcome import report

TAKEN = "OSError: [Errno 98] Address already in use"


class Broken:
    """Something in the place of a table or an expression; whoever asks it anything fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"boom in {name}")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "_PATTERNS", Broken())
    monkeypatch.setattr(remarks, "_SOURCES", Broken())
    monkeypatch.setattr(hints, "_waited_for", _boom)


def _boom(*_: object) -> str:
    raise KeyError("nobody")


def test_a_fault_costs_a_sentence_and_is_said_once(
    broken: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = TaskId("worker", 0)
    for _ in range(3):
        assert hint_for(TAKEN) is None and remark_source(b"E a line") is None
        assert known_cause(Hint("waits", "in general", worker), None, {}) == ""
    report_guesses(tmp_path)
    said = capsys.readouterr().err
    assert said.count(MISSING) == 3 and "boom in Match" in said
    assert (tmp_path / FILE_NAME).read_text().count("Traceback (most recent call last)") == 3
    report_guesses(tmp_path)
    assert not capsys.readouterr().err


def test_the_report_of_a_failure_says_the_rest(
    broken: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ScriptedRun(tmp_path)
    worker = TaskId("worker", 0)
    run.task("worker:0", state=TaskState.FAILED, exit_code=1)
    failure = Failure(worker, "localhost", "exit 1", 1.0, tail=(TAKEN,))
    run.change(state=RunPhase.ENDED, outcome=Outcome.FAILED, exit_code=1, first_failure=failure)
    text = report(run.snapshot(), tmp_path)
    assert (
        "first failure: worker:0 on localhost: exit 1" in text and TAKEN in text and "◂" not in text
    )
    say_faults()
    assert MISSING in capsys.readouterr().err
