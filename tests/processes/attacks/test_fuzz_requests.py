"""Frames to an agent, random and changed real ones: nothing but the errors that are meant for it,
no other task touched, no file elsewhere, memory bounded."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.agent import wire
from tests.support.agent_client import (
    Client,
    answer_to,
    asked,
    hello,
    raw_channel,
    state_folder,
    talk,
    unattended_run,
    watchdog_and_agent,
)
from tests.support.frame_strategies import TO_AGENT, changed, rubbish, tries


@pytest.fixture
def client() -> Iterator[Client]:
    """A run with one task that has lost its launcher."""
    with unattended_run() as channel:
        yield channel


@given(frames=st.lists(changed(TO_AGENT) | rubbish(), min_size=1, max_size=8))
@tries(40)
def test_an_agent_survives_any_frames(client: Client, frames: list[bytes]) -> None:
    """Given an agent with a task, when any frames come from a launcher, then the task lives on, no
    log lies outside the run's folder, and the agent takes less than 150 MiB."""
    leave, kill = bytes([wire.LEAVE]), bytes([wire.KILL])
    frames = [f for f in frames if f[4:5] not in (leave, kill) or b"junk:0" in f]
    talk(client, wire.encode(wire.HELLO, hello(client.token)), *frames)
    held = answer_to(client, asked(client)).json()
    assert any(one["task"] == "w:0" and not one["ended"] for one in held["tasks"])
    home = Path(os.environ["HOME"])
    logs = {path.parent for path in home.rglob("*.log") if path.name != "agent.log"}
    assert logs <= {state_folder(client.run_id) / "logs"}
    _, agent = watchdog_and_agent(client.run_id)
    pages = int(Path(f"/proc/{agent.pid}/statm").read_text().split()[1])
    assert pages * resource.getpagesize() < 150 << 20


def test_the_name_of_a_task_is_no_path_on_a_host(client: Client) -> None:
    """Given an agent, when a launcher opens the log of the task `../../evil:0`, then no file of
    that name is made anywhere in the home."""
    opened = {"task": "../../evil:0", "number": 1, "offset": 0, "log_limit": 10}
    talk(client, wire.encode(wire.HELLO, hello(client.token)), wire.encode(wire.READ_LOG, opened))
    answer_to(client, asked(client))
    assert not list(Path(os.environ["HOME"]).rglob("*evil*"))


def test_a_launcher_that_does_not_read_is_let_go(client: Client) -> None:
    """Given an agent, when a launcher sends two million beats and reads no answer, then the agent
    hangs up, and its task lives on. Answers wait in memory only so far."""
    with raw_channel(client.run_id) as channel:
        channel.sendall(wire.encode(wire.HELLO, hello(client.token)))
        with pytest.raises((ConnectionError, BrokenPipeError)):
            for _ in range(2000):
                channel.sendall(wire.encode(wire.BEAT) * 1000)
    held = answer_to(client, asked(client)).json()
    assert any(one["task"] == "w:0" and not one["ended"] for one in held["tasks"])
