"""Growth of the launcher's work with the number of hosts, in calls: seconds depend on load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from launcher.cluster.read import loads
from launcher.ids import TaskId
from launcher.run import events as ev
from launcher.run.events import Event, ReadyTimeout
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import HostReceipt
from launcher.run.states import RunPhase
from tests.support.streams import changes

TASKS_A_HOST = 8


def life(run: RunStateMachine, *, killed: bool) -> Iterator[Event]:
    """The events of a run from its beginning to the last receipt."""
    hosts, tasks = run.data.plan.hosts, run.data.plan.tasks
    yield ev.Begin(1.0)
    yield from (ev.HostUp(1.0, host.name, (), "") for host in hosts)
    yield ev.HostsChecked(1.0, {})
    yield from (ev.Staged(1.0, host.name) for host in hosts)
    yield from (ev.TaskStarted(2.0, task.id, 1, 100, 0) for task in tasks)
    if killed:
        yield ev.KillAll(3.0, True)
    yield from (ev.TaskExited(3.0, task.id, 1, 0, None) for task in tasks)
    yield from (
        ev.ReceiptReceived(4.0, HostReceipt(host.name, 8, confirmed=True), None) for host in hosts
    )


def calls(work: Callable[[], object]) -> int:
    """Number of calls that something makes."""
    count = 0

    def add(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(add)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def live(hosts: int, *, killed: bool) -> None:
    """A whole run, from its file on."""
    names = [f"h{number}" for number in range(hosts)]
    places = [f"{name}:{2222 + port}" for name in names for port in range(TASKS_A_HOST)]
    text = "".join(f'[hosts.{name}]\nssh = "{name}"\ngpus = 8\n' for name in names)
    text += f'[jobs.worker]\ntasks = {json.dumps(places)}\n[run]\ncommand = ["x"]\n'
    text += 'success = "all"\n[start.ready]\nworker = "started"\n'
    run = RunStateMachine(loads(text, "c", Path("/")), "run-1", 1.0)
    for event in life(run, killed=killed):
        run.handle(event)
        changes(run, event.time)
    assert run.data.phase is RunPhase.ENDED


@pytest.mark.parametrize(("killed", "most"), [(True, 4.3), (False, 6.4)])
def test_four_times_the_hosts_are_about_four_times_the_work(killed: bool, most: float) -> None:
    """Planning, starting and a kill look at each task a number of times that does not grow; each
    end by itself looks at the tasks that are left."""
    few, many = (calls(partial(live, hosts, killed=killed)) for hosts in (15, 60))
    assert many < most * few


def serving(workers: int, rules: str = "") -> RunStateMachine:
    """A run with a chief of a job of its own and many workers on one host, all ready."""
    places = json.dumps([f"h:{2300 + number}" for number in range(workers)])
    text = '[hosts.h]\nssh = "h"\n[jobs.chief]\ntasks = ["h:2222"]\n[jobs.worker]\n'
    text += f'tasks = {places}\n[run]\ncommand = ["x"]\n{rules}'
    text += '[start.ready]\nworker = "started"\nchief = "started"\n'
    run = RunStateMachine(loads(text, "c", Path("/")), "run-1", 1.0)
    run.handle(ev.Begin(1.0))
    run.handle(ev.HostUp(1.0, "h", (), ""))
    run.handle(ev.HostsChecked(1.0, {}))
    run.handle(ev.Staged(1.0, "h"))
    for task in run.data.plan.tasks:
        run.handle(ev.TaskStarted(2.0, task.id, 1, 100, 0))
    assert run.data.phase is RunPhase.RUNNING
    return run


def end_all(run: RunStateMachine, event: Callable[[TaskId], Event]) -> None:
    """Feeds one event for each worker."""
    for task in run.data.plan.tasks:
        if task.id.job == "worker":
            run.handle(event(task.id))


def test_tasks_that_are_ready_are_awaited_no_more() -> None:
    """Their time limits end together, two minutes after the start: nothing is recorded of them."""
    run = serving(50)
    timers = [ReadyTimeout(task.id, 1) for task in run.data.plan.tasks]
    assert not any(map(run.data.awaits, timers))
    run.handle(ev.Restart(4.0, TaskId("worker", 3), hard=True))
    confirmed = HostReceipt("h", confirmed=True)
    run.handle(ev.ReceiptReceived(5.0, confirmed, (TaskId("worker", 3),)))
    assert run.data.awaits(ReadyTimeout(TaskId("worker", 3), 2))
    assert not run.data.awaits(ReadyTimeout(TaskId("worker", 3), 1))


def test_many_failures_are_counted_below_the_first() -> None:
    """Under `keep` all may fail: a state names a hundred."""
    run = serving(300, 'on_failure = "keep"\n')
    end_all(run, lambda task: ev.TaskExited(3.0, task, 1, 1, None))
    run.validate()
    failure = run.snapshot().first_failure
    assert failure is not None and failure.task == TaskId("worker", 0)
    assert failure.others == tuple(TaskId("worker", number) for number in range(1, 101))
    assert failure.unlisted == 300 - 101
