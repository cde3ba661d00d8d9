"""Drives a run that begins in the queue of Slurm."""

from __future__ import annotations

from typing import Any

from launcher.plan.facts import HostFacts
from launcher.run import events as ev
from launcher.run.instructions import Instruction
from launcher.run.snapshot import AllocatedNode, HostReceipt
from tests.support.cluster_texts import cluster_text
from tests.support.run_driver import RunDriver

ON_SLURM = cluster_text(
    {"worker": "node0:2222 node1:2222"},
    "t",
    command=["x"],
    grace=5,
    lease=60,
    slurm={"nodes": 2, "time": "10"},
)


NODES = {
    "node0": AllocatedNode("sl1", ("srun", "-w", "sl1")),
    "node1": AllocatedNode("sl2", ("srun", "-w", "sl2")),
}


class QueueDriver(RunDriver):
    """A run that begins in the queue."""

    def __init__(self, success: str = "chief") -> None:
        super().__init__(f'success = "{success}"\n', text=ON_SLURM)
        self.feed(ev.Begin)

    def queue(self, state: str = "PENDING", **said: Any) -> list[Instruction]:
        return self.feed(ev.Queued, "7", state, **said)

    def begin(self) -> None:
        """Nodes are given, agents are there, and the tasks run."""
        self.queue()
        self.feed(ev.Allocated, NODES)
        self.up("node0", "node1")
        self.feed(ev.HostsChecked, {name: HostFacts(home="/h") for name in NODES})
        self.feed(ev.Staged, "node0")
        self.feed(ev.Staged, "node1")

    def confirm(self, *hosts: str) -> list[Instruction]:
        """Agents' receipts."""
        return [
            i
            for host in hosts
            for i in self.feed(
                ev.ReceiptReceived, HostReceipt(host, signalled=1, confirmed=True), None
            )
        ]

    def released(self, **words: ev.EngineWord) -> list[Instruction]:
        return self.feed(ev.AllocationReleased, "Slurm 7 is released", words)

    def ended(self) -> list[Instruction]:
        return self.feed(ev.AllocationEnded, "Slurm 7 has ended: TIMEOUT", "TIMEOUT")
