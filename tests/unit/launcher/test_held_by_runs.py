"""Disk space that ended runs hold on a host: what is counted, what a launch says, what is freed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.agent.folders import Folders, boot_id, lock_file
from launcher.files.staging import HostDisk
from launcher.on_host.held import after_staging, free, held, own

MB = 1 << 20


def folders(home: Path, run: str = "mnist-20261120-183002-7f3a", host: str = "far") -> Folders:
    """The places of a run on this host."""
    return Folders(run, host, None, {"XDG_STATE_HOME": str(home / "state")})


def run(
    home: Path, number: int, size: int, *, began: str = "", ended: bool = True, host: str = "far"
) -> Folders:
    """A run of the same cluster that has left a file of so many bytes."""
    made = folders(home, f"mnist-20261119-1830{number:02d}-7f3a", host)
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
    mine = folders(home)
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
    other = folders(home, "other-20261119-183001-7f3a")
    Path(other.results).mkdir(parents=True)
    Path(other.results, "x").write_bytes(bytes(8 * MB))
    os.utime(newest.results, (2e9, 2e9))
    said = after_staging(folders(home))
    assert said["last"] == os.path.basename(newest.run).partition(".")[0]
    assert 2 * MB <= said["left"] < 2.1 * MB and 0 < said["free"] <= said["total"]
