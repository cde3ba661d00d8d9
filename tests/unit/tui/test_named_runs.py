"""Runs that commands are given by a word: an id, the beginning of one, or a cluster's name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.homes import begun_run, ended_run
from tui.main import main

Active = Callable[[str], RunFolder]

ENDS_OR_ASKS = ["attach", "kill", "stacks"]
READS = ["collect", "logs"]


def said(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    code = main(words)
    return code, *capfd.readouterr()


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
