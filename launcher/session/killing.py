"""Ending a run from elsewhere: its own launcher is asked to; where none is, or it does not act,
the run is taken over."""

from __future__ import annotations

import time

from ..run.snapshot import Snapshot
from ..run.states import RunPhase
from .attach import StoredRun
from .session import Session
from .viewing import Viewer
from .wishes import wish

HEARD_SECONDS = 3.0
"""How long a launcher may take to act on the wish."""
PATIENCE = 20.0
"""Seconds beyond the run's grace that it may take to come to a receipt, and seconds after that
until it has let go of the hosts."""
_PACE = 0.05


class Killing:
    """A kill of one run, begun when it is made: make all, then wait for all.

    So whoever launched the run sees it end as killed, with its receipt, and not somebody take it
    away.
    """

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._began = time.monotonic()
        self._viewer: Viewer | None = None
        self._session: Session | None = None
        if run.folder.launcher_pid() is not None:
            self._viewer = Viewer(run.folder)
            if not self._going_on() and not wish(run.folder.run_id, wish="kill"):
                self._take_over()
        else:
            self._take_over()

    @property
    def run_id(self) -> str:
        """The run that is being ended."""
        return self._run.folder.run_id

    def receipt(self) -> Snapshot:
        """Waits for the run's end and its receipt."""
        state, since = None, self._began
        while True:
            snapshot = (self._session or self._viewer_there()).snapshot()
            if snapshot.state is RunPhase.ENDED:
                return snapshot
            if snapshot.state is not state:
                state, since = snapshot.state, time.monotonic()
            tended = self._session is not None or self._run.folder.launcher_pid() is not None
            if time.monotonic() - since > self._patience(state, tended) and self._session is None:
                self._take_over()  # it has died, or stands still
                state = None
            time.sleep(_PACE)

    def wait(self) -> None:
        """Waits, after the receipt, until the launcher has let go of the hosts."""
        if self._session is not None:
            self._session.wait()
            return
        began = time.monotonic()
        while self._run.folder.launcher_pid() is not None and time.monotonic() - began < PATIENCE:
            time.sleep(_PACE)
        self._viewer_there().close()

    def _viewer_there(self) -> Viewer:
        assert self._viewer is not None
        return self._viewer

    def _patience(self, state: RunPhase, tended: bool) -> float:
        if tended and state is RunPhase.KILLING:
            return self._run.plan.settings.grace + PATIENCE
        return HEARD_SECONDS

    def _going_on(self) -> bool:
        return self._viewer_there().snapshot().state in (RunPhase.KILLING, RunPhase.ENDED)

    def _take_over(self) -> None:
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None
            self._run = StoredRun(self._run.folder)  # what has happened meanwhile
        self._session = self._run.attach()
        self._session.start()
        self._session.kill_all()
