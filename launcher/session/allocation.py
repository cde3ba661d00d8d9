"""Allocation of a run's nodes by an engine: queue, nodes, an end from outside, and release.

What the engine says becomes events of the run; nothing here decides what follows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ..cluster.engine_table import node_name
from ..engines.engine import Engine, EngineError, JobState
from ..errors import TfmuxError
from ..run import events as ev
from ..run.run import Run
from ..run.states import HostState

FIRST_PACE, LAST_PACE = 2.0, 15.0
"""Seconds between two looks at the queue: sites complain of more than that."""
_LOST_PACE = 5.0
_WORD_PACE = 0.5
_WORD_SECONDS = 8.0
_DOUBT_SECONDS = 20.0
"""How long the engine's word is waited for: where all agents have confirmed, and elsewhere."""
_ANSWER_SECONDS = 90.0


class Allocation:
    """The engine's job, from the request to its release."""

    def __init__(
        self, run: Run, engine: Engine, feed: Callable[[ev.Event], None], *, attached: bool
    ) -> None:
        """`attached`: another launcher may have asked for the nodes already."""
        self._run = run
        self._engine = engine
        self._feed = feed
        self._attached = attached
        self._job = run.allocation.job if run.allocation is not None else ""
        self._asked = bool(self._job) or attached
        self._look_now = asyncio.Event()
        self._forced = asyncio.Event()
        self._waiting: asyncio.Task[None] | None = None

    async def supervise(self) -> None:
        """Waits for the nodes, and then for an end of the job that the run does not know of."""
        self._waiting = asyncio.current_task()
        with suppress(asyncio.CancelledError):  # `release` does not need it any more
            if self._run.nodes or await self._queue():
                await self._watch()

    def look_soon(self) -> None:
        """Something happened to a host or a task: the job may have ended."""
        self._look_now.set()

    def force(self) -> None:
        """The engine's word is not waited for any more."""
        self._forced.set()

    # --- the queue ------------------------------------------------------------------------

    async def _queue(self) -> bool:
        """True when there are nodes."""
        try:
            if not self._job and self._attached:
                self._job = await self._engine.find()
                if not self._job:  # whoever comes back to a run does not ask for new nodes
                    raise EngineError("there is no job of this run")
            if not self._job:
                self._asked = True
                self._job = await self._engine.request()
        except TfmuxError as error:
            self._feed(ev.AllocationEnded(time.time(), f"{self._engine.name}: {error}", "REFUSED"))
            return False
        self._feed(ev.Queued(time.time(), self._job))
        pace, told = FIRST_PACE, None
        while True:
            state = await self._look()
            if state is not None:
                if state.over:
                    self._tell_end(state)
                    return False
                if state.nodes:
                    self._feed(ev.Allocated(time.time(), self._hosts(state)))
                    return True
                if state != told:
                    self._feed(
                        ev.Queued(
                            time.time(),
                            self._job,
                            state.state,
                            state.reason,
                            state.expected,
                            state.advice,
                        )
                    )
                told = state
            await asyncio.sleep(pace)
            pace = min(LAST_PACE, pace * 1.25)

    def _hosts(self, state: JobState) -> Mapping[str, ev.AllocatedNode]:
        addresses = state.addresses or ("",) * len(state.nodes)
        return {
            node_name(number): ev.AllocatedNode(node, self._engine.reach(self._job, node), address)
            for number, (node, address) in enumerate(zip(state.nodes, addresses, strict=True))
        }

    async def _look(self) -> JobState | None:
        """How the job stands; None when the engine does not say it."""
        try:
            return await self._engine.look(self._job)
        except TfmuxError:
            return None

    def _tell_end(self, state: JobState) -> None:
        self._feed(ev.AllocationEnded(time.time(), self._sentence(state), state.state))

    def _sentence(self, state: JobState) -> str:
        why = f" ({state.reason})" if state.reason else ""
        return f"{self._engine.name} {self._job} has ended: {state.state}{why}"

    # --- ends from outside ----------------------------------------------------------------

    async def _watch(self) -> None:
        """Asks when a host is lost or a task has ended, and while hosts are lost; beats tell the
        rest."""
        if not self._attached:
            await self._look_now.wait()
        while True:
            self._look_now.clear()
            state = await self._look()
            if state is not None and state.over:
                self._tell_end(state)
                return
            views = self._run.snapshot().hosts
            lost = any(view.state is HostState.LOST for view in views)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOST_PACE if lost else None):
                    await self._look_now.wait()
            await asyncio.sleep(0.2)  # several tasks end together, and squeue is asked once

    # --- release --------------------------------------------------------------------------

    async def release(self) -> None:
        """Cancels the job whatever became of it, and tells what the engine says of the nodes."""
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])
        end: JobState | None = None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                text, words = await self._released()
                if self._run.allocation is not None and self._run.allocation.ended and self._job:
                    end = await self._look()  # while a job is completing Slurm does not say why
        except (TfmuxError, TimeoutError) as error:
            said = str(error) or "no answer"
            text = f"{self._engine.name} {self._job} could not be released: {said}"
            command = self._engine.cancel_command(self._job)
            text += f"; when {self._engine.name} answers again: {command}"
            words = self._all(f"{self._engine.name} did not answer") if self._run.nodes else {}
        state, reason = (end.state, self._sentence(end)) if end is not None else ("", "")
        self._feed(ev.AllocationReleased(time.time(), text, words, state, reason))

    async def _released(self) -> tuple[str, dict[str, ev.EngineWord]]:
        if not self._job and self._asked:  # the answer to the request has not come
            self._job = await self._engine.find()
        if not self._job:
            return "", {}
        await self._engine.release(self._job)
        title = f"{self._engine.name} {self._job}"
        if not self._run.nodes:
            return f"{title} was cancelled in the queue: nothing had started", {}
        return f"{title} is released", await self._words()

    async def _words(self) -> dict[str, ev.EngineWord]:
        """What the engine says of the hosts, when it has nothing more to say or takes too long."""
        hosts = {
            host: self._run.nodes[host].name
            for host in self._run.contacted_hosts
            if host in self._run.nodes
        }
        if not hosts:
            return {}
        patience = _DOUBT_SECONDS if self._run.unconfirmed else _WORD_SECONDS
        deadline = time.monotonic() + patience
        while True:
            try:
                said = await self._engine.words(self._job, list(hosts.values()))
            except EngineError as error:
                return self._all(f"{self._engine.name} did not answer: {error}")
            words = {host: said[node] for host, node in hosts.items()}
            left = deadline - time.monotonic()
            if all(word.final for word in words.values()) or left <= 0 or self._forced.is_set():
                return words
            with suppress(TimeoutError):
                async with asyncio.timeout(_WORD_PACE):
                    await self._forced.wait()

    def _all(self, text: str) -> dict[str, ev.EngineWord]:
        return {host: ev.EngineWord(False, text) for host in self._run.contacted_hosts}
