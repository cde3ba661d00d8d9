"""What hosts are sent: files to start in, and names of any bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic_core import from_json

from launcher.cluster.read import load
from launcher.history.stored import StoredRun
from launcher.store.runs import RunFolder
from tests.support.budgets import variants
from tests.support.command import Up, python_task, write
from tests.support.paths import REPOSITORY
from tests.testbed.inprocess import SshServer

SHOWS = """
import os, time
links = [os.path.realpath("/proc/self/fd/" + name) for name in os.listdir("/proc/self/fd")]
print("hook", any("tfmux-stacks" in link for link in links), flush=True)
time.sleep(1000)
"""


@contextmanager
def running(server: SshServer, folder: Path, more: str) -> Iterator[tuple[Up, Path]]:
    """A task on the in-process SSH server, which says whether its Python has the hook for stacks;
    and the run's folder there."""
    text = (
        f'name = "sent"\n{server.host_toml("far", sys.executable)}\n'
        '[jobs.worker]\ntasks = ["far:auto"]\n'
        f"[run]\ncommand = {json.dumps(python_task(SHOWS))}\ngrace = 1\n{more}\n"
    )
    with Up("up", str(write(folder, text)), "--json") as up:
        up.log("worker:0", "hook")
        (there,) = (server.home / ".local/state/tfmux").iterdir()
        yield up, there


def test_a_task_without_files_gets_none(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a task that starts in no copy of a workdir and does not name the trainer, when it runs,
    then its host has the scripts that come with the agent, of which its Python has imported the
    hook, and no staged files, which have been neither sent nor announced."""
    with running(ssh_server, tmp_path, 'workdir = ""') as (up, there):
        assert up.log("worker:0", "hook")["text"] == "hook True"
        assert sorted(path.name for path in (there / "tools").iterdir()) == [
            *("prepare.py", "stacks", "warm.py")
        ]
        assert not (there / "stage").exists()
        assert not any(event.get("staged_total_files") for event in up.of("host"))
    assert not there.exists(), "a clean end takes all of it"


@variants(
    "more",
    [
        'workdir = ""\nsetup = ": -m trainer"',
        'workdir = ""\nenv = { WHERE = "{trainer}" }',
        'workdir = ""\nprepare = ["test -f $PYTHONPATH/trainer/__main__.py"]',
    ],
    test=1,
)
def test_the_trainer_goes_where_it_is_named(
    ssh_server: SshServer, tmp_path: Path, more: str
) -> None:
    """Given a command, variable or `prepare` line that names the bundled trainer, when the task
    runs, then its host has it."""
    with running(ssh_server, tmp_path, more) as (_, there):
        assert (there / "stage" / "trainer" / "trainer" / "__main__.py").exists()


def test_a_workdir_goes_without_the_trainer(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a workdir that is copied, when the task does not name the trainer, then its host has
    the workdir alone."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.txt").write_text("data")
    with running(ssh_server, tmp_path, 'workdir = "work"') as (_, there):
        assert [path.name for path in (there / "stage").iterdir()] == ["work"]
        assert (there / "stage" / "work" / "data.txt").read_text() == "data"


CLUSTER = """
name = "odd"
[jobs.worker]
tasks = ["localhost:auto"]
ready = "started"
[run]
command = ["sh", "-c", "pwd; echo Prüfung: $0; test -f cluster.toml", "{workdir}"]
[hooks]
on_end = ["sh", "-c", "pwd > hook; pwd; exit 3"]
"""
NAME = b"Pr\xfcfung"
UTF8 = {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8:strict"}
"""As in `de_DE.UTF-8`, which need not be installed."""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """The directory, with a cluster file."""
    folder = tmp_path / os.fsdecode(NAME)
    folder.mkdir()
    (folder / "cluster.toml").write_text(CLUSTER, encoding="utf-8")
    return folder


def tfmux(folder: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a command in the directory."""
    argv = [sys.executable, "-P", "-m", "tui.main", *words]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True)


@variants("env", [UTF8, ASCII], ids=["utf-8", "ascii"], test=1)
def test_a_launch_from_a_directory_with_any_name(odd: Path, env: dict[str, str]) -> None:
    """Tasks and hooks work there; the run's own copy of the file is as it was, and knows where it
    came from."""
    done = tfmux(odd, env, "up", "cluster.toml", "--headless")
    assert done.returncode == 0, done.stderr.decode()
    path = os.fsencode(odd)
    (folder,) = RunFolder.all()
    log = (folder.path / "worker-0.log").read_bytes()
    assert log.splitlines() == [path, "Prüfung: ".encode() + path]
    assert (odd / "hook").read_bytes().strip() == path
    assert folder.origin == odd and folder.cluster_file.read_bytes() == CLUSTER.encode()
    again = StoredRun(folder)
    assert again.over and again.cluster.base == odd


def test_what_is_printed_has_the_bytes_of_the_name(odd: Path) -> None:
    """A pipe gets them as they are."""
    done = tfmux(odd, UTF8, "plan", "cluster.toml")
    assert done.returncode == 0, done.stderr.decode()
    assert os.fsencode(odd) in done.stdout


def test_json_that_is_printed_is_read_by_strict_readers(odd: Path) -> None:
    """Half a surrogate pair is refused by most of them."""
    done = tfmux(odd, UTF8, "plan", "cluster.toml", "--json")
    assert done.returncode == 0, done.stderr.decode()
    (task,) = from_json(done.stdout)["tasks"]
    assert task["cwd"] == os.fsencode(odd).decode(errors="replace")


def test_a_terminal_gets_no_bytes_that_are_no_text(odd: Path) -> None:
    """One of another character set could act on them: it gets a picture."""
    leader, follower = os.openpty()
    words = [sys.executable, "-P", "-m", "tui.main", "plan", "cluster.toml"]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **UTF8}
    subprocess.run(words, cwd=odd, env=env, stdout=follower, check=True)
    os.close(follower)
    shown = os.read(leader, 1 << 16)
    os.close(leader)
    assert "Pr␦fung".encode() in shown


def test_a_run_s_folder_keeps_line_ends(tmp_path: Path) -> None:
    """The copy is the file, byte for byte."""
    text = CLUSTER.replace("\n", "\r\n")
    file = tmp_path / "cluster.toml"
    file.write_bytes(text.encode())
    folder = RunFolder.create("odd-20260101-120000-0001", text, load(file))
    assert folder.cluster_file.read_bytes() == text.encode()


@variants(
    "words",
    [
        ("--workdir", "d\udce9", "--", "true"),
        ("--name", "n\udce9", "--", "true"),
        ("--", "echo", "a\udce9b"),
        ("--", "p\udce9"),
        ("-H", "h\udce9", "--", "true"),
        ("--framework", "f\udce9", "--", "true"),
    ],
    test=1,
)
def test_words_of_a_run_that_no_file_can_hold(odd: Path, words: tuple[str, ...]) -> None:
    """Exit 2 with a sentence, and no record of a run that never was."""
    done = tfmux(odd, UTF8, "run", *words)
    assert done.returncode == 2, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert len(done.stderr.decode().splitlines()) == 1
    assert RunFolder.scan() == ([], [])


def test_words_that_are_read_from_such_a_directory_arrive(odd: Path) -> None:
    """Given a working directory whose name is not UTF-8, and a variable with such a value, when a
    command is run there, then both arrive byte for byte."""
    env = {**UTF8, "VALUE": "v\udce9"}
    done = tfmux(odd, env, "run", "--headless", "--", "sh", "-c", "pwd; printf '%s\\n' \"$VALUE\"")
    assert done.returncode == 0, done.stderr.decode()
    (folder,) = RunFolder.all()
    log = (folder.path / "worker-0.log").read_bytes()
    assert log.splitlines() == [os.fsencode(odd), b"v\xe9"]
