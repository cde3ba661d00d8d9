"""Input that nobody reads, or nobody sends, is said: what is piped to `tfmux run`, and a program
that waits at its terminal."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.agent import wire
from tests.support.agent_client import Client
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.paths import REPOSITORY
from tests.support.patience import wait_until
from tests.support.scenario import notes
from tui.streams import unread_input

RUN = [sys.executable, "-P", "-m", "tui.main", "run", "--workdir", "", "--"]


def _pipe(data: bytes = b"") -> int:
    source, sink = os.pipe()
    os.write(sink, data)
    os.close(sink)
    return source


def _open_pipe() -> int:
    return os.pipe()[0]  # its other end stays open: a job of cron, a program that starts us


def _file(folder: Path, data: bytes, at: int = 0) -> int:
    (folder / "input").write_bytes(data)
    fd = os.open(folder / "input", os.O_RDONLY)
    os.lseek(fd, at, os.SEEK_SET)
    return fd


def _socket(folder: Path) -> int:
    here, there = socket.socketpair()
    there.send(b"x")
    there.close()
    return here.detach()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda folder: _pipe(b"print(1)\n"), "a pipe"),
        (_socket, "a pipe"),
        (lambda folder: _file(folder, b"print(1)\n"), "a file"),
        (lambda folder: _file(folder, b"one host\nthe next\n", 9), "a file"),
        (lambda folder: _pipe(), ""),
        (lambda folder: _open_pipe(), ""),
        (lambda folder: _file(folder, b""), ""),
        (lambda folder: _file(folder, b"read\n", 5), ""),
        (lambda folder: os.open(os.devnull, os.O_RDONLY), ""),
        (lambda folder: os.open("/dev/zero", os.O_RDONLY), ""),
        (lambda folder: pty.openpty()[1], ""),
    ],
    ids=[
        *("pipe", "socket", "file", "rest of a file", "empty pipe", "silent pipe", "empty file"),
        *("end of a file", "null", "device", "terminal"),
    ],
)
def test_bytes_that_wait_are_found(tmp_path: Path, make: Callable[[Path], int], what: str) -> None:
    """Only what has bytes that would be lost is named."""
    assert unread_input(make(tmp_path)) == what


@pytest.mark.parametrize("late", [False, True], ids=["there", "later"])
def test_what_is_piped_to_a_run_is_said_to_be_lost(tmp_path: Path, late: bool) -> None:
    """A program that is piped to `python -` is not run, which is said once: at once, or at the end
    of the run where it came later."""
    mark = tmp_path / "mark"
    wait = f"import time, os\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.01)"
    source, sink = os.pipe()
    try:
        if not late:
            os.write(sink, b"print('hello from stdin')\n")
            mark.touch()
        run = subprocess.Popen(
            [*RUN, sys.executable, "-c", wait],
            cwd=REPOSITORY,
            stdin=source,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if late:
            assert run.stderr is not None
            assert "no terminal on" in run.stderr.readline()
            os.write(sink, b"print('hello from stdin')\n")
            mark.touch()
        _, said = run.communicate()
    finally:
        os.close(source)
        os.close(sink)
    assert run.returncode == 0, said
    assert said.count("stdin is a pipe that no task reads") == 1


PYTHON = [sys.executable, "-c"]
WAITS = {
    "input": [*PYTHON, "input('Overwrite? [y/N] ')"],
    "readline": [*PYTHON, "import readline; input('(Pdb) ')"],
    "breakpoint": [*PYTHON, "breakpoint()"],
    "password": [*PYTHON, "import getpass; getpass.getpass()"],
    "below a shell": ["bash", "-c", "sleep 0; read -p 'sure? ' answer; echo $answer"],
    "a pipeline": ["bash", "-c", "cat | sort"],
    "poll": [
        *PYTHON,
        "import select; p = select.poll(); p.register(0, select.POLLIN); p.poll()",
    ],
    "select": [*PYTHON, "import select; select.select([0], [], [], 3600)"],
}
WORKS = {
    "sleeps": ["sleep", "1000"],
    "reads a pipe": ["bash", "-c", "sleep 1000 | cat"],
    "reads a socket": [
        *PYTHON,
        "import socket; a, b = socket.socketpair(); a.recv(1)",
    ],
    "listens for keys beside its work": [
        *PYTHON,
        "import threading, time; threading.Thread(target=input, daemon=True).start()\n"
        "while True: time.sleep(0.001)",
    ],
    "a socket or a key": [
        *PYTHON,
        "import select, socket; a, b = socket.socketpair(); select.select([0, a], [], [])",
    ],
    "hides keys and sleeps": ["bash", "-c", "stty -echo; sleep 1000"],
}


def test_who_waits_at_a_terminal_is_found(client: Client) -> None:
    """Programs on terminals that wait for nothing but input are named, however they ask; none
    that sleeps, works, or waits for something else as well."""
    for task in [*enumerate(WAITS), *enumerate(WORKS)]:
        number, name = task
        argv = (WAITS | WORKS)[name]
        client.start(f"{'waits' if name in WAITS else 'works'}:{number}", argv, pty=True)
    client.start("null:0", [*PYTHON, "import time; time.sleep(1000)"])

    def found() -> set[str]:
        client.send(wire.STATS, {"id": 1})
        answer: dict[str, str] = client.get(wire.REPLY, id=1)["halted"]
        assert not [task for task in answer if not task.startswith("waits:")]
        return {task for task, how in answer.items() if how == "I"}

    wait_until(lambda: found() == {f"waits:{n}" for n in range(len(WAITS))}, "all are found")


def test_a_task_that_waits_for_input_is_named(tmp_path: Path) -> None:
    """A task's record says that it waits for input, and since when; a note, that no key sends any
    and what to write."""
    text = one_task("input('Overwrite? [y/N] ')", settings="pty = true")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        found = up.wait_for(lambda one: one.get("halted") == "waits for input", "it is found")
        assert found["task"] == "worker:0" and found["halted_since"] is not None
        up.wait_for(lambda one: "--yes" in one.get("note", ""), "the note")
        assert any("waits for input from its terminal" in note for note in notes(up))
        up.press_ctrl_c()
        assert up.wait() == 130
