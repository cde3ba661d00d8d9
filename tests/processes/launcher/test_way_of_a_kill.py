"""Way of a kill through the launcher process: how many modules and functions somebody reads who
wants to follow it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.agent import wire
from launcher.cluster.read import load
from launcher.run.states import RunPhase
from launcher.session.client import RunClient
from tests.support.cluster_texts import cluster_text
from tests.support.command import write
from tests.support.paths import REPOSITORY, SUPPORT
from tests.support.patience import PATIENCE, wait_until

TEXT = cluster_text(
    {"worker": {"tasks": 1, "ready": "started"}}, "way", command=["sleep", "1000"], workdir=""
)
Call = tuple[str, str, str]
"""Module, function, and the kind of a frame that is encoded."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Calls in the main thread of the launcher process of a run that is killed, from the kill's
    command on the control socket to the last message."""
    trace = tmp_path / "trace"
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT / "traces"))
    monkeypatch.setenv("TRACE_FILE", str(trace))
    monkeypatch.setenv("TRACE_ROOT", f"{REPOSITORY}/launcher/")
    client = RunClient.launch(load(write(tmp_path, TEXT)), TEXT)
    wait_until(lambda: client.snapshot().state is RunPhase.RUNNING, "it runs")
    client.kill_all()
    assert client.wait(PATIENCE) and client.snapshot().exit_code == 130
    wait_until(trace.exists, "the launcher process has ended")
    client.close()
    lines = trace.read_text().splitlines()
    return [(module, function, kind) for module, function, kind in (x.split("\t") for x in lines)]


def first(calls: Sequence[Call], function: str, kind: str = "") -> int:
    """Where a function is called first."""
    return next(at for at, call in enumerate(calls) if call[1:] == (function, kind))


def check(calls: Sequence[Call], modules: int, functions: int) -> None:
    """No more modules and functions than these are on a way."""
    ways = dict.fromkeys((module, function) for module, function, _ in calls)
    found = dict.fromkeys(module for module, _ in ways)
    listed = "\n".join(f"{module}  {function}" for module, function in ways)
    counts = f"{len(found)} modules, {len(ways)} functions; at most {modules} and {functions}"
    assert len(found) <= modules and len(ways) <= functions, f"{counts}:\n{listed}"


def test_the_way_of_a_kill_can_be_read(calls: list[Call]) -> None:
    """Given a run, when a client kills it, then few modules and functions are on the way from the
    command that the control socket hands over to the KILL frame, and to the last message out."""
    begin, frame = first(calls, "RunShell.command"), first(calls, "encode", str(wire.KILL))
    assert begin < frame
    check(calls[begin : frame + 1], 9, 23)
    check(calls[: first(calls, "LocalTransport.write") + 1], 11, 26)
    check(calls[: first(calls, "Outbox.finish") + 1], 23, 190)
