"""A cluster on the Slurm testbed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.paths import runs_home
from tests.support import command
from tests.support import fault_tasks as tasks
from tests.support.command import Up
from tests.support.fault_tasks import Ledger
from tests.testbed.proc import Process
from tests.testbed.slurm import SlurmBed

ALL = ("ps:0", "worker:0", "worker:1", "worker:2")


class Scenario:
    """A bed, and cluster files for it."""

    def __init__(self, bed: SlurmBed, folder: Path) -> None:
        self.bed = bed
        self.folder = folder
        self.ledger = bed.folder / "ledger"

    def file(
        self,
        *,
        nodes: int = 4,
        slurm: str = "",
        modes: str = "stubborn daemon child",
        env: Mapping[str, str] | None = None,
        run: str = "grace = 1.0",
    ) -> Path:
        """A ps on the first node and a worker on each other one."""
        workers = [f"node{number}:auto" for number in range(1, nodes)]
        settings = {"LEDGER": str(self.ledger), "PACE": "0.03", "MODES": modes, **(env or {})}
        pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
        text = f"""
name = "s"
[slurm]
nodes = {nodes}
{"" if "time =" in slurm else 'time = "10"'}
python = {json.dumps(sys.executable)}
{slurm}
[jobs.ps]
tasks = ["node0:auto"]
[jobs.worker]
tasks = {json.dumps(workers)}
[run]
command = {json.dumps(tasks.command())}
env = {{ {pairs} }}
workdir = ""
{run}
"""
        return command.write(self.folder, text)

    def up(self, file: Path | None = None, **options: Any) -> Up:
        """Launches."""
        return Up("up", str(file or self.file(**options)), "--json")

    def agents(self, name: str) -> list[Process]:
        """The watchdog, the agent and the bridge on a node, in this order."""
        found = [p for p in self.bed.leftovers(name) if "TFMUX_AGENT" in p.environ]
        found = [p for p in found if "TFMUX_TASK" not in p.environ and "python" in p.exe]
        return sorted(found, key=lambda p: p.pid)

    def check_empty(self) -> None:
        """No process of the run is on any node; Slurm lets go a little later."""
        assert self.bed.leftovers() == []
        self.bed.wait_empty()

    def check_logs(self, run_id: str, tasks: Sequence[str] = ALL) -> None:
        """Every stored log of these tasks is what its task has written."""
        logs = {path.stem: path for path in (runs_home() / run_id).glob("*-[0-9].log")}
        assert len(logs) == 4
        for path in (logs[task.replace(":", "-")] for task in tasks):
            ledger = Ledger.read(self.ledger / f"{run_id}.{path.stem}.1")
            log = path.read_bytes()
            told = f"{path.name}: {len(log)} bytes of {ledger.count}\n"
            told += (path.parent / "events.jsonl").read_text(errors="replace")[-8000:]
            assert ledger.count and ledger.agrees(log), told


def waiting(up: Up, reason: str) -> dict[str, Any]:
    """The event that says that the job waits for that reason."""
    return up.wait_for(
        lambda e: e["event"] == "run" and (e.get("allocation") or {}).get("reason") == reason,
        f"waiting for {reason}",
    )
