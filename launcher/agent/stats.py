"""CPU, memory and GPUs of the host, and each task's share."""

from __future__ import annotations

import os
import time
from typing import Mapping

from .nvidia_smi import NvidiaSmi
from .processes import Process
from .wire import TASK_NAME, Json

_TICK = float(os.sysconf("SC_CLK_TCK"))


class StatsSampler:
    """Sampler of shares since the last sample; the first sample has no CPU figures."""

    def __init__(self) -> None:
        self._at = 0.0
        self._ticks: dict[tuple[int, int], int] = {}
        self._machine: tuple[int, int] | None = None
        self.gpus = NvidiaSmi()

    def sample(self, members: Mapping[int, tuple[Process, str]]) -> Json:
        """CPU in cores (of the machine: 0–1), memory in bytes, GPUs with their
        processes."""
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
        self._at, self._ticks = now, ticks
        busy = self._machine_busy()
        total, available = memory()
        gpus, gpu_problem = self.gpus.sample(members)
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

    def _machine_busy(self) -> float | None:
        with open("/proc/stat") as file:
            fields = [int(word) for word in file.readline().split()[1:9]]
        idle, total = fields[3] + fields[4], sum(fields)
        before, self._machine = self._machine, (idle, total)
        if before is None or total == before[1]:
            return None
        return round(1 - (idle - before[0]) / (total - before[1]), 3)

    def close(self) -> None:
        """Ends `nvidia-smi` and the threads that wait for it."""
        self.gpus.close()


def memory() -> tuple[int, int]:
    """The machine's memory and what of it can still be had, in bytes."""
    found = {}
    with open("/proc/meminfo") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found[name] = int(rest.split()[0]) * 1024
    return found.get("MemTotal", 0), found.get("MemAvailable", 0)
