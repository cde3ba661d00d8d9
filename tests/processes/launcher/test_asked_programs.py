"""Programs that hosts ask end with all that they have started, whatever they do: children that hold
their output, deaf ones, floods, daemons."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.agent import asked, wire
from launcher.agent.asked import AskedProgram
from launcher.errors import AgentError
from launcher.hosts.frames import GpusAnswer
from launcher.preflight.probes import PythonAnswer
from tests.support.agent_client import Client
from tests.support.host_program import a_program, ask
from tests.support.nvidia_smi import gpu
from tests.support.patience import PATIENCE, wait_until

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
