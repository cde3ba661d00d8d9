"""Starts that a host refuses since the run has ended there, and receipts that came before them."""

from __future__ import annotations

import pytest

from launcher.run import events as ev
from launcher.run.snapshot import HostReceipt
from launcher.run.states import Cause, RunPhase, TaskState
from tests.support.run_driver import RunDriver, kills, name, running, staged, starts

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
