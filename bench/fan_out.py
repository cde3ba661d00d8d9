"""Commands that go to four hosts at once, beside `clush` and `ssh`.

    python -m bench.fan_out [--rounds 5]

From the command to sixteen `sleep`s that run, four a host, as `/proc` shows them: `tfmux up` beside
`clush`, and tfmux's part of it from connecting. Then `tfmux ps` and `tfmux kill RUN`, each on a run
with four hosts, with its launcher process and without one (then they log in to the hosts), beside
`ssh HOST true` on the four at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.hosts import TASKS, Commands, all_at_once, clush, cluster, ssh, ssh_hosts, without_clush
from bench.report import Row, interleave, run
from bench.terminal import ROOT, TFMUX, until
from launcher.cluster import loads
from launcher.paths import runs_home
from launcher.run.snapshot import RunView, TaskView
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder
from launcher.store.stream import LineReader
from tests.testbed.namespaces import Testbed

SLEEP = ("sleep", "98765")


def until_started(argv: list[str]) -> float:
    """Seconds from a command until all tasks run; it is ended then, and so are they."""
    sleeps = Commands(*SLEEP)
    began = time.perf_counter()
    command = subprocess.Popen(
        argv,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: len(sleeps.pids()) >= TASKS, pace=0.005)
    seconds = time.perf_counter() - began
    command.send_signal(signal.SIGTERM)
    command.wait()
    for pid in sleeps.pids():  # `clush` leaves them
        os.kill(pid, signal.SIGKILL)
    until(lambda: not sleeps.pids())
    return seconds


def by_tfmux(file: Path) -> tuple[float, float]:
    """Seconds from `tfmux up`, and from the beginning of connecting."""
    before = set(runs_home().iterdir()) if runs_home().exists() else set()
    seconds = until_started([*TFMUX, "up", str(file), "--headless"])
    (path,) = set(runs_home().iterdir()) - before
    records = list(LineReader(RunFolder(path).events).records())
    began = next(one.started for one in records if isinstance(one, RunView))
    views = [one for one in records if isinstance(one, TaskView)]
    started = max(attempt.time for view in views for attempt in view.attempts)
    return seconds, started - began


def by_clush(hosts: Testbed) -> tuple[float, float]:
    """The same by `clush`."""
    sleeps = " & ".join([" ".join(SLEEP)] * (TASKS // len(hosts.hosts)))
    seconds = until_started(clush(hosts, f"{sleeps} & wait"))
    return seconds, seconds


def command_on_run(text: str, words: tuple[str, ...], *, supervised: bool) -> float:
    """Seconds of a command on a run with four hosts."""
    client = RunClient.launch(loads(text, "bench", Path.cwd()), text)
    until(lambda: all(view.pid is not None for view in client.snapshot().tasks))
    client.stay_alive()
    until(lambda: client.folder.launcher_pid() is not None)
    client.close()
    if not supervised:
        launcher = client.folder.launcher_pid()
        assert launcher is not None
        os.kill(launcher, signal.SIGKILL)
        until(lambda: client.folder.launcher_pid() is None)
    began = time.perf_counter()
    done = subprocess.run(
        [*TFMUX, *(word.format(run=client.run_id) for word in words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - began
    if done.returncode or client.run_id not in done.stdout:
        raise SystemExit(f"{words}: {done.stdout}{done.stderr}")
    if words[0] != "kill":
        subprocess.run([*TFMUX, "kill", client.run_id], cwd=ROOT, stdout=subprocess.DEVNULL)
    return seconds


def logins(hosts: Testbed) -> float:
    """Seconds of `ssh HOST true` on all hosts at once."""
    began = time.perf_counter()
    all_at_once([ssh(hosts, host.name, "true") for host in hosts])
    return time.perf_counter() - began


def starts(hosts: Testbed, text: str, rounds: int) -> Iterator[Row]:
    """From the command to the tasks."""
    if reason := without_clush():
        yield Row(f"{TASKS} tasks on 4 SSH hosts started", skipped=reason)
        return
    file = hosts.directory / "bench.toml"
    file.write_text(text)
    found = interleave(
        {"tfmux": partial(by_tfmux, file), "clush": partial(by_clush, hosts)}, rounds
    )
    theirs = tuple(seconds for seconds, _ in found["clush"])
    what = f"{TASKS} tasks on 4 SSH hosts started"
    for at, (since, bound) in enumerate((("the command", 0.7), ("connecting", 0.35))):
        ours = tuple(figures[at] for figures in found["tfmux"])
        yield Row(f"{what}, from {since}", "s", ours, "`clush`", theirs, at_most=bound)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Starts, then `ps` and `kill`."""
    with ssh_hosts() as hosts:
        text = cluster(hosts, SLEEP, run="grace = 1.0\n")
        yield from starts(hosts, text, options.rounds)
        for words in (("ps",), ("kill", "{run}")):
            for supervised in (True, False):
                sides: dict[str, Callable[[], float]] = {
                    "tfmux": partial(command_on_run, text, words, supervised=supervised),
                    "ssh": partial(logins, hosts),
                }
                found = interleave(sides, options.rounds)
                state = "with its launcher" if supervised else "without a launcher"
                yield Row(
                    f"`tfmux {words[0]}{' RUN' * (len(words) > 1)}`, a run with 4 hosts, {state}",
                    "s",
                    tuple(found["tfmux"]),
                    "`ssh HOST true` on 4 at once",
                    tuple(found["ssh"]),
                    at_most=1.5,
                )


if __name__ == "__main__":
    run(__doc__, measure)
