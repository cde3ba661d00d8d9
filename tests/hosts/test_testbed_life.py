"""Beginning and end of testbeds: side by side, after failures and kills, and where none can be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.support.requirements import require_testbed
from tests.testbed.frozen import FreezableDisk
from tests.testbed.namespaces import Testbed, clear_stale
from tests.testbed.traces import show, traces

pytestmark = pytest.mark.prove


_INNER = """
import time, pytest
from tests.testbed.traces import show

def test_inner(testbed):
    testbed["tf1"].run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
    print("TESTBED", *show(testbed), flush=True)
    END
"""


@contextmanager
def inner(tmp_path: Path, end: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run a test with a testbed of its own in another pytest, up to the line that shows it."""
    (tmp_path / "test_inner.py").write_text(_INNER.replace("END", end))
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-s", "-q"]
    argv += [
        "-c",
        str(REPOSITORY / "pyproject.toml"),
        f"--rootdir={tmp_path}",
        f"--confcutdir={tmp_path}",
    ]
    with subprocess.Popen(
        [*argv, str(tmp_path / "test_inner.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ) as child:
        assert child.stdout is not None
        output = []
        try:
            for line in child.stdout:
                output.append(line)
                if "TESTBED " in line:
                    break
            else:
                pytest.fail("".join(output))
            yield child, line[line.index("TESTBED ") :].split()[1:]
        finally:
            child.kill()


def rest(child: subprocess.Popen[str]) -> str:
    """Return what the inner pytest said after it had shown its testbed."""
    assert child.stdout is not None
    return child.stdout.read()


@pytest.mark.usefixtures("testbed_possible")
def test_nothing_is_left_after_a_failed_test(tmp_path: Path) -> None:
    """Given a test with a testbed and a process on its tf1, when the test fails, then no trace of
    the testbed is left."""
    with inner(tmp_path, "assert False") as (child, shown):
        assert child.wait(PATIENCE) == pytest.ExitCode.TESTS_FAILED, rest(child)
        assert traces(shown) == []


@pytest.mark.usefixtures("testbed_possible")
def test_nothing_is_left_after_an_interrupt(tmp_path: Path) -> None:
    """Given a test that sleeps with a testbed up, when Ctrl-C interrupts it, then no trace of the
    testbed is left."""
    with inner(tmp_path, "time.sleep(1000)") as (child, shown):
        assert len(traces(shown)) > 5
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) == pytest.ExitCode.INTERRUPTED, rest(child)
        assert traces(shown) == []


@pytest.mark.usefixtures("testbed_possible")
def test_testbed_of_a_killed_test_run_is_cleared_and_a_living_one_is_not(
    tmp_path: Path, testbed: Testbed
) -> None:
    """Given two testbeds in use, when stale testbeds are cleared, then both stay; when the test run
    of one has been killed, then the next clearing takes down that one alone."""
    with inner(tmp_path, "time.sleep(1000)") as (child, shown):
        clear_stale()
        assert child.poll() is None
        assert len(traces(shown)) > 5
        child.kill()
        child.wait(PATIENCE)
        clear_stale()
        assert traces(shown) == []
    assert all(host.reachable() for host in testbed)


@pytest.mark.usefixtures("testbed_possible")
def test_testbeds_stand_side_by_side() -> None:
    """Given two testbeds at once, then their hosts have different addresses and all answer, no host
    reaches those of the other testbed, and neither testbed leaves a trace."""
    with Testbed() as one, Testbed() as other:
        shown = [show(one), show(other)]
        assert {host.address for host in one}.isdisjoint(host.address for host in other)
        assert all(host.reachable() for host in [*one, *other])
        assert one["tf1"].banner(other["tf1"].address).returncode != 0
        assert all(len(traces(each)) > 5 for each in shown)
    assert [traces(each) for each in shown] == [[], []]


def test_missing_testbed_is_a_skip_here_and_a_failure_in_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a user who is not root, when a test requires the testbed, then it is skipped for that
    reason, and where CI is set it fails, since CI must not pass without a testbed."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs root"):
        require_testbed()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs root"):
        require_testbed()


def test_a_frozen_disk_holds_up_its_writers(tmp_path: Path, testbed_possible: None) -> None:
    """Given a file system that is frozen, when a thread writes a file on it, then the write hangs,
    and goes on once the file system is thawed."""
    with FreezableDisk(tmp_path / "image", tmp_path / "disk") as disk:
        written = threading.Event()

        def write() -> None:
            (disk.mountpoint / "file").write_text("text")
            written.set()

        disk.freeze()
        threading.Thread(target=write, daemon=True).start()
        assert not written.wait(0.5)
        disk.thaw()
        assert written.wait(PATIENCE)
