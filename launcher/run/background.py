"""Processes that a task's first process has left: helpers of a program that has worked, or the
program itself, in the background; also one that has failed there at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..agent.not_found import NOT_STARTED
from ..agent.wire import MOST_LEFT
from ..frozen import frozen
from ..printable import printable
from ..quantities import counted
from .fields import Count, ExitCode, Line, Pid, Seconds, SignalName

SHORT_SECONDS = 10.0
"""A command that has taken longer has worked itself: what it leaves is a helper of its own."""
_HELPER_AGE = 3.0
"""So long before the end a helper has been there at least: the command went on beside it."""
_WORKED_CPU, _HELPER_SHARE = 0.3, 0.1
"""A command that has used so many seconds of a processor, and what it left less than this share of
them: it is the command that has worked."""
_COMMAND = 80


@frozen
class LeftProcess:
    """A process that was left when the task's first process ended with status 0. Either it lived
    two seconds later, or it had failed by then."""

    pid: Pid
    """Its id on the host."""
    command: Line
    """Its command line, printable."""
    age: Seconds = 0.0
    """Its age at that moment."""
    cpu: Seconds = 0.0
    """Seconds of a processor that it had used soon after."""
    exit_code: ExitCode | None = None
    """Status with which it had failed."""
    signal: SignalName | None = None
    """Name of the signal that had ended it."""
    forked: bool = False
    """The process ran the program of the first process, forked."""

    @property
    def failure(self) -> str:
        """`exit 1` or `killed by SIGHUP`; empty while it lives."""
        if self.signal is not None:
            return f"killed by SIG{self.signal}"
        return "" if self.exit_code is None else f"exit {self.exit_code}"


@frozen
class LeftProcesses:
    """Processes of a task that its first process left behind."""

    processes: Annotated[tuple[LeftProcess, ...], Field(min_length=1, max_length=MOST_LEFT)]
    """The first processes that were left, 5 at most."""
    unlisted: Count = 0
    """Number of processes beyond those in `processes`."""
    seconds: Seconds = 0.0
    """Time from the start to the end of the first process."""
    cpu: Seconds = 0.0
    """Seconds of a processor that it had used, with those for which it had waited."""

    @property
    def is_the_work(self) -> bool:
        """The first process has done nothing but to start what it left."""
        if self.seconds > SHORT_SECONDS:
            return False
        return any(self._is_the_work(process) for process in self.processes)

    def _is_the_work(self, process: LeftProcess) -> bool:
        if process.age >= _HELPER_AGE:
            return False
        if self.cpu >= _WORKED_CPU and process.cpu < _HELPER_SHARE * self.cpu:
            return False
        if not process.failure or process.forked or process.exit_code in NOT_STARTED:
            return True
        return process.cpu >= self.cpu  # else a filter such as grep, whose input has ended

    @property
    def text(self) -> str:
        """`left 1 process, python3 train.py, which was ended: start it in the foreground, …`. Of
        helpers only those are named that live; empty where there is none."""
        from ..plan.foreground import ADVICE  # of which whoever lists runs says nothing

        work = self.is_the_work
        told = [process for process in self.processes if work or not process.failure]
        if not told:
            return ""
        failed = all(process.failure for process in told)
        names = [_named(process, len(told) > 1) for process in told]
        count = len(names) + self.unlisted
        more = f" and {self.unlisted} more" if self.unlisted else ""
        what = f"left {counted(count, 'process', 'processes')}, {'; '.join(names)}{more}"
        if work and failed:
            how = f" ({told[0].failure})" if len(told) == 1 else ""
            return f"{what}, which failed{how}: {ADVICE}"
        if work:
            return f"{what}, which {'was' if count == 1 else 'were'} ended: {ADVICE}"
        end = "ends with the run" if count == 1 else "end with the run"
        return f"{what}, which {end}"


def _named(process: LeftProcess, of_several: bool) -> str:
    name = printable(process.command, _COMMAND)
    return f"{name} ({process.failure})" if of_several and process.failure else name
