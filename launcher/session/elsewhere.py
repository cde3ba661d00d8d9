"""Journal of a run that another launcher on this machine has taken over: what became of it."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from ..cluster.spec import ClusterModel
from ..plan.model import Plan
from ..run import events as ev
from ..run.shutdown import KILL_PATIENCE
from ..run.snapshot import Snapshot
from ..run.states import Outcome, RunPhase
from ..store.journal import read_journal
from ..store.runs import RunFolder

GOING_ON_SECONDS = 1.0
"""A run that is being killed is seen to be within so many seconds of the takeover."""
_PACE = 0.1


async def look_elsewhere(
    plan: Plan, cluster: ClusterModel, folder: Path, by: str, launcher: str
) -> ev.LookedElsewhere:
    """End of the run under a launcher other than `launcher`, which is we, or (no outcome) that
    it goes on; while it is being killed, that is waited for."""
    began = time.monotonic()
    patience = plan.settings.grace + KILL_PATIENCE
    while True:
        left = patience - (time.monotonic() - began)
        seen = await _read(plan, cluster, folder, launcher, left)
        outcome = None if seen is None else seen.outcome
        if seen is not None and outcome not in (None, Outcome.DETACHED):
            code = 4 if seen.exit_code is None else seen.exit_code
            return ev.LookedElsewhere(time.time(), by, outcome, code, seen.receipt)
        waited = time.monotonic() - began
        killing = seen is not None and seen.state is RunPhase.KILLING
        if waited > (patience if killing else GOING_ON_SECONDS):
            return ev.LookedElsewhere(time.time(), by)
        await asyncio.sleep(_PACE)


async def _read(
    plan: Plan, cluster: ClusterModel, folder: Path, launcher: str, seconds: float
) -> Snapshot | None:
    """The state in the journal; None when the disk does not answer in time, or no other launcher
    has written there."""
    read: Future[Snapshot | None] = Future()
    read.set_running_or_notify_cancel()  # from now on nobody can cancel it but by not waiting

    def work() -> None:
        try:
            journal = read_journal(RunFolder(folder).journal)
            theirs = journal.launcher not in ("", launcher)
            read.set_result(journal.replay(cluster, plan.run_id).snapshot() if theirs else None)
        except Exception as error:
            read.set_exception(error)

    # A daemon thread: one that waits for a disk must not hold up the end of the process.
    threading.Thread(target=work, name="elsewhere", daemon=True).start()
    with suppress(Exception):
        async with asyncio.timeout(max(0.0, seconds)):
            return await asyncio.wrap_future(read)
    return None
