"""Allocation of a run: the job of an engine that the run's hosts are the nodes of.

An engine (such as Slurm) queues the request, gives nodes, and takes them back. It also has a word
on what is left on them, which stands in the receipt beside that of the agents.
"""

from __future__ import annotations

from dataclasses import replace

from . import events as ev
from .instructions import ConnectHosts, Instruction
from .shutdown import Shutdown
from .state import RunData
from .states import Cause, RunPhase


class Allocations:
    """Waits in the queue, takes nodes over, and knows what follows when they are taken away."""

    def __init__(self, data: RunData, shutdown: Shutdown) -> None:
        self._data = data
        self._shutdown = shutdown

    def on_queued(self, event: ev.Queued) -> list[Instruction]:
        """The request stands elsewhere in the queue; what hinders it is said once. A run that waits
        there has started nothing."""
        data = self._data
        before = data.allocation
        if before is None or not data.awaits_nodes:
            return []
        now = replace(
            before,
            job=event.job,
            state=event.state,
            reason=event.reason,
            expected=event.expected,
            advice=event.advice,
        )
        data.update_run(allocation=now)
        if now.advice and now.advice != before.advice:
            data.note(f"{now.title}: {now.advice}")
        if not event.state:
            return []
        for host in data.host_records:
            data.update_host(host, contacted=False)
        return self._shutdown.check_receipts()

    def on_allocated(self, event: ev.Allocated) -> list[Instruction]:
        """The nodes are the hosts from now on."""
        data = self._data
        if data.allocation is None or not data.awaits_nodes:
            return []
        data.update_allocation(state="RUNNING", reason="", expected=None)
        data.add_nodes(event.nodes)
        nodes = ", ".join(f"{host} = {node.name}" for host, node in event.nodes.items())
        data.note(f"{data.allocation.title}: {nodes}")
        if data.phase is RunPhase.QUEUED:
            data.update_run(state=RunPhase.CONNECTING, waiting_since=event.time)
        return [ConnectHosts()]

    def on_ended(self, event: ev.AllocationEnded) -> list[Instruction]:
        """Slurm refused the job, or the job has ended (cancelled, time limit, node failure)."""
        data = self._data
        if data.allocation is None or data.allocation.ended:
            return []
        data.update_allocation(state=event.state, ended=event.reason)
        data.note(event.reason)
        out: list[Instruction] = []
        if data.phase is not RunPhase.KILLING:
            out = self._shutdown.kill_all(Cause.OUTSIDE if data.begun else Cause.PREFLIGHT)
        return [*out, *self._shutdown.settle_lost()]

    def on_released(self, event: ev.AllocationReleased) -> list[Instruction]:
        """The engine has been told; its word goes into the receipt."""
        data = self._data
        if data.allocation is None or data.phase is not RunPhase.KILLING:
            return []
        ended = data.allocation.ended
        data.update_allocation(
            state=event.state or data.allocation.state,
            released=event.text,
            ended=event.reason if ended and event.state else ended,
        )
        for host, word in event.words.items():
            receipt = data.host_records[host].receipt
            if receipt is None:
                continue
            receipt = replace(receipt, engine=word.text)
            if word.gone and (receipt.survivors or not receipt.confirmed):
                receipt = replace(receipt, survivors=(), unlisted=0, confirmed=True, by_engine=True)
            data.host_records[host].receipt = receipt
        return self._shutdown.on_released()
