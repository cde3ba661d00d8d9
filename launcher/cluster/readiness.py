"""Readiness of a task: when the next stage of the start may begin."""

from __future__ import annotations

from ..frozen import frozen


@frozen
class PortListens:
    """Ready when the task's own process tree listens on its port. `by_default`: the file does not
    ask for that, and whether the program opens a port nobody knows."""

    by_default: bool = False


@frozen
class ProcessStarted:
    """Ready as soon as the process has been started."""


@frozen
class LogMatches:
    """Ready when a line of the log matches the regular expression (over bytes)."""

    pattern: str


@frozen
class After:
    """Ready a number of seconds after the start."""

    seconds: float


AUTO_SECONDS = 5.0


@frozen
class Auto:
    """Ready when it listens on its port, has printed a metric line, or has lived for
    `AUTO_SECONDS`: for programs of which nothing is known."""


@frozen
class Finished:
    """Ready when it has exited with status 0. For `prepare` lines only, not in cluster files."""


def figures_show(ready: Readiness) -> bool:
    """Tells whether a metric line makes a task ready, too."""
    return isinstance(ready, Auto) or (isinstance(ready, PortListens) and ready.by_default)


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
