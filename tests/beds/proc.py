"""Processes and listening ports as the kernel tells them, for tests that trust nobody's word.

Process ids are those of the root namespace unless the name says `inner`, so a test can signal
a process of any host directly. Times are seconds on the boot clock (`now()`), with the kernel's
resolution of 10 ms: that clock never jumps and is the same one for all hosts of a bed.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_LISTEN = "0A"
DEAD_STATES = frozenset("ZX")


@dataclass(frozen=True)
class Process:
    """One process at the moment of the look.

    `inner` is its id as its own host sees it (the one an agent reports), `exe` is empty for
    zombies and kernel threads, `started` is in seconds on the boot clock.
    """

    pid: int
    inner: int
    ppid: int
    group: int
    session: int
    state: str
    started: float
    uid: int
    exe: str
    argv: tuple[str, ...]
    namespace: int
    environ: dict[str, str] = field(repr=False)

    @property
    def tag(self) -> str | None:
        """What the run says about this process, or None when it belongs to no run."""
        return self.environ.get("TFMUX_TASK") or self.environ.get("TFMUX_AGENT")

    @property
    def alive(self) -> bool:
        """False for a zombie: dead, only not yet reaped."""
        return self.state not in DEAD_STATES


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket; `pids` are the processes (root namespace) that hold it open."""

    address: str
    port: int
    pids: tuple[int, ...]


def now() -> float:
    """Return the time on the clock that `Process.started` uses."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def pid_namespace(pid: int) -> int | None:
    """Return the inode of a process's PID namespace, or None when it is gone or not ours."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def look(pid: int) -> Process | None:
    """Read one process; None when it ended meanwhile."""
    base = Path("/proc", str(pid))
    try:
        stat = (base / "stat").read_bytes()
        status = (base / "status").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in brackets and may hold blanks and brackets itself.
    fields = stat[stat.rindex(b")") + 2 :].split()
    inner, uid = pid, 0
    for line in status.splitlines():
        if line.startswith(b"NSpid:"):
            inner = int(line.split()[-1])
        elif line.startswith(b"Uid:"):
            uid = int(line.split()[1])
    return Process(
        pid=pid,
        inner=inner,
        ppid=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        state=fields[0].decode(),
        started=int(fields[19]) / _TICK,
        uid=uid,
        exe=_exe(base),
        argv=tuple(_strings(base / "cmdline")),
        namespace=pid_namespace(pid) or 0,
        environ=dict(pair.split("=", 1) for pair in _strings(base / "environ") if "=" in pair),
    )


def scan(namespace: int | None = None) -> list[Process]:
    """Return all processes, or those of one PID namespace, in the order of their start."""
    found = []
    for pid in _pids():
        if namespace is None or pid_namespace(pid) == namespace:
            process = look(pid)
            if process is not None:
                found.append(process)
    return sorted(found, key=lambda process: (process.started, process.pid))


def signal_process(process: Process, number: signal.Signals) -> bool:
    """Send a signal to exactly that process; False when it is gone.

    Goes through a pidfd and compares the start time behind it, so a reused id is never hit.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        found = look(process.pid)
        if found is None or found.started != process.started:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def listening_ports(pid: int) -> set[int]:
    """Return the TCP ports that anything in this process's network namespace listens on."""
    return {port for _, port, _ in _listening(pid)}


def listeners(pid: int) -> list[Listener]:
    """Return the listening sockets of the host of `pid`, with the processes that hold them."""
    sockets = list(_listening(pid))
    owners: dict[str, list[int]] = {}
    for other in _pids_of(pid_namespace(pid)):
        for inode in _sockets(other):
            owners.setdefault(inode, []).append(other)
    return [
        Listener(address, port, tuple(owners.get(inode, ()))) for address, port, inode in sockets
    ]


def _listening(pid: int) -> Iterator[tuple[str, int, str]]:
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            lines = Path("/proc", str(pid), "net", name).read_text().splitlines()[1:]
        except (FileNotFoundError, ProcessLookupError, OSError):
            continue
        for line in lines:
            columns = line.split()
            if columns[3] == _LISTEN:
                address, port = columns[1].split(":")
                yield _address(family, address), int(port, 16), columns[9]


def _address(family: socket.AddressFamily, text: str) -> str:
    # The kernel prints an address as 32-bit words in the machine's own byte order.
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    return socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))


def _sockets(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _pids_of(namespace: int | None) -> list[int]:
    return [pid for pid in _pids() if pid_namespace(pid) == namespace]


def _exe(base: Path) -> str:
    try:
        return os.readlink(base / "exe")
    except OSError:
        return ""


def _strings(path: Path) -> list[str]:
    try:
        raw = path.read_bytes()
    except OSError:
        return []
    return [part.decode(errors="surrogateescape") for part in raw.split(b"\0") if part]
