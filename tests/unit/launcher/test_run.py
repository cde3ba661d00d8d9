"""The run as a pure machine: events in, instructions out, no clock, no process, no network."""

from __future__ import annotations

import pytest

from launcher.run import events as ev
from launcher.run.events import ReadyDelay, ReadyTimeout, RestartDelay
from launcher.run.instructions import CheckHosts, SetTimer, StageHost
from launcher.run.snapshot import Survivor
from launcher.run.states import RunPhase, TaskState
from launcher.run.tasks import MAX_BACKOFF
from tests.support.run_driver import (
    CLUSTER,
    FACTS,
    RunDriver,
    kill,
    kills,
    name,
    running,
    staged,
    timers,
)

# --- order and readiness ------------------------------------------------------------------------


def test_checks_come_when_all_hosts_have_answered_and_staging_after_them() -> None:
    driver = RunDriver()
    assert driver.feed(ev.Begin) == []
    assert driver.up("a") == []
    assert driver.up("b") == [CheckHosts()]
    assert driver.feed(ev.HostsChecked, FACTS) == [StageHost("a"), StageHost("b")]
    assert driver.feed(ev.Staged, "b") == []
    assert driver.feed(ev.Staged, "a") == driver.start("ps:0")


def test_each_stage_waits_for_the_one_before() -> None:
    """ps until it listens, the chief until it listens, then all others at once."""
    driver = RunDriver()
    assert driver.staged() == driver.start("ps:0")
    assert driver.begun("ps:0") == []
    assert driver.feed(ev.TaskReady, name("ps:0"), 1) == driver.start("worker:0")
    assert driver.ready("worker:0") == driver.start("worker:1", "worker:2")
    assert driver.phase() is RunPhase.STARTING
    driver.ready("worker:1", "worker:2")
    assert driver.phase() is RunPhase.RUNNING
    assert {view.state for view in driver.seen.tasks} == {TaskState.READY}


def test_a_snapshot_names_the_stage_of_each_task() -> None:
    """By its number, for the default order and for one of the file's own."""
    stages = {str(task.id): task.stage for task in RunDriver().run.snapshot().tasks}
    assert stages == {"ps:0": 0, "worker:0": 1, "worker:1": 2, "worker:2": 2}
    own = '[start]\norder = [["worker:2"], ["ps", "worker"]]\n'
    stages = {str(task.id): task.stage for task in RunDriver(own).run.snapshot().tasks}
    assert stages == {"ps:0": 1, "worker:0": 1, "worker:1": 1, "worker:2": 0}


def test_who_waits_for_whom_is_said() -> None:
    driver = RunDriver()
    assert driver.seen.waiting == "a, b"
    driver.checked()
    assert (driver.phase(), driver.seen.waiting) == (RunPhase.STAGING, "a, b")
    driver.feed(ev.Staged, "b")
    assert driver.seen.waiting == "a"
    driver.feed(ev.Staged, "a")
    assert driver.seen.waiting == "ps:0 on a:2222"


def test_a_task_that_is_not_ready_in_time_has_failed() -> None:
    """The deadline of a ready task, or of an earlier attempt, means nothing."""
    driver = RunDriver(settings="[start]\ntimeout = 7")
    assert timers(driver.staged()) == {ReadyTimeout(name("ps:0"), 1): 7.0}
    driver.ready("ps:0")
    assert driver.fired(ReadyTimeout(name("ps:0"), 1)) == []
    driver.begun("worker:0")
    assert kills(driver.fired(ReadyTimeout(name("worker:0"), 1))) == [
        ("a", None, 5.0),
        ("b", None, 5.0),
    ]
    assert driver.state("worker:0") is TaskState.FAILED
    assert driver.failure.how == (
        "not ready after 7 s: it does not listen on port 2223; for a program that opens no port "
        'write ready = "auto" (ready in [jobs.worker], line 9)'
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            "[start.ready]\nps = { log = 'up' }\n",
            "no line of its log matches 'up' (ps in [start.ready], line 16)",
        ),
        ("[start.ready]\nps = { after = 900 }\n", "it was to live for 900 s (ps in [start.ready]"),
        (
            "[start.ready]\nps = 'auto'\n",
            "it has neither listened on port 2222, nor printed a metric line, nor lived for 5 s "
            "(ps in [start.ready], line 16)",
        ),
    ],
)
def test_a_timeout_says_what_was_waited_for(settings: str, said: str) -> None:
    """And which line of the file says so."""
    driver = staged(settings=settings)
    driver.begun("ps:0")
    driver.fired(ReadyTimeout(name("ps:0"), 1))
    assert driver.failure.how.startswith("not ready after 120 s: ") and said in driver.failure.how


@pytest.mark.parametrize("ready", ["'listening'", "'auto'", "'started'", "{ log = 'up' }"])
def test_a_process_that_was_never_started_did_not_miss_its_readiness(ready: str) -> None:
    """Nothing of the cluster file would change it."""
    driver = staged(settings=f"[start.ready]\nps = {ready}\n")
    driver.fired(ReadyTimeout(name("ps:0"), 1))
    assert driver.failure.how == "not ready after 120 s: its process was not started"


def test_a_port_that_somebody_holds_is_the_reason() -> None:
    driver = staged()
    driver.feed(ev.TaskStarted, name("ps:0"), 1, 99, port_holder="pid 7 of other/ps:0/1 (python)")
    driver.feed(ev.TaskExited, name("ps:0"), 1, 1, None, "pid 7 of other/ps:0/1 (python)")
    failure = driver.failure
    assert "exit 1, its port is held by pid 7 of other/ps:0/1 (python)" in failure.how


def test_ready_by_time_and_by_start() -> None:
    """`{ after = s }` sets a timer from the start; `started` is ready at once."""
    text = CLUSTER + '[start.ready]\nps = { after = 3.0 }\nworker = "started"\n'
    driver = staged(text=text)
    assert timers(driver.begun("ps:0")) == {ReadyDelay(name("ps:0"), 1): 3.0}
    assert driver.fired(ReadyDelay(name("ps:0"), 1)) == driver.start("worker:0")
    assert driver.begun("worker:0") == driver.start("worker:1", "worker:2")


def test_auto_is_ready_when_it_listens_prints_a_metric_line_or_has_lived() -> None:
    """Whichever comes first, of the attempt that runs now."""
    driver = staged("[start.ready]\nps = 'auto'\nworker = 'auto'\n")
    assert driver.feed(ev.MetricsSeen, name("ps:0")) == []  # of an earlier attempt: it is not begun
    assert timers(driver.begun("ps:0")) == {ReadyDelay(name("ps:0"), 1): 5.0}
    assert driver.feed(ev.TaskReady, name("ps:0"), 1) == driver.start("worker:0")
    assert driver.fired(ReadyDelay(name("ps:0"), 1)) == []
    driver.begun("worker:0")
    assert driver.feed(ev.MetricsSeen, name("worker:0")) == driver.start("worker:1", "worker:2")
    assert driver.state("worker:0") is TaskState.RUNNING
    driver.begun("worker:1", "worker:2")
    assert driver.fired(ReadyDelay(name("worker:1"), 1)) == []
    assert driver.fired(ReadyDelay(name("worker:2"), 1)) == []
    assert driver.phase() is RunPhase.RUNNING
    assert driver.state("worker:2") is TaskState.READY


def test_a_task_that_is_done_before_it_was_ready_does_not_hold_the_start_up() -> None:
    driver = staged('on_failure = "keep"')
    driver.ready("ps:0")
    driver.begun("worker:0")
    assert driver.exited("worker:0", 0) == driver.start("worker:1", "worker:2")


def test_metrics_make_ready_running_and_may_name_the_total_of_steps() -> None:
    driver = staged()
    assert driver.feed(ev.MetricsSeen, name("ps:0"), 500) == []
    assert (driver.state("ps:0"), driver.seen.total_steps) == (TaskState.STARTING, 500)
    driver.ready("ps:0")
    assert driver.feed(ev.MetricsSeen, name("ps:0")) == []
    assert (driver.state("ps:0"), driver.seen.total_steps) == (TaskState.RUNNING, 500)


# --- restarts -----------------------------------------------------------------------------------


def test_a_failed_task_is_started_again_after_a_growing_pause() -> None:
    """What the attempt left behind is killed; attempts are counted; the pause doubles."""
    driver = running('on_failure = "restart"\nmax_restarts = 2')
    out = driver.exited("worker:1", 1)
    pause = SetTimer(RestartDelay(name("worker:1"), 1), 1.0)
    assert out == [kill("b", "worker:1", 0.0), pause]
    assert driver.state("worker:1") is TaskState.BACKOFF
    driver.receipt("b", ["worker:1"])
    assert driver.fired(RestartDelay(name("worker:1"), 1)) == driver.start("worker:1", attempt=2)
    driver.ready("worker:1", attempt=2)
    assert timers(driver.exited("worker:1", 1, attempt=2)) == {
        RestartDelay(name("worker:1"), 2): 2.0
    }
    driver.receipt("b", ["worker:1"])
    driver.fired(RestartDelay(name("worker:1"), 2))
    driver.ready("worker:1", attempt=3)
    assert [a.number for a in driver.task("worker:1").attempts] == [1, 2, 3]
    assert driver.exited("worker:1", 1, attempt=3) == driver.shut_down()
    assert driver.state("worker:1") is TaskState.FAILED


def test_the_pause_is_bounded_and_attempts_of_long_ago_are_forgotten() -> None:
    """A snapshot has the last hundred of a task that is restarted for weeks."""
    driver = running('on_failure = "restart"\nmax_restarts = 1000')
    pauses: list[float] = []
    for attempt in range(1, 150):
        pauses += timers(driver.exited("worker:1", 1, attempt=attempt)).values()
        driver.receipt("b", ["worker:1"])
        driver.fired(RestartDelay(name("worker:1"), attempt))
        driver.ready("worker:1", attempt=attempt + 1)
    assert pauses == [1, 2, 4, 8, 16, *[MAX_BACKOFF] * 144]
    assert [a.number for a in driver.task("worker:1").attempts] == [*range(51, 151)]


def test_the_next_attempt_waits_until_the_last_one_is_seen_gone() -> None:
    """A kill that takes longer than the pause must not hit the next attempt."""
    driver = running('on_failure = "restart"')
    driver.exited("worker:1", 1)
    assert driver.fired(RestartDelay(name("worker:1"), 1)) == []
    assert driver.receipt("b", ["worker:1"]) == driver.start("worker:1", attempt=2)


def test_a_restart_by_hand_ends_the_task_first() -> None:
    """With the grace, or hard; the end of the old attempt is no failure."""
    for hard, grace in ((False, 5.0), (True, 0.0)):
        driver = running()
        out = driver.feed(ev.Restart, name("worker:1"), hard)
        assert kills(out) == [("b", ["worker:1"], grace)]
        assert driver.feed(ev.Restart, name("worker:1"), hard) == []  # pressed twice
        assert driver.exited("worker:1", None, "TERM") == []
        assert driver.state("worker:1") is TaskState.BACKOFF
        assert driver.receipt("b", ["worker:1"]) == driver.start("worker:1", attempt=2)
        assert driver.seen.first_failure is None


def test_a_restart_by_hand_during_the_pause_does_not_start_twice() -> None:
    driver = running('on_failure = "restart"')
    driver.exited("worker:1", 1)
    driver.feed(ev.Restart, name("worker:1"))
    assert driver.fired(RestartDelay(name("worker:1"), 1)) == []
    assert driver.receipt("b", ["worker:1"]) == driver.start("worker:1", attempt=2)
    assert driver.receipt("b", ["worker:1"]) == []


LEFT = (Survivor(77, "python train.py", "D"),)


@pytest.mark.parametrize("first", ["receipt", "pause"])
def test_no_attempt_begins_beside_a_survivor(first: str) -> None:
    """What cannot be ended writes into the same files and holds the same port: the task has failed,
    whether its receipt or the end of its pause comes first."""
    driver = running('on_failure = "restart"')
    driver.exited("worker:1", 1)
    pause = RestartDelay(name("worker:1"), 1)
    assert first == "receipt" or driver.fired(pause) == []
    assert driver.receipt("b", ["worker:1"], survivors=LEFT) == driver.shut_down()
    assert driver.fired(pause) == []
    assert driver.state("worker:1") is TaskState.FAILED
    assert driver.failure.how == (
        "not started again: 1 process left, such as pid 77 (D) python train.py"
    )


def test_a_restart_by_hand_waits_for_no_survivor() -> None:
    """Where the task itself has ended it has failed; where it lives it goes on, and may be
    restarted again."""
    driver = running('on_failure = "keep"')
    driver.feed(ev.Restart, name("worker:1"))
    driver.exited("worker:1", None, "TERM")
    assert driver.receipt("b", ["worker:1"], survivors=LEFT) == []
    assert driver.state("worker:1") is TaskState.FAILED
    driver.feed(ev.Restart, name("worker:2"))
    assert driver.receipt("b", ["worker:2"], survivors=LEFT) == []
    assert driver.state("worker:2") is TaskState.READY
    assert driver.seen.notes[-1].startswith("worker:2 on b is not started again: 1 process left")
    driver.feed(ev.Restart, name("worker:2"))
    driver.exited("worker:2", None, "KILL")
    assert driver.receipt("b", ["worker:2"]) == driver.start("worker:2", attempt=2)


def test_a_killed_worker_does_not_end_the_run_and_a_killed_chief_does(driver: RunDriver) -> None:
    assert driver.feed(ev.SignalTask, name("worker:2"), "KILL") == [kill("b", "worker:2", 0.0)]
    assert driver.exited("worker:2", None, "KILL") == []
    assert driver.state("worker:2") is TaskState.KILLED
    assert driver.feed(ev.SignalTask, name("worker:0"), "TERM") == [kill("a", "worker:0", 5.0)]
    assert driver.exited("worker:0", None, "TERM") == driver.shut_down()


def test_a_restart_that_is_due_is_forgotten_in_a_kill() -> None:
    """Its attempt before is seen gone only then: nothing is started any more."""
    driver = running('on_failure = "restart"')
    driver.exited("worker:1", 1)
    assert driver.fired(RestartDelay(name("worker:1"), 1)) == []
    driver.feed(ev.KillAll)
    assert driver.receipt("b", ["worker:1"]) == []
