"""All sequences of events of a small run: when its end is decided, nothing is started."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts
from launcher.run import events as ev
from launcher.run import instructions as do
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import HostReceipt
from launcher.run.states import Purpose
from tests.support.budgets import variants

CLUSTER = """
name = "t"
[hosts.h]
ssh = "h"
[jobs.a]
tasks = ["h:2222"]
[jobs.b]
tasks = ["h:2223", "h:2224"]
[start]
order = [["a"], ["b"]]
{warm}
[run]
command = ["python3", "x"]
framework = "none"
success = "all"
on_failure = "{on_failure}"
max_restarts = 1
"""
A, B, C = TaskId("a", 0), TaskId("b", 0), TaskId("b", 1)
TASKS = (A, B, C)
DEPTH = 3
"""Events that follow each other, and one more."""
STARTS = (do.StartTask, do.ReleaseTask, do.StageHost, do.PickPorts)
VICTIM = ("ConnectionResetError: [Errno 104] Connection reset by peer",)


def small_run(on_failure: str, *, warm: bool) -> RunStateMachine:
    """A run of three tasks in two stages on one host, whose first stage has been told to start."""
    text = CLUSTER.format(on_failure=on_failure, warm='warm = ["json"]' if warm else "warm = false")
    run = RunStateMachine(loads(text, "cluster.toml", Path("/srv")), "r", 1.0)
    for event in (
        ev.Begin(1.0),
        ev.HostUp(1.0, "h"),
        ev.HostsChecked(1.0, {"h": HostFacts(home="/h")}),
        ev.Staged(1.0, "h"),
    ):
        run.handle(event)
    return run


def events(run: RunStateMachine) -> Iterator[ev.Event]:
    """All that may happen next: to the host, to each task, by a person and by timers."""
    views = [run.data.tasks[task] for task in TASKS]
    held = [ev.HeldTask(v.id, v.attempt, v.warming) for v in views if v.attempt]
    yield ev.HostUp(1.0, "h")
    yield ev.HostUp(1.0, "h", tuple(held))
    if held:
        yield ev.HostUp(1.0, "h", tuple(held[1:]))
    yield ev.HostLost(1.0, "h", "silence", 60.0)
    yield ev.TimerFired(1.0, ev.LeaseEnd("h"))
    yield ev.KillAll(1.0)
    yield ev.ReceiptReceived(1.0, HostReceipt("h", confirmed=True), None)
    yield ev.PortsPicked(1.0, {})
    for purpose in Purpose:
        yield ev.Superseded(1.0, "h", "elsewhere", purpose)
    for view in views:
        task, attempt = view.id, view.attempt
        if not attempt:
            continue
        yield ev.TaskStarted(1.0, task, attempt, 7)
        yield ev.TaskStarted(1.0, task, attempt, 0, error="no such file")
        yield ev.TaskReady(1.0, task, attempt)
        yield ev.TaskExited(1.0, task, attempt, 0, None)
        yield ev.TaskExited(1.0, task, attempt, 1, None)
        yield ev.TaskExited(1.0, task, attempt, 1, None, tail=VICTIM)
        yield ev.Restart(1.0, task, hard=True)
        yield ev.ReceiptReceived(1.0, HostReceipt("h"), (task,))
        yield ev.TimerFired(1.0, ev.RestartDelay(task, attempt))
        yield ev.TimerFired(1.0, ev.LookTimeout(task))


def branch(run: RunStateMachine) -> RunStateMachine:
    """A copy of a run, to which something else may happen."""
    data = copy.copy(run.data)
    for name, value in vars(data).items():
        if isinstance(value, dict | set | list):
            setattr(data, name, copy.copy(value))
    data.host_records = {host: replace(one) for host, one in data.host_records.items()}
    return RunStateMachine(data.cluster, "r", past=data)


def key(run: RunStateMachine) -> str:
    """What decides about all that follows."""
    data = run.data
    tasks = [
        (v.state, v.attempt, v.pid, v.intent, v.kill_grace, v.restart_due, v.state_before_loss)
        for v in data.tasks.values()
    ]
    record = data.host_records["h"]
    return repr(
        (
            (data.run.state, data.run.stage, data.run.attempt, data.run.cause),
            (data.run.restart_due, data.hosts["h"].state, data.ending, data.looked_for, tasks),
            (record.receipt is None, record.last_word is None, record.agent_gone),
        )
    )


def told_to_end(out: list[do.Instruction]) -> bool:
    """The run's end is among these instructions, or they say that it has ended."""
    kills = [one for one in out if isinstance(one, do.KillHost) and one.final]
    return bool(kills) or any(isinstance(one, do.End) for one in out)


@variants("warm", [False, True], ids=["cold", "warm"], test=1)
@pytest.mark.parametrize("on_failure", ["stop", "keep", "restart", "restart-all"])
def test_no_order_starts_anything_when_the_end_is_decided(on_failure: str, warm: bool) -> None:
    """In each state that any sequence of events leads to, no step that ends the run has a start
    among its instructions, in whatever order, and no later step has one."""
    first = small_run(on_failure, warm=warm)
    todo: list[tuple[RunStateMachine, bool, tuple[ev.Event, ...]]] = [(first, False, ())]
    seen = {(key(first), False)}
    restarts = 0
    for run, over, path in todo:
        for event in events(run):
            following = branch(run)
            out = following.handle(event)
            ends = over or told_to_end(out)
            started = [one for one in out if isinstance(one, STARTS)]
            assert not (ends and started), (*path, event, out)
            restarts += sum(isinstance(one, do.PickPorts) for one in out)
            place = key(following), ends
            if place not in seen and len(path) < DEPTH:
                seen.add(place)
                todo.append((following, ends, (*path, event)))
    assert len(seen) > 100
    assert bool(restarts) == (on_failure == "restart-all"), "an attempt that ends is no end"
