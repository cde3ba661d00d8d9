"""`tfmux rm`: which runs are deleted, and what of them stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.run.snapshot import KeptResults
from launcher.store.runs import RunFolder
from tests.support.homes import ended_run
from tui.main import main

KEPT = KeptResults("tf1", files=3, bytes=2048, folder="/home/me/.local/state/tfmux/kept")


def said(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    code = main(words)
    return code, *capfd.readouterr()


def ids() -> set[str]:
    """The runs that there are, whole or not."""
    return set(os.listdir(runs_home()))


def test_the_named_runs_are_deleted(capfd: pytest.CaptureFixture[str]) -> None:
    """By their ids or beginnings, those on the same line as one that is not known, too."""
    first, second, third = (ended_run(name) for name in ("first", "second", "third"))
    code, out, err = said(capfd, "rm", first.run_id, second.run_id[:-2], "nothing")
    assert code == 2 and out == f"{first.run_id}\n{second.run_id}\n"
    assert "no run 'nothing' here" in err
    assert ids() == {third.run_id}
    ended_run("third")
    code, out, err = said(capfd, "rm", "third")
    assert (code, out) == (2, "") and "the name or the beginning of several runs" in err
    assert len(ids()) == 2


def test_an_active_run_stays(capfd: pytest.CaptureFixture[str]) -> None:
    """Given a run with a launcher process, also when it is forced."""
    folder = ended_run("mine")
    folder.events.write_bytes(b"".join(folder.events.read_bytes().splitlines(True)[:-1]))
    lock = folder.take_lock()
    assert lock is not None
    try:
        for words in ([], ["--force"]):
            code, out, err = said(capfd, "rm", folder.run_id, *words)
            assert (code, out) == (1, "")
            assert (
                err == f"tfmux: {folder.run_id} is active: `tfmux kill {folder.run_id}` ends it\n"
            )
    finally:
        os.close(lock)
    assert (folder.path / "cluster.toml").exists()


def test_results_that_were_not_collected_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    """Given files that have stayed on a host, then the run stays, too, and the message says what
    would be lost, what brings it, and what deletes it all the same."""
    folder = ended_run("mine", results_kept=(KEPT,))
    code, out, err = said(capfd, "rm", folder.run_id)
    assert (code, out) == (1, "")
    assert "tf1: 3 new files, 2.0 KB, kept in /home/me/.local/state/tfmux/kept" in err
    assert f"`tfmux collect {folder.run_id}`" in err
    assert f"`tfmux rm --force {folder.run_id}` deletes them" in err
    assert said(capfd, "rm", "--force", folder.run_id)[:2] == (0, f"{folder.run_id}\n")
    assert ids() == set()


def test_results_that_were_not_brought_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    """The sentence of the run's end is that of the refusal."""
    missing = "tf2: results were not brought: its disk is full"
    folder = ended_run("mine", results_missing=(missing,))
    code, _, err = said(capfd, "rm", folder.run_id)
    assert code == 1 and missing in err and folder.path.exists()


def test_collected_results_are_lost_with_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    """Given results that have all been collected into the run's folder, then they must be moved, or
    the deletion be forced."""
    folder = ended_run("mine", results_kept=(KEPT,))
    place = folder.path / "collected/tf1/out"
    place.mkdir(parents=True)
    for name in "abc":
        (place / name).write_text("1234")
    code, _, err = said(capfd, "rm", folder.run_id)
    assert code == 1 and "3 collected files, 12 B, in " in err and "tfmux collect" not in err
    place.chmod(0o500)  # as a task has left it
    assert said(capfd, "rm", "--force", folder.run_id)[0] == 0
    assert ids() == set()


def test_links_in_a_folder_lead_nowhere(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Given links to a file and a directory elsewhere, when the run is deleted, then what they lead
    to is there, and nothing of it counts as results."""
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    (precious / "below/file").write_text("kept")
    (tmp_path / "lock").write_text("kept")
    folder = ended_run("mine")
    (folder.path / "collected").symlink_to(precious)
    (folder.path / "worker-0.log").symlink_to(precious / "below/file")
    (folder.path / "deep").mkdir()
    (folder.path / "deep/link").symlink_to(precious / "below")
    assert said(capfd, "rm", folder.run_id)[:2] == (0, f"{folder.run_id}\n")
    assert ids() == set() and (precious / "below/file").read_text() == "kept"


@pytest.mark.parametrize("target", ["there", "missing"])
def test_a_lock_that_is_a_link(
    target: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nobody knows then whether the run is active: it stays, and nothing is made elsewhere."""
    (tmp_path / "there").write_text("kept")
    folder = ended_run("mine")
    (folder.path / "launcher.lock").symlink_to(tmp_path / target)
    code, out, _ = said(capfd, "rm", folder.run_id)
    assert (code, out) == (1, "") and folder.path.exists()
    assert not (tmp_path / "missing").exists() and (tmp_path / "there").read_text() == "kept"


def test_a_link_among_the_runs(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The folder to which it leads is none of ours."""
    folder = ended_run("mine")
    folder.path.rename(tmp_path / "elsewhere")
    folder.path.symlink_to(tmp_path / "elsewhere")
    code, out, err = said(capfd, "rm", "--force", folder.run_id)
    assert (code, out) == (1, "") and "is not the folder of a run" in err
    assert (tmp_path / "elsewhere/cluster.toml").exists()
    for name in (".", "..", ""):
        assert said(capfd, "rm", name)[0] == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_run_stays(capfd: pytest.CaptureFixture[str]) -> None:
    """Also where root asks."""
    folder = ended_run("mine")
    os.chown(folder.path, 12345, 12345)
    code, out, err = said(capfd, "rm", "--force", folder.run_id)
    assert (code, out) == (1, "") and "belongs to user 12345" in err
    assert (folder.path / "cluster.toml").exists()


def test_what_an_interrupted_deletion_has_left(capfd: pytest.CaptureFixture[str]) -> None:
    """The rest is no run, and the next deletion of that name does not stumble over it."""
    folder = ended_run("mine")
    rest = runs_home() / f".new-{folder.run_id}"
    rest.mkdir()
    (rest / "worker-0.log").write_text("half")
    assert [each.run_id for each in RunFolder.all()] == [folder.run_id]
    assert said(capfd, "rm", folder.run_id)[0] == 0
    assert ids() == set()
