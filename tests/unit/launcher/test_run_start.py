"""Start of a run, order, readiness and restarts: events in, instructions out, no clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.cluster.readiness import AUTO_SECONDS
from launcher.process.run_shell import Beginning, RunShell
from launcher.run import events as ev
from launcher.run import instructions as do
from launcher.run.events import ReadyDelay, ReadyTimeout, RestartDelay
from launcher.run.instructions import (
    CheckHosts,
    Instruction,
    KillHost,
    ReleaseTask,
    SetTimer,
    StageHost,
    StartTask,
    WatchSilence,
)
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import HostReceipt, Survivor
from launcher.run.states import Cause, RunPhase, TaskState
from launcher.run.tasks import MAX_BACKOFF
from launcher.store.runs import RunFolder
from tests.support.crash import failed
from tests.support.run_driver import (
    CLUSTER,
    FACTS,
    RunDriver,
    ends,
    kill,
    kills,
    name,
    running,
    staged,
    starts,
    timers,
)

# The run as a pure machine: events in, instructions out, no clock, no process, no network.

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
    driver = RunDriver(settings="[start]\ntimeout = 7\nready = { worker = 'listening' }")
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
        'write ready = "auto", for a slow one a longer timeout in [start] '
        "(worker in [start.ready], line 17)"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            "[start.ready]\nps = { log = 'up' }\n",
            "no line of its log matches 'up' (ps in [start.ready], line 16)",
        ),
        ("[start.ready]\nps = { after = 900 }\n", "it was to live for 900 s (ps in [start.ready]"),
    ],
)
def test_a_timeout_says_what_was_waited_for(settings: str, said: str) -> None:
    """And which line of the file says so."""
    driver = staged(settings=settings)
    driver.begun("ps:0")
    driver.fired(ReadyTimeout(name("ps:0"), 1))
    assert driver.failure.how.startswith("not ready after 120 s: ") and said in driver.failure.how


@pytest.mark.parametrize(
    ("jobs", "late", "fails"),
    [
        ("ps worker", "worker:0", False),
        ("ps worker", "worker:1", False),
        ("ps chief worker", "chief:0", False),
        ("master worker", "master:0", False),
        ("workers", "workers:1", False),
        ("ps", "ps:0", False),
        ("ps train", "ps:0", True),
        ("ps worker", "ps:0", True),
        ("ps auto", "auto:0", False),
        ("ps asked", "asked:0", True),
    ],
)
def test_only_a_port_that_others_need_or_the_file_asks_for_must_be_opened(
    jobs: str, late: str, fails: bool
) -> None:
    """Programs on one machine, or with a port of their own, open none that the file knows, and may
    print nothing for long; all others begin nevertheless."""
    ready = {"auto": 'ready = "auto"', "asked": 'ready = "listening"'}
    counts = {"chief": 1, "master": 1}
    text = "".join(
        f"[jobs.{job}]\ntasks = {[f'a:2{n}0{index}' for index in range(counts.get(job, 2))]}\n"
        f"{ready.get(job, '')}\n"
        for n, job in enumerate(jobs.split())
    )
    hosts = '[hosts.a]\nssh = "a"\n'
    driver = RunDriver(text=f'{hosts}{text}[run]\ncommand = ["train"]\n')
    driver.feed(ev.Begin)
    driver.up("a")
    driver.feed(ev.HostsChecked, FACTS)
    driver.feed(ev.Staged, "a")
    for task in driver.run.data.plan.stages[0]:
        if str(task) != late and driver.state(late) is TaskState.PENDING:
            driver.ready(str(task))
    while driver.state(late) is TaskState.PENDING:
        stage = driver.run.data.plan.stages[driver.run.data.run.stage]
        driver.ready(
            *(str(task) for task in stage if driver.state(str(task)) is TaskState.STARTING)
        )
    driver.begun(late)
    driver.fired(ReadyTimeout(name(late), 1))
    assert driver.state(late) is (TaskState.FAILED if fails else TaskState.READY)


def test_a_stage_begins_when_the_time_is_over_in_which_the_chief_could_listen() -> None:
    """A note says that the others have begun without its port; nothing is said of the last stage,
    for which nobody waits."""
    driver = staged()
    driver.ready("ps:0")
    driver.begun("worker:0")
    assert driver.fired(ReadyTimeout(name("worker:0"), 1)) == driver.start("worker:1", "worker:2")
    assert list(driver.seen.notes) == [
        "worker:0 on a lives, and has not listened on port 2223 for 120 s: the next stage does not "
        "wait for it any longer"
    ]
    driver.begun("worker:1", "worker:2")
    for late in ("worker:1", "worker:2"):
        driver.fired(ReadyTimeout(name(late), 1))
    assert driver.phase() is RunPhase.RUNNING and len(driver.seen.notes) == 1
    # They began two minutes after the chief, and may work, and print nothing, for as much longer.
    out = driver.exited("worker:0")
    assert out == [WatchSilence(name(task), 180.0) for task in ("worker:1", "worker:2")]


@pytest.mark.parametrize("task", ["ps:0", "worker:0"])
def test_a_metric_line_shows_that_a_task_works(task: str) -> None:
    """Also where its port is expected, but nobody has asked for it."""
    driver = staged()
    if task != "ps:0":
        driver.ready("ps:0")
    driver.begun(task)
    driver.feed(ev.MetricsSeen, name(task))
    assert driver.state(task) is TaskState.RUNNING
    asked = staged(settings="[start]\nready = { ps = 'listening' }\n")
    asked.begun("ps:0")
    asked.feed(ev.MetricsSeen, name("ps:0"))
    assert asked.state("ps:0") is TaskState.STARTING


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


# Warm start in the run's machine: later tasks import at once and are released stage by stage.

WARM = CLUSTER.replace('["x"]', '["python3", "x"]') + '[start]\nwarm = ["tensorflow"]\n'


@pytest.fixture
def warm() -> RunDriver:
    """A run whose ps starts and whose workers import."""
    return importing(WARM)


def importing(text: str) -> RunDriver:
    driver = staged(text=text)
    driver.begun("ps:0", "worker:0", "worker:1", "worker:2")
    return driver


def gated(out: list[Instruction]) -> list[str]:
    return [str(i.task.id) for i in out if isinstance(i, StartTask) and i.gated]


def released(out: list[Instruction]) -> list[tuple[str, int]]:
    return [(str(i.task.id), i.attempt) for i in out if isinstance(i, ReleaseTask)]


def states(driver: RunDriver) -> str:
    return " ".join(str(view.state) for view in driver.seen.tasks)


def test_later_tasks_import_while_the_first_stage_starts() -> None:
    """Their time limits begin when their stage comes."""
    driver = RunDriver(text=WARM)
    out = driver.staged()
    assert starts(out) == [("ps:0", 1), ("worker:0", 1), ("worker:1", 1), ("worker:2", 1)]
    assert gated(out) == ["worker:0", "worker:1", "worker:2"]
    assert list(timers(out)) == [ReadyTimeout(name("ps:0"), 1)]
    assert states(driver) == "starting warming warming warming"


def test_each_stage_is_released_when_the_one_before_is_ready(warm: RunDriver) -> None:
    """Nothing of a task counts before: neither its process nor a port makes it ready."""
    assert warm.feed(ev.TaskReady, name("worker:0"), 1) == []
    out = warm.ready("ps:0")
    assert released(out) == [("worker:0", 1)]
    assert timers(out) == {ReadyTimeout(name("worker:0"), 1): 120.0}
    assert states(warm) == "ready starting warming warming"
    assert warm.seen.waiting == "worker:0 on a:2223"
    out = warm.feed(ev.TaskReady, name("worker:0"), 1)
    assert released(out) == [("worker:1", 1), ("worker:2", 1)]
    warm.ready("worker:1", "worker:2")
    assert warm.phase() is RunPhase.RUNNING


def test_readiness_by_start_and_by_time_begins_with_the_release() -> None:
    """`started` is ready at once, `{ after = s }` counts from then."""
    text = WARM.replace('"a:2223", ', "") + "[start.ready]\nworker = { after = 3.0 }\n"
    text = text.replace("[jobs.worker]", '[jobs.chief]\ntasks = ["a:2223"]\n[jobs.worker]')
    driver = staged(text=text + 'chief = "started"\n')
    assert timers(driver.begun("chief:0", "worker:0")) == {}
    out = driver.ready("ps:0")
    assert released(out) == [("chief:0", 1), ("worker:0", 1), ("worker:1", 1)]
    assert timers(out)[ReadyDelay(name("worker:0"), 1)] == 3.0
    assert ReadyDelay(name("worker:1"), 1) not in timers(out)  # its process is not known yet
    assert states(driver) == "ready ready starting starting"
    assert timers(driver.begun("worker:1")) == {ReadyDelay(name("worker:1"), 1): 3.0}


def test_nothing_imports_beside_prepare_lines() -> None:
    """They may install the modules."""
    driver = RunDriver(text=WARM.replace("grace = 5", 'grace = 5\nprepare = ["pip install x"]'))
    out = driver.staged()
    assert starts(out) == [("prepare:0", 1), ("prepare:1", 1)] and gated(out) == []
    driver.begun("prepare:0", "prepare:1")
    driver.exited("prepare:0")
    out = driver.exited("prepare:1")
    assert gated(out) == ["worker:0", "worker:1", "worker:2"]


def test_a_failure_at_import_is_the_tasks_failure(warm: RunDriver) -> None:
    """A module that cannot be imported fails the run at once."""
    out = warm.feed(ev.TaskExited, name("worker:1"), 1, 1, None, tail=("no module x",))
    assert [i.host for i in out if isinstance(i, KillHost)] == ["a", "b"]
    assert (warm.failure.task, warm.failure.how) == (name("worker:1"), "exit 1")
    assert warm.failure.tail == ("no module x",)
    warm.receipt("a")
    assert ends(warm.receipt("b"))
    assert states(warm) == "stopped stopped failed stopped"


def test_a_restart_before_its_stage_imports_again() -> None:
    """The order holds for each attempt; when its stage has come, a restart waits for nothing."""
    driver = importing(WARM.replace("grace = 5", 'grace = 5\non_failure = "restart"'))
    driver.exited("worker:1", 1)
    driver.receipt("b", ["worker:1"])
    assert gated(driver.fired(RestartDelay(name("worker:1"), 1))) == ["worker:1"]
    assert driver.state("worker:1") is TaskState.WARMING
    driver.begun("worker:1", attempt=2)
    driver.feed(ev.Restart, name("worker:2"))
    driver.exited("worker:2", None, "TERM")
    assert gated(driver.receipt("b", ["worker:2"])) == ["worker:2"]
    driver.ready("ps:0")
    assert released(driver.ready("worker:0")) == [("worker:1", 2), ("worker:2", 2)]
    driver.feed(ev.Restart, name("worker:1"))
    driver.exited("worker:1", None, "TERM", attempt=2)
    out = driver.receipt("b", ["worker:1"])
    assert starts(out) == [("worker:1", 3)] and gated(out) == []


def test_a_task_that_waits_for_its_restart_does_not_lose_its_stage() -> None:
    """Its stage comes during the pause: it starts cold after it."""
    driver = importing(WARM.replace("grace = 5", 'grace = 5\non_failure = "restart"'))
    driver.exited("worker:0", 1)
    driver.receipt("a", ["worker:0"])
    assert released(driver.ready("ps:0")) == []
    out = driver.fired(RestartDelay(name("worker:0"), 1))
    assert starts(out) == [("worker:0", 2)] and gated(out) == []
    assert released(driver.ready("worker:0", attempt=2)) == [("worker:1", 1), ("worker:2", 1)]


def test_a_task_that_a_person_kills_at_its_gate_is_not_released(warm: RunDriver) -> None:
    """The others go on."""
    warm.feed(ev.SignalTask, name("worker:1"), "TERM")
    warm.exited("worker:1", None, "TERM")
    assert warm.state("worker:1") is TaskState.KILLED
    warm.ready("ps:0")
    assert released(warm.ready("worker:0")) == [("worker:2", 1)]


# --- cuts and launchers that die ----------------------------------------------------------------


def held(driver: RunDriver, host: str, at_gate: str = "") -> list[ev.HeldTask]:
    views = [view for view in driver.seen.tasks if view.host == host and view.attempt]
    return [ev.HeldTask(v.id, v.attempt, str(v.id) in at_gate.split()) for v in views]


def test_a_release_that_a_cut_has_swallowed_is_repeated(warm: RunDriver) -> None:
    """The stage comes while the host is lost: it waits for the task, and the host learns of it."""
    warm.ready("ps:0")
    warm.lost("b")
    assert warm.state("worker:1") is TaskState.LOST
    assert released(warm.ready("worker:0")) == [("worker:1", 1), ("worker:2", 1)]
    assert warm.phase() is RunPhase.STARTING
    out = warm.up("b", tasks=held(warm, "b", "worker:1 worker:2"))
    assert released(out) == [("worker:1", 1), ("worker:2", 1)]
    assert released(warm.up("b", tasks=held(warm, "b"))) == []


def test_a_start_that_a_cut_has_swallowed_is_repeated_as_it_is_wanted_now() -> None:
    """Before its stage at the gate, after it without one."""
    driver = staged(text=WARM)
    driver.lost("b")
    assert gated(driver.up("b")) == ["worker:1", "worker:2"]
    driver.lost("b")
    driver.ready("ps:0", "worker:0")
    out = driver.up("b")
    assert starts(out) == [("worker:1", 1), ("worker:2", 1)] and gated(out) == []


def attached(driver: RunDriver) -> None:
    driver.feed(ev.Attached)


def test_a_new_launcher_releases_what_waits(warm: RunDriver) -> None:
    """The stream knows who is at the gate; the stage goes on where it was."""
    attached(warm)
    warm.up("a", tasks=held(warm, "a", "worker:0"))
    warm.up("b", tasks=held(warm, "b", "worker:1 worker:2"))
    assert warm.feed(ev.HostsChecked, FACTS) == warm.start("ps:0")[1:]
    assert states(warm) == "starting warming warming warming"
    assert released(warm.feed(ev.TaskReady, name("ps:0"), 1)) == [("worker:0", 1)]


def test_a_new_launcher_repeats_a_release_that_was_not_sent(warm: RunDriver) -> None:
    """The launcher died between its stream and the host."""
    warm.ready("ps:0")
    attached(warm)
    assert released(warm.up("a", tasks=held(warm, "a", "worker:0"))) == [("worker:0", 1)]


def test_a_new_launcher_learns_of_a_release_that_is_in_no_stream(warm: RunDriver) -> None:
    attached(warm)
    warm.up("a", tasks=held(warm, "a"))
    assert warm.state("worker:0") is TaskState.STARTING
    warm.up("b", tasks=held(warm, "b", "worker:1 worker:2"))
    warm.feed(ev.HostsChecked, FACTS)
    warm.feed(ev.TaskReady, name("ps:0"), 1)
    assert released(warm.feed(ev.TaskReady, name("worker:0"), 1)) != []


def test_a_lost_host_keeps_its_stage_when_a_launcher_takes_over(warm: RunDriver) -> None:
    """Who waits there is released when the host is back."""
    warm.ready("ps:0")
    warm.ready("worker:0")
    warm.lost("b")
    attached(warm)
    warm.up("a", tasks=held(warm, "a"))
    warm.lost("b")
    warm.feed(ev.HostsChecked, FACTS)
    out = warm.up("b", tasks=held(warm, "b", "worker:1 worker:2"))
    assert released(out) == [("worker:1", 1), ("worker:2", 1)]


def test_attempts_that_are_in_no_stream_are_taken_over_at_their_gates() -> None:
    """The launcher died before it could note that it had started them."""
    driver = RunDriver(text=WARM)
    driver.checked()
    attached(driver)
    ids = {"a": ("ps:0", "worker:0"), "b": ("worker:1", "worker:2")}
    for host, tasks in ids.items():
        found = [ev.HeldTask(name(task), 1, task != "ps:0") for task in tasks]
        driver.up(host, tasks=found)
    assert states(driver) == "starting warming warming warming"
    assert driver.feed(ev.HostsChecked, FACTS) == driver.start("ps:0")[1:]
    assert released(driver.ready("ps:0")) == [("worker:0", 1)]


def test_automatic_readiness_begins_with_the_release() -> None:
    driver = staged(text=WARM + '[start.ready]\nworker = "auto"\n')
    assert timers(driver.begun("worker:0")) == {}
    out = driver.ready("ps:0")
    assert timers(out)[ReadyDelay(name("worker:0"), 1)] == AUTO_SECONDS


# Starts that a host refuses since the run has ended there, and receipts that came before them.

ENDED = "the run has been ended on this host"


def refused(driver: RunDriver, task: str, attempt: int = 1) -> list[object]:
    return list(driver.feed(ev.TaskStarted, name(task), attempt, 0, 0, ENDED, "", True))


@pytest.mark.parametrize("on_failure", ["stop", "keep", "restart", "restart-all"])
def test_a_run_that_somebody_has_ended_on_a_host_ends(on_failure: str) -> None:
    """Whatever follows a failure: no attempt of any task would be started there."""
    driver = staged(f'on_failure = "{on_failure}"')
    out = driver.feed(ev.TaskStarted, name("ps:0"), 1, 0, 0, ENDED, "", True)
    assert kills(out) == [("a", None, 5.0), ("b", None, 5.0)] and not starts(out)
    assert driver.phase() is RunPhase.KILLING and driver.seen.cause is Cause.OUTSIDE
    assert driver.failure.task == name("ps:0") and driver.failure.how == ENDED
    assert driver.state("ps:0") is TaskState.STOPPED


def test_a_start_that_is_refused_in_the_runs_own_end_is_no_failure() -> None:
    """A start may be on its way when the kill is sent: its task was ended with the others."""
    driver = running('on_failure = "restart"\n')
    driver.exited("worker:1", 1)
    driver.fired(ev.RestartDelay(name("worker:1"), 1))
    driver.receipt("b", ["worker:1"])
    assert driver.state("worker:1") is TaskState.STARTING
    driver.feed(ev.KillAll)
    assert refused(driver, "worker:1", 2) == []
    assert driver.state("worker:1") is TaskState.KILLED
    assert driver.seen.first_failure is None


def test_a_receipt_that_was_asked_for_is_no_last_word() -> None:
    """Given the receipt of a kill after which the next attempt has begun, when the agent is gone
    for good and the run ends, then that receipt proves nothing of it."""
    driver = running('on_failure = "restart-all"\n')
    driver.exited("worker:1", 1)
    for host in ("a", "b"):
        driver.feed(ev.ReceiptReceived, HostReceipt(host, confirmed=True), None, True)
    driver.feed(ev.PortsPicked, {})
    driver.feed(ev.ReceiptReceived, HostReceipt("b", confirmed=True), None, True)  # once more
    driver.feed(ev.HostLost, "b", "its agent has gone", 0.0, agent_gone=True)
    driver.feed(ev.KillAll)
    driver.receipt("a")
    assert driver.seen.receipt is not None
    assert [h.host for h in driver.seen.receipt.hosts if not h.confirmed] == ["b"]


def test_what_an_agent_said_before_an_attempt_says_nothing_of_it() -> None:
    """Given an agent that has ended everything by itself, and a task that was started there since,
    when the agent is gone for good, then its word is no receipt of the run."""
    driver = running('on_failure = "restart"\n')
    driver.feed(ev.ReceiptReceived, HostReceipt("b", confirmed=True), None)
    driver.exited("worker:1", 1)
    driver.fired(ev.RestartDelay(name("worker:1"), 1))
    assert starts(driver.receipt("b", ["worker:1"])) == [("worker:1", 2)]
    driver.feed(ev.HostLost, "b", "its agent has gone", 0.0, agent_gone=True)
    driver.feed(ev.KillAll)
    driver.receipt("a")
    assert driver.seen.receipt is not None
    assert [h.host for h in driver.seen.receipt.hosts if not h.confirmed] == ["b"]


def test_nothing_is_started_while_the_others_are_looked_at() -> None:
    """The end is decided with the failure, and comes when that look is over: meanwhile no stage
    begins, no host that is back is told to start, and no attempt follows."""
    driver = staged()
    driver.begun("ps:0")
    driver.lost("b")
    driver.ready("ps:0")
    driver.begun("worker:0")
    driver.exited("worker:0", 1, misses_peer=True)
    assert driver.phase() is RunPhase.STARTING and driver.seen.cause is Cause.FAILURE
    assert starts(driver.up("b")) == []
    assert starts(driver.feed(ev.Restart, name("worker:0"), hard=True)) == []
    out = driver.fired(ev.LookTimeout(name("worker:0")))
    assert len(kills(out)) == 2 and driver.phase() is RunPhase.KILLING


@pytest.mark.parametrize("on_failure", ["stop", "keep", "restart"])
def test_a_start_that_an_agent_refuses_since_it_ends_is_an_end_from_outside(
    on_failure: str,
) -> None:
    """Its host shuts down, say: the task has not failed, and may start again where the rules say
    so."""
    driver = staged(f'on_failure = "{on_failure}"')
    why = "the agent was told to stop"
    driver.feed(ev.TaskStarted, name("ps:0"), 1, 0, error="the run is being ended", agent_ends=why)
    again = on_failure == "restart"
    assert driver.state("ps:0") is (TaskState.BACKOFF if again else TaskState.STOPPED)
    assert again or driver.failure.how == f"not started, ended from outside: {why}"
    assert driver.seen.tasks[0].reason == why


# Events that come while another one's instructions are carried out: they wait for its end.

TEXT = """
[hosts.a]
ssh = "a"
[hosts.b]
ssh = "b"
[jobs.w]
tasks = ["a:1", "b:1", "b:2"]
[run]
command = ["true"]
workdir = ""
"""


class Recorder:
    """An executor that tells of a failure while it carries the first start out, as it does where
    that fits into no frame."""

    def __init__(self, shell: RunShell) -> None:
        self._shell = shell
        self.done: list[do.Instruction] = []

    def carry_out(self, what: do.Instruction) -> None:
        self.done.append(what)
        first = isinstance(what, do.StartTask) and len(self.starts) == 1
        if first and isinstance(what, do.StartTask):
            self._shell.feed(ev.TaskStarted(2.0, what.task.id, 1, 0, error="too long"))

    @property
    def starts(self) -> list[do.Instruction]:
        return [one for one in self.done if isinstance(one, do.StartTask)]


async def test_a_kill_comes_behind_all_starts_of_the_event_before(tmp_path: Path) -> None:
    """Given a start whose error ends the run, when more starts of the same event follow, then the
    kill is carried out behind them, not among them."""
    cluster = loads(TEXT, "c.toml", tmp_path)
    folder = RunFolder.create("c-20261120-183002-0001", TEXT, cluster)
    machine = RunStateMachine(cluster, folder.run_id, 1.0)
    shell = RunShell(folder, machine, Beginning(ev.Begin(1.0)), failed)
    recorder = Recorder(shell)
    shell._executor, shell._early = recorder, None  # type: ignore[assignment]
    for event in (
        ev.HostUp(1.0, "a"),
        ev.HostUp(1.0, "b"),
        ev.HostsChecked(1.0, {}),
        ev.Staged(1.0, "a"),
        ev.Staged(1.0, "b"),
    ):
        shell.feed(event)
    shell.parts.outputs.monitor.close()
    shell.writer.close()
    kinds = [type(one) for one in recorder.done]
    assert len(recorder.starts) == 3 and kinds.count(do.KillHost) == 2
    assert kinds.index(do.KillHost) > max(
        at for at, kind in enumerate(kinds) if kind is do.StartTask
    )
