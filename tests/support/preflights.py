"""Preflights of the screens that ask no host."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from launcher.cluster.file_model import ClusterModel, Host
from launcher.preflight import CHECKS, Check, Finding, Report
from launcher.preflight.findings import blocking, passed

OFFER = "/opt/tf/bin/python"
Made = Callable[[str, Host], Sequence[Finding]]


def missing(host: str, entry: Host, offer: str = "") -> list[Finding]:
    """What a host without TensorFlow is found to be; nothing where another Python is written."""
    if entry.python:
        return [passed(Check.TENSORFLOW, host, "2.15.0")]
    todo = f'write python = "{offer}" for the host' if offer else "install it"
    sentence = "TensorFlow is not installed for python3"
    about = (Check.TENSORFLOW, "tensorflow-missing", host, "missing", sentence, todo)
    return [blocking(*about, offer=offer)]


class Preflights:
    """Preflights that ask nobody: of each host there is said what `made` returns."""

    def __init__(self) -> None:
        self.made: Made = missing
        self.checked: list[ClusterModel] = []
        self.over = threading.Event()
        """The preflights end once this is set, as it is at first."""
        self.over.set()

    async def __call__(
        self, cluster: ClusterModel, ask: Any, found: Callable[[Finding], None], **_: Any
    ) -> Report:
        self.checked.append(cluster)
        hosts = list(dict.fromkeys(t.host for job in cluster.jobs.values() for t in job.tasks))
        findings = [
            passed(check, host, "OpenSSH_9.2p1 Debian-2+deb12u3" if check is Check.SSH else "fine")
            for host in hosts
            for check in CHECKS
            if check is not Check.TENSORFLOW
        ]
        findings += [each for host in hosts for each in self.made(host, cluster.hosts[host])]
        for finding in findings:
            found(finding)
        if not self.over.is_set():
            await asyncio.to_thread(self.over.wait)
        return Report(cluster.name, tuple(hosts), tuple(findings), (), (), 0.1)


@pytest.fixture
def preflights(monkeypatch: pytest.MonkeyPatch) -> Iterator[Preflights]:
    """The preflights of the screens."""
    fake = Preflights()
    monkeypatch.setattr("tui.screens.preflight_screen.preflight", fake)
    yield fake
