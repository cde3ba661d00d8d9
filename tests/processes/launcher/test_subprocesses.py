"""Programs that the launcher starts and asks, what they inherit, and the signals that they get."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from launcher.agent import asked, processes, wire
from launcher.agent.asked import AskedProgram
from launcher.errors import AgentError
from launcher.hosts.frames import GpusAnswer
from launcher.hosts.ways import LocalTransport
from launcher.preflight.probes import PythonAnswer
from launcher.store.disk import MOST_OPEN, Files
from launcher.store.launcher_socket import ControlConnection
from launcher.subprocesses import start_session
from tests.support.agent_client import Client
from tests.support.host_program import a_program, ask
from tests.support.nvidia_smi import gpu
from tests.support.patience import PATIENCE, wait_until
from tests.testbed import proc

ROW = ", ".join([*(text for name, text in gpu(0).items() if name != "name"), gpu(0)["name"]])
SLEEP = "import time; time.sleep(4000)"
WAYS = {
    "a child holds the output": "start(); say(); sys.exit(0)",
    "a child holds the output, and it never ends": "start(); say(); time.sleep(4000)",
    "deaf": "deaf(); start(); say(); sys.exit(0)",
    "deaf and endless": "deaf(); start(); say(); time.sleep(4000)",
    "a flood": "start()\nwhile True: os.write(1, b'x' * 65536)",
    "a flood of errors": "start()\nwhile True: os.write(2, b'x' * 65536)",
    "a daemon": "daemon(); say(); sys.exit(0)",
    "a daemon that holds the output": "daemon(close=False); say(); sys.exit(0)",
    "children of children": "start(4); say(); sys.exit(0)",
    "it closes its output": "start(); say(); os.close(1); os.close(2); time.sleep(4000)",
}
"""What an asked program does. `say` prints the answer."""
ENDLESS = {name for name, does in WAYS.items() if "while" in does or "4000" in does}
PROGRAM = """\
import os, signal, sys, time
FOLDER = {folder!r}
def note():
    open(os.path.join(FOLDER, str(os.getpid())), "w").close()
def start(depth=1):
    if os.fork() == 0:
        note()
        if depth > 1:
            start(depth - 1)
        time.sleep(4000)
    while len(os.listdir(FOLDER)) < depth:
        time.sleep(0.005)
def daemon(close=True):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if close:
                for fd in (1, 2):
                    os.close(fd)
            note()
            time.sleep(4000)
        os._exit(0)
    os.wait()
    while not os.listdir(FOLDER):
        time.sleep(0.005)
def deaf():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
def say():
    print({said!r}, flush=True)
{does}
"""


def program(path: Path, folder: Path, does: str, said: str) -> str:
    """A program that notes the pids of what it starts in a folder."""
    folder.mkdir(exist_ok=True)
    path.parent.mkdir(exist_ok=True)
    text = PROGRAM.format(folder=str(folder), does=does, said=said)
    path.write_text(f"#!{sys.executable} -IS\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def left(folder: Path) -> list[int]:
    """The noted processes that live."""
    found = []
    for name in os.listdir(folder):
        try:
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(int(name))
    return found


@pytest.fixture
def noted(tmp_path: Path) -> Callable[[], list[int]]:
    return lambda: left(tmp_path / "noted")


@pytest.mark.parametrize("way", [way for way in WAYS if "daemon" not in way])
def test_nothing_of_a_programs_group_is_left(
    tmp_path: Path, way: str, noted: Callable[[], list[int]]
) -> None:
    """Given programs that end, or never do, then what they have started is gone with the answer,
    which is there where they have ended."""
    argv = [program(tmp_path / "p", tmp_path / "noted", WAYS[way], "said")]
    running = AskedProgram(argv)
    answer = running.answer(time.monotonic() + (2.0 if way in ENDLESS else PATIENCE))
    assert os.listdir(tmp_path / "noted"), "it has started nothing"
    wait_until(lambda: not noted(), "nothing is left")
    if way not in ENDLESS:
        assert answer is not None and (answer.status, answer.out) == (0, b"said\n")
    elif "flood" in way:
        assert answer is not None and len(answer.out + answer.errors) < 2 * asked.MOST_BYTES
    else:
        assert answer is None
    with pytest.raises(ChildProcessError):
        os.waitpid(running._process.pid, os.WNOHANG)


def test_an_agent_leaves_nothing_of_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: Callable[[], list[int]]
) -> None:
    """Given an nvidia-smi of each kind, when the agent has answered, then nothing of its group is
    left, and of daemons nothing when the agent has ended."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for number, (way, does) in enumerate(WAYS.items()):
        folder = tmp_path / "noted" / str(number)
        folder.parent.mkdir(exist_ok=True)
        program(tmp_path / "bin" / "nvidia-smi", folder, does, ROW)
        with Client() as client:
            client.hello()
            while not os.listdir(folder):  # it asks when it has been asked
                client.ask(wire.STATS, {})
                time.sleep(0.05)
            if way not in ENDLESS and "daemon" not in way:
                wait_until(lambda at=folder: not left(at), f"{way}: its group")  # type: ignore[misc]
            client.kill()
            client.leave()
        wait_until(lambda at=folder: not left(at), f"{way}: all of it")  # type: ignore[misc]


async def test_a_question_leaves_nothing_of_what_it_asks(
    tfmux_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an interpreter of each kind, when it has been asked, or the launcher asks no more, then
    nothing is left, daemons included."""
    said = '{"version": "3.9.1", "executable": "/p", "tensorflow": "", "there": false}'
    for number, (way, does) in enumerate(WAYS.items()):
        folder = tmp_path / str(number)
        path = program(tmp_path / "p", folder, does, said)
        asking = {"python": path, "env": {}, "shell": (), "cwd": "/"}
        async with a_program() as one:
            if way in ENDLESS and "flood" not in way:
                with pytest.raises(AgentError):
                    await one.ask(PythonAnswer, 1.0, [asking])
            else:
                answer = await ask(one, PythonAnswer, **asking)
                assert "flood" in way or answer.version == "3.9.1", (way, answer)
                wait_until(lambda at=folder: not left(at), f"{way}: it")  # type: ignore[misc]
        wait_until(lambda at=folder: not left(at), f"{way}: all of it")  # type: ignore[misc]


async def test_a_check_leaves_nothing_of_nvidia_smi(
    tfmux_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an nvidia-smi that has a child hold its output, and a daemon, then a check has its
    answer at once, and neither is left."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    folder = tmp_path / "noted"
    program(tmp_path / "bin" / "nvidia-smi", folder, "start(); daemon(); say(); sys.exit(0)", ROW)
    async with a_program() as one:
        answer = await ask(one, GpusAnswer)
        assert [each.name for each in answer.gpus] == ["NVIDIA H200"]
        wait_until(lambda: not left(folder), "nothing is left")


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    """The program has started another one, which holds its pipes, before asyncio knows of it."""
    mark = f"7{os.getpid()}"
    start = start_session("sh", "-c", f"sleep {mark}; true", stdout=subprocess.PIPE)
    starting = asyncio.create_task(start)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    wait_until(lambda: sleeping(mark), "it runs")  # which holds up asyncio
    assert not starting.done()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(starting, PATIENCE)
    wait_until(lambda: not sleeping(mark), "it has been killed")  # both at once: it may end last


def test_a_way_whose_closing_is_cancelled_leaves_nothing() -> None:
    """A launcher that ends while it closes a link: neither the program nor its pipes stay, of
    which the interpreter would complain later."""
    mark = f"8{os.getpid()}"

    async def close() -> None:
        way = await LocalTransport.open(["sleep", mark])
        wait_until(lambda: sleeping(mark), "it runs")
        closing = asyncio.create_task(way.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])

    gc.collect()  # what others have left
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        asyncio.run(close())
        gc.collect()
    assert not [str(each.message) for each in complaints if "ransport" in str(each.message)]
    wait_until(lambda: not sleeping(mark), "it has been killed")


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        await start_session("/nowhere")


def sleeping(mark: str) -> list[proc.Process]:
    """The program that the first one has started."""
    return [p for p in proc.scan(saying=mark) if p.alive and p.argv == ("sleep", mark)]


LAUNCHER = """
import json, resource, sys
from pathlib import Path
from launcher.cluster.read import loads
from launcher.run import events as ev
from launcher.run.machine import RunStateMachine
from launcher.process.entry import crash
from launcher.process.run_shell import Beginning, RunShell
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

DESCRIPTORS_PROGRAM = """
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
@pytest.mark.skipif(sys.platform != "linux", reason="a limit of another process is set by prlimit")
def test_programs_have_the_logins_limit() -> None:
    """The agent of this machine, and so its tasks, do not inherit what the launcher raised."""
    done = subprocess.run(
        [sys.executable, "-c", DESCRIPTORS_PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["100", "3000", "(500,", "3000)"]


ENDS = """\
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [15])
memory = b"x" * (256 << 20)
print("up", flush=True)
input()
signal.pthread_sigmask(signal.SIG_UNBLOCK, [15])
"""
LIVES = """\
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [15])
print("up", flush=True)
signal.sigwait([15])
input()
"""


@contextmanager
def python(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has said that it is up, and goes on when it gets a line."""
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def test_a_process_that_the_signal_ends_never_seems_to_live_on() -> None:
    """Given a process with much memory that takes a signal which was pending, when that ends it,
    then no look while its memory is freed takes it for one that lives on."""
    with python(ENDS) as process:
        process.send_signal(signal.SIGTERM)
        assert not processes.took(process.pid, signal.SIGTERM)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        seen = []
        while (found := processes.read_process(process.pid)) is not None and not found.dead:
            seen.append(processes.took(process.pid, signal.SIGTERM))
        assert seen and not any(seen)
        assert process.wait() == -signal.SIGTERM


def test_a_process_that_waits_for_its_signal_lives_on() -> None:
    """Given a process without a handler that waits for the signal, when it has it, then it is seen
    to live on."""
    with python(LIVES) as process:
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: processes.took(process.pid, signal.SIGTERM), "it has taken its signal")
