"""The word that an agent and its watchdog leave in the run's folder for the next agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.agent import folders
from launcher.agent.folders import Folders

Begin = Callable[[], tuple[Folders, bool]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins an agent; returns its folders, and whether it is certain of what was before."""
    monkeypatch.setattr(folders, "_TEMPORARY", str(tmp_path))

    def begun() -> tuple[Folders, bool]:
        found = Folders("run-1", "far", None, {"XDG_STATE_HOME": str(tmp_path / "state")})
        return found, found.begin(found.make())

    return begun


def test_an_end_that_was_not_proven_is_a_doubt_for_ever(begin: Begin) -> None:
    """Given an agent that left no proof, then no later agent is certain, whatever it proves."""
    first, certain = begin()
    assert certain
    first.prove_end()
    assert begin()[1]
    for _ in range(3):
        _, certain = begin()
        assert not certain


def test_a_late_proof_is_about_its_own_agent(begin: Begin) -> None:
    """Given a watchdog that was stopped when the next agent began, when it goes on and writes its
    proof, then that one's end is not proven by it."""
    stopped, _ = begin()
    assert not begin()[1]
    stopped.prove_end()
    assert not begin()[1]


def test_a_doubt_ends_with_the_boot(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the launcher has had the folder removed: its doubt is not removed with it."""
    begin()
    doubting, certain = begin()
    assert not certain
    doubting.remove(proven=False)
    assert not begin()[1]
    monkeypatch.setattr(folders, "boot_id", lambda: "another boot")
    assert begin()[1]


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
