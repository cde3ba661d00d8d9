"""Clients that do not read: a suspended screen costs the launcher nothing."""

from __future__ import annotations

import asyncio
import json

from launcher.ids import new_run_id
from launcher.run.snapshot import RunView
from launcher.run.states import RunPhase
from launcher.run.views import Views
from launcher.session.control_socket import ControlSocket
from launcher.session.prompts import PromptQueue
from launcher.store.runs import socket_path
from tests.support.crash import failed
from tests.support.patience import PATIENCE


async def test_no_states_are_made_to_see_whether_a_client_reads_again() -> None:
    """Nothing new happens, and nothing is made; when it reads, it gets the newest one, whole."""
    run_id = new_run_id("paced")
    made: list[None] = []
    state = Views(RunView(run_id, "r", RunPhase.RUNNING, 0.0, waiting="x" * 1_000_000))

    def views() -> Views:
        made.append(None)
        return state

    control = ControlSocket(run_id, lambda _: None, PromptQueue(), views, failed)
    async with control.listening(), asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_unix_connection(socket_path(run_id), limit=1 << 24)
        writer.write(b'{"command": "subscribe", "on_close": "nothing"}\n')
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not made:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for number in range(2):  # it has not read the first, and gets none of these
            state.update_run(waiting=f"{number}" * 1_000_000)
            control.changed()
            await asyncio.sleep(0.2)
        made.clear()
        await asyncio.sleep(1.0)
        assert len(made) <= 2
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        seen = ""
        while seen != state.run.waiting:
            (record,) = json.loads(await reader.readline())["changed"]
            seen = record["waiting"]
        writer.close()
