"""CPU, memory and GPUs of the host, and each task's share."""

from __future__ import annotations

import os
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
_LOAD = "--query-gpu=index,name,utilization.gpu,memory.used,memory.total"
_LIST = "--query-gpu=index,name,driver_version,memory.total"
_LIST_SECONDS = 15.0


class StatsSampler:
    """Sampler of shares since the last sample; the first sample has no CPU figures."""

    def __init__(self) -> None:
        self._at = 0.0
        self._ticks: dict[tuple[int, int], int] = {}
        self._machine: tuple[int, int] | None = None
        self.gpus = NvidiaSmi()

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
            "gpus": self.gpus.lines(),
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
        """Ends `nvidia-smi` and the threads that wait for it."""
        self.gpus.close()


class NvidiaSmi:
    """What `nvidia-smi` prints. It takes a second and may hang: threads wait for it. Being such a
    thread's child, it has no part in what the kernel says of the agent's children."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._thread: threading.Thread | None = None
        self._processes: set[subprocess.Popen[str]] = set()

    def lines(self) -> list[str]:
        """The last answer about their load; asks anew unless one is still being waited for."""
        if self._thread is None or not self._thread.is_alive():
            with suppress(OSError):  # no thread can be started
                self._thread = start_thread(self._ask_load, "gpus")
        return self._lines

    def listed(self) -> Json:
        """The GPUs, each with index, name, driver and memory. `why` is what nvidia-smi says of
        those that it does not list, or of itself: of a GPU that is lost, or has a defect, it prints
        a sentence between these rows."""
        said = self._run([_LIST, "--format=csv,noheader"], _LIST_SECONDS)
        if said is None:
            return {"gpus": [], "why": f"nvidia-smi did not answer in {_LIST_SECONDS:.0f} s"}
        listed, why = [], ""
        for line in said.splitlines():
            row = [field.strip() for field in line.split(",")]
            if len(row) == 4 and row[0].isdigit():
                listed.append(row)
            elif line.strip() and not line.startswith("No devices"):
                why = why or line.strip()[:200]
        return {"gpus": listed, "why": why}

    def close(self) -> None:
        """Ends the programs that threads wait for."""
        for process in tuple(self._processes):
            process.kill()

    def _ask_load(self) -> None:
        said = self._run([_LOAD, "--format=csv,noheader,nounits"]) or ""
        rows = [line.strip() for line in said.splitlines()]
        self._lines = [row for row in rows if row.count(",") == _LOAD.count(",")]

    def _run(self, words: list[str], seconds: float | None = None) -> str | None:
        """Output of `nvidia-smi`, empty where there is none; None when it did not end in time."""
        program = _found("nvidia-smi")
        if not program:
            return ""
        import subprocess  # here and not above: most hosts have no GPU, and it takes 4 ms

        process = subprocess.Popen(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
        )
        self._processes.add(process)
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return None
        finally:
            self._processes.discard(process)


def memory() -> tuple[int, int]:
    """The machine's memory and what of it can still be had, in bytes."""
    found = {}
    with open("/proc/meminfo") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found[name] = int(rest.split()[0]) * 1024
    return found.get("MemTotal", 0), found.get("MemAvailable", 0)


def _found(name: str) -> str:
    """The path of a program; empty where there is none. `shutil` would import libraries of
    compression, on each host of a launch."""
    paths = (os.path.join(folder, name) for folder in os.get_exec_path())
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")
