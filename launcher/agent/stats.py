"""CPU, memory and GPUs of the host, and each task's share."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Mapping

from .processes import Process
from .threads import start_thread
from .wire import TASK_NAME, Json

if TYPE_CHECKING:
    import subprocess
    import threading

_TICK = float(os.sysconf("SC_CLK_TCK"))
_GPU_QUERY = "--query-gpu=index,name,utilization.gpu,memory.used,memory.total"


class StatsSampler:
    """Sampler of shares since the last sample; the first sample has no CPU figures."""

    def __init__(self) -> None:
        self._at = 0.0
        self._ticks: dict[tuple[int, int], int] = {}
        self._machine: tuple[int, int] | None = None
        self._gpus = _Gpus()

    def sample(self, members: Mapping[int, tuple[Process, str]]) -> Json:
        """CPU in cores (of the machine: 0–1), memory in bytes, GPUs as nvidia-smi prints them."""
        now = time.monotonic()
        passed = now - self._at if self._at else 0.0
        usage: dict[str, list[float]] = {}
        ticks = {}
        for process, who in members.values():
            key = (process.pid, process.start)
            ticks[key] = process.ticks
            share = usage.setdefault(who, [0.0, 0])
            if passed:
                share[0] += (process.ticks - self._ticks.get(key, 0)) / _TICK / passed
            share[1] += process.rss
        self._at, self._ticks = now, ticks
        busy = self._machine_busy()
        total, available = memory()
        return {
            "cpu": busy,
            "memory_total": total,
            "memory_used": total - available,
            "gpus": self._gpus.lines(),
            "tasks": {
                task: (round(cpu, 3), int(rss))
                for task, (cpu, rss) in usage.items()
                if TASK_NAME.fullmatch(task)
            },
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
        """Ends `nvidia-smi` and the thread that waits for it."""
        self._gpus.close()


class _Gpus:
    """Output of `nvidia-smi`, which runs in a thread of its own: it takes a second and may hang.
    Being that thread's child, it has no part in what the kernel says of the agent's children."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None

    def lines(self) -> list[str]:
        """The last answer; asks anew unless it is still being waited for."""
        if self._thread is None or not self._thread.is_alive():
            with suppress(OSError):  # no thread can be started
                self._thread = start_thread(self._ask, "gpus")
        return self._lines

    def close(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def _ask(self) -> None:
        program = shutil.which("nvidia-smi")
        if program is None:
            return
        import subprocess  # here and not above: most hosts have no GPU, and it takes 4 ms

        self._process = subprocess.Popen(
            [program, _GPU_QUERY, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        said, _ = self._process.communicate()
        self._process = None
        self._lines = [line.strip() for line in said.splitlines() if line.strip()]


def memory() -> tuple[int, int]:
    """The machine's memory and what of it can still be had, in bytes."""
    found = {}
    with open("/proc/meminfo") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found[name] = int(rest.split()[0]) * 1024
    return found.get("MemTotal", 0), found.get("MemAvailable", 0)
