"""What an agent leaves on disk for the next one: its tasks' ends and the roster.

Written whenever it changes, by a thread: the disk may hang. With it a fresh agent can tell a
launcher that comes back how the run went on meanwhile, still has the logs to give, and knows
daemons that emptied their environment (`roster`: pid and start time name a process; the boot id
says of which boot).
"""

from __future__ import annotations

import json
import os
from typing import Any

from .census import Census
from .drain import Log
from .folders import Folders
from .notes import say
from .tasks import Attempt


def boot_id() -> str:
    """The kernel's name for this boot."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def collect(attempts: list[Attempt], census: Census, ended: str) -> dict[str, Any]:
    """The state as it is now."""
    return {
        "boot": boot_id(),
        "ended": ended,
        "attempts": [
            {**attempt.facts(), "start": attempt.start, "port": attempt.port}
            for attempt in attempts
            if attempt.announced
        ],
        "roster": [[pid, start, who] for (pid, start), who in census.roster.items()],
    }


def write(folders: Folders, body: dict[str, Any]) -> None:
    """Writes a state; a full disk leaves the old one in place. May hang with the disk."""
    new = folders.state + ".new"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(new, flags, 0o600), "w") as file:
            json.dump(body, file)
        os.rename(new, folders.state)
    except OSError as error:
        say(f"state not saved: {error}")


def load(folders: Folders, census: Census) -> tuple[list[Attempt], str]:
    """Takes up what an earlier agent left; its tasks are over, for they ended with it."""
    try:
        with open(folders.state) as file:
            body: dict[str, Any] = json.load(file)
        return _attempts(body, folders, census), body.get("ended") or "the agent died"
    except FileNotFoundError:
        return [], ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        say(f"the last agent's state cannot be read: {type(error).__name__}: {error}")
        return [], "the agent died"


def _attempts(body: dict[str, Any], folders: Folders, census: Census) -> list[Attempt]:
    if body.get("boot") == boot_id():
        census.roster.update({(pid, start): who for pid, start, who in body["roster"]})
    attempts = []
    logs: dict[str, Log] = {}
    for facts in body["attempts"]:
        task = facts["task"]
        if task not in logs:
            logs[task] = _log(folders.log(task))
        attempt = Attempt(task, facts["attempt"], logs[task], facts["port"])
        attempt.pid, attempt.start = facts["pid"], facts["start"]
        attempt.began_at = facts["began_at"]
        attempt.error = facts["error"]
        attempt.ended = attempt.eof = attempt.announced = True
        attempt.status, attempt.signal = facts["status"], facts["signal"]
        attempts.append(attempt)
    return attempts


def _log(path: str) -> Log:
    log = Log(path, 1 << 62)
    try:
        log.open()
    except OSError as error:
        say(f"{path}: {error}")  # then it is an empty one
    return log
