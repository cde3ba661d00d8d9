"""The run as a pure machine: events in, instructions out, no clock, no process, no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.file import loads
from launcher.ids import TaskId
from launcher.plan.model import HostFacts
from launcher.run import events as ev
from launcher.run.events import Event
from launcher.run.instructions import (
    CheckHosts,
    End,
    Instruction,
    KillHost,
    LookElsewhere,
    ReleaseHost,
    SetTimer,
    StageHost,
    StartTask,
    WatchSilence,
)
from launcher.run.run import Run
from launcher.run.shutdown import CONNECT_SECONDS, KILL_PATIENCE
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Snapshot, Survivor, TaskView
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from launcher.run.tasks import MAX_BACKOFF
from launcher.run.timers import (
    LeaseEnd,
    ReadyDelay,
    ReadyTimeout,
    RestartDelay,
    ShutdownTimeout,
    TakeoverEnd,
    Timer,
)

CLUSTER = """
name = "t"
[hosts.a]
ssh = "a"
[hosts.b]
ssh = "b"
[jobs.ps]
tasks = ["a:2222"]
[jobs.worker]
tasks = ["a:2223", "b:2222", "b:2223"]
[run]
command = ["x"]
grace = 5
lease = 60
"""


FACTS = {"a": HostFacts(home="/h"), "b": HostFacts(home="/h")}


def name(text: str) -> TaskId:
    return TaskId.parse(text)


class RunDriver:
    """A run that is told what happens, a second after each other."""

    def __init__(self, settings: str = "", jobs: str = "", text: str = CLUSTER) -> None:
        cluster = loads(text + settings + jobs, "cluster.toml", Path("/srv"))
        self.now = 1000.0
        self.run = Run(cluster, "r", self.now)

    def tell(self, kind: type[Event], *words: Any, **fields: Any) -> list[Instruction]:
        """Lets something happen; returns what the run wants done."""
        self.now += 1
        out = self.run.handle(kind(self.now, *words, **fields))
        self.run.validate()
        return out

    def start(self, *tasks: str, attempt: int = 1) -> list[Instruction]:
        """The instructions that start an attempt of each."""
        out: list[Instruction] = []
        for task in map(name, tasks):
            out.append(StartTask(self.run.plan.task(task), attempt))
            out.append(SetTimer(ReadyTimeout(task, attempt), self.run.plan.start_timeout))
        return out

    def shut_down(self, *hosts: str) -> list[Instruction]:
        """The instructions that end everything, with the grace."""
        kills = [KillHost(host, None, 5.0) for host in hosts or ("a", "b")]
        return [*kills, SetTimer(ShutdownTimeout(), 13.0)]

    def end(
        self, outcome: Outcome, code: int, hosts: Sequence[str] = ("a", "b")
    ) -> list[Instruction]:
        """The instructions at the end of a run whose hosts have confirmed."""
        return [*map(ReleaseHost, hosts), End(outcome, code)]

    @property
    def seen(self) -> Snapshot:
        return self.run.snapshot()

    @property
    def failure(self) -> Failure:
        assert self.seen.first_failure is not None
        return self.seen.first_failure

    def phase(self) -> RunPhase:
        return self.seen.state

    def task(self, task: str) -> TaskView:
        return self.seen.task(name(task))

    def state(self, task: str) -> TaskState:
        return self.task(task).state

    def up(self, *hosts: str, tasks: Sequence[ev.HeldTask] = (), agent_exit: str = "") -> Any:
        return [i for host in hosts for i in self.tell(ev.HostUp, host, tuple(tasks), agent_exit)]

    def lost(self, host: str, lease: float = 60.0) -> list[Instruction]:
        return self.tell(ev.HostLost, host, "silence", self.now + 1 + lease)

    def checked(self) -> None:
        """All hosts up and checked."""
        self.tell(ev.Begin)
        self.up("a", "b")
        self.tell(ev.HostsChecked, FACTS)

    def staged(self) -> list[Instruction]:
        """All hosts up, checked and staged; the first stage starts."""
        self.checked()
        return [i for host in ("a", "b") for i in self.tell(ev.Staged, host)]

    def begun(self, *tasks: str, attempt: int = 1) -> list[Instruction]:
        return [
            i
            for n, t in enumerate(tasks, 100)
            for i in self.tell(ev.TaskStarted, name(t), attempt, n)
        ]

    def ready(self, *tasks: str, attempt: int = 1) -> list[Instruction]:
        """Tasks start and become ready, one after the other."""
        out = []
        for task in tasks:
            self.begun(task, attempt=attempt)
            out += self.tell(ev.TaskReady, name(task), attempt)
        return out

    def running(self) -> None:
        """The whole cluster is ready."""
        self.staged()
        self.ready("ps:0", "worker:0", "worker:1", "worker:2")

    def exited(
        self, task: str, status: int | None = 0, signal: str | None = None, attempt: int = 1
    ) -> list[Instruction]:
        return self.tell(ev.TaskExited, name(task), attempt, status, signal)

    def receipt(self, host: str, tasks: Sequence[str] | None = None, **fields: Any) -> Any:
        named = None if tasks is None else tuple(name(t) for t in tasks)
        return self.tell(ev.ReceiptReceived, HostReceipt(host, confirmed=True, **fields), named)

    def confirmed(self) -> Any:
        """Both hosts confirm that nothing is left, one after the other."""
        return self.receipt("a") + self.receipt("b")

    def fired(self, timer: Timer) -> list[Instruction]:
        return self.tell(ev.TimerFired, timer)


@pytest.fixture
def driver() -> RunDriver:
    """A run whose whole cluster is ready."""
    driver = RunDriver()
    driver.running()
    return driver


def kill(host: str, task: str, grace: float) -> Instruction:
    return KillHost(host, (name(task),), grace)


def starts(out: Sequence[Instruction]) -> list[tuple[str, int]]:
    return [(str(i.task.id), i.attempt) for i in out if isinstance(i, StartTask)]


def kills(out: Sequence[Instruction]) -> list[tuple[str, list[str] | None, float]]:
    return [
        (i.host, None if i.tasks is None else [str(t) for t in i.tasks], i.grace)
        for i in out
        if isinstance(i, KillHost)
    ]


def timers(out: Sequence[Instruction]) -> dict[Timer, float]:
    return {i.timer: i.seconds for i in out if isinstance(i, SetTimer)}


def ends(out: Sequence[Instruction]) -> list[tuple[Outcome, int]]:
    return [(i.outcome, i.exit_code) for i in out if isinstance(i, End)]


# --- order and readiness ------------------------------------------------------------------------


def test_checks_come_when_all_hosts_have_answered_and_staging_after_them() -> None:
    driver = RunDriver()
    assert driver.tell(ev.Begin) == []
    assert driver.up("a") == []
    assert driver.up("b") == [CheckHosts()]
    assert driver.tell(ev.HostsChecked, FACTS) == [StageHost("a"), StageHost("b")]
    assert driver.tell(ev.Staged, "b") == []
    assert driver.tell(ev.Staged, "a") == driver.start("ps:0")


def test_each_stage_waits_for_the_one_before() -> None:
    """ps until it listens, the chief until it listens, then all others at once."""
    driver = RunDriver()
    assert driver.staged() == driver.start("ps:0")
    assert driver.begun("ps:0") == []
    assert driver.tell(ev.TaskReady, name("ps:0"), 1) == driver.start("worker:0")
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
    driver.staged()
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
        ("[start.ready]\nps = 'auto'\n", "its process was not started"),
    ],
)
def test_a_timeout_says_what_was_waited_for(settings: str, said: str) -> None:
    """And which line of the file says so."""
    driver = RunDriver(settings=settings)
    driver.staged()
    driver.fired(ReadyTimeout(name("ps:0"), 1))
    assert driver.failure.how.startswith("not ready after 120 s: ") and said in driver.failure.how


def test_a_port_that_somebody_holds_is_the_reason() -> None:
    driver = RunDriver()
    driver.staged()
    driver.tell(ev.TaskStarted, name("ps:0"), 1, 99, port_holder="pid 7 of other/ps:0/1 (python)")
    driver.tell(ev.TaskExited, name("ps:0"), 1, 1, None, "pid 7 of other/ps:0/1 (python)")
    failure = driver.failure
    assert "exit 1, its port is held by pid 7 of other/ps:0/1 (python)" in failure.how


def test_ready_by_time_and_by_start() -> None:
    """`{ after = s }` sets a timer from the start; `started` is ready at once."""
    text = CLUSTER + '[start.ready]\nps = { after = 3.0 }\nworker = "started"\n'
    driver = RunDriver(text=text)
    driver.staged()
    assert timers(driver.begun("ps:0")) == {ReadyDelay(name("ps:0"), 1): 3.0}
    assert driver.fired(ReadyDelay(name("ps:0"), 1)) == driver.start("worker:0")
    assert driver.begun("worker:0") == driver.start("worker:1", "worker:2")


def test_auto_is_ready_when_it_listens_prints_a_metric_line_or_has_lived() -> None:
    """Whichever comes first, of the attempt that runs now."""
    driver = RunDriver(settings="[start.ready]\nps = 'auto'\nworker = 'auto'\n")
    driver.staged()
    assert driver.tell(ev.MetricsSeen, name("ps:0")) == []  # of an earlier attempt: it is not begun
    assert timers(driver.begun("ps:0")) == {ReadyDelay(name("ps:0"), 1): 5.0}
    assert driver.tell(ev.TaskReady, name("ps:0"), 1) == driver.start("worker:0")
    assert driver.fired(ReadyDelay(name("ps:0"), 1)) == []
    driver.begun("worker:0")
    assert driver.tell(ev.MetricsSeen, name("worker:0")) == driver.start("worker:1", "worker:2")
    assert driver.state("worker:0") is TaskState.RUNNING
    driver.begun("worker:1", "worker:2")
    assert driver.fired(ReadyDelay(name("worker:1"), 1)) == []
    assert driver.fired(ReadyDelay(name("worker:2"), 1)) == []
    assert driver.phase() is RunPhase.RUNNING
    assert driver.state("worker:2") is TaskState.READY


def test_a_task_that_is_done_before_it_was_ready_does_not_hold_the_start_up() -> None:
    driver = RunDriver(settings='on_failure = "keep"')
    driver.staged()
    driver.ready("ps:0")
    driver.begun("worker:0")
    assert driver.exited("worker:0", 0) == driver.start("worker:1", "worker:2")


def test_metrics_make_ready_running_and_may_name_the_total_of_steps() -> None:
    driver = RunDriver()
    driver.staged()
    assert driver.tell(ev.MetricsSeen, name("ps:0"), 500) == []
    assert (driver.state("ps:0"), driver.seen.total_steps) == (TaskState.STARTING, 500)
    driver.ready("ps:0")
    assert driver.tell(ev.MetricsSeen, name("ps:0")) == []
    assert (driver.state("ps:0"), driver.seen.total_steps) == (TaskState.RUNNING, 500)


# --- the end ------------------------------------------------------------------------------------


def test_when_the_chief_is_done_the_others_may_finish_and_the_ps_is_stopped(
    driver: RunDriver,
) -> None:
    out = driver.exited("worker:0")
    assert driver.phase() is RunPhase.FINISHING
    assert out == [
        WatchSilence(name("worker:1"), 60.0),
        WatchSilence(name("worker:2"), 60.0),
    ]
    assert driver.exited("worker:1") == []
    assert driver.exited("worker:2") == driver.shut_down()
    driver.exited("ps:0", None, "TERM")
    assert driver.receipt("a") == []
    out = driver.receipt("b")
    assert out == [ReleaseHost("a"), ReleaseHost("b"), End(Outcome.SUCCESS, 0)]
    assert driver.state("ps:0") is TaskState.STOPPED
    assert driver.state("worker:1") is TaskState.EXITED


def test_success_all_waits_for_everybody() -> None:
    """Without a deciding chief silence is watched only once a task of the job has ended."""
    driver = RunDriver(settings='success = "all"')
    driver.running()
    assert driver.exited("worker:0") == [
        WatchSilence(name("worker:1"), 60.0),
        WatchSilence(name("worker:2"), 60.0),
    ]
    assert driver.phase() is RunPhase.RUNNING
    driver.exited("worker:2")
    assert kills(driver.exited("worker:1"))
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_a_program_that_hangs_at_its_end_is_named_and_has_failed(driver: RunDriver) -> None:
    driver.exited("worker:0")
    driver.exited("worker:1")
    out = driver.tell(ev.OutputStalled, name("worker:2"), 60.0)
    assert out == [kill("b", "worker:2", 5.0)]
    assert "hangs at its end" in driver.task("worker:2").reason
    assert driver.exited("worker:2", None, "TERM") == driver.shut_down()
    assert driver.confirmed() == driver.end(Outcome.FAILED, 1)


def test_workers_that_only_serve_a_chief_are_stopped_by_the_rule() -> None:
    """Beside a chief of a job of its own, workers that `join()` never end by themselves."""
    jobs = '[jobs.chief]\ntasks = ["a:2224"]\n'
    driver = RunDriver(settings='success = "chief"\n', jobs=jobs)
    driver.staged()
    driver.ready("ps:0", "chief:0", "worker:0", "worker:1", "worker:2")
    driver.exited("chief:0")
    for worker, host in (("worker:0", "a"), ("worker:1", "b"), ("worker:2", "b")):
        out = driver.tell(ev.OutputStalled, name(worker), 60.0)
        assert kills(out) == [(host, [worker], 5.0)]
        out = driver.exited(worker, None, "TERM")
        assert driver.state(worker) is TaskState.STOPPED
    assert out == driver.shut_down()
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_a_worker_that_hangs_while_others_have_ended_is_no_server() -> None:
    """Where one worker has ended by itself, its like are expected to."""
    jobs = '[jobs.chief]\ntasks = ["a:2224"]\n'
    driver = RunDriver(settings='success = "chief"\n', jobs=jobs)
    driver.staged()
    driver.ready("ps:0", "chief:0", "worker:0", "worker:1", "worker:2")
    driver.exited("chief:0")
    driver.exited("worker:0")
    driver.tell(ev.OutputStalled, name("worker:1"), 60.0)
    assert "hangs at its end" in driver.task("worker:1").reason
    driver.exited("worker:1", None, "TERM")
    assert driver.state("worker:1") is TaskState.FAILED


def test_silence_of_a_lost_host_is_not_a_hang(driver: RunDriver) -> None:
    """It is we who hear nothing; the watch goes on."""
    driver.exited("worker:0")
    driver.lost("b")
    assert driver.tell(ev.OutputStalled, name("worker:2"), 60.0) == [
        WatchSilence(name("worker:2"), 60.0)
    ]
    assert driver.state("worker:2") is TaskState.LOST


def test_a_ps_that_fails_stops_the_run_even_under_keep() -> None:
    driver = RunDriver(settings='on_failure = "keep"')
    driver.running()
    assert driver.exited("ps:0", 3) == driver.shut_down()
    assert (str(driver.failure.task), driver.failure.how) == ("ps:0", "exit 3")


def test_a_worker_that_fails_under_keep_is_a_failure_at_the_end() -> None:
    driver = RunDriver(settings='on_failure = "keep"')
    driver.running()
    assert driver.exited("worker:1", 1) == []
    driver.exited("worker:0")
    assert kills(driver.exited("worker:2"))
    assert driver.confirmed() == driver.end(Outcome.FAILED, 1)


def test_the_first_failure_is_the_headline_and_the_others_stand_below() -> None:
    driver = RunDriver(settings='on_failure = "keep"')
    driver.running()
    driver.tell(ev.TaskExited, name("worker:2"), 1, None, "SEGV", "", ("last words",))
    driver.exited("worker:1", 1)
    failure = driver.failure
    assert (str(failure.task), failure.how, failure.tail) == (
        "worker:2",
        "killed by SEGV",
        ("last words",),
    )
    assert failure.others == (name("worker:1"),)


def test_a_helpers_failure_is_shown_and_ends_nothing() -> None:
    jobs = '[jobs.board]\ntasks = ["b:6006"]\nin_cluster = false\ncommand = ["y"]\n'
    driver = RunDriver(jobs=jobs)
    driver.running()
    driver.begun("board:0")
    assert driver.exited("board:0", 9) == []
    assert driver.state("board:0") is TaskState.FAILED
    assert driver.seen.first_failure is None
    assert any("board:0" in note for note in driver.seen.notes)
    driver.exited("worker:0")
    driver.exited("worker:1")
    assert kills(driver.exited("worker:2"))
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_the_end_of_an_earlier_attempt_says_nothing_of_the_present_one() -> None:
    driver = RunDriver(settings='on_failure = "restart"')
    driver.running()
    driver.exited("worker:1", 1)
    driver.receipt("b", ["worker:1"])
    driver.fired(RestartDelay(name("worker:1"), 1))
    assert driver.exited("worker:1", 1, attempt=1) == []
    assert driver.state("worker:1") is TaskState.STARTING


# --- restarts -----------------------------------------------------------------------------------


def test_a_failed_task_is_started_again_after_a_growing_pause() -> None:
    """What the attempt left behind is killed; attempts are counted; the pause doubles."""
    driver = RunDriver(settings='on_failure = "restart"\nmax_restarts = 2')
    driver.running()
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


def test_the_pause_is_bounded() -> None:
    driver = RunDriver(settings='on_failure = "restart"\nmax_restarts = 9')
    driver.running()
    pauses: list[float] = []
    for attempt in range(1, 9):
        out = driver.exited("worker:1", 1, attempt=attempt)
        pauses += timers(out).values()
        driver.receipt("b", ["worker:1"])
        driver.fired(RestartDelay(name("worker:1"), attempt))
        driver.ready("worker:1", attempt=attempt + 1)
    assert pauses == [1, 2, 4, 8, 16, MAX_BACKOFF, MAX_BACKOFF, MAX_BACKOFF]


def test_the_next_attempt_waits_until_the_last_one_is_seen_gone() -> None:
    """A kill that takes longer than the pause must not hit the next attempt."""
    driver = RunDriver(settings='on_failure = "restart"')
    driver.running()
    driver.exited("worker:1", 1)
    assert driver.fired(RestartDelay(name("worker:1"), 1)) == []
    assert driver.receipt("b", ["worker:1"]) == driver.start("worker:1", attempt=2)


def test_a_restart_by_hand_ends_the_task_first() -> None:
    """With the grace, or hard; the end of the old attempt is no failure."""
    for hard, grace in ((False, 5.0), (True, 0.0)):
        driver = RunDriver()
        driver.running()
        out = driver.tell(ev.Restart, name("worker:1"), hard)
        assert kills(out) == [("b", ["worker:1"], grace)]
        assert driver.tell(ev.Restart, name("worker:1"), hard) == []  # pressed twice
        assert driver.exited("worker:1", None, "TERM") == []
        assert driver.state("worker:1") is TaskState.BACKOFF
        assert driver.receipt("b", ["worker:1"]) == driver.start("worker:1", attempt=2)
        assert driver.seen.first_failure is None


def test_a_restart_by_hand_during_the_pause_does_not_start_twice() -> None:
    driver = RunDriver(settings='on_failure = "restart"')
    driver.running()
    driver.exited("worker:1", 1)
    driver.tell(ev.Restart, name("worker:1"))
    assert driver.fired(RestartDelay(name("worker:1"), 1)) == []
    assert driver.receipt("b", ["worker:1"]) == driver.start("worker:1", attempt=2)
    assert driver.receipt("b", ["worker:1"]) == []


def test_a_killed_worker_does_not_end_the_run_and_a_killed_chief_does(driver: RunDriver) -> None:
    assert driver.tell(ev.SignalTask, name("worker:2"), "KILL") == [kill("b", "worker:2", 0.0)]
    assert driver.exited("worker:2", None, "KILL") == []
    assert driver.state("worker:2") is TaskState.KILLED
    assert driver.tell(ev.SignalTask, name("worker:0"), "TERM") == [kill("a", "worker:0", 5.0)]
    assert driver.exited("worker:0", None, "TERM") == driver.shut_down()


# --- kill-all -----------------------------------------------------------------------------------


def test_kill_all_is_one_broadcast_and_ends_in_a_receipt(driver: RunDriver) -> None:
    out = driver.tell(ev.KillAll)
    assert out == driver.shut_down()
    assert driver.seen.kill_deadline == driver.now + 5
    driver.exited("ps:0", None, "TERM")
    assert driver.receipt("a", signalled=2) == []
    assert driver.receipt("b", signalled=3) == driver.end(Outcome.KILLED, 130)
    receipt = driver.seen.receipt
    assert receipt is not None and receipt.clean
    assert [(h.host, h.signalled) for h in receipt.hosts] == [("a", 2), ("b", 3)]
    assert {view.state for view in driver.seen.tasks} == {TaskState.KILLED}


def test_a_second_press_kills_now_only_where_something_is_left(driver: RunDriver) -> None:
    driver.tell(ev.KillAll)
    driver.receipt("a")
    assert driver.tell(ev.KillAll) == [KillHost("b", None, 0.0)]
    assert driver.tell(ev.KillAll) == [KillHost("b", None, 0.0)]
    assert driver.receipt("b") == driver.end(Outcome.KILLED, 130)
    assert driver.tell(ev.KillAll) == []


def test_by_term_the_exit_code_is_another(driver: RunDriver) -> None:
    driver.tell(ev.KillAll, by_person=False)
    assert driver.confirmed() == driver.end(Outcome.TERMINATED, 143)


def test_nothing_starts_any_more_once_everything_is_being_ended() -> None:
    driver = RunDriver(settings='on_failure = "restart"')
    driver.staged()
    driver.begun("ps:0")
    driver.tell(ev.KillAll)
    assert driver.tell(ev.TaskReady, name("ps:0"), 1) == []
    assert driver.exited("ps:0", 1) == []
    assert driver.fired(RestartDelay(name("ps:0"), 1)) == []
    assert driver.confirmed() == driver.end(Outcome.KILLED, 130)
    assert driver.state("worker:1") is TaskState.PENDING


def test_kill_before_any_host_was_contacted_ends_at_once() -> None:
    driver = RunDriver()
    driver.tell(ev.Begin)
    assert driver.tell(ev.KillAll) == driver.end(Outcome.KILLED, 130, ())


def test_kill_while_staging_reaches_every_host_that_was_met() -> None:
    driver = RunDriver()
    driver.checked()
    assert driver.tell(ev.KillAll) == driver.shut_down()
    assert driver.tell(ev.Staged, "a") == []
    assert driver.confirmed() == driver.end(Outcome.KILLED, 130)


def test_survivors_are_reported_and_the_exit_code_says_unconfirmed(driver: RunDriver) -> None:
    driver.tell(ev.KillAll)
    driver.receipt("a")
    out = driver.receipt("b", survivors=(Survivor(7, "stuck", "D"),))
    assert out == driver.end(Outcome.KILLED, 4)
    assert driver.state("worker:1") is not TaskState.KILLED


def test_an_agent_that_acted_alone_is_not_the_receipt_of_a_kill(driver: RunDriver) -> None:
    """Its lease had ended while we slept: its receipt is not ours to end the run with."""
    assert driver.receipt("a") == [] and driver.receipt("b") == []
    assert driver.phase() is RunPhase.RUNNING


# --- lost hosts ---------------------------------------------------------------------------------


def test_a_lost_host_is_shown_apart_and_comes_back(driver: RunDriver) -> None:
    """Its tasks are `lost`, not failed, and have their true state again afterwards."""
    driver.tell(ev.MetricsSeen, name("worker:1"))
    out = driver.lost("b", lease=60)
    assert timers(out) == {LeaseEnd("b"): pytest.approx(60 + 5 + 8)}
    assert driver.state("worker:1") is TaskState.LOST
    assert driver.state("worker:0") is TaskState.READY
    kept = [held("worker:1"), held("worker:2")]
    assert driver.up("b", tasks=kept) == []
    assert driver.state("worker:1") is TaskState.RUNNING
    assert driver.state("worker:2") is TaskState.READY
    assert driver.fired(LeaseEnd("b")) == []


def held(task: str, attempt: int = 1) -> ev.HeldTask:
    return ev.HeldTask(name(task), attempt)


def test_a_start_that_got_lost_is_repeated_and_one_that_arrived_is_not() -> None:
    driver = RunDriver()
    driver.staged()
    driver.ready("ps:0")
    driver.ready("worker:0")
    driver.begun("worker:2")
    driver.lost("b")
    assert driver.up("b", tasks=[held("worker:2")]) == driver.start("worker:1")[:1]


def test_a_task_that_a_new_agent_does_not_know_has_ended(driver: RunDriver) -> None:
    """The agent died meanwhile, and its tasks with it."""
    driver.lost("b")
    out = driver.up("b", agent_exit="the agent died")
    assert out == driver.shut_down()
    assert driver.failure.how == "ended unseen, the agent died"
    assert any("meanwhile: the agent died" in note for note in driver.seen.notes)


def test_a_cut_while_staging_stages_again() -> None:
    driver = RunDriver()
    driver.checked()
    driver.tell(ev.Staged, "a")
    driver.lost("b")
    assert driver.up("b") == [StageHost("b")]
    driver.lost("a")
    assert driver.up("a") == []


def test_a_kill_of_one_task_that_got_lost_is_repeated(driver: RunDriver) -> None:
    driver.lost("b")
    driver.tell(ev.Restart, name("worker:1"))
    out = driver.up("b", tasks=[held("worker:1"), held("worker:2")])
    assert out == [kill("b", "worker:1", 5.0)]
    driver.exited("worker:1", None, "TERM")
    assert driver.receipt("b", ["worker:1"]) == driver.start("worker:1", attempt=2)
    driver.lost("b")
    assert driver.up("b", tasks=[held("worker:1", 2), held("worker:2")]) == []


def test_a_host_that_stays_away_beyond_its_lease_ends_the_run_as_unconfirmed(
    driver: RunDriver,
) -> None:
    driver.lost("b")
    out = driver.fired(LeaseEnd("b"))
    assert out == driver.shut_down()
    driver.receipt("a")
    assert driver.fired(ShutdownTimeout()) == driver.end(Outcome.FAILED, 4, ["a"])
    receipt = driver.seen.receipt
    assert receipt is not None and not receipt.clean
    away = receipt.hosts[1]
    assert (away.host, away.confirmed) == ("b", False)
    assert away.unreachable_until is not None
    assert driver.failure.how == "lost"


def test_under_keep_a_lost_host_ends_nothing() -> None:
    driver = RunDriver(settings='on_disconnect = "keep"')
    driver.running()
    driver.lost("b")
    assert driver.fired(LeaseEnd("b")) == []
    assert driver.state("worker:1") is TaskState.LOST


def test_kill_while_a_host_is_away_reaches_it_when_it_comes_back(driver: RunDriver) -> None:
    """With what is left of the grace, and at once after a second press."""
    driver.lost("b")
    driver.tell(ev.KillAll)
    driver.receipt("a")
    (kill,) = kills(driver.up("b", tasks=[held("worker:1"), held("worker:2")]))
    assert kill[:2] == ("b", None) and 0 < kill[2] < 5
    driver.lost("b")
    driver.tell(ev.KillAll)
    assert driver.up("b", tasks=[held("worker:1")]) == [KillHost("b", None, 0.0)]
    assert driver.receipt("b") == driver.end(Outcome.KILLED, 130)


def test_a_host_that_is_refused_before_the_start_ends_the_run_as_preflight() -> None:
    driver = RunDriver()
    driver.tell(ev.Begin)
    driver.up("a")
    out = driver.tell(ev.HostRefused, "b", "no login")
    assert out == driver.shut_down("a")
    assert driver.receipt("a") == driver.end(Outcome.PREFLIGHT, 3, ["a"])
    assert driver.seen.hosts[1].state is HostState.REFUSED


# --- taking over --------------------------------------------------------------------------------


BY = "elsewhere:7"


def looks(out: Sequence[Instruction]) -> list[str]:
    return [i.by for i in out if isinstance(i, LookElsewhere)]


def test_another_launcher_that_takes_over_ends_this_one_well(driver: RunDriver) -> None:
    """When it has all hosts, and the run goes on there."""
    assert looks(driver.tell(ev.Superseded, "a", BY)) == []
    assert looks(driver.tell(ev.Superseded, "b", BY)) == [BY]
    assert driver.tell(ev.LookedElsewhere, BY) == driver.end(Outcome.DETACHED, 0, ())
    assert any(BY in note for note in driver.seen.notes)
    assert driver.tell(ev.KillAll) == []


def test_a_run_that_was_ended_elsewhere_ends_here_as_it_did_there(driver: RunDriver) -> None:
    """With the outcome, the exit code and the receipt of the launcher that ended it."""
    driver.tell(ev.Superseded, "a", BY)
    driver.tell(ev.Superseded, "b", BY)
    receipt = Receipt((HostReceipt("a", confirmed=True), HostReceipt("b", confirmed=True)))
    out = driver.tell(ev.LookedElsewhere, BY, Outcome.KILLED, 130, receipt)
    assert out == driver.end(Outcome.KILLED, 130, ())
    assert driver.seen.receipt == receipt
    assert driver.state("worker:1") is TaskState.KILLED


def test_one_host_that_is_taken_over_leaves_the_others_ours(driver: RunDriver) -> None:
    """The run is not over: the host is lost, the others are still ended, and who did not confirm
    is named."""
    out = driver.tell(ev.Superseded, "a", BY)
    assert ends(out) == [] and list(timers(out)) == [TakeoverEnd("a")]
    driver.fired(TakeoverEnd("a"))
    assert driver.state("worker:0") is TaskState.LOST
    assert driver.state("worker:1") is TaskState.READY
    assert any(BY in note and "a over" in note for note in driver.seen.notes)
    assert driver.tell(ev.KillAll) == driver.shut_down("b")
    assert looks(driver.receipt("b")) == [BY]
    assert driver.tell(ev.LookedElsewhere, BY) == driver.end(Outcome.KILLED, 4, ["b"])
    assert driver.seen.receipt is not None
    assert [(one.host, one.confirmed) for one in driver.seen.receipt.hosts] == [
        ("a", False),
        ("b", True),
    ]


def test_a_takeover_while_we_kill_counts_the_other_launchers_receipt(driver: RunDriver) -> None:
    driver.tell(ev.KillAll, by_person=False)
    driver.receipt("a")
    assert looks(driver.tell(ev.Superseded, "b", BY)) == [BY]
    theirs = Receipt((HostReceipt("b", 3, confirmed=True),))
    out = driver.tell(ev.LookedElsewhere, BY, Outcome.KILLED, 130, theirs)
    assert out == driver.end(Outcome.TERMINATED, 143)


def test_a_kill_after_all_has_been_taken_over_waits_for_what_became_of_it(
    driver: RunDriver,
) -> None:
    driver.tell(ev.Superseded, "a", BY)
    assert looks(driver.tell(ev.Superseded, "b", BY)) == [BY]
    out = driver.tell(ev.KillAll)
    assert out == [LookElsewhere(BY)]
    theirs = Receipt((HostReceipt("a", confirmed=True), HostReceipt("b", confirmed=True)))
    out = driver.tell(ev.LookedElsewhere, BY, Outcome.KILLED, 130, theirs)
    assert out == driver.end(Outcome.KILLED, 130)


def test_a_lost_host_whose_lease_ends_under_another_launcher_is_its_business(
    driver: RunDriver,
) -> None:
    driver.lost("b")
    driver.tell(ev.Superseded, "a", BY)
    assert looks(driver.fired(LeaseEnd("b"))) == [BY]


def test_a_launcher_that_fails_ends_the_run_with_4(driver: RunDriver) -> None:
    """Everything is killed; hosts that confirm are in the receipt."""
    assert kills(driver.tell(ev.LauncherFailed, "files: OSError: boom")) == [
        ("a", None, 5.0),
        ("b", None, 5.0),
    ]
    assert driver.confirmed() == driver.end(Outcome.FAILED, 4)
    assert driver.seen.receipt is not None and driver.seen.receipt.clean
    assert driver.seen.launcher_error == "files: OSError: boom"


def test_a_launcher_that_fails_after_the_receipt_keeps_it_and_exits_4(driver: RunDriver) -> None:
    driver.tell(ev.KillAll)
    driver.receipt("a")
    driver.receipt("b")
    driver.tell(ev.LauncherFailed, "end: OSError: boom")
    assert (driver.seen.outcome, driver.seen.exit_code) == (Outcome.KILLED, 4)
    assert any("boom" in note for note in driver.seen.notes)


def attached(driver: RunDriver, *, complete: bool = True) -> RunDriver:
    """A second launcher that has read the journal of the first one."""
    driver.tell(ev.Attached, complete)
    return driver


def test_attach_goes_on_where_the_run_stands(driver: RunDriver) -> None:
    """Nothing is started anew, no port is looked at, all rules hold."""
    other = attached(driver)
    kept = [held("ps:0"), held("worker:0")]
    assert other.up("a", tasks=kept) == []
    assert other.up("b", tasks=[held("worker:1"), held("worker:2")]) == [CheckHosts(False)]
    assert other.tell(ev.HostsChecked, FACTS) == []
    assert other.phase() is RunPhase.RUNNING
    other.exited("worker:0")
    other.exited("worker:1")
    assert other.exited("worker:2") == driver.shut_down()
    assert other.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_attach_goes_on_with_the_start() -> None:
    driver = RunDriver()
    driver.staged()
    driver.ready("ps:0")
    driver.begun("worker:0")
    other = attached(driver)
    other.up("a", tasks=[held("ps:0"), held("worker:0")])
    other.up("b")
    assert other.tell(ev.HostsChecked, FACTS) == []
    assert other.tell(ev.TaskReady, name("worker:0"), 1) == driver.start("worker:1", "worker:2")


def test_attach_to_a_run_that_never_began_looks_at_ports() -> None:
    driver = RunDriver()
    other = attached(driver)
    other.up("a")
    assert other.up("b") == [CheckHosts()]
    assert other.tell(ev.HostsChecked, FACTS) == [StageHost("a"), StageHost("b")]


def test_attach_takes_an_attempt_that_the_journal_does_not_know() -> None:
    """The launcher was killed between the start and the note of it."""
    driver = RunDriver()
    driver.staged()
    other = attached(driver)
    other.up("a", tasks=[held("ps:0", 2)])
    assert other.task("ps:0").attempt == 2


def test_attach_tells_what_ended_meanwhile(driver: RunDriver) -> None:
    other = attached(driver)
    other.up("a", tasks=[held("ps:0"), held("worker:0")])
    other.up("b", agent_exit="no launcher for 60 s")
    assert any("b, meanwhile: no launcher for 60 s" in note for note in other.seen.notes)
    assert other.state("worker:1") is TaskState.FAILED
    assert other.phase() is RunPhase.KILLING


def test_attach_waits_for_no_host_that_is_lost(driver: RunDriver) -> None:
    other = attached(driver)
    other.up("a", tasks=[held("ps:0"), held("worker:0")])
    assert CheckHosts(False) in other.lost("b")
    assert other.state("worker:1") is TaskState.LOST


def test_a_kill_that_its_launcher_did_not_survive_is_gone_on_with(driver: RunDriver) -> None:
    driver.tell(ev.KillAll)
    assert driver.tell(ev.Attached) == driver.shut_down()
    other = driver
    (kill,) = kills(other.up("a", tasks=[held("ps:0")]))
    assert kill[:2] == ("a", None)
    assert other.confirmed() == driver.end(Outcome.KILLED, 130)


def test_the_end_of_a_success_that_its_launcher_did_not_survive_is_a_success(
    driver: RunDriver,
) -> None:
    for task in ("worker:0", "worker:1", "worker:2"):
        driver.exited(task)
    assert driver.phase() is RunPhase.KILLING
    other = attached(driver)
    assert other.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_a_host_that_was_never_contacted_owes_no_receipt() -> None:
    """Unless the record of the run is incomplete: then it may have been."""
    for complete, expected in ((True, ["a"]), (False, ["a", "b"])):
        driver = RunDriver()
        driver.tell(ev.Begin)
        driver.up("a")
        attached(driver, complete=complete)
        assert [kill[0] for kill in kills(driver.tell(ev.KillAll))] == expected


def test_attach_while_a_ps_restarts_leaves_the_running_workers_alone() -> None:
    """They were started again as first attempts."""
    driver = RunDriver(settings='on_failure = "restart"')
    driver.running()
    driver.tell(ev.Restart, name("ps:0"))
    driver.exited("ps:0", None, "TERM")
    driver.receipt("a", ["ps:0"])
    attached(driver)
    driver.up("a", tasks=[held("ps:0", 2), held("worker:0")])
    driver.up("b", tasks=[held("worker:1"), held("worker:2")])
    driver.tell(ev.HostsChecked, FACTS)
    driver.begun("ps:0", attempt=2)
    assert driver.tell(ev.TaskReady, name("ps:0"), 2) == []
    assert driver.phase() is RunPhase.RUNNING


def test_a_task_that_was_killed_and_started_again_may_fail(driver: RunDriver) -> None:
    """What a person wanted of one attempt says nothing of the next one."""
    driver.tell(ev.SignalTask, name("worker:2"), "TERM")
    driver.exited("worker:2", None, "TERM")
    driver.receipt("b", ["worker:2"])
    driver.tell(ev.Restart, name("worker:2"))
    assert driver.receipt("b", ["worker:2"]) == driver.start("worker:2", attempt=2)
    driver.ready("worker:2", attempt=2)
    assert driver.exited("worker:2", 1, attempt=2) == driver.shut_down()
    assert driver.state("worker:2") is TaskState.FAILED


def test_the_exit_of_an_attempt_that_is_being_replaced_adds_only_its_details() -> None:
    """It was not ready in time; its exit, told afterwards, was a second failure."""
    driver = RunDriver(settings='on_failure = "restart"')
    driver.staged()
    driver.begun("ps:0")
    out = driver.fired(ReadyTimeout(name("ps:0"), 1))
    assert out == [
        kill("a", "ps:0", 0.0),
        SetTimer(RestartDelay(name("ps:0"), 1), 1.0),
    ]
    assert driver.exited("ps:0", None, "KILL") == []
    assert driver.task("ps:0").exit_signal == "KILL"
    assert len(driver.seen.notes) == 1


def test_a_lost_task_has_its_state_again_when_its_host_comes_up_after_an_attach(
    driver: RunDriver,
) -> None:
    """It stayed lost."""
    attached(driver)
    driver.up("a", tasks=[held("ps:0"), held("worker:0")])
    driver.lost("b")
    driver.tell(ev.HostsChecked, FACTS)
    driver.up("b", tasks=[held("worker:1"), held("worker:2")])
    assert driver.state("worker:1") is TaskState.READY


def test_a_host_that_is_still_being_logged_in_to_is_not_given_up(driver: RunDriver) -> None:
    other = attached(driver)
    other.tell(ev.KillAll)
    assert timers(other.fired(ShutdownTimeout())) == {ShutdownTimeout(): 1.0}
    other.lost("a")
    other.lost("b")
    assert other.fired(ShutdownTimeout()) == driver.end(Outcome.KILLED, 4, ())


def test_a_host_that_never_connects_does_not_hold_a_kill_for_ever(driver: RunDriver) -> None:
    """It is named as unconfirmed, with the reason; another kill does not put that off."""
    attached(driver)
    driver.tell(ev.KillAll)
    driver.receipt("a")
    latest = driver.now + 5.0 + KILL_PATIENCE + CONNECT_SECONDS
    while not (out := driver.fired(ShutdownTimeout())) or not ends(out):
        assert driver.now < latest
        driver.tell(ev.KillAll)
    assert out == driver.end(Outcome.KILLED, 4, ["a"])
    assert driver.seen.receipt is not None
    away = driver.seen.receipt.hosts[1]
    assert (away.host, away.confirmed) == ("b", False) and away.unreachable_until
    assert (driver.seen.hosts[1].state, driver.state("worker:1")) == (
        HostState.LOST,
        TaskState.LOST,
    )
    assert any("b is lost: not connected" in note for note in driver.seen.notes)
