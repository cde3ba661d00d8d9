"""CPU, memory and GPUs of the host, and each task's share."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Mapping

from .processes import Process, path_of
from .terminals import reads_terminal
from .threads import start_thread
from .wire import TASK_NAME, Json

if TYPE_CHECKING:
    from .nvidia_smi import NvidiaSmi

_TICK = float(os.sysconf("SC_CLK_TCK"))
_SEARCH_SECONDS = 60.0
"""A host without `nvidia-smi` is looked at again so often."""


class StatsSampler:
    """Sampler of shares since the last sample; the first sample has no CPU figures."""

    def __init__(self) -> None:
        self._at = 0.0
        self._ticks: dict[tuple[int, int], int] = {}
        self._machine: tuple[int, int] | None = None
        self._gpus: NvidiaSmi | None = None
        self._making = threading.Lock()
        self._thread: threading.Thread | None = None
        """Looks for the program that tells of GPUs."""
        self._search_at = 0.0
        self._looking: threading.Thread | None = None
        """Looks for tasks that read from their terminals."""
        self._reading: set[str] = set()
        """The tasks that it has found last."""

    def sample(
        self, members: Mapping[int, tuple[Process, str]], terminals: Mapping[str, bool]
    ) -> Json:
        """CPU in cores (of the machine: 0–1), memory in bytes, GPUs with their processes.
        `terminals`: the tasks that have one, and whether it hides what is typed."""
        now = time.monotonic()
        passed = now - self._at if self._at else 0.0
        usage: dict[str, list[float]] = {}
        ticks = {}
        halted: dict[str, str] = {}
        for process, who in members.values():
            key = (process.pid, process.start)
            # One that reads from a disk is in D at most looks, and gets on; one that hangs does
            # not.
            if process.state == "T":
                halted[who] = "T"
            elif process.state == "D" and self._ticks.get(key) == process.ticks:
                halted.setdefault(who, "D")
            ticks[key] = process.ticks
            share = usage.setdefault(who, [0.0, 0])
            if passed:
                share[0] += (process.ticks - self._ticks.get(key, 0)) / _TICK / passed
            share[1] += process.rss
        for task in self._find_waiting(members, terminals):
            halted.setdefault(task, "I")
        self._at, self._ticks = now, ticks
        busy = self._machine_busy()
        total, available = memory()
        searching = self._thread is not None and self._thread.is_alive()
        if self._gpus is None and now >= self._search_at and not searching:
            self._search_at = now + _SEARCH_SECONDS
            with suppress(OSError):  # no thread can be started
                self._thread = start_thread(self._search, "gpus")
        gpus, gpu_problem = ([], "") if self._gpus is None else self._gpus.sample(members)
        return {
            "cpu": busy,
            "memory_total": total,
            "memory_used": total - available,
            "gpus": gpus,
            "gpu_problem": gpu_problem,
            "tasks": {
                task: (round(cpu, 3), int(rss))
                for task, (cpu, rss) in usage.items()
                if TASK_NAME.fullmatch(task)
            },
            "halted": {task: state for task, state in halted.items() if TASK_NAME.fullmatch(task)},
        }

    def _find_waiting(
        self, members: Mapping[int, tuple[Process, str]], terminals: Mapping[str, bool]
    ) -> set[str]:
        """Tasks that wait for input from their terminals: all of their processes sleep, and have
        done nothing since the last look. Which of those read is looked for in a thread, and known
        at the next look."""
        still: dict[str, list[int]] = {}
        for process, task in members.values():
            if task in terminals:
                idle = self._ticks.get((process.pid, process.start)) == process.ticks
                still.setdefault(task, []).append(
                    process.pid if idle and process.state == "S" else 0
                )
        still = {task: pids for task, pids in still.items() if all(pids)}
        if still and not (self._looking is not None and self._looking.is_alive()):
            with suppress(OSError):  # no thread can be started
                self._looking = start_thread(lambda: self._look(still, terminals), "terminals")
        return self._reading & set(still)

    def _look(self, tasks: Mapping[str, list[int]], hides: Mapping[str, bool]) -> None:
        found = set()
        for task, pids in tasks.items():
            reads = [reads_terminal(pid) for pid in pids]
            if True in reads or (None in reads and hides[task]):
                found.add(task)
        self._reading = found

    def _machine_busy(self) -> float | None:
        with open("/proc/stat") as file:
            fields = [int(word) for word in file.readline().split()[1:9]]
        idle, total = fields[3] + fields[4], sum(fields)
        before, self._machine = self._machine, (idle, total)
        if before is None or total == before[1]:
            return None
        return round(1 - (idle - before[0]) / (total - before[1]), 3)

    def list_gpus(self, members: Mapping[int, tuple[Process, str]]) -> Json:
        """The GPUs by an answer of now, for a thread that may wait."""
        self._search()
        return {"gpus": [], "why": ""} if self._gpus is None else self._gpus.listed(members)

    def _search(self) -> None:
        """Looks for `nvidia-smi`, in a thread: the disks on `PATH` may hang. Hosts without it get
        along without the module."""
        if self._gpus is None and path_of("nvidia-smi"):
            from .nvidia_smi import NvidiaSmi

            with self._making:
                self._gpus = self._gpus or NvidiaSmi()

    def close(self) -> None:
        """Ends `nvidia-smi` and the threads that wait for it."""
        if self._gpus is not None:
            self._gpus.close()


def memory() -> tuple[int, int]:
    """The machine's memory and what of it can still be had, in bytes."""
    found = {}
    with open("/proc/meminfo") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found[name] = int(rest.split()[0]) * 1024
    return found.get("MemTotal", 0), found.get("MemAvailable", 0)
