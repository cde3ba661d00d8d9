"""Processes forked from a server that has imported what they need, which takes most of the time of
a short command.

    server = ForkServer("launcher.client.run_client", …)
    process = server.start("tui.main", "ps", env=os.environ, cwd=folder, stdout=file.fileno())

To everybody else a process is `python -m MODULE WORDS`, also in /proc: it has those arguments, that
environment and directory. What an interpreter reads when it starts is the server's: where the
environment has other values for that, the process is an interpreter of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, Any

_ROOM = 16 * 1024
"""Bytes for the arguments of a process, and for its environment. All of it is read by everybody who
reads /proc."""
_LONGEST = 4 * _ROOM
_FIRST_FREE = 200
"""Number of the first descriptor that no process asks for."""
_OWN_MOUNTS, _PRIVATE, _READ_ONLY = 0x20000, 0x44000, 1
"""Linux's CLONE_NEWNS, MS_REC | MS_PRIVATE and MS_RDONLY."""
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC_")
"""Beginnings of the names of variables that an interpreter and its libraries read at its start."""


counter = -1
"""Descriptor of the file in which launches are counted; -1 where they are not."""


def count(descriptor: int, argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Append a line to a file: the module of a process, and the test that launches it."""
    if descriptor >= 0:
        module = argv[argv.index("-m") + 1]
        test = env.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        os.write(descriptor, f"{module}\t{test.encode('unicode_escape').decode()}\n".encode())


class Process:
    """A process that was forked; has the methods of `subprocess.Popen` that tests use, for any
    thread."""

    def __init__(self, status: int) -> None:
        """Waits until it is there.

        Args:
            status: end of the pipe on which the server writes the process id, and its exit status.
        """
        self._status = status
        weakref.finalize(self, os.close, status)  # not before: another thread may look at it
        self._reading = threading.Lock()
        """The status comes once, and several threads may wait for it."""
        self.returncode: int | None = None
        self.pid = self._number()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, when the process has ended.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        if self.returncode is None:
            if timeout is not None and not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            with self._reading:
                if self.returncode is None:
                    self.returncode = self._number()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        number = os.read(self._status, 4)
        assert len(number) == 4, "the server of forked processes has died"
        return int.from_bytes(number, sys.byteorder, signed=True)


def start_server(
    command: Sequence[str],
    connection: socket.socket,
    modules: Sequence[str],
    env: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start a server by a command, whose last word is this file or a copy of it; it serves a
    connection, and all that it forks is counted here."""
    room = "x" * _ROOM
    return subprocess.Popen(
        [*command, f"{connection.fileno()}", f"{counter}", *modules, room],
        pass_fds=[each for each in (connection.fileno(), counter) if each >= 0],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd="/",
        env={**env, "ROOM": room},
    )


class Forks:
    """Connection to the server."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdout: int,
        stderr: int,
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
        niceness: int = 0,
        hidden: str = "",
    ) -> Process | subprocess.Popen[bytes]:
        """Fork the process `argv`, which is `[sys.executable, …, "-m", MODULE, WORD, …]`. In the
        folder `hidden` it has an empty disk of its own, on which nobody can write."""
        reading, writing = os.pipe()
        request = {
            "argv": [*argv],
            "env": dict(env),
            "cwd": str(cwd),
            "pass_fds": [*pass_fds],
            "session": start_new_session,
            "niceness": niceness,
            "hidden": hidden,
        }
        try:
            sent = [writing, stdout, stderr, *pass_fds]
            socket.send_fds(self._connection, [json.dumps(request).encode()], sent)
        finally:
            os.close(writing)
        return Process(reading)

    def popen(
        self,
        argv: Sequence[str],
        *,
        stdin: int,
        stdout: IO[bytes],
        stderr: IO[bytes],
        **options: Any,
    ) -> Process | subprocess.Popen[bytes]:
        """Start a process as this one's environment and directory are, with the arguments of
        `subprocess.Popen`."""
        return self.start(
            argv,
            env=os.environ,
            cwd=Path.cwd(),
            stdout=stdout.fileno(),
            stderr=stderr.fileno(),
            **options,
        )

    def close(self) -> None:
        """Close the connection; the server ends with the first one."""
        self._connection.close()


class ForkServer(Forks):
    """Server of this process, until it is closed."""

    def __init__(self, *modules: str, **env: str) -> None:
        """Start it.

        Args:
            modules: what it imports.
            env: variables that it has besides this process's.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # With a task's variables it would pass for one.
        own = {name: value for name, value in os.environ.items() if not name.startswith("TFMUX")}
        self._env = {**own, **env}
        with theirs:
            self._server = start_server([sys.executable, __file__], theirs, modules, self._env)
        super().__init__(ours)
        atexit.register(self.close)

    def serves(self, argv: Sequence[str], env: Mapping[str, str]) -> bool:
        """Return whether there is room for these, and an interpreter with this environment would
        start as the server did."""
        longest = max(len(_joined(argv)), len(_joined(_pairs(env))))
        return longest <= _ROOM and _read_at_start(env) == _read_at_start(self._env)

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        **options: Any,
    ) -> Process | subprocess.Popen[bytes]:
        """Fork the process, or start an interpreter where the server cannot be one."""
        if self.serves(argv, env):
            return super().start(argv, env=env, cwd=cwd, **options)
        count(counter, argv, env)
        assert not options.pop("hidden", ""), "only a forked process has a disk of its own"
        niceness = options.pop("niceness", 0)
        words = ["nice", "-n", str(niceness), *argv] if niceness else argv
        return subprocess.Popen(words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, **options)

    def close(self) -> None:
        super().close()
        self._server.wait()


def _pairs(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]


def _joined(words: Sequence[str]) -> bytes:
    """Words as /proc has them."""
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_AT_START)}


def replace_popen(module: ModuleType, popen: Callable[..., object]) -> None:
    """Let a module start processes by `popen` instead of `subprocess.Popen`."""
    vars(module)["subprocess"] = with_popen(popen)


def with_popen(popen: Callable[..., object]) -> SimpleNamespace:
    """What modules use of `subprocess`, with another `Popen`."""
    late = subprocess.TimeoutExpired
    return SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL, TimeoutExpired=late)


# --- the server ---------------------------------------------------------------------------------


class _Request:
    """Process that somebody asks for, with its descriptors."""

    def __init__(self, connection: socket.socket) -> None:
        """Read it.

        Raises:
            EOFError: the connection was closed.
        """
        message, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 16)
        if not message:
            raise EOFError
        self.fields: dict[str, Any] = json.loads(message)
        self.status, *self.descriptors = descriptors

    def close(self) -> None:
        """Close what has been sent."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def _serve(first: socket.socket, counter: int) -> tuple[_Request, Forks] | None:
    """Fork what is asked for, until the first connection is closed; returns None then, and in each
    forked process what was asked for, with a connection of its own."""
    ended, woken = os.pipe()
    for descriptor in (ended, woken):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    connections = [first]
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([ended, *(each.fileno() for each in connections)], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _reap(statuses)
        for connection in [each for each in connections if each.fileno() in ready]:
            try:
                request = _Request(connection)
            except EOFError:
                if connection is first:
                    return None
                connections.remove(connection)
                connection.close()
                continue
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            count(counter, request.fields["argv"], request.fields["env"])
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in connections:
                    other.close()
                for descriptor in (ended, woken, request.status, *statuses.values()):
                    os.close(descriptor)
                if counter >= 0:
                    os.close(counter)
                ours.close()
                return request, Forks(socket.socket(fileno=_above(theirs.detach())))
            theirs.close()
            request.close()
            connections.append(ours)
            statuses[pid] = request.status
            _write(request.status, pid)


def _reap(statuses: dict[int, int]) -> None:
    """Report all processes that have ended."""
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        descriptor = statuses.pop(pid)
        _write(descriptor, os.waitstatus_to_exitcode(status))
        os.close(descriptor)


def _write(descriptor: int, number: int) -> None:
    with suppress(BrokenPipeError):  # who has asked for it is gone
        os.write(descriptor, number.to_bytes(4, sys.byteorder, signed=True))


def _become(request: _Request, forks: Forks) -> None:
    """Run the module that is asked for as an interpreter of its own would."""
    fields = request.fields
    argv, env = fields["argv"], fields["env"]
    os.environ.clear()
    os.environ.update(env)
    os.chdir(fields["cwd"])
    os.nice(fields["niceness"])
    if fields["session"]:
        os.setsid()
    if fields["hidden"]:
        _hide(fields["hidden"])
    above = [_above(descriptor) for descriptor in request.descriptors]
    for descriptor, number in zip(above, (1, 2, *fields["pass_fds"]), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    _rename(argv, env)
    for name in ("launcher.client.launcher_process", "launcher.process.bulkhead"):
        starter = sys.modules.get(name)
        if starter is not None:
            replace_popen(starter, forks.popen)
    at = argv.index("-m")
    if "-P" not in argv[:at]:
        sys.path.insert(0, fields["cwd"])
    sys.argv = argv[at + 1 :]
    begin = getattr(sys.modules.get("sitecustomize"), "begin", None)
    if begin is not None:  # of a server whose PYTHONPATH has one
        begin(argv)
    runpy.run_module(argv[at + 1], run_name="__main__", alter_sys=True)


def _hide(folder: str) -> None:
    """Mount an empty disk that cannot be written in a folder, for this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    calls: list[tuple[Callable[..., int], tuple[Any, ...]]] = [
        (libc.unshare, (_OWN_MOUNTS,)),
        (libc.mount, (b"none", b"/", None, _PRIVATE, None)),
        (libc.mount, (b"tmpfs", os.fsencode(folder), b"tmpfs", _READ_ONLY, None)),
    ]
    for function, arguments in calls:
        if function(*arguments):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)


def _above(descriptor: int) -> int:
    """Move a descriptor out of the way of numbers that are asked for."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    os.close(descriptor)
    return moved


def _rename(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Write arguments and environment to where /proc reads them."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:  # what only Linux has was taken away
        return
    first, end, first_variable, last = map(int, fields[45:49])  # arg_start … env_end
    for words, start, stop in (
        (argv, first, end),
        (_pairs(env), first_variable, last),
    ):
        ctypes.memmove(start, _joined(words).ljust(stop - start, b"\0"), stop - start)


if __name__ == "__main__":
    del sys.path[0]
    for name in sys.argv[3:-1]:
        import_module(name)
    gc.collect()
    gc.freeze()
    served = _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    if served is not None:
        _become(*served)
