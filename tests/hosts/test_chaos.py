"""Sequences of faults from a seeded generator: whatever the order, nobody survives, no bystander
is hurt, no receipt is false, and no byte is lost.

Ten seeds in the test suite, two hundred in `make chaos` (`CHAOS=200`), which is part of a soak;
a failure names its seed, and `CHAOS_SEED=n` repeats it alone.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from launcher.agent import wire
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.budgets import budget
from tests.support.command import Up
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario
from tests.support.streams import check_stream, records
from tests.testbed import faults, guard, proc
from tests.testbed.frozen import FreezableDisk
from tests.testbed.host import Host
from tests.testbed.namespaces import Testbed

pytestmark = pytest.mark.timeout(7200)

LEASE, GRACE = 3.0, 0.6
MODES = ("stubborn", "daemon", "orphan", "child", "holder", "stops", "fails", "chain")
GROUP = 10
"""Runs that live on the testbed at the same time: each is the other's bystander."""


LIAR = """#!{python}
import json, os, random, struct, subprocess, sys, threading, time
if "-IS" not in sys.argv:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
child = subprocess.Popen(
    [{python!r}, *sys.argv[1:]], stdin=-1, stdout=-1, bufsize=0, start_new_session=True
)
def forward():
    while data := os.read(0, 65536):
        child.stdin.write(data)
    child.stdin.close()
threading.Thread(target=forward, daemon=True).start()
line = b""
while not line.startswith(b"tfmux-agent-") or b"magic" in line:
    line = child.stdout.readline() or sys.exit()
    os.write(1, line)
due = time.monotonic() + {delay}
def read(count):
    data = b""
    while len(data) < count:
        part = child.stdout.read(count - len(data))
        if not part:
            sys.exit()
        data += part
    return data
os.write(1, read(256))  # all values of a byte, by which the stream is tested
head = read(5)
if head[4:] == b"{{":  # a short program, which speaks otherwise
    while head:
        os.write(1, head)
        head = child.stdout.read(65536)
    sys.exit()
while True:
    sys.stdout.buffer.write(head + read(struct.unpack(">IB", head)[0]))
    if time.monotonic() > due and not os.path.exists({lied!r}):
        open({lied!r}, "x").close()
        sys.stdout.buffer.write({lie!r})
    sys.stdout.buffer.flush()
    head = read(5)
"""
"""A Python for the agent of a host that says, once and after a while, what it may not say."""


def lies() -> list[bytes]:
    """Frames that no host may send."""
    ended = {"task": "nobody:7", "attempt": 1, "pid": 5, "ended": True, "status": 0, "size": 0}
    return [
        wire.encode(wire.EXITED, ended),
        wire.encode(wire.LOG_SIZE, {"task": "../../x:0", "size": 1}),
        wire.encode(wire.RECEIPT, {"ids": [9], "tasks": ["nobody:7"], "survivors": []}),
        wire.encode(wire.STARTED, {"task": 5}),
        wire.encode_data(999, 1 << 40, b"x" * 1000),
        wire.encode_raw(200, b"no frame at all"),
    ]


class Chaos:
    """One run with random tasks, rules and faults; all its choices come from its seed."""

    disk_in_use = threading.Lock()

    def __init__(self, scenario: FaultScenario, disk: FreezableDisk, seed: int) -> None:
        self.chance = random.Random(seed)
        self.scenario = scenario
        self.disk = disk
        self.seed = seed
        self.namespaces = {host.name: proc.pid_namespace(host.pid) for host in scenario.testbed}
        self.namespaces["localhost"] = proc.pid_namespace(os.getpid())
        self.false: list[proc.Process] = []
        """Processes that lived on although their host had confirmed that nothing was left."""
        self.did: list[str] = []
        self.run_id = ""
        self.liar = ""
        self.loses = False
        """An agent was killed: what it had not sent yet stays on the host, or is gone."""
        places = {
            "ps": [self.chance.choice(["tf1", "here"])],
            "worker": [self.chance.choice(["tf1", "tf3", "tf4", "here"]) for _ in range(2)],
        }
        self.hosts = sorted({h for hosts in places.values() for h in hosts} - {"here"})
        self.keep = self.chance.random() < 0.25
        rules = [
            f"lease = {LEASE}",
            f"grace = {GRACE}",
            f'on_disconnect = "{"keep" if self.keep else "stop"}"',
            f'on_failure = "{self.chance.choice(["stop", "keep", "restart", "restart-all"])}"',
            "max_restarts = 2",
            "finish_timeout = 5",
        ]
        modes = {
            job: " ".join(mode for mode in MODES if self.chance.random() < 0.25) for job in places
        }
        modes["ps"] = modes["ps"].replace("fails", "").replace("stops", "")
        self.pace = self.chance.choice([0.001, 0.01, 0.1])
        self.worst = self.chance.random() < 0.25
        env = {
            "PACE": str(self.pace),
            "SECONDS": self.chance.choice(["2", "5", "3000"]),
            "FAILURES": "1",
            **({"WORST": "1"} if self.worst else {}),
        }
        self.file = scenario.file(places, run="\n".join(rules), modes=modes, env=env)
        if self.hosts and self.chance.random() < 0.2:
            self.make_liar(scenario.testbed[self.chance.choice(self.hosts)])
        self.what = f"seed {seed}: {places} {rules} {modes} {env}"

    def play(self, up: Up) -> None:
        """Does one thing after the other."""
        self.run_id = up.run_id
        actions: list[Callable[[Up], None]] = [
            self.launcher_dies,
            self.launcher_sleeps,
            self.ctrl_c,
            self.term,
            self.sessions_die,
            self.pull,
            self.agent_dies,
            self.agent_freezes,
            self.watchdog_dies,
            self.task_dies,
            self.kill_from_elsewhere,
            self.disk_hangs,
        ]
        for _ in range(self.chance.randint(1, 4)):
            time.sleep(self.chance.uniform(0.0, 2.0))
            if up.process.poll() is None:
                self.chance.choice(actions)(up)

    # --- what can go wrong --------------------------------------------------------------------

    def make_liar(self, host: Host) -> None:
        """The host's agent will say something that it may not say."""
        liar = f"/tmp/liar-{self.seed}"
        delay = self.chance.uniform(0.0, 4.0)
        lied = f"{liar}.done"
        lie = self.chance.choice(lies())
        host.write(liar, LIAR.format(python=host.python, delay=delay, lied=lied, lie=lie), 0o755)
        table = f"[hosts.{host.name}]"
        before, _, after = self.file.read_text().partition(table)
        after = after.replace(f'python = "{host.python}"', f'python = "{liar}"', 1)
        self.file.write_text(before + table + after)
        self.loses = True
        self.liar = host.name
        self.did.append(f"{host.name} lies after {delay:.1f} s: {lie[:60]!r}")

    def launcher_dies(self, up: Up) -> None:
        self.did.append("launcher SIGKILLed")
        up.kill_launcher()

    def launcher_sleeps(self, up: Up) -> None:
        seconds = self.chance.choice([0.5, 2.0, LEASE + GRACE + 1.5])
        self.did.append(f"launcher stopped for {seconds} s")
        up.signal_launcher(signal.SIGSTOP)
        time.sleep(seconds)
        up.signal_launcher(signal.SIGCONT)

    def ctrl_c(self, up: Up) -> None:
        presses = self.chance.choice([1, 1, 2, 3])
        self.did.append(f"Ctrl-C, {presses} times")
        up.press_ctrl_c()
        for _ in range(presses - 1):
            if self.chance.random() < 0.5:
                up.press_ctrl_c_again()
            else:  # the same decision
                time.sleep(0.05)
                up.press_ctrl_c()

    def term(self, up: Up) -> None:
        self.did.append("TERM")
        up.process.terminate()

    def sessions_die(self, up: Up) -> None:
        for host in self.hosts:
            if self.chance.random() < 0.7:
                self.did.append(f"sshd sessions of {host} killed")
                faults.kill_sessions(self.scenario.testbed[host])

    def pull(self, up: Up) -> None:
        if not self.hosts:
            return
        host = self.scenario.testbed[self.chance.choice(self.hosts)]
        seconds = self.chance.choice([0.5, 2.0, LEASE + GRACE + 1.5])
        self.did.append(f"cable of {host.name} pulled for {seconds} s")
        host.pull()
        time.sleep(seconds)
        host.heal()

    def agent_dies(self, up: Up) -> None:
        self.strike_agent(1, signal.SIGKILL)

    def agent_freezes(self, up: Up) -> None:
        self.strike_agent(1, signal.SIGSTOP)

    def watchdog_dies(self, up: Up) -> None:
        self.strike_agent(0, signal.SIGKILL)

    def strike_agent(self, which: int, number: signal.Signals) -> None:
        both = self.agents()
        if both:
            self.loses = True
            self.did.append(f"{number.name} to the {('watchdog', 'agent')[which]}")
            proc.signal_process(self.chance.choice(both)[which], number)

    def task_dies(self, up: Up) -> None:
        found = [
            p
            for p in proc.scan(having=self.run_id)
            if p.alive and (p.tag or "").startswith(f"{self.run_id}/")
        ]
        if found:
            victim = self.chance.choice(found)
            self.did.append(f"SIGKILL to {victim.tag} {victim.argv[:1]}")
            proc.signal_process(victim, signal.SIGKILL)

    def kill_from_elsewhere(self, up: Up) -> None:
        code, _ = self.scenario.kill(self.run_id)
        self.did.append(f"tfmux kill: {code}")

    def disk_hangs(self, up: Up) -> None:
        """The disk on which this machine keeps all runs, and its tasks' logs."""
        seconds = self.chance.choice([0.5, 2.0, LEASE + GRACE + 1.5])
        if not self.disk_in_use.acquire(blocking=False):
            return  # another run of the group has frozen it
        try:
            self.did.append(f"the disk hangs for {seconds} s")
            self.disk.freeze()
            time.sleep(seconds)
        finally:
            self.disk.thaw()
            self.disk_in_use.release()

    def agents(self) -> list[tuple[proc.Process, proc.Process]]:
        """Watchdog and agent on each host of the run."""
        ours = self.ours()
        return [
            (ours[p.ppid], p)
            for p in ours.values()
            if p.session != p.pid and p.session == p.ppid and p.ppid in ours
        ]

    def ours(self) -> dict[int, proc.Process]:
        """The run's agents and watchdogs."""
        return {
            p.pid: p
            for p in proc.scan(having=self.run_id)
            if p.alive
            and p.environ.get("TFMUX_AGENT") == f"{self.run_id};"
            and "TFMUX_TASK" not in p.environ
        }

    def wake_unwatched(self) -> None:
        """Lets stopped agents go on whose watchdogs are dead. A stopped agent answers nobody, and
        a watchdog is who ends it: its host is unreachable, in truth, until somebody does this."""
        ours = self.ours()
        for agent in ours.values():
            if agent.state == "T" and agent.session not in (agent.pid, *ours):
                self.did.append("SIGCONT to an agent without a watchdog")
                proc.signal_process(agent, signal.SIGCONT)

    # --- the end ------------------------------------------------------------------------------

    def watch_receipts(self, up: Up) -> None:
        """Looks at the process table as soon as a receipt comes: a host that confirmed that
        nothing is left has no task of the run any more. Returns when the output has ended."""
        try:
            receipt = up.wait_for(lambda e: e["event"] == "receipt", "receipt", 7200)
        except AssertionError:
            return  # it ended without one
        left = [p for p in self.mine() if "/" in (p.tag or "")]
        for host in receipt["hosts"]:
            if host["confirmed"] and not host["survivors"]:
                pids = self.namespaces[host["host"]]
                self.false += [p for p in left if p.namespace == pids]

    def mine(self) -> list[proc.Process]:
        """What lives of the run, wherever, as this machine's process table shows it."""
        return [
            p
            for p in proc.scan(having=self.run_id)
            if p.alive and (p.tag or "").split("/")[0].rstrip(";") == self.run_id
        ]

    def finish(self, up: Up) -> None:
        """Ends the run in one of the ways it can end, and looks at what is left."""
        if up.process.poll() is None and self.chance.random() < 0.5:
            self.ctrl_c(up)
        elif up.process.poll() is None:
            self.launcher_dies(up)
        up.process.wait(PATIENCE)
        self.wake_unwatched()
        if self.keep or self.chance.random() < 0.3:
            code, said = self.scenario.kill(self.run_id)
            self.did.append(f"tfmux kill at the end: {code}")
            if self.liar and f"{self.liar}: unreachable" in said:
                # It was not reached before, and has told this kill its only lie.
                assert code == 4, said
                code, said = self.scenario.kill(self.run_id)
            assert code == 0, said
        wait_until(lambda: not self.mine(), "nothing of the run is left")
        self.check_logs()
        check_stream(RunFolder(runs_home() / self.run_id))

    def check_logs(self) -> None:
        """A stored log holds nothing that its task did not write; it is whole when a launcher
        collected it."""
        folder = RunFolder(runs_home() / self.run_id)
        found = records(folder)
        if any(r["event"] == "task" and "attempts" in r for r in found):
            ends = [r for r in found if r["event"] == "run" and "outcome" in r]
            lost = any("did not come" in r.get("note", "") for r in found)
            clean = [r for r in found if r["event"] == "receipt"]
            collected = ends and ends[-1]["outcome"] != "detached" and clean and clean[-1]["clean"]
            if collected and not lost and not self.loses:
                self.scenario.check_logs(self.run_id)
            else:
                self.scenario.check_logs(self.run_id, whole=False, pace=self.pace, worst=self.worst)


def play(testbed: Testbed, folder: Path, disk: FreezableDisk, seeds: list[int]) -> None:
    """Plays some seeds at the same time on one testbed."""
    with FaultScenario(testbed, folder) as scenario:
        runs = [Chaos(scenario, disk, seed) for seed in seeds]
        try:
            with ThreadPoolExecutor(len(runs)) as pool:
                failures = [found for found in pool.map(play_one, runs) if found]
            assert not failures, "\n\n".join(failures)
            scenario.wait_dead()
        finally:
            for run in runs:
                for process in run.mine() if run.run_id else ():
                    proc.signal_process(process, signal.SIGKILL)


def play_one(run: Chaos) -> str:
    """Plays one seed; returns what went wrong, and what led to it."""
    with run.scenario.up(run.file) as up:
        watch = threading.Thread(target=run.watch_receipts, args=(up,), daemon=True)
        try:
            watch.start()
            run.play(up)
            run.finish(up)
            watch.join(PATIENCE)
            assert not run.false, f"false receipt: {guard.describe(run.false)}"
        except Exception as error:
            if not run.run_id and up.wait() and "its file system does not answer" in up.said:
                return ""  # the disk hung because of another run of the group: nothing was launched
            said = [str(e)[:300] for e in up.events if e["event"] not in ("log", "metric")][-40:]
            left = [f"{p.pid} {p.state} {p.tag} {p.argv[:3]}" for p in run.mine()]
            trace = traceback.format_exc()[-1500:]
            why = f"{type(error).__name__}: {error}"
            return "\n".join([why, trace, run.what, *run.did, *left, *said, up.said])
    return ""


def batches() -> list[list[int]]:
    if "CHAOS_SEED" in os.environ:
        return [[int(os.environ["CHAOS_SEED"])]]
    count = int(os.environ.get("CHAOS", budget("10", "200")))
    first = int(os.environ.get("CHAOS_FIRST", "0"))
    return [list(range(at, at + GROUP)) for at in range(first, first + count, GROUP)]


@pytest.mark.prove
@pytest.mark.parametrize("seeds", batches(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_random_faults(
    shared_testbed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: list[int]
) -> None:
    """Given runs with random tasks and rules on the same hosts, when random faults strike, then no
    process survives, no bystander is hit, no receipt is false, and logs are what tasks wrote."""
    with FreezableDisk(tmp_path / "image", tmp_path / "data", megabytes=512) as disk:
        monkeypatch.setenv("XDG_DATA_HOME", str(disk.mountpoint))
        play(shared_testbed, tmp_path, disk, seeds)
