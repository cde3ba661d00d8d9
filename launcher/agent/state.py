"""State file of an agent, for the next one: its tasks' ends and the known processes.

Written whenever it changes, by a thread: the disk may hang. With it a fresh agent can tell a
launcher that comes back how the run went on meanwhile, still has the logs to give, and knows
daemons that emptied their environment (`known_processes`: pid and start time name a process; the
boot id says of which boot).
"""

from __future__ import annotations

import json
import os
from typing import Tuple

from .drain import Log
from .fields import Annotated, FieldError, Pid, Port, RawText, Record, Size, row
from .folders import Folders, boot_id
from .log import log_line
from .messages import AgentExit, ExitReason, TaskFacts
from .process_tracker import ProcessTracker
from .tasks import Attempt, State

KnownProcess = Annotated[Tuple[int, int, str], row(Pid, Size, RawText)]

DIED = AgentExit(ExitReason.DIED, "the agent died")
"""How an agent ended that could not write it down."""


class SavedAttempt(Record):
    """An attempt; `start` is when its process was born."""

    facts: TaskFacts
    start: Size
    port: Port | None = None


class SavedState(Record):
    """Contents of the file. `known_processes` are pid, start time and task ("" for one of no task
    that is known)."""

    boot: RawText
    attempts: tuple[SavedAttempt, ...]
    known_processes: tuple[KnownProcess, ...]
    exit: AgentExit | None = None


def snapshot(
    attempts: list[Attempt], tracker: ProcessTracker, ended: AgentExit | None
) -> SavedState:
    """The state as it is now."""
    return SavedState(
        boot=boot_id(),
        attempts=tuple(
            SavedAttempt(attempt.facts(TaskFacts), attempt.start, attempt.port)
            for attempt in attempts
            if attempt.announced
        ),
        known_processes=tuple(
            (pid, start, task) for (pid, start), task in tracker.known_processes.items()
        ),
        exit=ended,
    )


def write(folders: Folders, state: SavedState) -> None:
    """Writes a state; a full disk leaves the old one in place. May hang with the disk."""
    new = folders.state + ".new"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(new, flags, 0o600), "w") as file:
            file.write(json.dumps(state.to_json()))  # `dump` would encode in Python, not in C
        os.rename(new, folders.state)
    except OSError as error:
        log_line(f"state not saved: {error}")


def read(path: str) -> SavedState:
    """Reads a state file.

    Raises:
        OSError, ValueError: it cannot be read, or is not what an agent writes.
    """
    with open(path) as file:
        try:
            return SavedState.from_json(json.load(file))
        except FieldError as error:
            raise ValueError(str(error)) from error


def load(folders: Folders, tracker: ProcessTracker) -> tuple[list[Attempt], AgentExit | None]:
    """Restores what an earlier agent left, and says how it ended; its tasks are over, for they
    ended with it."""
    try:
        state = read(folders.state)
    except FileNotFoundError:
        return [], None
    except (OSError, ValueError) as error:
        log_line(f"the last agent's state cannot be read: {type(error).__name__}: {error}")
        return [], DIED
    if state.boot == boot_id():
        for pid, start, task in state.known_processes:
            tracker.known_processes[(pid, start)] = task
    return _attempts(state, folders), state.exit or DIED


def _attempts(state: SavedState, folders: Folders) -> list[Attempt]:
    attempts = []
    logs: dict[str, Log] = {}
    for saved in state.attempts:
        facts = saved.facts
        task = str(facts.task)
        if task not in logs:
            logs[task] = _log(folders.log(task))
        attempt = Attempt(task, facts.attempt, logs[task], saved.port)
        attempt.pid, attempt.start = facts.pid, saved.start
        attempt.began_at = facts.began_at
        attempt.error = facts.error
        attempt.state = State.CLOSED
        attempt.status, attempt.signal = facts.status, facts.signal
        attempts.append(attempt)
    return attempts


def _log(path: str) -> Log:
    log = Log(path, 1 << 62)
    try:
        log.open()  # which finds its size
    except OSError as error:
        log_line(f"{path}: {error}")  # then it is an empty one
    log.close()
    return log
