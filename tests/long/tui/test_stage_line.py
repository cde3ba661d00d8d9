"""Stage line: the start order as a picture, at every width."""

from __future__ import annotations

import time
from dataclasses import replace

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot, TaskView
from launcher.run.states import RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, until
from tui.format import StatusColor
from tui.widgets.header import HeaderForm, stage_parts

COLOURS = dict.fromkeys(StatusColor, "red")
PENDING, STARTING, READY = TaskState.PENDING, TaskState.STARTING, TaskState.READY


def tasks(job: str, stage: int, *states: TaskState, chief: bool = False) -> tuple[TaskView, ...]:
    return tuple(
        TaskView(TaskId(job, i), "h", "h:1", state, is_chief=chief and i == 0, stage=stage)
        for i, state in enumerate(states)
    )


def line(form: HeaderForm, *members: TaskView, state: RunPhase = RunPhase.STARTING) -> str:
    snapshot = Snapshot("run", "name", state, 0.0, tasks=members, waiting_since=100.0)
    return "".join(part.text for part in stage_parts(snapshot, 103.5, form, COLOURS))


def test_each_stage_fills_as_its_tasks_become_ready() -> None:
    """The example of the design: what is up, what starts and for how long, what waits."""
    ps = tasks("ps", 0, READY, READY)
    chief = tasks("chief", 1, STARTING)
    workers = tasks("worker", 2, PENDING, PENDING, PENDING)
    text = line(HeaderForm.FULL, *ps, *chief, *workers)
    assert text == "ps ██ 2/2 ▸ chief ▒ starting 3 s ▸ workers ░░░ waiting"
    assert line(HeaderForm.NARROW, *ps, *chief, *workers) == "ps ✓ ▸ chief ▸ workers 0/3"
    chief, workers = tasks("chief", 1, READY), tasks("worker", 2, READY, STARTING, PENDING)
    text = line(HeaderForm.FULL, *ps, *chief, *workers)
    assert text == "ps ██ 2/2 ▸ chief █ ✓ ▸ workers █▒░ 1/3 starting 3 s"


def test_a_worker_that_is_chief_is_a_stage_of_its_own() -> None:
    """Each task is counted once, by its name where others of its job start later; what starts
    beside the workers is shown beside them."""
    first, *others = tasks("worker", 2, READY, READY, chief=True)
    members = (
        *tasks("ps", 0, READY),
        replace(first, stage=1),
        *others,
        replace(tasks("tensorboard", 2, READY)[0], in_cluster=False),
    )
    assert line(HeaderForm.NARROW, *members) == "ps ✓ ▸ worker:0 ✓ ▸ worker:1 ✓  tensorboard ✓"


def test_states_are_seen_without_colours() -> None:
    """A failed task has a glyph and a count; of many tasks eight cells show the shares."""
    workers = tasks("worker", 0, READY, TaskState.FAILED, PENDING)
    assert line(HeaderForm.FULL, *workers) == "workers █✗░ 1/3 starting 3 s !1"
    assert line(HeaderForm.NARROW, *workers) == "workers 1/3 !1"
    many = tasks("worker", 0, *[READY] * 32, *[STARTING] * 16, *[PENDING] * 16)
    assert line(HeaderForm.FULL, *many) == "workers ████▒▒░░ 32/64 starting 3 s"


async def test_the_header_has_the_line_at_every_width(run: ScriptedRun) -> None:
    """80 columns have its narrow form and what is waited for; more columns have the whole one."""
    run.task("ps:0", state=READY)
    run.task("worker:0", state=STARTING)
    run.change(waiting="worker:0 on tf2:2222", waiting_since=time.time())
    async with showing(run, (80, 24)) as (app, pilot):
        expected = "ps ✓ ▸ worker:0 ▸ worker:1–2 0/2  waiting for worker:0 on tf2:2222 — "
        await until(pilot, lambda: expected in screen_text(app)[0])
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: "▸ worker:0 ▒ starting" in screen_text(app)[0])
        assert "▸ worker:1–2 ░░ waiting  starting: waiting for worker:0" in screen_text(app)[0]
        run.all_tasks(state=READY)
        run.change(state=RunPhase.RUNNING)
        await until(pilot, lambda: " running " in screen_text(app)[0])
        assert "▸" not in screen_text(app)[0] and "mnist-async" in screen_text(app)[0]
