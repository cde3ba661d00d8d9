"""Active runs as the journal of a supervised run tells them."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from launcher.paths import runs_home
from launcher.session.discovery import active_runs
from launcher.store import launcher_lock
from launcher.store.runs import RunFolder

CLUSTER = """
[hosts.tf1]
ssh = "tf1"
[hosts.tf2]
ssh = "tf2"
[jobs.worker]
tasks = ["tf1:2222", "tf2:2222"]
[run]
command = ["x"]
"""
BEGIN = {"event": "begin", "time": 1000.0}
UP = {"event": "host_up", "time": 1001.0, "host": "tf1"}
REFUSED = {"event": "host_refused", "time": 1002.0, "host": "tf2", "reason": "no login"}
LOST = {
    "event": "host_lost",
    "time": 1003.0,
    "host": "tf1",
    "reason": "no route",
    "lease_until": 2e3,
}


@pytest.mark.parametrize(
    ("events", "agents", "unreachable"),
    [
        ([BEGIN], [], []),
        ([BEGIN, UP], ["tf1"], []),
        ([BEGIN, REFUSED, UP], ["tf1"], []),
        ([BEGIN, UP, LOST], [], ["tf1"]),
    ],
    ids=["begun", "up", "refused", "lost"],
)
def test_an_agent_is_there_when_it_has_greeted(
    events: list[dict[str, Any]], agents: list[str], unreachable: list[str]
) -> None:
    """A host that is still being connected to, or that has refused the login, has none."""
    path = runs_home() / "seen-20261120-183002-7f3a"
    path.mkdir(parents=True)
    (path / "cluster.toml").write_text(CLUSTER)
    lines = [json.dumps({"launcher": "a", **event}) + "\n" for event in events]
    RunFolder(path).journal.write_text("".join(lines))
    lock = launcher_lock.acquire(path)
    assert lock is not None
    try:
        (run,) = active_runs().runs
    finally:
        os.close(lock)
    assert [host.name for host in run.hosts] == ["tf1", "tf2"]
    assert [host.name for host in run.hosts if host.agent] == agents
    assert [host.name for host in run.hosts if host.unreachable] == unreachable
