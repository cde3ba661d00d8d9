"""The short program on a host: connections, listeners, interpreters, log directories, leftovers."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from launcher.cluster.choices import Shell
from launcher.errors import AgentError
from launcher.hosts.frames import GpusAnswer, PortsAnswer
from launcher.hosts.programs import HostProgram
from launcher.plan.shell import shell_prefix
from launcher.preflight.probes import (
    ConnectAnswer,
    LeftoversAnswer,
    ListenAnswer,
    LogdirAnswer,
    PathAnswer,
    PythonAnswer,
)
from tests.support.host_program import RUN, a_program, ask
from tests.support.nvidia_smi import FakeNvidiaSmi, gpu
from tests.support.patience import PATIENCE, wait_until
from tests.support.ports import free_ports
from tests.testbed import proc

SECONDS = 6.0


@pytest.fixture
async def program(tfmux_home: Path) -> AsyncIterator[HostProgram]:
    """One program for a test."""
    async with a_program() as started:
        yield started


async def connect(
    program: HostProgram, name: str, port: int, token: str = "token"
) -> ConnectAnswer:
    """The outcome of one connection."""
    asked = {"host": name, "port": port, "token": token, "seconds": SECONDS}
    return await ask(program, ConnectAnswer, **asked)


async def listen(program: HostProgram, *ports: int, pick: int = 0) -> ListenAnswer:
    """Listens on ports."""
    return await ask(program, ListenAnswer, ports=ports, pick=pick, token="token")


async def python(program: HostProgram, name: str, shell: tuple[str, ...] = ()) -> PythonAnswer:
    """What there is of an interpreter."""
    return await ask(program, PythonAnswer, python=name, env={}, shell=shell, cwd="/")


async def logdir(program: HostProgram, path: Path | str, *, keep: bool = False) -> LogdirAnswer:
    """What there is of a log directory."""
    return await ask(program, LogdirAnswer, path=str(path), mark=".mark", keep=keep)


@contextmanager
def process(env: dict[str, str]) -> Iterator[proc.Process]:
    """A process with these variables."""
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, **env})
    try:
        # Only some time after the exec does it show its own arguments.
        while (found := proc.read(child.pid)) is None or found.argv != ("sleep", "1000"):
            pass
        yield found
    finally:
        child.kill()
        child.wait(PATIENCE)


# --- the program ------------------------------------------------------------------------------


async def test_a_question_that_hangs_holds_nothing_up(program: HostProgram, tmp_path: Path) -> None:
    """`setup` that never ends: others are answered meanwhile, and nothing of it stays."""
    pid_file, mark = tmp_path / "pid", f"98761.{os.getpid()}"
    shell = ("/bin/sh", "-c", f"echo $$ >{pid_file}; sleep {mark} & wait", "sh")
    program.send({"what": "python", "id": 7, "python": "x", "env": {}, "shell": shell, "cwd": "/"})
    await asyncio.to_thread(
        wait_until, lambda: pid_file.exists() and pid_file.read_text(), "it began"
    )
    assert (await ask(program, PathAnswer, path="/")).exists

    def sleeps() -> set[int]:
        return {each.pid for each in proc.scan(saying=mark) if each.argv[:2] == ("sleep", mark)}

    await asyncio.to_thread(wait_until, sleeps, "it sleeps")
    gone = {int(pid_file.read_text()), *sleeps()}
    await program.end()

    def ended() -> bool:
        return not gone & {each.pid for each in proc.scan()}

    await asyncio.to_thread(wait_until, ended, "nothing of it is left")


async def test_a_launcher_that_is_cut_off_leaves_no_listener(tfmux_home: Path) -> None:
    """The cable is pulled, and no end of the stream comes: without beats the program ends."""
    async with a_program(lease=3.0) as cut:
        [port] = free_ports(1)
        await listen(cut, port)
        await asyncio.to_thread(wait_until, lambda: not _is_taken(port), "the port is free")


def _is_taken(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


async def test_beats_keep_the_program(tfmux_home: Path) -> None:
    """A person may take long to answer a question of another host."""
    async with a_program(lease=4.0) as kept:
        for _ in range(12):
            kept.send({"what": "beat"})
            await asyncio.sleep(0.5)
        assert (await ask(kept, PathAnswer, path="/")).exists


async def test_a_question_that_cannot_be_answered_is_said_why(program: HostProgram) -> None:
    """The question costs the others nothing."""
    with pytest.raises(AgentError, match="mark"):
        await ask(program, LogdirAnswer, path="/")
    assert (await ask(program, PathAnswer, path="/")).exists


async def test_a_folder_that_cannot_be_made_is_told_at_once(
    tfmux_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Somebody else's file stands where the runs' folders go."""
    blocked = tmp_path / "blocked"
    (blocked / "tfmux").mkdir(parents=True)
    (blocked / "tfmux" / f"{RUN}.here").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    with pytest.raises(AgentError, match="is not a directory"):
        async with a_program():
            pass


# --- connections ------------------------------------------------------------------------------


async def test_a_listener_is_reached_and_knows_itself(program: HostProgram) -> None:
    """The connector reads the token: it has reached this host's probe and nothing else."""
    [port] = free_ports(1)
    assert not (await listen(program, port)).failed
    for name in ("localhost", "127.0.0.1", "::1"):
        answer = await connect(program, name, port)
        assert answer.outcome == "ok", (name, answer)
    assert (await connect(program, "127.0.0.1", port, "another")).outcome == "stranger"


async def test_a_program_that_has_ended_leaves_its_ports_free_at_once(program: HostProgram) -> None:
    """A task must be able to take the port right after the preflight."""
    answer = await listen(program, pick=2)
    assert len(set(answer.picked)) == 2
    port = answer.picked[0]
    assert (await connect(program, "127.0.0.1", port)).outcome == "ok"
    await program.end()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("0.0.0.0", port))
        server.listen()
    async with a_program() as other:
        assert (await connect(other, "127.0.0.1", port)).outcome == "refused"


async def test_a_port_that_is_taken_is_said_why(program: HostProgram) -> None:
    """The other ports are opened all the same, and who has it is known."""
    [port] = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = int(other.getsockname()[1])
        failed = await listen(program, taken, port)
        [owner] = (await ask(program, PortsAnswer, check=[taken])).owners
    assert failed.failed == {str(taken): "Address already in use"} and not failed.forbidden
    assert (owner.port, owner.pid) == (taken, os.getpid())
    assert (await connect(program, "127.0.0.1", port)).outcome == "ok"


async def test_a_name_that_nobody_knows_is_unresolved(program: HostProgram) -> None:
    """The resolver's words go with it."""
    answer = await connect(program, "no-such-host.invalid", 2222, "")
    assert answer.outcome == "unresolved" and answer.text and not answer.address


async def test_a_server_that_takes_nobody_is_filtered_until_it_does(program: HostProgram) -> None:
    """Packets that are dropped are no refusal; one that is taken when repeated is fine."""
    asked = {"host": "127.0.0.1", "token": "", "seconds": 0.3}
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        asked["port"] = server.getsockname()[1]
        guests = [socket.socket() for _ in range(3)]
        for guest in guests:
            guest.setblocking(False)
            guest.connect_ex(("127.0.0.1", asked["port"]))
        assert (await ask(program, ConnectAnswer, **asked)).outcome == "filtered"
        done = threading.Event()

        def accept() -> None:
            server.settimeout(0.2)
            while not done.is_set():
                try:
                    guests.append(server.accept()[0])
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        answer = await ask(program, ConnectAnswer, **{**asked, "seconds": 30.0})
        done.set()
        await asyncio.to_thread(thread.join)
        for guest in guests:
            guest.close()
    assert answer.outcome == "ok"


# --- programs ---------------------------------------------------------------------------------


async def test_tensorflow_is_found_without_an_import(program: HostProgram, tmp_path: Path) -> None:
    """Its version comes from the package's metadata, by the interpreter of the tasks."""
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('imported')\n")
    env = {"PYTHONPATH": str(tmp_path)}
    asked = {"python": sys.executable, "env": env, "shell": (), "cwd": "/"}
    answer = await ask(program, PythonAnswer, **asked)
    assert not answer.failed
    assert answer.version == sys.version.split()[0]
    assert answer.tensorflow.startswith("2.") and answer.there


async def test_setup_decides_which_python_runs(program: HostProgram, tmp_path: Path) -> None:
    """A `setup` that changes PATH (conda, modules) is followed, whatever it prints."""
    (tmp_path / "python").symlink_to(sys.executable)
    setup = f"echo activated; PATH={tmp_path}:$PATH"
    answer = await python(program, "python", shell_prefix(setup, Shell.NONE))
    assert answer.executable == str(tmp_path / "python")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("/nowhere/python", "No such file"), ("/bin/false", "nothing"), ("/bin/ls", "-c")],
)
async def test_an_interpreter_that_is_none_says_why(
    program: HostProgram, name: str, reason: str
) -> None:
    """A wrong path, a program that fails, another program."""
    assert reason in (await python(program, name)).failed


ROWS = [gpu(index) for index in range(2)]
LOST = "Unable to determine the device handle for GPU 0000:B3:00.0: Unknown Error"


@pytest.mark.parametrize(
    ("printed", "status", "gpus", "why"),
    [
        (ROWS, 0, 2, ""),
        (["No devices were found"], 0, 0, ""),
        (["Failed to initialize NVML: mismatch"], 18, 0, "Failed to initialize NVML: mismatch"),
        ([*ROWS, LOST], 14, 2, LOST),
        ([LOST, *ROWS], 14, 2, LOST),
    ],
)
async def test_gpus_are_what_nvidia_smi_lists(
    tfmux_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    printed: list[dict[str, str] | str],
    status: int,
    gpus: int,
    why: str,
) -> None:
    """A row each; a driver that fails is quoted, and so is a sentence about a lost GPU, which hides
    no other."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    FakeNvidiaSmi(tmp_path).say(gpu=printed, status=status)
    async with a_program() as program:
        answer = await ask(program, GpusAnswer)
    assert [each.index for each in answer.gpus] == list(range(gpus))
    assert answer.why == why
    assert (answer.driver, answer.cuda) == (("580.159.04", "13.0") if gpus else ("", ""))


# --- folders ----------------------------------------------------------------------------------


async def test_a_log_directory_is_written_to_and_left_as_it_was(
    program: HostProgram, tmp_path: Path
) -> None:
    """A file is made in the nearest folder that is there, and taken away."""
    logs = tmp_path / "logs"
    logs.mkdir()
    path = f"{logs}/a/b"
    answer = await logdir(program, path)
    assert answer == LogdirAnswer(path=path, base=str(logs), above=2)
    assert list(logs.iterdir()) == []
    await logdir(program, path, keep=True)
    assert (await ask(program, PathAnswer, path=f"{logs}/.mark")).exists
    await program.end()
    assert list(logs.iterdir()) == []


async def test_a_file_in_the_way_of_a_log_directory_is_told(
    program: HostProgram, tmp_path: Path
) -> None:
    """Nothing can be made below a file."""
    (tmp_path / "file").touch()
    assert (await logdir(program, f"{tmp_path}/file/logs")).why == "Not a directory"


@pytest.mark.parametrize("name", ["checkpoint", "model.ckpt-100.index", "train/ckpt-7.index"])
async def test_an_old_checkpoint_is_found(program: HostProgram, tmp_path: Path, name: str) -> None:
    """TensorFlow's own names, in the directory or one below; its age is told."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    answer = await logdir(program, tmp_path)
    assert answer.old is not None
    path, age = answer.old
    assert path == str(tmp_path / name) and -1 < age < 60


# --- leftovers --------------------------------------------------------------------------------


async def has(program: HostProgram, row: tuple[str, str, int, str], *, be: bool = True) -> None:
    """Waits until a process is left over, or is not. Between the success of `exec` and its end a
    process has no environment yet, and on a busy machine one may not be readable at once."""
    async with asyncio.timeout(PATIENCE):
        while (row in (await ask(program, LeftoversAnswer)).found) is not be:
            continue


async def test_a_tagged_process_without_an_agent_is_left_over(program: HostProgram) -> None:
    """The process is named by run, task and pid; while an agent of its run lives it is not left
    over."""
    run = "old-20261120-183002-1234"
    with process({"TFMUX_TASK": f"{run}/worker:1/2;"}) as left:
        row = (run, "worker:1", left.pid, "sleep 1000")
        await has(program, row)
        with process({"TFMUX_AGENT": f"{run};"}):
            await has(program, row, be=False)
        await has(program, row)
    await has(program, row, be=False)
