"""Open files of a launcher: a login may have 1,024 at a time, a run thousands of tasks."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from launcher.store.disk import MOST_OPEN, Files
from launcher.store.launcher_socket import ControlConnection
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.prove


LAUNCHER = """
import json, resource, sys
from pathlib import Path
from launcher.cluster.read import loads
from launcher.run import events as ev
from launcher.run.machine import RunStateMachine
from launcher.session.process import crash
from launcher.session.run_shell import Beginning, RunShell
from launcher.store.runs import RunFolder
for count in map(int, sys.argv[1:]):
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))
    hosts = "".join(f'[hosts.h{n}]\\nssh = "h{n}"\\n' for n in range(count))
    places = json.dumps([f"h{n}:2222" for n in range(count)])
    jobs = f"[jobs.worker]\\ntasks = {places}\\n[run]\\ncommand = ['x']\\nworkdir = ''\\n"
    text = f'name = "many"\\n{hosts}{jobs}'
    spec = loads(text, "many.toml", Path.cwd())
    folder = RunFolder.create(f"many-20261120-183002-{count:04}", text, spec)
    machine = RunStateMachine(spec, folder.run_id, 1.0)
    RunShell(folder, machine, Beginning(ev.Begin(1.0)), crash)
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""
PREFLIGHT = """
import asyncio, json, resource, sys
from pathlib import Path
from launcher.cluster.read import loads
from launcher.preflight.preflight import preflight
for count in map(int, sys.argv[1:]):
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))
    hosts = "".join(f'[hosts.h{n}]\\nssh = "127.0.0.1:1"\\n' for n in range(count))
    jobs = "[jobs.worker]\\ntasks = ['h0:2222']\\n[run]\\ncommand = ['x']\\nworkdir = ''\\n"
    asyncio.run(preflight(loads(f'name = "many"\\n{hosts}{jobs}', "many.toml", Path.cwd())))
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""

PROGRAM = """
import asyncio, resource
from asyncio.subprocess import PIPE
from launcher.subprocesses import raise_limit, start_session
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))
raise_limit(500)
async def main():
    words = ("sh", "-c", "read line; ulimit -Sn; ulimit -Hn")
    process = await start_session(*words, stdin=PIPE, stdout=PIPE)
    said, _ = await process.communicate(b"go\\n")
    print(said.decode(), resource.getrlimit(resource.RLIMIT_NOFILE))
asyncio.run(main())
"""


def opened_below(folder: Path) -> int:
    """Descriptors of this process for files of a folder: what earlier tests have left may go."""
    paths = [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]
    return sum(path.startswith(f"{folder}/") for path in paths)


def test_files_that_were_written_long_ago_are_closed(tmp_path: Path) -> None:
    """Two thousand files by turns: each has its bytes, and a few hundred at most are open."""
    files = Files()
    for part in (b"one\n", b"two\n"):
        for number in range(1000):
            files.write(tmp_path / f"{number}.idx", part)
            files.write(tmp_path / f"{number}.log", part, 4 * (part == b"two\n"))
    assert 0 < opened_below(tmp_path) <= MOST_OPEN
    assert {path.read_bytes() for path in tmp_path.glob("*.*")} == {b"one\ntwo\n"}
    files.close()
    assert not opened_below(tmp_path)


@pytest.mark.parametrize("program", [LAUNCHER, PREFLIGHT])
def test_many_hosts_raise_the_limit_as_far_as_it_goes(program: str, tmp_path: Path) -> None:
    """The soft limit is raised to what the hosts need, and to the hard one at most."""
    done = subprocess.run(
        [sys.executable, "-c", program, "2", "500", "1000"],
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["608 3000", "2600 3000", "3000 3000"]


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """This process may open two thousand files, and has opened all below the 1,100th."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"needs 2,048 open files: the hard limit is {hard}")
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        with ExitStack() as stack:
            while stack.enter_context(open(os.devnull)).fileno() < 1100:
                pass
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_client_with_many_open_files_hears_its_launcher(many_descriptors: None) -> None:
    """`select` takes no descriptor above 1,023: the client hung up, which may end the run."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = ControlConnection(ours)
        assert ours.fileno() > 1023
        assert connection.receive(0.01) == []
        theirs.sendall(b'{"finished": true}\n')
        assert connection.receive(PATIENCE) == [{"finished": True}]
        theirs.close()
        assert connection.receive(PATIENCE) is None


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of another process is set by prlimit")
def test_programs_have_the_logins_limit() -> None:
    """The agent of this machine, and so its tasks, do not inherit what the launcher raised."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["100", "3000", "(500,", "3000)"]
