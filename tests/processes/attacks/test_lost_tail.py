"""A stream that lost its tail to a power failure or a disk that hung: a kill asks every host."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.run import events as ev
from launcher.run.events import Event
from launcher.run.snapshot import HostReceipt, Receipt
from launcher.run.states import Outcome, RunPhase
from launcher.session.run_list import read_run
from launcher.session.stored import StoredRun
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import KEPT
from tests.support.command import Up, run, write
from tests.support.patience import wait_until
from tests.support.run_driver import CLUSTER, FACTS, RunDriver, held, kills, name, starts
from tests.support.streams import changes, end
from tests.testbed import proc


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
