"""Ends of a run from outside: what its tasks did in answer to them is not their own end."""

from __future__ import annotations

import pytest

from launcher.run import events as ev
from launcher.run.instructions import Instruction
from launcher.run.states import Cause, Outcome, RunPhase, StoppedBy, TaskState
from tests.support.queue_driver import NODES, QueueDriver
from tests.support.run_driver import RunDriver, held, kills, name, running, starts

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
