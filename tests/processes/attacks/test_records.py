"""Damaged files of runs, and odd things among them: counted and named; each command ends with an
answer, a kill asks every host, and no other run suffers."""

from __future__ import annotations

import copy
import errno
import json
import math
import os
import shutil
import signal
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.history.run_list import read_run
from launcher.history.stored import FinishedRun, StoredRun
from launcher.ids import TaskId
from launcher.paths import runs_home
from launcher.run import events as ev
from launcher.run.events import Event
from launcher.run.snapshot import HostReceipt, Metric, Receipt
from launcher.run.states import Outcome, RunPhase
from launcher.store.metrics import MetricsFile
from launcher.store.runs import RunFolder
from launcher.store.stream import LONGEST, Damage, encode, parse
from tests.support import command
from tests.support.budgets import examples, soak
from tests.support.cluster_texts import KEPT, cluster_text, one_task
from tests.support.command import Up, python_task, run, write
from tests.support.patience import wait_until
from tests.support.run_driver import CLUSTER, FACTS, RunDriver, held, kills, name, starts
from tests.support.streams import changes, end
from tests.testbed import proc
from tests.testbed.inprocess import SshServer
from tui.exits import Exit
from tui.main import main

RECORDS_CLUSTER = """
name = "odd"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["sleep", "1000"]
[start.ready]
worker = "started"
"""
BEGIN = {"time": 1000.0, "event": "run", "run": "odd", "name": "odd", "state": "connecting"}
BEGIN["started"] = 1000.0
NOTE = {"time": 1001.0, "event": "note", "number": 1, "note": "seen\x1b[2J"}
END = {**BEGIN, "event": "end", "state": "ended", "ended": 1002.0, "clean": True}
TASK = {"time": 1, "event": "task", "task": "worker:0", "host": "localhost", "address": "x:1"}
LINES: dict[str, bytes] = {
    "null": b"null\n",
    "number": b"123\n",
    "text": b'"a text"\n',
    "nobody": b'{"event": "host", "time": 1, "state": "up"}\n',
    "receipt": b'{"event": "receipt", "time": 1, "hosts": null}\n',
    "cut": b'{"event": "note\n',
    "nan": b'{"event": "note", "number": 2, "note": "x", "time": NaN}\n',
    "late": b'{"event": "note", "number": 2, "note": "x", "time": 1e300}\n',
    "unknown": b'{"event": "undone", "time": 1}\n',
    "task": b'{"event": "task", "time": 1, "task": 7.0}\n',
    "never started": json.dumps({**TASK, "state": "exited"}).encode() + b"\n",
    "no cause": json.dumps({**BEGIN, "state": "killing"}).encode() + b"\n",
    "no outcome": json.dumps({**BEGIN, "state": "ended"}).encode() + b"\n",
    "kind": b'{"event": ["run"], "time": 1}\n',
    "end": b'{"event": "end", "state": "ended"}\n',
    "binary": bytes(range(11, 256)) * 4 + b"\n",
    "deep": b"[" * 100_000 + b"\n",
    "deep text": b'{"event": ' + b"[" * 900 + b"]" * 900 + b"}\n",
    "digits": b'{"event": "note", "number": 2, "time": ' + b"9" * 50_000 + b"}\n",
}


def odd_run(name: str, stream: bytes | None, text: str = RECORDS_CLUSTER) -> RunFolder:
    """The folder of a run with such a stream."""
    path = runs_home() / f"odd-20261120-183002-{name.replace(' ', '-')}"
    path.mkdir(parents=True)
    (path / "cluster.toml").write_text(text)
    folder = RunFolder(path)
    if stream is not None:
        folder.events.write_bytes(stream)
    return folder


def odd_entries() -> set[str]:
    """Things among the runs that are no runs to be looked at; their names."""
    home = runs_home()
    (home / "a-file").write_text("no folder")
    (home / "dangling").symlink_to("nowhere")
    (home / "circle").symlink_to("circle")
    (home / "no-cluster-file").mkdir()
    (home / "no-cluster-file/events.jsonl").write_text("null\n")
    (home / "folder-for-file/cluster.toml").mkdir(parents=True)
    odd_run("toml", b"null\n", "name = [[[")
    return {
        "a-file",
        "dangling",
        "circle",
        "no-cluster-file",
        "folder-for-file",
        "odd-20261120-183002-toml",
    }


def damage_of(folder: RunFolder) -> Damage:
    """What could not be read of a run."""
    return StoredRun(folder).damage


@pytest.mark.parametrize("name", LINES)
def test_one_odd_line_is_counted_and_the_others_are_read(name: str) -> None:
    """Given a stream with an odd line between two good ones, when it is read, then one record
    counts as damaged, the others are known, and the run is not taken for ended."""
    whole = [json.dumps(BEGIN).encode() + b"\n", LINES[name], json.dumps(NOTE).encode() + b"\n"]
    folder = odd_run(name, b"".join(whole))
    stored = StoredRun(folder)
    assert stored.damage.records == 1
    assert stored.snapshot().notes == ("seen",)
    assert not stored.over and not stored.complete
    told = read_run(folder)
    assert (told.summary.started, told.summary.time) == (1000.0, 1001.0)
    assert not told.over and told.problem == f"1 record of {folder.run_id} could not be read"


def test_a_line_of_400_mb_costs_no_more_memory_than_the_longest_record() -> None:
    """Given a stream with a line of 400 MiB, when it is read, then one record counts as damaged,
    the others are known, and the memory is that of two or three of the longest records."""
    folder = odd_run("long", json.dumps(BEGIN).encode() + b"\n")
    with folder.events.open("r+b") as file:
        file.seek(400 << 20)
        file.write(b"\n" + json.dumps(NOTE).encode() + b"\n")
    tracemalloc.start()
    try:
        stored = StoredRun(folder)
        told = read_run(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stored.damage.records == 1
    assert stored.snapshot().notes == ("seen",)
    assert told.summary.time == 1001.0
    assert peak < 2.5 * LONGEST


def stream_of(*records: dict[str, Any]) -> bytes:
    """The bytes of a stream."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_what_follows_the_end_of_a_run_is_a_run_that_goes_on() -> None:
    """Given a stream with an end record, when anything stands behind that, even half a record, then
    the run is not over: another launcher has taken it up."""
    ended = odd_run("ended", stream_of(BEGIN, END))
    assert StoredRun(ended).complete and read_run(ended).over
    for label, more in (("note", stream_of(NOTE)), ("half", b'{"time": 10'), ("odd", b"null\n")):
        folder = odd_run(f"more-{label}", stream_of(BEGIN, END) + more)
        assert not StoredRun(folder).complete and not read_run(folder).over


def test_a_last_line_that_a_crash_has_cut_is_no_damage() -> None:
    """Given a stream whose last line has no end, when it is read, then no record counts as
    damaged."""
    folder = odd_run("crash", stream_of(BEGIN, NOTE) + b'{"time": 1, "eve')
    assert not StoredRun(folder).damage


def test_metrics_are_read_as_they_grow() -> None:
    """Given a file of metrics with odd rows and half a row, when it is read, then the odd rows are
    counted; when the other half is there, then that row is read, and it is the latest."""
    folder = odd_run("metrics", stream_of(BEGIN))
    task = TaskId("worker", 0)
    metrics = MetricsFile(folder.metrics)
    assert not metrics.read()
    row = b'{"time": %s, "event": "metric", "task": "worker:0", "host": "h", "values": {%s}}\n'
    rows = [row % (b"1000.0", b'"step": 1.0, "loss": "NaN"'), b"null\n", row % (b"1e300", b"")]
    rows += [row % (b'"x"', b""), row[:20]]
    folder.metrics.write_bytes(b"".join(rows))
    assert metrics.read() and metrics.damage.records == 3
    assert list(metrics.series(task).points.steps) == [1.0]
    last = row.replace(b'"h",', b'"h", "rate": 2.5,') % (b"1001.0", b'"step": 3.0')
    with folder.metrics.open("r+b") as file:
        file.seek(-20, os.SEEK_END)
        file.write(last)
    assert metrics.read() and not metrics.read()
    figures = metrics.latest[task].figures(None)
    assert [figures[name] for name in ("step", "rate", "last_output")] == [3, 2.5, 1001.0]
    assert StoredRun(folder).snapshot().step == 3


def test_a_disk_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a disk that gives an Input/output error, when the events of a run or the folder of all
    runs are read, then the damage names that error."""
    folder = odd_run("disk", stream_of(BEGIN))

    def broken(*arguments: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("launcher.store.stream._open_regular", broken)
        assert "Input/output error" in damage_of(folder).reason
        assert "Input/output error" in read_run(folder).problem
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", broken)
        assert [one.reason for one in RunFolder.scan()[1]] == ["Input/output error"]


def test_a_run_without_an_end_ended_with_its_last_record() -> None:
    """Given a stream without an end, when the run is shown as finished, then it ended with its last
    record or metric, although a copy has touched its files today."""
    folder = odd_run("copied", stream_of(BEGIN, NOTE))
    (folder.path / "worker-0.log").write_text("copied today")
    seen = FinishedRun(StoredRun(folder)).snapshot()
    assert (seen.started, seen.ended, seen.state) == (1000.0, 1001.0, RunPhase.ENDED)
    row = Metric(TaskId("worker", 0), "localhost", {"step": 1.0}, time=1002.5)
    folder.metrics.write_bytes(encode(row))
    assert FinishedRun(StoredRun(folder)).snapshot().ended == 1002.5


def test_a_run_that_is_just_being_made_is_no_damage() -> None:
    """Given an empty folder and a run without events, when runs are listed, then the run is found,
    the folder is not, and neither counts as unreadable."""
    (runs_home() / "empty").mkdir(parents=True)
    folder = odd_run("new", None)
    found, unreadable = RunFolder.scan()
    assert ([one.run_id for one in found], unreadable) == ([folder.run_id], [])
    assert not damage_of(folder)


def test_ps_logs_and_kill_all_beside_odd_runs(tmp_path: Path) -> None:
    """Given a living run beside odd ones, when `ps`, `logs` and `kill --all` are called, then it is
    listed, shown and killed, what could not be read is named, and the kill exits with 4."""
    odd = [odd_run(name, line) for name, line in LINES.items()]
    names = odd_entries()
    with Up("up", str(write(tmp_path, RECORDS_CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        listed = run("ps")
        assert listed.returncode == 0, listed.stderr
        assert up.run_id in listed.stdout
        for name in names:
            assert f"tfmux: {name} could not be read: " in listed.stderr
        for command in (["logs", up.run_id], ["logs", odd[0].run_id]):
            shown = run(*command)
            assert (shown.returncode, shown.stderr) == (0, "")
        killed = run("kill", "--all")
        assert killed.returncode == 4, killed.stderr
        assert f"run {up.run_id}:" in killed.stdout
        assert "no process is left" in killed.stdout
        for name in names:
            assert f"tfmux: {name} could not be read: " in killed.stderr
        assert "Traceback" not in listed.stderr + killed.stderr
        assert up.wait() == 130, up.transcript()


def test_no_active_runs_is_said_only_when_all_were_asked() -> None:
    """Given no run, when `ps` and `kill --all` are called, then they say so; beside something that
    cannot be read they name that instead, and the kill exits with 4."""
    for words in (["ps"], ["kill", "--all"]):
        asked = run(*words)
        assert (asked.returncode, asked.stderr) == (0, "tfmux: no active runs\n")
    runs_home().mkdir(parents=True)
    (runs_home() / "circle").symlink_to("circle")
    for words, code in ((["ps"], 0), (["kill", "--all"], 4)):
        asked = run(*words)
        assert asked.returncode == code
        assert asked.stderr.startswith("tfmux: circle could not be read: ")
        assert "no active runs" not in asked.stderr


def test_kill_of_a_run_whose_cluster_file_is_broken_asks_its_launcher(tmp_path: Path) -> None:
    """Given a living run whose stored cluster file is broken, when `tfmux kill` is called, then the
    run's launcher, which still knows the hosts, ends it, and the receipt is shown."""
    with Up("up", str(write(tmp_path, RECORDS_CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        RunFolder.find(up.run_id).cluster_file.write_text("name = [[[")
        killed = run("kill", up.run_id)
        assert killed.returncode == 0, killed.stderr
        assert "no process is left" in killed.stdout
        assert up.wait() == 130, up.transcript()


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _nowhere(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


def _empty(path: Path) -> None:
    path.write_text("")


def _said_to_be_over(path: Path) -> None:
    receipt = {"time": 1001.0, "event": "receipt", "hosts": [], "clean": True}
    ended = {**BEGIN, "state": "ended", "ended": 1001.0, "outcome": "killed", "exit_code": 130}
    path.write_bytes(stream_of(BEGIN, receipt, ended))


@pytest.mark.parametrize(
    "make",
    [_pipe, _circle, _said_to_be_over, soak(_folder), soak(_nowhere), soak(_empty)],
    ids=lambda f: f.__name__,
)
def test_kill_needs_no_stream(make: Any, ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a dead launcher and a stream that is no file, empty or wrongly ended, when `tfmux kill`
    is called, then each host of the cluster file is asked, and the task there ends."""
    script = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(1000)"
    text = cluster_text(
        {"worker": "far"},
        "orphan",
        ssh_server.host_toml("far", sys.executable),
        command=python_task(script),
        workdir="",
        on_disconnect="keep",
        grace=1,
        start={"ready": {"worker": "started"}},
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        pid = int(up.log("worker:0", "pid ")["text"].split()[1])
        folder = RunFolder.find(up.run_id)
        up.kill_launcher()
    assert Path(f"/proc/{pid}").exists()
    folder.events.unlink()
    make(folder.events)
    killed = run("kill", folder.run_id)
    assert killed.returncode == 0, killed.stdout + killed.stderr
    assert "no process is left, 1 host confirmed" in killed.stdout
    assert not Path(f"/proc/{pid}").exists()


def test_metrics_of_any_name_leave_the_record_alone(tmp_path: Path) -> None:
    """Given metrics called as the record's own keys, when a task prints them, then they stand in
    `values`, the record's keys are its own, and the run is read without damage."""
    names = ("time", "event", "task", "host", "values", "rate", "run", "state", "step")
    pattern = " ".join(f"{name}=(?P<{name}>[0-9]+)" for name in names)
    line = " ".join(f"{name}={number}" for number, name in enumerate(names))
    text = RECORDS_CLUSTER.replace('["sleep", "1000"]', json.dumps(["echo", line]))
    text += f"[metrics]\npattern = '{pattern}'\n"
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 0, up.transcript()
    (record,) = up.of("metric")
    assert record["values"] == {name: float(number) for number, name in enumerate(names)}
    assert (record["task"], record["host"], record["step"]) == ("worker:0", "localhost", 8)
    assert record["time"] > 1e9 and "rate" not in record and "state" not in record
    folder = RunFolder.find(up.run_id)
    assert (damage_of(folder).records, read_run(folder).summary.step) == (0, 8)
    assert StoredRun(folder).snapshot().tasks[0].metrics == record["values"]
    assert run("ps").stderr == "tfmux: no active runs\n"


def test_figures_that_are_no_numbers_are_text_in_a_line() -> None:
    """Given metrics that are infinite or no number, when they are stored, then they are text, as
    JSON has no such numbers; when they are read, then they are numbers again."""
    values = {"step": 3.0, "loss": float("-inf"), "nan": float("nan"), "acc": 0.5}
    line = encode(Metric(TaskId("worker", 0), "tf1", values, 2.0, 3.0, time=1000.0))
    record = json.loads(line)
    assert record["values"] == {"step": 3.0, "loss": "-Infinity", "nan": "NaN", "acc": 0.5}
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    again = parse(line)
    assert isinstance(again, Metric) and again.values["loss"] == float("-inf")
    assert math.isnan(again.values["nan"])


def test_damage_names_records_and_the_reason_each_where_there_is_one() -> None:
    """Given the damage of a run, when it is described, then lost records and a reason are named,
    each where there is one; without damage nothing is said."""
    assert Damage().describe("r") == ""
    assert Damage(2).describe("r") == "2 records of r could not be read"
    assert Damage(0, "EIO").describe("r") == "the events of r could not be read: EIO"
    told = "1 record of r could not be read; the events of r could not be read: EIO"
    assert Damage(1, "EIO").describe("r") == told


def test_a_dangling_link_is_no_stream_that_is_not_there_yet() -> None:
    """Given a run without a stream, when that is read, then there is no damage, as the run has just
    been made; when the stream is a link to nowhere, then the damage says so."""
    folder = odd_run("link", None)
    assert not damage_of(folder)
    folder.events.symlink_to("nowhere")
    assert damage_of(folder).reason == "a dangling symbolic link"


def whole_stream(doubt: str = "") -> list[bytes]:
    """The records of a run on two hosts that was killed; the last one is its end. With a doubt the
    second host has not confirmed that nothing is left."""
    driver = RunDriver()
    lines: list[bytes] = []

    def feed(kind: type[Event], *words: object) -> None:
        driver.feed(kind, *words)
        lines.extend(changes(driver.run, driver.now))

    feed(ev.Begin)
    for host in ("a", "b"):
        feed(ev.HostUp, host)
    feed(ev.HostsChecked, FACTS)
    for host in ("a", "b"):
        feed(ev.Staged, host)
    tasks = {"ps:0": "a", "worker:0": "a", "worker:1": "b", "worker:2": "b"}
    for task in tasks:
        feed(ev.TaskStarted, name(task), 1, 100)
        feed(ev.TaskReady, name(task), 1)
    feed(ev.KillAll)
    feed(ev.ReceiptReceived, HostReceipt("a", confirmed=True), None)
    feed(ev.ReceiptReceived, HostReceipt("b", confirmed=not doubt, doubt=doubt), None)
    return [*lines, end(driver.run, driver.now)]


def run_folder(stream: bytes, text: str = CLUSTER) -> RunFolder:
    """The folder of a run with such a stream."""
    path = runs_home() / "t-20261120-183002-abcd"
    path.mkdir(parents=True, exist_ok=True)
    (path / "cluster.toml").write_text(text)
    folder = RunFolder(path)
    folder.events.write_bytes(stream)
    return folder


def prefixes() -> Iterator[bytes]:
    """The stream cut after each of its records, and in the middle of each."""
    before = b""
    for line in whole_stream():
        yield before
        yield before + line[: len(line) // 2]
        before += line


def damaged(lines: list[bytes]) -> Iterator[bytes]:
    """The stream with each of its lines damaged in four ways, one at a time."""
    for at, line in enumerate(lines):
        for bad in (b"\n", b"\x00" * 40 + b"\n", line[:30] + b"\n", b'{"event": 7}\n'):
            yield b"".join([*lines[:at], bad, *lines[at + 1 :]])


def test_whoever_takes_a_run_without_an_end_record_asks_every_host() -> None:
    """Given a stream cut behind or within any of its records, when the run is taken up, then it is
    over only if each host has confirmed; if not, then a kill asks all hosts and waits for each."""
    for stream in prefixes():
        stored = StoredRun(run_folder(stream))
        assert not stored.complete, stream[-200:]
        seen = stored.snapshot()
        confirmed = {one.host for one in seen.receipt.hosts} if seen.receipt else set()
        ended = seen.state is RunPhase.ENDED and confirmed == {"a", "b"}
        assert stored.over == ended, stream[-200:]
        assert read_run(stored.folder).over == ended, stream[-200:]
        if stored.over:
            continue  # only its end record is missing
        machine = stored.run
        asked = kills(machine.handle(ev.Attached(2000.0, stored.complete)))
        asked += kills(machine.handle(ev.KillAll(2001.0)))
        assert {host for host, tasks, _ in asked if tasks is None} == {"a", "b"}, stream[-200:]
        machine.handle(ev.HostUp(2002.0, "a", (held("ps:0"),)))
        machine.handle(ev.ReceiptReceived(2003.0, HostReceipt("a", confirmed=True), None))
        assert machine.snapshot().state is RunPhase.KILLING, stream[-200:]
        machine.handle(ev.ReceiptReceived(2004.0, HostReceipt("b", confirmed=True), None))
        assert machine.snapshot().state is RunPhase.ENDED and machine.snapshot().clean


def test_a_whole_stream_says_that_its_run_is_over() -> None:
    """Given a stream with its end record and nothing lost before it, when it is read, then the run
    is over, and nobody needs to be asked."""
    stored = StoredRun(run_folder(b"".join(whole_stream())))
    assert stored.over and stored.complete


def test_an_empty_receipt_of_a_run_that_started_tasks_is_not_clean() -> None:
    """Given an ended run that has started tasks, and a receipt without a host, when it is read,
    then the run is not over: nobody has confirmed anything."""
    driver = RunDriver()
    driver.running()
    views = driver.run.data
    views.add(Receipt((), begun=True))
    ways = {"outcome": Outcome.KILLED, "exit_code": 130, "ended": 2000.0}
    views.update_run(state=RunPhase.ENDED, **ways)
    lines = [*changes(driver.run, 2000.0), end(driver.run, 2000.0)]
    stored = StoredRun(run_folder(b"".join(lines)))
    assert not stored.over and not read_run(stored.folder).over


def test_any_damaged_line_leads_to_a_true_answer() -> None:
    """Given the stream of a run that goes on, when the disk damages one of its lines, then the run
    is not over, no task is started again, and a kill asks all hosts."""
    whole = whole_stream()
    living = whole[: next(n for n, line in enumerate(whole) if b'"killing"' in line)]
    for stream in damaged(living):
        stored = StoredRun(run_folder(stream))
        assert not stored.over and not stored.complete
        assert not read_run(stored.folder).over
        machine = stored.run
        machine.handle(ev.Attached(2000.0, stored.complete))
        machine.validate()
        kept = (held("ps:0"), held("worker:0"))
        out = machine.handle(ev.HostUp(2001.0, "a", kept))
        out += machine.handle(ev.HostUp(2002.0, "b", (held("worker:1"), held("worker:2"))))
        assert not starts(out)
        machine.validate()
        out = machine.handle(ev.KillAll(2003.0))
        assert {host for host, tasks, _ in kills(out) if tasks is None} == {"a", "b"}


def test_no_damaged_line_hides_a_host_that_has_not_confirmed() -> None:
    """Given the stream of a killed run of which one host has a doubt, when the disk damages one of
    its lines, then the run is not over, and a kill asks that host again."""
    whole = whole_stream(doubt="its agent was killed")
    assert not StoredRun(run_folder(b"".join(whole))).over
    for stream in damaged(whole):
        stored = StoredRun(run_folder(stream))
        assert not stored.over and not read_run(stored.folder).over
        machine = stored.run
        out = machine.handle(ev.Attached(2000.0, stored.complete))
        out += machine.handle(ev.KillAll(2001.0))
        assert "b" in {host for host, tasks, _ in kills(out) if tasks is None}


@pytest.mark.parametrize("kept", ["begin", "half a record", "nothing"])
def test_a_kill_by_a_stream_without_its_tail_ends_the_tasks(tmp_path: Path, kept: str) -> None:
    """Given a task that lives on without its launcher, and a stream that has lost its tail, when
    `tfmux kill` is called, then the host is in the receipt, and no task is left."""
    with Up("up", str(write(tmp_path, KEPT)), "--json") as up:
        up.state("worker:0", "ready")
        run_id = up.run_id
        up.kill_launcher()
    assert living(run_id)
    events = RunFolder.find(run_id).events
    lines = events.read_bytes().splitlines(keepends=True)
    left = {"begin": lines[0], "half a record": lines[0] + lines[1][:20], "nothing": b""}
    events.write_bytes(left[kept])
    try:
        done = run("kill", run_id)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no process is left, 1 host confirmed" in done.stdout, "the host is in the receipt"
        wait_until(lambda: not living(run_id), "no task is left")
    finally:
        for process in proc.scan(having=run_id):
            proc.signal_process(process, signal.SIGKILL)


def living(run_id: str) -> list[int]:
    """Processes of the run's tasks."""
    return [one.pid for one in proc.scan(having=run_id) if "/worker:0/" in (one.tag or "")]


PROGRAM = "for step in range(300): print('step', step, 'loss', 1 / (step + 1), flush=True)"
READERS = [
    ["ps"],
    ["ps", "--json"],
    ["logs", "RUN"],
    ["logs", "RUN", "worker:0", "--raw"],
    ["stacks", "RUN"],
    ["collect", "RUN"],
    ["rm", "RUN"],
]
"""Commands that start no launcher process; the last one may delete the folder."""
LAUNCHER = {"name": "other", "id": "other", "boot": "other", "pids": 1, "time": 1.0}
"""Another machine: none of its tasks can be asked for here, and none is waited for."""

_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["localhost", "worker:7", "ended", "up", "\x1b[2J", "/", "..", "\ud800", "\0"]),
    st.lists(st.integers(), max_size=2),
    st.just({"a": {"b": [None]}}),
)
FuzzDamage = Callable[[Path], None]


def _gone(path: Path) -> None:
    path.unlink()


def _fuzz_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fuzz_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _linked(target: str) -> FuzzDamage:
    def damage(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return damage


def _zeros(path: Path) -> None:
    os.truncate(path, path.stat().st_size + (1 << 22))


@st.composite
def _cut(draw: st.DrawFn) -> FuzzDamage:
    share = draw(st.floats(0, 1))
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


@st.composite
def _bytes(draw: st.DrawFn) -> FuzzDamage:
    """Bytes somewhere in the file, or instead of it."""
    junk, share, whole = draw(st.binary(max_size=60)), draw(st.floats(0, 1)), draw(st.booleans())

    def damage(path: Path) -> None:
        data = path.read_bytes()
        at = int(len(data) * share)
        path.write_bytes(junk if whole else data[:at] + junk + data[at + len(junk) :])

    return damage


@st.composite
def _fields(draw: st.DrawFn) -> FuzzDamage:
    """A record with a field exchanged for an odd value, at any depth, or without it; the records
    behind it may be gone, or come twice."""
    at, steps = draw(st.floats(0, 1)), draw(st.lists(st.floats(0, 0.999), min_size=1, max_size=5))
    odd, drops, rest = draw(_ODD), draw(st.booleans()), draw(st.sampled_from([0, 1, 1, 2]))

    def damage(path: Path) -> None:
        lines = path.read_bytes().splitlines() or [b"{}"]
        number = int(at * (len(lines) - 1))
        try:
            record = json.loads(lines[number])
        except ValueError:
            record = {"event": odd}
        _change(record, steps, odd, drops=drops)
        lines[number] = json.dumps(record).encode()
        path.write_bytes(b"\n".join([*lines[: number + 1], *lines[number + 1 :] * rest, b""]))

    return damage


def _change(record: Any, steps: list[float], odd: object, *, drops: bool) -> None:
    place: Any = record
    for step in steps:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        if not keys:
            return
        key = keys[int(step * len(keys))]
        inner = place[key]
        if step == steps[-1] or not isinstance(inner, dict | list) or not inner:
            if drops:
                del place[key]
            else:
                place[key] = copy.deepcopy(odd)
            return
        place = inner


_DAMAGES = st.one_of(
    _fields(),
    _fields(),
    _bytes(),
    _cut(),
    st.sampled_from([_gone, _fuzz_folder, _fuzz_pipe, _zeros]),
    st.sampled_from(["nowhere", ".", "/dev/zero", "cluster.toml", "events.jsonl"]).map(_linked),
)
_PLAN = st.lists(st.tuples(st.floats(0, 0.999), _DAMAGES), min_size=1, max_size=3)
"""Files by their place in the list of all, and what happens to each."""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """The folder of a run as it was before its end."""
    with Up("up", str(write(tmp_path, one_task(PROGRAM))), "--json") as up:
        assert up.wait() == 0
        run = runs_home() / up.run_id
    template = tmp_path / "template"
    shutil.move(run, template)
    launched = json.loads((template / "launch.json").read_text())
    (template / "launch.json").write_text(json.dumps({**launched, "machine": LAUNCHER}))
    events = template / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"killing"' in line)
    (template / "whole.jsonl").write_bytes(b"".join(lines))
    events.write_bytes(b"".join(lines[:at]))
    for file in ("forgotten", "freed"):
        (template / file).write_text("localhost\n")
    return template


def fuzz_damaged(template: Path, ended: bool, plan: list[tuple[float, FuzzDamage]]) -> Path:
    """A copy of that folder, damaged."""
    run = runs_home() / "one-20261128-183002-7f3a"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(template, run)
    whole = run / "whole.jsonl"
    if ended:
        whole.replace(run / "events.jsonl")
    else:
        whole.unlink()
        (run / "forgotten").unlink()
    names = sorted(path.name for path in run.iterdir() if path.is_file())
    for place, damage in plan:
        path = run / names[int(place * len(names))]
        if path.is_file() and not path.is_symlink():
            damage(path)
    return run


def test_no_command_that_looks_ends_in_a_traceback(
    template: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever is damaged, of a run that has ended or not."""

    @examples(15)
    @given(ended=st.booleans(), plan=_PLAN)
    def look(ended: bool, plan: list[tuple[float, FuzzDamage]]) -> None:
        run = fuzz_damaged(template, ended, plan)
        for words in READERS:
            code = main([run.name if word == "RUN" else word for word in words])
            said = capfd.readouterr()
            assert code in {Exit.SUCCESS, Exit.FAILED, Exit.USAGE, Exit.UNCONFIRMED}, (words, said)
            assert "Traceback" not in said.err and "Error:" not in said.err, (words, said)

    look()


def test_no_kill_ends_in_a_traceback(template: Path) -> None:
    """Whatever is damaged, of a run that another machine has launched."""

    @examples(3)
    @given(plan=_PLAN)
    def kill(plan: list[tuple[float, FuzzDamage]]) -> None:
        run = fuzz_damaged(template, False, plan)
        done = command.run("kill", run.name)
        assert done.returncode in {Exit.SUCCESS, Exit.USAGE, Exit.UNCONFIRMED}, done
        log = run / "launcher.log"
        text = log.read_text(errors="replace") if log.is_file() and not log.is_symlink() else ""
        assert "Traceback" not in done.stderr + done.stdout + text.strip("\0"), (done, text)

    kill()
