"""Active runs as the stream of a supervised run tells them."""

from __future__ import annotations

import os

import pytest

from launcher.cluster.read import loads
from launcher.ids import new_run_id
from launcher.paths import runs_home
from launcher.run import events as ev
from launcher.run.machine import RunStateMachine
from launcher.session.run_list import active_runs
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tests.support.streams import changes

CLUSTER = cluster_text(
    {"worker": "tf1:2222 tf2:2222"},
    hosts={"tf1": {"ssh": "tf1"}, "tf2": {"ssh": "tf2"}},
    command=["x"],
)
BEGIN = ev.Begin(1000.0)
UP = ev.HostUp(1001.0, "tf1")
REFUSED = ev.HostRefused(1002.0, "tf2", "no login")
LOST = ev.HostLost(1003.0, "tf1", "no route", 2e3)


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
    events: list[ev.Event], agents: list[str], unreachable: list[str]
) -> None:
    """A host that is still being connected to, or that has refused the login, has none."""
    path = runs_home() / new_run_id("seen")  # its lock is this machine's, for all tests
    path.mkdir(parents=True)
    (path / "cluster.toml").write_text(CLUSTER)
    machine = RunStateMachine(loads(CLUSTER, "seen", path), path.name)
    stream = b""
    for event in events:  # as a launcher does: what has changed is recorded after each
        machine.handle(event)
        stream += b"".join(changes(machine, 1004.0))
    RunFolder(path).events.write_bytes(stream)
    lock = RunFolder(path).take_lock()
    assert lock is not None
    try:
        (run,) = active_runs().runs
    finally:
        os.close(lock)
    assert [host.name for host in run.hosts] == ["tf1", "tf2"]
    assert [host.name for host in run.hosts if host.agent] == agents
    assert [host.name for host in run.hosts if host.unreachable] == unreachable
