"""The word that an agent and its watchdog leave in the run's folder for the next agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.agent import folders
from launcher.agent.folders import Folders, Word

Begin = Callable[[], tuple[Folders, bool]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins an agent; returns its folders, and whether it is certain of what was before."""
    monkeypatch.setattr(folders, "_TEMPORARY", str(tmp_path))

    def begun() -> tuple[Folders, bool]:
        found = Folders("run-1", "far", None, {"XDG_STATE_HOME": str(tmp_path / "state")})
        return found, found.begin(found.make()).word is Word.PROVEN

    return begun


def test_an_end_that_was_not_proven_is_a_doubt_for_ever(begin: Begin) -> None:
    """Given an agent that left no proof, then no later agent is certain, whatever it proves."""
    first, certain = begin()
    assert certain
    first.write_end("it was told to", proven=True)
    assert begin()[1]
    for _ in range(3):
        _, certain = begin()
        assert not certain


def test_a_late_proof_is_about_its_own_agent(begin: Begin) -> None:
    """Given a watchdog that was stopped when the next agent began, when it goes on and writes its
    proof, then that one's end is not proven by it."""
    stopped, _ = begin()
    second, certain = begin()
    assert not certain
    stopped.write_ended("SIGKILL killed it", proven=True)
    assert not begin()[1]
    second.write_ended("SIGKILL killed it", proven=True)
    assert not begin()[1]


def test_a_word_that_is_awaited_may_come(begin: Begin) -> None:
    """Given a watchdog that had not ended when the next agent began, then what it writes at its end
    tells that agent, and the last line that the agent leaves stays its own."""
    held, _ = begin()
    began = Path(held.began).read_text()
    found, _ = begin()
    assert found.word(began, alone=False) is Word.AWAITED
    assert found.word(began, alone=True) is Word.NONE
    held.write_ended("SIGKILL killed it", proven=True)
    assert found.word(began, alone=False) is Word.PROVEN
    found.write_end("it was told to", proven=True)
    held.write_ended("SIGKILL killed it", proven=True)
    assert begin()[1]


def test_a_watchdog_that_could_not_end_all_says_so(begin: Begin) -> None:
    """Its agent has died, but not without a word."""
    first, _ = begin()
    first.write_ended("SIGKILL killed it", proven=False)
    assert first.begin(first.make()).word is Word.UNPROVEN


def test_a_doubt_ends_with_the_boot(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the launcher has had the folder removed: its doubt is not removed with it."""
    begin()
    doubting, certain = begin()
    assert not certain
    doubting.remove(proven=False)
    assert not begin()[1]
    monkeypatch.setattr(folders, "boot_id", lambda: "another boot")
    assert begin()[1]


def test_the_boot_of_another_machine_proves_nothing(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a home that several machines share, and one name that leads to any of them, then the
    agent on another machine is not certain of what one here has left, and its folder is kept."""
    first, _ = begin()
    monkeypatch.setattr(folders, "boot_id", lambda: "boot-of-another")
    monkeypatch.setattr(folders, "machine_id", lambda: "another")
    assert first.in_doubt()
    assert not begin()[1]
    monkeypatch.setattr(folders, "boot_id", lambda: "its-next-boot")
    assert not begin()[1], "the first machine has not booted"


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("", "the host has rebooted"),
        ("the agent was told to stop", "the agent was told to stop; the host has rebooted since"),
    ],
)
def test_a_reboot_is_told_as_one(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, left: str, said: str
) -> None:
    """A power cut, and a machine that was shut down in order."""
    found, _ = begin()
    if left:
        found.write_end(left, proven=True)
    monkeypatch.setattr(folders, "boot_id", lambda: "another boot")
    assert found.begin(found.make()).text == said


def test_a_folder_without_a_beginning_is_a_doubt(begin: Begin) -> None:
    """Its files were lost, but somebody has made it."""
    found, _ = begin()
    Path(found.began).unlink()
    assert not begin()[1]


def test_a_folder_that_was_removed_is_none(begin: Begin) -> None:
    """The launcher had a clean receipt, and the next run of that name begins anew."""
    found, _ = begin()
    found.remove(proven=True)
    assert begin()[1]


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("proven", [True, False])
def test_results_that_stay_are_no_doubt(begin: Begin, proven: bool, staged: bool) -> None:
    """What tasks have left on the host outlives the run's folder, and its proof or doubt does."""
    found, _ = begin()
    for folder in (found.results, found.stage):
        Path(folder).mkdir()
    found.remove(proven=proven, staged=staged)
    assert Path(found.results).is_dir()
    assert begin()[1] is proven
    assert not begin()[1]


def test_the_next_agent_reads_how_the_last_one_ended(begin: Begin) -> None:
    """Why, and what had become of its tasks, proven or not."""
    found, _ = begin()
    facts = {"task": "w:0", "attempt": 1, "status": 3}
    began = Path(found.began).read_text()
    found.write_end("no launcher for 600 s", [facts], [(7, 70, "w:0")], proven=False)
    assert found.begin(found.make()) == (
        Word.UNPROVEN,
        began,
        "no launcher for 600 s",
        (facts,),
        ((7, 70, "w:0"),),
        0,
    )


def test_an_agent_that_died_with_its_watchdog_has_left_no_word(begin: Begin) -> None:
    """Nor has one whose last word is half a line."""
    found, _ = begin()
    for _ in range(2):
        before = found.begin(found.make())
        assert before[2:] == ("the agent died", (), (), 0) and before.word is Word.NONE
        Path(found.end).write_text('{"proves": "')


def test_the_proof_of_a_watchdog_is_all_that_its_file_holds(begin: Begin) -> None:
    """Given an agent that died, then the file of its watchdog has the agent's beginning and nothing
    else, which agents of earlier versions compare whole; the next one knows why all the same."""
    first, _ = begin()
    first.write_ended("SIGKILL killed it", proven=True)
    assert Path(first.ended).read_text() == Path(first.began).read_text()
    assert first.last_words.endswith("SIGKILL killed it")
    first.write_ended("SIGKILL killed it", proven=False)
    assert Path(first.ended).read_text() == f"{Path(first.began).read_text()} without proof"
