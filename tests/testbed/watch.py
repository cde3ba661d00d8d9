"""An eyewitness of the order in which things begin on the hosts, independent of any log."""

from __future__ import annotations

import itertools
import threading
from types import TracebackType

from tests.testbed import TestbedError, proc, sockets
from tests.testbed.host import Host
from tests.testbed.proc import Process

_PERIOD = 0.005
_LOOKS_PER_SCAN = 8  # the kernel keeps start times, so processes may be looked at less often


class Watch:
    """Looks at hosts' ports every few milliseconds, and at their tagged processes, in a thread.

    All times are on the boot clock of `proc.now()`. A port has begun to listen at some moment
    between `closed_until` and `open_from`. A process's start comes from the kernel and is
    exact to 10 ms, so "started before the port listened" is proved by
    `process.started < watch.closed_until(...)`.
    """

    def __init__(self, *hosts: Host) -> None:
        self._hosts = hosts
        self._closed: dict[tuple[str, int], float] = {}
        self._open: dict[tuple[str, int], float] = {}
        self._looked: dict[str, float] = {}
        self._processes: dict[tuple[str, int, float], Process] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="watch")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def listens(self, host: Host, port: int) -> bool:
        """Whether the port has been seen listening so far."""
        return (host.name, port) in self._open

    def closed_until(self, host: Host, port: int) -> float:
        """Return when the port was last seen not listening before it listened for the first time.

        Raises:
            KeyError: it never listened, or did so from the start.
        """
        if (host.name, port) not in self._open:
            raise KeyError(f"nothing listened on {host.name}:{port}")
        return self._closed[host.name, port]

    def open_from(self, host: Host, port: int) -> float:
        """Return when the port was first seen listening.

        Raises:
            KeyError: it never was.
        """
        return self._open[host.name, port]

    def processes(self, tag: str, host: Host | None = None) -> list[Process]:
        """Return the processes seen with `tag` as a part of their tag, in the order of start."""
        found = [
            process
            for (name, _, _), process in self._processes.items()
            if tag in (process.tag or "") and (host is None or host.name == name)
        ]
        return sorted(found, key=lambda process: process.started)

    def first_start(self, tag: str, host: Host | None = None) -> float:
        """Return when the first of `processes(tag)` started.

        Raises:
            LookupError: none was seen.
        """
        found = self.processes(tag, host)
        if not found:
            raise LookupError(f"no process with {tag!r} in its tag was seen")
        return found[0].started

    def _poll(self) -> None:
        for count in itertools.count():
            if self._stop.wait(_PERIOD):
                return
            for host in self._hosts:
                try:
                    self._ports(host)
                    if count % _LOOKS_PER_SCAN == 0:
                        self._tasks(host)
                except (TestbedError, OSError):
                    continue  # the host is down, or went down under our eyes

    def _ports(self, host: Host) -> None:
        before = self._looked.get(host.name)
        moment = proc.now()
        for port in sockets.listening_ports(host.pid):
            if (host.name, port) not in self._open:
                self._open[host.name, port] = proc.now()
                if before is not None:
                    self._closed[host.name, port] = before
        self._looked[host.name] = moment

    def _tasks(self, host: Host) -> None:
        for process in host.processes():
            if process.tag is not None:
                self._processes[host.name, process.pid, process.started] = process
