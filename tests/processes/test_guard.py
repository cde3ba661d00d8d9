"""The watch for left-over processes: it must bite, and only its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.testbed import guard, proc
from tests.testbed.proc import Process

pytestmark = pytest.mark.prove


_LEAKY = """
import subprocess

from tests.testbed import guard

guard.SETTLE = 1.0

def test_leaky():
    child = subprocess.Popen(
        ["sleep", "1000"], env={**__import__("os").environ, "TFMUX_TASK": "r/worker:0/1;"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,  # whoever reads this session's output sees its end
        stderr=subprocess.DEVNULL,
    )
    print("LEAK", child.pid, flush=True)
"""


@pytest.fixture
def bystander() -> Iterator[Process]:
    """A tagged process of somebody else's run: without this session's mark."""
    environ = {name: value for name, value in os.environ.items() if name != guard.MARK}
    with subprocess.Popen(["sleep", "1000"], env={**environ, "TFMUX_TASK": "s/ps:0/1;"}) as child:
        # Only after the exec does it show its own environment.
        while (found := proc.read(child.pid)) is None or found.argv != ("sleep", "1000"):
            pass
        yield found
        child.kill()


def test_leak_fails_the_test_and_is_killed(tmp_path: Path, bystander: Process) -> None:
    """A test that leaves a tagged process fails by name; a foreign run is not touched."""
    (tmp_path / "test_leaky.py").write_text(_LEAKY)
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-s", "-q"]
    argv += [
        "-c",
        str(REPOSITORY / "pyproject.toml"),
        f"--rootdir={tmp_path}",
        f"--confcutdir={tmp_path}",
    ]
    done = subprocess.run(
        [*argv, str(tmp_path / "test_leaky.py")], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "left processes behind" in done.stdout
    assert "r/worker:0/1;" in done.stdout
    pid = int(done.stdout.split("LEAK ")[1].split()[0])
    found = proc.read(pid)
    assert found is None or proc.wait_gone(found)  # a busy machine takes a moment to end it
    spared = proc.read(bystander.pid)
    assert spared == bystander and spared is not None and spared.alive


@pytest.mark.soak
def test_what_was_there_before_and_what_ends_by_itself_is_no_leak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes of an earlier moment are passed over, and those that end in time."""
    environ = {**os.environ, "TFMUX_AGENT": "r"}
    with subprocess.Popen(["sleep", "1000"], env=environ) as child:
        while not any(process.pid == child.pid for process in guard.tagged_here()):
            pass
        began = proc.next_tick()
        with subprocess.Popen(["sleep", "0.5"], env=environ):
            assert guard.leaks(guard.tagged_here, began) == []
        assert child.poll() is None
        monkeypatch.setattr(guard, "SETTLE", 1.0)
        (leak,) = [each for each in guard.leaks(guard.tagged_here) if each.pid == child.pid]
        assert leak.tag == "r"
        assert child.wait() == -signal.SIGKILL
