"""How often the states of a run are sent to its clients."""

from __future__ import annotations

import asyncio
import json
import time

from launcher.ids import new_run_id
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase
from launcher.session.control_socket import ControlSocket, socket_path
from launcher.session.prompts import PromptQueue
from tests.patience import PATIENCE


async def test_many_changes_are_sent_together_and_the_first_one_at_once() -> None:
    """A thousand changes in half a second are at most thirty a second; one that comes after a
    pause does not wait for the next interval."""
    run_id = new_run_id("paced")
    notes = 0

    def snapshot() -> Snapshot:
        return Snapshot(run_id, "r", RunPhase.CONNECTING, (), (), 0.0, notes=(str(notes),))

    control = ControlSocket(run_id, lambda _: None, PromptQueue(lambda: None), snapshot)
    async with control.listening(), asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_unix_connection(socket_path(run_id))
        writer.write(b'{"command": "subscribe", "on_close": "nothing"}\n')
        assert json.loads(await reader.readline())["changes"]["run"]["notes"] == ["0"]
        began = time.monotonic()
        received = 0
        while notes < 1000:
            notes += 1
            control.changed()
            await asyncio.sleep(0.0005)
        seen = "0"
        while seen != "1000":
            seen = json.loads(await reader.readline())["changes"]["run"]["notes"][0]
            received += 1
        assert received <= 2 + 30 * (time.monotonic() - began)
        writer.close()


async def test_nothing_is_made_for_nobody() -> None:
    """Without a client no state is put together."""
    made: list[None] = []

    def snapshot() -> None:
        made.append(None)

    control = ControlSocket("paced-2", lambda _: None, PromptQueue(lambda: None), snapshot)
    async with control.listening():
        control.changed()
        await asyncio.sleep(0.1)
    assert not made


async def test_the_beginning_of_a_kill_waits_for_no_pause() -> None:
    """States of thousands of tasks take long, and so do the pauses between them; a client that
    hears for three seconds nothing of its kill has another launcher take the run over."""
    run_id = new_run_id("paced")
    phase = RunPhase.RUNNING
    slow = 0.2

    def snapshot() -> Snapshot:
        time.sleep(slow)
        return Snapshot(run_id, "r", phase, (), (), 0.0)

    control = ControlSocket(run_id, lambda _: None, PromptQueue(lambda: None), snapshot)
    async with control.listening(), asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_unix_connection(socket_path(run_id))
        writer.write(b'{"command": "subscribe", "on_close": "nothing"}\n')
        assert json.loads(await reader.readline())["changes"]["run"]["state"] == "running"
        phase = RunPhase.KILLING
        began = time.monotonic()
        control.changed()  # would be sent in two seconds
        control.record({"time": 1.0, "event": "run", "run": run_id, "state": "killing"})
        assert json.loads(await reader.readline())["changes"]["run"]["state"] == "killing"
        assert time.monotonic() - began < 9 * slow
        writer.close()
