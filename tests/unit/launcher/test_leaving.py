"""A run that is left: the lease that its hosts are asked for, what is said of it, and how long a
host that is lost is waited for."""

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
from launcher.quantities import span
from launcher.run import events as ev
from launcher.run.instructions import AskLeases
from launcher.run.leaving import promise, waits
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase
from tests.support.run_driver import CLUSTER, RunDriver, name

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


@pytest.fixture
def driver() -> RunDriver:
    made = RunDriver()
    made.running()
    return made


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
    """By what its hosts have confirmed, and nothing else."""
    assert waits(run) == said


def test_nothing_is_said_of_a_record_that_does_not_know() -> None:
    """One of an earlier version."""
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
