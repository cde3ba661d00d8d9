"""A snapshot as one line of JSON, for screens in other processes.

Whole, so that such a screen shows whatever the launcher's own shows. Figures that are no number
(a loss of NaN) pass through: Python's JSON writes and reads them.
"""

from __future__ import annotations

import json
from dataclasses import replace

from pydantic import TypeAdapter

from ..ids import TaskId
from ..run.snapshot import Snapshot

_FORM = TypeAdapter(Snapshot)


def encode(snapshot: Snapshot) -> bytes:
    """The line, with its newline."""
    return json.dumps(_FORM.dump_python(snapshot, mode="json")).encode() + b"\n"


def decode(line: bytes) -> Snapshot:
    """Reads a line.

    Raises:
        ValueError: it is no snapshot, or one of another version of this program.
        KeyError: the same.
    """
    raw = json.loads(line)
    # Keys of a JSON object are strings; pydantic would want the tables that tasks are elsewhere.
    usages = [host.pop("usage") for host in raw["hosts"]]
    snapshot = _FORM.validate_python(raw)
    hosts = tuple(
        replace(host, usage={TaskId.parse(task): (cpu, rss) for task, (cpu, rss) in usage.items()})
        for host, usage in zip(snapshot.hosts, usages, strict=True)
    )
    return replace(snapshot, hosts=hosts)
