"""Reaper: one process a task, the parent of the task and of all that the task leaves behind.

It is a child-subreaper and goes by itself only when `waitpid` has told it that it has no child
(ECHILD), with the exit status `NONE_LEFT`. By that the kernel confirms that nothing of the task is
left: whatever a task forks, however it leaves its family, stays below its reaper. It dies with
the agent, and the task dies with it.

The fork server forks it, as a child of the agent, which does not wait for the task: a program or
folder on a disk that hangs holds up nobody else.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from contextlib import suppress
from enum import Enum
from typing import Iterator, NamedTuple, NoReturn, Sequence

from . import children
from .descriptors import check_for_task
from .forkserver import ANSWER_SECONDS, ForkServer
from .proc import read_process
from .tasks import Program, become_subreaper, execute, set_parent_death_signal

NONE_LEFT = 86
_KILL = b"kill"
_RELEASE = b"release"
_ROUND = 0.005
_SIGKILL = int(signal.SIGKILL)


class ReaperReport(Enum):
    """Word with which a report of a reaper to the agent begins; values follow."""

    FORKED = "forked"
    """The task's first process has been made (pid, start). It says so itself, before it becomes the
    program, so that we know it even when the reaper is killed then."""
    EXECUTED = "executed"
    """It has become the program, or has been killed before (pid)."""
    FAILED = "failed"
    """The program could not be started (what `Program.execute` wrote)."""
    ENDED = "ended"
    """The task's first process has ended (wait status)."""


class Reaper:
    """The agent's side of a task's reaper."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self.link = link
        self.exited = False
        self.none_left = False
        """It has said so by its exit status; else somebody killed it."""

    def reports(self) -> Iterator[tuple[ReaperReport, str]]:
        """Its reports that have come since the last call, with their values."""
        with suppress(OSError):
            while data := self.link.recv(1 << 16):
                kind, _, values = data.decode(errors="replace").partition(" ")
                yield ReaperReport(kind), values

    def kill(self) -> None:
        """Has it kill everything below it, until nothing is left."""
        if self.exited:
            return
        with suppress(OSError):  # it has just gone
            os.kill(self.pid, signal.SIGCONT)  # the pid is its own until we have reaped it
            self.link.send(_KILL)

    def release(self) -> None:
        """Has it open the gate of its task."""
        with suppress(OSError):  # it has just gone
            self.link.send(_RELEASE)

    def poll(self) -> bool:
        """Looks, without waiting, whether the process has exited."""
        if not self.exited:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.exited = True
                self.none_left = os.WIFEXITED(status) and os.WEXITSTATUS(status) == NONE_LEFT
        return self.exited


class StartedReaper(NamedTuple):
    """A reaper that has been forked, and our end of its task's output."""

    reaper: Reaper
    output: int


def fork(program: Program, output: tuple[int, int], server: ForkServer) -> StartedReaper:
    """Forks a reaper, which starts the program.

    Raises:
        OSError: too many processes or open files, or the fork server does not answer.
    """
    ours, theirs = output
    try:
        check_for_task(ours)
        try:
            reaper = _fork(program, theirs, server)
        except ConnectionError:  # with sockets of its own: one may have been forked before
            reaper = _fork(program, theirs, server)
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return StartedReaper(reaper, ours)


def _fork(program: Program, output: int, server: ForkServer) -> Reaper:
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    to_task, from_agent = socket.socketpair()
    with its, to_task, from_agent:
        try:
            check_for_task(mine.fileno())
            pid = server.fork((its.fileno(), output, from_agent.fileno()))
        except OSError:
            mine.close()
            raise
        from_agent.close()
        mine.setblocking(False)
        # Sent when its pid is known: else a task might run of which the agent knows nothing.
        to_task.settimeout(ANSWER_SECONDS)  # who reads it has not touched a disk yet
        with suppress(OSError):  # who has not got all of it says so
            to_task.sendall(program.to_bytes())
    return Reaper(pid, mine)


def run(agent: int, fds: Sequence[int]) -> NoReturn:
    """Process of a reaper: forks the task and waits for all that is below it.

    Each function that is called and each object that is touched makes a page of memory that the
    reapers share into one of its own (an instance of a class alone, 25), so this does with few.
    """
    link, output, program = fds
    try:
        set_parent_death_signal(_SIGKILL)
        if os.getppid() != agent:
            os._exit(1)
        become_subreaper()
        wake, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        fault, its_fault = os.pipe()
        its_gate, gate = os.pipe()
        me = os.getpid()
        try:
            first = os.fork()
        except OSError as error:  # too many processes
            os.write(link, b"failed %d:" % (error.errno or 0))
            os._exit(NONE_LEFT)
        if first == 0:
            process = read_process(os.getpid())
            os.write(link, b"forked %d %d" % (os.getpid(), process.start if process else 0))
            execute(program, output, its_fault, me, its_gate)
        for fd in (program, output, its_fault, its_gate):
            os.close(fd)
        _wait(link, wake, fault, gate, first)
    finally:
        os._exit(1)  # the agent has gone, too, if a report could not be sent


def _wait(link: int, wake: int, fault: int, gate: int, first: int) -> None:
    """Reaps, reports, and kills when told to, until no child is left."""
    waiting = [wake, link, fault]
    killer: children.Killer | None = None
    while True:
        ready, _, _ = select.select(waiting, [], [], _ROUND if killer else None)
        if wake in ready:
            os.read(wake, 4096)
        if link in ready:
            command = os.read(link, 64)
            if not command:
                return  # the agent has gone, and the kernel is about to say so
            if command == _KILL and killer is None:
                killer = children.Killer()
                if children.is_child(first):
                    os.kill(first, signal.SIGKILL)
            elif command == _RELEASE and gate >= 0:
                with suppress(OSError):  # the task has just ended
                    os.write(gate, b"\n")
                os.close(gate)
                gate = -1
        reaped, none_left = children.reap()
        ended = [status for pid, status in reaped if pid == first]
        if fault in ready or (ended and fault in waiting):
            waiting.remove(fault)
            error = os.read(fault, 4096)
            os.write(link, b"failed " + error if error else b"executed %d" % first)
        if ended:
            os.write(link, b"ended %d" % ended[0])
        if none_left:
            os._exit(NONE_LEFT)
        if killer:
            killer.step(reaped)
