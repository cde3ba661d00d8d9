"""`ScriptedRun`: a run without a launcher, whose tasks and logs a test moves by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.cluster.read import load
from launcher.errors import LauncherError
from launcher.history.control import MaskedText
from launcher.ids import TaskId
from launcher.run.gpus import GpuSample
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import Failure, HostReceipt, HostView, Receipt, Snapshot, TaskView
from launcher.run.stack_groups import Stacks
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from launcher.secret_values import SecretValues
from launcher.store.logs import LogFile, LogStore
from launcher.store.metric_lines import Extractor
from launcher.store.metrics import Series
from launcher.store.runs import RunFolder
from tests.support.streams import changes, end


def write_end(folder: RunFolder, started: float, ended: float, **fields: Any) -> None:
    """Writes the stream of a run that has ended: its first worker reached step 1200, and nothing
    is left on its hosts."""
    machine = RunStateMachine(load(folder.cluster_file), folder.run_id)
    views = machine.data
    for task in list(views.tasks):
        done: dict[str, Any] = {"attempt": 1, "state": TaskState.EXITED, "exit_code": 0}
        if task == TaskId("worker", 0):
            done |= {"step": 1200, "loss": 0.25}
        views.add(replace(views.tasks[task], ended=ended, **done))
    receipts = tuple(HostReceipt(host, confirmed=True) for host in views.hosts)
    views.add(fields.pop("receipt", Receipt(receipts, begun=True)))
    ways = {"outcome": Outcome.SUCCESS, "exit_code": 0, **fields}
    views.update_run(state=RunPhase.ENDED, started=started, ended=ended, **ways)
    lines = [*changes(machine, ended), end(machine, ended)]
    folder.events.write_bytes(b"".join(lines))


class ScriptedRun:
    """A `RunControl` over a real log store. What the screen asks for is kept in `asked`."""

    def __init__(self, folder: Path, ps: int = 1, workers: int = 2, hosts: int = 0) -> None:
        self._logs = LogStore(folder)
        self._lock = threading.RLock()
        self._series: dict[TaskId, Series] = {}
        self._extract: dict[TaskId, Extractor] = {}
        self.asked: list[str] = []
        self.looks: list[Future[Stacks]] = []
        """Questions for stacks; the test answers them."""
        self.samples: dict[str, Sequence[GpuSample]] = {}
        """Load of the GPUs of hosts."""
        self.values: SecretValues | None = None
        """What its launcher process knows of variables; None where it has none."""
        self.living = True
        self.standstill = ""
        self._listeners: list[Callable[[Snapshot], None]] = []
        names = [TaskId("ps", i) for i in range(ps)] + [TaskId("worker", i) for i in range(workers)]
        where = [f"tf{i % hosts + 1}" if hosts else "localhost" for i in range(len(names))]
        tasks = tuple(
            TaskView(
                id=name,
                host=host,
                address=f"{host}:2222",
                state=TaskState.PENDING,
                is_chief=name == TaskId("worker", 0),
                stage=0 if name.job == "ps" else 1 if name.index == 0 else 2,
            )
            for name, host in zip(names, where, strict=True)
        )
        self._snapshot = Snapshot(
            run_id="mnist-async-20261120-183002-7f3a",
            name="mnist-async",
            state=RunPhase.STARTING,
            tasks=tasks,
            hosts=tuple(HostView(h, h, HostState.UP) for h in dict.fromkeys(where)),
            started=time.time(),
        )

    # what a front end sees

    @property
    def logs(self) -> LogStore:
        return self._logs

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        self._listeners.append(listener)

    def series(self, task: TaskId) -> Series:
        return self._series.setdefault(task, Series())

    def gpu_samples(self, host: str) -> Sequence[GpuSample]:
        return self.samples.get(host, ())

    def kill_all(self, *, by_person: bool = True, force: bool = False) -> None:
        self.asked.append("kill_all force" if force else "kill_all")
        deadline = time.time() + 600  # a busy machine shows it later
        self.change(state=RunPhase.KILLING, kill_deadline=deadline, kill_asked=by_person)

    def press_kill(self) -> None:
        self.kill_all(force=self.snapshot().kill_asked)

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        self.asked.append(f"restart {task}{' hard' if hard else ''}")

    def signal(self, task: TaskId, name: str) -> None:
        self.asked.append(f"signal {task} {name}")

    def request_stacks(self, tasks: Sequence[TaskId] | None = None) -> Future[Stacks]:
        self.asked.append("stacks")
        self.looks.append(Future())
        return self.looks[-1]

    def mask_values(self, text: str) -> Future[MaskedText]:
        future: Future[MaskedText] = Future()
        if self.values is None:
            future.set_exception(LauncherError("no launcher process"))
        else:
            masked = self.values.mask(text)
            names = (tuple(self.values.unknown), tuple(self.values.short))
            future.set_result(MaskedText(masked, *names))
        return future

    def close(self, *, wait: bool = True) -> None:
        """Nobody looks any more."""

    def detach(self, *, wait: bool = True) -> None:
        self.asked.append("detach")

    def _tell(self) -> None:
        for listener in self._listeners:
            listener(self._snapshot)

    # what a test does

    def change(self, **fields: Any) -> None:
        """A new snapshot with other fields."""
        with self._lock:
            self._snapshot = replace(self._snapshot, **fields)
        self._tell()

    def task(self, name: str, **fields: Any) -> None:
        """A new snapshot in which one task has other fields."""
        with self._lock:
            tasks = tuple(
                replace(view, **fields) if str(view.id) == name else view
                for view in self._snapshot.tasks
            )
            self.change(tasks=tasks)

    def all_tasks(self, **fields: Any) -> None:
        """A new snapshot in which all tasks have other fields."""
        with self._lock:
            self.change(tasks=tuple(replace(view, **fields) for view in self._snapshot.tasks))

    def occupy_hosts(self, *states: HostState, now: float) -> None:
        """Gives each host a state and the load of one task."""
        hosts = tuple(
            HostView(
                f"tf{i + 1}",
                f"ubuntu@tf{i + 1}",
                state,
                lease_until=now + 14,
                last_heard=now - 1,
                cpu=0.25 * (i + 1),
                memory_used=2_000_000_000 * (i + 1),
                memory_total=8_000_000_000,
                usage={self._snapshot.tasks[i].id: (0.9, 512_000_000)},
            )
            for i, state in enumerate(states)
        )
        self.change(hosts=hosts)

    def write(self, name: str, data: bytes, now: float | None = None) -> None:
        """Bytes that a task has printed; metric lines count."""
        task = TaskId.parse(name)
        when = time.time() if now is None else now
        log = self._logs.open(task)
        log.append(log.size, data, when)
        self._tell()
        points = list(self._extract.setdefault(task, Extractor()).feed(data, when))
        for point in points:
            self.series(task).add(point)
        if points and "step" in (values := points[-1].values):
            self.task(
                name,
                state=TaskState.RUNNING,
                step=int(values["step"]),
                loss=values.get("loss"),
                rate=self._extract[task].rate,
                last_output=when,
            )

    def end(
        self,
        outcome: Outcome = Outcome.SUCCESS,
        exit_code: int = 0,
        failure: Failure | None = None,
        receipt: Receipt | None = None,
    ) -> None:
        """The run ends, with a clean receipt unless another is given."""
        hosts = tuple(
            HostReceipt(host.name, signalled=3, confirmed=True, seconds=0.2)
            for host in self._snapshot.hosts
        )
        self.change(
            state=RunPhase.ENDED,
            outcome=outcome,
            exit_code=exit_code,
            ended=time.time(),
            first_failure=failure,
            receipt=receipt or Receipt(hosts),
            kill_deadline=None,
        )


STEP = (
    b"After %d training steps (%d global steps), loss on training batch is %.4f."
    b"  (0.010 sec/batch)\n"
)


def append(log: LogFile, *lines: str, end: str = "\n") -> None:
    """Appends lines to a log."""
    log.append(log.size, ("\n".join(lines) + end).encode(), 1.0)
