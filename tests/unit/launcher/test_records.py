"""Records of runs on disk: written whole, read again, and not believed where they lie."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.read import loads
from launcher.errors import ClusterFileError, TfmuxError
from launcher.history.following import EventFiles
from launcher.history.kept_results import hosts_with_results
from launcher.history.run_list import active_runs, read_run
from launcher.history.stored import FinishedRun, StoredRun
from launcher.ids import TaskId, new_run_id
from launcher.paths import runs_home
from launcher.run import events as ev
from launcher.run.instructions import KillHost
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import HostView, Metric, Note, RunView
from launcher.run.states import HostState, RunPhase
from launcher.run.views import Views
from launcher.store.disk import Files
from launcher.store.disk import Path as Named
from launcher.store.launch_machine import Machine
from launcher.store.run_writer import RunWriter
from launcher.store.runs import RunFolder
from launcher.store.stream import LineReader, PublicEvent, encode, plain, read_stream
from tests.support.cluster_texts import cluster_text
from tests.support.patience import PATIENCE, wait_until
from tests.support.streams import changes
from tui.outcome import report

# Active runs as the stream of a supervised run tells them.

CLUSTER = cluster_text(
    {"worker": "tf1:2222 tf2:2222"},
    hosts={"tf1": {"ssh": "tf1"}, "tf2": {"ssh": "tf2"}},
    command=["x"],
)
BEGIN = ev.Begin(1000.0)
UP = ev.HostUp(1001.0, "tf1")
REFUSED = ev.HostRefused(1002.0, "tf2", "no login")
LOST = ev.HostLost(1003.0, "tf1", "no route", 2e3)


@pytest.mark.parametrize(
    ("events", "agents", "unreachable"),
    [
        ([BEGIN], [], []),
        ([BEGIN, UP], ["tf1"], []),
        ([BEGIN, REFUSED, UP], ["tf1"], []),
        ([BEGIN, UP, LOST], [], ["tf1"]),
    ],
    ids=["begun", "up", "refused", "lost"],
)
def test_an_agent_is_there_when_it_has_greeted(
    events: list[ev.Event], agents: list[str], unreachable: list[str]
) -> None:
    """A host that is still being connected to, or that has refused the login, has none."""
    path = runs_home() / new_run_id("seen")  # its lock is this machine's, for all tests
    path.mkdir(parents=True)
    (path / "cluster.toml").write_text(CLUSTER)
    machine = RunStateMachine(loads(CLUSTER, "seen", path), path.name)
    stream = b""
    for event in events:  # as a launcher does: what has changed is recorded after each
        machine.handle(event)
        stream += b"".join(changes(machine, 1004.0))
    RunFolder(path).events.write_bytes(stream)
    lock = RunFolder(path).take_lock()
    assert lock is not None
    try:
        (run,) = active_runs().runs
    finally:
        os.close(lock)
    assert [host.name for host in run.hosts] == ["tf1", "tf2"]
    assert [host.name for host in run.hosts if host.agent] == agents
    assert [host.name for host in run.hosts if host.unreachable] == unreachable


# Folders of runs: made whole, and what is left of a launch that never began.

TEXT = 'name = "x"\n[jobs.worker]\ntasks = ["localhost:1"]\n[run]\ncommand = ["true"]\n'


def names() -> list[str]:
    return sorted(os.listdir(runs_home()))


def half(name: str, files: dict[str, str], *, old: bool) -> Path:
    """A folder of a run with these files, which was made some time ago."""
    path = runs_home() / name
    path.mkdir(parents=True)
    for file, text in files.items():
        (path / file).write_text(text)
    if old:
        os.utime(path, times=(time.time() - 3600,) * 2)
    return path


NEVER_BEGAN: list[dict[str, str]] = [
    {},
    {"cluster.toml": ""},
    {"cluster.toml": TEXT[:4], "events.jsonl": "", "worker-0.log": ""},
    {"cluster.toml": TEXT[:20], "origin": "/", "launcher.lock": "", "launcher.log": "x"},
    {"origin": "/"},
]


@pytest.mark.parametrize("files", NEVER_BEGAN)
def test_a_launch_that_never_began_is_passed_over_and_removed(files: dict[str, str]) -> None:
    """A kill in between, or a full disk, has left it: no list names it. One that may be being
    written just now stays."""
    half("new", files, old=False)
    half("old", files, old=True)
    assert RunFolder.scan() == ([], [])
    assert names() == ["new"]


@pytest.mark.parametrize(
    "files",
    [
        {"cluster.toml": TEXT},
        {"cluster.toml": f"\ufeff{TEXT}", "events.jsonl": ""},
        {"cluster.toml": TEXT[:4], "events.jsonl": "{}\n"},
        {"cluster.toml": TEXT[:4], "worker-0.log": "began"},
        {"notes.txt": ""},
    ],
)
def test_what_may_have_begun_or_is_not_ours_stays(files: dict[str, str]) -> None:
    """A whole file, a record, a log: tasks may live on hosts."""
    half("old", files, old=True)
    found, unreadable = RunFolder.scan()
    assert len(found) + len(unreadable) == 1 and names() == ["old"]


def test_a_launcher_at_work_keeps_its_folder() -> None:
    """Whatever its disk has lost."""
    path = half(f"old-{os.getpid()}", {"cluster.toml": ""}, old=False)
    lock = RunFolder(path).take_lock()
    assert lock is not None
    os.utime(path, times=(time.time() - 3600,) * 2)
    RunFolder.scan()
    assert names() == [path.name]
    os.close(lock)


def test_a_folder_appears_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails in between leaves nothing; a kill leaves what no list takes for a run."""
    cluster = loads(TEXT, "x", Path("/"))
    seen: list[tuple[list[RunFolder], list[object]]] = []
    write = Path.write_text

    def look(path: Path, *words: str, **options: str) -> int:
        written = write(path, *words, **options)
        seen.append(RunFolder.scan())  # type: ignore[arg-type]
        return written

    monkeypatch.setattr(Path, "write_text", look)
    folder = RunFolder.create("x-1", TEXT, cluster)
    assert seen == [([], [])] * 2 and names() == ["x-1"]
    assert folder.origin == Path("/") and folder.cluster_file.read_text() == TEXT

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TfmuxError, match="No space left"):
        RunFolder.create("x-2", TEXT, cluster)
    assert names() == ["x-1"]


@pytest.mark.parametrize("key", ["workdir", "command", "name"])
def test_bytes_that_are_not_utf8_are_refused_in_a_text(key: str) -> None:
    """Python reads them from command lines as surrogates; no copy of the file could hold them."""
    text = TEXT.replace("[run]", '[run]\nworkdir = "work"').replace("true", "command")
    text = text.replace('name = "x"', 'name = "name"')
    text = text.replace({"workdir": '"work', "command": '"comm', "name": '"na'}[key], '"d\udce9')
    with pytest.raises(ClusterFileError, match=r":[1-9]: .*not UTF-8"):
        loads(text, "file", Path("/"))


# Records that contradict another file of their run's folder: read as damaged, and believed by
# nobody.

TWO_HOSTS = cluster_text(
    {"ps": "tf1:2222", "worker": "tf1:2223 tf2:2222"},
    hosts={"tf1": {"ssh": "tf1.invalid"}, "tf2": {"ssh": "tf2.invalid"}},
    command=["x"],
)
RUN_ID = "lies-20261120-183002-7f3a"
RUN = {"event": "run", "run": RUN_ID, "name": "lies", "started": 1000.0, "stage": 0}
ENDED = {"outcome": "success", "exit_code": 0, "ended": 1002.0, "state": "ended"}
WORKER = {"event": "task", "task": "worker:0", "host": "tf1", "address": "tf1:2223"}
HOST = {"event": "host", "destination": "x", "state": "up", "contacted": True}
TRUTH: list[dict[str, Any]] = [
    {**RUN, "state": "running"},
    {**HOST, "host": "tf1"},
    {**HOST, "host": "tf2"},
    {**WORKER, "state": "running", "attempt": 1, "pid": 7},
]
FAILURE = {"task": "worker:0", "host": "tf1", "how": "exit 1", "time": 1001.0}
VERDICT = {"tasks": ["worker:7"], "kind": "named", "sure": True, "text": "worker:7 is guilty"}
LIES: dict[str, dict[str, Any]] = {
    "host": {**HOST, "host": "tf9"},
    "usage": {**HOST, "host": "tf1", "usage": {"worker:7": [1.0, 1]}},
    "usage of another host": {**HOST, "host": "tf2", "usage": {"worker:0": [1.0, 1]}},
    "task": {**WORKER, "task": "worker:7", "state": "running", "attempt": 1},
    "job": {**WORKER, "task": "evaluator:0", "state": "running", "attempt": 1},
    "host of a task": {**WORKER, "host": "tf2", "state": "running", "attempt": 1},
    "unknown host of a task": {**WORKER, "host": "tf9", "state": "running", "attempt": 1},
    "facts": {"event": "facts", "host": "tf9", "facts": {"home": "/root"}},
    "ports": {"event": "facts", "host": "tf1", "facts": {"ports": {"worker:7": 47}}},
    "ports of another host": {"event": "facts", "host": "tf1", "facts": {"ports": {"worker:1": 4}}},
    "receipt": {"event": "receipt", "begun": True, "hosts": [{"host": "tf9", "confirmed": True}]},
    "failed task": {**RUN, "state": "killing", "first_failure": {**FAILURE, "task": "worker:7"}},
    "failed host": {**RUN, "state": "killing", "first_failure": {**FAILURE, "host": "tf2"}},
    "other failures": {
        **RUN,
        "state": "killing",
        "first_failure": {**FAILURE, "others": ["worker:7"]},
    },
    "restart": {**RUN, "state": "running", "restart_cause": {**FAILURE, "task": "ps:3"}},
    "verdict": {**RUN, "state": "running", "verdict": VERDICT},
    "results": {**RUN, "state": "running", "results_kept": [{"host": "tf9", "files": 1}]},
    "another run": {**RUN, **ENDED, "run": "other-20261120-183002-7f3a"},
    "end of another run": {
        **RUN,
        **ENDED,
        "event": "end",
        "run": "other-20261120-183002-7f3a",
        "clean": True,
        "hosts": ["tf1", "tf2"],
    },
    "end": {**RUN, **ENDED, "event": "end", "clean": True, "hosts": ["tf9"]},
}


def stored(*records: dict[str, Any], text: str = TWO_HOSTS) -> RunFolder:
    """The folder of a run with such a stream."""
    path = runs_home() / RUN_ID
    path.mkdir(parents=True, exist_ok=True)
    (path / "cluster.toml").write_text(text)
    (path / "launch.json").write_text(json.dumps({"run": RUN_ID}))
    lines = [json.dumps({"time": 1001.0, **record}) for record in records]
    (path / "events.jsonl").write_text("\n".join([*lines, ""]))
    return RunFolder(path)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_damage_and_the_kill_goes_to_the_hosts_of_the_cluster_file(lie: str) -> None:
    """Whether it is the last word or not."""
    for records in ([*TRUTH, LIES[lie]], [TRUTH[0], LIES[lie], *TRUTH[1:]]):
        folder = stored(*records)
        run = StoredRun(folder)
        assert run.damage.records == 1
        assert {view.name for view in run.snapshot().hosts} == {"tf1", "tf2"}
        assert run.snapshot().run_id == RUN_ID and not run.over
        assert lie == "end" or not read_run(folder).over  # a list reads no cluster file
        report(FinishedRun(run).snapshot(), folder.path)
        instructions = run.run.handle(ev.Attached(2000.0, run.complete))
        instructions += run.run.handle(ev.KillAll(2000.0))
        killed = {one.host for one in instructions if isinstance(one, KillHost)}
        assert killed <= {"tf1", "tf2"} and set(run.data.contacted_hosts) == {"tf1", "tf2"}
        assert {host.name for host in hosts_with_results(run)} <= {"tf1", "tf2"}


def test_the_truth_is_no_damage() -> None:
    """With hosts that Slurm has yet to name, and names with ranges, too."""
    assert not StoredRun(stored(*TRUTH)).damage
    text = 'name = "lies"\n[slurm]\nnodes = 2\ntime = "01:00:00"\n'
    text += '[jobs.worker]\ntasks = ["node0:auto", "node1:auto"]\ncommand = ["x"]\n'
    waits = {**TRUTH[0], "state": "queued"}
    hosts = [{**HOST, "host": f"node{n}", "contacted": False} for n in (0, 1)]
    assert not StoredRun(stored(waits, *hosts, text=text)).damage


# The machine that has launched a run, and whether that is this one.

HERE = Machine.this()
DAY = 86_400.0
OTHERS = {
    "another boot of another machine": replace(HERE, boot="x", name="other", ident="other"),
    "another machine of the same image": replace(HERE, boot="x", name="other"),
    "another machine of the same name": replace(HERE, boot="x", ident="other"),
    "another container of this machine": replace(HERE, pids=HERE.pids + 1),
    "another machine of the same name and image": replace(HERE, boot="x"),
    "nobody knows which": Machine(),
}
DAMAGED = [{**HERE.record(), **lie} for lie in ({"boot": 7}, {"pids": "x"}, {"time": None})]


@pytest.mark.parametrize("name", OTHERS)
def test_another_machine_is_not_this_one(name: str) -> None:
    """One that was up when the run was launched has not booted since, whatever it is called."""
    assert not OTHERS[name].is_here


def test_this_machine_is_this_one() -> None:
    """Also by another host name, and after a boot."""
    assert Machine.parse(json.loads(json.dumps(HERE.record()))) == HERE
    assert HERE.is_here and replace(HERE, name="renamed").is_here
    assert replace(HERE, boot="the boot before", pids=7, time=HERE.time - 10_000 * DAY).is_here


@pytest.mark.parametrize(
    "values",
    [None, 7, "name", [], {}, {"name": "x"}, *DAMAGED],
    ids=range(6 + len(DAMAGED)),
)
def test_damage_is_an_unknown_machine(values: object) -> None:
    assert not Machine.parse(values).is_here


# Writing a run's records, to a disk that hangs, is full, or takes a part.

COUNT = 2_000


class OddDisk(Files):
    """Hangs until it is let go, says once that it is full, and takes some bytes at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.goes_on = threading.Event()
        self.writes = 0

    def write(self, path: Named, data: bytes | memoryview, offset: int = -1) -> int:
        self.asked.set()
        assert self.goes_on.wait(PATIENCE)
        self.writes += 1
        if self.writes == 2:
            raise OSError(errno.ENOSPC, "full")
        return super().write(path, data[:5000], offset)


def test_records_are_written_in_their_order_and_many_at_a_time(tmp_path: Path) -> None:
    """Whatever comes meanwhile; each file has its own."""
    folder, disk, errors = RunFolder(tmp_path), OddDisk(), list[BaseException]()
    writer = RunWriter(folder, errors.append, disk)
    writer.put(Note("begun", 1, 1000.0))
    assert disk.asked.wait(PATIENCE)
    for number in range(COUNT):
        writer.put(Note(f"note {number}", number + 2, 1001.0 + number))
        writer.put(Metric(TaskId("worker", 0), "h", {"step": float(number)}, time=1.0 + number))
    assert writer.unwritten == 2 * COUNT + 1 and not writer.idle
    disk.goes_on.set()
    wait_until(lambda: writer.idle, "all is written")
    assert not errors and writer.unwritten == 0 and not writer.trouble
    events, metrics = LineReader(folder.events), LineReader(folder.metrics)
    notes = [one.text for one in events.records() if isinstance(one, Note)]
    assert notes == ["begun", *(f"note {number}" for number in range(COUNT))]
    steps = [one.values["step"] for one in metrics.records() if isinstance(one, Metric)]
    assert steps == [float(number) for number in range(COUNT)]
    assert not events.damage and not metrics.damage
    size = folder.events.stat().st_size + folder.metrics.stat().st_size
    assert disk.writes < size / 5000 + 10
    writer.close()


def test_the_first_contact_with_a_host_outlives_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next launcher asks it; what changes of it later is no reason to wait for the disk."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    folder, errors = RunFolder(tmp_path), list[BaseException]()
    writer = RunWriter(folder, errors.append)
    calls = []
    for state, contacted in ((HostState.CONNECTING, False), (HostState.UP, True)):
        writer.put(HostView("h", "h", state, contacted=contacted, time=1.0))
        wait_until(lambda: writer.idle, "it is written")
        calls.append(len(synced))
    writer.put(HostView("h", "h", HostState.LOST, contacted=True, time=2.0))
    wait_until(lambda: writer.idle, "it is written")
    assert calls == [0, 1] and len(synced) == 1 and not errors
    assert read_stream(folder.events, "r").views.hosts["h"].state is HostState.LOST
    writer.close()


def test_a_record_that_is_too_long_is_told_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.store.run_writer.LONGEST", 250)
    folder, errors = RunFolder(tmp_path), list[BaseException]()
    writer = RunWriter(folder, errors.append)
    for number, text in enumerate(("short", "x" * 300, "short")):
        writer.put(Note(text, number + 1, 1.0))
    wait_until(lambda: writer.idle, "all is written")
    assert [note.number for note in read_stream(folder.events, "r").views.notes] == [1, 3]
    assert "a record of 3" in writer.omitted and "(note) was left out" in writer.omitted
    assert not errors
    writer.close()


def test_what_a_full_disk_never_takes_is_counted(tmp_path: Path) -> None:
    """The launcher says at its end how many records are missing."""

    class Full(Files):
        def write(self, path: Named, data: bytes | memoryview, offset: int = -1) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    writer = RunWriter(RunFolder(tmp_path), list[BaseException]().append, Full())
    for number in range(1000):
        writer.put(Note("a note", number + 1, 1000.0 + number))
    wait_until(lambda: writer.trouble, "it is said")
    assert writer.trouble == "No space left on device" and writer.unwritten == 1000
    writer.close()
    wait_until(lambda: writer.idle, "it gives up")
    assert writer.unwritten == 1000


# Events as programs get them: from a run's files, or its launcher where the disk hangs.


class Client:
    """What a launcher has said."""

    def __init__(self) -> None:
        self.views = Views(RunView("r", "r", RunPhase.RUNNING, 1.0))

    def records(self, since: float) -> list[PublicEvent]:
        found = [one for one in self.views.records() if one.time > since]
        return [plain(record) for record in sorted(found, key=lambda one: one.time)]


def test_events_of_both_files_come_once_and_in_their_order(tmp_path: Path) -> None:
    """A line that is being written waits; what is damaged is left out."""
    folder, client = RunFolder(tmp_path), Client()
    files = EventFiles(folder, from_end=False)
    assert files.read(client.records) == []
    first, second = Note("one", 1, 1.0), Note("two", 2, 3.0)
    metric = Metric(TaskId("worker", 0), "h", {"step": 1.0}, time=2.0)
    half = encode(second)
    folder.events.write_bytes(encode(first) + b"null\n{}\n" + half[:20])
    folder.metrics.write_bytes(encode(metric))
    assert files.read(client.records) == [plain(first), plain(metric)]
    with folder.events.open("ab") as file:
        file.write(half[20:])
    assert files.read(client.records) == [plain(second)] and files.read(client.records) == []


def test_notes_come_from_the_launcher_where_the_disk_takes_nothing(tmp_path: Path) -> None:
    """Given a file that lacks two notes and a state, when the first note is two seconds old, then
    that note comes; at the end come the other two; when the disk answers again, then nothing comes
    twice."""
    folder, client = RunFolder(tmp_path), Client()
    files = EventFiles(folder, from_end=False)
    now = time.time()
    client.views.update_run(stage=1)
    client.views.note("late")
    client.views.pop_changed(now - 3.0)
    client.views.note("soon")
    client.views.pop_changed(now + 60.0)
    late, soon = (plain(note) for note in client.views.notes)
    assert files.read(client.records) == [late] and files.read(client.records) == []
    assert files.read(client.records, last=True) == [plain(client.views.run), soon]
    folder.events.write_bytes(b"".join(map(encode, client.views.notes)))
    assert files.read(client.records, last=True) == []


def test_states_come_from_the_file_alone_while_the_run_goes_on(tmp_path: Path) -> None:
    """Given a state that the launcher has told and the disk has not taken, when the disk takes the
    state and a later one, then both come, in their order, and nothing more at the end."""
    folder, client = RunFolder(tmp_path), Client()
    files = EventFiles(folder, from_end=False)
    lines = []
    for stage in (1, 2):
        client.views.update_run(stage=stage)
        lines += client.views.pop_changed(float(stage))
        assert files.read(client.records) == []
    folder.events.write_bytes(b"".join(map(encode, lines)))
    assert files.read(client.records) == list(map(plain, lines))
    assert files.read(client.records, last=True) == []


def test_a_run_that_was_there_before_begins_where_it_stands(tmp_path: Path) -> None:
    folder, client = RunFolder(tmp_path), Client()
    client.views.note("before")
    client.views.pop_changed(time.time() - 10.0)
    folder.events.write_bytes(b"".join(map(encode, client.views.notes)))
    files = EventFiles(folder, from_end=True)
    assert files.read(client.records, last=True) == []
