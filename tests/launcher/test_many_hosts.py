"""Growth of the launcher's work with the number of hosts, in calls: seconds depend on load."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from launcher.cluster import loads
from launcher.ids import TaskId
from launcher.run import events as ev
from launcher.run.events import Event
from launcher.run.run import RunStateMachine
from launcher.run.snapshot import HostReceipt
from launcher.run.states import RunPhase
from launcher.run.timers import ReadyTimeout
from launcher.store.public_events import ChangeRecords

TASKS_A_HOST = 8


def life(run: RunStateMachine, *, killed: bool) -> Iterator[Event]:
    """The events of a run from its beginning to the last receipt."""
    hosts, tasks = run.plan.hosts, run.plan.tasks
    yield ev.Begin(1.0, None)
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


def steps(work: Callable[[], object]) -> int:
    """Number of lines that something runs, each round of a loop on one line among them."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def live(hosts: int, *, killed: bool) -> None:
    """A whole run, from its file on."""
    names = [f"h{number}" for number in range(hosts)]
    places = [f"{name}:{2222 + port}" for name in names for port in range(TASKS_A_HOST)]
    text = "".join(f'[hosts.{name}]\nssh = "{name}"\ngpus = 8\n' for name in names)
    text += f'[jobs.worker]\ntasks = {json.dumps(places)}\n[run]\ncommand = ["x"]\n'
    text += 'success = "all"\n[start.ready]\nworker = "started"\n'
    run = RunStateMachine(loads(text, "c", Path("/")), "run-1", 1.0)
    records = ChangeRecords(None)
    for event in life(run, killed=killed):
        run.handle(event)
        hosts_changed, tasks_changed = run.pop_changed()
        for _ in records.changes(run.summary(), hosts_changed, tasks_changed, event.time):
            pass
    assert run.phase is RunPhase.ENDED


@pytest.mark.large
@pytest.mark.parametrize("killed", [True, False])
def test_four_times_the_hosts_are_four_times_the_work(killed: bool) -> None:
    """Planning, starting and ending look at each task a number of times that does not grow."""
    few, many = (calls(partial(live, hosts, killed=killed)) for hosts in (25, 100))
    assert many < 4.6 * few


def serving(workers: int, rules: str = "") -> RunStateMachine:
    """A run with a chief of a job of its own and many workers on one host, all ready."""
    places = json.dumps([f"h:{2300 + number}" for number in range(workers)])
    text = '[hosts.h]\nssh = "h"\n[jobs.chief]\ntasks = ["h:2222"]\n[jobs.worker]\n'
    text += f'tasks = {places}\n[run]\ncommand = ["x"]\n{rules}'
    text += '[start.ready]\nworker = "started"\nchief = "started"\n'
    run = RunStateMachine(loads(text, "c", Path("/")), "run-1", 1.0)
    run.handle(ev.Begin(1.0, None))
    run.handle(ev.HostUp(1.0, "h", (), ""))
    run.handle(ev.HostsChecked(1.0, {}))
    run.handle(ev.Staged(1.0, "h"))
    for task in run.plan.tasks:
        run.handle(ev.TaskStarted(2.0, task.id, 1, 100, 0))
    assert run.phase is RunPhase.RUNNING
    return run


def end_all(run: RunStateMachine, event: Callable[[TaskId], Event]) -> None:
    """The same happens to all workers."""
    for task in run.plan.tasks:
        if task.id.job == "worker":
            run.handle(event(task.id))


@pytest.mark.large
def test_workers_that_are_all_silent_are_not_counted_for_each() -> None:
    """After the chief's good end all workers that it needed stall at the same time."""

    def stalled(workers: int) -> int:
        run = serving(workers)
        run.handle(ev.TaskExited(3.0, TaskId("chief", 0), 1, 0, None))
        assert run.phase is RunPhase.FINISHING
        stall = partial(ev.OutputStalled, 63.0, seconds=60.0)
        count = calls(lambda: end_all(run, lambda task: stall(task)))
        run.validate()
        return count

    assert stalled(2000) < 6 * stalled(500)


def test_tasks_that_are_ready_are_awaited_no_more() -> None:
    """Their time limits end together, two minutes after the start: nothing is recorded of them."""
    run = serving(50)
    timers = [ReadyTimeout(task.id, 1) for task in run.plan.tasks]
    assert not any(map(run.awaits, timers))
    run.handle(ev.Restart(4.0, TaskId("worker", 3), hard=True))
    confirmed = HostReceipt("h", confirmed=True)
    run.handle(ev.ReceiptReceived(5.0, confirmed, (TaskId("worker", 3),)))
    assert run.awaits(ReadyTimeout(TaskId("worker", 3), 2))
    assert not run.awaits(ReadyTimeout(TaskId("worker", 3), 1))


@pytest.mark.large
@pytest.mark.parametrize("order", ["first to last", "any"])
def test_answers_of_hosts_do_not_look_at_all_the_others(order: str) -> None:
    """Each greets, has its files and gives its receipt, in whatever order."""

    def answered(hosts: int) -> int:
        names = [f"h{number}" for number in range(hosts)]
        text = "".join(f'[hosts.{name}]\nssh = "{name}"\n' for name in names)
        places = json.dumps([f"{name}:2222" for name in names])
        text += f'[jobs.worker]\ntasks = {places}\n[run]\ncommand = ["x"]\n'
        run = RunStateMachine(loads(text, "c", Path("/")), "run-1", 1.0)
        if order == "any":
            random.Random(1).shuffle(names)
        events: list[Event] = [ev.Begin(1.0, None), *(ev.HostUp(1.0, n, (), "") for n in names)]
        events += [ev.HostsChecked(1.0, {}), *(ev.Staged(1.0, name) for name in names)]
        kill: list[Event] = [ev.KillAll(3.0, True)]
        kill += [ev.ReceiptReceived(4.0, HostReceipt(n, confirmed=True), None) for n in names]

        def handle() -> None:
            for event in (*events, *kill):
                run.handle(event)

        count = steps(handle)
        assert run.phase is RunPhase.ENDED
        return count

    assert answered(400) < 6 * answered(100)


@pytest.mark.large
def test_many_failures_are_counted_below_the_first() -> None:
    """Under `keep` all may fail: each is found by itself, and a state names a hundred."""

    def failing(workers: int) -> int:
        run = serving(workers, 'on_failure = "keep"\n')
        count = steps(lambda: end_all(run, lambda task: ev.TaskExited(3.0, task, 1, 1, None)))
        run.validate()
        failure = run.snapshot().first_failure
        assert failure is not None and failure.task == TaskId("worker", 0)
        assert failure.others == tuple(TaskId("worker", number) for number in range(1, 101))
        assert failure.unlisted == workers - 101
        return count

    assert failing(1200) < 6 * failing(300)
