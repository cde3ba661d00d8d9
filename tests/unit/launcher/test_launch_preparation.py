"""Preparation of a launch before the first task starts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster import loads
from launcher.files import staging
from launcher.hosts.programs import Program
from launcher.run import events as ev
from launcher.run.run import RunStateMachine
from launcher.session.hosts import LaunchPreparation, Transfers
from tests.support.patience import PATIENCE
from tests.support.short_programs import Talker, message

CLUSTER = """
name = "staged"
[hosts.far]
ssh = "10.0.0.1"
[jobs.worker]
tasks = ["far:2222"]
[run]
command = ["true"]
workdir = "."
"""


class Reached:
    """A host that has all contents and counts how often it builds the trees."""

    connected = True
    sessions = 1

    def __init__(self) -> None:
        self.built = 0

    async def start_program(self) -> Program:
        """Files come."""
        self.built += 1
        said: list[dict[str, Any]] = [{}, {"missing": []}, {"built": True}]

        async def open_session(nonce: str) -> Talker:
            return Talker(nonce, *map(message, said))

        return await Program.start("staged-1", "far", open_session)


async def test_files_that_go_to_a_host_again_go_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host was cut off and is back while its files are still being read here: the trees are
    built once. Built a second time they would be gone for a moment, after tasks have started."""
    may_read = threading.Event()

    def read(tree: staging.Tree) -> staging.Manifest:
        may_read.wait(PATIENCE)
        return staging.Manifest((), {})

    monkeypatch.setattr(staging, "read_tree", read)
    link: Any = Reached()
    told: list[ev.Event] = []
    run = RunStateMachine(loads(CLUSTER, "staged.toml", tmp_path), "staged-1")
    transfers = Transfers(run.views, lambda: None)
    preparation = LaunchPreparation({"far": link}, {}, transfers, told.append, ports={})
    plan = run.plan
    twice = [asyncio.create_task(preparation.stage(plan, plan.host("far"))) for _ in range(2)]
    await asyncio.sleep(0)
    may_read.set()
    await asyncio.wait(twice)
    assert link.built == 1
    assert [type(event) for event in told] == [ev.Staged]
