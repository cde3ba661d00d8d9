"""Reaper: one process a task, the parent of the task and of all that the task leaves behind.

It is a child-subreaper and goes by itself only when `waitpid` has told it that it has no child
(ECHILD), with the exit status `NONE_LEFT`. That is the kernel's word that nothing of the task is
left: whatever a task forks, however it leaves its family, stays below its reaper. It dies with
the agent, and the task dies with it.

The agent forks it and does not wait: a program or folder on a disk that hangs holds up nobody else.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
from contextlib import suppress
from enum import Enum
from typing import Any, Iterator, NamedTuple

from . import children
from .proc import read_process
from .tasks import Program, become_subreaper, set_parent_death_signal

NONE_LEFT = 86
_KILL = b"kill"
_RELEASE = b"release"
_ROUND = 0.005


class Report(Enum):
    """What a reaper tells the agent, with some values."""

    FORKED = "forked"
    """The task's first process has been made (pid, start); it waits for us to know it."""
    EXECUTED = "executed"
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

    def reports(self) -> Iterator[tuple[Report, Any]]:
        """Its reports that have come since the last call, with their values."""
        with suppress(OSError):
            while data := self.link.recv(1 << 16):
                kind, *values = json.loads(data)
                yield Report(kind), values

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


class Started(NamedTuple):
    """A reaper that has been forked, and our end of its task's output."""

    reaper: Reaper
    output: int


def fork(program: Program, output: tuple[int, int], agent: int) -> Started:
    """Forks a reaper, which starts the program. Call it in a thread that outlives the task: the
    kernel ends the reaper with the thread that forked it."""
    ours, theirs = output
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setblocking(False)
    try:
        pid = os.fork()
    except OSError:  # too many processes
        for fd in output:
            os.close(fd)
        mine.close()
        its.close()
        raise
    if pid == 0:
        try:
            _Process(program, theirs, its, agent).run()
        finally:
            os._exit(1)
    os.close(theirs)
    its.close()
    return Started(Reaper(pid, mine), ours)


class _Process:
    """Process of a reaper: forks the task and waits for all that is below it."""

    def __init__(self, program: Program, output: int, link: socket.socket, agent: int) -> None:
        set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != agent:
            os._exit(1)
        become_subreaper()
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)  # sent to us by nobody who means us
        # Copies of the agent's sockets and pipes would hide its end from those who wait for it.
        close_others((0, 1, 2, output, link.fileno()))
        wake, wakeup = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wake = wake
        self._link = link
        self._killer: children.Killer | None = None
        gc.disable()  # what the agent has left in our memory is nothing to us
        self._fault, fault = os.pipe()
        self._start_reported = False
        me = os.getpid()
        gate: int | None = None
        self._gate: int | None = None
        if program.gated:
            gate, self._gate = os.pipe()
        wait, go = os.pipe()
        try:
            self._first = os.fork()
        except OSError as error:  # too many processes
            self._send(Report.FAILED, f"{error.errno}:{program.argv[0]}")
            os._exit(NONE_LEFT)
        if self._first == 0:
            os.close(go)
            os.read(wait, 1)  # until the agent knows our pid: we might kill the reaper
            program.execute(output, fault, me, gate)
        os.close(output)
        os.close(fault)
        os.close(wait)
        if gate is not None:
            os.close(gate)
        process = read_process(self._first)
        self._send(Report.FORKED, self._first, process.start if process else 0)
        os.close(go)

    def run(self) -> None:
        """Reaps, reports, and kills when told to, until no child is left."""
        while True:
            waiting = [self._wake, self._link.fileno()]
            if not self._start_reported:
                waiting.append(self._fault)
            patience = _ROUND if self._killer else None
            ready, _, _ = select.select(waiting, [], [], patience)
            if self._fault in ready:
                self._report_start()
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._link.fileno() in ready:
                self._handle_command()
            reaped, none_left = children.reap()
            for pid, status in reaped:
                if pid == self._first:
                    if not self._start_reported:
                        self._report_start()
                    self._send(Report.ENDED, status)
            if none_left:
                os._exit(NONE_LEFT)
            if self._killer:
                self._killer.step(reaped)

    def _report_start(self) -> None:
        self._start_reported = True
        fault = os.read(self._fault, 4096).decode(errors="replace")
        if fault:
            self._send(Report.FAILED, fault)
        else:
            self._send(Report.EXECUTED)

    def _handle_command(self) -> None:
        command = self._link.recv(64)
        if not command:
            os._exit(1)  # the agent has gone, and the kernel is about to say so
        if command == _RELEASE:
            if self._gate is not None:
                with suppress(OSError):  # the task has just ended
                    os.write(self._gate, b"\n")
                os.close(self._gate)
                self._gate = None
            return
        if self._killer is None:
            self._killer = children.Killer()
            if children.is_child(self._first):
                os.kill(self._first, signal.SIGKILL)

    def _send(self, report: Report, *values: object) -> None:
        try:
            self._link.send(json.dumps([report.value, *values]).encode())
        except OSError:
            os._exit(1)


def close_others(keep: tuple[int, ...]) -> None:
    """Closes all descriptors but these."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with suppress(OSError):  # the listing's own descriptor
                os.close(int(name))
