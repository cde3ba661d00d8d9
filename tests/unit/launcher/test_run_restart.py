"""Restart of all cluster tasks: each host's proof comes first, and a kill ends it at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.plan.facts import HostFacts
from launcher.run import events as ev
from launcher.run.cause import Kind, Verdict
from launcher.run.events import LeaseEnd, RestartTimeout
from launcher.run.gpus import GpuSample
from launcher.run.instructions import (
    Instruction,
    KillHost,
    LookAtOthers,
    PickPorts,
    SetTimer,
)
from launcher.run.machine import RunStateMachine
from launcher.run.shutdown import KILL_PATIENCE
from launcher.run.snapshot import HostReceipt, Metric, RunView, Survivor, TaskView
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.run.views import Views
from launcher.store.stream import Summary, encode, parse
from tests.support.cluster_texts import cluster_text
from tests.support.run_driver import (
    CLUSTER,
    FACTS,
    RunDriver,
    ends,
    held,
    kills,
    name,
    running,
    staged,
    starts,
    timers,
)

RESTART = 'on_failure = "restart-all"\nmax_restarts = 2\n'
ALL = ("ps:0", "worker:0", "worker:1", "worker:2")
BOARD = '[jobs.board]\ntasks = ["b:6006"]\nin_cluster = false\n'
AUTO = cluster_text(
    {"worker": "a b"},
    "t",
    {"a": {"ssh": "a"}, "b": {"ssh": "b"}},
    command=["x"],
    framework="torch",
    grace=5,
    lease=60,
)
BOTH = [("a", None, 5.0), ("b", None, 5.0)]
PATIENCE = SetTimer(RestartTimeout(1), 5.0 + KILL_PATIENCE)


def fails(driver: RunDriver, attempt: int = 1) -> list[Instruction]:
    return driver.exited("worker:1", 1, attempt=attempt)


def again(driver: RunDriver, attempt: int = 2) -> None:
    """From the failure of a task until the whole cluster is ready once more."""
    fails(driver, attempt - 1)
    driver.confirmed()
    driver.feed(ev.PortsPicked, {})
    driver.ready(*ALL, attempt=attempt)


def test_one_failure_ends_all_and_starts_all_again_when_nothing_is_left() -> None:
    """The kernel's word of every host comes first; then the ports, then the stages in order."""
    driver = running(RESTART)
    assert fails(driver) == [KillHost("a", None, 5.0), KillHost("b", None, 5.0), PATIENCE]
    assert (driver.phase(), driver.state("worker:1")) == (RunPhase.RESTARTING, TaskState.BACKOFF)
    assert driver.seen.attempt_text == "attempt 2 of 3: worker:1 exit 1 on b"
    note = "worker:1 on b: exit 1; all tasks end and start again: attempt 2 of 3"
    assert driver.seen.notes[-1] == note
    assert driver.seen.waiting == "a, b"
    assert driver.exited("worker:2", None, "TERM") == driver.exited("worker:0", 1) == []
    assert driver.receipt("b") == [] and driver.seen.waiting == "a"
    assert driver.receipt("a") == [PickPorts(tuple(map(name, ALL)))]
    assert {driver.state(task) for task in ALL} == {TaskState.BACKOFF}
    assert driver.feed(ev.PortsPicked, {}) == driver.start("ps:0", attempt=2)
    assert (driver.phase(), driver.seen.attempt) == (RunPhase.STARTING, 2)
    assert driver.state("worker:1") is TaskState.PENDING
    assert starts(driver.ready("ps:0", attempt=2)) == [("worker:0", 2)]
    assert starts(driver.ready("worker:0", attempt=2)) == [("worker:1", 2), ("worker:2", 2)]
    driver.ready("worker:1", "worker:2", attempt=2)
    assert driver.phase() is RunPhase.RUNNING and driver.seen.first_failure is None
    assert [a.number for a in driver.task("worker:2").attempts] == [1, 2]
    for task in ("worker:0", "worker:1", "worker:2"):
        driver.exited(task, attempt=2)
    assert driver.confirmed() == driver.end(Outcome.SUCCESS, 0)


MISSED = ("RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.2]:229",)


@pytest.mark.parametrize(
    "how", ["looked at", "time is over", "a failure", "F9", "the launcher dies"]
)
def test_the_others_are_looked_at_before_all_start_again_for_a_victim(how: str) -> None:
    """Given a failure that says that a peer is missing, then the tasks are ended when the others
    have been looked at, or the time for that is over. A failure of another kind, a person and a
    launcher that takes the run over do not wait; a further victim does."""
    driver, victim = running(RESTART), name("worker:1")
    look = [LookAtOthers(victim), SetTimer(ev.LookTimeout(victim), 2.0)]
    assert driver.exited("worker:1", 1, tail=MISSED, misses_peer=True) == look
    assert driver.exited("worker:2", 1, tail=MISSED, misses_peer=True) == []
    assert (driver.phase(), driver.state("worker:1")) == (RunPhase.RUNNING, TaskState.BACKOFF)
    ended = [KillHost("a", None, 5.0), KillHost("b", None, 5.0), PATIENCE]
    if how == "looked at":
        assert driver.feed(ev.LookedAt, victim) == ended
    elif how == "time is over":
        assert driver.feed(ev.TimerFired, ev.LookTimeout(victim)) == ended
    elif how == "a failure":
        assert driver.exited("worker:0", 1, tail=("ValueError: bad sample",)) == ended
    elif how == "F9":
        driver.feed(ev.KillAll, by_person=True, force=False)
        assert driver.phase() is RunPhase.KILLING
        return
    else:
        driver.feed(ev.Attached, complete=True)
        driver.up("a", tasks=[held("worker:0")])
        driver.up("b")
        assert kills(driver.feed(ev.HostsChecked, {})) == BOTH
    assert driver.phase() is RunPhase.RESTARTING
    assert driver.feed(ev.LookedAt, victim) == []
    driver.confirmed()
    driver.feed(ev.PortsPicked, {})
    driver.ready(*ALL, attempt=2)
    assert driver.exited("worker:1", 1, attempt=2, tail=MISSED, misses_peer=True) == look


def test_the_verdict_on_an_attempt_ends_with_it() -> None:
    """Given the cause of an attempt's failure, when the next one begins, then it is none of that
    one."""
    driver = running(RESTART)
    fails(driver)
    verdict = Verdict((name("worker:1"),), Kind.RAISED, True, "worker:1 on b raised ValueError")
    driver.feed(ev.Judged, verdict)
    assert driver.seen.verdict == verdict
    driver.confirmed()
    driver.feed(ev.PortsPicked, {})
    assert driver.seen.verdict is None


def test_the_last_attempt_fails_as_always() -> None:
    driver = running(RESTART)
    again(driver, 2)
    again(driver, 3)
    assert driver.seen.attempt_text == "attempt 3 of 3: worker:1 exit 1 on b"
    assert fails(driver, 3) == driver.shut_down()
    assert (driver.failure.task, driver.failure.how) == (name("worker:1"), "exit 1")
    assert driver.confirmed() == driver.end(Outcome.FAILED, 1)


def test_tasks_that_have_ended_well_start_again_too() -> None:
    driver = running(RESTART)
    driver.exited("worker:2")
    again(driver)
    assert driver.task("worker:2").attempt == 2 and driver.state("worker:2") is TaskState.READY


def test_a_failure_during_the_start_starts_the_first_stage_again() -> None:
    """Tasks whose stage had not come have the number of all; what is late is of no attempt."""
    driver = staged(RESTART)
    driver.begun("ps:0")
    driver.exited("ps:0", 1)
    driver.receipt("b")
    assert driver.receipt("a") == [PickPorts(tuple(map(name, ALL)))]
    assert starts(driver.feed(ev.PortsPicked, {})) == [("ps:0", 2)]
    assert driver.begun("worker:0") == [] and driver.task("worker:0").pid is None
    driver.ready("ps:0", attempt=2)
    assert driver.task("worker:0").attempt == 2


def test_helpers_stay_and_their_hosts_end_the_other_tasks_alone() -> None:
    """A host can only say of some tasks among others that they are seen gone."""
    driver = running(RESTART, BOARD)
    driver.ready("board:0")
    own = ["worker:1", "worker:2"]
    assert kills(fails(driver)) == [("a", None, 5.0), ("b", own, 5.0)]
    driver.receipt("a")
    assert driver.receipt("b", ["worker:1"]) == []  # of another kill
    seen_gone = HostReceipt("b", signalled=2)
    assert driver.feed(ev.ReceiptReceived, seen_gone, tuple(map(name, own))) != []
    assert driver.state("board:0") is TaskState.READY
    driver.feed(ev.PortsPicked, {})
    driver.ready(*ALL, attempt=2)
    assert (driver.task("board:0").attempt, driver.phase()) == (1, RunPhase.RUNNING)
    assert driver.exited("board:0", 1) == []
    assert driver.state("board:0") is TaskState.FAILED and driver.phase() is RunPhase.RUNNING


LEFT = (Survivor(77, "python train.py", "D"),)


@pytest.mark.parametrize(
    ("receipt", "tasks", "why"),
    [
        (HostReceipt("b", survivors=LEFT), None, "b: 1 process left, such as pid 77 (D) python"),
        (HostReceipt("b", doubt="an earlier agent was killed"), None, "b: an earlier agent was"),
        (HostReceipt("b"), None, "b: it has not confirmed that no process is left"),
    ],
)
def test_without_the_proof_the_run_ends_and_says_why(
    receipt: HostReceipt, tasks: None, why: str
) -> None:
    driver = running(RESTART)
    fails(driver)
    driver.receipt("a")
    assert driver.feed(ev.ReceiptReceived, receipt, tasks) == driver.shut_down()
    assert driver.failure.how.startswith(f"exit 1; not started again: {why}")
    assert driver.state("worker:1") is TaskState.FAILED
    assert driver.confirmed() == driver.end(Outcome.FAILED, 1)
    assert driver.seen.attempt == 1 and not driver.seen.restart_due


@pytest.mark.parametrize("survivors", [(), LEFT])
def test_a_host_with_a_helper_that_cannot_tell_ends_the_run(survivors: Sequence[Survivor]) -> None:
    driver = running(RESTART, BOARD)
    fails(driver)
    driver.receipt("a")
    unsure = HostReceipt("b", survivors=tuple(survivors), doubt="" if survivors else "unread")
    tasks = (name("worker:1"), name("worker:2"))
    assert kills(driver.feed(ev.ReceiptReceived, unsure, tasks)) == BOTH


def test_a_host_that_does_not_answer_ends_the_run() -> None:
    driver = running(RESTART)
    fails(driver)
    driver.receipt("a")
    assert driver.fired(RestartTimeout(1)) == driver.shut_down()
    assert driver.failure.how == "exit 1; not started again: no answer from b"


def test_the_time_of_an_earlier_restart_ends_no_later_one() -> None:
    """Attempts may follow each other faster than the time that a host has for its answer."""
    driver = running(RESTART)
    again(driver)
    fails(driver, 2)
    assert driver.fired(RestartTimeout(1)) == []
    assert driver.confirmed() == [PickPorts(tuple(map(name, ALL)))]


# --- hosts that are lost ------------------------------------------------------------------------


def test_a_host_whose_power_failed_starts_all_again_when_it_is_back() -> None:
    driver = running(RESTART)
    driver.lost("b")
    assert driver.exited("worker:0", 1) != []  # its peers are gone
    driver.receipt("a")
    assert driver.fired(RestartTimeout(1)) == []  # it has until the end of its lease
    out = driver.up("b", agent_exit="the host was rebooted")
    assert out == [KillHost("b", None, 5.0), PATIENCE]
    assert driver.receipt("b") == [PickPorts(tuple(map(name, ALL)))]
    assert starts(driver.feed(ev.PortsPicked, {})) == [("ps:0", 2)]


def test_a_reboot_alone_starts_all_again() -> None:
    """Each host is told once."""
    driver = running(RESTART)
    driver.lost("b")
    out = driver.up("b", agent_exit="the host was rebooted")
    assert kills(out) == BOTH
    text = "attempt 2 of 3: worker:1 ended unseen, the host was rebooted on b"
    assert driver.seen.attempt_text == text


def test_a_cut_alone_starts_nothing_again() -> None:
    driver = running(RESTART)
    driver.lost("b")
    assert kills(driver.up("b", tasks=[held("worker:1"), held("worker:2")])) == []
    assert driver.phase() is RunPhase.RUNNING and driver.state("worker:1") is TaskState.READY


@pytest.mark.parametrize("keep", ["", 'on_disconnect = "keep"\n'])
def test_a_host_that_stays_away_ends_the_run(keep: str) -> None:
    """Under `keep`, too: its tasks may live, and no other attempt may start beside them."""
    driver = running(RESTART + keep)
    fails(driver)
    driver.receipt("a")
    driver.lost("b")
    assert driver.fired(LeaseEnd("b")) == driver.shut_down()
    assert driver.failure.how == "exit 1; not started again: b is lost (silence)"


def test_a_host_that_is_cut_off_while_ports_are_picked_is_asked_again() -> None:
    driver = running(RESTART)
    fails(driver)
    driver.confirmed()
    driver.lost("b")
    assert driver.up("b", tasks=[held("worker:1")]) == [PickPorts(tuple(map(name, ALL)))]
    assert starts(driver.feed(ev.PortsPicked, {})) == [("ps:0", 2)]
    assert driver.feed(ev.PortsPicked, {}) == []


def test_a_port_that_another_program_holds_ends_the_run() -> None:
    driver = running(RESTART)
    fails(driver)
    driver.confirmed()
    out = driver.feed(ev.HostRefused, "b", "port 2222 is in use")
    assert kills(out) == BOTH
    assert driver.failure.how == "exit 1; not started again: b: port 2222 is in use"


# --- the next attempt ---------------------------------------------------------------------------


def test_the_next_attempt_has_new_ports_and_says_its_number() -> None:
    driver = RunDriver(text=AUTO, settings=RESTART)
    driver.feed(ev.Begin)
    driver.up("a", "b")
    worker = [name("worker:0"), name("worker:1")]
    facts = {h: HostFacts(home="/h", ports={worker[n]: 15000 + n}) for n, h in enumerate("ab")}
    driver.feed(ev.HostsChecked, facts)
    for host in ("a", "b"):
        driver.feed(ev.Staged, host)
    before = driver.run.data.plan.task(worker[1]).env
    fails(driver)
    driver.confirmed()
    driver.feed(ev.PortsPicked, {worker[0]: 16000, worker[1]: 16001})
    env = driver.run.data.plan.task(worker[1]).env
    assert (before["MASTER_PORT"], env["MASTER_PORT"]) == ("15000", "16000")
    names = ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TFMUX_ATTEMPT")
    assert [before[key] for key in names] == ["0", "2", "1"]
    assert [env[key] for key in names] == ["1", "2", "2"]
    assert driver.run.data.ports == {worker[0]: 16000, worker[1]: 16001}
    assert driver.task("worker:1").address == "b:16001"


def test_a_task_that_a_person_has_restarted_is_never_numbered_back() -> None:
    driver = running(RESTART)
    driver.feed(ev.Restart, name("worker:2"))
    driver.receipt("b", ["worker:2"])
    driver.ready("worker:2", attempt=2)
    fails(driver)
    driver.confirmed()
    driver.feed(ev.PortsPicked, {})
    driver.ready("ps:0", "worker:0", attempt=2)
    assert (driver.task("worker:1").attempt, driver.task("worker:2").attempt) == (2, 3)


def test_a_person_restarts_no_task_while_all_are_ended() -> None:
    driver = running(RESTART)
    driver.feed(ev.Restart, name("worker:2"))
    fails(driver)
    assert driver.receipt("b", ["worker:2"]) == []
    assert driver.feed(ev.Restart, name("worker:0")) == []
    driver.confirmed()
    assert starts(driver.feed(ev.PortsPicked, {})) == [("ps:0", 2)]
    assert driver.feed(ev.Restart, name("worker:0")) == []  # its stage comes


def test_an_agent_that_dies_later_has_not_said_that_nothing_is_left() -> None:
    """What it said of the attempt before is no word on this one."""
    driver = running(RESTART)
    again(driver)
    driver.feed(ev.KillAll)
    driver.feed(ev.HostLost, "b", "its agent died", 0.0, agent_gone=True)
    driver.receipt("a")
    assert driver.seen.receipt is not None and not driver.seen.receipt.clean


# --- a kill, or another launcher, at any moment -------------------------------------------------

Step = Callable[[RunDriver], object]


def asked_of_b(driver: RunDriver) -> list[str] | None:
    """What the host b confirms in a restart: of some tasks, where it has others, too."""
    beside = len(driver.run.data.plan.on_host("b")) > 2
    return ["worker:1", "worker:2"] if beside else None


MOMENTS: list[tuple[str, Step]] = [
    ("fails", fails),
    ("another fails", lambda d: d.exited("worker:2", 1)),
    ("one ends", lambda d: d.exited("worker:0", None, "TERM")),
    ("a host confirms", lambda d: d.receipt("a")),
    ("the other is lost", lambda d: d.lost("b")),
    ("and is back", lambda d: d.up("b", tasks=[held("worker:1"), held("worker:2")])),
    ("all confirm", lambda d: d.receipt("b", asked_of_b(d))),
    ("ports are picked", lambda d: d.feed(ev.PortsPicked, {})),
    ("the first stage begins", lambda d: d.begun("ps:0", attempt=2)),
    ("the first stage is ready", lambda d: d.feed(ev.TaskReady, name("ps:0"), 2)),
    ("the second is ready", lambda d: d.ready("worker:0", attempt=2)),
    ("all are ready", lambda d: d.ready("worker:1", "worker:2", attempt=2)),
]


def at(moment: int, jobs: str = "") -> RunDriver:
    driver = running(RESTART, jobs)
    for _, step in MOMENTS[: moment + 1]:
        step(driver)
    return driver


@pytest.mark.parametrize("moment", range(len(MOMENTS)), ids=[what for what, _ in MOMENTS])
@pytest.mark.parametrize("late", ["own", "of the restart"])
def test_a_kill_ends_everything_at_any_moment(moment: int, late: str) -> None:
    """Receipts of the restart may still come, and ports; nothing is started any more."""
    driver = at(moment, BOARD if late == "of the restart" else "")
    out = driver.feed(ev.KillAll)
    assert kills(out) == BOTH
    assert driver.feed(ev.PortsPicked, {}) == driver.fired(RestartTimeout(1)) == []
    if late == "of the restart":
        assert driver.receipt("b", ["worker:1", "worker:2"]) == []
    for task in ALL:
        attempt = driver.task(task).attempt
        assert driver.exited(task, None, "TERM", attempt=attempt) == []
    out = driver.confirmed()
    assert ends(out) == [(Outcome.KILLED, 130)] and not starts(out)
    assert not any(view.state.live for view in driver.seen.tasks)


@pytest.mark.parametrize("moment", range(len(MOMENTS)), ids=[what for what, _ in MOMENTS])
def test_the_next_launcher_takes_a_restart_up_at_any_moment(moment: int) -> None:
    """The next launcher has only the stream: the restart is gone on with, each host's proof is
    asked for anew, and attempts that have begun are let be."""
    driver = RunDriver(settings=RESTART)
    kept = Views(RunView("r", "r", RunPhase.CONNECTING, 0.0))
    driver.running()
    for _, step in MOMENTS[: moment + 1]:
        step(driver)
    for record in driver.run.data.pop_changed(driver.now):
        line = parse(encode(record))
        assert not isinstance(line, Summary | Metric | GpuSample)
        kept.take(line)
    seen = driver.seen
    holds = [held(str(v.id), v.attempt) for v in seen.tasks if v.attempt and v.state.live]
    cluster = loads(CLUSTER + RESTART, "cluster.toml", Path("/srv"))
    driver.run = RunStateMachine(cluster, "r", past=kept)
    views = driver.run.data
    assert {host: view.facts for host, view in views.facts.items()} == FACTS
    told = [one.id for one in views.records() if isinstance(one, TaskView)]
    assert told == [name(task) for task in ALL]
    driver.feed(ev.Attached)
    told_up: list[Instruction] = []
    for host in ("a", "b"):
        own = [one for one in holds if driver.task(str(one.task)).host == host]
        told_up += driver.up(host, tasks=own)
    out = driver.feed(ev.HostsChecked, {})
    if seen.restart_due:
        assert kills(out) == BOTH and not starts(out)
        driver.confirmed()
        assert starts(driver.feed(ev.PortsPicked, {})) == [("ps:0", 2)]
    else:
        assert kills([*told_up, *out]) == []
    assert driver.seen.attempt == 2
    for task in ALL:
        driver.ready(task, attempt=2)
    assert driver.phase() is RunPhase.RUNNING and not driver.seen.restart_due
    assert {view.attempt for view in driver.seen.tasks} == {2}


def test_a_failure_that_nobody_was_there_to_hear_starts_all_again() -> None:
    driver = running(RESTART)
    driver.feed(ev.Attached)
    driver.up("a", tasks=[held("ps:0"), held("worker:0")])
    assert driver.up("b", tasks=[held("worker:1"), held("worker:2")]) != []
    assert fails(driver) == []
    assert driver.seen.restart_due
    assert kills(driver.feed(ev.HostsChecked, {})) == BOTH
    assert driver.phase() is RunPhase.RESTARTING


def test_only_the_time_of_a_lost_host_is_renewed() -> None:
    driver = running(RESTART)
    fails(driver)
    driver.lost("b")
    assert timers(driver.up("b", tasks=[held("worker:1")])) == {
        RestartTimeout(1): 5 + KILL_PATIENCE
    }
