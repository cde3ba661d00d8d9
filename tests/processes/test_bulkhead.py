"""Looks at a run that fail, never end, stand still, print without end or take all memory: each
costs its sentence, and the run is as if nobody had looked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from launcher.process import bulkhead
from launcher.reading.looks import Look
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import SOAK
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.forked import ForkServer
from tests.support.nvidia_smi import FakeNvidiaSmi, gpu
from tests.support.paths import SUPPORT
from tests.support.patience import wait_until
from tests.support.plants.sitecustomize import ENDING, PLANTS
from tests.support.scenario import FaultScenario, confirmed, last_states

FOLDER = str(SUPPORT / "plants")
HOW = tuple(PLANTS) if SOAK else ("fault", "spin", "hang", "flood")
WORKS = """
import os, sys, time
for step in range(1, 6):
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.1)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
if os.environ["TFMUX_TASK"].split("/")[1] == "worker:1":
    raise RuntimeError("[pair.cc:561] Connection closed by peer [127.0.0.1]:229")
time.sleep(1000)
"""
HOOK = "import json, os, sys; open(sys.argv[1], 'a').write(os.environ['TFMUX_OUTCOME'] + ' ')"


@cache
def planted() -> ForkServer:
    """Forks launcher processes whose readers have something planted in them."""
    return ForkServer(*command.MODULES, PYTHONPATH=FOLDER)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has the launcher processes of commands come from where things are planted."""
    monkeypatch.setenv("PYTHONPATH", FOLDER)
    monkeypatch.setattr(command, "_server", planted)
    yield


class Seen:
    """What became of a run whose looks were planted with something, or with nothing."""

    def __init__(self, folder: Path, how: str) -> None:
        folder.mkdir()
        smi = FakeNvidiaSmi(folder / "bin")
        smi.say(gpu=[gpu(0, utilization__gpu="[GPU is lost]")])
        go, hooked = folder / "go", folder / "hooked"
        words = [*python_task(WORKS), str(go)]
        text = cluster_text(
            {"worker": 2},
            command=words,
            workdir="",
            grace=1,
            start={"ready": {"worker": "started"}},
        )
        hook = json.dumps([sys.executable, "-c", HOOK, str(hooked)])
        file = write(folder, f"{text}\n[hooks]\non_end = {hook}\n")
        env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        if how:
            env["PLANT"] = how
        with Up("up", str(file), "--json", env=env) as up:
            for task in ("worker:0", "worker:1"):
                up.log(task, "step 5")
            self.stacks = run("stacks", up.run_id)
            go.touch()
            self.status = up.wait()
            self.states, self.confirmed = last_states(up), confirmed(up)
            self.failure = [e["first_failure"] for e in up.of("run") if e.get("first_failure")][-1:]
            self.left = FaultScenario.here(up.run_id)
            self.launchers = {e.get("launcher") for e in up.of("run")}
            self.transcript = up.transcript()
            self.log = (RunFolder.find(up.run_id).path / "launcher.log").read_text()
        self.hooked = hooked.read_text() if hooked.exists() else ""

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All that must not depend on any look."""
        failure = [(one["task"], one["how"]) for one in self.failure]
        return self.status, self.states, self.confirmed, self.hooked, failure, self.left

    def faults(self, look: Look) -> int:
        return self.log.count(f"{bulkhead.FAULT} ({look}): ")


def test_no_look_changes_a_run(tmp_path: Path, plant: None) -> None:
    """Given a run that fails, looked at for figures, GPUs, hangs, its ends and the cause, when each
    look fails, spins, hangs or floods (or stands still, fills the memory, crashes, rambles), then
    exit code, receipt, states, first failure and hooks are the same; each kind is said in
    launcher.log, with a traceback where there is one, and `tfmux doctor` counts it."""
    usual = Seen(tmp_path / "nothing", "")
    assert usual.status == 1 and usual.confirmed and usual.hooked == "failed ", usual.transcript
    assert not any(map(usual.faults, Look)), usual.log
    with ThreadPoolExecutor(4) as others:  # most of them wait
        runs = {how: others.submit(Seen, tmp_path / how, how) for how in HOW}
    for how, run_of in runs.items():
        seen = run_of.result()
        assert seen.outcome == usual.outcome, f"{how}\n{seen.transcript}\n{seen.log}"
        assert seen.stacks.returncode == 0 and "worker" in seen.stacks.stdout, seen.stacks
        for look in Look:
            assert seen.faults(look), f"{how}: {look}\n{seen.log}"
        if how in ENDING:
            assert seen.log.count("the last of its kind") >= len(Look), f"{how}\n{seen.log}"
        if how == "fault":
            tracebacks = seen.log.count("Traceback (most recent call last)")
            assert tracebacks == len(Look), seen.log
    told = command.run("doctor").stdout
    for look in Look:
        assert f"{look}: " in told and f"in {len(HOW)} runs" in told, told


ASKS = """
import asyncio, os, signal, socket, sys
from launcher.process.bulkhead import Bulkhead
from launcher.reading.looks import Victims

async def main():
    own = socket.socketpair()
    for one in own:
        one.set_inheritable(True)
    asking = asyncio.create_task(Bulkhead().ask(Victims((("x",),))))
    while True:
        await asyncio.sleep(0.02)
        for pid in readers():
            if open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "T":
                folder = f"/proc/{pid}/fd"
                files = [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)]
                print(pid, sum(file.startswith("socket:") for file in files), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

def readers():
    return [pid for task in os.listdir("/proc/self/task")
            for pid in open(f"/proc/self/task/{task}/children").read().split()]

asyncio.run(main())
"""


def test_a_reader_ends_with_its_launcher_and_has_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a reader that is stopped, so that no timer ends it, when the process that has asked is
    killed, then it is gone; and it has had no socket but that of its questions."""
    monkeypatch.setenv("PYTHONPATH", FOLDER)
    monkeypatch.setenv("PLANT", "stop")
    done = subprocess.run([sys.executable, "-P", "-c", ASKS], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL and done.stdout, done
    pid, sockets = done.stdout.split()
    assert sockets == "1"
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the reader has ended")


TROUBLED = """
import asyncio, os, resource, signal, subprocess, sys
from launcher.process import bulkhead
from launcher.reading.looks import Victims

WORDS = (("ConnectionResetError: [Errno 104] Connection reset by peer",),)
real = subprocess.Popen

def failing(error):
    def popen(*words, **options):
        raise error
    return popen

def readers():
    return [int(pid) for task in os.listdir("/proc/self/task")
            for pid in open(f"/proc/self/task/{task}/children").read().split()]

async def main():
    door = bulkhead.Bulkhead()
    errors = [BlockingIOError(11, "again"), OSError(12, "no memory"), MemoryError(),
              subprocess.SubprocessError("what the child said"), RuntimeError("no")]
    for error in errors:
        subprocess.Popen = failing(error)
        door._lines.prepare()
        print("cannot start", await door.ask(Victims(WORDS)), flush=True)
    subprocess.Popen = real
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    print("no descriptors", await door.ask(Victims(WORDS)), flush=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    os.environ.clear()
    os.environ["TMPDIR"] = "/nowhere"
    print("room again", await door.ask(Victims(WORDS)), flush=True)
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        (reader,) = readers()
        os.kill(reader, number)
        while open(f"/proc/{reader}/stat").read().rpartition(")")[2].split()[0] != "Z":
            await asyncio.sleep(0.01)
        print("next reader", await door.ask(Victims(WORDS)), flush=True)
    door.close()

asyncio.run(main())
"""


def test_a_reader_that_cannot_be_started_or_is_ended_costs_no_later_look() -> None:
    """Given a machine that has no room for another process, memory or descriptor for a while, no
    PATH, and no folder for files, or somebody who ends the reader between two questions, then each
    question is answered, with nothing while there is no reader, and the looks go on."""
    words = [sys.executable, "-P", "-c", TROUBLED]
    done = subprocess.run(words, capture_output=True, text=True)
    said = done.stdout.splitlines()
    lost = ["cannot start None"] * 5 + ["no descriptors None"]
    assert said == [*lost, "room again [True]", *["next reader [True]"] * 3], done
    assert "the last of its kind" not in done.stderr, done.stderr


def test_the_launcher_process_imports_nothing_that_reads_text() -> None:
    """What it has not imported, its loop cannot call."""
    reading = "run.verdict run.last_words store.figures store.metric_lines"
    reading += " reading.waiting reading.evidence reading.line_reading"
    names = [f"launcher.{name}" for name in reading.split()]
    script = f"""
import sys, launcher.process.entry
from launcher.process import run_shell, slurm_allocation, hooks
print([name for name in {names} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done
