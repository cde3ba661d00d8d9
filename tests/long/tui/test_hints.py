"""Hints beside lines of a log, and in the header."""

from __future__ import annotations

import time

from launcher.ids import TaskId
from launcher.run.snapshot import Failure
from launcher.run.states import Outcome, RunPhase, TaskState
from tests.support.fakes import STEP, ScriptedRun
from tests.support.screens import showing, shows, until, visible


async def test_a_hint_stands_beside_its_line(run: ScriptedRun) -> None:
    """A known failure is explained where it stands, and in the headline when it was first."""
    run.write("worker:1", b"ModuleNotFoundError: No module named 'tensorflow'\n")
    async with showing(run, (300, 50)) as (_, pilot):
        await shows(pilot, "◂ no such module: the host's Python has no tensorflow")
        tail = ("ModuleNotFoundError: No module named 'tensorflow'",)
        failure = Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, (), tail)
        run.end(Outcome.FAILED, 1, failure=failure)
        await shows(pilot, "first failure: worker:1 on tf3: exit 1")
        await pilot.press("escape")
        await shows(pilot, "first failure: worker:1 @tf3 exit 1 — no such module")


WAITING = (
    b"2026-11-20 18:30:04.112233: I tensorflow/core/distributed_runtime/master.cc:267] "
    b"CreateSession still waiting for response from worker: /job:worker/replica:0/task:1\n"
)


async def test_a_wait_names_the_task_and_its_state(run: ScriptedRun) -> None:
    """`CreateSession still waiting` is joined with how that task stands, beside the line and,
    while nothing has failed, in the header; both follow as it changes. When the one that waited
    makes steps, the header is silent."""
    run.change(state=RunPhase.RUNNING)
    run.task("worker:0", state=TaskState.READY, last_output=time.time())
    run.task("worker:1", state=TaskState.STARTING, reason="its port is held by pid 7 (nc -l)")
    run.write("worker:0", WAITING)
    async with showing(run, (300, 50)) as (app, pilot):
        beside = "◂ waiting for a task: worker:1 @tf3 is starting (its port is held by pid 7"
        await shows(pilot, beside)
        await shows(pilot, "! worker:0: waiting for a task: worker:1 @tf3 is starting")
        run.task("worker:1", state=TaskState.FAILED, exit_code=1, reason="")
        await shows(pilot, "◂ waiting for a task: worker:1 @tf3 has ended: exit 1")
        run.write("worker:0", STEP % (1, 1, 0.5))
        await until(pilot, lambda: not visible(app, "! worker:0"))


async def test_a_taken_port_names_its_holder(run: ScriptedRun) -> None:
    """`Could not start gRPC server` is joined with who holds the port, beside the line, in the
    header before and after the task has failed, and in the outcome."""
    line = "UnknownError: Could not start gRPC server"
    held = "its port is held by pid 4121 (python -m http.server 2222)"
    run.change(state=RunPhase.RUNNING)
    run.task("ps:0", state=TaskState.STARTING, last_output=time.time(), reason=held)
    run.write("ps:0", f"{line}\n".encode())
    async with showing(run, (300, 50)) as (_, pilot):
        await shows(pilot, f"{line}  ◂ port in use: {held}")
        await shows(pilot, f"! ps:0: port in use: {held}")
        run.task("ps:0", state=TaskState.FAILED, exit_code=1, ended=1000.0)
        failure = Failure(TaskId("ps", 0), "tf1", "exit 1", 1000.0, (), (line,))
        run.end(Outcome.FAILED, 1, failure=failure)
        await shows(pilot, "first failure: ps:0 on tf1: exit 1")
        await shows(pilot, f"  ◂ port in use: {held}")
        await pilot.press("escape")
        await shows(pilot, f"first failure: ps:0 @tf1 exit 1 — port in use: {held}")
