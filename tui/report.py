"""The end of a run as plain text for stderr: states, the first failure, the receipt."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from launcher.printable import printable
from launcher.run.snapshot import HostReceipt, Receipt, Snapshot, TaskView
from launcher.run.states import HostState, Outcome
from tui.format import clock, figure, thousands


def report(snapshot: Snapshot, folder: Path) -> str:
    """What a person wants to read after the screen has closed."""
    return "\n".join(map(printable, _lines(snapshot, folder)))


def receipt_lines(receipt: Receipt, run_id: str) -> Iterator[str]:
    """The receipt, a line a host and a line a survivor; the command that finishes the job
    where something is not confirmed."""
    for host in receipt.hosts:
        yield printable(f"{host.host}: {_verdict(host)}")
        for survivor in host.survivors:
            words = f"pid {survivor.pid} ({survivor.state}) {survivor.command}"
            yield printable(f"{host.host}: {words}")
    if receipt.clean:
        yield "nothing is left on any host"
    else:
        yield f"not confirmed on every host; finish with: tfmux kill {run_id}"


def _lines(snapshot: Snapshot, folder: Path) -> Iterator[str]:
    took = clock((snapshot.ended or time.time()) - snapshot.started)
    yield f"run {snapshot.run_id}: {snapshot.outcome or snapshot.state} after {took}"
    for task in snapshot.tasks:
        if task.attempt:
            yield f"  {task.id} on {task.host}: {_task(task)}"
    for host in snapshot.hosts:
        if host.state is HostState.REFUSED:
            yield f"{host.name} ({host.destination}): {host.reason}"
    failure = snapshot.first_failure
    if failure is not None:
        yield f"first failure: {failure.task} on {failure.host}: {failure.how}"
        yield from (f"  | {line}" for line in failure.tail)
        if failure.others:
            yield "  then: " + ", ".join(str(task) for task in failure.others)
    if snapshot.receipt is not None and snapshot.receipt.hosts:
        yield from receipt_lines(snapshot.receipt, snapshot.run_id)
    if snapshot.launcher_error:
        yield f"the launcher failed: {snapshot.launcher_error}"
    yield from snapshot.results_missing
    if snapshot.outcome is Outcome.PREFLIGHT:
        yield "nothing was started"
    if snapshot.outcome is Outcome.DETACHED:
        yield f"the run goes on; come back with: tfmux attach {snapshot.run_id}"
    yield f"logs: {folder}"


def _task(task: TaskView) -> str:
    words = [task.how]
    if task.reason:
        words.append(f"({task.reason})")
    if task.step is not None:
        words.append(f"step {thousands(task.step)}")
    if task.loss is not None:
        words.append(f"loss {figure(task.loss)}")
    if task.attempt > 1:
        words.append(f"{task.attempt} attempts")
    return " ".join(words)


def _verdict(host: HostReceipt) -> str:
    if host.confirmed:
        left = f"{len(host.survivors)} left" if host.survivors else "none left"
        count = f"{host.signalled} process{'' if host.signalled == 1 else 'es'} signalled"
        return f"{count}, {left}, confirmed in {host.seconds:.2f} s"
    if host.seconds:
        return "not confirmed; the notes say why"
    if host.unreachable_until is not None:
        until = time.strftime("%H:%M:%S", time.localtime(host.unreachable_until))
        return f"unreachable; its agent acts by itself at {until} at the latest"
    return "unreachable"
