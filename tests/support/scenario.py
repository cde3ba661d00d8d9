"""A cluster on the testbed and on this machine, with bystanders beside it that nobody may touch."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import command
from tests.support import fault_tasks as tasks
from tests.support.bed import Bed, Break
from tests.support.command import Up
from tests.support.patience import wait_until
from tests.testbed import faults, proc
from tests.testbed.host import Host
from tests.testbed.namespaces import Testbed
from tests.testbed.proc import Process

BYSTANDERS = (
    "exec sleep 4001",
    "TFMUX_TASK='somebody-20260101-000000-abcd/worker:1/1;' exec sleep 4002",
    "TFMUX_NOTE='TFMUX_TASK=x/worker:1/1;' exec sleep 4003",
)


class FaultScenario(Bed):
    """Some hosts of a testbed, and this machine, with bystanders beside the tasks of hosts.

    Each task gets a port of its own: tests that run at the same time have other testbeds, and so
    other ports of this machine.
    """

    places: Mapping[str, Sequence[str]] = {"ps": ["tf1"], "worker": ["tf3", "tf4", "here"]}

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        super().__init__(folder)
        self.testbed = testbed
        self.bystanders: dict[str, list[Process]] = {}
        self._port = 3000 + 100 * testbed.number

    def __enter__(self) -> Self:
        for host in self.testbed:
            self._start_bystanders(host)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Bystanders must have survived whatever the test did; they go last."""
        for host in self.testbed:
            host.heal()
        found = {name: [proc.read(p.pid) for p in them] for name, them in self.bystanders.items()}
        for bystanders in self.bystanders.values():
            for bystander in bystanders:
                proc.signal_process(bystander, signal.SIGKILL)
        if error is None:
            for name, now_there in found.items():
                for before, now in zip(self.bystanders[name], now_there, strict=True):
                    assert now is not None and now.alive and now.started == before.started, (
                        f"a bystander on {name} was killed: {before.argv} {before.tag}"
                    )

    def hosts_toml(self, used: Iterable[str]) -> str:
        tables = self.testbed.hosts_toml().split("[hosts.")
        found = [f"[hosts.{t}" for t in tables if t.split("]")[0] in used]
        if "here" in used:
            found.append(f'[hosts.localhost]\naddress = "{self.testbed.address}"\n')
        return "".join(found)

    def address(self, host: str) -> str:
        self._port += 1
        return f"{'localhost' if host == 'here' else host}:{self._port}"

    def on(self, host: str) -> list[Process]:
        bystanders = {p.pid for p in self.bystanders.get(host, ())}
        return [p for p in self.testbed[host].leftovers() if p.pid not in bystanders]

    def left(self, run_id: str = "") -> list[Process]:
        """What lives on the hosts beside sshd and the bystanders, and what of the run lives
        here."""
        there = [p for host in self.testbed if host.up for p in self.on(host.name)]
        return there + (self.here(run_id) if run_id else [])

    def agents(self, host: str) -> tuple[Process, Process]:
        """The watchdog and the agent of the only run on a host."""
        tagged = {
            p.pid: p
            for p in self.testbed[host].leftovers()
            if "TFMUX_AGENT" in p.environ and "TFMUX_TASK" not in p.environ
        }
        (agent,) = [p for p in tagged.values() if p.session != p.pid and p.session == p.ppid]
        return tagged[agent.ppid], agent

    def ledger_folder(self, host: str) -> Path:
        return Path("/tmp/ledger") if host == "here" else self.testbed[host].disk / "tmp/ledger"

    def breaks(self, up: Up) -> Iterator[Break]:
        """A cable that is pulled, and sessions of sshd that are killed."""
        host = self.testbed["tf3"]
        yield Break("tf3", host.pull, host.heal)
        yield Break("tf4", lambda: faults.kill_sessions(self.testbed["tf4"]))

    def all_hosts(self) -> Iterable[str]:
        return ["here", *(host.name for host in self.testbed)]

    def _start_bystanders(self, host: Host) -> None:
        for words in BYSTANDERS:
            host.run(["sh", "-c", f"{words} </dev/null >/dev/null 2>&1 &"])
        last = [str(4001 + number) for number in range(len(BYSTANDERS))]

        def there() -> list[Process]:
            return [p for p in host.leftovers() if p.argv[:1] == ("sleep",) and p.argv[1] in last]

        wait_until(lambda: len(there()) == len(BYSTANDERS), f"bystanders live on {host.name}")
        self.bystanders[host.name] = there()


def launch(
    folder: Path,
    jobs: Mapping[str, int],
    run: str = "",
    modes: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    words: Sequence[str] | None = None,
) -> Up:
    """`tfmux up` of a cluster on this machine."""
    text = 'name = "rules"\n'
    for job, count in jobs.items():
        text += f"[jobs.{job}]\ntasks = {json.dumps(['localhost:auto'] * count)}\n"
        text += f'env = {{ MODES = "{(modes or {}).get(job, "")}" }}\n'
    settings = {"LEDGER": str(folder / "ledger"), **(env or {})}
    pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
    text += f"[run]\ncommand = {json.dumps(words or tasks.command())}\nenv = {{ {pairs} }}\n{run}\n"
    return Up("up", str(command.write(folder, text)), "--json")


def gone(run_id: str) -> bool:
    """Nothing of the run lives here."""
    return not Bed.here(run_id)


def ready(up: Up, *names: str) -> None:
    """Waits until tasks are ready."""
    for task in names:
        up.state(task, "ready")


def last_states(up: Up) -> dict[str, str]:
    """The last state of each task."""
    return {event["task"]: event["state"] for event in up.of("task")}


def notes(up: Up) -> list[str]:
    """What was said once."""
    return [event["note"] for event in up.of("note")]


def receipt(up: Up) -> dict[str, dict[str, Any]]:
    """The receipt's entries by host."""
    found = up.of("receipt")
    assert len(found) == 1, found
    return {host["host"]: host for host in found[0]["hosts"]}


def confirmed(up: Up) -> bool:
    """Every host of the receipt has looked and found nothing."""
    return all(h["confirmed"] and not h["survivors"] for h in receipt(up).values())


def within(seconds: float, condition: Callable[[], object], what: str) -> float:
    """Waits for a condition; returns how long it took."""
    began = time.monotonic()
    wait_until(condition, what, seconds)
    return time.monotonic() - began


def lost(up: Up, host: str, after: dict[str, Any] | None = None) -> dict[str, Any]:
    """Waits until a host is said to be lost; after another event, if that is given."""
    return _host(up, host, "lost", after)


def back(up: Up, host: str, after: dict[str, Any] | None = None) -> None:
    """Waits until a host that was lost is up again."""
    gone = _host(up, host, "lost", after)
    _host(up, host, "up", gone)
    up.wait_for(lambda e: f"{host} is back" in e.get("note", ""), "back", after=after)


def _host(up: Up, host: str, state: str, after: dict[str, Any] | None) -> dict[str, Any]:
    return up.wait_for(
        lambda e: e["event"] == "host" and (e["host"], e["state"]) == (host, state),
        f"{host} {state}",
        after=after,
    )
