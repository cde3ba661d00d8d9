"""Hosts that a run loses or leaves alone, and that come back or do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from launcher.cluster.read import loads
from launcher.errors import ProtocolError
from launcher.hosts.frame_checks import FrameChecker
from launcher.hosts.frames import Rules, RulesQuestion
from launcher.plan.facts import HostFacts
from launcher.quantities import span
from launcher.run import events as ev
from launcher.run.events import LeaseEnd, ReadyDelay, ReadyTimeout, ShutdownTimeout
from launcher.run.instructions import AskLeases, CheckHosts, KillHost, SetTimer, StageHost
from launcher.run.leaving import promise, waits
from launcher.run.shutdown import KILL_PATIENCE
from launcher.run.snapshot import Snapshot
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

# Hosts that a run loses, and that come back or do not.


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


# A run that is left: the lease that its hosts are asked for, what is said of it, and how long a
# host that is lost is waited for.

DAY = 86400.0
LOCAL = CLUSTER.replace('[hosts.b]\nssh = "b"', '[hosts.localhost]\naddress = "here"').replace(
    "b:", "localhost:"
)
HERE = """
name = "t"
[jobs.worker]
tasks = ["localhost:2222", "localhost:2223"]
[run]
command = ["x"]
"""


@pytest.mark.parametrize(
    ("run", "lease"),
    [
        ("", DAY),
        ("lease = 5", DAY),
        ("lease = 172800", 172800.0),
        ("detached_lease = 7200", 7200.0),
        ("lease = 600\ndetached_lease = 60", 60.0),
        ('lease = 30\non_disconnect = "keep"\ndetached_lease = 7200', 30.0),
    ],
)
def test_how_long_hosts_wait_in_the_background(run: str, lease: float) -> None:
    """24 h, or a lease that is longer, or what the file says; under `keep` a lease ends nothing."""
    text = f'name = "t"\n[jobs.worker]\ntasks = ["localhost:auto"]\n[run]\ncommand = ["x"]\n{run}\n'
    assert loads(text, "t.toml", Path("/srv")).run.background_lease == lease


def test_hosts_are_asked_and_their_word_is_noted(driver: RunDriver) -> None:
    """On each way into the background, and back; only a host that has answered has the lease."""
    assert driver.feed(ev.Background, True) == [AskLeases()]
    assert driver.seen.background
    driver.feed(ev.LeaseConfirmed, "a", DAY)
    assert [host.lease for host in driver.seen.hosts] == [DAY, None]
    assert [host.name for host in driver.seen.unasked_hosts] == ["b"]
    assert driver.feed(ev.Background, False) == [AskLeases()]
    driver.feed(ev.LeaseConfirmed, "a", 60.0)
    assert driver.feed(ev.Background, True) == [AskLeases()], "again and again"
    assert [host.lease for host in driver.seen.hosts] == [60.0, None]


def test_nobody_is_asked_who_keeps_its_tasks_or_is_being_ended(driver: RunDriver) -> None:
    keeping = RunDriver('on_disconnect = "keep"\n')
    keeping.running()
    assert keeping.feed(ev.Background, True) == []
    driver.feed(ev.KillAll)
    assert driver.feed(ev.Background, True) == []


def test_the_longest_lease_that_a_host_may_hold(driver: RunDriver) -> None:
    """A host that was cut off before it answered may hold what it was asked for."""
    data = driver.run.data
    assert data.longest_lease("b") == 60.0
    driver.feed(ev.Background, True)
    driver.feed(ev.LeaseConfirmed, "a", DAY)
    driver.feed(ev.Background, False)
    driver.feed(ev.LeaseConfirmed, "a", 60.0)
    assert data.longest_lease("a") == 60.0
    assert data.longest_lease("b") == DAY


def lease_ends(driver: RunDriver, host: str, after: float) -> Any:
    driver.now += after
    return driver.feed(ev.TimerFired, ev.LeaseEnd(host))


def test_one_host_that_is_gone_is_not_waited_for_all_day(driver: RunDriver) -> None:
    """Another host has been connected all the time, so that this machine has a network."""
    driver.feed(ev.Background, True)
    driver.lost("b", lease=DAY)
    lease_ends(driver, "b", 80.0)
    assert driver.phase() is RunPhase.KILLING
    assert "has not answered for 1 min" in driver.task("worker:1").reason


def test_all_hosts_that_are_gone_are_waited_for_as_long_as_they_wait(driver: RunDriver) -> None:
    """Perhaps this machine has no network: a closed lid in a train."""
    driver.feed(ev.Background, True)
    driver.lost("a", lease=DAY)
    driver.lost("b", lease=DAY)
    for _ in range(3):
        (timer,) = lease_ends(driver, "b", 80.0)
        assert timer.timer == ev.LeaseEnd("b") and timer.seconds < 100
    driver.up("a", tasks=[ev.HeldTask(name(task), 1) for task in ("ps:0", "worker:0")])
    (timer,) = lease_ends(driver, "b", 1.0)
    assert driver.phase() is RunPhase.RUNNING, "a has only just come back: b may, too"
    lease_ends(driver, "b", DAY)
    assert driver.phase() is RunPhase.KILLING
    assert driver.task("worker:1").reason == "its host's lease has ended"


def test_with_a_screen_the_lease_holds(driver: RunDriver) -> None:
    driver.lost("a")
    driver.lost("b")
    lease_ends(driver, "b", 80.0)
    assert driver.phase() is RunPhase.KILLING


def seen(text: str = CLUSTER, run: str = "", **leases: float | None) -> Snapshot:
    """A run that is up, as it is shown once these hosts have confirmed."""
    made = RunDriver(run, text=text)
    made.feed(ev.Begin)
    names = [host.name for host in made.seen.hosts]
    made.up(*names)
    if leases:
        made.feed(ev.Background, True)
    for host, lease in leases.items():
        if lease is not None:
            made.feed(ev.LeaseConfirmed, host, lease)
    return made.seen


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            seen(),
            ["Without this machine a and b wait 24 h, then they end their tasks "
             "(1 min while a screen shows the run)."],
        ),
        (
            seen(run='on_disconnect = "keep"\n'),
            ["Without this machine a and b keep their tasks, until tfmux attach."],
        ),
        (
            seen(LOCAL),
            ["Without this machine a waits 24 h, then it ends its tasks "
             "(1 min while a screen shows the run).",
             "2 tasks run on this machine and end with it."],
        ),
        (
            seen(HERE),
            ["2 tasks run on this machine and end with it."],
        ),
    ],
    ids=["far", "keep", "both", "here"],
)  # fmt: skip
def test_what_a_dialog_promises(run: Snapshot, said: list[str]) -> None:
    assert promise(run) == said


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (seen(a=DAY, b=DAY), ["without this machine a and b wait 24 h, then they end their tasks"]),
        (
            seen(a=DAY, b=None),
            ["without this machine a waits 24 h, then it ends its tasks",
             "b has not confirmed a lease of 24 h: without this machine it may end its tasks "
             "after 1 min"],
        ),
        (
            seen(run='on_disconnect = "keep"\n', a=None),
            ["without this machine a and b keep their tasks, until tfmux attach"],
        ),
        (
            seen(LOCAL, a=DAY),
            ["without this machine a waits 24 h, then it ends its tasks",
             "worker:1 and worker:2 on this machine end with it"],
        ),
        (seen(), ["without this machine a and b wait 1 min, then they end their tasks"]),
    ],
    ids=["all", "one", "keep", "both", "shown"],
)  # fmt: skip
def test_what_is_said_of_a_run_that_was_left(run: Snapshot, said: list[str]) -> None:
    assert waits(run) == said


def test_nothing_is_said_of_a_record_that_does_not_know() -> None:
    old = replace(seen(), lease=None, detached_lease=None)
    assert promise(old) == waits(old) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.0, "4 s"), (1.5, "1.5 s"), (60.0, "1 min"), (90.0, "90 s"), (600.0, "10 min"),
     (5400.0, "1 h 30 min"), (3600.0, "1 h"), (DAY, "24 h"), (90000.0, "25 h"),
     (3 * DAY, "3 days"), (3661.0, "1 h 1 min 1 s")],
)  # fmt: skip
def test_spans_are_exact(seconds: float, text: str) -> None:
    assert span(seconds) == text


def reply(rules: object) -> wire.RawFrame:
    (frame,) = wire.Decoder().feed(wire.encode(wire.REPLY, {"id": 1, "rules": rules}))
    return frame


@pytest.mark.parametrize(
    "rules",
    [
        {"lease": 60.0, "grace": 1.0, "on_disconnect": "stop"},
        {"lease": DAY, "grace": 1.0, "on_disconnect": "keep"},
        {"lease": DAY, "grace": 9.0, "on_disconnect": "stop"},
        {"lease": DAY, "grace": 1.0, "on_disconnect": "perhaps"},
        {"lease": "24 h", "grace": 1.0, "on_disconnect": "stop"},
        {"lease": DAY, "grace": 1.0},
        {"lease": -1.0, "grace": 1.0, "on_disconnect": "stop"},
        None,
    ],
    ids=str,
)
def test_a_host_confirms_what_it_was_asked_or_lies(rules: object) -> None:
    checker = checker_asked()
    with pytest.raises(ProtocolError):
        checker.check(reply(rules))


def checker_asked() -> FrameChecker:
    checker = FrameChecker("h", {}, local=False, adopts=False)
    head = {"version": wire.VERSION, "pid": 1, "home": "/h", "stage": "/s", "environ": {}}
    body = {**head, "tasks": [], "previous_end": ""}
    (welcome,) = wire.Decoder().feed(wire.encode(wire.WELCOME, body))
    checker.check(welcome)
    checker.expect(1, RulesQuestion(Rules(DAY, 1.0, "stop")))
    return checker


def test_the_right_word_of_a_host_is_taken() -> None:
    held = {"lease": DAY, "grace": 1.0, "on_disconnect": "stop"}
    checker_asked().check(reply(held))
