"""Processes that a task's first process has left: helpers of a program that has worked, or the
program itself, in the background."""

from __future__ import annotations

from ..frozen import frozen
from ..quantities import counted
from . import fields

SHORT_SECONDS = 10.0
"""A command that has taken longer has worked itself: what it leaves is a helper of its own."""
_HELPER_AGE = 3.0
"""So long before the end a helper has been there at least: the command went on beside it."""
_WORKED_CPU, _HELPER_SHARE = 0.3, 0.1
"""A command that has used so many seconds of a processor, and what it left less than this share of
them: it is the command that has worked."""
_COMMAND = 80
ADVICE = "start it in the foreground, without & and nohup"


@frozen
class LeftProcess:
    """A process that was left when the task's first process ended with status 0."""

    pid: fields.Count
    """Its id on the host."""
    command: str
    """Its command line, printable."""
    age: fields.Seconds = 0.0
    """Its age at that moment."""
    cpu: fields.Seconds = 0.0
    """Seconds of a processor that it had used soon after."""


@frozen
class LeftProcesses:
    """What was left, after so many `seconds`, by a process that had used so much `cpu`."""

    processes: tuple[LeftProcess, ...]
    """Those that are listed, 5 at most."""
    unlisted: fields.Count = 0
    """Number of those beyond them."""
    seconds: fields.Seconds = 0.0
    """Time from the start to the end of the first process."""
    cpu: fields.Seconds = 0.0
    """Seconds of a processor that it had used, with those for which it had waited."""

    @property
    def is_the_work(self) -> bool:
        """The first process has done nothing but to start what it left."""
        if self.seconds > SHORT_SECONDS:
            return False
        worked = self.cpu >= _WORKED_CPU
        return any(
            process.age < _HELPER_AGE and not (worked and process.cpu < _HELPER_SHARE * self.cpu)
            for process in self.processes
        )

    @property
    def text(self) -> str:
        """`left 1 process, python3 train.py, which was ended: start it in the foreground, …`."""
        names = [_shortened(process.command) for process in self.processes]
        count = len(names) + self.unlisted
        more = f" and {self.unlisted} more" if self.unlisted else ""
        what = f"left {counted(count, 'process', 'processes')}, {'; '.join(names)}{more}"
        if self.is_the_work:
            return f"{what}, which {'was' if count == 1 else 'were'} ended: {ADVICE}"
        end = "ends with the run" if count == 1 else "end with the run"
        return f"{what}, which {end}"


def _shortened(command: str) -> str:
    return command if len(command) <= _COMMAND else f"{command[: _COMMAND - 1]}…"
