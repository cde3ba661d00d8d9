"""Commands that are given no run: the one active run, or a list of those that may be meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.homes import ended_run
from tui.main import main


def said(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    code = main(words)
    return code, *capfd.readouterr()


Active = Callable[[str], RunFolder]


@pytest.mark.parametrize("words", [[], ["worker:1"], ["--raw"], ["worker:1", "--raw"]], ids=str)
def test_logs_of_the_one_active_run(
    words: list[str], active: Active, capfd: pytest.CaptureFixture[str]
) -> None:
    """A task alone is one of it; runs that have ended are not asked about."""
    ended_run("before")
    folder = active("mine")
    task = [word for word in words if ":" in word]
    named = said(capfd, "logs", folder.run_id, *words)
    assert named[0] == 0 and "mine 1" in named[1] and ("mine 0" in named[1]) is not bool(task)
    assert said(capfd, "logs", *words) == named


def test_a_task_that_the_one_active_run_lacks(
    active: Active, capfd: pytest.CaptureFixture[str]
) -> None:
    """The word is no unknown run; and to print the logs of two tasks is no word of `logs`."""
    active("mine")
    for word in ("worker:7", "ps:x", ":"):
        code, _, err = said(capfd, "logs", word)
        assert code == 2 and f"the run has no task {word!r}" in err
    code, _, err = said(capfd, "logs", "worker:0", "worker:1")
    assert code == 2 and "one task or all" in err
    code, _, err = said(capfd, "logs", "worker")
    assert code == 2 and "no run 'worker' here" in err


def test_a_colon_in_the_name_of_a_folder(active: Active, capfd: pytest.CaptureFixture[str]) -> None:
    """Such a run comes first."""
    active("mine")
    odd = ended_run("odd")
    odd.path.rename(odd.path.with_name("worker:0"))
    (odd.path.with_name("worker:0") / "worker-0.log").write_text("odd\n")
    code, out, _ = said(capfd, "logs", "worker:0")
    assert (code, out) == (0, "worker:0 | odd\n")


@pytest.mark.parametrize("command", ["attach", "collect", "kill", "logs", "stacks"])
def test_of_several_none_is_taken(
    command: str, active: Active, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are listed on stderr; nothing is on stdout."""
    folders = [active("mine"), active("other")]
    ended_run("before")
    code, out, err = said(capfd, command)
    assert (code, out) == (2, "")
    assert all(f"\n{folder.run_id}  " in f"\n{err}" for folder in folders) and "before" not in err
    assert err.splitlines()[-1].startswith("tfmux: 2 runs are active: name one, such as `tfmux ")
    example = err.rpartition(f"`tfmux {command} ")[2].partition("`")[0]
    assert example in {folder.run_id for folder in folders}


def test_the_list_is_short(active: Active, capfd: pytest.CaptureFixture[str]) -> None:
    """Ten of twelve."""
    for number in range(12):
        active(f"mine{number}")
    code, _, err = said(capfd, "logs")
    assert code == 2 and "12 runs are active" in err and "tfmux ps" in err
    assert sum(line.startswith("mine") for line in err.splitlines()) == 10


@pytest.mark.parametrize("command", ["attach", "collect", "kill", "logs", "stacks"])
def test_where_none_is_active(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A sentence; where there is one to look at, the last run."""
    code, out, err = said(capfd, command)
    assert (code, out, err) == (2, "", "tfmux: no active runs\n")
    last = ended_run("before").run_id
    code, out, err = said(capfd, command)
    assert (code, out) == (2, "") and err.startswith("tfmux: no active runs")
    assert (f"`tfmux {command} {last}`" in err) is (command != "kill")


def test_kill_takes_no_run_beside_one_that_cannot_be_read(
    active: Active, capfd: pytest.CaptureFixture[str]
) -> None:
    """That one may be meant; who only looks gets the other."""
    folder = active("mine")
    (runs_home() / "broken-20261120-183002-7f3b").write_text("no folder")
    code, _, err = said(capfd, "kill")
    assert code == 2 and "broken-20261120-183002-7f3b could not be read" in err
    assert "another may be" in err and f"\n{folder.run_id}  " in err
    code, out, err = said(capfd, "logs")
    assert code == 0 and "mine 0" in out and "could not be read" in err


@pytest.mark.parametrize("command", ["attach", "kill"])
def test_no_run_is_taken_for_an_empty_word_or_a_file(
    command: str, active: Active, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`tfmux kill "$RUN"` where the variable is empty; `--file` needs the id, since no run of
    another machine is listed here."""
    active("mine")
    code, _, err = said(capfd, command, "")
    assert code == 2 and "no run ''" in err
    file = tmp_path / "mine.toml"
    file.touch()
    code, _, err = said(capfd, command, "--file", str(file))
    assert code == 2 and "whole id" in err
    code, _, err = said(capfd, command, "worker:0")
    assert code == 2 and "no run 'worker:0' here" in err
