"""Recorded runs: made once in a run of the suite, by the worker that needs one first, and read by
all tests that only look at a run that has ended.

A test gets what the command has printed, and a copy of the run's files in its own home.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text, one_task
from tests.support.command import Up, write

GOOD = one_task("print('fine')")
"""One task that ends well."""
FAILED = cluster_text(
    {"worker": {"tasks": 2, "ready": "started"}},
    "two",
    command=["sh", "-c", "echo step 1 loss 0.5; exit {index}"],
    workdir="",
    success="all",
)
"""Two tasks, of which the second fails behind its last words."""


@dataclass(frozen=True)
class Recorded:
    """A run that has ended."""

    run_id: str
    code: int
    events: list[dict[str, Any]]
    """What `tfmux up --json` printed to stdout."""
    said: str
    """What it printed to stderr."""
    error: str = ""
    """Why there is none."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """All events of a kind."""
        return [event for event in self.events if event["event"] == kind]

    @property
    def folder(self) -> Path:
        """The copy of its folder."""
        return RunFolder.find(self.run_id).path


Recording = Callable[[str], Recorded]
"""What the fixture `recorded` is: the run of a cluster file."""


def record(shared: Path, text: str) -> Recorded:
    """Return the run of a cluster file, made now if it is the first that anybody asks for.

    Raises:
        AssertionError: it could not be made, now or when somebody else asked.
    """
    place = shared / hashlib.sha256(text.encode()).hexdigest()
    place.mkdir(parents=True, exist_ok=True)
    made = place / "made.json"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel takes it from a worker that dies
        if not made.exists():
            shutil.rmtree(place / "data", ignore_errors=True)
            half = place / "half.json"
            half.write_text(json.dumps(asdict(_made(place, text))))
            half.rename(made)
    run = Recorded(**json.loads(made.read_text()))
    assert not run.error, run.error
    shutil.copytree(place / "data", os.environ["XDG_DATA_HOME"], dirs_exist_ok=True)
    return run


def _made(place: Path, text: str) -> Recorded:
    data = {"XDG_DATA_HOME": str(place / "data")}
    with Up("up", str(write(place, text)), "--json", env=data) as up:
        try:
            code = up.wait()
            return Recorded(str(up.of("run")[0]["run"]), code, up.events, up.said)
        except (AssertionError, IndexError):
            return Recorded("", 0, [], "", f"the run was not recorded:\n{up.transcript()}")
