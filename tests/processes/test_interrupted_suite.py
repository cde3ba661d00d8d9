"""A run of the tests that is interrupted leaves nothing behind: no launcher, task, host, pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.testbed import proc, sweeper
from tests.testbed.proc import Process

pytestmark = pytest.mark.prove


_RUNS = '''
import os, signal, subprocess, sys
from pathlib import Path

from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.scenario import ready

TRAINS = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('trains', flush=True)
time.sleep(1000)
"""

def test_waits(tmp_path):
    text = one_task(TRAINS, ready={"log": "trains"})
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        ready(up, "worker:0")
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        Path(os.environ["SAID"]).write_text(os.environ["TFMUX_TEST_SUITE"] + " ")
        up.wait()
'''

_HOSTS = """
import os, time
from pathlib import Path

def test_waits(testbed):
    told = f"{os.environ['TFMUX_TEST_SUITE']} {testbed.directory}"
    Path(os.environ["SAID"]).write_text(told)
    time.sleep(1000)
"""


@contextmanager
def suite(folder: Path, text: str, *options: str) -> Iterator[tuple[Process, str, str]]:
    """The process of a run of one test, its mark, and what the test has said besides.

    The run is a child of this process only in name: it has a session of its own.
    """
    (folder / "test_inner.py").write_text(text)
    said = folder / "said"
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-q", *options]
    argv += ["-c", str(REPOSITORY / "pyproject.toml"), f"--rootdir={folder}"]
    argv += [f"--confcutdir={folder}", str(folder / "test_inner.py")]
    with subprocess.Popen(
        argv,
        cwd=REPOSITORY,
        env={**os.environ, "SAID": str(said)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            wait_until(lambda: said.exists() and b" " in said.read_bytes(), "the test has begun")
            found = proc.read(process.pid)
            assert found is not None
            mark, _, told = said.read_text().partition(" ")
            yield found, mark, told
        finally:
            process.kill()


def marked(mark: str) -> list[str]:
    """Living processes of a run of the tests, as a person would describe them."""
    found = proc.scan(having=f"{sweeper.MARK}={mark}")
    return [f"{each.pid} {each.argv}" for each in found if each.alive]


def interrupt(process: Process, number: signal.Signals) -> None:
    """Send the signal as a terminal does, to the group, or as another program, to one process."""
    if number is signal.SIGINT:
        os.killpg(process.group, number)
    else:
        proc.signal_process(process, number)


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGINT, ("-n", "2")),
        (signal.SIGTERM, ("-n", "2")),
        (signal.SIGKILL, ()),
    ],
    ids=["Ctrl-C", "TERM", "KILL"],
)
def test_processes_go_with_the_run(
    tmp_path: Path, number: signal.Signals, options: tuple[str, ...]
) -> None:
    """Given a test in the middle of a run whose task is deaf to TERM, and that has a daemon, when
    pytest is interrupted, then all processes end."""
    with suite(tmp_path, _RUNS, *options) as (process, mark, _):
        assert any("launcher.session.process" in each for each in marked(mark))
        assert any("sleep" in each for each in marked(mark))
        interrupt(process, number)
        wait_until(lambda: not marked(mark), "nothing of the run is left")


def test_hosts_go_with_the_run(tmp_path: Path, testbed_possible: None) -> None:
    """Given a test that has booted four hosts, when pytest is killed, then the hosts end and their
    disks are gone."""
    with suite(tmp_path, _HOSTS) as (process, _, disks):
        assert Path(disks).is_dir() and proc.scan(saying=disks)
        interrupt(process, signal.SIGKILL)
        wait_until(lambda: not Path(disks).exists(), "the disks are gone")
        assert not [each for each in proc.scan(saying=disks) if each.alive]


def test_a_run_that_ends_by_itself_is_not_waited_for(tmp_path: Path) -> None:
    """The process that watches ends with the run, and holds none of its output."""
    (tmp_path / "test_inner.py").write_text(
        f"import os\ndef test_says(): print('MARK', os.environ['{sweeper.MARK}'])\n"
    )
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-q", "-s"]
    argv += ["-c", str(REPOSITORY / "pyproject.toml"), f"--rootdir={tmp_path}"]
    argv += [f"--confcutdir={tmp_path}", str(tmp_path / "test_inner.py")]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout
    mark = done.stdout.partition("MARK ")[2].split()[0]
    wait_until(lambda: not proc.scan(saying=mark), "the process that watches has ended")
