"""GPUs of a run's hosts: what is said of them from what an agent tells."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.ids import TaskId
from launcher.run.gpus import GpuInstance, GpuProcess, GpuSample, GpuView, Throttle, holders
from launcher.run.snapshot import HostView, RunView, TaskView
from launcher.run.states import HostState, RunPhase, TaskState
from launcher.run.views import Views
from launcher.session.gpu_watch import GpuWatch
from launcher.session.looks import GpuSentences, Look
from launcher.store.stream import decode, plain

GIB = 1 << 30
WORKER = TaskId("worker", 0)


def view(**values: Any) -> GpuView:
    return GpuView(0, "H200", "GPU-0", **values)


@pytest.mark.parametrize(
    ("throttled", "slowed", "hot"),
    [
        ((), (), False),
        ((Throttle.POWER_CAP,), (), False),
        ((Throttle.THERMAL,), (Throttle.THERMAL,), True),
        ((Throttle.POWER_CAP, Throttle.POWER_BRAKE), (Throttle.POWER_BRAKE,), False),
    ],
)
def test_reasons_to_run_slower(throttled: Any, slowed: Any, hot: bool) -> None:
    """The limit of power is reached at each full load: it alone is no trouble."""
    seen = view(throttled=throttled)
    assert (seen.slowed, seen.hot) == (slowed, hot)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({}, ""),
        ({"ecc_errors": 7}, ""),  # from before the run
        ({"ecc_errors": 8, "new_ecc_errors": 1}, "GPU 0 has had 1 error of its memory"),
        ({"xids": (31, 43)}, ""),  # a program's
        ({"xids": (31, 79)}, "GPU 0 has reported Xid 79 (the GPU has fallen off the bus)"),
        ({"problem": "GPU is lost"}, "GPU 0 cannot be used: GPU is lost"),
        ({"xids": (79,), "problem": "GPU is lost"}, "Xid 79 (the GPU has fallen off the bus); "),
    ],
)
def test_faults_of_a_gpu(values: dict[str, Any], fault: str) -> None:
    """The hardware's faults count, those of programs do not."""
    said = view(**values).fault
    assert fault in said and bool(said) == bool(fault)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("0", True),
        ("1", False),
        ("00", True),
        ("GPU-8932f937", True),
        ("GPU-8932f938", False),
        ("MIG-1a", True),
        ("", False),
    ],
)
def test_names_in_cuda_visible_devices(name: str, meant: bool) -> None:
    """A number, or the beginning of an id, also of an instance's."""
    uuid, instances = "GPU-8932f937-d72c-4106-c12f", (GpuInstance("1g.18gb", "MIG-1a2b"),)
    assert GpuView(0, "H200", uuid, instances=instances).is_named(name) is meant


def test_who_holds_a_gpu_beside_a_task() -> None:
    """Given a task and four others, then three of these are named, with most memory first."""
    mine = GpuProcess(1, WORKER, memory=10 * GIB)
    peer = GpuProcess(2, TaskId("worker", 1), memory=50 * GIB)
    others = [GpuProcess(number, None, "bob", "x", number * GIB) for number in (3, 4)]
    there = GpuProcess(9, None, memory=GIB, elsewhere=True)
    gpu = view(memory_used=68 * GIB, processes=(mine, peer, *others, there))
    assert holders([gpu], WORKER) == (
        "GPU 0 is held by worker:1, 54 GB, bob's pid 4 (x), 4.3 GB, bob's pid 3 (x), 3.2 GB, 1 more"
    )
    assert holders([view(memory_used=GIB, processes=(mine,))], WORKER) == ""


def test_a_view_is_recorded_and_read_again() -> None:
    """With all that it has; a line of text for each GPU, as earlier versions had it, is none."""
    seen = view(
        utilisation=0.5,
        throttled=(Throttle.POWER_CAP,),
        xids=(79,),
        processes=(GpuProcess(3, WORKER, memory=GIB), GpuProcess(4)),
    )
    host = HostView("h", "h", HostState.UP, gpus=(seen,))
    assert decode(plain(host)) == host
    old = {**plain(host), "gpus": ["0, NVIDIA H200, 12, 2717, 143771"]}
    read = decode(old)
    assert isinstance(read, HostView) and read.gpus == ()


class Watched:
    """A watch over one host with one task, at a time that the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **task: Any) -> None:
        self.now = 1000.0
        monkeypatch.setattr("launcher.session.gpu_watch.time.time", lambda: self.now)
        self.views = Views(RunView("r", "r", RunPhase.RUNNING, 0.0))
        self.views.take(HostView("h", "h", HostState.UP))
        state = task.pop("state", TaskState.RUNNING)
        self.views.take(TaskView(WORKER, "h", "h:1", state, attempt=1, **task))
        self.recorded: list[GpuSample] = []
        self.notes: list[str] = []
        shell: Any = SimpleNamespace(
            data=self.views,
            record=self.recorded.append,
            note=self.notes.append,
            bulkhead=self,
            spawn=lambda work, name: asyncio.run(work),
        )
        self.watch = GpuWatch(shell)

    def around(self, look: Look) -> AbstractContextManager[None]:
        return nullcontext()

    async def ask(self, question: GpuSentences) -> list[str]:
        """As the bulkhead's reader does."""
        return question.answer()

    def sees(self, now: float, *told: GpuView) -> GpuView:
        self.now = now
        self.watch.seen("h", told, "")
        return self.views.hosts["h"].gpus[0]


HELD = (GpuProcess(pid=3, task=WORKER, memory=GIB),)


@pytest.mark.parametrize(
    ("task", "processes", "idle"),
    [
        ({}, HELD, True),
        ({"gpus": ("0",)}, (), True),  # never touched, or in a container
        ({"gpus": ("1",)}, (), False),
        ({}, (), False),
        ({"state": TaskState.STARTING}, HELD, False),
    ],
)
def test_a_gpu_is_idle_while_a_running_task_holds_it(
    monkeypatch: pytest.MonkeyPatch, task: dict[str, Any], processes: Any, idle: bool
) -> None:
    """From the first look on that finds it so, for a minute before it is worth a warning; until
    something runs on it."""
    watched = Watched(monkeypatch, **task)
    quiet = view(utilisation=0.0, processes=processes)
    assert watched.sees(1000.0, quiet).idle_since == (1000.0 if idle else None)
    later = watched.sees(1059.0, quiet)
    assert later.idle_since == (1000.0 if idle else None) and later.idle_for(1059.0) == 0
    assert watched.sees(1060.0, quiet).idle_for(1060.0) == (60 if idle else 0)
    assert watched.sees(1065.0, view(utilisation=0.3, processes=processes)).idle_since is None
    assert watched.sees(1070.0, view(utilisation=None, processes=processes)).idle_since is None


def test_a_host_does_not_say_what_only_the_launcher_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a host that tells of errors since the run began, and of idleness, then neither is
    believed."""
    watched = Watched(monkeypatch)
    seen = watched.sees(1000.0, view(idle_since=1.0, new_ecc_errors=9, utilisation=0.0))
    assert (seen.idle_since, seen.new_ecc_errors, seen.fault) == (None, 0, "")
    assert watched.notes == []


def test_each_look_is_a_line_and_a_fault_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given ECC errors from before the run, then a new one is a note, once; each look is recorded
    with the memory of tasks."""
    watched = Watched(monkeypatch)
    watched.sees(1000.0, view(ecc_errors=3, processes=HELD))
    assert watched.notes == []
    for number in range(3):
        watched.sees(1005.0 + number, view(ecc_errors=4, processes=HELD))
    (note,) = watched.notes
    assert note.startswith("h: GPU 0 has had 1 error of its memory")
    assert [one.tasks for one in watched.recorded] == [{WORKER: GIB}] * 4


@pytest.mark.parametrize("told", [{"ecc_errors": 4}, {"ecc_errors": 3, "xids": (79,)}])
def test_a_fault_stays_known_while_nvidia_smi_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]
) -> None:
    """Given a GPU that has failed, when its host has no figures any more, then it is to blame as
    before, and no second note says so."""
    watched = Watched(monkeypatch)
    watched.sees(1000.0, view(ecc_errors=3, processes=HELD))
    fault = watched.sees(1005.0, view(**told, processes=HELD)).fault
    assert fault and watched.sees(1010.0, view()).fault == fault
    (own,) = watched.watch.of_task(watched.views.tasks[WORKER])
    assert own.fault == fault and len(watched.notes) == 1


def test_a_host_is_recorded_when_processes_change_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Load alone changes all the time; who is on a GPU is a fact, however often that changes."""
    watched = Watched(monkeypatch)
    watched.sees(1000.0, view(utilisation=0.1, processes=HELD))
    assert len(watched.views.pop_changed(1000.0)) == 1
    watched.sees(1040.0, view(utilisation=0.2, processes=HELD))
    assert watched.views.pop_changed(1040.0) == []
    watched.sees(1080.0, view())
    assert len(watched.views.pop_changed(1080.0)) == 1
    watched.sees(1085.0, view(processes=HELD))
    assert watched.views.pop_changed(1085.0) == []
    watched.sees(1110.0, view(processes=HELD))
    assert len(watched.views.pop_changed(1110.0)) == 1


def test_mig_instances_are_gpus_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a task on one instance and strangers on both, then who holds its GPU is who is on its
    instance: the other has memory of its own."""
    instances = (
        GpuInstance("2g.20gb", "MIG-a", 19 * GIB, 20 * GIB),
        GpuInstance("1g.10gb", "MIG-b", GIB, 10 * GIB),
    )
    processes = (
        GpuProcess(pid=3, task=WORKER, memory=GIB, instance="MIG-a"),
        GpuProcess(pid=4, user="bob", command="x", memory=18 * GIB, instance="MIG-a"),
        GpuProcess(pid=5, user="eve", command="y", memory=GIB, instance="MIG-b"),
    )
    watched = Watched(monkeypatch, gpus=("MIG-a",))
    watched.sees(1000.0, view(instances=instances, processes=processes, ecc_errors=0))
    own = watched.watch.of_task(watched.views.tasks[WORKER])
    assert [(gpu.place, gpu.memory) for gpu in own] == [("MIG 2g.20gb of GPU 0", 0.95)]
    assert holders(own, WORKER) == ("MIG 2g.20gb of GPU 0 is held by bob's pid 4 (x), 19 GB")
    assert watched.notes == ["h: MIG 2g.20gb of GPU 0 is held by bob's pid 4 (x), 19 GB"]
