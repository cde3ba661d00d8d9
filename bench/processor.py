"""Processor seconds of processes, figures that hold on a busy machine, and their memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from launcher.agent import processes
from launcher.store.runs import RunFolder


def seconds(pid: int) -> float:
    """Processor seconds of the threads of a process so far, to the nanosecond; 0 once it has
    gone."""
    total = 0
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return 0.0
    for thread in threads:
        try:
            total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
        except OSError:
            continue  # the thread has just ended
    return total / 1e9


def of_run(folder: RunFolder, screen: int) -> dict[str, list[int]]:
    """The processes of a run on this machine, by what they are; its tasks are not among them."""
    launcher = folder.launcher_pid() or 0
    found: dict[str, list[int]] = {"UI": [screen], "launcher": [launcher], "agent": []}
    wanted = f"{folder.run_id};".encode()
    for process in processes.table().values():
        if processes.variable(process.pid, processes.AGENT_TAG) == wanted:
            found["agent"].append(process.pid)
    return found


def sample(processes: Mapping[str, list[int]]) -> dict[str, float]:
    """Processor seconds so far of each group of processes."""
    return {name: sum(map(seconds, pids)) for name, pids in processes.items()}


def own_megabytes(pid: int) -> float:
    """Memory of a process; a page shared by several counts for each with its share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1000
    return 0.0
