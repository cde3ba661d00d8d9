"""Journal of a run: every event of its state machine, one JSON object a line.

A record has `launcher` (who wrote it), `event` (its kind) and the event's fields. Handling the
events again gives the run back: that is how it is attached to, listed and shown afterwards. Each
launcher that takes the run up begins with `attached`, which says in `after` how many events it
has read: whatever an earlier launcher writes later (it was frozen, or its disk was) does not
count. The last record of a run that has ended is `final`, its snapshot, so that lists need only
the end of the file; a journal without it may have lost any number of records. `omitted` stands in
the place of a record that was too long to be written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cluster.model import ClusterModel
from ..errors import TfmuxError
from ..run import events as ev
from ..run.run import RunStateMachine
from ..run.snapshot import Snapshot
from ..run.states import InvalidTransition
from . import snapshot_codec
from .json_lines import Damage, form, last_line, printable_values, stored_records

_FINAL, _OMITTED = "final", "omitted"
_UNSHOWN = ("facts",)
"""Fields with texts that go back to hosts as they are, and are never shown."""
_LATER = 1 << 53


def _kind(event: type[ev.Event]) -> str:
    """`HostUp` is written as `host_up`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event.__name__).lower()


_KINDS: dict[str, Any] = {_kind(one): one for one in ev.Event.__subclasses__()}


def encode(event: ev.Event) -> dict[str, Any]:
    """The event as a record, but for its launcher."""
    kind: Any = type(event)
    fields = form(kind).dump_python(event, mode="json")
    return {"event": _kind(kind), **fields}


def decode(record: dict[str, Any]) -> ev.Event:
    """Reads a record; its texts are made printable.

    Raises:
        ValueError: it is no event that this version knows.
        RecursionError: its values are nested too deeply.
    """
    kind = record.get("event")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"no event is called {kind!r}")
    shown = {key: value for key, value in record.items() if key not in _UNSHOWN}
    kept = {key: value for key, value in record.items() if key in _UNSHOWN}
    event: ev.Event = form(_KINDS[kind]).validate_python(printable_values(shown) | kept)
    return event


def as_stored(event: ev.Event) -> ev.Event:
    """The event as the journal will give it back: texts are printable.

    Raises:
        ValueError: a value is out of its range.
    """
    return decode(encode(event))


def final_record(snapshot: Snapshot) -> dict[str, Any]:
    """The last record of a run that has ended, but for its launcher."""
    return {"event": _FINAL, "snapshot": snapshot_codec.encode(snapshot)}


def omitted_record(record: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The record that stands in the place of one that is too long to be read: who reads the
    journal counts it as damage."""
    named = {"launcher": record["launcher"], "event": _OMITTED}
    return {**named, "kind": record["event"], "bytes": size}


@dataclass
class Journal:
    """Contents of a journal file, as far as it can be read."""

    events: list[ev.Event] = field(default_factory=list)
    launcher: str = ""
    """Launcher that began the last of its lives."""
    final: Snapshot | None = None
    """The run at its end, when no event has followed: nobody has taken it up, nothing was noted."""
    last: float = 0.0
    """Time of the last event."""
    damage: Damage = field(default_factory=Damage)

    @property
    def complete(self) -> bool:
        """The record of the run's end is there, and nothing before it is missing. Without it,
        nobody can see how many records a power failure or a hanging disk has taken."""
        return self.final is not None and not self.damage

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Reads records; those of kinds that this version does not know count as damage."""
        for record in records:
            try:
                self._add(record)
            except (ValueError, RecursionError):
                self.damage.records += 1

    def _add(self, record: dict[str, Any]) -> None:
        launcher = record.get("launcher")
        if not isinstance(launcher, str):
            raise ValueError("nobody has written it")
        if record.get("event") == _FINAL:
            final = snapshot_codec.decode(record.get("snapshot"))
            if launcher == self.launcher or final.clean:
                self.final = final
            return
        event = decode(record)
        if isinstance(event, ev.Begin | ev.Attached):
            self.launcher = launcher
            after = record.get("after", _LATER)
            if isinstance(after, int) and after >= 0:
                del self.events[after:]
        elif not self.launcher:
            self.launcher = launcher
            self.damage.records += 1  # its beginning is missing
        if launcher == self.launcher:
            self.events.append(event)
            self.final = None  # one that told this event, too, may not have come to the disk
            self.last = event.time

    def replay(self, cluster: ClusterModel, run_id: str) -> RunStateMachine:
        """The run that has handled these events; one that it cannot handle counts as damage."""
        run = RunStateMachine(cluster, run_id)
        for event in self.events:
            try:
                run.handle(event)
            except (InvalidTransition, KeyError, ValueError, TfmuxError):
                self.damage.records += 1
        return run


def read_journal(path: Path) -> Journal:
    """Reads a whole journal; one that is not there is empty."""
    journal = Journal()
    journal.add(stored_records(path, journal.damage))
    return journal


def read_begin(path: Path) -> ev.Begin | None:
    """The launch at the beginning of a journal; None where another record is the first one."""
    with suppress(ValueError, RecursionError):
        for record in stored_records(path, Damage()):
            event = decode(record)
            return event if isinstance(event, ev.Begin) else None
    return None


def read_final(path: Path) -> Snapshot | None:
    """The snapshot at the end of a journal; None where the last record is another: the run goes
    on, or its last launcher could not write all."""
    try:
        line = last_line(path)
    except OSError:
        return None  # reading the whole journal will say why
    with suppress(ValueError, RecursionError):
        record = json.loads(line)
        if (
            isinstance(record, dict)
            and record.get("event") == _FINAL
            and isinstance(record.get("launcher"), str)
        ):
            return snapshot_codec.decode(record.get("snapshot"))
    return None
