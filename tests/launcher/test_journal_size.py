"""Journal of the largest runs: whatever is written can be read again, or is said to be missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.agent.wire import MOST_SURVIVORS
from launcher.hosts.frames import Welcome
from launcher.ids import TaskId
from launcher.paths import runs_home
from launcher.plan import HostFacts
from launcher.run import events as ev
from launcher.run.snapshot import (
    HostReceipt,
    HostView,
    Receipt,
    Snapshot,
    Survivor,
    TaskView,
)
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from launcher.session.history import summary
from launcher.store.journal import read_final, read_journal
from launcher.store.json_lines import last_line
from launcher.store.run_writer import RunWriter
from launcher.store.runs import RunFolder
from tests.journals import check_journal
from tests.patience import wait_until

BEGIN = ev.Begin(1000.0)
END = ev.KillAll(1001.0)


def write(*records: Callable[[RunWriter], None]) -> tuple[RunFolder, RunWriter]:
    """The folder of a run with these records, and their writer."""
    path = runs_home() / "large-20261120-183002-7f3a"
    path.mkdir(parents=True)
    folder = RunFolder(path)
    folder.cluster_file.write_text(
        '[jobs.worker]\ntasks = ["localhost:auto"]\ncommand = ["true"]\n'
    )
    errors: list[BaseException] = []
    writer = RunWriter(folder, errors.append)
    for record in records:
        record(writer)
    wait_until(lambda: writer.idle, "all is written")
    writer.close()
    assert not errors and not writer.unwritten
    return folder, writer


def event(one: ev.Event) -> Callable[[RunWriter], None]:
    """Writes an event."""
    return lambda writer: writer.journal(one)


def ended(tasks: int) -> Snapshot:
    """A run of so many hosts with a task each, at its end."""
    names = [f"node-{number:05}.cluster.example.org" for number in range(tasks)]
    return Snapshot(
        "large-20261120-183002-7f3a",
        "large",
        RunPhase.ENDED,
        tuple(
            TaskView(TaskId("worker", n), name, f"{name}:2222", TaskState.EXITED, pid=4121)
            for n, name in enumerate(names)
        ),
        tuple(HostView(name, f"me@{name}:22", HostState.CLOSED) for name in names),
        1000.0,
        1001.0,
        receipt=Receipt(tuple(HostReceipt(name, 3, confirmed=True) for name in names)),
        outcome=Outcome.SUCCESS,
        exit_code=0,
    )


@pytest.mark.large
def test_the_end_of_a_run_of_8000_hosts_is_read_without_the_rest() -> None:
    """Lists take it from the last record, and the run is over for them."""
    final = ended(8000)
    folder, _ = write(event(BEGIN), lambda writer: writer.final(final))
    assert folder.journal.stat().st_size > 7 << 20
    assert read_final(folder.journal) == final
    told = summary(folder)
    assert told.over and told.tasks == 8000 and not told.problem
    journal = read_journal(folder.journal)
    assert journal.complete and journal.final == final


@pytest.mark.large
def test_an_end_that_another_record_follows_is_not_the_end() -> None:
    """As where the disk did not take the last record again, with what was noted after the end."""
    folder, _ = write(event(BEGIN), lambda writer: writer.final(ended(2500)), event(END))
    assert read_final(folder.journal) is None
    check_journal(folder)


@pytest.mark.parametrize("before", [b"", b"\n", b"first\n"])
def test_the_last_line_is_read_up_to_the_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    """Neither one byte less nor one more."""
    monkeypatch.setattr("launcher.store.json_lines.LONGEST", 300_000)
    path = tmp_path / "lines"
    for size, read in ((1, 1), (100_000, 100_000), (300_000, 300_000), (300_001, 0), (10**7, 0)):
        for end in (b"", b"\n"):
            path.write_bytes(before + b"x" * size + end)
            assert len(last_line(path)) == read


def test_facts_of_hosts_with_the_longest_variables_are_read() -> None:
    """The `auto` ports of all hosts are there, whatever one host has in its environment."""
    port = {TaskId("worker", 0): 4711}
    facts = {f"h{number}": HostFacts(home="/h", ports=port) for number in range(4000)}
    facts["odd"] = HostFacts(environ={"PYTHONPATH": "/x:" * (1 << 19)})
    checked = ev.HostsChecked(1000.5, facts)
    folder, _ = write(event(BEGIN), event(checked), event(END))
    journal = read_journal(folder.journal)
    assert not journal.damage and journal.events == [BEGIN, checked, END]


@pytest.mark.large
def test_an_end_with_the_most_survivors_is_read() -> None:
    """On a hundred hosts, each process with a long command line."""
    listed = tuple(Survivor(pid, "python3 " + "x" * 1900, "D") for pid in range(MOST_SURVIVORS))
    hosts = tuple(HostReceipt(f"h{n}", 4000, listed, unlisted=3900) for n in range(100))
    final = replace(ended(100), receipt=Receipt(hosts))
    folder, _ = write(event(BEGIN), lambda writer: writer.final(final))
    assert read_final(folder.journal) == final and not summary(folder).over


def test_a_record_that_could_not_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something shorter stands in its place, so that the journal does not pass for complete."""
    monkeypatch.setattr("launcher.store.json_lines.LONGEST", 1000)
    monkeypatch.setattr("launcher.store.run_writer.LONGEST", 1000)
    note = {"event": "run", "note": "x" * 1001}
    fits: dict[str, Any] = {"event": "run", "note": "x" * 960}
    folder, writer = write(
        event(BEGIN),
        event(ev.NoteAdded(1000.5, "x" * 1001)),
        event(END),
        lambda writer: writer.public(note),
        lambda writer: writer.public(fits),
    )
    lines = folder.journal.read_bytes().splitlines()
    assert len(lines) == 3 and all(len(line) <= 1000 for line in lines)
    journal = read_journal(folder.journal)
    assert journal.events == [BEGIN, END] and journal.damage.records == 1
    assert not journal.complete
    assert list(folder.records()) == [fits]
    told = "a record of 1.0 KB (run) was left out: it is too long to be read again"
    assert writer.omitted == f"events.jsonl: {told}"


def test_a_welcome_has_no_variable_that_no_program_can_have() -> None:
    """Linux gives a program 128 KiB at most of one."""
    body = {
        "version": 4,
        "pid": 1,
        "home": "/h",
        "stage": "/s",
        "environ": {"PYTHONPATH": "x" * (1 << 17)},
        "tasks": [],
    }
    assert Welcome.read(json.dumps(body).encode()).environ == body["environ"]
    body["environ"] = {"PYTHONPATH": "x" * ((1 << 17) + 1)}
    with pytest.raises(ValueError, match=r"environ\.PYTHONPATH: .* at most 131072 characters"):
        Welcome.read(json.dumps(body).encode())
