"""Hosts that a run loses, and that come back or do not."""

from __future__ import annotations

import pytest

from launcher.plan.facts import HostFacts
from launcher.run import events as ev
from launcher.run.events import LeaseEnd, ReadyDelay, ReadyTimeout, ShutdownTimeout
from launcher.run.instructions import CheckHosts, KillHost, SetTimer, StageHost
from launcher.run.shutdown import KILL_PATIENCE
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
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


def test_a_lost_host_is_shown_apart_and_comes_back(driver: RunDriver) -> None:
    """Its tasks are `lost`, not failed, and have their true state again afterwards."""
    driver.feed(ev.MetricsSeen, name("worker:1"))
    out = driver.lost("b", lease=60)
    assert timers(out) == {LeaseEnd("b"): pytest.approx(60 + 5 + KILL_PATIENCE)}
    assert driver.state("worker:1") is TaskState.LOST
    assert driver.state("worker:0") is TaskState.READY
    kept = [held("worker:1"), held("worker:2")]
    assert driver.up("b", tasks=kept) == []
    assert driver.state("worker:1") is TaskState.RUNNING
    assert driver.state("worker:2") is TaskState.READY
    assert driver.fired(LeaseEnd("b")) == []


def test_a_start_that_got_lost_is_repeated_and_one_that_arrived_is_not() -> None:
    driver = staged()
    driver.ready("ps:0")
    driver.ready("worker:0")
    driver.begun("worker:2")
    driver.lost("b")
    start, *limits = driver.start("worker:1", "worker:2")
    limits = [one for one in limits if isinstance(one, SetTimer)]
    assert driver.up("b", tasks=[held("worker:2")]) == [start, *limits]


def test_a_time_limit_that_ends_during_a_cut_is_set_again_after_it() -> None:
    """The time limit says nothing of a task that nobody sees; without another one the run waited
    for ever."""
    driver = staged()
    driver.begun("ps:0")
    driver.lost("a")
    assert driver.fired(ReadyTimeout(name("ps:0"), 1)) == []
    out = driver.up("a", tasks=[held("ps:0")])
    assert out == [SetTimer(ReadyTimeout(name("ps:0"), 1), 120.0)]
    assert driver.fired(ReadyTimeout(name("ps:0"), 1)) == driver.shut_down()


@pytest.mark.parametrize(("ready", "seconds"), [("{ after = 3.0 }", 3.0), ("'auto'", 5.0)])
def test_a_delay_that_ends_during_a_cut_begins_again_after_it(ready: str, seconds: float) -> None:
    """The agent names the process of each task that it holds, as it did at the start."""
    driver = staged(settings=f"[start.ready]\nps = {ready}")
    driver.begun("ps:0")
    driver.lost("a")
    assert driver.fired(ReadyDelay(name("ps:0"), 1)) == []
    driver.up("a", tasks=[held("ps:0")])
    assert timers(driver.begun("ps:0")) == {ReadyDelay(name("ps:0"), 1): seconds}
    assert driver.fired(ReadyDelay(name("ps:0"), 1)) == driver.start("worker:0")


def test_a_kill_sets_no_time_limit_when_a_host_is_back() -> None:
    """Nothing is waited for but receipts."""
    driver = staged()
    driver.begun("ps:0")
    driver.lost("a")
    driver.feed(ev.KillAll)
    assert timers(driver.up("a", tasks=[held("ps:0")])) == {}


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
    driver.feed(ev.Staged, "a")
    driver.lost("b")
    assert driver.up("b") == [StageHost("b")]
    driver.lost("a")
    assert driver.up("a") == []


def test_a_cut_while_hosts_are_asked_asks_all_again() -> None:
    """Their answers belong together: ports of one host are picked beside those of the others."""
    driver = RunDriver()
    driver.feed(ev.Begin)
    assert driver.up("a", "b") == [CheckHosts()]
    driver.lost("a")
    driver.lost("b")
    assert driver.up("a") == []
    assert driver.up("b") == [CheckHosts()]
    assert driver.feed(ev.HostsChecked, FACTS) == [StageHost("a"), StageHost("b")]
    assert driver.feed(ev.HostsChecked, FACTS) == []


@pytest.mark.parametrize("keep", [False, True])
def test_a_host_that_is_lost_before_the_first_task_ends_the_launch(keep: bool) -> None:
    """With its lease, also where tasks would be kept: there are none."""
    driver = RunDriver(settings='on_disconnect = "keep"' if keep else "")
    driver.checked()
    driver.lost("b")
    assert driver.fired(LeaseEnd("b")) == driver.shut_down()


def test_a_kill_of_one_task_that_got_lost_is_repeated(driver: RunDriver) -> None:
    driver.lost("b")
    driver.feed(ev.Restart, name("worker:1"))
    out = driver.up("b", tasks=[held("worker:1"), held("worker:2")])
    assert out == [kill("b", "worker:1", 5.0)]
    driver.exited("worker:1", None, "TERM")
    assert driver.receipt("b", ["worker:1"]) == driver.start("worker:1", attempt=2)
    driver.lost("b")
    assert kills(driver.up("b", tasks=[held("worker:1", 2), held("worker:2")])) == []


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


BESIDE = """
[jobs.evaluator]
tasks = ["c:2222"]
[jobs.board]
tasks = ["c:6006"]
in_cluster = false
[hosts.c]
ssh = "c"
"""


def test_a_host_of_tasks_that_only_serve_ends_nothing() -> None:
    """Evaluator and helper are lost for good: the training goes on to its success, and only the
    receipt lacks the host."""
    driver = RunDriver(jobs=BESIDE)
    driver.feed(ev.Begin)
    driver.up("a", "b", "c")
    driver.feed(ev.HostsChecked, {**FACTS, "c": HostFacts(home="/h")})
    for host in ("a", "b", "c"):
        driver.feed(ev.Staged, host)
    driver.ready("ps:0", "worker:0", "worker:1", "worker:2")
    driver.begun("evaluator:0", "board:0")
    driver.lost("c")
    assert kills(driver.fired(LeaseEnd("c"))) == []
    assert driver.state("evaluator:0") is driver.state("board:0") is TaskState.FAILED
    assert driver.seen.first_failure is None and driver.phase() is RunPhase.RUNNING
    for worker in ("worker:0", "worker:1", "worker:2"):
        out = driver.exited(worker)
    assert len(kills(out)) == 3
    driver.confirmed()
    driver.now += 30
    assert ends(driver.fired(ShutdownTimeout())) == [(Outcome.SUCCESS, 4)]


def test_a_host_whose_tasks_have_ended_well_ends_nothing() -> None:
    """The host is shut down when its ranks are done; the others go on."""
    driver = running('success = "all"')
    driver.exited("worker:1")
    driver.exited("worker:2")
    driver.lost("b")
    assert driver.fired(LeaseEnd("b")) == [] and driver.phase() is RunPhase.RUNNING
    assert driver.exited("worker:0") == driver.shut_down()


def test_an_agent_that_is_gone_for_good_is_not_kept() -> None:
    """Nothing of the task goes on where an engine has ended it with its agent."""
    driver = running('on_disconnect = "keep"\n')
    driver.feed(ev.HostLost, "b", "its agent is gone", driver.now, True)
    assert driver.fired(LeaseEnd("b")) == driver.shut_down("a")
    assert driver.failure.how == "lost"


def test_under_keep_a_lost_host_ends_nothing() -> None:
    driver = running('on_disconnect = "keep"')
    driver.lost("b")
    assert driver.fired(LeaseEnd("b")) == []
    assert driver.state("worker:1") is TaskState.LOST


def test_kill_while_a_host_is_away_reaches_it_when_it_comes_back(driver: RunDriver) -> None:
    """With what is left of the grace, and at once after a second press."""
    driver.lost("b")
    driver.feed(ev.KillAll)
    driver.receipt("a")
    (kill,) = kills(driver.up("b", tasks=[held("worker:1"), held("worker:2")]))
    assert kill[:2] == ("b", None) and 0 < kill[2] < 5
    driver.lost("b")
    driver.feed(ev.KillAll)
    assert driver.up("b", tasks=[held("worker:1")]) == [KillHost("b", None, 0.0, final=True)]
    assert driver.receipt("b") == driver.end(Outcome.KILLED, 130)


def test_a_host_that_is_refused_before_the_start_ends_the_run_as_preflight() -> None:
    driver = RunDriver()
    driver.feed(ev.Begin)
    driver.up("a")
    out = driver.feed(ev.HostRefused, "b", "no login")
    assert out == driver.shut_down("a")
    assert driver.receipt("a") == driver.end(Outcome.PREFLIGHT, 3, ["a"])
    assert driver.seen.hosts[1].state is HostState.REFUSED


def test_more_ranks_than_gpus_are_noted_once() -> None:
    """With the number of the file, else the one that the host reports; hosts without GPUs, and
    jobs that want none, have nothing to share."""
    jobs = 'framework = "torch"\n[jobs.more]\ntasks = ["a:2224", "b:2224"]\n'
    for file, gpus, reported, expected in (
        ("", "", (1, 2), ["2 ranks on a, which has 1 GPU", "the same on 1 more host"]),
        ("gpus = 1\n", "", (2, 0), ["2 ranks on a, which has 1 GPU"]),
        ("gpus = 2\n", "", (1, 0), []),
        ("", "gpus = 0\n", (1, 2), []),
    ):
        text = CLUSTER.replace("[hosts.a]\n", f"[hosts.a]\n{file}")
        driver = RunDriver(jobs + gpus, text=text)
        driver.feed(ev.Begin)
        driver.up("a", "b")
        facts = {host: HostFacts(gpus=count) for host, count in zip("ab", reported, strict=True)}
        driver.feed(ev.HostsChecked, facts)
        notes = [note for note in driver.seen.notes if "rank" in note]
        assert len(notes) == bool(expected) and all(text in notes[0] for text in expected)


def test_a_task_whose_stage_comes_while_its_host_is_cut_off_has_its_time_later() -> None:
    """The task cannot be told to start; that it is not ready after two minutes ended the run."""
    driver = staged()
    driver.begun("ps:0")
    driver.lost("b", 600.0)
    out = driver.ready("ps:0", "worker:0")
    assert starts(out) == [("worker:0", 1), ("worker:1", 1), ("worker:2", 1)]
    assert ReadyTimeout(name("worker:1"), 1) not in timers(out)
    assert driver.state("worker:1") is TaskState.LOST and driver.phase() is RunPhase.STARTING
    assert driver.fired(ReadyTimeout(name("worker:1"), 1)) == []
    begun = driver.start("worker:1", "worker:2")
    assert driver.up("b") == begun[::2] + begun[1::2]
    assert driver.state("worker:1") is TaskState.STARTING
    driver.ready("worker:1", "worker:2")
    assert driver.phase() is RunPhase.RUNNING
