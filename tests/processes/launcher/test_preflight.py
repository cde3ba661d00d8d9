"""What is looked at before a launch: ports, directories, programs; and `tfmux check`."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncssh
import jsonschema
import pytest
from rich.console import Console

from launcher.agent import ports, wire
from launcher.cluster.choices import Shell
from launcher.errors import AgentError
from launcher.hosts.frames import GpusAnswer, GpusQuestion, Ports, PortsAnswer
from launcher.hosts.host_keys import accepted_keys
from launcher.hosts.programs import HostProgram
from launcher.ids import TaskId
from launcher.plan.shell import shell_prefix
from launcher.preflight import Reach, Reachability, Report, report_schema
from launcher.preflight.probes import (
    ConnectAnswer,
    LeftoversAnswer,
    ListenAnswer,
    LogdirAnswer,
    PathAnswer,
    PythonAnswer,
)
from launcher.process import preparation as module
from launcher.process.gpu_watch import GpuWatch
from launcher.run import events as ev
from tests.support.agent_client import Client
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.fake_core import FakeCore, fake_hosts
from tests.support.host_program import RUN, a_program, ask
from tests.support.nvidia_smi import FakeNvidiaSmi, gpu
from tests.support.patience import PATIENCE, wait_until
from tests.support.ports import free_ports
from tests.testbed import proc
from tests.testbed.inprocess import SshServer
from tui.commands.check import render

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


CLUSTER = cluster_text(
    {"worker": "far far"}, "ports", {"far": {"ssh": "10.0.0.1", "gpus": 0}}, workdir=""
)


class Here:
    """The link to a host that is this machine."""

    connected = True
    sessions = 1

    async def ask(self, question: Ports | GpusQuestion) -> PortsAnswer | GpusAnswer:
        """Answers as an agent does."""
        if isinstance(question, GpusQuestion):
            return GpusAnswer()
        said = ports.look(question.check, question.candidates)
        return PortsAnswer.read(json.dumps(said).encode())


async def checked(monkeypatch: pytest.MonkeyPatch, candidates: list[int]) -> ev.Event:
    """What a launch says of its hosts when there are just these ports to pick from."""
    monkeypatch.setattr(module, "shuffled_ports", lambda: candidates)
    welcome: Any = SimpleNamespace(home="/root", stage="/stage", environ={})
    link: Any = Here()
    core, hosts = FakeCore(CLUSTER, Path("/"), {"far": link}), fake_hosts()
    hosts.welcomes["far"] = welcome
    gpus = GpuWatch(core, lambda sample: None)
    await module.LaunchPreparation(core, hosts, gpus, None).check(ports=True)
    return core.fed[-1]


def owner_seen_by(uid: int, server: socket.socket) -> dict[str, Any]:
    """Who holds a server's port, as another account finds it out."""
    port = server.getsockname()[1]
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            server.close()
            os.setresuid(uid, uid, uid)
            os.write(sender, json.dumps(ports.owner(port)).encode())
        finally:
            os._exit(0)
    os.close(sender)
    with open(receiver) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    os.waitpid(child, 0)
    return found


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two accounts")
def test_a_port_of_another_account_names_it_and_nothing_else() -> None:
    """The kernel tells the account of a socket, and not the process to whom may not see it; whose
    socket it is does not depend on who has it open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = owner_seen_by(40_001, server)
        assert found == {"port": port, "pid": 0, "command": "", "account": "root", "own": False}
        os.fchown(server.fileno(), 40_001, -1)
        assert owner_seen_by(40_002, server)["account"] == "uid 40001"
        assert owner_seen_by(40_001, server)["own"] is True
        assert ports.owner(port)["pid"] == os.getpid()  # type: ignore[index]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_port_in_use_is_not_picked(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Whatever address somebody listens on, its task gets the next port that is free."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    few = free_ports(3)
    with socket.create_server((address, few[0]), family=family):
        said = await checked(monkeypatch, few)
    assert isinstance(said, ev.HostsChecked)
    assert list(said.facts["far"].ports.values()) == [few[2], few[1]]


async def test_where_no_port_is_left_the_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names it."""
    few = free_ports(2)
    with socket.create_server(("127.0.0.1", few[1])):
        said = await checked(monkeypatch, few)
    assert isinstance(said, ev.HostRefused) and said.reason == "no free port on this host"


def test_two_host_names_of_one_machine(ssh_server: SshServer, tmp_path: Path) -> None:
    """Every `auto` of a cluster whose two hosts are one machine is a port of its own, and each
    task can listen on its."""
    listener = (
        "import os, socket, sys, time\n"
        "s = socket.create_server(('127.0.0.1', int(sys.argv[1])), reuse_port=False)\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.02)"
    )
    hosts = ssh_server.host_toml("one", sys.executable) + ssh_server.host_toml(
        "two", sys.executable
    )
    tasks = json.dumps(["one:auto", "two:auto"] * 4)
    text = f"""
name = "ports"
{hosts}
[jobs.worker]
tasks = {tasks}
[run]
command = {json.dumps([*python_task(listener), "{port}", str(tmp_path / "end")])}
workdir = ""
success = "all"
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        for number in range(8):
            up.state(f"worker:{number}", "ready")
        (tmp_path / "end").touch()
        assert up.wait() == 0, up.transcript()
    ready = {e["task"]: e["address"] for e in up.of("task") if e["state"] == "ready"}
    assert len(ready) == len({address.rpartition(":")[2] for address in ready.values()}) == 8


def test_gpus_of_a_host_reach_its_tasks(ssh_server: SshServer, tmp_path: Path) -> None:
    """With gpus = 2 two workers see one GPU each, the ps none, and a job that asks for both
    gets both; a value of the file's own stands."""
    show = "import os; print('GPUS', os.environ['CUDA_VISIBLE_DEVICES'])"
    host = ssh_server.host_toml("far", sys.executable).replace(
        "[hosts.far]", "[hosts.far]\ngpus = 2"
    )
    text = cluster_text(
        {
            "ps": "far",
            "worker": "far far",
            "own": {"tasks": "far", "in_cluster": False, "env": {"CUDA_VISIBLE_DEVICES": "7"}},
        },
        "gpus",
        host,
        command=python_task(show),
        workdir="",
        success="all",
        start={
            "order": [["own", "ps"], ["worker"]],
            "ready": {"own": {"log": "GPUS"}, "ps": {"log": "GPUS"}, "worker": "started"},
        },
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.wait()
    seen = {e["task"]: e["text"] for e in up.of("log") if e["text"].startswith("GPUS")}
    assert seen["ps:0"] == "GPUS -1"
    assert {seen["worker:0"], seen["worker:1"]} == {"GPUS 0", "GPUS 1"}
    assert seen["own:0"] == "GPUS 7"


INTERPRETER = """#!{python} -IS
import os, sys
real = os.listdir
def listdir(path="."):
    if path == "/proc/{pid}/fd":
        with open({fifo!r}) as held:
            held.read()
    return real(path)
os.listdir = listdir
exec(sys.argv[-1])
"""
"""Does not come back from a look at the descriptors of one process until somebody closes a pipe."""


def test_who_holds_a_port_is_looked_for_beside_beats_and_kills(tmp_path: Path) -> None:
    """The descriptors of all processes are looked through, and one may have a million: meanwhile
    beats and questions are answered, and a kill ends the start."""
    fifo, python = tmp_path / "held", tmp_path / "python"
    os.mkfifo(fifo)
    python.write_text(INTERPRETER.format(python=sys.executable, pid=os.getpid(), fifo=str(fifo)))
    python.chmod(0o755)
    found: list[int] = []

    def looked_for() -> bool:
        try:
            found.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            assert error.errno == errno.ENXIO  # nobody reads it yet
        return bool(found)

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Client(python=str(python)) as client,
    ):
        client.hello()
        port = server.getsockname()[1]
        client.send(wire.START, client.start_body("w:0", ["sleep", "1000"], port=port))
        wait_until(looked_for, "somebody looks for who holds the port")
        client.send(wire.BEAT)
        client.get(wire.PONG)
        assert client.ask(wire.STATS, {})["tasks"] == {}
        receipt = client.kill()
        assert receipt["confirmed"] and receipt["signalled"] == 0
        assert "being ended" in client.get(wire.STARTED, task="w:0")["error"]
        os.close(found[0])
        client.leave()


JOBS = """
[jobs.worker]
tasks = [{tasks}]
[run]
command = ["{{python}}", "train.py"]
workdir = ""
"""


def here(tmp_path: Path, *ports: object) -> str:
    """The file of a cluster on this machine; returns its path."""
    (tmp_path / "train.py").touch()
    tasks = ", ".join(f'"localhost:{port}"' for port in ports)
    return str(write(tmp_path, JOBS.format(tasks=tasks)))


def there(tmp_path: Path, server: SshServer) -> str:
    """The file of a cluster on a host whose key nobody knows."""
    (tmp_path / "nobody").touch()
    table = server.host_toml("far", sys.executable)
    table = table.replace(str(server.known_hosts), str(tmp_path / "nobody"))
    jobs = JOBS.format(tasks='"far:auto"').replace("train.py", "-V")
    return str(write(tmp_path, table + jobs))


def agents() -> set[int]:
    """The agents, watchdogs and bridges of this test's preflights."""
    ours = [
        p
        for p in proc.scan(having="TFMUX_AGENT=check-")
        if p.environ.get("HOME") == os.environ["HOME"]
    ]
    return {p.pid for p in ours if p.environ.get("TFMUX_AGENT", "").startswith("check-")}


def test_what_may_go_wrong_later_is_a_warning_with_its_line(tmp_path: Path) -> None:
    """A hook that is not there: the run goes on without it; one that is there is nothing to tell.
    Ranks that only start together and are restarted alone: with `restart-all` there is none."""
    rule = '[run]\nframework = "jax"\nsuccess = "all"\non_failure = "restart"\n'
    hooks = '[hooks]\non_end = ["sh", "-c", ":"]\non_failure = ["./page-me.sh"]\n'
    file = Path(here(tmp_path, "auto"))
    text = file.read_text().replace("train.py", "-V").replace("[run]\n", rule) + hooks
    file.write_text(text)
    done = run("check", str(file), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    jsonschema.validate(report, report_schema())
    (hook,) = [each for each in report["findings"] if each["code"] == "hook-missing"]
    line = text.splitlines().index('on_failure = ["./page-me.sh"]') + 1
    assert f"hooks.on_failure ({file}:{line}): " in hook["sentence"]
    assert f"{tmp_path}/page-me.sh: no such file" in hook["sentence"]
    (alone,) = [each for each in report["findings"] if each["code"] == "restart-alone"]
    line = text.splitlines().index('on_failure = "restart"') + 1
    assert f"run.on_failure ({file}:{line}" in alone["sentence"] and "restart-all" in alone["todo"]
    for found in (hook, alone):
        assert (found["severity"], found["host"]) == ("warn", "localhost")
    file.write_text(text.replace('"restart"', '"restart-all"').replace("./page-me.sh", "sh"))
    done = run("check", str(file), "--json")
    codes = {found["code"] for found in json.loads(done.stdout)["findings"]}
    assert not codes & {"restart-alone", "hook-missing"}


def test_a_machine_that_is_fine_ends_with_0(tmp_path: Path, tfmux_home: Path) -> None:
    """A table on stdout, nothing on stderr, nothing left of the agent."""
    done = run("check", here(tmp_path, "auto", "auto"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "✓ 2." in lines["tensorflow"] and "✓ all 2" in lines["reach"]
    assert "✓ ready to launch" in done.stdout.splitlines()[-1]
    assert not list((tfmux_home / ".local/state/tfmux").iterdir())
    assert not (tfmux_home / ".local/share/tfmux").exists()


def test_a_python_too_old_for_the_bundled_trainer_ends_with_3(tmp_path: Path) -> None:
    """A program of one's own may run with it."""
    answer = {"version": "3.9.2", "executable": "/usr/bin/python3", "tensorflow": "2.5.0"}
    python = tmp_path / "python3.9"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(answer | {'there': True})}'\n")
    python.chmod(0o755)
    file = Path(here(tmp_path, "auto"))
    own = file.read_text().replace("{python}", str(python))
    file.write_text(own)
    assert run("check", str(file)).returncode == 0
    file.write_text(own.replace('"train.py"', '"{trainer}", "async"'))
    done = run("check", str(file), "--json")
    assert done.returncode == 3, done.stdout
    (found,) = [each for each in json.loads(done.stdout)["findings"] if each["severity"] == "error"]
    assert (found["code"], found["check"]) == ("python-old", "python")
    assert found["sentence"] == (
        f"the bundled trainer needs Python 3.10 or newer, and {python} is 3.9.2"
    )


def test_a_taken_port_ends_with_3_and_names_its_holder(tmp_path: Path) -> None:
    """Pid and command line, here those of this very test; one with escape sequences in it is shown
    without them, and cannot act on the terminal."""
    code = "import socket, sys\ns = socket.create_server(('', 0))\n"
    code += "print(s.getsockname()[1], flush=True)\nsys.stdin.read()"
    argv = [sys.executable, "-c", code, "\x1b]52;c;cm0=\x07\x1b[2J"]
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder,
    ):
        assert holder.stdout is not None
        ours, theirs = server.getsockname()[1], int(holder.stdout.readline())
        done = run("check", here(tmp_path, ours, theirs))
    assert done.returncode == 3
    assert f"port {ours} is in use by pid {os.getpid()} (" in done.stdout
    assert f"port {theirs} is in use by pid {holder.pid}" in done.stdout
    assert "[port-in-use]" in done.stdout
    assert "   2 errors" in done.stdout.splitlines()[-1]
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout


def test_a_large_matrix_shows_what_is_wrong_alone() -> None:
    """Tasks that are reached from everywhere are one line; each table fits the width."""
    hosts = ("one-host", "another")
    pairs = tuple(
        Reachability(host, TaskId("worker", number), "far", f"far:{2000 + number}", Reach.OK)
        for host in hosts
        for number in range(40)
    )
    bad = replace(pairs[7], reach=Reach.FILTERED)
    report = Report("x", hosts, (), (*pairs[:7], bad, *pairs[8:]), (), 1.0)
    console = Console(file=io.StringIO(), width=40)
    render(report, console)
    text = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "39 of 40 tasks are reached from everywhere" in text
    assert [line for line in text if "worker:" in line and "filtered" in line]
    assert not [line for line in text if "worker:8 " in line]
    assert max(map(len, text)) <= 44


def test_a_port_below_1024_is_refused_to_an_ordinary_user(tmp_path: Path) -> None:
    """The task would fail with the same reason, later. Root is made ordinary in this respect."""
    ordinary = ["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"]
    done = run("check", here(tmp_path, 81), prefix=ordinary if os.geteuid() == 0 else [])
    assert done.returncode == 3 and "[port-forbidden]" in done.stdout


def test_a_bad_file_ends_with_2(tmp_path: Path) -> None:
    """Nothing is looked at."""
    done = run("check", str(write(tmp_path, "[jobs.worker]\ntasks = 3\n")))
    assert done.returncode == 2 and "jobs.worker.tasks" in done.stderr and done.stdout == ""


def test_first_contact_is_refused_accepted_and_then_known(
    tmp_path: Path, ssh_server: SshServer
) -> None:
    """Without --accept-new the fingerprint is told, with it the key is kept, then it is known."""
    file = there(tmp_path, ssh_server)
    key = asyncssh.import_public_key(ssh_server.host_key.public).get_fingerprint()
    first = run("check", file)
    assert first.returncode == 3 and key in first.stdout and "--accept-new" in first.stdout
    assert not accepted_keys().exists()
    second = run("check", file, "--accept-new")
    assert second.returncode == 0, second.stdout
    assert second.stdout.startswith(f"far: trusted from now on: [127.0.0.1]:{ssh_server.port} ")
    assert key in second.stdout.splitlines()[0]
    third = run("check", file, "--json")
    assert third.returncode == 0 and json.loads(third.stdout)["accepted"] == []


def test_an_interpreter_that_is_too_old_is_told_by_its_version(
    tmp_path: Path, ssh_server: SshServer
) -> None:
    """A real interpreter that says it is Python 3.6."""
    old = tmp_path / "python3.6"
    code = "import sys; sys.version_info = (3, 6, 8, 'final', 0); exec(sys.argv[-1])"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -IS -c "{code}" "$@"\n')
    old.chmod(0o755)
    table = ssh_server.host_toml("far", str(old))
    done = run("check", str(write(tmp_path, table + JOBS.format(tasks='"far:auto"'))))
    assert done.returncode == 3 and "Python 3.6 is too old" in done.stdout


@variants("end", [signal.SIGINT, signal.SIGKILL], test=1)
def test_nothing_stays_when_a_check_is_ended(
    tmp_path: Path, ssh_server: SshServer, end: signal.Signals
) -> None:
    """Neither after Ctrl-C nor after a SIGKILL, whatever a question waits for."""
    slow = tmp_path / "python-slow"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *tensorflow*) sleep 30;; esac\nexec {sys.executable} "$@"\n'
    )
    slow.chmod(0o755)
    file = write(tmp_path, JOBS.format(tasks='"localhost:auto"').replace("{python}", str(slow)))
    argv = [sys.executable, "-m", "tui.main", "check", str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        # the program, and the process of at least one question
        wait_until(lambda: len(agents()) >= 2, "the program of the preflight is there")
        child.send_signal(end)
        child.communicate(timeout=PATIENCE)
    wait_until(lambda: not agents(), "none is left")


_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
"""


def test_leftovers_of_a_dead_run_are_found_and_the_named_command_ends_them(tmp_path: Path) -> None:
    """Launcher, watchdog and agent are killed at once; a daemon with the run's tag lives on."""
    (tmp_path / "run").mkdir()
    text = JOBS.format(tasks='"localhost:auto"') + "lease = 600\n"
    text = text.replace('"train.py"', f'"-c", {json.dumps(_DAEMON)}')
    file = write(tmp_path / "run", text.replace("[run]", 'ready = "started"\n[run]'))
    with Up("up", str(file), "--json") as up:
        pid = int(up.log("worker:0", "daemon")["text"].split()[-1])
        run_id = up.run_id
        tag = f"{run_id};"
        doomed = [each for each in proc.scan(having=tag) if each.environ.get("TFMUX_AGENT") == tag]
        client, launcher = proc.read(up.process.pid), proc.read(up.launcher)
        assert client is not None and launcher is not None
        assert len(doomed) == 3  # bridge, watchdog, agent
        for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none can react to another's end
            for each in (client, launcher, *doomed):
                proc.signal_process(each, number)
    daemon = proc.read(pid)
    assert daemon is not None and daemon.alive
    try:
        (found,) = left_of(run_id, tmp_path)
        assert found["severity"] == "warn"
        assert f"processes of worker:0 are running: pid {pid} " in found["sentence"]
        *_, command, name = found["todo"].split()
        assert run(command, name).returncode == 4  # there may be others, which left no mark
        assert proc.wait_gone(daemon)
    finally:
        proc.signal_process(daemon, signal.SIGKILL)
    assert left_of(run_id, tmp_path) == []


def left_of(run_id: str, tmp_path: Path) -> list[dict[str, str]]:
    """The findings of a check on this machine about one run; other tests may leave others."""
    done = run("check", here(tmp_path, "auto"), "--json")
    assert done.returncode == 0, done.stdout
    findings = json.loads(done.stdout)["findings"]
    return [f for f in findings if f["code"] == "leftovers" and run_id in f["sentence"]]
