"""Hosts that a command reaches, and what is left of the commands on this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.support.bed import Bed, Break, Here
from tests.support.command import Up
from tests.testbed import proc
from tests.testbed.containers import Container
from tests.testbed.proc import Process

SYSTEM_PYTHON = "/usr/bin/python3"
ENDS = (signal.SIGSTOP, signal.SIGKILL)
"""What may happen to a command in the middle: it is stopped, or killed."""


class Via(Here):
    """This machine, behind a command."""

    places: Mapping[str, Sequence[str]] = {"ps": ["c1"], "worker": ["c1", "c1"]}

    def __init__(
        self,
        folder: Path,
        via: Sequence[str],
        *,
        python: str = sys.executable,
        address: str = "127.0.0.1",
        ledgers: Path | None = None,
    ) -> None:
        super().__init__(folder)
        self._table = (
            f'[hosts.c1]\nvia = {json.dumps(via)}\naddress = "{address}"\npython = "{python}"\n'
        )
        self._ledgers = ledgers or folder / "ledger"

    def hosts_toml(self, used: Iterable[str]) -> str:
        return self._table

    def ledger_folder(self, host: str) -> Path:
        return self._ledgers

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "LEDGER": str(self._ledgers)}

    def left(self, run_id: str = "") -> list[Process]:
        return super().left(run_id) + (commands(run_id) if run_id else [])


class Containers(Bed):
    """Two containers, and others that a test adds."""

    places: Mapping[str, Sequence[str]] = {"ps": ["c1"], "worker": ["c1", "c2"]}

    def __init__(self, two: tuple[Container, Container], folder: Path) -> None:
        super().__init__(folder)
        self.containers = dict(zip(("c1", "c2"), two, strict=True))

    def hosts_toml(self, used: Iterable[str]) -> str:
        return "".join(self.containers[name].hosts_toml(name) for name in sorted(used))

    def ledger_folder(self, host: str) -> Path:
        return self.containers[host].root / "tmp/ledger"

    def on(self, host: str) -> list[Process]:
        return self.containers[host].processes()

    def left(self, run_id: str = "") -> list[Process]:
        there = [p for container in self.containers.values() for p in container.processes()]
        return there + (commands(run_id) if run_id else [])

    def breaks(self, up: Up) -> Iterator[Break]:
        """The commands are stopped, or killed."""
        for number in ENDS:
            yield Break("c1", partial(signal_commands, up, number))


def commands(run_id: str) -> list[Process]:
    """The living processes of this machine that reach a host of the run: commands of `via` and
    what they have started here."""
    mine = proc.pid_namespace(os.getpid())
    tag = f"TFMUX_AGENT={run_id};"
    return [p for p in proc.scan(mine, saying=tag) if p.alive]


def signal_commands(up: Up, number: signal.Signals) -> None:
    """Signals the commands that reach the hosts, and what they have started in their sessions."""
    below = proc.children(up.launcher)  # one of them writes its files
    leaders = {p.pid for p in below if any("tfmux-agent-" in word for word in p.argv)}
    assert leaders, below
    for process in proc.scan():
        if process.session in leaders:
            proc.signal_process(process, number)
