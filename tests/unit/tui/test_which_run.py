"""Runs that commands mean: by a word, by none, and those that `tfmux rm` deletes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.run.snapshot import KeptResults
from launcher.store.runs import RunFolder
from tests.support.homes import begun_run, ended_run
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


# Runs that commands are given by a word: an id, the beginning of one, or a cluster's name.

ENDS_OR_ASKS = ["attach", "kill", "stacks"]
READS = ["collect", "logs"]


def older(folder: RunFolder, seconds: float) -> RunFolder:
    """Makes a run one that was launched some seconds ago."""
    when = time.time() - seconds
    os.utime(folder.cluster_file, (when, when))
    return folder


def asked_about(folder: RunFolder, capfd: pytest.CaptureFixture[str], word: str) -> bool:
    """Whether `stacks` takes a word for a run, of which it says that no launcher has it."""
    code, _, err = said(capfd, "stacks", word)
    return code == 2 and f"{folder.run_id} has no launcher process" in err


def test_the_name_means_the_run_that_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    """Given a file that was launched again and again, when its name is given, then the launch that
    goes on is meant, whether it is the newest or not, and by its id, too."""
    for seconds in (300, 200):
        older(ended_run("mine"), seconds)
    goes_on = older(begun_run("mine"), 100)
    ended_run("mine")
    for word in ("mine", goes_on.run_id, goes_on.run_id[:-1]):
        assert asked_about(goes_on, capfd, word), word


def test_names_that_begin_alike(capfd: pytest.CaptureFixture[str]) -> None:
    """Given `mxnet`, `mxnet-large`, `mxnet-2` and `mxnet2`, then each name means its own run."""
    runs = {name: begun_run(name) for name in ("mxnet", "mxnet-large", "mxnet-2", "mxnet2")}
    for name, folder in runs.items():
        assert asked_about(folder, capfd, name), name
        assert asked_about(folder, capfd, f"{name}-2026"), name
        assert asked_about(folder, capfd, f"{name}-20261120-18"), name


@pytest.mark.parametrize("command", ENDS_OR_ASKS)
@pytest.mark.parametrize(
    "word",
    ["m", "mx", "mxnet-l", "mxnet", "mxnet-", "mxnet-large-", "mxnet-large-2", "MXNET-LARGE"],
)
def test_no_beginning_of_a_name_means_a_run(
    command: str, word: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is ended; what could be meant is named."""
    folder = begun_run("mxnet-large")
    code, out, err = said(capfd, command, word)
    assert (code, out) == (2, "") and f"no run {word!r} here" in err
    assert (folder.run_id in err) is word.islower()


@pytest.mark.parametrize("command", ENDS_OR_ASKS)
def test_a_name_that_has_ended_is_not_the_beginning_of_another_id(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Given an active `mine`, whose id begins with `mine-2026`, and a cluster of that name that has
    ended, then nothing active is meant; once it goes on, it is."""
    begun_run("mine")
    last = ended_run("mine-2026")
    code, out, err = said(capfd, command, "mine-2026")
    assert (code, out) == (2, "")
    assert f"no active run is called 'mine-2026'; the last one was {last.run_id}" in err
    assert asked_about(begun_run("mine-2026"), capfd, "mine-2026")


@pytest.mark.parametrize("command", [*ENDS_OR_ASKS, *READS])
def test_of_several_active_ones_none_is_taken(
    command: str, active: Active, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are listed, without others; nothing is on stdout."""
    folders = [active("mine"), active("mine")]
    others = [active("mine-2"), ended_run("mine")]
    for word in ("mine", "mine-2026"):
        code, out, err = said(capfd, command, word)
        assert (code, out) == (2, ""), err
        assert all(f"\n{folder.run_id}  " in f"\n{err}" for folder in folders)
        assert not any(f"\n{folder.run_id}  " in f"\n{err}" for folder in others)
        assert f"2 active runs are called {word!r}: name one, such as `tfmux {command} mine" in err


@pytest.mark.parametrize("command", ENDS_OR_ASKS)
def test_a_run_that_cannot_be_read_may_be_meant(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The name of another run is none of its own."""
    folder = begun_run("mine")
    (runs_home() / "mine-20261120-183002-7f3b").write_text("no folder")
    (runs_home() / "other-20261120-183002-7f3b").write_text("no folder")
    for word in ("mine", "mine-20261120"):
        code, _, err = said(capfd, command, word)
        assert code == 2 and "mine-20261120-183002-7f3b may be meant" in err
    assert asked_about(folder, capfd, folder.run_id)


def test_logs_of_the_run_that_goes_on_else_of_the_newest(
    active: Active, capfd: pytest.CaptureFixture[str]
) -> None:
    """By a name, by the beginning of one, and by that of an id; stderr says whose they are."""
    first, second = older(ended_run("mine"), 300), older(ended_run("mine"), 200)
    alike = older(ended_run("mine-too"), 100)
    for folder in (first, second, alike):
        (folder.path / "worker-0.log").write_text(f"{folder.run_id}\n")
    for word, folder in (
        ("mine", second),
        ("mine-20261120", second),
        (first.run_id[:-1], first),
        ("mi", alike),
        ("mine-", alike),
        ("mine-too", alike),
    ):
        code, out, err = said(capfd, "logs", word, "worker:0")
        assert (code, out) == (0, f"{folder.run_id}\n"), word
        assert err.startswith(f"tfmux: using {folder.run_id}"), err
        assert ("newest of" in err) is (word in ("mine", "mine-20261120", "mi", "mine-")), err
    assert said(capfd, "logs", first.run_id, "worker:0") == (0, f"{first.run_id}\n", "")
    goes_on = older(active("mine"), 400)
    for word in ("mine", "m"):
        code, out, err = said(capfd, "logs", word, "worker:1")
        assert (code, out) == (0, "mine 1\n")
        assert err == f"tfmux: using {goes_on.run_id}, the active run\n"


def test_collect_reads_the_newest_by_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    """A first word that begins no run is a path, and there is no active run for that."""
    older(ended_run("mine"), 100)
    newest = ended_run("mine")
    for word in ("mine", "mi"):
        code, _, err = said(capfd, "collect", word)
        assert code == 0 and f"using {newest.run_id}, the newest of 2 such runs\n" in err
    code, _, err = said(capfd, "collect", "out")
    assert code == 2 and "no run 'out' here" in err


def test_rm_takes_no_run_by_the_beginning_of_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    """A name that several runs have is refused, too."""
    folder = ended_run("mxnet-large")
    code, out, err = said(capfd, "rm", "mxnet")
    assert (code, out) == (2, "") and folder.run_id in err and folder.is_there
    other = ended_run("mxnet")
    assert said(capfd, "rm", "mxnet")[:2] == (0, f"{other.run_id}\n") and folder.is_there
    last = ended_run("mxnet-large")
    code, _, err = said(capfd, "rm", "mxnet-large")
    assert code == 2 and folder.run_id in err and last.run_id in err and folder.is_there


def test_a_folder_that_was_renamed(capfd: pytest.CaptureFixture[str]) -> None:
    """Its whole name is a name as the cluster's is; what goes on comes first."""
    best = ended_run("mine")
    best.path.rename(best.path.with_name("best"))
    code, _, err = said(capfd, "kill", "best")
    assert code == 0 and f"{best.run_id} has ended already, confirmed" in err
    assert asked_about(begun_run("best"), capfd, "best")


# `tfmux rm`: which runs are deleted, and what of them stays.

KEPT = KeptResults("tf1", files=3, bytes=2048, folder="/home/me/.local/state/tfmux/kept")


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
