"""Fork server: a small process that forks the agent's reapers, for the sake of their memory.

A reaper that the agent itself forked would keep the agent's pages as they were: the agent goes on
writing to nearly all of its own, so each reaper would soon have 2.7 MB that nobody shares. The
fork server is forked before the agent has loaded most of its modules, and writes to hardly
anything. What it forks are children of the agent all the same, with the agent's starting thread
as their parent (CLONE_PARENT): `waitpid`, the death of parents and orphans are as if the agent
had forked them itself, which it does where that call is not known here or not to be had.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import signal
import socket
import struct
from contextlib import suppress
from typing import Callable, NoReturn, Sequence

from .descriptors import restore_limit
from .tasks import set_parent_death_signal
from .workers import WorkerThread

ANSWER_SECONDS = 10.0
"""Of a process that does nothing else; one that somebody has stopped is replaced."""
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT = 0x8000
_REFUSED = (errno.ENOSYS, errno.EINVAL, errno.EPERM)
"""By a sandbox that plays a kernel, and knows only what a C library does."""
_FDS = struct.Struct("3i")

Child = Callable[[int, Sequence[int]], NoReturn]
"""Runs in a new process, with the agent's pid and the descriptors that were handed over."""


class ForkServer:
    """The agent's side of it; it does without while it cannot be had.

    `starter` is the thread whose children it and the reapers are. The kernel ends them with it, so
    it lives as long as the agent; only there may `fork` be called.
    """

    def __init__(self, child: Child) -> None:
        self.starter = WorkerThread("starter")
        self._child = child
        self._agent = os.getpid()
        self._pid = 0
        self._link: socket.socket | None = None
        self._clones = os.uname().machine in _CLONE
        if self._clones:
            self.starter.do(self._begin).wait()

    def fork(self, fds: Sequence[int]) -> int:
        """Forks a process that has copies of `fds`; its pid.

        Raises:
            ConnectionError: somebody has killed the server; the next call makes another.
            OSError: it could not be forked, or the server does not answer.
        """
        if not self._clones:
            return self._fork_here(fds)
        if self._link is None:
            self._begin()
        assert self._link is not None
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _FDS.pack(*fds))
            self._link.sendmsg([b"f"], [rights])
            said = self._link.recv(32)
        except socket.timeout:
            self.close()
            raise OSError("the agent's fork server did not answer") from None
        except ConnectionError:
            said = b""
        if not said:
            self.close()
            raise ConnectionResetError("the agent's fork server was killed")
        answer = int(said)
        if -answer in _REFUSED:
            self._clones = False
            self.close()
            return self._fork_here(fds)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        return answer

    def close(self) -> None:
        """Ends the server; the processes that it has forked stay."""
        if self._link is not None:
            self._link.close()
            self._link = None
            with suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)

    def _fork_here(self, fds: Sequence[int]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                _let_go(fds)
                own = [os.dup(fd) for fd in fds]  # low ones: `select` knows 1,024 numbers
                for fd in set(fds):
                    os.close(fd)
                self._child(self._agent, own)
            finally:
                os._exit(1)
        return pid

    def _begin(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                self._serve(theirs)
            finally:
                os._exit(1)
        theirs.close()
        ours.settimeout(ANSWER_SECONDS)
        self._pid, self._link = pid, ours

    def _serve(self, link: socket.socket) -> None:
        """Process of the server: clones reapers until the agent closes its end of the link."""
        set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != self._agent:
            return
        _let_go([link.fileno()])
        number, flags = _CLONE[os.uname().machine], _CLONE_PARENT | signal.SIGCHLD
        words = [ctypes.c_long(word) for word in (number, flags, 0, 0, 0, 0)]
        # Without Python's own work around a fork, which is about threads: there is one. It would
        # take 0.25 MB of each reaper.
        clone = ctypes.PyDLL(None, use_errno=True).syscall
        clone.restype = ctypes.c_long
        receive, space = link.recvmsg, socket.CMSG_SPACE(_FDS.size)
        close_on_exec, own = int(socket.MSG_CMSG_CLOEXEC), link.fileno()
        while True:
            data, rights, _, _ = receive(1, space, close_on_exec)
            if not data:
                return
            fds = _FDS.unpack(rights[0][2])
            pid = clone(*words)
            if pid == 0:
                os.close(own)
                self._child(self._agent, fds)
            for fd in fds:
                os.close(fd)
            os.write(own, b"%d" % (pid if pid > 0 else -ctypes.get_errno()))


def _let_go(keep: Sequence[int]) -> None:
    """Lets go of what the agent has: copies of its sockets and pipes would hide its end from those
    who wait for it, what it has left in memory is nothing to us, and its limit is not a task's."""
    gc.disable()
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # sent to us by nobody who means us
    signal.signal(signal.SIGCHLD, lambda *_: None)
    close_others((0, 1, 2, *keep))
    restore_limit()


def close_others(keep: Sequence[int]) -> None:
    """Closes all descriptors but these."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with suppress(OSError):  # the listing's own descriptor
                os.close(int(name))
