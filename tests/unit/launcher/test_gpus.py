"""GPUs: how they are split between tasks, and what is said of them from what an agent tells."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from launcher.agent.kernel_log import XidErrors, last_lines, own_lines
from launcher.cluster.read import loads
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts
from launcher.plan.planner import make_plan
from launcher.process.gpu_watch import GpuWatch
from launcher.reading.looks import GpuSentences, Look
from launcher.run.gauges import Gauges
from launcher.run.gpus import GpuInstance, GpuProcess, GpuSample, GpuView, Throttle, holders
from launcher.run.snapshot import HostView, RunView, TaskView
from launcher.run.states import HostState, RunPhase, TaskState
from launcher.run.views import Views
from launcher.store.stream import decode, plain

# A host's GPUs are split between the tasks that train on it.


def shares(
    workers: int,
    *,
    given: int | str | None = None,
    seen: int = 0,
    job: str = "",
    env: str = "",
    visible: str | None = None,
) -> dict[str, str | None]:
    """What CUDA_VISIBLE_DEVICES is for a ps and some workers on one host, None = unset."""
    tasks = ", ".join(f'"tf1:{2222 + n}"' for n in range(1, workers + 1))
    gpus = "" if given is None else f"gpus = {given}"
    text = f"""\
[hosts.tf1]
ssh = "tf1"
{gpus}
[jobs.ps]
tasks = ["tf1:2222"]
[jobs.worker]
tasks = [{tasks}]
{job}
[run]
command = ["true"]
{env}
"""
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    facts = {"tf1": HostFacts(gpus=seen, environ=environ)}
    plan = make_plan(loads(text, "c", Path("/")), "r", facts)
    return {str(t.id): t.env.get("CUDA_VISIBLE_DEVICES") for t in plan.tasks}


@pytest.mark.parametrize(
    ("workers", "gpus", "expected"),
    [
        (1, 1, ["0"]),
        (1, 4, ["0,1,2,3"]),
        (2, 2, ["0", "1"]),
        (2, 4, ["0,1", "2,3"]),
        (3, 4, ["0,1", "2", "3"]),
        (3, 2, ["0", "1", "0"]),
        (2, 0, [None, None]),
    ],
)
@pytest.mark.parametrize("said_by_the_file", [True, False])
def test_gpus_are_split_between_workers(
    workers: int, gpus: int, expected: list[str | None], said_by_the_file: bool
) -> None:
    """Whole GPUs, as evenly as they go, by the file's number or by what the host reports; the
    ps sees none."""
    split = shares(workers, given=gpus) if said_by_the_file else shares(workers, seen=gpus)
    assert split["ps:0"] == "-1"
    assert [split[f"worker:{n}"] for n in range(workers)] == expected


def test_a_job_may_ask_for_a_number() -> None:
    """Its tasks get that many each, none for 0, and others what is left."""
    asked = {"ps:0": "-1", "worker:0": "0,1", "worker:1": "2,3"}
    assert shares(2, given=5, job="gpus = 2") == asked
    assert shares(1, given=5, job="gpus = 0") == {"ps:0": "-1", "worker:0": "-1"}
    helper = 'gpus = 1\n[jobs.chief]\ntasks = ["tf1:9"]'
    split = shares(2, given=4, job=helper)
    assert (split["worker:0"], split["worker:1"], split["chief:0"]) == ("0", "1", "2,3")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("2,3", ["2", "3"]),
        ("3", ["3", "3"]),
        ("GPU-1a,GPU-2b,GPU-3c", ["GPU-1a,GPU-2b", "GPU-3c"]),
        ("-1", ["-1", "-1"]),
        ("", [None, None]),
    ],
)
def test_gpus_that_the_environment_there_hides_are_given_to_nobody(
    visible: str, expected: list[str | None]
) -> None:
    """On a shared machine they are somebody else's. What is unset is the host's own value."""
    split = shares(2, seen=4, visible=visible)
    assert [split["worker:0"], split["worker:1"]] == expected


def test_a_file_that_counts_more_gpus_than_are_shown_is_followed() -> None:
    """The file's author knows the host."""
    split = shares(2, given=4, seen=4, visible="3")
    assert (split["worker:0"], split["worker:1"]) == ("0,1", "2,3")
    split = shares(2, given=2, seen=4, visible="2,3")
    assert (split["worker:0"], split["worker:1"]) == ("2", "3")


def test_the_file_has_the_last_word() -> None:
    """A CUDA_VISIBLE_DEVICES of one's own is left alone."""
    split = shares(1, given=2, env='env = { CUDA_VISIBLE_DEVICES = "7" }')
    assert split == {"ps:0": "7", "worker:0": "7"}


@pytest.mark.parametrize(
    ("host", "job", "expected"),
    [
        ('"0,2"', "", ["0", "2"]),
        ('" 1, 3 , 5,7 "', "", ["1,3", "5,7"]),
        ('"GPU-1a, MIG-2b"', "", ["GPU-1a", "MIG-2b"]),
        ('"3,"', "", ["3", "3"]),
        ("4", '"0,2"', ["0", "2"]),
        ("4", '"MIG-GPU-8932f937/1/0,"', ["MIG-GPU-8932f937/1/0"] * 2),
        ('"4,5,6,7"', "2", ["4,5", "6,7"]),
    ],
)
def test_gpus_may_be_chosen_by_number_or_id(host: str, job: str, expected: list[str]) -> None:
    """GPUs of a host are for the cluster, GPUs of a job for its tasks there, which divide them."""
    split = shares(2, given=host, job=f"gpus = {job}" if job else "")
    assert [split["worker:0"], split["worker:1"]] == expected


@pytest.mark.parametrize(
    ("gpus", "env", "environ", "order"),
    [
        ("2", "", {}, "PCI_BUS_ID"),
        ('"1,3"', "", {}, "PCI_BUS_ID"),
        ('"GPU-1a,GPU-2b"', "", {}, None),
        ("2", 'CUDA_DEVICE_ORDER = "FASTEST_FIRST"', {}, "FASTEST_FIRST"),
        ("2", "", {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, None),
        ("0", "", {}, None),
    ],
)
def test_gpus_have_the_numbers_of_nvidia_smi(
    gpus: str, env: str, environ: dict[str, str], order: str | None
) -> None:
    """Given GPUs of several kinds, CUDA would begin with the fastest; an id needs no order, and
    what people or the host say stays."""
    text = f"""\
[hosts.a]
ssh = "a"
gpus = {gpus}
[jobs.worker]
tasks = ["a:1"]
command = ["x"]
env = {{ {env} }}
"""
    facts = {"a": HostFacts(environ=environ)}
    (task,) = make_plan(loads(text, "c", Path("/")), "r", facts).tasks
    assert task.env.get("CUDA_DEVICE_ORDER") == order


def test_gpus_that_a_job_has_chosen_are_no_others() -> None:
    """Given a job that has chosen GPUs, then other tasks get the rest, by number or by share."""
    helper = 'gpus = "0,2"\n[jobs.chief]\ntasks = ["tf1:9"]'
    split = shares(2, given=4, job=helper)
    assert (split["worker:0"], split["worker:1"], split["chief:0"]) == ("0", "2", "1,3")
    split = shares(2, given=4, job=f"{helper}\ngpus = 1")
    assert split["chief:0"] == "1"


def test_ranks_of_torch_count_among_chosen_gpus() -> None:
    """Each sees all of them, in their order, and takes that of its local rank."""
    env = 'framework = "torch"'
    split = shares(2, given=4, job='gpus = "3,1"', env=env)
    assert [split["worker:0"], split["worker:1"]] == ["3,1", "3,1"]


@pytest.mark.parametrize(
    ("framework", "tasks", "expected"),
    [
        ("jax", 2, "0.45"),
        ("jax", 3, "0.30"),
        ("none", 4, "0.22"),
        ("mpi-like", 2, "0.45"),
        ("torch", 2, None),
        ("tensorflow", 2, None),
        ("jax", 1, None),
    ],
)
def test_jax_is_told_its_share_of_a_gpu(framework: str, tasks: int, expected: str | None) -> None:
    """Together they may take nine tenths; a task alone has JAX's own default."""
    assert memory_of(framework, tasks) == [expected] * tasks


@pytest.mark.parametrize(
    "own",
    [
        "XLA_CLIENT_MEM_FRACTION",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "XLA_PYTHON_CLIENT_ALLOCATOR",
    ],
)
@pytest.mark.parametrize("on_host", [True, False])
def test_a_share_of_ones_own_is_left_alone(own: str, on_host: bool) -> None:
    """In the file or on the host: JAX refuses to start where both names of the fraction are set."""
    values = {own: "0.1"}
    expected = [None if on_host or own != "XLA_PYTHON_CLIENT_MEM_FRACTION" else "0.1"] * 2
    assert memory_of("jax", 2, {} if on_host else values, values if on_host else {}) == expected


def memory_of(
    framework: str,
    tasks: int,
    env: Mapping[str, str] = MappingProxyType({}),
    environ: Mapping[str, str] = MappingProxyType({}),
) -> list[str | None]:
    """JAX's share of tasks on a host with one GPU."""
    places = [f"a:{number}" for number in range(1, tasks + 1)]
    text = f"""\
[hosts.a]
ssh = "a"
[jobs.worker]
tasks = {places}
command = ["x"]
env = {{ {", ".join(f'{name} = "{value}"' for name, value in env.items())} }}
[run]
framework = "{framework}"
"""
    facts = {"a": HostFacts(gpus=1, environ=dict(environ))}
    plan = make_plan(loads(text, "c", Path("/")), "r", facts)
    return [task.env.get("XLA_PYTHON_CLIENT_MEM_FRACTION") for task in plan.tasks]


def test_shared_gpus_are_not_grabbed_whole() -> None:
    """Where workers must share a GPU, TensorFlow is told to take memory as it needs it."""
    text = (
        '[hosts.a]\nssh = "a"\ngpus = 1\n[jobs.worker]\ntasks = ["a:1", "a:2"]\ncommand = ["x"]\n'
    )
    for planned in make_plan(loads(text, "c", Path("/")), "r").tasks:
        assert planned.env["CUDA_VISIBLE_DEVICES"] == "0"
        assert planned.env["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


# GPUs of a run's hosts: what is said of them from what an agent tells.

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
        monkeypatch.setattr("launcher.process.gpu_watch.time.time", lambda: self.now)
        self.views = Views(RunView("r", "r", RunPhase.RUNNING, 0.0))
        self.views.take(HostView("h", "h", HostState.UP))
        state = task.pop("state", TaskState.RUNNING)
        self.views.take(TaskView(WORKER, "h", "h:1", state, attempt=1, **task))
        self.recorded: list[GpuSample] = []
        self.notes: list[str] = []
        views: Any = self.views
        core: Any = SimpleNamespace(
            data=self.views,
            gauges=Gauges(views),
            note=self.notes.append,
            bulkhead=self,
            spawn=lambda work, name: asyncio.run(work),
        )
        self.watch = GpuWatch(core, self.recorded.append)

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


# Xid errors in the kernel's log.

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
HERE = "0000:3b:00"


class Log:
    """A kernel's log, to which a test adds lines."""

    def __init__(self, *lines: str) -> None:
        self.text = "".join(f"{line}\n" for line in lines)

    def add(self, *lines: str) -> None:
        self.text += "".join(f"{line}\n" for line in lines)

    def lines(self) -> list[str]:
        return own_lines(self.text.encode())


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (f"<3>[ 1201.1] {LOST}", [79]),
        (f"<3>{LOST}", [79]),  # a kernel that writes no times
        ("<4>[7.1] NVRM: Xid (PCI:0000:3b:00.0): 48, An uncorrectable double bit error", [48]),
        ("<4>[7.1] NVRM: Xid (PCI:00000000:3B:00): 94, pid='<unknown>', Contained", [94]),
        ("<4>[7.1] NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, Contained", [94]),  # MIG
        ("<4>[7.1] NVRM: Xid (0000:3b:00): 79, an older driver", [79]),
        ("<4>[7.1] NVRM: Xid (PCI:0000:3b:00): 45, Ch 00000001 caused by previous Xid 149", [45]),
        ("<4>[7.1] nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 20034, Fatal", []),
        (f"<12>[1201.1] {LOST}", []),  # a program has written it
        (f"CONTINUED={LOST}", []),
        ("<3>[1.1] NVRM: Xid (PCI:): 79", []),
        ("<3>[1.1] NVRM: GPU at PCI:0000:3b:00: GPU-1, fallen off the bus", []),
        ("", []),
    ],
)
def test_xids_of_a_gpu(record: str, found: list[int]) -> None:
    """By its place on the bus, in whatever way that is written, and by the kernel's word alone."""
    log = Log("<6>[1.0] usb 1-1: new device", "<3>[1.0] NVRM: Xid (PCI:0000:5e:00): 79")
    errors = XidErrors(log.lines)
    assert errors.read() == {}
    log.add(record)
    assert errors.read() == ({HERE: found} if found else {})


def test_only_what_comes_from_the_first_look_on_is_told() -> None:
    """Given an old error, then it is no matter of this run; a new one is told from then on, once,
    also where the log has lost all that was there before."""
    log = Log(f"<3>[1.0] {LOST}")
    errors = XidErrors(log.lines)
    assert errors.read() == {}
    log.add(f"<3>[2.0] {LOST.replace('79', '48')}", f"<3>[2.0] {LOST}")
    assert errors.read() == errors.read() == {HERE: [48, 79]}
    log.text = f"<3>[9.0] {LOST.replace('79', '62')}\n"
    assert errors.read() == {HERE: [48, 79, 62]}


def test_a_log_that_was_empty_tells_what_comes() -> None:
    """Given no line at the first look, then each one that comes is new; a log that may not be read
    tells nothing."""
    log = Log()
    errors = XidErrors(log.lines)
    assert errors.read() == errors.read() == {}
    log.add(f"<3>[2.0] {LOST}")
    assert errors.read() == {HERE: [79]}


def test_the_log_of_this_machine_is_read_as_lines() -> None:
    """Whether or not it may be read."""
    assert all("\n" not in line for line in last_lines())
