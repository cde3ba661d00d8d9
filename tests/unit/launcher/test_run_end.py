"""End of a run: its rule, outcome and failures, kill-all, and ends from outside."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.plan.ending import server_name
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan
from launcher.run import events as ev
from launcher.run.background import LeftProcess, LeftProcesses
from launcher.run.cause import Kind, Verdict
from launcher.run.events import RestartDelay, ShutdownTimeout
from launcher.run.instructions import (
    End,
    Instruction,
    KillHost,
    LookAtOthers,
    ReleaseHost,
    SetTimer,
    WatchSilence,
)
from launcher.run.shutdown import KILL_PATIENCE
from launcher.run.snapshot import Survivor
from launcher.run.states import Cause, Outcome, RunPhase, StoppedBy, TaskState
from tests.support.queue_driver import NODES, QueueDriver
from tests.support.run_driver import (
    CLUSTER,
    FACTS,
    RunDriver,
    ends,
    held,
    kill,
    kills,
    name,
    running,
    staged,
    starts,
    timers,
)
from tests.support.tables import tables

# End of a run: its outcome, its failures, and kill-all.

# --- commands in the background -----------------------------------------------------------------


def _left(seconds: float, cpu: float, *processes: LeftProcess) -> LeftProcesses:
    return LeftProcesses(processes, seconds=seconds, cpu=cpu)


@pytest.mark.parametrize(
    ("seconds", "cpu", "age", "used", "fails"),
    [
        pytest.param(0.01, 0.0, 0.0, 0.5, True, id="nohup train &"),
        pytest.param(0.01, 0.0, 0.0, 0.0, True, id="nohup sleep &"),
        pytest.param(0.2, 0.1, 0.1, 0.0, True, id="Popen"),
        pytest.param(6.0, 2.5, 4.0, 3.0, False, id="a helper from the beginning"),
        pytest.param(6.0, 2.5, 1.0, 1.5, True, id="ray start"),
        pytest.param(2.0, 1.6, 1.9, 0.0, False, id="ssh-agent beside a short program"),
        pytest.param(9.0, 0.1, 0.1, 0.1, True, id="module load, then nohup train &"),
        pytest.param(60.0, 30.0, 0.1, 9.0, False, id="an upload at the end of long work"),
    ],
)
def test_a_command_that_did_nothing_but_start_others_has_failed(
    seconds: float, cpu: float, age: float, used: float, fails: bool
) -> None:
    """By times and by who has used the processor, never by names: the failure names what was left
    and what to write; a success has it as its reason and as a note."""
    driver = running()
    left = _left(seconds, cpu, LeftProcess(7, "python3 train.py", age, used))
    out = driver.feed(ev.TaskExited, name("worker:1"), 1, 0, None, left=left)
    view = driver.task("worker:1")
    assert view.left == left
    if fails:
        assert out == driver.shut_down() and driver.state("worker:1") is TaskState.FAILED
        assert driver.failure.how == (
            "exit 0, left 1 process, python3 train.py, which was ended: start it in the "
            "foreground, without & and nohup"
        )
        assert driver.confirmed() == driver.end(Outcome.FAILED, 1)
    else:
        assert view.state is TaskState.EXITED
        assert view.reason == "left 1 process, python3 train.py, which ends with the run"
        assert driver.seen.notes[-1] == f"worker:1 on b {view.reason}"


@pytest.mark.parametrize(
    ("seconds", "cpu", "process", "fails"),
    [
        pytest.param(0.01, 0.001, LeftProcess(7, "python3 x", 0, 0.02, 1), True, id="python x &"),
        pytest.param(0.01, 0.001, LeftProcess(7, "x", 0, 0.0, 127), True, id="not found"),
        pytest.param(
            0.01, 0.001, LeftProcess(7, "sh", 0, 0.0, 2, forked=True), True, id="cd DIR && x &"
        ),
        pytest.param(
            0.01, 0.001, LeftProcess(7, "python3 x", 0, 0.02, signal="HUP"), True, id="hangup"
        ),
        pytest.param(
            0.1, 0.02, LeftProcess(7, "grep", 0, 0.001, 1), False, id="filter whose input ends"
        ),
        pytest.param(9.0, 5.0, LeftProcess(7, "board", 1, 0.3, 1), False, id="port in use"),
        pytest.param(60.0, 0.0, LeftProcess(7, "python3 x", 0, 0.02, 1), False, id="has waited"),
    ],
)
def test_a_command_whose_background_fails_at_once_has_failed(
    seconds: float, cpu: float, process: LeftProcess, fails: bool
) -> None:
    """Nothing is left then; a helper that fails at the end is nobody's business."""
    driver = running()
    left = _left(seconds, cpu, process)
    driver.feed(ev.TaskExited, name("worker:1"), 1, 0, None, left=left)
    if fails:
        assert driver.state("worker:1") is TaskState.FAILED
        assert f"{process.command}, which failed ({process.failure}): " in driver.failure.how
    else:
        assert driver.state("worker:1") is TaskState.EXITED
        assert not driver.task("worker:1").reason and driver.task("worker:1").left is None


def test_several_in_the_background_are_told_apart() -> None:
    """Processes that have failed are named beside those that had to be ended."""
    left = _left(0.1, 0.0, LeftProcess(7, "a"), LeftProcess(8, "b", 0, 0.1, 1))
    assert left.text.startswith("left 2 processes, a; b (exit 1), which were ended: start")


def test_a_command_in_the_background_is_started_again_by_the_rules() -> None:
    """A command in the background is a failure like any other, and nothing of it is left in the
    next attempt's view."""
    driver = running('on_failure = "restart"\n')
    left = _left(0.1, 0.0, LeftProcess(7, "x" * 500), LeftProcess(8, "y"))
    driver.feed(ev.TaskExited, name("worker:1"), 1, 0, None, left=left)
    assert driver.state("worker:1") is TaskState.BACKOFF
    assert len(driver.task("worker:1").reason) < 300
    driver.receipt("b", ["worker:1"])
    driver.fired(RestartDelay(name("worker:1"), 1))
    assert driver.task("worker:1").left is None


def test_a_job_outside_of_the_cluster_may_leave_a_daemon() -> None:
    """Such as one that starts a server, and ends."""
    driver = running(jobs='[jobs.board]\ntasks = ["a:6006"]\nin_cluster = false\n')
    driver.ready("board:0")
    left = _left(0.1, 0.0, LeftProcess(7, "board"))
    driver.feed(ev.TaskExited, name("board:0"), 1, 0, None, left=left)
    assert driver.state("board:0") is TaskState.EXITED and driver.task("board:0").left is None


@pytest.mark.parametrize("single", [False, True])
def test_a_server_on_the_loopback_is_named_once_where_others_need_it(single: bool) -> None:
    """Not again when its host comes back, nor where all tasks are on one host."""
    text = CLUSTER.replace(', "b:2222", "b:2223"', "") if single else CLUSTER
    driver = staged(text=text, jobs='[jobs.board]\ntasks = ["b:6006"]\nin_cluster = false\n')
    for _ in range(2):
        driver.feed(ev.ListensOnLoopback, name("ps:0"), 1, "127.0.1.1")
    notes = [note for note in driver.seen.notes if "listens on 127.0.1.1 only" in note]
    assert len(notes) == (0 if single else 1)


# --- the end ------------------------------------------------------------------------------------


def test_when_the_chief_is_done_the_others_may_finish_and_the_ps_is_stopped(
    driver: RunDriver,
) -> None:
    out = driver.exited("worker:0")
    assert driver.phase() is RunPhase.FINISHING
    assert out == [WatchSilence(name("worker:1"), 60.0), WatchSilence(name("worker:2"), 60.0)]
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
    driver = running('success = "all"')
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
    out = driver.feed(ev.OutputStalled, name("worker:2"), 60.0)
    assert out == [kill("b", "worker:2", 5.0)]
    assert "hangs at its end" in driver.task("worker:2").reason
    assert driver.exited("worker:2", None, "TERM") == driver.shut_down()
    assert driver.confirmed() == driver.end(Outcome.FAILED, 1)


@pytest.mark.parametrize(
    ("awaits", "words"),
    [
        ("worker:0", "for 60 s it has only waited for worker:0, which had ended 2 s before"),
        ("ps:0", "for 60 s it has only waited for ps:0, which is ready"),
        ("worker:9", "no output for 60 s after others had ended"),
    ],
)
def test_a_program_that_waits_for_one_that_has_ended_names_it(
    driver: RunDriver, awaits: str, words: str
) -> None:
    """And when; a task that the run does not have, which anybody may print, is left out."""
    driver.exited("worker:0")
    driver.exited("worker:1")
    driver.feed(ev.OutputStalled, name("worker:2"), 60.0, name(awaits))
    assert driver.task("worker:2").reason == f"hangs at its end: {words}"


def test_a_program_that_hangs_at_its_end_and_cannot_be_ended_has_failed(driver: RunDriver) -> None:
    """The program waits in the kernel, so that its exit may never come."""
    driver.exited("worker:0")
    driver.exited("worker:1")
    driver.feed(ev.OutputStalled, name("worker:2"), 60.0)
    left = (Survivor(7, "train.py", "D"),)
    assert driver.receipt("b", ["worker:2"], survivors=left) == driver.shut_down()
    assert driver.failure.how.endswith("had ended; 1 process left, such as pid 7 (D) train.py")


def test_workers_that_only_serve_a_chief_are_stopped_by_the_rule() -> None:
    """Beside a chief of a job of its own, workers that `join()` never end by themselves."""
    jobs = '[jobs.chief]\ntasks = ["a:2224"]\n'
    driver = staged('success = "chief"\n', jobs=jobs)
    driver.ready("ps:0", "chief:0", "worker:0", "worker:1", "worker:2")
    driver.exited("chief:0")
    for worker, host in (("worker:0", "a"), ("worker:1", "b"), ("worker:2", "b")):
        out = driver.feed(ev.OutputStalled, name(worker), 60.0)
        assert kills(out) == [(host, [worker], 5.0)]
        out = driver.exited(worker, None, "TERM")
        assert driver.state(worker) is TaskState.STOPPED
    assert out == driver.shut_down()
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_a_worker_whose_stack_says_that_it_only_serves_is_stopped_by_the_rule() -> None:
    """Beside a chief of its own job, and others of it that have ended by themselves; but only
    where the chief has ended well, and where the file does not want all to."""
    driver = running()
    driver.exited("worker:0")
    driver.exited("worker:1")
    out = driver.feed(ev.OutputStalled, name("worker:2"), 60.0, serves=True)
    assert kills(out) == [("b", ["worker:2"], 5.0)]
    assert driver.exited("worker:2", None, "TERM") == driver.shut_down()
    assert driver.state("worker:2") is TaskState.STOPPED
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)
    driver = running()
    driver.exited("worker:1")
    assert driver.feed(ev.OutputStalled, name("worker:2"), 60.0, serves=True) == [
        WatchSilence(name("worker:2"), 60.0)  # the chief may ask it
    ]
    driver = running('success = "all"\n')
    driver.exited("worker:0")
    driver.exited("worker:1")
    driver.feed(ev.OutputStalled, name("worker:2"), 60.0, serves=True)
    assert "hangs at its end" in driver.task("worker:2").reason


def test_tasks_that_only_serve_are_stopped_when_all_others_have_ended() -> None:
    """Without a chief all tasks decide, but for those that have no end of their own."""
    text = CLUSTER.replace("[jobs.worker]", "[jobs.local]").replace("[jobs.ps]", "[jobs.other]")
    driver = RunDriver(text=text)
    driver.staged()
    driver.ready("other:0", "local:0", "local:1", "local:2")
    driver.exited("local:0")
    again = [WatchSilence(name("local:1"), 60.0)]
    assert driver.feed(ev.OutputStalled, name("local:1"), 60.0, serves=True) == again
    driver.exited("other:0")
    assert driver.feed(ev.OutputStalled, name("local:1"), 60.0, serves=True) == again
    out = driver.feed(ev.OutputStalled, name("local:2"), 60.0, serves=True)
    assert kills(out) == [("b", ["local:1"], 5.0), ("b", ["local:2"], 5.0)]
    other = RunDriver(text=text)
    other.staged()
    other.ready("other:0", "local:0", "local:1", "local:2")
    other.exited("local:0")
    other.feed(ev.OutputStalled, name("local:1"), 60.0, serves=True)
    other.exited("other:0")
    assert kills(other.exited("local:2")) == [("b", ["local:1"], 5.0)]  # nobody is left that asks
    driver.exited("local:1", None, "TERM")
    assert driver.exited("local:2", None, "TERM") == driver.shut_down()
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_a_worker_that_hangs_while_others_have_ended_is_no_server() -> None:
    """Where one worker has ended by itself, its like are expected to."""
    jobs = '[jobs.chief]\ntasks = ["a:2224"]\n'
    driver = staged('success = "chief"\n', jobs=jobs)
    driver.ready("ps:0", "chief:0", "worker:0", "worker:1", "worker:2")
    driver.exited("chief:0")
    driver.exited("worker:0")
    driver.feed(ev.OutputStalled, name("worker:1"), 60.0)
    assert "hangs at its end" in driver.task("worker:1").reason
    driver.exited("worker:1", None, "TERM")
    assert driver.state("worker:1") is TaskState.FAILED


def test_silence_that_is_told_too_late_kills_nothing(driver: RunDriver) -> None:
    """The task has ended meanwhile, a person has stopped it, or the run is being shut down."""
    driver.exited("worker:0")
    driver.exited("worker:1")
    assert driver.feed(ev.OutputStalled, name("worker:1"), 60.0) == []
    assert driver.state("worker:1") is TaskState.EXITED
    driver.feed(ev.SignalTask, name("worker:2"), "TERM")
    assert driver.feed(ev.OutputStalled, name("worker:2"), 60.0) == []
    assert driver.exited("worker:2", None, "TERM") == driver.shut_down()
    assert driver.state("worker:2") is TaskState.KILLED
    killed = running()
    killed.exited("worker:0")
    assert killed.feed(ev.KillAll) == killed.shut_down()
    assert killed.feed(ev.OutputStalled, name("worker:2"), 60.0) == []
    killed.exited("worker:2", None, "TERM")
    assert killed.state("worker:2") is TaskState.KILLED
    assert killed.confirmed() == killed.end(Outcome.KILLED, 130)


@pytest.mark.parametrize("settings", ["", 'on_disconnect = "keep"\n', 'on_failure = "restart"\n'])
def test_a_worker_that_is_lost_after_the_chief_has_ended_has_the_finish_timeout(
    settings: str,
) -> None:
    """From its loss on, which is later than the rule: the other nodes do not idle to their limit,
    and a run without a rank's last word is no success."""
    driver = running(settings)
    driver.exited("worker:0")
    driver.now += 50
    driver.lost("b", lease=600.0)
    driver.now += 8
    (watch,) = driver.feed(ev.OutputStalled, name("worker:2"), 60.0)
    assert watch == WatchSilence(name("worker:2"), 51.0)
    assert driver.state("worker:2") is TaskState.LOST
    driver.now += 50
    assert driver.feed(ev.OutputStalled, name("worker:2"), 51.0) == driver.shut_down()
    assert (driver.failure.task, driver.failure.how) == (name("worker:2"), "lost")
    driver.receipt("a")
    driver.now += 30
    assert ends(driver.fired(ShutdownTimeout())) == [(Outcome.FAILED, 4)]


def test_a_worker_that_was_lost_before_the_chief_ended_has_it_from_that_on() -> None:
    driver = running()
    driver.lost("b", lease=600.0)
    driver.now += 500
    assert driver.exited("worker:0")[:1] == [WatchSilence(name("worker:1"), 60.0)]
    driver.now += 59
    assert driver.feed(ev.OutputStalled, name("worker:1"), 60.0) == driver.shut_down()
    assert driver.failure.task == name("worker:1")


def test_a_worker_that_hung_before_its_host_was_seen_lost_is_lost(driver: RunDriver) -> None:
    """A cut is seen some seconds later: the order to end the worker reached nobody."""
    driver.exited("worker:0")
    driver.exited("worker:1")
    assert kills(driver.feed(ev.OutputStalled, name("worker:2"), 60.0))
    out = driver.lost("b", lease=600.0)
    assert out[1:] == [WatchSilence(name("worker:2"), 60.0)]
    driver.now += 60
    assert driver.feed(ev.OutputStalled, name("worker:2"), 60.0) == driver.shut_down()
    assert (driver.failure.task, driver.failure.how) == (name("worker:2"), "lost")


def test_a_lost_worker_whose_word_comes_in_time_is_a_success() -> None:
    """Its host is back, and it had ended well meanwhile."""
    driver = running()
    driver.exited("worker:0")
    driver.lost("b")
    driver.up("b", tasks=[held("worker:1"), held("worker:2")])
    driver.exited("worker:1")
    assert driver.exited("worker:2") == driver.shut_down()
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_where_all_must_end_a_cut_is_no_reason_to_end_before_the_lease() -> None:
    """One has ended well, and others work on where nobody hears them: a laptop that sleeps."""
    driver = running('success = "all"')
    driver.exited("worker:0")
    driver.lost("b", lease=600.0)
    driver.now += 300
    again = driver.feed(ev.OutputStalled, name("worker:1"), 60.0)
    assert again == [WatchSilence(name("worker:1"), 60.0)]
    driver.now += 400
    assert driver.fired(ev.LeaseEnd("b")) == driver.shut_down()
    assert driver.failure.how == "lost"


@pytest.mark.parametrize("chief", [False, True])
def test_a_lost_worker_that_only_served_is_stopped(chief: bool) -> None:
    """Beside a chief of another job, of whose workers none has ended by itself, nobody waits for
    the words of one; its host cannot confirm, and that is all."""
    driver = staged('success = "chief"\n', jobs='[jobs.chief]\ntasks = ["a:2224"]\n')
    driver.ready("ps:0", "chief:0", "worker:0", "worker:1", "worker:2")
    driver.exited("chief:0")
    if chief:  # one of them has: its like are expected to
        driver.exited("worker:0")
    else:
        driver.feed(ev.OutputStalled, name("worker:0"), 60.0)
        driver.exited("worker:0", None, "TERM")
    driver.lost("b", lease=600.0)
    driver.now += 60
    out = driver.feed(ev.OutputStalled, name("worker:1"), 60.0)
    if chief:
        assert out == driver.shut_down() and driver.failure.task == name("worker:1")
        return
    assert out == [] and driver.state("worker:1") is TaskState.STOPPED
    assert driver.feed(ev.OutputStalled, name("worker:2"), 60.0) == driver.shut_down()
    driver.receipt("a")
    driver.now += 30
    assert ends(driver.fired(ShutdownTimeout())) == [(Outcome.SUCCESS, 4)]


def test_a_ps_that_fails_stops_the_run_even_under_keep() -> None:
    driver = running('on_failure = "keep"')
    assert driver.exited("ps:0", 3) == driver.shut_down()
    assert (str(driver.failure.task), driver.failure.how) == ("ps:0", "exit 3")


def test_a_worker_that_fails_under_keep_is_a_failure_at_the_end() -> None:
    driver = running('on_failure = "keep"')
    assert driver.exited("worker:1", 1) == []
    driver.exited("worker:0")
    assert kills(driver.exited("worker:2"))
    assert driver.confirmed() == driver.end(Outcome.FAILED, 1)


def test_the_first_failure_is_the_headline_and_the_others_stand_below() -> None:
    driver = running('on_failure = "keep"')
    driver.feed(ev.TaskExited, name("worker:2"), 1, None, "SEGV", "", ("last words",))
    driver.exited("worker:1", 1)
    failure = driver.failure
    assert (str(failure.task), failure.how, failure.tail) == (
        "worker:2",
        "killed by SIGSEGV",
        ("last words",),
    )
    assert failure.others == (name("worker:1"),)


def test_a_hundred_failures_below_the_first_are_named_and_more_are_counted() -> None:
    """Under `keep` all workers may fail."""
    places = ", ".join(f'"a:{3000 + number}"' for number in range(103))
    text = '[hosts.a]\nssh = "a"\n[jobs.chief]\ntasks = ["a:2222"]\n[jobs.worker]\n'
    text += f'tasks = [{places}]\n[run]\ncommand = ["x"]\non_failure = "keep"\n'
    driver = RunDriver(text=text + '[start.ready]\nworker = "started"\nchief = "started"\n')
    driver.feed(ev.Begin)
    driver.up("a")
    driver.feed(ev.HostsChecked, FACTS)
    driver.feed(ev.Staged, "a")
    workers = [f"worker:{number}" for number in range(103)]
    driver.begun("chief:0", *workers)
    for worker in workers[:101]:
        driver.exited(worker, 1)
    assert driver.failure.others == tuple(map(name, workers[1:101]))
    assert driver.failure.unlisted == 0
    driver.exited(workers[101], 1)
    driver.exited(workers[102], 1)
    assert driver.failure.others == tuple(map(name, workers[1:101]))
    assert driver.failure.unlisted == 2


def test_a_helpers_failure_is_shown_and_ends_nothing() -> None:
    jobs = '[jobs.board]\ntasks = ["b:6006"]\nin_cluster = false\ncommand = ["y"]\n'
    driver = running(jobs=jobs)
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
    driver = running('on_failure = "restart"')
    driver.exited("worker:1", 1)
    driver.receipt("b", ["worker:1"])
    driver.fired(RestartDelay(name("worker:1"), 1))
    assert driver.exited("worker:1", 1, attempt=1) == []
    assert driver.state("worker:1") is TaskState.STARTING


# --- kill-all -----------------------------------------------------------------------------------


def test_kill_all_is_one_broadcast_and_ends_in_a_receipt(driver: RunDriver) -> None:
    out = driver.feed(ev.KillAll)
    assert out == driver.shut_down()
    assert driver.seen.kill_deadline == driver.now + 5
    driver.exited("ps:0", None, "TERM")
    assert driver.receipt("a", signalled=2) == []
    assert driver.receipt("b", signalled=3) == driver.end(Outcome.KILLED, 130)
    receipt = driver.seen.receipt
    assert receipt is not None and receipt.clean
    assert [(h.host, h.signalled) for h in receipt.hosts] == [("a", 2), ("b", 3)]
    assert {view.state for view in driver.seen.tasks} == {TaskState.KILLED}


def test_a_forced_kill_kills_now_only_where_something_is_left(driver: RunDriver) -> None:
    driver.feed(ev.KillAll)
    driver.receipt("a")
    patience = SetTimer(ShutdownTimeout(), KILL_PATIENCE)
    assert driver.feed(ev.KillAll, force=True) == [KillHost("b", None, 0.0, final=True), patience]
    assert driver.feed(ev.KillAll, force=True) == [KillHost("b", None, 0.0, final=True)]
    assert driver.seen.kill_deadline == driver.now - 1
    assert driver.receipt("b") == driver.end(Outcome.KILLED, 130)
    assert driver.feed(ev.KillAll, force=True) == []


def test_a_forced_kill_needs_no_other_before_it(driver: RunDriver) -> None:
    now = [KillHost(host, None, 0.0, final=True) for host in ("a", "b")]
    patience = SetTimer(ShutdownTimeout(), KILL_PATIENCE)
    assert driver.feed(ev.KillAll, force=True) == [*driver.shut_down(), *now, patience]
    assert driver.run.data.run.forced and driver.seen.kill_deadline == driver.now


def test_a_kill_that_is_repeated_shortens_no_grace(driver: RunDriver) -> None:
    """A client that leaves, a closed pipe and a person may all say it for one Ctrl-C."""
    driver.feed(ev.KillAll)
    deadline = driver.seen.kill_deadline
    for by_person in (False, True, False):
        assert driver.feed(ev.KillAll, by_person) == []
    assert not driver.run.data.run.forced and driver.seen.kill_deadline == deadline
    assert driver.confirmed() == driver.end(Outcome.KILLED, 130)


def ended_by_the_rule(driver: RunDriver) -> None:
    """All workers have exited 0, and the ps is in its grace."""
    driver.exited("worker:0")
    driver.exited("worker:1")
    assert driver.exited("worker:2") == driver.shut_down()
    assert not driver.seen.kill_asked


def test_a_persons_first_kill_while_the_rule_ends_a_run_is_the_first(driver: RunDriver) -> None:
    """The kill is a person's from then on, and the ps keeps its grace; the next one is forced."""
    ended_by_the_rule(driver)
    deadline = driver.seen.kill_deadline
    assert driver.feed(ev.KillAll) == []
    assert driver.seen.kill_asked and not driver.run.data.run.forced
    assert driver.seen.kill_deadline == deadline
    assert kills(driver.feed(ev.KillAll, force=True)) == [("a", None, 0.0), ("b", None, 0.0)]
    assert driver.confirmed() == driver.end(Outcome.KILLED, 130)


def test_only_a_forced_kill_gives_up_the_results_of_a_run_that_has_ended(driver: RunDriver) -> None:
    ended_by_the_rule(driver)
    driver.confirmed()
    notes = driver.seen.notes
    for by_person in (False, True, True):
        assert driver.feed(ev.KillAll, by_person) == []
        assert not driver.run.data.run.forced and driver.seen.kill_asked is by_person
    (note,) = driver.seen.notes[len(notes) :]
    assert "kill it again to give up the results" in note
    assert driver.feed(ev.KillAll, force=True) == []
    assert driver.run.data.run.forced and driver.seen.outcome is Outcome.SUCCESS
    assert "are given up" in driver.seen.notes[-1]


def test_a_terminal_that_is_closed_while_the_rule_ends_a_run_changes_nothing(
    driver: RunDriver,
) -> None:
    ended_by_the_rule(driver)
    assert driver.feed(ev.KillAll, by_person=False) == []
    assert not driver.run.data.run.forced and not driver.seen.kill_asked
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_a_person_who_joins_in_after_a_failure_has_killed_the_run() -> None:
    """Where several exit codes hold, 130 comes before 1; the failure is still named."""
    driver = running()
    assert driver.exited("worker:1", 1) == driver.shut_down()
    assert driver.feed(ev.KillAll) == []
    assert driver.confirmed() == driver.end(Outcome.KILLED, 130)
    assert str(driver.failure.task) == "worker:1"


def test_a_task_that_a_person_kills_is_no_press_of_the_kill_key(driver: RunDriver) -> None:
    """A ps that is ended ends the run; whoever then presses the key has not pressed it before."""
    driver.feed(ev.SignalTask, name("ps:0"), "TERM")
    assert driver.exited("ps:0", None, "TERM") == driver.shut_down()
    assert not driver.seen.kill_asked
    assert driver.feed(ev.KillAll) == []
    assert driver.seen.kill_asked


def test_by_term_the_exit_code_is_another(driver: RunDriver) -> None:
    driver.feed(ev.KillAll, by_person=False)
    assert driver.confirmed() == driver.end(Outcome.TERMINATED, 143)


def silent_until_the_end(driver: RunDriver, host: str) -> list[Instruction]:
    """A kill that this host does not answer, up to the end of the patience with it."""
    driver.feed(ev.KillAll)
    driver.receipt("a" if host == "b" else "b")
    driver.now += 5.0 + KILL_PATIENCE
    return driver.fired(ShutdownTimeout())


def test_nothing_is_promised_for_an_agent_that_stands_still(driver: RunDriver) -> None:
    """Its host can be reached, so it will not act when its lease ends."""
    driver.lost("b", lease=600.0)
    driver.feed(ev.AgentSilent, "b")
    assert driver.run.data.hosts["b"].reason.startswith("its agent does not answer")
    assert silent_until_the_end(driver, "b") == [ReleaseHost("a"), End(Outcome.KILLED, 4)]
    receipt = driver.seen.receipt
    assert receipt is not None
    (said,) = [one for one in receipt.hosts if one.host == "b"]
    assert said.unreachable_until is None and said.doubt.startswith("its agent does not answer")


def test_an_agent_that_answers_again_is_no_silent_one(driver: RunDriver) -> None:
    """The agent was stopped once; now its host is cut off, and it acts by itself."""
    driver.lost("b")
    driver.feed(ev.AgentSilent, "b")
    driver.up("b", tasks=[held("worker:1"), held("worker:2")])
    driver.lost("b", lease=600.0)
    silent_until_the_end(driver, "b")
    receipt = driver.seen.receipt
    assert receipt is not None and receipt.hosts[-1].unreachable_until is not None


def test_a_host_that_has_just_come_back_gets_some_seconds(driver: RunDriver) -> None:
    """For its receipt; but not for ever, where it comes and goes."""
    driver.lost("b")
    driver.feed(ev.KillAll)
    driver.receipt("a")
    driver.now += 4.0 + KILL_PATIENCE
    driver.up("b", tasks=[held("worker:1"), held("worker:2")])
    driver.now += 1.0
    assert timers(driver.fired(ShutdownTimeout())) == {ShutdownTimeout(): 1.0}
    assert driver.receipt("b") == driver.end(Outcome.KILLED, 130)


def test_a_host_that_comes_and_goes_does_not_hold_a_kill_for_ever(driver: RunDriver) -> None:
    driver.feed(ev.KillAll)
    driver.receipt("a")
    for _ in range(1000):
        driver.lost("b")
        driver.up("b", tasks=[held("worker:1"), held("worker:2")])
        driver.now += 1.0
        if ends(driver.fired(ShutdownTimeout())):
            break
    assert driver.phase() is RunPhase.ENDED and driver.seen.exit_code == 4


def test_nothing_starts_any_more_once_everything_is_being_ended() -> None:
    driver = staged('on_failure = "restart"')
    driver.begun("ps:0")
    driver.feed(ev.KillAll)
    assert driver.feed(ev.TaskReady, name("ps:0"), 1) == []
    assert driver.exited("ps:0", 1) == []
    assert driver.fired(RestartDelay(name("ps:0"), 1)) == []
    assert driver.confirmed() == driver.end(Outcome.KILLED, 130)
    assert driver.state("worker:1") is TaskState.PENDING


def test_kill_before_any_host_was_contacted_ends_at_once() -> None:
    driver = RunDriver()
    driver.feed(ev.Begin)
    assert driver.feed(ev.KillAll) == driver.end(Outcome.KILLED, 130, ())


def test_kill_while_staging_reaches_every_host_that_was_met() -> None:
    driver = RunDriver()
    driver.checked()
    assert driver.feed(ev.KillAll) == driver.shut_down()
    assert driver.feed(ev.Staged, "a") == []
    assert driver.confirmed() == driver.end(Outcome.KILLED, 130)


def test_survivors_are_reported_and_the_exit_code_says_unconfirmed(driver: RunDriver) -> None:
    driver.feed(ev.KillAll)
    driver.receipt("a")
    out = driver.receipt("b", survivors=(Survivor(7, "stuck", "D"),), confirmed=False)
    assert out == driver.end(Outcome.KILLED, 4)  # which fetches the logs of both
    assert driver.state("worker:1") is not TaskState.KILLED


def test_an_agent_that_acted_alone_is_not_the_receipt_of_a_kill(driver: RunDriver) -> None:
    """Its lease had ended while we slept: its receipt is not ours to end the run with."""
    assert driver.receipt("a") == [] and driver.receipt("b") == []
    assert driver.phase() is RunPhase.RUNNING


@pytest.mark.parametrize(
    ("settings", "lease", "said"),
    [("", 60.0, True), ("", 1.0, False), ('on_disconnect = "keep"\n', 60.0, False)],
)
def test_only_an_agent_that_will_act_by_itself_is_said_to(
    settings: str, lease: float, said: bool
) -> None:
    """Not one whose lease and grace are over, nor under `keep`, where tasks go on until somebody
    kills them."""
    driver = running(settings)
    driver.lost("b", lease)
    driver.feed(ev.KillAll)
    driver.receipt("a")
    driver.now += 20
    assert ends(driver.fired(ShutdownTimeout())) == [(Outcome.KILLED, 4)]
    assert driver.seen.receipt is not None
    away = driver.seen.receipt.hosts[1]
    assert not away.confirmed and (away.unreachable_until is not None) is said


def test_a_clock_that_is_set_gives_a_host_that_returns_no_more_than_the_grace() -> None:
    """Given a host that is cut off during a kill, when the clock is set back by a day, then its
    tasks have the grace and not a day."""
    driver = running()
    driver.feed(ev.KillAll)
    driver.lost("b")
    driver.now -= 86_400
    assert driver.up("b", tasks=[held("worker:1")]) == [KillHost("b", None, 5.0, final=True)]


def test_a_kill_at_once_does_not_wait_for_the_grace_of_a_host_that_is_cut_off() -> None:
    """Nothing there has a grace any more; who presses again puts nothing off."""
    driver = running()
    driver.lost("b")
    driver.feed(ev.KillAll)
    assert timers(driver.feed(ev.KillAll, force=True)) == {ShutdownTimeout(): KILL_PATIENCE}
    assert timers(driver.feed(ev.KillAll, force=True)) == {}


def test_a_task_has_ended_when_its_host_has_seen_that() -> None:
    """Given an exit that is told late, after its last output, then the record has the time of the
    exit; and that the kernel killed it for want of memory, where it did."""
    driver = running()
    at = driver.now - 2.5
    task = name("worker:1")
    driver.feed(ev.TaskExited, task, 1, None, "KILL", ended=at, out_of_memory=True)
    view = driver.task("worker:1")
    assert (view.state, view.ended) == (TaskState.FAILED, at)
    assert driver.failure.how == "killed by SIGKILL, out of memory"
    assert view.exit_text == "failed, SIGKILL, out of memory"


@pytest.mark.parametrize("rule", ["stop", "restart", "restart-all"])
def test_a_task_that_hangs_in_its_exit_has_failed_as_if_it_had_left(rule: str) -> None:
    """Given a task that has raised and does not come to its end, when it has been silent for
    `finish_timeout`, then it is ended, and what follows is what follows on its exception."""
    driver, task = running(f'on_failure = "{rule}"\nfinish_timeout = 30\n'), name("worker:1")
    hangs = partial(driver.feed, ev.HangsInExit, task, 1, "ValueError: bad sample", 5.0)
    assert hangs() == [WatchSilence(task, 25.0)] and hangs() == []
    assert driver.feed(ev.OutputStalled, task, 25.0) == [kill("b", "worker:1", 5.0)]
    reason = "raised ValueError: bad sample, and hangs in its exit"
    assert driver.task("worker:1").reason == reason
    out = driver.exited("worker:1", None, "TERM")
    if rule == "stop":
        assert out == driver.shut_down() and driver.failure.how == reason
    elif rule == "restart":
        assert RestartDelay(task, 1) in timers(out)
    else:
        assert driver.phase() is RunPhase.RESTARTING and kills(out)
    assert driver.feed(ev.HangsInExit, task, 1, "ValueError: late", 80.0) == []


def test_the_verdict_on_a_hang_lasts_as_long_as_that() -> None:
    """Given a run that hangs, then the cause is in its record until it goes on, or ends well; one
    that comes when it is being ended is none any more."""
    verdict = Verdict((name("worker:1"),), Kind.STOPPED, True, "worker:1 on b is stopped")
    driver = running()
    found = []
    for step in (
        lambda: driver.feed(ev.HangJudged, verdict),
        lambda: driver.feed(ev.HangJudged, None),
        lambda: driver.feed(ev.HangJudged, verdict),
        lambda: [driver.exited(f"worker:{number}") for number in range(3)],
        driver.confirmed,
    ):
        step()
        found.append(driver.seen.verdict)
    assert found == [verdict, None, verdict, verdict, None]
    driver = running()
    driver.feed(ev.KillAll)
    assert driver.feed(ev.HangJudged, verdict) == [] and driver.seen.verdict is None


MISSED = ("RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.2]:229",)


def missed_by_a_worker() -> RunDriver:
    """A run whose worker:1 has just ended, and says that a peer is missing."""
    driver = RunDriver()
    driver.running()
    out = driver.exited("worker:1", 1, tail=MISSED, misses_peer=True)
    assert out == [LookAtOthers(name("worker:1")), SetTimer(ev.LookTimeout(name("worker:1")), 2.0)]
    assert driver.phase() is RunPhase.RUNNING and driver.failure.task == name("worker:1")
    return driver


@pytest.mark.parametrize(
    "how", ["looked at", "time is over", "a failure", "F9", "the launcher dies"]
)
def test_the_others_are_looked_at_before_they_are_ended_for_a_victim(how: str) -> None:
    """The end comes with the look, or when its time is over; a failure of another kind and a person
    do not wait, a further victim does, and a launcher that takes the run over ends it."""
    driver, victim = missed_by_a_worker(), name("worker:1")
    assert driver.exited("worker:2", 1, tail=MISSED, misses_peer=True) == []
    if how == "looked at":
        out = driver.feed(ev.LookedAt, victim)
    elif how == "time is over":
        out = driver.feed(ev.TimerFired, ev.LookTimeout(victim))
    elif how == "a failure":
        out = driver.exited("worker:0", 1, tail=("ValueError: bad sample",))
    elif how == "F9":
        out = driver.feed(ev.KillAll, by_person=True, force=False)
    else:
        out = driver.feed(ev.Attached, complete=True)
    assert driver.phase() is RunPhase.KILLING and out == driver.shut_down()
    assert driver.feed(ev.LookedAt, victim) == []


# Ends of a run from outside: what its tasks did in answer to them is not their own end.

AGENT, LAUNCHER, SIGNAL = StoppedBy.AGENT, StoppedBy.LAUNCHER, StoppedBy.SIGNAL


def asked(
    driver: RunDriver, task: str, by: StoppedBy, status: int | None = 0, signal: str | None = None
) -> list[Instruction]:
    """A task ends after somebody has asked it to."""
    ended = (name(task), 1, status, signal)
    return driver.feed(ev.TaskExited, *ended, stopped_by=by, stopped_why="told to stop")


@pytest.mark.parametrize("success", ["chief", "all"])
@pytest.mark.parametrize(("status", "signal"), [(0, None), (143, None), (None, "TERM")])
def test_tasks_that_an_agent_has_ended_are_no_success(
    success: str, status: int | None, signal: str | None
) -> None:
    """A host that shuts down, a lease, a job that is cancelled: they save, and leave with 0."""
    driver = running(f'success = "{success}"')
    for task in ("worker:1", "worker:2"):
        asked(driver, task, AGENT, status, signal)
    assert driver.state("worker:1") is TaskState.STOPPED
    assert driver.phase() is RunPhase.KILLING
    for task in ("worker:0", "ps:0"):
        asked(driver, task, AGENT, status, signal)
    assert driver.confirmed() == driver.end(Outcome.FAILED, 1)
    assert driver.seen.cause is Cause.OUTSIDE
    assert driver.failure.task == name("worker:1") and "told to stop" in driver.failure.how
    assert driver.task("worker:1").stopped_by is AGENT
    assert driver.state("worker:0") is TaskState.STOPPED
    assert driver.task("worker:0").exit_text in ("stopped, exit 0", "stopped, SIGTERM")


@pytest.mark.parametrize("by", [LAUNCHER, SIGNAL])
def test_nor_are_tasks_that_somebody_else_has_ended(by: StoppedBy) -> None:
    """A launcher of which nothing was recorded, and a signal to the job step."""
    driver = running('success = "all"')
    for task in ("worker:0", "worker:1", "worker:2"):
        asked(driver, task, by)
    driver.confirmed()
    assert (driver.seen.outcome, driver.seen.exit_code) == (Outcome.FAILED, 1)


def test_a_failure_after_a_signal_is_the_tasks_own() -> None:
    driver = running()
    asked(driver, "worker:1", SIGNAL, None, "USR1")
    assert driver.state("worker:1") is TaskState.FAILED
    assert driver.failure.how == "killed by SIGUSR1"


@pytest.mark.parametrize("by", [AGENT, LAUNCHER, SIGNAL])
def test_a_worker_that_is_cut_off_when_the_chief_was_done_is_a_failure(by: StoppedBy) -> None:
    """The rule was met by the chief alone, and the others were at work: what they would have made
    of it nobody knows."""
    driver = running()
    driver.exited("worker:0")
    assert driver.phase() is RunPhase.FINISHING
    assert asked(driver, "worker:1", by) == driver.shut_down()
    driver.exited("worker:2")
    assert driver.confirmed() == driver.end(Outcome.FAILED, 1)
    assert driver.state("worker:1") is TaskState.STOPPED
    assert driver.failure.task == name("worker:1")


@pytest.mark.parametrize("by", [AGENT, SIGNAL])
def test_a_ps_that_is_ended_when_the_chief_was_done_changes_nothing(by: StoppedBy) -> None:
    """A ps only serves: the last word is that of the workers."""
    driver = running()
    driver.exited("worker:0")
    assert asked(driver, "ps:0", by) == []
    driver.exited("worker:1")
    driver.exited("worker:2")
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_a_run_that_is_being_ended_by_its_rule_stays_a_success() -> None:
    """The agent's own end comes while the rule ends the ps."""
    driver = running()
    for task in ("worker:0", "worker:1", "worker:2"):
        driver.exited(task)
    asked(driver, "ps:0", AGENT)
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


@pytest.mark.parametrize("chief_last", [True, False])
def test_a_launcher_that_comes_later_learns_of_ends_in_any_order(chief_last: bool) -> None:
    """The chief was done, and the other host was shut down with workers on it: in whatever order a
    launcher that comes later hears of that, the run has failed."""
    driver = running()
    driver.feed(ev.Attached, True)
    tasks = {"a": ["ps:0", "worker:0"], "b": ["worker:1", "worker:2"]}
    for host in ("b", "a") if chief_last else ("a", "b"):
        driver.up(host, tasks=[held(task) for task in tasks[host]])
        for task in tasks[host]:
            if task == "worker:0":
                driver.exited(task)
            else:
                asked(driver, task, AGENT)
    driver.confirmed()
    assert (driver.seen.outcome, driver.seen.exit_code) == (Outcome.FAILED, 1)
    assert driver.failure.task != name("worker:0") and driver.seen.cause is Cause.OUTSIDE


def test_a_launcher_that_comes_later_learns_of_a_lease() -> None:
    """All had saved and left with 0 when no launcher had come for long."""
    driver = running('success = "all"')
    driver.feed(ev.Attached, True)
    for host, tasks in (("a", ["ps:0", "worker:0"]), ("b", ["worker:1", "worker:2"])):
        driver.up(host, tasks=[held(task) for task in tasks], agent_exit="no launcher for 60 s")
        for task in tasks:
            asked(driver, task, AGENT)
    driver.confirmed()
    assert (driver.seen.outcome, driver.seen.exit_code) == (Outcome.FAILED, 1)


def test_a_failed_chief_is_the_headline_and_its_workers_were_stopped() -> None:
    """They save, and leave with 0."""
    driver = running()
    driver.exited("worker:0", 1)
    for task in ("worker:1", "worker:2", "ps:0"):
        asked(driver, task, LAUNCHER)
        assert driver.state(task) is TaskState.STOPPED
    assert driver.confirmed() == driver.end(Outcome.FAILED, 1)
    assert driver.failure.task == name("worker:0") and driver.failure.others == ()


def test_an_end_that_was_seen_before_a_kill_is_the_tasks_own() -> None:
    """A person kills the run; one worker had just been done."""
    driver = running()
    driver.feed(ev.KillAll)
    driver.exited("worker:1")
    asked(driver, "worker:2", LAUNCHER)
    driver.confirmed()
    assert driver.state("worker:1") is TaskState.EXITED
    assert driver.state("worker:2") is TaskState.KILLED
    assert driver.task("worker:2").exit_text == "killed, exit 0"


def test_under_keep_the_others_go_on_and_the_run_has_failed() -> None:
    driver = running('on_failure = "keep"\nsuccess = "all"')
    assert asked(driver, "worker:1", AGENT) == []
    assert driver.state("worker:1") is TaskState.FAILED
    driver.exited("worker:0")
    driver.exited("worker:2")
    driver.confirmed()
    assert (driver.seen.outcome, driver.seen.exit_code) == (Outcome.FAILED, 1)


def test_a_task_that_was_ended_from_outside_starts_again_where_the_rules_say_so() -> None:
    """Such as on a host that has come back."""
    driver = running('on_failure = "restart"')
    asked(driver, "worker:1", AGENT)
    assert driver.state("worker:1") is TaskState.BACKOFF
    driver.receipt("b", ["worker:1"])
    out = driver.fired(ev.RestartDelay(name("worker:1"), 1))
    assert starts(out) == [("worker:1", 2)]
    assert driver.task("worker:1").stopped_by is StoppedBy.NOBODY


def test_all_tasks_start_again_where_one_was_ended_from_outside() -> None:
    driver = running('on_failure = "restart-all"')
    assert kills(asked(driver, "worker:1", AGENT))
    assert driver.phase() is RunPhase.RESTARTING


@pytest.mark.parametrize("late", [False, True])
def test_a_job_that_is_cancelled_is_no_success(late: bool) -> None:
    """Slurm's word comes before or after the ends of the tasks."""
    driver = begun()
    if not late:
        driver.ended()
    asked(driver, "worker:0", AGENT)
    asked(driver, "worker:1", AGENT)
    if late:
        driver.ended()
    driver.confirm("node0", "node1")
    driver.released()
    assert (driver.seen.outcome, driver.seen.exit_code) == (Outcome.FAILED, 1)
    assert driver.seen.cause is Cause.OUTSIDE


def test_tasks_that_were_done_when_their_job_ended_are_a_success() -> None:
    """Their ends are told when the job's is known already."""
    driver = begun()
    driver.ended()
    driver.exited("worker:0")
    driver.exited("worker:1")
    driver.confirm("node0", "node1")
    driver.released()
    assert (driver.seen.outcome, driver.seen.exit_code) == (Outcome.SUCCESS, 0)


@pytest.mark.parametrize("last", ["lost", "asked", "killed"])
@pytest.mark.parametrize("success", ["chief", "all"])
def test_a_rank_that_is_lost_with_its_job_is_a_failure(success: str, last: str) -> None:
    """scancel, the time limit, a node that is taken: rank 0 was done, and the other had not said
    so. Slurm's word makes its node clean, and no success of it."""
    driver = begun(success)
    driver.exited("worker:0")
    driver.lost("node1")
    driver.ended()
    if last == "asked":
        asked(driver, "worker:1", SIGNAL)
    elif last == "killed":
        driver.exited("worker:1", None, "KILL")
    driver.confirm("node0")
    word = ev.EngineWord(True, "Slurm agrees")
    driver.released(node0=word, node1=word)
    assert (driver.seen.outcome, driver.seen.exit_code) == (Outcome.FAILED, 1)
    if last == "lost":
        assert (driver.failure.task, driver.failure.how) == (name("worker:1"), "lost")


def begun(success: str = "chief") -> QueueDriver:
    """A run on two nodes of Slurm whose workers run."""
    driver = QueueDriver(success)
    driver.begin()
    assert list(NODES) == ["node0", "node1"]
    driver.ready("worker:0", "worker:1")
    return driver


# End of a run by its rules: whose end it is, what a person's end of one task makes of it, and
# clusters that would never end.


def _plan(jobs: str, run: str = "", commands: str = "{}") -> Plan:
    """The plan of jobs such as `ps worker worker board-`, helpers with a dash behind them."""
    names, own = jobs.split(), json.loads(commands)
    text = ""
    for job in dict.fromkeys(names):
        plain = job.rstrip("-")
        text += f"[jobs.{plain}]\ntasks = {['localhost:auto'] * names.count(job)}\n"
        text += f"in_cluster = {str(plain == job).lower()}\n"
        text += f"command = {json.dumps(own.get(plain, 'train').split())}\n"
    return make_plan(loads(f"{text}[run]\n{run}", "c", Path("/")), "r")


@pytest.mark.parametrize(("jobs", "run", "text"), tables("endings.tsv")["ends"])
def test_what_ends_a_run_is_one_line(jobs: str, run: str, text: str) -> None:
    assert _plan(jobs, run).ending.text == text


@pytest.mark.parametrize(
    ("jobs", "commands", "found"),
    [
        ("scheduler train", '{"scheduler": "dask scheduler"}', ["scheduler:0"]),
        ("head node node", '{"head": "ray start --head --block", "node": "ray start"}', None),
        ("worker board", '{"board": "{python} -m tensorboard.main"}', []),  # the chief decides
        ("train board", '{"board": "{python} -u -m tensorboard.main"}', ["board:0"]),
        ("train board-", '{"board": "tensorboard --logdir=x"}', []),
        ("servers train", '{"servers": "python3 train.py --job_name=ps"}', ["servers:0"]),
        ("ps train", '{"ps": "python3 train.py --job_name=ps"}', []),
        ("ps ps", "{}", None),
        ("train", '{"train": "python3 ray.py start"}', []),
        ("train", '{"train": "dask run scheduler"}', []),
    ],
)
def test_a_run_that_waits_for_a_server_is_known(
    jobs: str, commands: str, found: list[str] | None
) -> None:
    """Where its end decides; None: all that decide serve, and no client is there."""
    endless = list(_plan(jobs, commands=commands).endless())
    if found is None:
        assert endless and all("add a job" in one.todo for one in endless)
    else:
        assert [str(task) for one in endless for task in one.tasks] == found
        assert all(f"false in [jobs.{one.tasks[0].job}]" in one.todo for one in endless)


@pytest.mark.parametrize(
    "command",
    [
        "ray start --head",
        "dask scheduler",
        "dask worker tcp://a:8786",
        "dask cuda worker tcp://a:8786",
        "dask-scheduler --port 8786",
        "dask-worker tcp://a:8786",
        "dask-cuda-worker tcp://a:8786",
        "tensorboard --logdir logs",
        "python3 -m tensorboard.main --logdir logs",
        "tensorflow_model_server --port=8500",
        "tritonserver --model-repository=/models",
        "jupyter lab --no-browser",
        "jupyter notebook",
        "jupyter server",
        "jupyter-lab",
        "jupyter-notebook",
        "mlflow server --port 5000",
        "mlflow ui",
        "vllm serve a/model",
        "python3 -m http.server 8000",
        "redis-server",
        "etcd --name a",
        "spark-class org.apache.spark.deploy.master.Master",
        "spark-class org.apache.spark.deploy.worker.Worker spark://a:7077",
        "sleep infinity",
        "tail -f log",
        "tail -F log",
    ],
)
def test_a_server_is_known_as_people_start_it(command: str) -> None:
    assert server_name(command.split())


def test_servers_are_known_by_their_first_words() -> None:
    """Behind what only starts them; a word elsewhere in a command says nothing."""
    assert server_name(["env", "A=1", "nice", "dask", "worker", "tcp://a:1"]) == "dask worker"
    assert server_name(["/opt/bin/tensorboard", "--logdir", "x"]) == "tensorboard"
    assert server_name(["{python}", "-m", "http.server"]) == "http.server"
    assert server_name(["python3", "train.py", "tensorboard"]) == ""
    assert server_name(["python3", "-m", "train", "-m", "tensorboard"]) == ""
    assert server_name(["env", "A=1"]) == ""


# --- a person ends one task ---------------------------------------------------------------------


def _end_by_person(driver: RunDriver, task: str) -> None:
    view = driver.task(task)
    assert driver.feed(ev.SignalTask, name(task), "TERM") == [kill(view.host, task, 5.0)]
    driver.exited(task, None, "TERM")
    assert driver.state(task) is TaskState.KILLED


@pytest.mark.parametrize("last", [True, False])
def test_a_run_is_no_success_without_a_task_that_a_person_has_ended(last: bool) -> None:
    """Given success = "all" and a person who ends one worker, then the others go on, a note says
    what that means, and the end of the last one is the run's end: ended by a person, not a
    success."""
    driver = running('success = "all"\n')
    others = ["worker:0", "worker:2"]
    for task in others if last else ():
        driver.exited(task)
    _end_by_person(driver, "worker:1")
    assert (
        driver.seen.notes[-1]
        == "worker:1 was ended by the user: without it the run is not a success"
    )
    if not last:
        assert driver.phase() is RunPhase.RUNNING
        for task in others:
            driver.exited(task)
    assert driver.phase() is RunPhase.KILLING
    assert ends(driver.confirmed()) == [(Outcome.KILLED, 130)]


def test_a_task_that_is_started_again_makes_good_for_its_end() -> None:
    """Given success = "all" and a worker that a person has ended and started again, then its second
    attempt counts."""
    driver = running('success = "all"\n')
    _end_by_person(driver, "worker:1")
    driver.feed(ev.Restart, name("worker:1"), hard=False)
    driver.receipt("b", tasks=["worker:1"])
    driver.begun("worker:1", attempt=2)
    for task in ("worker:0", "worker:2"):
        driver.exited(task)
    driver.exited("worker:1", attempt=2)
    assert ends(driver.confirmed()) == [(Outcome.SUCCESS, 0)]


def test_the_chief_alone_decides_where_the_rule_says_so() -> None:
    """Given the rule of the chief and a person who ends another worker, then the run is what the
    chief makes of it."""
    driver = running()
    _end_by_person(driver, "worker:1")
    assert not driver.seen.notes
    driver.exited("worker:0")
    driver.exited("worker:2")
    assert ends(driver.confirmed()) == [(Outcome.SUCCESS, 0)]


def test_a_failure_is_a_failure_also_beside_what_a_person_has_ended() -> None:
    """Given success = "all", a worker that a person has ended and one that fails, then the run has
    failed."""
    driver = running('success = "all"\n')
    _end_by_person(driver, "worker:1")
    driver.exited("worker:2", 1)
    assert ends(driver.confirmed()) == [(Outcome.FAILED, 1)]
