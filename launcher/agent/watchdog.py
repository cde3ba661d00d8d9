"""Parent of the agent: when the agent dies or freezes, it ends everything below it, and exits.

An agent may be killed by the kernel for its memory, or stopped; its tasks must not go on
unwatched. Parent-death signals alone would miss a daemon that left its family, so the watchdog
is a child-subreaper too: what the agent leaves behind becomes the watchdog's child.
"""

from __future__ import annotations

import enum
import os
import select
import signal
import socket
import time
from contextlib import suppress
from typing import Callable, NamedTuple

from .kernel_log import killed_for_memory
from .processes import (
    STRANGER_SECONDS,
    Ended,
    Killer,
    Process,
    ProcessTracker,
    become_subreaper,
    read_process,
    reap,
    send,
    set_parent_death_signal,
)
from .signals import next_signal
from .threads import log_line, start_thread
from .wire import FROZEN_SECONDS

_LAST_SECONDS = 2.0
_MOST_ENDED = 100
"""Ends that are remembered: of the agent, and of what it has left to us."""
_PATIENCE = 10.0
_HALTED = {
    "T": "a signal had stopped it",
    "t": "a debugger held it",
    "D": "it waited in the kernel",
}
"""What an agent does that does not answer, by its state."""


class _End(enum.Enum):
    LEFT = "the agent went by itself"
    DIED = "it went without a word"
    FROZEN = "it does not beat"


class Death(NamedTuple):
    """Death of an agent that has not gone by itself: `why`, and whether the kernel confirms that
    nothing of it is left."""

    why: str
    proven: bool


def guard(run_id: str, listener: socket.socket, agent: Callable[[int, int], None]) -> Death | None:
    """Forks the agent, which gets a pipe to beat and one that brings signals; watches it, and
    cleans up after it. Returns how the agent died; one that goes by itself speaks for itself.

    The agent alone keeps the `listener`: with a copy here, a bridge could still connect after the
    agent's death and would wait for an answer for ever.
    """
    become_subreaper()
    pulse, beats = os.pipe()
    signals, passed_on = os.pipe()
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(pulse)
        os.close(passed_on)
        set_parent_death_signal(signal.SIGTERM)
        if os.getppid() != me:
            os._exit(1)
        become_subreaper()
        try:
            agent(beats, signals)
        finally:
            os._exit(0)
    started = read_process(pid)
    if started is not None:
        # `scancel` sends TERM to the first process of a step only, which the watchdog is there; the
        # agent gives its tasks their grace.
        signal.signal(signal.SIGTERM, lambda *_: _pass_on(started))
    os.close(beats)
    os.close(signals)
    listener.close()
    with suppress(OSError):  # no thread can be started: then signals to the step reach nobody
        start_thread(lambda: _pass_signals_on(passed_on), "signals")
    ended: list[Ended] = []
    end = _watch(pulse, ended)
    if end is _End.LEFT:
        return None
    frozen = _frozen(pid) if end is _End.FROZEN else ""
    proven = end_everything(ProcessTracker(run_id), last=pid, ours=True, ended=ended)
    why = frozen or _end_of(pid, _status(pid, ended))
    log_line(f"watchdog: the agent died ({why}); what it had started was ended")
    return Death(why, proven)


def _status(pid: int, ended: list[Ended]) -> int | None:
    """The wait status of a child that has been reaped."""
    return next((each.status for each in ended if each.pid == pid), None)


def _frozen(pid: int) -> str:
    """Why the watchdog ends an agent that lives."""
    agent = None
    with suppress(OSError):  # no descriptor is left on the whole machine
        agent = read_process(pid)
    how = _HALTED.get(agent.state) if agent is not None else ""
    text = f"it did not answer its watchdog for {FROZEN_SECONDS:.0f} s"
    return f"{text}: {how}" if how else text


def _end_of(pid: int, status: int | None) -> str:
    """How an agent has ended that its watchdog has not ended."""
    if status is None:
        return "how is not known"
    if not os.WIFSIGNALED(status):
        return f"it ended with status {os.WEXITSTATUS(status)}: its agent.log says more"
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL and pid in killed_for_memory():
        return "the kernel killed it: out of memory"
    try:
        return f"{signal.Signals(number).name} killed it"
    except ValueError:  # one of the real-time signals
        return f"signal {number} killed it"


def _pass_on(agent: Process) -> None:
    with suppress(OSError):  # no descriptor is left on the whole machine
        send(agent, (signal.SIGTERM,))


def _pass_signals_on(agent: int) -> None:
    """Writes down for the agent each signal of another process."""
    while True:
        number = next_signal()
        with suppress(OSError):  # the agent has gone
            os.write(agent, bytes([number]))


def _watch(pulse: int, ended: list[Ended]) -> _End:
    """Waits for the agent's end. `ended` gets what is reaped meanwhile."""
    last = time.monotonic()
    clean = False
    while True:
        before = time.monotonic()
        ready, _, _ = select.select([pulse], [], [], 1.0)
        now = time.monotonic()
        if now - before > 3.0:
            last = now  # we were stopped ourselves: the agent may have been, and go on, too
        if ready:
            data = os.read(pulse, 4096)
            if not data:
                return _End.LEFT if clean else _End.DIED
            clean = clean or b"Q" in data
            last = now
        if clean and now - last > _LAST_SECONDS:
            return _End.LEFT  # a thread of it still waits for a disk that hangs
        reaped, _ = reap()
        ended[:] = [*ended, *reaped][-_MOST_ENDED:]
        if now - last > FROZEN_SECONDS:
            return _End.FROZEN


def end_everything(
    tracker: ProcessTracker, last: int = 0, *, ours: bool, ended: list[Ended] | None = None
) -> bool:
    """Kills all that a tracker finds, and (where it is `ours`: we are its subreaper) all our
    children, until nothing is left or the time is over. `last` is the pid of a frozen agent
    below us, whose death signals its children; `ended` gets its end. Returns whether nothing is
    left.

    Nothing is left when the kernel says that we have no child, and a look finds nothing; for what
    others have started there are only looks, which must find nothing for a while.
    """
    deadline = time.monotonic() + _PATIENCE
    empty_since = 0.0
    killer = Killer()

    def note(reaped: list[Ended]) -> None:
        if ended is not None:  # of a chain of forks there may be thousands
            ended.extend(each for each in reaped if each.pid == last)

    while (now := time.monotonic()) < deadline:
        reaped, none_left = reap() if ours else ([], True)
        note(reaped)
        members, readable = [], True
        try:
            members = [process for process, _ in tracker.scan().values()]
        except OSError:  # no descriptor or thread is left
            readable = False
        if members or not none_left or not readable:
            empty_since = 0.0
        elif not empty_since:
            empty_since = now
        if empty_since and (ours or now - empty_since > STRANGER_SECONDS):
            return True
        for process in sorted(members, key=lambda process: process.pid == last):
            with suppress(OSError):  # no descriptor is left on the whole machine
                send(process, (signal.SIGKILL,))
        rounds = time.monotonic() + 0.01
        while ours and not none_left and time.monotonic() < rounds:
            killer.step(reaped)
            time.sleep(0.001)
            reaped, none_left = reap()
            note(reaped)
        if not (ours and readable):
            time.sleep(0.01)
    return False
