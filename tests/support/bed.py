"""Machines on which runs of a ps and workers go wrong, all with one face: `Bed`.

Each kind has its module: `scenario` four hosts, `slurm_scenario` nodes of Slurm, `via` containers;
this machine, and a host of an SSH server in this process, are here.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support import fault_tasks as tasks
from tests.support.command import Up
from tests.support.fault_tasks import Ledger
from tests.support.patience import PATIENCE, wait_until
from tests.support.streams import records
from tests.testbed import proc
from tests.testbed.inprocess import SshServer
from tests.testbed.proc import Process

PACE = "0.1"
"""Seconds between what a task writes, if a test does not say it."""


@dataclass(frozen=True)
class Break:
    """A way in which the link to a host ends, and what must be done until there is another."""

    host: str
    begin: Callable[[], object]
    end: Callable[[], object] = lambda: None


class Bed(ABC):
    """Machines, and cluster files for them.

    Attributes:
        places: where the tasks go if a test does not say it, as a cluster file names the hosts;
            `here` is this machine.
        lease: seconds within which these hosts can be asked whenever the machine is busy.
    """

    places: Mapping[str, Sequence[str]] = {"ps": ["here"], "worker": ["here", "here"]}
    lease = 8.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = 0

    # --- what each kind of bed says -------------------------------------------------------

    @abstractmethod
    def hosts_toml(self, used: Iterable[str]) -> str:
        """The tables of a cluster file for the hosts that are used."""

    @abstractmethod
    def left(self, run_id: str = "") -> list[Process]:
        """What lives on the bed that the run has started, or that an earlier one has left."""

    @abstractmethod
    def ledger_folder(self, host: str) -> Path:
        """Where the tasks of a host keep their ledgers, as this machine sees it."""

    def breaks(self, up: Up) -> Iterator[Break]:
        """The ways in which a link of the run can end; of this machine there is none."""
        return iter(())

    def address(self, host: str) -> str:
        """A task's place in the cluster file."""
        return f"{'localhost' if host == 'here' else host}:auto"

    def settings(self) -> dict[str, str]:
        """What the tasks find in their environment."""
        return {"LEDGER": "/tmp/ledger", "PACE": PACE}

    # --- cluster files --------------------------------------------------------------------

    @property
    def tasks(self) -> list[str]:
        """The tasks of a file whose places the test does not say."""
        return [f"{job}:{n}" for job, hosts in self.places.items() for n in range(len(hosts))]

    @property
    def hosts(self) -> set[str]:
        """Their hosts, as a receipt names them."""
        used = {host for hosts in self.places.values() for host in hosts}
        return {"localhost" if host == "here" else host for host in used}

    def file(
        self,
        places: Mapping[str, Sequence[str]] | None = None,
        *,
        modes: Mapping[str, str] | str = "",
        run: str = "",
        env: Mapping[str, str] | None = None,
        extra: str = "",
        words: Sequence[str] | None = None,
    ) -> Path:
        """Writes a cluster file: where the tasks go, how the jobs misbehave, more settings."""
        self._files += 1
        places = self.places if places is None else places
        used = {host for hosts in places.values() for host in hosts}
        lines = [f'name = "scenario{self._files}"', self.hosts_toml(used)]
        for job, hosts in places.items():
            lines += [f"[jobs.{job}]", f"tasks = {json.dumps([self.address(h) for h in hosts])}"]
            mode = modes if isinstance(modes, str) else modes.get(job, "")
            lines.append(f'env = {{ MODES = "{mode}" }}')
        lines += ["[run]", f"command = {json.dumps(words or tasks.command())}"]
        settings = {**self.settings(), **(env or {})}
        pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
        lines.append(f"env = {{ {pairs} }}")
        if "workdir" not in run:
            lines.append('workdir = ""')
        lines += [run, extra]
        return command.write(self.folder, "\n".join(lines) + "\n", f"scenario{self._files}.toml")

    # --- looking --------------------------------------------------------------------------

    def of(self, host: str, task: str) -> list[Process]:
        """The living processes of a task on a host by their tag."""
        return [p for p in self.on(host) if f"/{task}/" in (p.tag or "")]

    def on(self, host: str) -> list[Process]:
        """What lives on a host and is nobody else's."""
        return self.left()

    @staticmethod
    def here(run_id: str) -> list[Process]:
        """The run's living processes on this machine."""
        mine = proc.pid_namespace(os.getpid())
        return [
            p
            for p in proc.scan(mine, having=run_id)
            if p.alive and (p.tag or "").split("/")[0].rstrip(";") == run_id
        ]

    def first(self, run_id: str) -> dict[str, Process]:
        """The first process of each task of a run."""
        found: dict[str, Process] = {}
        for process in self.left(run_id):
            if (process.tag or "").startswith(f"{run_id}/"):
                task = (process.tag or "").split("/")[1]
                found[task] = min(process, found.get(task, process), key=_age)
        return found

    def wait_dead(self, run_id: str = "", timeout: float = PATIENCE) -> None:
        """Waits until nothing is left but what is nobody's business."""
        gone(lambda: self.left(run_id), "nothing is left", timeout)

    def check_logs(
        self,
        run_id: str,
        *,
        whole: bool = True,
        pace: float = float(PACE),
        worst: bool = False,
        but: Sequence[str] = (),
    ) -> int:
        """Every stored log is, byte for byte, what its task says it wrote; returns how many
        bytes that were. Where nobody has collected the logs (`whole` is unset) they may end
        earlier; `pace` is then the tasks' PACE, and `worst` whether WORST was set; logs of the
        tasks `but` are not looked at."""
        folder = RunFolder(runs_home() / run_id)
        begins: dict[str, dict[int, int]] = {}
        places: dict[str, str] = {}
        for record in records(folder):
            if record["event"] == "task" and "attempts" in record and record["task"] not in but:
                of_task = begins.setdefault(record["task"], {})
                of_task |= {one["number"]: one["log_start"] for one in record["attempts"]}
                places[record["task"]] = record["host"].replace("localhost", "here")
        total = 0
        for task, attempts in begins.items():
            stem = task.replace(":", "-")
            path = folder.path / f"{stem}.log"
            log = path.read_bytes() if path.exists() else b""
            last = max(attempts)
            # A launcher that was killed may have started one more than it could record.
            words = f"here is {run_id}.{stem}.{last + 1}\n".encode()
            if not whole and (at := log.find(words, attempts[last])) >= 0:
                attempts[last + 1] = at
            numbers = sorted(attempts)
            edges = [attempts[number] for number in numbers] + [len(log)]
            for number, start, end in zip(numbers, edges, edges[1:], strict=False):
                path = self.ledger_folder(places[task]) / f"{run_id}.{stem}.{number}"
                part = log[start:end]
                ledger = Ledger.read(path)
                if not whole and len(part) < ledger.count:
                    begins_so = ledger.begins(part, path.name, pace, worst)
                    assert begins_so, f"{path.name}: another beginning"
                    continue
                assert ledger.agrees(part), (
                    f"{task} attempt {number}: {len(part)} bytes here, {ledger.count} written"
                )
                total += len(part)
        assert begins, "no task has started"
        return total

    # --- doing ----------------------------------------------------------------------------

    def up(self, file: Path, **options: Any) -> Up:
        """Launches."""
        return Up("up", str(file), "--json", **options)

    def tell(self, run_id: str, word: str) -> None:
        """Says a word to the run's tasks, on every host that has begun one."""
        for folder in {self.ledger_folder(host) for host in self.all_hosts()}:
            if folder.is_dir():
                tasks.tell(folder, run_id, word)

    def kill(self, run_id: str) -> tuple[int, str]:
        """`tfmux kill RUN`: the exit code, and what it said."""
        done = command.run("kill", run_id, timeout=PATIENCE)
        return done.returncode, done.stdout + done.stderr

    def all_hosts(self) -> Iterable[str]:
        """The hosts on which a test may have placed tasks."""
        return {host for hosts in self.places.values() for host in hosts}


class Here(Bed):
    """This machine, for runs of one test: its processes are told by a mark in what they are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._mark = uuid.uuid4().hex

    def hosts_toml(self, used: Iterable[str]) -> str:
        return ""

    def settings(self) -> dict[str, str]:
        return {"LEDGER": str(self.folder / "ledger"), "PACE": PACE, "MARK": self._mark}

    def ledger_folder(self, host: str) -> Path:
        return self.folder / "ledger"

    def left(self, run_id: str = "") -> list[Process]:
        found = {*proc.scan(having=f"MARK={self._mark}"), *proc.scan(saying=self._mark)}
        if run_id:
            found |= {*proc.scan(having=f"TFMUX_AGENT={run_id}")}
        return [process for process in found if process.alive]


class Ssh(Here):
    """This machine as a host behind an SSH server of this process."""

    places: Mapping[str, Sequence[str]] = {"ps": ["far"], "worker": ["far", "far"]}

    def __init__(self, server: SshServer, folder: Path) -> None:
        super().__init__(folder)
        self._server = server

    def hosts_toml(self, used: Iterable[str]) -> str:
        return self._server.host_toml("far", sys.executable) if "far" in used else ""

    def breaks(self, up: Up) -> Iterator[Break]:
        """Silence, and a reset of all connections."""
        yield Break("far", self._server.pull, self._server.heal)
        yield Break("far", self._server.drop_connections)


def gone(look: Callable[[], list[Process]], what: str, timeout: float = PATIENCE) -> None:
    """Waits until there is nothing; says what there is otherwise."""
    try:
        wait_until(lambda: not look(), what, timeout)
    except AssertionError:
        lines = [f"{p.pid} {p.state} {p.tag} {p.argv}" for p in look()]
        raise AssertionError(f"{what}:\n" + "\n".join(lines)) from None


def _age(process: Process) -> tuple[float, int]:
    return process.started, process.pid
