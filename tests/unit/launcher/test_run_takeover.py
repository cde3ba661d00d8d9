"""Launchers that take a run over, and attach to one without a launcher."""

from __future__ import annotations

import pytest

from launcher.run import events as ev
from launcher.run.events import ReadyTimeout, RestartDelay, ShutdownTimeout
from launcher.run.instructions import CheckHosts, Instruction, SetTimer, StageHost
from launcher.run.states import (
    CONNECT_SECONDS,
    HostState,
    Outcome,
    Purpose,
    RunPhase,
    TaskState,
)
from tests.support.run_driver import (
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

# --- taking over --------------------------------------------------------------------------------


BY = "elsewhere:7"


def taken(driver: RunDriver, host: str, purpose: Purpose) -> list[Instruction]:
    """A launcher elsewhere takes a host over."""
    return driver.feed(ev.Superseded, host, BY, purpose)


@pytest.mark.parametrize(("purpose", "code"), [(Purpose.ATTACH, 5), (Purpose.UNKNOWN, 4)])
def test_a_run_that_is_taken_over_is_no_success(
    driver: RunDriver, purpose: Purpose, code: int
) -> None:
    """This launcher lets go of all hosts, and says no more than who has the run, and what for: of
    its tasks nothing is known here any more."""
    assert taken(driver, "a", purpose) == driver.end(Outcome.TAKEN_OVER, code, ())
    seen = driver.seen
    assert (seen.taken_by, seen.taken_for, seen.receipt) == (BY, purpose, None)
    assert any(BY in note for note in seen.notes)
    assert driver.state("worker:0") is TaskState.LOST
    assert taken(driver, "b", purpose) == driver.feed(ev.KillAll) == []


def test_a_run_that_is_killed_elsewhere_is_killed(driver: RunDriver) -> None:
    """Both hosts are taken, one after the other: nothing is said of what is left on them."""
    assert taken(driver, "a", Purpose.KILL) == driver.shut_down("b")
    assert taken(driver, "b", Purpose.KILL) == driver.end(Outcome.KILLED, 130, ())
    receipt = driver.seen.receipt
    assert receipt is not None and not receipt.clean
    assert [(host.confirmed, host.taken_by) for host in receipt.hosts] == [(False, BY)] * 2


def test_a_host_that_the_killer_does_not_reach_is_ended_here(driver: RunDriver) -> None:
    taken(driver, "a", Purpose.KILL)
    assert driver.receipt("b") == driver.end(Outcome.KILLED, 130, ["b"])
    assert driver.seen.receipt is not None and not driver.seen.receipt.clean


def test_a_host_that_neither_launcher_has_heard_of_is_4(driver: RunDriver) -> None:
    """One host is taken for a kill, and the other cut off: of that nobody here knows."""
    driver.lost("b")
    taken(driver, "a", Purpose.KILL)
    assert driver.fired(ShutdownTimeout()) == driver.end(Outcome.KILLED, 4, ())


def test_two_takers_of_whom_one_kills(driver: RunDriver) -> None:
    """The first one ends the run; one that takes the other host to supervise it leaves that
    unknown."""
    taken(driver, "a", Purpose.KILL)
    assert taken(driver, "b", Purpose.ATTACH) == driver.end(Outcome.KILLED, 4, ())


def test_a_kill_elsewhere_joins_the_end_of_a_run(driver: RunDriver) -> None:
    """As a person's kill here does: a failure, or a success under way, becomes a kill."""
    driver.exited("worker:0", 1)
    taken(driver, "a", Purpose.KILL)
    assert driver.receipt("b") == driver.end(Outcome.KILLED, 130, ["b"])


@pytest.mark.parametrize(("purpose", "code"), [(Purpose.ATTACH, 4), (Purpose.KILL, 143)])
def test_a_takeover_while_we_kill_names_the_host_as_not_confirmed(
    driver: RunDriver, purpose: Purpose, code: int
) -> None:
    driver.feed(ev.KillAll, by_person=False)
    assert driver.receipt("a") == []
    assert taken(driver, "b", purpose) == driver.end(Outcome.TERMINATED, code, ["a"])
    assert driver.seen.receipt is not None
    mine, theirs = driver.seen.receipt.hosts
    assert (mine.confirmed, theirs.confirmed) == (True, False)
    assert BY in theirs.doubt + theirs.taken_by


def test_a_run_that_is_taken_back_goes_on(driver: RunDriver) -> None:
    taken(driver, "a", Purpose.ATTACH)
    assert driver.feed(ev.Attached) == []
    assert driver.phase() is RunPhase.CONNECTING and not driver.seen.taken_by


def test_a_launcher_that_fails_ends_the_run_with_4(driver: RunDriver) -> None:
    """Everything is killed; hosts that confirm are in the receipt."""
    assert kills(driver.feed(ev.LauncherFailed, "files: OSError: boom")) == [
        ("a", None, 5.0),
        ("b", None, 5.0),
    ]
    assert driver.confirmed() == driver.end(Outcome.FAILED, 4)
    assert driver.seen.receipt is not None and driver.seen.receipt.clean
    assert driver.seen.launcher_error == "files: OSError: boom"


def test_a_launcher_that_fails_after_the_receipt_keeps_it_and_exits_4(driver: RunDriver) -> None:
    driver.feed(ev.KillAll)
    driver.receipt("a")
    driver.receipt("b")
    driver.feed(ev.LauncherFailed, "end: OSError: boom")
    assert (driver.seen.outcome, driver.seen.exit_code) == (Outcome.KILLED, 4)
    assert any("boom" in note for note in driver.seen.notes)


def attached(driver: RunDriver, *, complete: bool = True) -> RunDriver:
    """A second launcher that has read the stream of the first one."""
    driver.feed(ev.Attached, complete)
    return driver


def test_attach_goes_on_where_the_run_stands(driver: RunDriver) -> None:
    """Nothing is started anew, no port is looked at, nothing is ended, all rules hold."""
    assert driver.feed(ev.Attached, True) == []
    other = driver
    kept = [held("ps:0"), held("worker:0")]
    assert other.up("a", tasks=kept) == []
    assert other.up("b", tasks=[held("worker:1"), held("worker:2")]) == [CheckHosts(False)]
    assert other.feed(ev.HostsChecked, FACTS) == []
    assert other.phase() is RunPhase.RUNNING
    other.exited("worker:0")
    other.exited("worker:1")
    assert other.exited("worker:2") == driver.shut_down()
    assert other.confirmed() == driver.end(Outcome.SUCCESS, 0)


def test_attach_goes_on_with_the_start() -> None:
    driver = staged()
    driver.ready("ps:0")
    driver.begun("worker:0")
    other = attached(driver)
    other.up("a", tasks=[held("ps:0"), held("worker:0")])
    other.up("b")
    assert other.feed(ev.HostsChecked, FACTS) == driver.start("worker:0")[1:]
    assert other.feed(ev.TaskReady, name("worker:0"), 1) == driver.start("worker:1", "worker:2")


def test_hosts_that_come_back_while_an_attach_checks_them_get_no_files_again(
    driver: RunDriver,
) -> None:
    """The run has begun: its files are there, and no task is started from the first stage on."""
    other = attached(driver)
    kept = {"a": [held("ps:0"), held("worker:0")], "b": [held("worker:1"), held("worker:2")]}
    for host, tasks in kept.items():
        other.up(host, tasks=tasks)
    for host, tasks in kept.items():
        other.lost(host)
        assert other.up(host, tasks=tasks) == []
        assert other.feed(ev.Staged, host) == [] and other.phase() is RunPhase.STAGING
    assert other.feed(ev.HostsChecked, FACTS) == []
    assert other.phase() is RunPhase.RUNNING


def test_attach_gives_a_task_that_is_starting_its_full_time_again() -> None:
    """The timer died with the launcher that had set it: the run waited for ever."""
    driver = staged('on_disconnect = "keep"\n[start]\ntimeout = 5')
    driver.begun("ps:0")
    attached(driver)
    assert ReadyTimeout(name("ps:0"), 1) not in timers(driver.up("a", tasks=[held("ps:0")]))
    driver.up("b")
    assert timers(driver.feed(ev.HostsChecked, FACTS)) == {ReadyTimeout(name("ps:0"), 1): 5.0}
    assert driver.fired(ReadyTimeout(name("ps:0"), 1)) == driver.shut_down()
    assert driver.failure.how.startswith("not ready after 5 s: it does not listen")


def test_attach_sets_no_time_limit_for_a_task_whose_host_is_lost() -> None:
    driver = staged()
    driver.begun("ps:0")
    attached(driver)
    driver.up("b")
    driver.lost("a")
    limit = ReadyTimeout(name("ps:0"), 1)
    assert limit not in timers(driver.feed(ev.HostsChecked, FACTS))
    assert timers(driver.up("a", tasks=[held("ps:0")]))[limit] == 120.0


def test_attach_to_a_run_that_never_began_looks_at_ports() -> None:
    driver = RunDriver()
    other = attached(driver)
    other.up("a")
    assert other.up("b") == [CheckHosts()]
    assert other.feed(ev.HostsChecked, FACTS) == [StageHost("a"), StageHost("b")]


def test_attach_takes_an_attempt_that_the_stream_does_not_know() -> None:
    """The launcher was killed between the start and the note of it."""
    driver = staged()
    other = attached(driver)
    other.up("a", tasks=[held("ps:0", 2)])
    assert other.task("ps:0").attempt == 2


def test_a_restart_that_the_stream_does_not_know_is_not_done_again(driver: RunDriver) -> None:
    """Its launcher had seen the old attempt gone and started the next one: that one runs, and its
    end counts."""
    driver.feed(ev.Restart, name("worker:0"))
    driver.feed(ev.TaskExited, name("worker:0"), 1, None, "TERM")
    other = attached(driver)
    assert kills(other.up("a", tasks=[held("ps:0"), held("worker:0", 2)])) == []
    task = driver.task("worker:0")
    assert (task.state, task.attempt, task.exit_signal) == (TaskState.STARTING, 2, None)
    assert (task.started, task.ended) == (driver.now, None)
    other.feed(ev.TaskExited, name("worker:0"), 2, 1, None)
    assert driver.state("worker:0") is TaskState.FAILED


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
    driver.feed(ev.KillAll)
    assert driver.feed(ev.Attached) == driver.shut_down()
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


def test_an_attach_starts_nothing_of_a_run_that_has_ended() -> None:
    """A host that was away when it was killed may still have something: the kill is gone on with.
    Tasks that had never been started were."""
    driver = staged()
    driver.begun("ps:0")
    driver.feed(ev.KillAll)
    driver.lost("b")
    driver.receipt("a")
    assert ends(driver.fired(ShutdownTimeout())) == [(Outcome.KILLED, 4)]
    assert driver.feed(ev.Attached) == driver.shut_down()
    assert starts(driver.up("a", "b")) == []
    assert driver.confirmed() == driver.end(Outcome.KILLED, 130)


def test_a_host_that_was_never_contacted_owes_no_receipt() -> None:
    """Unless the record of the run is incomplete: then it may have been."""
    for complete, expected in ((True, ["a"]), (False, ["a", "b"])):
        driver = RunDriver()
        driver.feed(ev.Begin)
        driver.up("a")
        attached(driver, complete=complete)
        assert [kill[0] for kill in kills(driver.feed(ev.KillAll))] == expected


def test_attach_while_a_ps_restarts_leaves_the_running_workers_alone() -> None:
    """They were started again as first attempts."""
    driver = running('on_failure = "restart"')
    driver.feed(ev.Restart, name("ps:0"))
    driver.exited("ps:0", None, "TERM")
    driver.receipt("a", ["ps:0"])
    attached(driver)
    driver.up("a", tasks=[held("ps:0", 2), held("worker:0")])
    driver.up("b", tasks=[held("worker:1"), held("worker:2")])
    driver.feed(ev.HostsChecked, FACTS)
    driver.begun("ps:0", attempt=2)
    assert driver.feed(ev.TaskReady, name("ps:0"), 2) == []
    assert driver.phase() is RunPhase.RUNNING


def test_a_task_that_was_killed_and_started_again_may_fail(driver: RunDriver) -> None:
    """What a person wanted of one attempt says nothing of the next one."""
    driver.feed(ev.SignalTask, name("worker:2"), "TERM")
    driver.exited("worker:2", None, "TERM")
    driver.receipt("b", ["worker:2"])
    driver.feed(ev.Restart, name("worker:2"))
    assert driver.receipt("b", ["worker:2"]) == driver.start("worker:2", attempt=2)
    driver.ready("worker:2", attempt=2)
    assert driver.exited("worker:2", 1, attempt=2) == driver.shut_down()
    assert driver.state("worker:2") is TaskState.FAILED


def test_the_exit_of_an_attempt_that_is_being_replaced_adds_only_its_details() -> None:
    """The attempt was not ready in time; its exit, told afterwards, was a second failure."""
    driver = staged('on_failure = "restart"')
    driver.begun("ps:0")
    out = driver.fired(ReadyTimeout(name("ps:0"), 1))
    assert out == [kill("a", "ps:0", 0.0), SetTimer(RestartDelay(name("ps:0"), 1), 1.0)]
    assert driver.exited("ps:0", None, "KILL") == []
    assert driver.task("ps:0").exit_signal == "KILL"
    assert len(driver.seen.notes) == 1


def test_a_lost_task_has_its_state_again_when_its_host_comes_up_after_an_attach(
    driver: RunDriver,
) -> None:
    attached(driver)
    driver.up("a", tasks=[held("ps:0"), held("worker:0")])
    driver.lost("b")
    driver.feed(ev.HostsChecked, FACTS)
    driver.up("b", tasks=[held("worker:1"), held("worker:2")])
    assert driver.state("worker:1") is TaskState.READY


def test_a_host_that_is_still_being_logged_in_to_is_not_given_up(driver: RunDriver) -> None:
    other = attached(driver)
    other.feed(ev.KillAll)
    assert timers(other.fired(ShutdownTimeout())) == {ShutdownTimeout(): 1.0}
    other.lost("a")
    other.lost("b")
    assert other.fired(ShutdownTimeout()) == driver.end(Outcome.KILLED, 4, ())


@pytest.mark.parametrize("jump", [0, -86_400, 86_400])
def test_a_host_that_never_connects_does_not_hold_a_kill_for_ever(
    driver: RunDriver, jump: int
) -> None:
    """The host has a minute beyond the kill's own time, whatever becomes of the clock, and is named
    as unconfirmed then, with the reason; another kill does not put that off."""
    attached(driver)
    driver.feed(ev.KillAll)
    driver.receipt("a")
    driver.now += jump
    fired = 0
    while not ends(out := driver.fired(ShutdownTimeout())):
        assert timers(out) == {ShutdownTimeout(): 1.0}
        driver.feed(ev.KillAll, force=True)
        fired += 1
    assert fired == CONNECT_SECONDS
    assert out == driver.end(Outcome.KILLED, 4, ["a"])
    assert driver.seen.receipt is not None
    away = driver.seen.receipt.hosts[1]
    assert (away.host, away.confirmed) == ("b", False)
    assert (driver.seen.hosts[1].state, driver.state("worker:1")) == (
        HostState.LOST,
        TaskState.LOST,
    )
    assert any("b is lost: not connected" in note for note in driver.seen.notes)
