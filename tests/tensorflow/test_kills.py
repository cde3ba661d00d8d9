"""The kill table: every role in every mode, by TERM and KILL, restarted or not; in `make test` each
role once.

What the others say, and whether they go on or end: nobody stands still for good in silence.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import signal
from typing import Any

import pytest

from tests.support.budgets import budget, soak, variants
from tests.support.trainer_tasks import Cluster, Task, Tasks

BETWEEN_GRAPH = {
    "async": ("async",),
    "downpour": ("async", "--fetch-every=8", "--push-every=8"),
    "sync": ("sync",),
    "in-graph": ("in-graph",),
}
PAUSING = ("async", "downpour", "sync")
"""Modes that have a flag for it."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
BY_SIGNAL = (signal.SIGKILL, soak(signal.SIGTERM))
ENDLESS = "--steps=1000000"
QUICK = ("--grace=2", "--log-every=10", "--batch=20")


class Killed:
    """A cluster of one ps, a chief (`worker:0`) and `worker:1` that has begun to train."""

    def __init__(self, tasks: Tasks, mode: str, *flags: object, **jobs: int) -> None:
        jobs = jobs or {"ps": 1, "worker": 2}
        name, *more = BETWEEN_GRAPH.get(mode, (mode,))
        self.mode = mode
        every: dict[str, Any] = dict(jobs)
        self.cluster = Cluster(tasks, name, *more, *QUICK, *flags, **every)
        names = [f"{job}:{index}" for job, count in jobs.items() for index in range(count)]
        self.tasks = {name: self.start(name) for name in names}
        for name in self.training:
            self.tasks[name].says("^After 10 training")

    @property
    def training(self) -> list[str]:
        """The tasks that print progress."""
        if self.mode == "ps-strategy":
            return ["chief:0"]
        if self.mode == "in-graph":
            return ["chief:0" if "chief" in self.cluster.spec else "worker:0"]
        return ["worker:0", "worker:1"]

    def start(self, name: str) -> Task:
        """Starts the task `name`, perhaps again."""
        job, index = name.split(":")
        # A pause after each step: while one task starts again, the others would fill a processor.
        pause = (f"--slow-worker={index}", "--slow-secs=0.02") if self.mode in PAUSING else ()
        task = self.cluster.start(job, int(index), *(pause if job == "worker" else ()))
        self.__dict__.setdefault("tasks", {})[name] = task
        return task

    def kill(self, name: str, number: signal.Signals) -> int:
        """Signals the task `name`; its exit status."""
        task = self.tasks[name]
        task.signal(number)
        status = task.wait()
        assert status in ((-9,) if number == signal.SIGKILL else (0, 143)), task.text
        return status

    def goes_on(self, name: str, more: int = 3) -> None:
        """Waits until the task prints that many more lines of progress."""
        task = self.tasks[name]
        before = len(task.steps)
        task.until(lambda _: len(task.steps) >= before + more)

    def restart(self, role: str, number: signal.Signals) -> None:
        """Ends the task `role`, starts it again, and waits until all go on."""
        said = {name: len(self.tasks[name].text) for name in self.training}
        self.kill(role, number)
        self.start(role)
        if role in self.training:
            self.tasks[role].says("starts at global step")
        for name in self.training:
            if name != role and (role == "ps:0" or self.mode == "in-graph"):
                task = self.tasks[name]
                task.says(rf"^{name} lost {self.address(role)}: (?!=)\S", after=said[name])
                task.says("starts at global step", after=said[name])
            self.goes_on(name)

    def ends_without(self, name: str, lost: str) -> None:
        """Waits until the task `name` ends, since the task `lost` stays away."""
        task = self.tasks[name]
        assert task.wait() == 1
        expected = rf"trainer: {name}: lost {self.address(lost)}: Connection refused for 4 s"
        assert re.fullmatch(expected, task.complaint), task.text

    def address(self, name: str) -> str:
        """`ps:0 (localhost:2222)` as a regular expression."""
        job, index = name.split(":")
        return re.escape(f"{name} ({self.cluster.spec[job][int(index)]})")


@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", ["async", *map(soak, ("downpour", "sync", "in-graph"))])
def test_restarted(tasks: Tasks, tmp_path: pathlib.Path, mode: str) -> None:
    """Each task killed and started again: all go on. In a soak it is told to end, too, and chief
    and ps are killed once more.

    Who loses a task that it needs says which, where, and what the socket said.
    """
    # On a busy machine a ps needs more than a minute to come back.
    flags = (f"--logdir={tmp_path / 'logdir'}", "--reconnect-secs=300")
    killed = Killed(tasks, mode, ENDLESS, *flags)
    for role in ("worker:1", "worker:0", "ps:0"):
        for number in budget(SIGNALS[:1], SIGNALS):
            killed.restart(role, number)
    for role in budget((), ("worker:0", "ps:0")):
        killed.restart(role, signal.SIGKILL)


@pytest.mark.prove
@pytest.mark.parametrize("mode", [*map(soak, ("async", "downpour", "sync")), "in-graph"])
@pytest.mark.parametrize("number", BY_SIGNAL, ids=lambda number: number.name)
def test_a_ps_that_stays_away(tasks: Tasks, mode: str, number: signal.Signals) -> None:
    """Every client ends with 1, and says which ps, where, what the socket said, how long."""
    killed = Killed(tasks, mode, ENDLESS, "--reconnect-secs=4")
    killed.kill("ps:0", number)
    for name in killed.training:
        killed.ends_without(name, "ps:0")


@variants("mode", ["async", soak("downpour"), "sync", "in-graph"], test=1)
@pytest.mark.parametrize("role", ["worker:1", soak("worker:0")])
def test_a_worker_that_stays_away(tasks: Tasks, mode: str, role: str) -> None:
    """`async`: the other goes on, and ends when the ps stays away, too. `sync`: it says for whom it
    waits. `in-graph`: the client ends, the workers serve on until TERM."""
    killed = Killed(tasks, mode, ENDLESS, "--reconnect-secs=4")
    killed.kill(role, signal.SIGKILL)
    name = "worker:0" if role == "worker:1" else "worker:1"
    other = killed.tasks[name]
    if mode in ("async", "downpour"):
        killed.goes_on(name)
        killed.kill("ps:0", signal.SIGKILL)
        killed.ends_without(name, "ps:0")
    elif (mode, role) == ("in-graph", "worker:1"):
        killed.ends_without(name, role)
    else:
        if mode == "sync":
            other.says(rf"^{name} waits for {killed.address(role)}: Connection refused$")
        other.signal(signal.SIGTERM)
        assert other.wait() == 143


@pytest.mark.parametrize("number", BY_SIGNAL, ids=lambda number: number.name)
def test_ps_strategy(tasks: Tasks, number: signal.Signals) -> None:
    """A worker may go and come back; without its ps the chief ends and says so."""
    jobs = {"ps": 1, "worker": 2, "chief": 1}
    killed = Killed(tasks, "ps-strategy", ENDLESS, **jobs)
    killed.kill("worker:1", number)
    killed.goes_on("chief:0")
    killed.start("worker:1").says("listens on")
    killed.goes_on("chief:0")
    killed.kill("ps:0", number)
    chief = killed.tasks["chief:0"]
    assert chief.wait() == 1
    last = chief.complaint
    assert re.match(rf"trainer: chief:0: lost {killed.address('ps:0')}: \S", last), chief.text


@pytest.mark.soak
def test_ps_strategy_without_its_chief(tasks: Tasks) -> None:
    """TERM to the chief ends it in time; the others serve on, until TERM."""
    jobs = {"ps": 1, "worker": 2, "chief": 1}
    killed = Killed(tasks, "ps-strategy", ENDLESS, **jobs)
    assert killed.kill("chief:0", signal.SIGTERM) == 143
    for name, status in (("worker:0", 143), ("worker:1", 143), ("ps:0", 0)):
        killed.tasks[name].signal(signal.SIGTERM)
        assert killed.tasks[name].wait() == status


@pytest.mark.parametrize("mode", ["in-graph", soak("ps-strategy")])
def test_term_to_all_at_once_saves(tasks: Tasks, tmp_path: pathlib.Path, mode: str) -> None:
    """The chief still saves: the tasks that serve it, plain workers too, leave after it."""
    flags = (ENDLESS, "--grace=600", f"--logdir={tmp_path / 'logdir'}")
    killed = Killed(tasks, mode, *flags, ps=1, chief=1, worker=2)
    for name in ("worker:0", "worker:1", "ps:0", "chief:0"):
        killed.tasks[name].signal(signal.SIGTERM)
    statuses = {name: task.wait() for name, task in killed.tasks.items()}
    assert statuses == {"ps:0": 0, "chief:0": 143, "worker:0": 143, "worker:1": 143}
    saved = max(int(path.stem.rpartition("-")[2]) for path in tmp_path.glob("logdir/*.index"))
    assert saved >= killed.tasks["chief:0"].steps[-1]


@pytest.mark.parametrize("role", ["worker:0", soak("worker:1")])
def test_all_reduce(tasks: Tasks, role: str) -> None:
    """A worker's death ends the other, which names it; restarted alone, it says that it waits."""
    killed = Killed(tasks, "all-reduce", ENDLESS, worker=2)
    killed.kill(role, signal.SIGKILL)
    name = "worker:0" if role == "worker:1" else "worker:1"
    assert killed.tasks[name].wait() == 1
    last = killed.tasks[name].complaint
    assert re.match(rf"trainer: {name}: lost {killed.address(role)}: \S", last), last
    alone = killed.start(role)
    alone.says(rf"^{role} waits for {killed.address(name)}: Connection refused; .* together$")
    alone.signal(signal.SIGTERM)
    assert alone.wait() == 143


@pytest.mark.soak
def test_a_sync_chief_killed_again_and_again(tasks: Tasks) -> None:
    """A chief that dies may have taken gradients which it never applied: their workers do not
    wait for it for ever."""
    killed = Killed(tasks, "sync", ENDLESS)
    for _ in range(4):
        killed.kill("worker:0", signal.SIGKILL)
        killed.start("worker:0").says("^After 10 training")
        killed.goes_on("worker:1")


@pytest.mark.prove
def test_whoever_waits_says_for_whom(tasks: Tasks) -> None:
    """For a ps that does not resolve, for a chief, for a session; and a worker of another mode
    ends."""
    cluster = Cluster(tasks, "async", "--batch=20", ENDLESS, ps=1, worker=2)
    address = cluster.spec["ps"][0]
    nowhere = Cluster(tasks, "async", ps=1, worker=1)
    nowhere.spec["ps"] = ["absent.invalid:2222"]
    lost = nowhere.start("worker")
    lost.says(r"^worker:0 waits for ps:0 \(absent\.invalid:2222\): \S.*$")
    ps, second = cluster.start("ps"), cluster.start("worker", 1)
    chief = re.escape(f"worker:0 ({cluster.spec['worker'][0]})")
    waits = rf"^worker:1 waits for {chief} to initialise the variables: Connection refused$"
    second.says(waits)
    chief_alone = cluster.start("worker", 0, "--slow-worker=0", "--slow-secs=0.05")
    chief_alone.says("starts at global step")
    other = Cluster(tasks, "sync", "--batch=20", ENDLESS, ps=1, worker=2)
    other.spec.update(cluster.spec)
    second.signal(signal.SIGKILL)
    second.wait()
    third = other.start("worker", 1)
    assert third.wait() == 1
    assert "worker:1 runs sync, but the variables on the ps are of async" in third.text
    ps.signal(signal.SIGSTOP)
    try:
        second = cluster.start("worker", 1)
        second.says(rf"^worker:1 waits for a session with ps:0 \({re.escape(address)}\)")
    finally:
        ps.signal(signal.SIGCONT)
    second.says("starts at global step")


@pytest.mark.soak
def test_a_chief_catches_up_the_moving_average(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """What it has missed while it was away: the last accuracy is that of the present weights."""
    flags = ("--steps=3000", f"--logdir={tmp_path / 'logdir'}")
    cluster = Cluster(tasks, "async", *flags, "--log-every=10", ps=1, worker=2)
    cluster.start("ps")
    chief, second = cluster.start("worker", 0), cluster.start("worker", 1)
    chief.says("^After 10 training")
    chief.signal(signal.SIGKILL)
    chief.wait()
    assert second.wait() == 0
    chief = cluster.start("worker", 0)
    assert chief.wait() == 0
    assert chief.accuracy >= 0.95


def test_a_broken_checkpoint(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """One line that names it; nothing is overwritten."""
    whole = tmp_path / "whole"
    run = tasks.run("towers", "--steps=20", f"--logdir={whole}", env={"TFMUX_RUN_ID": "a"})
    assert run.wait() == 0
    runs = []
    for harm in ("cut", "empty", "data", "index"):
        logdir = tmp_path / harm
        shutil.copytree(whole, logdir)
        index = (logdir / "checkpoint").read_text()
        (logdir / "checkpoint").write_text(index.replace(str(whole), str(logdir)))
        name = {"index": "checkpoint", "data": "model.ckpt-20.data-00000-of-00001"}
        broken = logdir / name.get(harm, "model.ckpt-20.index")
        content = broken.read_bytes()
        broken.write_bytes({"empty": b"", "index": b"\0broken"}.get(harm, content[:40]))
        before = {path.name: path.read_bytes() for path in logdir.glob("*ckpt*")}
        flags = ("--steps=40", f"--logdir={logdir}")
        runs.append((logdir, before, tasks.run("towers", *flags, env={"TFMUX_RUN_ID": "b"})))
    for logdir, before, again in runs:
        assert again.wait() == 1
        last = again.complaint
        assert last.startswith(f"trainer: {logdir}/") and "Traceback" not in again.text
        assert "written by run" not in last
        assert {path.name: path.read_bytes() for path in logdir.glob("*ckpt*")} == before
