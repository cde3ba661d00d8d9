"""Forked processes are as those that an interpreter of their own runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.forked import ForkServer, Process
from tests.support.patience import PATIENCE

SHOWS = """\
import atexit, json, os, signal, sys, threading

read = lambda name: open(f"/proc/self/{name}", "rb").read().decode().rstrip(chr(0)).split(chr(0))
atexit.register(print, "at exit")
print(json.dumps({
    "argv": read("cmdline"), "environ": sorted(read("environ")), "variables": sorted(os.environ),
    "words": sys.argv[1:], "name": __name__, "folder": os.getcwd(), "path": sys.path,
    "session": os.getsid(0) == os.getpid(), "main": sys.modules["__main__"].__name__,
    "open": sorted(int(n) for n in os.listdir("/proc/self/fd")), "nice": os.nice(0),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    "threads": threading.active_count(),
}), flush=True)
print("an error", file=sys.stderr)
if "wait" in sys.argv:
    sys.stdout.flush()
    signal.pause()
sys.exit(7)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """A server with a module that the processes do not import."""
    server = ForkServer("argparse")
    yield server
    server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module that prints what it is run with."""
    (tmp_path / "shows.py").write_text(SHOWS)
    return tmp_path


def started(
    server: ForkServer, folder: Path, *words: str, new: bool = False
) -> Process | subprocess.Popen[bytes]:
    """Starts the module; its output goes to a file `out`."""
    argv = [sys.executable, "-m", "shows", *words]
    with (folder / "out").open("wb") as out:
        number = out.fileno()
        return server.start(
            argv,
            env={**os.environ, "COLOUR": "grün", "HOME": "/nowhere"},
            cwd=folder,
            stdout=number,
            stderr=number,
            start_new_session=new,
            niceness=3 if new else 0,
        )


def shown(folder: Path) -> dict[str, Any]:
    """What the module has printed."""
    line = next(line for line in (folder / "out").read_text().splitlines() if line[0] == "{")
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_it_is_as_one_that_was_started(server: ForkServer, folder: Path) -> None:
    """Arguments, environment, folder, import path, signals, output, exit handlers and status."""
    process = started(server, folder, "a b", "ü")
    assert isinstance(process, Process)
    assert process.wait(PATIENCE) == 7 == process.poll()
    forked, text = shown(folder), (folder / "out").read_text()
    env = {**os.environ, "COLOUR": "grün", "HOME": "/nowhere"}
    argv = [sys.executable, "-m", "shows", "a b", "ü"]
    done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True)
    (folder / "out").write_text(done.stdout)
    real = shown(folder)
    assert done.returncode == 7 and text.count("an error") == text.count("at exit") == 1
    assert len(forked.pop("open")) <= len(real.pop("open")) + 1  # the connection to the server
    assert forked == real


def test_its_session_and_niceness_are_what_was_asked_for(server: ForkServer, folder: Path) -> None:
    """A launcher process has a session of its own, a training a lower priority."""
    assert started(server, folder, new=True).wait(PATIENCE) == 7
    assert shown(folder)["session"] is True and shown(folder)["nice"] == os.nice(0) + 3


def test_its_end_is_seen(server: ForkServer, folder: Path) -> None:
    """One that waits is running; a signal ends it, and a second one is no error."""
    process = started(server, folder, "wait")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    process.terminate()


def test_other_variables_of_an_interpreter_are_not_served(server: ForkServer, folder: Path) -> None:
    """Who has them starts an interpreter, and so does who has too much of them."""
    argv = [sys.executable, "-m", "shows"]
    assert server.serves(argv, {**os.environ, "HOME": "/nowhere"})
    for name in ("PYTHONPATH", "LC_ALL", "TZ", "LD_PRELOAD"):
        assert not server.serves(argv, {**os.environ, name: "another"})
    assert not server.serves(argv, {**os.environ, "LONG": "x" * 20_000})
    assert not server.serves([*argv, "x" * 20_000], os.environ)
    process = started(server, folder, "x" * 20_000, new=True)
    assert isinstance(process, subprocess.Popen) and process.wait(PATIENCE) == 7
    assert shown(folder)["words"] == ["x" * 20_000]
    assert shown(folder)["session"] is True and shown(folder)["nice"] == os.nice(0) + 3


def test_several_threads_wait_for_one(server: ForkServer, folder: Path) -> None:
    """Each gets the status, which comes once."""
    process = started(server, folder, "wait")
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(process.wait, *limit) for limit in [(), (PATIENCE,)] * 4]
        process.kill()
        assert [each.result() for each in found] == [-signal.SIGKILL] * 8


def test_each_launch_is_counted_with_its_test(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the server, and an interpreter that it cannot be."""
    file = folder / "launches"
    monkeypatch.setattr(forked, "counter", os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    server = ForkServer("argparse")
    for words in ("short", "x" * 20_000):
        assert started(server, folder, words).wait(PATIENCE) == 7
    server.close()
    os.close(forked.counter)
    name = "tests/processes/test_forked.py::test_each_launch_is_counted_with_its_test"
    assert file.read_text() == f"shows\t{name}\n" * 2
