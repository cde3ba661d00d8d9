"""Whether a program waits for input from its terminal, as the kernel says."""

from __future__ import annotations

import os
import platform
import struct
import termios
from contextlib import suppress

_READ, _POLL, _SELECT = "read", "poll", "select"
_CALLS = {
    "x86_64": {0: _READ, 19: _READ, 7: _POLL, 271: _POLL, 23: _SELECT, 270: _SELECT},
    "aarch64": {63: _READ, 65: _READ, 73: _POLL, 72: _SELECT},
}
"""Numbers of system calls that wait for input."""
_MACHINE = platform.machine()
_TERMINALS = ("/dev/pts/", "/dev/tty")
_MOST_POLLED = 64
_POLLED = struct.Struct("=iHH")


def reads_terminal(pid: int) -> bool | None:
    """Whether the first thread of a process waits for nothing but input from a terminal; None where
    it is another user's, as of `sudo`. May hang with the process, so not for the loop."""
    try:
        with open(f"/proc/{pid}/syscall", "rb") as file:
            words = file.read(400).split()
    except PermissionError:
        return None
    except OSError:  # it has ended
        return False
    with suppress(OSError, ValueError, IndexError):
        call = _CALLS.get(_MACHINE, {}).get(int(words[0]))  # "running" is no number
        if call is None:
            return False
        first, second = int(words[1], 16), int(words[2], 16)
        if call == _READ:
            waited = [first]
        elif call == _POLL:
            waited = _polled(pid, first, second)
        else:
            waited = _selected(pid, first, second)
        return bool(waited) and all(_is_terminal(pid, fd) for fd in waited)
    return False


def hides_input(terminal: int) -> bool:
    """Whether what is typed into a terminal, line by line, is not shown: a program asks for a
    password. `terminal` may be a descriptor of its other end."""
    try:
        flags = termios.tcgetattr(terminal)[3]
    except (termios.error, OSError):  # a pipe
        return False
    return bool(flags & termios.ICANON) and not flags & termios.ECHO


def _polled(pid: int, at: int, count: int) -> list[int]:
    if not 0 < count <= _MOST_POLLED:
        return []
    data = _memory(pid, at, count * _POLLED.size)
    return [fd for fd, _, _ in _POLLED.iter_unpack(data) if fd >= 0]


def _selected(pid: int, most: int, at: int) -> list[int]:
    if not at or not 0 < most <= 1024:
        return []
    data = _memory(pid, at, (most + 63) // 64 * 8)
    return [fd for fd in range(most) if data[fd // 8] >> fd % 8 & 1]


def _memory(pid: int, at: int, size: int) -> bytes:
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, at)
    finally:
        os.close(fd)


def _is_terminal(pid: int, fd: int) -> bool:
    return os.readlink(f"/proc/{pid}/fd/{fd}").startswith(_TERMINALS)
