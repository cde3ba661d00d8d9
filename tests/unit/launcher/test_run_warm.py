"""Warm start in the run's machine: later tasks import at once and are released stage by stage."""

from __future__ import annotations

import pytest

from launcher.cluster.readiness import AUTO_SECONDS
from launcher.run import events as ev
from launcher.run.events import ReadyDelay, ReadyTimeout, RestartDelay
from launcher.run.instructions import Instruction, KillHost, ReleaseTask, StartTask
from launcher.run.states import RunPhase, TaskState
from tests.support.run_driver import CLUSTER, FACTS, RunDriver, ends, name, staged, starts, timers

WARM = CLUSTER.replace('["x"]', '["python3", "x"]') + '[start]\nwarm = ["tensorflow"]\n'


@pytest.fixture
def driver() -> RunDriver:
    """A run whose ps starts and whose workers import."""
    return importing(WARM)


def importing(text: str) -> RunDriver:
    driver = staged(text=text)
    driver.begun("ps:0", "worker:0", "worker:1", "worker:2")
    return driver


def gated(out: list[Instruction]) -> list[str]:
    return [str(i.task.id) for i in out if isinstance(i, StartTask) and i.gated]


def released(out: list[Instruction]) -> list[tuple[str, int]]:
    return [(str(i.task.id), i.attempt) for i in out if isinstance(i, ReleaseTask)]


def states(driver: RunDriver) -> str:
    return " ".join(str(view.state) for view in driver.seen.tasks)


def test_later_tasks_import_while_the_first_stage_starts() -> None:
    """Their time limits begin when their stage comes."""
    driver = RunDriver(text=WARM)
    out = driver.staged()
    assert starts(out) == [("ps:0", 1), ("worker:0", 1), ("worker:1", 1), ("worker:2", 1)]
    assert gated(out) == ["worker:0", "worker:1", "worker:2"]
    assert list(timers(out)) == [ReadyTimeout(name("ps:0"), 1)]
    assert states(driver) == "starting warming warming warming"


def test_each_stage_is_released_when_the_one_before_is_ready(driver: RunDriver) -> None:
    """Nothing of a task counts before: neither its process nor a port makes it ready."""
    assert driver.feed(ev.TaskReady, name("worker:0"), 1) == []
    out = driver.ready("ps:0")
    assert released(out) == [("worker:0", 1)]
    assert timers(out) == {ReadyTimeout(name("worker:0"), 1): 120.0}
    assert states(driver) == "ready starting warming warming"
    assert driver.seen.waiting == "worker:0 on a:2223"
    out = driver.feed(ev.TaskReady, name("worker:0"), 1)
    assert released(out) == [("worker:1", 1), ("worker:2", 1)]
    driver.ready("worker:1", "worker:2")
    assert driver.phase() is RunPhase.RUNNING


def test_readiness_by_start_and_by_time_begins_with_the_release() -> None:
    """`started` is ready at once, `{ after = s }` counts from then."""
    text = WARM.replace('"a:2223", ', "") + "[start.ready]\nworker = { after = 3.0 }\n"
    text = text.replace("[jobs.worker]", '[jobs.chief]\ntasks = ["a:2223"]\n[jobs.worker]')
    driver = staged(text=text + 'chief = "started"\n')
    assert timers(driver.begun("chief:0", "worker:0")) == {}
    out = driver.ready("ps:0")
    assert released(out) == [("chief:0", 1), ("worker:0", 1), ("worker:1", 1)]
    assert timers(out)[ReadyDelay(name("worker:0"), 1)] == 3.0
    assert ReadyDelay(name("worker:1"), 1) not in timers(out)  # its process is not known yet
    assert states(driver) == "ready ready starting starting"
    assert timers(driver.begun("worker:1")) == {ReadyDelay(name("worker:1"), 1): 3.0}


def test_nothing_imports_beside_prepare_lines() -> None:
    """They may install the modules."""
    driver = RunDriver(text=WARM.replace("grace = 5", 'grace = 5\nprepare = ["pip install x"]'))
    out = driver.staged()
    assert starts(out) == [("prepare:0", 1), ("prepare:1", 1)] and gated(out) == []
    driver.begun("prepare:0", "prepare:1")
    driver.exited("prepare:0")
    out = driver.exited("prepare:1")
    assert gated(out) == ["worker:0", "worker:1", "worker:2"]


def test_a_failure_at_import_is_the_tasks_failure(driver: RunDriver) -> None:
    """A module that cannot be imported fails the run at once."""
    out = driver.feed(ev.TaskExited, name("worker:1"), 1, 1, None, tail=("no module x",))
    assert [i.host for i in out if isinstance(i, KillHost)] == ["a", "b"]
    assert (driver.failure.task, driver.failure.how) == (name("worker:1"), "exit 1")
    assert driver.failure.tail == ("no module x",)
    driver.receipt("a")
    assert ends(driver.receipt("b"))
    assert states(driver) == "stopped stopped failed stopped"


def test_a_restart_before_its_stage_imports_again() -> None:
    """The order holds for each attempt; when its stage has come, a restart waits for nothing."""
    driver = importing(WARM.replace("grace = 5", 'grace = 5\non_failure = "restart"'))
    driver.exited("worker:1", 1)
    driver.receipt("b", ["worker:1"])
    assert gated(driver.fired(RestartDelay(name("worker:1"), 1))) == ["worker:1"]
    assert driver.state("worker:1") is TaskState.WARMING
    driver.begun("worker:1", attempt=2)
    driver.feed(ev.Restart, name("worker:2"))
    driver.exited("worker:2", None, "TERM")
    assert gated(driver.receipt("b", ["worker:2"])) == ["worker:2"]
    driver.ready("ps:0")
    assert released(driver.ready("worker:0")) == [("worker:1", 2), ("worker:2", 2)]
    driver.feed(ev.Restart, name("worker:1"))
    driver.exited("worker:1", None, "TERM", attempt=2)
    out = driver.receipt("b", ["worker:1"])
    assert starts(out) == [("worker:1", 3)] and gated(out) == []


def test_a_task_that_waits_for_its_restart_does_not_lose_its_stage() -> None:
    """Its stage comes during the pause: it starts cold after it."""
    driver = importing(WARM.replace("grace = 5", 'grace = 5\non_failure = "restart"'))
    driver.exited("worker:0", 1)
    driver.receipt("a", ["worker:0"])
    assert released(driver.ready("ps:0")) == []
    out = driver.fired(RestartDelay(name("worker:0"), 1))
    assert starts(out) == [("worker:0", 2)] and gated(out) == []
    assert released(driver.ready("worker:0", attempt=2)) == [("worker:1", 1), ("worker:2", 1)]


def test_a_task_that_a_person_kills_at_its_gate_is_not_released(driver: RunDriver) -> None:
    """The others go on."""
    driver.feed(ev.SignalTask, name("worker:1"), "TERM")
    driver.exited("worker:1", None, "TERM")
    assert driver.state("worker:1") is TaskState.KILLED
    driver.ready("ps:0")
    assert released(driver.ready("worker:0")) == [("worker:2", 1)]


# --- cuts and launchers that die ----------------------------------------------------------------


def held(driver: RunDriver, host: str, at_gate: str = "") -> list[ev.HeldTask]:
    views = [view for view in driver.seen.tasks if view.host == host and view.attempt]
    return [ev.HeldTask(v.id, v.attempt, str(v.id) in at_gate.split()) for v in views]


def test_a_release_that_a_cut_has_swallowed_is_repeated(driver: RunDriver) -> None:
    """The stage comes while the host is lost: it waits for the task, and the host learns of it."""
    driver.ready("ps:0")
    driver.lost("b")
    assert driver.state("worker:1") is TaskState.LOST
    assert released(driver.ready("worker:0")) == [("worker:1", 1), ("worker:2", 1)]
    assert driver.phase() is RunPhase.STARTING
    out = driver.up("b", tasks=held(driver, "b", "worker:1 worker:2"))
    assert released(out) == [("worker:1", 1), ("worker:2", 1)]
    assert released(driver.up("b", tasks=held(driver, "b"))) == []


def test_a_start_that_a_cut_has_swallowed_is_repeated_as_it_is_wanted_now() -> None:
    """Before its stage at the gate, after it without one."""
    driver = staged(text=WARM)
    driver.lost("b")
    assert gated(driver.up("b")) == ["worker:1", "worker:2"]
    driver.lost("b")
    driver.ready("ps:0", "worker:0")
    out = driver.up("b")
    assert starts(out) == [("worker:1", 1), ("worker:2", 1)] and gated(out) == []


def attached(driver: RunDriver) -> None:
    driver.feed(ev.Attached)


def test_a_new_launcher_releases_what_waits(driver: RunDriver) -> None:
    """The stream knows who is at the gate; the stage goes on where it was."""
    attached(driver)
    driver.up("a", tasks=held(driver, "a", "worker:0"))
    driver.up("b", tasks=held(driver, "b", "worker:1 worker:2"))
    assert driver.feed(ev.HostsChecked, FACTS) == driver.start("ps:0")[1:]
    assert states(driver) == "starting warming warming warming"
    assert released(driver.feed(ev.TaskReady, name("ps:0"), 1)) == [("worker:0", 1)]


def test_a_new_launcher_repeats_a_release_that_was_not_sent(driver: RunDriver) -> None:
    """The launcher died between its stream and the host."""
    driver.ready("ps:0")
    attached(driver)
    assert released(driver.up("a", tasks=held(driver, "a", "worker:0"))) == [("worker:0", 1)]


def test_a_new_launcher_learns_of_a_release_that_is_in_no_stream(driver: RunDriver) -> None:
    """The host's word counts."""
    attached(driver)
    driver.up("a", tasks=held(driver, "a"))
    assert driver.state("worker:0") is TaskState.STARTING
    driver.up("b", tasks=held(driver, "b", "worker:1 worker:2"))
    driver.feed(ev.HostsChecked, FACTS)
    driver.feed(ev.TaskReady, name("ps:0"), 1)
    assert released(driver.feed(ev.TaskReady, name("worker:0"), 1)) != []


def test_a_lost_host_keeps_its_stage_when_a_launcher_takes_over(driver: RunDriver) -> None:
    """Who waits there is released when the host is back."""
    driver.ready("ps:0")
    driver.ready("worker:0")
    driver.lost("b")
    attached(driver)
    driver.up("a", tasks=held(driver, "a"))
    driver.lost("b")
    driver.feed(ev.HostsChecked, FACTS)
    out = driver.up("b", tasks=held(driver, "b", "worker:1 worker:2"))
    assert released(out) == [("worker:1", 1), ("worker:2", 1)]


def test_attempts_that_are_in_no_stream_are_taken_over_at_their_gates() -> None:
    """The launcher died before it could note that it had started them."""
    driver = RunDriver(text=WARM)
    driver.checked()
    attached(driver)
    ids = {"a": ("ps:0", "worker:0"), "b": ("worker:1", "worker:2")}
    for host, tasks in ids.items():
        found = [ev.HeldTask(name(task), 1, task != "ps:0") for task in tasks]
        driver.up(host, tasks=found)
    assert states(driver) == "starting warming warming warming"
    assert driver.feed(ev.HostsChecked, FACTS) == driver.start("ps:0")[1:]
    assert released(driver.ready("ps:0")) == [("worker:0", 1)]


def test_automatic_readiness_begins_with_the_release() -> None:
    """Its seconds count from then."""
    driver = staged(text=WARM + '[start.ready]\nworker = "auto"\n')
    assert timers(driver.begun("worker:0")) == {}
    out = driver.ready("ps:0")
    assert timers(out)[ReadyDelay(name("worker:0"), 1)] == AUTO_SECONDS
