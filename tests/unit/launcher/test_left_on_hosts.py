"""Words and files that a run leaves on a host: for the next agent, and for who needs the space."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.agent import folders
from launcher.agent.folders import Folders, Word, boot_id, lock_file
from launcher.files.staging import HostDisk
from launcher.on_host.held import after_staging, free, held, own

# The word that an agent and its watchdog leave in the run's folder for the next agent.


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


# Disk space that ended runs hold on a host: what is counted, what a launch says, what is freed.


MB = 1 << 20


def places(home: Path, run: str = "mnist-20261120-183002-7f3a", host: str = "far") -> Folders:
    """The places of a run on this host."""
    return Folders(run, host, None, {"XDG_STATE_HOME": str(home / "state")})


def run(
    home: Path, number: int, size: int, *, began: str = "", ended: bool = True, host: str = "far"
) -> Folders:
    """A run of the same cluster that has left a file of so many bytes."""
    made = places(home, f"mnist-20261119-1830{number:02d}-7f3a", host)
    place = Path(made.results if ended and not began else made.stage + "/work")
    place.mkdir(parents=True)
    (place / "model.pt").write_bytes(os.urandom(size))
    if began:
        Path(made.began).write_text(began)
    if began and ended:
        Path(made.end).write_text("{}")
    return made


def test_only_runs_that_have_ended_are_counted(home: Path) -> None:
    """Runs that have gone, those that their lease has ended, and those of another boot; not those
    that live, here or on another host of the same home, nor the run itself."""
    mine = places(home)
    Path(mine.results).mkdir(parents=True)
    Path(mine.results, "new").write_bytes(bytes(MB))
    run(home, 1, MB)
    run(home, 2, MB, began=f"{boot_id()} x")
    run(home, 3, MB, began="0-another-boot x", ended=False)
    run(home, 4, MB, began=f"{boot_id()} x", ended=False)
    run(home, 5, MB, began="0-another-boot x", ended=False, host="other")
    twice = run(home, 6, MB)
    Path(twice.results, "latest.pt").hardlink_to(Path(twice.results, "model.pt"))
    with open(Path(twice.results, "sparse"), "wb") as file:
        file.truncate(1 << 40)
    found = held(mine, 60.0)
    assert (found["runs"], found["cut"]) == (4, False)
    assert 4 * MB <= found["bytes"] < 4.2 * MB


def test_a_run_is_asked_for_what_it_holds_wherever_it_lies(home: Path) -> None:
    """In the workdir, among the results, above the workdir; once where it is in both."""
    one = run(home, 1, 100)
    work = Path(one.stage, "work")
    work.mkdir(parents=True)
    (work / "half.pt").write_text("12345")
    (work / "model.pt").write_text("older")
    (Path(one.stage) / "results").mkdir()
    (Path(one.stage) / "results/up.pt").write_text("1")
    said = own(one)
    assert (said["files"], said["bytes"], said["above"], said["problem"]) == (3, 106, 1, "")
    assert free(one) == {"why": ""}
    assert own(one)["files"] == 0 and not Path(one.run).exists()
    assert free(one) == {"why": ""}, "there is nothing any more"


def test_freeing_leaves_the_proof_of_the_end_and_a_living_run(home: Path) -> None:
    """What tells later agents whether something may live stays; a run with an agent is left."""
    one = run(home, 1, 10, began=f"{boot_id()} x")
    watch = lock_file(one.watch)
    assert "still there" in free(one)["why"] and own(one)["files"] == 1
    os.close(watch)
    os.unlink(one.watch)
    assert free(one) == {"why": ""}
    assert set(os.listdir(one.run)) == {"began", "exit"}


@pytest.mark.parametrize(
    ("free_bytes", "left", "words"),
    [
        (50, 0, []),
        (10, 4 << 30, []),
        (9, 0, ["9 B free of 100 B"]),
        (50, (4 << 30) + 1, ["the last run, mnist-1, holds 4.3 GB there"]),
        (9, 5 << 30, ["9 B free of 100 B", "the last run, mnist-1, holds 5.4 GB there"]),
    ],
)
def test_a_launch_warns_where_a_disk_gets_full(
    free_bytes: int, left: int, words: list[str]
) -> None:
    """Below a tenth, or after a run that has left more than four gigabytes; with what frees it and
    what would not fill it again."""
    disk = HostDisk(free=free_bytes, total=100, last="mnist-1", left=left)
    said = disk.warning("tf1")
    assert bool(said) is bool(words)
    for word in [*words, "tf1: ", "`tfmux rm --hosts`", "`data`", "`directory`"] if words else ():
        assert word in said


def test_a_launch_hears_of_the_last_run_of_its_cluster(home: Path) -> None:
    """Not of another cluster's, nor of a run that lives."""
    run(home, 1, MB)
    newest = run(home, 2, 2 * MB)
    os.utime(run(home, 1, MB, host="far2").results, (0, 0))
    run(home, 3, 9 * MB, began=f"{boot_id()} x", ended=False)
    other = places(home, "other-20261119-183001-7f3a")
    Path(other.results).mkdir(parents=True)
    Path(other.results, "x").write_bytes(bytes(8 * MB))
    os.utime(newest.results, (2e9, 2e9))
    said = after_staging(places(home))
    assert said["last"] == os.path.basename(newest.run).partition(".")[0]
    assert 2 * MB <= said["left"] < 2.1 * MB and 0 < said["free"] <= said["total"]
