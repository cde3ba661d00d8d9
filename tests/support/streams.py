"""Streams of runs: read, written as a launcher does it, and checked at their end."""

from __future__ import annotations

import json
from typing import Any

from launcher.run.machine import RunStateMachine
from launcher.store.runs import RunFolder
from launcher.store.stream import Summary, encode, read_end, read_stream


def records(folder: RunFolder) -> list[dict[str, Any]]:
    """The records of a run and its metrics, as programs read them: the last line may be half of
    one, which is being written, or for which a disk had no room."""
    files = [path for path in (folder.events, folder.metrics) if path.exists()]
    whole = [path.read_text().rpartition("\n")[0] for path in files]
    return [json.loads(line) for text in whole for line in text.splitlines() if line]


def changes(run: RunStateMachine, now: float) -> list[bytes]:
    """The lines of what has changed of a run since they were asked for last."""
    return [encode(record) for record in run.data.pop_changed(now)]


def end(run: RunStateMachine, now: float) -> bytes:
    """The end of a run's stream."""
    return encode(Summary.of(run.snapshot(), now))


def check_stream(folder: RunFolder) -> None:
    """The stream has an end that the records before it lead to, when it has come to one."""
    stream = read_stream(folder.events, folder.run_id)
    assert stream.end == read_end(folder.events, folder.run_id)
    if stream.end is not None:
        assert Summary.of(stream.views.snapshot(), 0.0) == stream.end
