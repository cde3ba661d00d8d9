"""Gauges of a run: what is seen of its hosts and tasks while they run, and decides nothing.

With the events they are all that changes the record. Figures that change all the time are written
by methods, since a story of a run is none of figures; what happens now and then comes as events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ids import TaskId
from . import events as ev
from .gpus import GpuView
from .instructions import Instruction
from .state import RunData


class Gauges:
    """Writes figures into the record of one run."""

    def __init__(self, data: RunData) -> None:
        self._data = data

    # --- figures --------------------------------------------------------------------------

    def output(self, task: TaskId, last: float, size: int) -> None:
        """Sets the time of a task's last output, and the bytes of its log."""
        self._data.update_task(task, last_output=last, log_size=size)

    def log_size(self, task: TaskId, size: int) -> None:
        """Sets the bytes of a task's log."""
        self._data.update_task(task, log_size=size)

    def metrics(self, task: TaskId, figures: Mapping[str, Any]) -> None:
        """Sets a task's newest figures (`store.metrics.LatestMetrics.figures`)."""
        self._data.update_task(task, **figures)

    def load(
        self,
        host: str,
        cpu: float | None,
        memory_used: int,
        memory_total: int,
        usage: Mapping[TaskId, tuple[float, int]],
    ) -> None:
        """Sets a host's load, and each live task's share of it."""
        self._data.update_host(
            host, cpu=cpu, memory_used=memory_used, memory_total=memory_total, usage=usage
        )

    def gpus(self, host: str, gpus: tuple[GpuView, ...], problem: str) -> None:
        """Sets what is known of a host's GPUs."""
        self._data.update_host(host, gpus=gpus, gpu_problem=problem)

    def record_host(self, host: str) -> None:
        """Has a host recorded with its newest figures."""
        self._data.add(self._data.hosts[host])

    def heard(self, host: str, when: float) -> None:
        """Sets when a host was heard last, in whole seconds, as people are shown it."""
        self._data.update_host(host, last_heard=float(int(when)))

    def sent(self, host: str, size: int, total: int, files: int, total_files: int) -> None:
        """Sets how many bytes and files, of those that it lacks, have gone to a host."""
        self._data.update_host(
            host,
            staged_bytes=size,
            staged_total=total,
            staged_files=files,
            staged_total_files=total_files,
        )

    def brought(self, host: str, size: int, total: int) -> None:
        """Sets how many bytes of a host's results, of how many, have come back."""
        self._data.update_host(host, collected_bytes=size, collected_total=total)

    def waiting(self, text: str | None) -> None:
        """Says anew who is waited for; None: as the run knows it."""
        self._data.refresh_waiting(text)

    # --- events ---------------------------------------------------------------------------

    def on_stalled(self, event: ev.TasksStalled) -> list[Instruction]:
        """Shows tasks as stalled."""
        for task, since in event.since.items():
            if self._data.tasks[task].state.live:
                self._data.update_task(task, stalled_since=since)
        return []

    def on_goes_on(self, event: ev.TaskGoesOn) -> list[Instruction]:
        """Shows a task as stalled no more."""
        self._data.update_task(event.task, stalled_since=None)
        return []

    def on_halted(self, event: ev.TaskHalted) -> list[Instruction]:
        """Shows that a live task is stopped or waits in the kernel, or does not any more."""
        if self._data.tasks[event.task].state.live:
            self._data.update_task(event.task, halted=event.halt, halted_since=event.since)
        return []

    def on_forwarded(self, event: ev.Forwarded) -> list[Instruction]:
        """Shows where a live task's port is on this machine."""
        if self._data.tasks[event.task].state.live:
            self._data.update_task(event.task, url=event.url)
        return []

    def on_clock_set(self, event: ev.ClockSet) -> list[Instruction]:
        """Moves the times by which a person is told how long something has lasted."""
        run = self._data.run
        since = run.waiting_since
        self._data.update_run(
            started=max(0.0, run.started + event.by),
            waiting_since=since and max(0.0, since + event.by),
        )
        for task, view in list(self._data.tasks.items()):
            if (stalled := view.stalled_since) is not None:
                self._data.update_task(task, stalled_since=max(0.0, stalled + event.by))
        return []
