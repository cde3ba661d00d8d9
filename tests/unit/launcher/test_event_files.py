"""Events as programs get them: from a run's files, or its launcher where the disk hangs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from launcher.ids import TaskId
from launcher.run.snapshot import Metric, Note, RunView
from launcher.run.states import RunPhase
from launcher.run.views import Views
from launcher.session.following import EventFiles
from launcher.store.runs import RunFolder
from launcher.store.stream import PublicEvent, encode, plain


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
    as_client: Any = client
    files = EventFiles(folder, from_end=False)
    assert files.read(as_client) == []
    first, second = Note("one", 1, 1.0), Note("two", 2, 3.0)
    metric = Metric(TaskId("worker", 0), "h", {"step": 1.0}, time=2.0)
    half = encode(second)
    folder.events.write_bytes(encode(first) + b"null\n{}\n" + half[:20])
    folder.metrics.write_bytes(encode(metric))
    assert files.read(as_client) == [plain(first), plain(metric)]
    with folder.events.open("ab") as file:
        file.write(half[20:])
    assert files.read(as_client) == [plain(second)] and files.read(as_client) == []


def test_notes_come_from_the_launcher_where_the_disk_takes_nothing(tmp_path: Path) -> None:
    """Given a file that lacks two notes and a state, when the first note is two seconds old, then
    that note comes; at the end come the other two; when the disk answers again, then nothing comes
    twice."""
    folder, client = RunFolder(tmp_path), Client()
    as_client: Any = client
    files = EventFiles(folder, from_end=False)
    now = time.time()
    client.views.update_run(stage=1)
    client.views.note("late")
    client.views.pop_changed(now - 3.0)
    client.views.note("soon")
    client.views.pop_changed(now + 60.0)
    late, soon = (plain(note) for note in client.views.notes)
    assert files.read(as_client) == [late] and files.read(as_client) == []
    assert files.read(as_client, last=True) == [plain(client.views.run), soon]
    folder.events.write_bytes(b"".join(map(encode, client.views.notes)))
    assert files.read(as_client, last=True) == []


def test_states_come_from_the_file_alone_while_the_run_goes_on(tmp_path: Path) -> None:
    """Given a state that the launcher has told and the disk has not taken, when the disk takes the
    state and a later one, then both come, in their order, and nothing more at the end."""
    folder, client = RunFolder(tmp_path), Client()
    as_client: Any = client
    files = EventFiles(folder, from_end=False)
    lines = []
    for stage in (1, 2):
        client.views.update_run(stage=stage)
        lines += client.views.pop_changed(float(stage))
        assert files.read(as_client) == []
    folder.events.write_bytes(b"".join(map(encode, lines)))
    assert files.read(as_client) == list(map(plain, lines))
    assert files.read(as_client, last=True) == []


def test_a_run_that_was_there_before_begins_where_it_stands(tmp_path: Path) -> None:
    folder, client = RunFolder(tmp_path), Client()
    as_client: Any = client
    client.views.note("before")
    client.views.pop_changed(time.time() - 10.0)
    folder.events.write_bytes(b"".join(map(encode, client.views.notes)))
    files = EventFiles(folder, from_end=True)
    assert files.read(as_client, last=True) == []
