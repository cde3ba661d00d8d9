"""Processes as the kernel tells them, for tests that trust nobody's word.

Process ids are those of the root namespace unless the name says `inner`, so a test can signal
a process of any host directly. Times are seconds on the boot clock (`now()`), with the kernel's
resolution of 10 ms: that clock never jumps and is the same one for all hosts of a testbed.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.patience import PATIENCE, pauses

_TICK = os.sysconf("SC_CLK_TCK")
DEAD_STATES = frozenset("ZX")


@dataclass(frozen=True)
class Process:
    """One process at the moment of the look; two looks at the same process are equal.

    `inner` is its id as its own host sees it (the one an agent reports), `exe` is empty for
    zombies and kernel threads, `started` is in seconds on the boot clock.
    """

    pid: int
    started: float
    inner: int = field(compare=False)
    ppid: int = field(compare=False)
    group: int = field(compare=False)
    session: int = field(compare=False)
    state: str = field(compare=False)
    uid: int = field(compare=False)
    exe: str = field(compare=False)
    argv: tuple[str, ...] = field(compare=False)
    namespace: int = field(compare=False)
    environ: dict[str, str] = field(compare=False, repr=False)

    @property
    def tag(self) -> str | None:
        """What the run says about this process, or None when it belongs to no run."""
        return self.environ.get("TFMUX_TASK") or self.environ.get("TFMUX_AGENT")

    @property
    def alive(self) -> bool:
        """False for a zombie: dead, only not yet reaped."""
        return self.state not in DEAD_STATES


def now() -> float:
    """Return the time on the clock that `Process.started` uses."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def next_tick() -> float:
    """Wait until processes that start have a later `Process.started` than all before them, at
    least what is returned: 10 ms."""
    tick = int(now() * _TICK) + 1
    while (left := tick / _TICK - now()) > 0:
        time.sleep(left)
    return tick / _TICK


def pid_namespace(pid: int) -> int | None:
    """Return the inode of a process's PID namespace, or None when it is gone or not ours."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def read(pid: int) -> Process | None:
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


def children(pid: int) -> list[Process]:
    """Return the processes whose parent `pid` is; none when it is gone."""
    try:
        words = Path("/proc", str(pid), "task", str(pid), "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [process for word in words if (process := read(int(word))) is not None]


def scan(namespace: int | None = None, having: str = "", saying: str = "") -> list[Process]:
    """Return processes in the order of their start. A process that is left out costs a tenth of
    one that is read.

    Args:
        namespace: only those of this PID namespace.
        having: only those with this text in their environment.
        saying: only those with this text in their arguments.
    """
    found = []
    for name in os.listdir("/proc"):
        if (
            name.isdigit()
            and (namespace is None or pid_namespace(int(name)) == namespace)
            and (not having or having.encode() in _environ(name))
            and (not saying or saying.encode() in _read(f"/proc/{name}/cmdline"))
        ):
            process = read(int(name))
            if process is not None:
                found.append(process)
    return sorted(found, key=lambda process: (process.started, process.pid))


def without_forks(found: list[Process]) -> list[Process]:
    """Return those whose parent is not among them: until its exec a child looks like its parent."""
    pids = {process.pid for process in found}
    return [process for process in found if process.ppid not in pids]


def signal_process(process: Process, number: signal.Signals) -> bool:
    """Send a signal to exactly that process; False when it is gone.

    Goes through a pidfd and compares the start time behind it, so a reused id is never hit.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if read(process.pid) != process:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_gone(process: Process, timeout: float = PATIENCE) -> bool:
    """Wait until a process has ended; False when it lives on. A zombie has ended."""
    deadline = time.monotonic() + timeout
    while (found := read(process.pid)) == process and found is not None and found.alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _exe(base: Path) -> str:
    try:
        return os.readlink(base / "exe")
    except OSError:
        return ""


def _environ(pid: str) -> bytes:
    """Environment of a process, as it is after an exec: in it, a process shows for a moment neither
    arguments nor environment, and kernel threads have no program."""
    for seconds in pauses(0.001, 1.0):
        if (found := _read(f"/proc/{pid}/environ")) or _read(f"/proc/{pid}/cmdline"):
            return found
        if not _exe(Path("/proc", pid)):
            break
        time.sleep(seconds)
    return b""


def _strings(path: Path) -> list[str]:
    return [part.decode(errors="surrogateescape") for part in _read(path).split(b"\0") if part]


def _read(path: str | Path) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
