"""What became of a run that another launcher on this machine has taken over, as its events tell."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

from ..plan.plan import Plan
from ..run import events as ev
from ..run.ending import KILL_PATIENCE
from ..run.snapshot import Snapshot
from ..run.states import Outcome, RunState
from ..store.replay import Replay
from ..store.runs import RunFolder
from ..store.stored_events import Damage, ReceiptEvent, RunEvent, events, open_regular, records
from ..store.worker import Worker

GOING_ON_SECONDS = 1.0
"""A run that is being killed is seen to be within so many seconds of the takeover."""
_PACE = 0.1
_END_BYTES = 1 << 20


async def look_elsewhere(plan: Plan, folder: Path, by: str, since: float) -> ev.LookedElsewhere:
    """How the run has ended after `since`, when we took it up, or (no outcome) that it goes on;
    while it is being killed, that is waited for."""
    began = time.monotonic()
    patience = plan.settings.grace + KILL_PATIENCE
    while True:
        seen = await _read(plan, folder, since, patience - (time.monotonic() - began))
        outcome = None if seen is None else seen.outcome
        if seen is not None and outcome not in (None, Outcome.DETACHED):
            code = 4 if seen.exit_code is None else seen.exit_code
            return ev.LookedElsewhere(time.time(), by, outcome, code, seen.receipt)
        waited = time.monotonic() - began
        killing = seen is not None and seen.state is RunState.KILLING
        if waited > (patience if killing else GOING_ON_SECONDS):
            return ev.LookedElsewhere(time.time(), by)
        await asyncio.sleep(_PACE)


async def _read(plan: Plan, folder: Path, since: float, seconds: float) -> Snapshot | None:
    """The state in the events; None when the disk does not answer in time, or nothing is there."""
    loop = asyncio.get_running_loop()
    read: asyncio.Future[Snapshot | None] = loop.create_future()

    def done(snapshot: Snapshot | None) -> None:
        if not read.done():
            read.set_result(snapshot)

    def work() -> None:
        loop.call_soon_threadsafe(done, _stored(plan, folder, since))

    def failed(_: BaseException) -> None:
        loop.call_soon_threadsafe(done, None)

    worker = Worker("elsewhere", failed)
    worker.put(work)
    worker.stop()
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            return await read
    return None


def _stored(plan: Plan, folder: Path, since: float) -> Snapshot:
    """What the end of the events says: state and receipt. An end among them is none of ours, and
    nothing that we have written after it counts."""
    replay = Replay(plan, ())
    damage = Damage()
    with open_regular(RunFolder(folder).journal) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _END_BYTES))
        found = records(file.read().split(b"\n"), damage)
    for event in events(found, damage):
        if event.time < since or not isinstance(event, RunEvent | ReceiptEvent):
            continue
        ended = replay.snapshot.outcome is not None
        if not ended or isinstance(event, ReceiptEvent) or event.outcome is not None:
            replay.read(event)
    return replay.snapshot
