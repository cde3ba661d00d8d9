"""The run as a pure machine: events in, instructions out, no clock, no process, no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.file import loads
from launcher.ids import TaskId
from launcher.plan.plan import HostFacts
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
from launcher.run.snapshot import HostReceipt, Receipt, Snapshot, Survivor, TaskView
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


class Story:
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

    def staged(self) -> list[Instruction]:
        """All hosts up, checked and staged; the first stage starts."""
        self.tell(ev.Begin)
        self.up("a", "b")
        self.tell(ev.HostsChecked, FACTS)
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

    def fired(self, timer: Timer) -> list[Instruction]:
        return self.tell(ev.TimerFired, timer)


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
    story = Story()
    assert story.tell(ev.Begin) == []
    assert story.up("a") == []
    assert story.up("b") == [CheckHosts()]
    assert story.tell(ev.HostsChecked, FACTS) == [StageHost("a"), StageHost("b")]
    assert story.tell(ev.Staged, "b") == []
    assert story.tell(ev.Staged, "a") == story.start("ps:0")


def test_each_stage_waits_for_the_one_before() -> None:
    """ps until it listens, the chief until it listens, then all others at once."""
    story = Story()
    assert story.staged() == story.start("ps:0")
    assert story.begun("ps:0") == []
    assert story.tell(ev.TaskReady, name("ps:0"), 1) == story.start("worker:0")
    assert story.ready("worker:0") == story.start("worker:1", "worker:2")
    assert story.phase() is RunPhase.STARTING
    story.ready("worker:1", "worker:2")
    assert story.phase() is RunPhase.RUNNING
    assert {view.state for view in story.seen.tasks} == {TaskState.READY}


def test_who_waits_for_whom_is_said() -> None:
    story = Story()
    assert story.seen.waiting == "a, b"
    story.staged()
    assert story.seen.waiting == "ps:0 on a:2222"


def test_a_task_that_is_not_ready_in_time_has_failed() -> None:
    """The deadline of a ready task, or of an earlier attempt, means nothing."""
    story = Story(settings="[start]\ntimeout = 7")
    assert timers(story.staged()) == {ReadyTimeout(name("ps:0"), 1): 7.0}
    story.ready("ps:0")
    assert story.fired(ReadyTimeout(name("ps:0"), 1)) == []
    story.begun("worker:0")
    assert kills(story.fired(ReadyTimeout(name("worker:0"), 1))) == [
        ("a", None, 5.0),
        ("b", None, 5.0),
    ]
    assert story.state("worker:0") is TaskState.FAILED
    failure = story.seen.first_failure
    assert failure is not None and failure.how == "not ready after 7 s"


def test_a_port_that_somebody_holds_is_the_reason() -> None:
    story = Story()
    story.staged()
    story.tell(ev.TaskStarted, name("ps:0"), 1, 99, port_holder="pid 7 of other/ps:0/1 (python)")
    story.tell(ev.TaskExited, name("ps:0"), 1, 1, None, "pid 7 of other/ps:0/1 (python)")
    failure = story.seen.first_failure
    assert failure is not None
    assert "exit 1, its port is held by pid 7 of other/ps:0/1 (python)" in failure.how


def test_ready_by_time_and_by_start() -> None:
    """`{ after = s }` sets a timer from the start; `started` is ready at once."""
    text = CLUSTER + '[start.ready]\nps = { after = 3.0 }\nworker = "started"\n'
    story = Story(text=text)
    story.staged()
    assert timers(story.begun("ps:0")) == {ReadyDelay(name("ps:0"), 1): 3.0}
    assert story.fired(ReadyDelay(name("ps:0"), 1)) == story.start("worker:0")
    assert story.begun("worker:0") == story.start("worker:1", "worker:2")


def test_a_task_that_is_done_before_it_was_ready_does_not_hold_the_start_up() -> None:
    story = Story(settings='on_failure = "keep"')
    story.staged()
    story.ready("ps:0")
    story.begun("worker:0")
    assert story.exited("worker:0", 0) == story.start("worker:1", "worker:2")


def test_metrics_make_ready_running_and_may_name_the_total_of_steps() -> None:
    story = Story()
    story.staged()
    assert story.tell(ev.MetricsSeen, name("ps:0"), 500) == []
    assert (story.state("ps:0"), story.seen.total_steps) == (TaskState.STARTING, 500)
    story.ready("ps:0")
    assert story.tell(ev.MetricsSeen, name("ps:0")) == []
    assert (story.state("ps:0"), story.seen.total_steps) == (TaskState.RUNNING, 500)


# --- the end ------------------------------------------------------------------------------------


def test_when_the_chief_is_done_the_others_may_finish_and_the_ps_is_stopped() -> None:
    story = Story()
    story.running()
    out = story.exited("worker:0")
    assert story.phase() is RunPhase.FINISHING
    assert out == [
        WatchSilence(name("worker:1"), 60.0),
        WatchSilence(name("worker:2"), 60.0),
    ]
    assert story.exited("worker:1") == []
    assert story.exited("worker:2") == story.shut_down()
    story.exited("ps:0", None, "TERM")
    assert story.receipt("a") == []
    out = story.receipt("b")
    assert out == [ReleaseHost("a"), ReleaseHost("b"), End(Outcome.SUCCESS, 0)]
    assert story.state("ps:0") is TaskState.STOPPED
    assert story.state("worker:1") is TaskState.EXITED


def test_success_all_waits_for_everybody() -> None:
    """Without a deciding chief silence is watched only once a task of the job has ended."""
    story = Story(settings='success = "all"')
    story.running()
    assert story.exited("worker:0") == [
        WatchSilence(name("worker:1"), 60.0),
        WatchSilence(name("worker:2"), 60.0),
    ]
    assert story.phase() is RunPhase.RUNNING
    story.exited("worker:2")
    assert kills(story.exited("worker:1"))
    assert story.receipt("a") + story.receipt("b") == story.end(Outcome.SUCCESS, 0)


def test_a_program_that_hangs_at_its_end_is_named_and_has_failed() -> None:
    story = Story()
    story.running()
    story.exited("worker:0")
    story.exited("worker:1")
    out = story.tell(ev.OutputStalled, name("worker:2"), 60.0)
    assert out == [kill("b", "worker:2", 5.0)]
    assert "hangs at its end" in story.task("worker:2").reason
    assert story.exited("worker:2", None, "TERM") == story.shut_down()
    assert story.receipt("a") + story.receipt("b") == story.end(Outcome.FAILED, 1)


def test_workers_that_only_serve_a_chief_are_stopped_by_the_rule() -> None:
    """Beside a chief of a job of its own, workers that `join()` never end by themselves."""
    jobs = '[jobs.chief]\ntasks = ["a:2224"]\n'
    story = Story(settings='success = "chief"\n', jobs=jobs)
    story.staged()
    story.ready("ps:0", "chief:0", "worker:0", "worker:1", "worker:2")
    story.exited("chief:0")
    for worker, host in (("worker:0", "a"), ("worker:1", "b"), ("worker:2", "b")):
        out = story.tell(ev.OutputStalled, name(worker), 60.0)
        assert kills(out) == [(host, [worker], 5.0)]
        out = story.exited(worker, None, "TERM")
        assert story.state(worker) is TaskState.STOPPED
    assert out == story.shut_down()
    assert story.receipt("a") + story.receipt("b") == story.end(Outcome.SUCCESS, 0)


def test_a_worker_that_hangs_while_others_have_ended_is_no_server() -> None:
    """Where one worker has ended by itself, its like are expected to."""
    jobs = '[jobs.chief]\ntasks = ["a:2224"]\n'
    story = Story(settings='success = "chief"\n', jobs=jobs)
    story.staged()
    story.ready("ps:0", "chief:0", "worker:0", "worker:1", "worker:2")
    story.exited("chief:0")
    story.exited("worker:0")
    story.tell(ev.OutputStalled, name("worker:1"), 60.0)
    assert "hangs at its end" in story.task("worker:1").reason
    story.exited("worker:1", None, "TERM")
    assert story.state("worker:1") is TaskState.FAILED


def test_silence_of_a_lost_host_is_not_a_hang() -> None:
    """It is we who hear nothing; the watch goes on."""
    story = Story()
    story.running()
    story.exited("worker:0")
    story.lost("b")
    assert story.tell(ev.OutputStalled, name("worker:2"), 60.0) == [
        WatchSilence(name("worker:2"), 60.0)
    ]
    assert story.state("worker:2") is TaskState.LOST


def test_a_ps_that_fails_stops_the_run_even_under_keep() -> None:
    story = Story(settings='on_failure = "keep"')
    story.running()
    assert story.exited("ps:0", 3) == story.shut_down()
    failure = story.seen.first_failure
    assert failure is not None and (str(failure.task), failure.how) == ("ps:0", "exit 3")


def test_a_worker_that_fails_under_keep_is_a_failure_at_the_end() -> None:
    story = Story(settings='on_failure = "keep"')
    story.running()
    assert story.exited("worker:1", 1) == []
    story.exited("worker:0")
    assert kills(story.exited("worker:2"))
    assert story.receipt("a") + story.receipt("b") == story.end(Outcome.FAILED, 1)


def test_the_first_failure_is_the_headline_and_the_others_stand_below() -> None:
    story = Story(settings='on_failure = "keep"')
    story.running()
    story.tell(ev.TaskExited, name("worker:2"), 1, None, "SEGV", "", ("last words",))
    story.exited("worker:1", 1)
    failure = story.seen.first_failure
    assert failure is not None
    assert (str(failure.task), failure.how, failure.tail) == (
        "worker:2",
        "killed by SEGV",
        ("last words",),
    )
    assert failure.others == (name("worker:1"),)


def test_a_helpers_failure_is_shown_and_ends_nothing() -> None:
    jobs = '[jobs.board]\ntasks = ["b:6006"]\nin_cluster = false\ncommand = ["y"]\n'
    story = Story(jobs=jobs)
    story.running()
    story.begun("board:0")
    assert story.exited("board:0", 9) == []
    assert story.state("board:0") is TaskState.FAILED
    assert story.seen.first_failure is None
    assert any("board:0" in note for note in story.seen.notes)
    story.exited("worker:0")
    story.exited("worker:1")
    assert kills(story.exited("worker:2"))
    assert story.receipt("a") + story.receipt("b") == story.end(Outcome.SUCCESS, 0)


def test_the_end_of_an_earlier_attempt_says_nothing_of_the_present_one() -> None:
    story = Story(settings='on_failure = "restart"')
    story.running()
    story.exited("worker:1", 1)
    story.receipt("b", ["worker:1"])
    story.fired(RestartDelay(name("worker:1"), 1))
    assert story.exited("worker:1", 1, attempt=1) == []
    assert story.state("worker:1") is TaskState.STARTING


# --- restarts -----------------------------------------------------------------------------------


def test_a_failed_task_is_started_again_after_a_growing_pause() -> None:
    """What the attempt left behind is killed; attempts are counted; the pause doubles."""
    story = Story(settings='on_failure = "restart"\nmax_restarts = 2')
    story.running()
    out = story.exited("worker:1", 1)
    pause = SetTimer(RestartDelay(name("worker:1"), 1), 1.0)
    assert out == [kill("b", "worker:1", 0.0), pause]
    assert story.state("worker:1") is TaskState.BACKOFF
    story.receipt("b", ["worker:1"])
    assert story.fired(RestartDelay(name("worker:1"), 1)) == story.start("worker:1", attempt=2)
    story.ready("worker:1", attempt=2)
    assert timers(story.exited("worker:1", 1, attempt=2)) == {
        RestartDelay(name("worker:1"), 2): 2.0
    }
    story.receipt("b", ["worker:1"])
    story.fired(RestartDelay(name("worker:1"), 2))
    story.ready("worker:1", attempt=3)
    assert [a.number for a in story.task("worker:1").attempts] == [1, 2, 3]
    assert story.exited("worker:1", 1, attempt=3) == story.shut_down()
    assert story.state("worker:1") is TaskState.FAILED


def test_the_pause_is_bounded() -> None:
    story = Story(settings='on_failure = "restart"\nmax_restarts = 9')
    story.running()
    pauses: list[float] = []
    for attempt in range(1, 9):
        out = story.exited("worker:1", 1, attempt=attempt)
        pauses += timers(out).values()
        story.receipt("b", ["worker:1"])
        story.fired(RestartDelay(name("worker:1"), attempt))
        story.ready("worker:1", attempt=attempt + 1)
    assert pauses == [1, 2, 4, 8, 16, MAX_BACKOFF, MAX_BACKOFF, MAX_BACKOFF]


def test_the_next_attempt_waits_until_the_last_one_is_seen_gone() -> None:
    """A kill that takes longer than the pause must not hit the next attempt."""
    story = Story(settings='on_failure = "restart"')
    story.running()
    story.exited("worker:1", 1)
    assert story.fired(RestartDelay(name("worker:1"), 1)) == []
    assert story.receipt("b", ["worker:1"]) == story.start("worker:1", attempt=2)


def test_a_restart_by_hand_ends_the_task_first() -> None:
    """With the grace, or hard; the end of the old attempt is no failure."""
    for hard, grace in ((False, 5.0), (True, 0.0)):
        story = Story()
        story.running()
        out = story.tell(ev.Restart, name("worker:1"), hard)
        assert kills(out) == [("b", ["worker:1"], grace)]
        assert story.tell(ev.Restart, name("worker:1"), hard) == []  # pressed twice
        assert story.exited("worker:1", None, "TERM") == []
        assert story.state("worker:1") is TaskState.BACKOFF
        assert story.receipt("b", ["worker:1"]) == story.start("worker:1", attempt=2)
        assert story.seen.first_failure is None


def test_a_restart_by_hand_during_the_pause_does_not_start_twice() -> None:
    story = Story(settings='on_failure = "restart"')
    story.running()
    story.exited("worker:1", 1)
    story.tell(ev.Restart, name("worker:1"))
    assert story.fired(RestartDelay(name("worker:1"), 1)) == []
    assert story.receipt("b", ["worker:1"]) == story.start("worker:1", attempt=2)
    assert story.receipt("b", ["worker:1"]) == []


def test_a_killed_worker_does_not_end_the_run_and_a_killed_chief_does() -> None:
    story = Story()
    story.running()
    assert story.tell(ev.SignalTask, name("worker:2"), "KILL") == [kill("b", "worker:2", 0.0)]
    assert story.exited("worker:2", None, "KILL") == []
    assert story.state("worker:2") is TaskState.KILLED
    assert story.tell(ev.SignalTask, name("worker:0"), "TERM") == [kill("a", "worker:0", 5.0)]
    assert story.exited("worker:0", None, "TERM") == story.shut_down()


# --- kill-all -----------------------------------------------------------------------------------


def test_kill_all_is_one_broadcast_and_ends_in_a_receipt() -> None:
    story = Story()
    story.running()
    out = story.tell(ev.KillAll)
    assert out == story.shut_down()
    assert story.seen.kill_deadline == story.now + 5
    story.exited("ps:0", None, "TERM")
    assert story.receipt("a", signalled=2) == []
    assert story.receipt("b", signalled=3) == story.end(Outcome.KILLED, 130)
    receipt = story.seen.receipt
    assert receipt is not None and receipt.clean
    assert [(h.host, h.signalled) for h in receipt.hosts] == [("a", 2), ("b", 3)]
    assert {view.state for view in story.seen.tasks} == {TaskState.KILLED}


def test_a_second_press_kills_now_only_where_something_is_left() -> None:
    story = Story()
    story.running()
    story.tell(ev.KillAll)
    story.receipt("a")
    assert story.tell(ev.KillAll) == [KillHost("b", None, 0.0)]
    assert story.tell(ev.KillAll) == [KillHost("b", None, 0.0)]
    assert story.receipt("b") == story.end(Outcome.KILLED, 130)
    assert story.tell(ev.KillAll) == []


def test_by_term_the_exit_code_is_another() -> None:
    story = Story()
    story.running()
    story.tell(ev.KillAll, by_person=False)
    story.receipt("a")
    assert story.receipt("b") == story.end(Outcome.TERMINATED, 143)


def test_nothing_starts_any_more_once_everything_is_being_ended() -> None:
    story = Story(settings='on_failure = "restart"')
    story.staged()
    story.begun("ps:0")
    story.tell(ev.KillAll)
    assert story.tell(ev.TaskReady, name("ps:0"), 1) == []
    assert story.exited("ps:0", 1) == []
    assert story.fired(RestartDelay(name("ps:0"), 1)) == []
    assert story.receipt("a") == []
    assert story.receipt("b") == story.end(Outcome.KILLED, 130)
    assert story.state("worker:1") is TaskState.PENDING


def test_kill_before_any_host_was_contacted_ends_at_once() -> None:
    story = Story()
    story.tell(ev.Begin)
    assert story.tell(ev.KillAll) == story.end(Outcome.KILLED, 130, ())


def test_kill_while_staging_reaches_every_host_that_was_met() -> None:
    story = Story()
    story.tell(ev.Begin)
    story.up("a", "b")
    story.tell(ev.HostsChecked, FACTS)
    assert story.tell(ev.KillAll) == story.shut_down()
    assert story.tell(ev.Staged, "a") == []
    story.receipt("a")
    assert story.receipt("b") == story.end(Outcome.KILLED, 130)


def test_survivors_are_reported_and_the_exit_code_says_unconfirmed() -> None:
    story = Story()
    story.running()
    story.tell(ev.KillAll)
    story.receipt("a")
    out = story.receipt("b", survivors=(Survivor(7, "stuck", "D"),))
    assert out == story.end(Outcome.KILLED, 4)
    assert story.state("worker:1") is not TaskState.KILLED


def test_an_agent_that_acted_alone_is_not_the_receipt_of_a_kill() -> None:
    """Its lease had ended while we slept: its receipt is not ours to end the run with."""
    story = Story()
    story.running()
    assert story.receipt("a") == [] and story.receipt("b") == []
    assert story.phase() is RunPhase.RUNNING


# --- lost hosts ---------------------------------------------------------------------------------


def test_a_lost_host_is_shown_apart_and_comes_back() -> None:
    """Its tasks are `lost`, not failed, and have their true state again afterwards."""
    story = Story()
    story.running()
    story.tell(ev.MetricsSeen, name("worker:1"))
    out = story.lost("b", lease=60)
    assert timers(out) == {LeaseEnd("b"): pytest.approx(60 + 5 + 8)}
    assert story.state("worker:1") is TaskState.LOST
    assert story.state("worker:0") is TaskState.READY
    kept = [held("worker:1"), held("worker:2")]
    assert story.up("b", tasks=kept) == []
    assert story.state("worker:1") is TaskState.RUNNING
    assert story.state("worker:2") is TaskState.READY
    assert story.fired(LeaseEnd("b")) == []


def held(task: str, attempt: int = 1) -> ev.HeldTask:
    return ev.HeldTask(name(task), attempt)


def test_a_start_that_got_lost_is_repeated_and_one_that_arrived_is_not() -> None:
    story = Story()
    story.staged()
    story.ready("ps:0")
    story.ready("worker:0")
    story.begun("worker:2")
    story.lost("b")
    assert story.up("b", tasks=[held("worker:2")]) == story.start("worker:1")[:1]


def test_a_task_that_a_new_agent_does_not_know_has_ended() -> None:
    """The agent died meanwhile, and its tasks with it."""
    story = Story()
    story.running()
    story.lost("b")
    out = story.up("b", agent_exit="the agent died")
    assert out == story.shut_down()
    failure = story.seen.first_failure
    assert failure is not None and failure.how == "ended unseen, the agent died"
    assert any("meanwhile: the agent died" in note for note in story.seen.notes)


def test_a_cut_while_staging_stages_again() -> None:
    story = Story()
    story.tell(ev.Begin)
    story.up("a", "b")
    story.tell(ev.HostsChecked, FACTS)
    story.tell(ev.Staged, "a")
    story.lost("b")
    assert story.up("b") == [StageHost("b")]
    story.lost("a")
    assert story.up("a") == []


def test_a_kill_of_one_task_that_got_lost_is_repeated() -> None:
    story = Story()
    story.running()
    story.lost("b")
    story.tell(ev.Restart, name("worker:1"))
    out = story.up("b", tasks=[held("worker:1"), held("worker:2")])
    assert out == [kill("b", "worker:1", 5.0)]
    story.exited("worker:1", None, "TERM")
    assert story.receipt("b", ["worker:1"]) == story.start("worker:1", attempt=2)
    story.lost("b")
    assert story.up("b", tasks=[held("worker:1", 2), held("worker:2")]) == []


def test_a_host_that_stays_away_beyond_its_lease_ends_the_run_as_unconfirmed() -> None:
    story = Story()
    story.running()
    story.lost("b")
    out = story.fired(LeaseEnd("b"))
    assert out == story.shut_down()
    story.receipt("a")
    assert story.fired(ShutdownTimeout()) == story.end(Outcome.FAILED, 4, ["a"])
    receipt = story.seen.receipt
    assert receipt is not None and not receipt.clean
    away = receipt.hosts[1]
    assert (away.host, away.confirmed) == ("b", False)
    assert away.unreachable_until is not None
    failure = story.seen.first_failure
    assert failure is not None and failure.how == "lost"


def test_under_keep_a_lost_host_ends_nothing() -> None:
    story = Story(settings='on_disconnect = "keep"')
    story.running()
    story.lost("b")
    assert story.fired(LeaseEnd("b")) == []
    assert story.state("worker:1") is TaskState.LOST


def test_kill_while_a_host_is_away_reaches_it_when_it_comes_back() -> None:
    """With what is left of the grace, and at once after a second press."""
    story = Story()
    story.running()
    story.lost("b")
    story.tell(ev.KillAll)
    story.receipt("a")
    (kill,) = kills(story.up("b", tasks=[held("worker:1"), held("worker:2")]))
    assert kill[:2] == ("b", None) and 0 < kill[2] < 5
    story.lost("b")
    story.tell(ev.KillAll)
    assert story.up("b", tasks=[held("worker:1")]) == [KillHost("b", None, 0.0)]
    assert story.receipt("b") == story.end(Outcome.KILLED, 130)


def test_a_host_that_is_refused_before_the_start_ends_the_run_as_preflight() -> None:
    story = Story()
    story.tell(ev.Begin)
    story.up("a")
    out = story.tell(ev.HostRefused, "b", "no login")
    assert out == story.shut_down("a")
    assert story.receipt("a") == story.end(Outcome.PREFLIGHT, 3, ["a"])
    assert story.seen.hosts[1].state is HostState.REFUSED


# --- taking over --------------------------------------------------------------------------------


BY = "elsewhere:7"


def looks(out: Sequence[Instruction]) -> list[str]:
    return [i.by for i in out if isinstance(i, LookElsewhere)]


def test_another_launcher_that_takes_over_ends_this_one_well() -> None:
    """When it has all hosts, and the run goes on there."""
    story = Story()
    story.running()
    assert looks(story.tell(ev.Superseded, "a", BY)) == []
    assert looks(story.tell(ev.Superseded, "b", BY)) == [BY]
    assert story.tell(ev.LookedElsewhere, BY) == story.end(Outcome.DETACHED, 0, ())
    assert any(BY in note for note in story.seen.notes)
    assert story.tell(ev.KillAll) == []


def test_a_run_that_was_ended_elsewhere_ends_here_as_it_did_there() -> None:
    """With the outcome, the exit code and the receipt of the launcher that ended it."""
    story = Story()
    story.running()
    story.tell(ev.Superseded, "a", BY)
    story.tell(ev.Superseded, "b", BY)
    receipt = Receipt((HostReceipt("a", confirmed=True), HostReceipt("b", confirmed=True)))
    out = story.tell(ev.LookedElsewhere, BY, Outcome.KILLED, 130, receipt)
    assert out == story.end(Outcome.KILLED, 130, ())
    assert story.seen.receipt == receipt
    assert story.state("worker:1") is TaskState.KILLED


def test_one_host_that_is_taken_over_leaves_the_others_ours() -> None:
    """The run is not over: the host is lost, the others are still ended, and who did not confirm
    is named."""
    story = Story()
    story.running()
    out = story.tell(ev.Superseded, "a", BY)
    assert ends(out) == [] and list(timers(out)) == [TakeoverEnd("a")]
    story.fired(TakeoverEnd("a"))
    assert story.state("worker:0") is TaskState.LOST
    assert story.state("worker:1") is TaskState.READY
    assert any(BY in note and "a over" in note for note in story.seen.notes)
    assert story.tell(ev.KillAll) == story.shut_down("b")
    assert looks(story.receipt("b")) == [BY]
    assert story.tell(ev.LookedElsewhere, BY) == story.end(Outcome.KILLED, 4, ["b"])
    assert story.seen.receipt is not None
    assert [(one.host, one.confirmed) for one in story.seen.receipt.hosts] == [
        ("a", False),
        ("b", True),
    ]


def test_a_takeover_while_we_kill_counts_the_other_launchers_receipt() -> None:
    story = Story()
    story.running()
    story.tell(ev.KillAll, by_person=False)
    story.receipt("a")
    assert looks(story.tell(ev.Superseded, "b", BY)) == [BY]
    theirs = Receipt((HostReceipt("b", 3, confirmed=True),))
    out = story.tell(ev.LookedElsewhere, BY, Outcome.KILLED, 130, theirs)
    assert out == story.end(Outcome.TERMINATED, 143)


def test_a_kill_after_all_has_been_taken_over_waits_for_what_became_of_it() -> None:
    story = Story()
    story.running()
    story.tell(ev.Superseded, "a", BY)
    assert looks(story.tell(ev.Superseded, "b", BY)) == [BY]
    out = story.tell(ev.KillAll)
    assert out == [LookElsewhere(BY)]
    theirs = Receipt((HostReceipt("a", confirmed=True), HostReceipt("b", confirmed=True)))
    out = story.tell(ev.LookedElsewhere, BY, Outcome.KILLED, 130, theirs)
    assert out == story.end(Outcome.KILLED, 130)


def test_a_lost_host_whose_lease_ends_under_another_launcher_is_its_business() -> None:
    story = Story()
    story.running()
    story.lost("b")
    story.tell(ev.Superseded, "a", BY)
    assert looks(story.fired(LeaseEnd("b"))) == [BY]


def test_a_launcher_that_fails_ends_the_run_with_4() -> None:
    """Everything is killed; hosts that confirm are in the receipt."""
    story = Story()
    story.running()
    assert kills(story.tell(ev.LauncherFailed, "files: OSError: boom")) == [
        ("a", None, 5.0),
        ("b", None, 5.0),
    ]
    story.receipt("a")
    assert story.receipt("b") == story.end(Outcome.FAILED, 4)
    assert story.seen.receipt is not None and story.seen.receipt.clean
    assert story.seen.launcher_error == "files: OSError: boom"


def test_a_launcher_that_fails_after_the_receipt_keeps_it_and_exits_4() -> None:
    story = Story()
    story.running()
    story.tell(ev.KillAll)
    story.receipt("a")
    story.receipt("b")
    story.tell(ev.LauncherFailed, "end: OSError: boom")
    assert (story.seen.outcome, story.seen.exit_code) == (Outcome.KILLED, 4)
    assert any("boom" in note for note in story.seen.notes)


def attached(story: Story, *, complete: bool = True) -> Story:
    """A second launcher that has read the journal of the first one."""
    story.tell(ev.Attached, complete)
    return story


def test_attach_goes_on_where_the_run_stands() -> None:
    """Nothing is started anew, no port is looked at, all rules hold."""
    story = Story()
    story.running()
    other = attached(story)
    kept = [held("ps:0"), held("worker:0")]
    assert other.up("a", tasks=kept) == []
    assert other.up("b", tasks=[held("worker:1"), held("worker:2")]) == [CheckHosts(False)]
    assert other.tell(ev.HostsChecked, FACTS) == []
    assert other.phase() is RunPhase.RUNNING
    other.exited("worker:0")
    other.exited("worker:1")
    assert other.exited("worker:2") == story.shut_down()
    assert other.receipt("a") + other.receipt("b") == story.end(Outcome.SUCCESS, 0)


def test_attach_goes_on_with_the_start() -> None:
    story = Story()
    story.staged()
    story.ready("ps:0")
    story.begun("worker:0")
    other = attached(story)
    other.up("a", tasks=[held("ps:0"), held("worker:0")])
    other.up("b")
    assert other.tell(ev.HostsChecked, FACTS) == []
    assert other.tell(ev.TaskReady, name("worker:0"), 1) == story.start("worker:1", "worker:2")


def test_attach_to_a_run_that_never_began_looks_at_ports() -> None:
    story = Story()
    other = attached(story)
    other.up("a")
    assert other.up("b") == [CheckHosts()]
    assert other.tell(ev.HostsChecked, FACTS) == [StageHost("a"), StageHost("b")]


def test_attach_takes_an_attempt_that_the_journal_does_not_know() -> None:
    """The launcher was killed between the start and the note of it."""
    story = Story()
    story.staged()
    other = attached(story)
    other.up("a", tasks=[held("ps:0", 2)])
    assert other.task("ps:0").attempt == 2


def test_attach_tells_what_ended_meanwhile() -> None:
    story = Story()
    story.running()
    other = attached(story)
    other.up("a", tasks=[held("ps:0"), held("worker:0")])
    other.up("b", agent_exit="no launcher for 60 s")
    assert any("b, meanwhile: no launcher for 60 s" in note for note in other.seen.notes)
    assert other.state("worker:1") is TaskState.FAILED
    assert other.phase() is RunPhase.KILLING


def test_attach_waits_for_no_host_that_is_lost() -> None:
    story = Story()
    story.running()
    other = attached(story)
    other.up("a", tasks=[held("ps:0"), held("worker:0")])
    assert CheckHosts(False) in other.lost("b")
    assert other.state("worker:1") is TaskState.LOST


def test_a_kill_that_its_launcher_did_not_survive_is_gone_on_with() -> None:
    story = Story()
    story.running()
    story.tell(ev.KillAll)
    assert story.tell(ev.Attached) == story.shut_down()
    other = story
    (kill,) = kills(other.up("a", tasks=[held("ps:0")]))
    assert kill[:2] == ("a", None)
    other.receipt("a")
    assert other.receipt("b") == story.end(Outcome.KILLED, 130)


def test_the_end_of_a_success_that_its_launcher_did_not_survive_is_a_success() -> None:
    story = Story()
    story.running()
    for task in ("worker:0", "worker:1", "worker:2"):
        story.exited(task)
    assert story.phase() is RunPhase.KILLING
    other = attached(story)
    other.receipt("a")
    assert other.receipt("b") == story.end(Outcome.SUCCESS, 0)


def test_a_host_that_was_never_contacted_owes_no_receipt() -> None:
    """Unless the record of the run is incomplete: then it may have been."""
    for complete, expected in ((True, ["a"]), (False, ["a", "b"])):
        story = Story()
        story.tell(ev.Begin)
        story.up("a")
        attached(story, complete=complete)
        assert [kill[0] for kill in kills(story.tell(ev.KillAll))] == expected


def test_attach_while_a_ps_restarts_leaves_the_running_workers_alone() -> None:
    """They were started again as first attempts."""
    story = Story(settings='on_failure = "restart"')
    story.running()
    story.tell(ev.Restart, name("ps:0"))
    story.exited("ps:0", None, "TERM")
    story.receipt("a", ["ps:0"])
    attached(story)
    story.up("a", tasks=[held("ps:0", 2), held("worker:0")])
    story.up("b", tasks=[held("worker:1"), held("worker:2")])
    story.tell(ev.HostsChecked, FACTS)
    story.begun("ps:0", attempt=2)
    assert story.tell(ev.TaskReady, name("ps:0"), 2) == []
    assert story.phase() is RunPhase.RUNNING


def test_a_task_that_was_killed_and_started_again_may_fail() -> None:
    """What a person wanted of one attempt says nothing of the next one."""
    story = Story()
    story.running()
    story.tell(ev.SignalTask, name("worker:2"), "TERM")
    story.exited("worker:2", None, "TERM")
    story.receipt("b", ["worker:2"])
    story.tell(ev.Restart, name("worker:2"))
    assert story.receipt("b", ["worker:2"]) == story.start("worker:2", attempt=2)
    story.ready("worker:2", attempt=2)
    assert story.exited("worker:2", 1, attempt=2) == story.shut_down()
    assert story.state("worker:2") is TaskState.FAILED


def test_the_exit_of_an_attempt_that_is_being_replaced_adds_only_its_details() -> None:
    """It was not ready in time; its exit, told afterwards, was a second failure."""
    story = Story(settings='on_failure = "restart"')
    story.staged()
    story.begun("ps:0")
    out = story.fired(ReadyTimeout(name("ps:0"), 1))
    assert out == [
        kill("a", "ps:0", 0.0),
        SetTimer(RestartDelay(name("ps:0"), 1), 1.0),
    ]
    assert story.exited("ps:0", None, "KILL") == []
    assert story.task("ps:0").exit_signal == "KILL"
    assert len(story.seen.notes) == 1


def test_a_lost_task_has_its_state_again_when_its_host_comes_up_after_an_attach() -> None:
    """It stayed lost."""
    story = Story()
    story.running()
    attached(story)
    story.up("a", tasks=[held("ps:0"), held("worker:0")])
    story.lost("b")
    story.tell(ev.HostsChecked, FACTS)
    story.up("b", tasks=[held("worker:1"), held("worker:2")])
    assert story.state("worker:1") is TaskState.READY


def test_a_host_that_is_still_being_logged_in_to_is_not_given_up() -> None:
    story = Story()
    story.running()
    other = attached(story)
    other.tell(ev.KillAll)
    assert timers(other.fired(ShutdownTimeout())) == {ShutdownTimeout(): 1.0}
    other.lost("a")
    other.lost("b")
    assert other.fired(ShutdownTimeout()) == story.end(Outcome.KILLED, 4, ())
