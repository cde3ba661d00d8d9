"""The command line before a command begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from launcher.paths import runs_home
from launcher.store.launcher_lock import acquire
from tui import main


class Started:
    """In the place of a launcher process."""

    all: list[Started]

    def __init__(self, *, ssh: bool) -> None:
        self.ssh = ssh
        self.cancelled = False
        self.all.append(self)

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Started]]:
    """Launcher processes that were started; commands return 7 and do nothing else."""
    given: list[object] = []

    def stub(arguments: SimpleNamespace) -> int:
        given.append(arguments.process)
        return 7

    def import_module(name: str) -> SimpleNamespace:
        return SimpleNamespace(up=stub, run=stub, demo=stub, plan=stub, kill=stub)

    monkeypatch.setattr("launcher.client.launcher_process.LauncherProcess", Started)
    monkeypatch.setattr(main, "import_module", import_module)
    monkeypatch.setattr(Started, "all", [], raising=False)
    yield Started.all
    expected: list[object] = [*Started.all]
    assert given == (expected or [None])


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["up", "a.toml"], 1),
        (["run", "true"], 1),
        (["demo"], 1),
        (["demo", "--list"], 0),
        (["plan", "a.toml"], 0),
        (["kill", "--all"], 0),
        (["kill", "unknown"], 0),
    ],
)
def test_a_launcher_process_imports_while_the_command_does(
    words: list[str], count: int, started: list[Started]
) -> None:
    """Where one is needed, and it is ended where it was given nothing to do."""
    assert main.main(words) == 7
    assert [one.cancelled for one in started] == [True] * count


@pytest.mark.parametrize(
    ("words", "ssh"),
    [
        (["up", "here.toml"], False),
        (["up", "there.toml"], True),
        (["up", "missing.toml"], False),
        (["up", "."], False),
        (["run", "true"], False),
        (["run", "-H", "tf1", "true"], True),
    ],
)
def test_a_launcher_process_imports_ssh_where_hosts_are_reached_by_it(
    words: list[str],
    ssh: bool,
    started: list[Started],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As far as one can see before the cluster file is read."""
    monkeypatch.chdir(tmp_path)
    Path("here.toml").write_text('[jobs.worker]\ntasks = ["localhost:auto"]\n')
    Path("there.toml").write_text('[hosts.tf1]\nssh = "root@tf1"\n')
    main.main(words)
    assert [one.ssh for one in started] == [ssh]


def test_a_kill_starts_a_launcher_process_where_the_run_has_none(started: list[Started]) -> None:
    """The lock of one that has died is free."""
    folder = runs_home() / f"left-{os.getpid()}"  # locks are this machine's, for all tests
    folder.mkdir(parents=True)
    (folder / "launcher.lock").touch()
    fd = acquire(folder, folder.name)
    assert fd is not None
    os.close(fd)
    main.main(["kill", folder.name])
    assert len(started) == 1


def test_a_kill_leaves_it_to_the_launcher_process_of_the_run(started: list[Started]) -> None:
    """Its own is asked, and no other one started."""
    folder = runs_home() / f"held-{os.getpid()}"
    folder.mkdir(parents=True)
    fd = acquire(folder, folder.name)
    assert fd is not None
    main.main(["kill", folder.name])
    assert not started
    os.close(fd)
