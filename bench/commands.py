"""`tfmux ps` and `tfmux kill` beside `ssh HOST true` on the same four hosts at once.

    python -m bench.commands [--rounds 5]

On the tests' four hosts with OpenSSH, in namespaces of this machine, a task on each. Both commands
twice: of a run whose launcher process is here, which needs no login, and of one whose launcher
process was killed, whose hosts have to be asked. Rounds are paired: what else the machine does
falls on all alike.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.kill import until
from launcher.cluster.file import loads
from launcher.session.client import RunClient
from tests.testbed.namespaces import Testbed

DEADLINE = 120.0
TARGET = 1.5
_RUN = """
[run]
command = ["sleep", "1000"]
workdir = ""
grace = 1.0
on_disconnect = "keep"
[start]
order = [["worker"]]
[start.ready]
worker = "started"
"""


def launched(hosts: Testbed, *, supervised: bool) -> str:
    """Launches a task on each host; returns the run's id."""
    places = [f"{host.name}:auto" for host in hosts]
    tasks = f"[jobs.worker]\ntasks = {json.dumps(places)}\n"
    text = f'name = "bench"\n{hosts.hosts_toml()}{tasks}{_RUN}'
    client = RunClient.launch(loads(text, "bench", Path.cwd()), text)
    until(lambda: all(view.state.live and view.pid for view in client.snapshot().tasks), DEADLINE)
    launcher = client.folder.launcher_pid()
    client.detach()
    if not supervised and launcher:
        os.kill(launcher, signal.SIGKILL)
        until(lambda: client.folder.launcher_pid() is None, DEADLINE)
    return client.run_id


def seconds(*commands: Sequence[str]) -> float:
    """Seconds until all of these commands, started at once, have ended well."""
    began = time.perf_counter()
    started = [
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for words in commands
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"{commands} ended with {codes}")
    return time.perf_counter() - began


def main() -> None:
    """Prints medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    tfmux = (sys.executable, "-m", "tui.main")
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as home, Testbed() as hosts:
        os.environ["HOME"] = home
        for variable in ("DATA", "CONFIG", "STATE", "CACHE"):
            os.environ[f"XDG_{variable}_HOME"] = f"{home}/{variable.lower()}"
        hosts.give_access(Path(home))
        config = f"{home}/.ssh/config"
        logins = [("ssh", "-F", config, host.name, "true") for host in hosts]
        for _ in range(rounds):
            figures.setdefault("ssh true on 4 hosts at once", []).append(seconds(*logins))
            for kind in ("with a launcher process", "without"):
                run = launched(hosts, supervised=kind != "without")
                figures.setdefault(f"ps, {kind}", []).append(seconds((*tfmux, "ps")))
                figures.setdefault(f"kill, {kind}", []).append(seconds((*tfmux, "kill", run)))
    medians = {name: statistics.median(times) for name, times in figures.items()}
    login = next(iter(medians.values()))
    for name, median in medians.items():
        print(f"{name:<30} {median:.2f} s  {median / login:.2f} × (target {TARGET} ×)")


if __name__ == "__main__":
    main()
