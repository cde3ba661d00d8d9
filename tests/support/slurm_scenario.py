"""A cluster on the Slurm testbed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.bed import PACE, Bed, Break
from tests.support.command import Up
from tests.testbed.proc import Process
from tests.testbed.slurm import SlurmBed

ALL = ("ps:0", "worker:0", "worker:1")


class Scenario(Bed):
    """A bed of nodes, and cluster files for it: a ps on the first one, a worker on each other."""

    places: Mapping[str, Sequence[str]] = {"ps": ["node0"], "worker": ["node1", "node2"]}
    lease = 45.0  # each word to a node is an srun of its own

    def __init__(self, bed: SlurmBed, folder: Path) -> None:
        super().__init__(folder)
        self.bed = bed
        self._table = ""

    def file(
        self,
        places: Mapping[str, Sequence[str]] | None = None,
        *,
        modes: Mapping[str, str] | str = "stubborn daemon child",
        run: str = "grace = 1.0",
        env: Mapping[str, str] | None = None,
        extra: str = "",
        words: Sequence[str] | None = None,
        nodes: int = 3,
        slurm: str = "",
    ) -> Path:
        """A cluster file with `nodes` nodes and more lines of `[slurm]`."""
        if places is None:
            places = {"ps": ["node0"], "worker": [f"node{number}" for number in range(1, nodes)]}
        time = "" if "time =" in slurm else 'time = "10"'
        python = f"python = {json.dumps(sys.executable)}"
        self._table = f"[slurm]\nnodes = {nodes}\n{time}\n{python}\n{slurm}\n"
        return super().file(places, modes=modes, run=run, env=env, extra=extra, words=words)

    def hosts_toml(self, used: Iterable[str]) -> str:
        return self._table

    def settings(self) -> dict[str, str]:
        return {"LEDGER": str(self.ledger_folder("")), "PACE": PACE}

    def ledger_folder(self, host: str) -> Path:
        return self.bed.folder / "ledger"

    def left(self, run_id: str = "") -> list[Process]:
        return self.bed.leftovers()

    def on(self, host: str) -> list[Process]:
        return self.bed.leftovers(f"sl{int(host[4:]) + 1}")

    def breaks(self, up: Up) -> Iterator[Break]:
        """A cable that is pulled; the next bridge is a new step of the job."""
        yield Break("node2", lambda: self.bed.cut("sl3"), lambda: self.bed.heal("sl3"))

    def up(self, file: Path | None = None, **options: Any) -> Up:
        """Launches a file, or one with these options."""
        return super().up(file or self.file(**options))

    def agents(self, name: str) -> list[Process]:
        """The watchdog, the agent and the bridge on a node, in this order."""
        found = [p for p in self.bed.leftovers(name) if "TFMUX_AGENT" in p.environ]
        found = [p for p in found if "TFMUX_TASK" not in p.environ and "python" in p.exe]
        return sorted(found, key=lambda p: p.pid)

    def check_empty(self) -> None:
        """No process of the run is on any node; Slurm lets go a little later."""
        assert self.bed.leftovers() == []
        self.bed.wait_empty()


def forget(scenario: Scenario, node: str, which: Callable[[str], bool]) -> None:
    """Lets a node know only some names: those for which `which` is false."""
    lines = (scenario.bed.folder / "hosts").read_text().splitlines()
    place = scenario.bed.folder / f"hosts-of-{node}"
    place.write_text("".join(f"{line}\n" for line in lines if not which(line.split()[1])))
    scenario.bed.run_on(node, "mount", "--bind", str(place), "/etc/hosts")


def folders(scenario: Scenario, run_id: str, node: str) -> list[str]:
    """What a node has of a run where programs keep their state; `/tmp` is each node's own."""
    words = f"test ! -d $XDG_STATE_HOME || find $XDG_STATE_HOME -name '{run_id}*'"
    return scenario.bed.run_on(node, "sh", "-c", words).split()


def waiting(up: Up, reason: str) -> dict[str, Any]:
    """The event that says that the job waits for that reason."""
    return up.wait_for(
        lambda e: e["event"] == "run" and (e.get("allocation") or {}).get("reason") == reason,
        f"waiting for {reason}",
    )
