"""A cluster on the testbed and on this machine, with bystanders beside it that nobody may touch."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support import fault_tasks as tasks
from tests.support.command import Up
from tests.support.fault_tasks import Ledger
from tests.support.patience import PATIENCE, wait_until
from tests.support.streams import records
from tests.testbed import proc
from tests.testbed.host import Host
from tests.testbed.namespaces import Testbed
from tests.testbed.proc import Process

BYSTANDERS = (
    "exec sleep 4001",
    "TFMUX_TASK='somebody-20260101-000000-abcd/worker:1/1;' exec sleep 4002",
    "TFMUX_NOTE='TFMUX_TASK=x/worker:1/1;' exec sleep 4003",
)


class FaultScenario:
    """Some hosts of a testbed, and this machine when `here` is set.

    `file` places tasks as `{"ps": ["tf1"], "worker": ["tf3", "here"]}`; each gets a port of its
    own. Tests that run at the same time have other testbeds, and so other ports of this machine.
    """

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.testbed = testbed
        self.folder = folder
        self.bystanders: dict[str, list[Process]] = {}
        self._port = 3000 + 100 * testbed.number
        self._files = 0

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

    def file(
        self,
        places: Mapping[str, Sequence[str]],
        *,
        modes: Mapping[str, str] | None = None,
        run: str = "",
        env: Mapping[str, str] | None = None,
        extra: str = "",
        words: Sequence[str] | None = None,
    ) -> Path:
        """Writes a cluster file: where the tasks go, how the jobs misbehave, more settings."""
        self._files += 1
        used = {host for hosts in places.values() for host in hosts}
        lines = [f'name = "scenario{self._files}"', self.hosts_toml(used)]
        for job, hosts in places.items():
            addresses = [f"{'localhost' if h == 'here' else h}:{self._next_port()}" for h in hosts]
            lines += [f"[jobs.{job}]", f"tasks = {json.dumps(addresses)}"]
            lines.append(f'env = {{ MODES = "{(modes or {}).get(job, "")}" }}')
        lines += ["[run]", f"command = {json.dumps(words or tasks.command())}"]
        settings = {"LEDGER": "/tmp/ledger", "PACE": "0.03", **(env or {})}
        pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
        lines.append(f"env = {{ {pairs} }}")
        if "workdir" not in run:
            lines.append('workdir = ""')
        lines += [run, extra]
        return command.write(self.folder, "\n".join(lines) + "\n", f"scenario{self._files}.toml")

    def hosts_toml(self, used: Iterable[str]) -> str:
        """The `[hosts.*]` tables of those that are used."""
        tables = self.testbed.hosts_toml().split("[hosts.")
        found = [f"[hosts.{t}" for t in tables if t.split("]")[0] in used]
        if "here" in used:
            found.append(f'[hosts.localhost]\naddress = "{self.testbed.address}"\n')
        return "".join(found)

    # --- looking ------------------------------------------------------------------------------

    def left(self, run_id: str = "") -> list[Process]:
        """What lives on the hosts beside sshd and the bystanders, and what of the run lives
        here."""
        bystanders = {p.pid for them in self.bystanders.values() for p in them}
        there = [
            p
            for host in self.testbed
            if host.up
            for p in host.leftovers()
            if p.pid not in bystanders
        ]
        return there + (self.here(run_id) if run_id else [])

    @staticmethod
    def here(run_id: str) -> list[Process]:
        """The run's living processes on this machine."""
        mine = proc.pid_namespace(os.getpid())
        return [
            p
            for p in proc.scan(mine, having=run_id)
            if p.alive and (p.tag or "").split("/")[0].rstrip(";") == run_id
        ]

    def wait_dead(self, run_id: str = "", timeout: float = PATIENCE) -> None:
        """Waits until nothing is left but the bystanders."""
        try:
            wait_until(lambda: not self.left(run_id), "nothing is left", timeout)
        except AssertionError as error:
            lines = [f"{p.pid} {p.state} {p.tag} {p.argv}" for p in self.left(run_id)]
            raise AssertionError(f"{error}\n" + "\n".join(lines)) from None

    def of(self, host: str, task: str) -> list[Process]:
        """The living processes of a task on a host by their tag."""
        bystanders = {p.pid for p in self.bystanders.get(host, ())}
        return [
            p
            for p in self.testbed[host].leftovers()
            if f"/{task}/" in (p.tag or "") and p.pid not in bystanders
        ]

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
        """Where the tasks of a host keep their ledgers, as this machine sees it."""
        return Path("/tmp/ledger") if host == "here" else self.testbed[host].disk / "tmp/ledger"

    def check_logs(
        self, run_id: str, *, whole: bool = True, pace: float = 0.01, worst: bool = False
    ) -> int:
        """Every stored log is, byte for byte, what its task says it wrote; returns how many
        bytes that were. Where nobody has collected the logs (`whole` is unset) they may end
        earlier; `pace` is then the tasks' PACE, and `worst` whether WORST was set."""
        folder = RunFolder(runs_home() / run_id)
        begins: dict[str, dict[int, int]] = {}
        places: dict[str, str] = {}
        for record in records(folder):
            if record["event"] == "task" and "attempts" in record:
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

    # --- doing --------------------------------------------------------------------------------

    def tell(self, run_id: str, word: str) -> None:
        """Says a word to the run's tasks, on every host that has begun one."""
        for folder in map(self.ledger_folder, ("here", *(host.name for host in self.testbed))):
            if folder.is_dir():
                tasks.tell(folder, run_id, word)

    def up(self, file: Path, **options: Any) -> Up:
        """Launches."""
        return Up("up", str(file), "--json", **options)

    def kill(self, run_id: str) -> tuple[int, str]:
        """`tfmux kill RUN`: the exit code, and what it said."""
        done = command.run("kill", run_id, timeout=PATIENCE)
        return done.returncode, done.stdout + done.stderr

    def _next_port(self) -> int:
        self._port += 1
        return self._port

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
    return not FaultScenario.here(run_id)


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


def lost(up: Up, host: str) -> None:
    """Waits until a host is said to be lost."""
    up.wait_for(
        lambda e: e["event"] == "host" and (e["host"], e["state"]) == (host, "lost"), "lost"
    )


def back(up: Up, host: str) -> None:
    """Waits until a host that was lost is up again."""
    lost = next(e for e in up.of("host") if (e["host"], e["state"]) == (host, "lost"))
    up.wait_for(
        lambda e: e["event"] == "host" and (e["host"], e["state"]) == (host, "up"),
        "back",
        after=lost,
    )
    up.wait_for(lambda e: f"{host} is back" in e.get("note", ""), "back")
