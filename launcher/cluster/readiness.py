"""Readiness of a task: when the next stage of the start may begin."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PortListens:
    """Ready when the task's own process tree listens on its port."""


@dataclass(frozen=True)
class ProcessStarted:
    """Ready as soon as the process has been started."""


@dataclass(frozen=True)
class LogMatches:
    """Ready when a line of the log matches the regular expression (over bytes)."""

    pattern: str


@dataclass(frozen=True)
class After:
    """Ready a number of seconds after the start."""

    seconds: float


AUTO_SECONDS = 5.0


@dataclass(frozen=True)
class Auto:
    """Ready when it listens on its port, has printed a metric line, or has lived for
    `AUTO_SECONDS`: for programs of which nothing is known."""


@dataclass(frozen=True)
class Finished:
    """Ready when it has exited with status 0. For `prepare` lines only, not in cluster files."""


Readiness = PortListens | ProcessStarted | LogMatches | After | Auto | Finished


def ready_value(ready: Readiness) -> str | dict[str, str | float]:
    """Returns a readiness as a cluster file's value."""
    match ready:
        case PortListens():
            return "listening"
        case ProcessStarted():
            return "started"
        case Auto():
            return "auto"
        case LogMatches(regex):
            return {"log": regex}
        case After(delay):
            return {"after": delay}
        case Finished():
            return "finished"
