"""Bodies of frames as an agent sends them, for the simulated hosts of tests and benchmarks, and
the rules that an agent gets."""

from __future__ import annotations

from typing import Any

from launcher.agent import wire
from launcher.hosts.frames import Rules

Body = dict[str, Any]
RULES = Rules(lease=60.0, grace=1.0, on_disconnect="stop")


def welcome(**fields: Any) -> Body:
    """The body of a WELCOME."""
    return {
        "version": wire.VERSION,
        "pid": 7,
        "home": "/home/u",
        "stage": "/home/u/.local/state/tfmux/run/stage",
        "environ": {},
        "tasks": [],
        **fields,
    }


def facts(task: str, **fields: Any) -> Body:
    """What an agent tells of an attempt."""
    return {
        "task": task,
        "attempt": 1,
        "pid": 100,
        "error": "",
        "ended": False,
        "status": None,
        "signal": None,
        "listening": False,
        "size": 0,
        "began_at": 0,
        "eof": False,
        "lost": 0,
        "cut": 0,
        **fields,
    }


def ended(task: str, **fields: Any) -> Body:
    """What an agent tells of an attempt that has succeeded."""
    return facts(task, **{"ended": True, "status": 0, **fields})
