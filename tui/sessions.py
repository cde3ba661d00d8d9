"""The runs that one screen has launched or taken over, so that none is left unwatched."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.cluster.spec import Cluster
from launcher.hosts.credentials import Ask
from launcher.run.snapshot import Snapshot
from launcher.session.attach import StoredRun, stored
from launcher.session.control import RunControl
from launcher.session.session import Session
from launcher.session.viewing import Viewer
from launcher.store.runs import RunFolder
from tui.detaching import detach_command


@dataclass(frozen=True)
class EndedRun:
    """What is kept of a run that was launched or taken over here and has ended."""

    snapshot: Snapshot
    folder: RunFolder

    @classmethod
    def of(cls, session: Session) -> EndedRun:
        """What is to be kept of it."""
        return cls(session.snapshot(), session.folder)


class Sessions:
    """Starts sessions, and ends those that still live when the screen has gone."""

    def __init__(self) -> None:
        self._all: list[Session | EndedRun] = []
        """In the order of their start. An ended one would keep its logs' marks and metrics."""
        self._viewers: list[Viewer] = []

    def launch(
        self, cluster: Cluster, text: str, ask: Ask, resume: str | None = None
    ) -> RunControl:
        """Launches a cluster; `text` is its file as it stands.

        Raises:
            OSError: the run's folder cannot be made.
        """
        return self._start(Session.launch(cluster, text, resume=resume), ask)

    def attach(self, run_id: str, ask: Ask) -> RunControl:
        """Takes a living run over.

        Raises:
            TfmuxError: it is not known here, or its file cannot be read.
        """
        return self.take(stored(run_id), ask)

    def take(self, run: StoredRun, ask: Ask) -> RunControl:
        """Takes a living run over."""
        return self._start(run.attach(), ask)

    def hold(self, run: StoredRun, ask: Ask) -> RunControl:
        """A living run, to act on it: by the launcher that tends it, else it is taken over."""
        if run.folder.launcher_pid() is None:
            return self.take(run, ask)
        return self._keep(Viewer(run.folder))

    def all(self) -> list[Session]:
        """All sessions that are still held, in the order of their start."""
        return [one for one in self._all if isinstance(one, Session)]

    def end_by_machine(self) -> None:
        """Ends everything, not because a person wanted it."""
        for session in self.all():
            session.kill_all(by_person=False)

    def close(self) -> list[EndedRun]:
        """Ends what lives, waits, and returns all runs in the order of their start."""
        for viewer in self._viewers:
            viewer.close()
        for session in self.all():
            if session.living and session.snapshot().outcome is None:
                session.kill_all()
        for session in self.all():
            session.wait()
        return [one if isinstance(one, EndedRun) else EndedRun.of(one) for one in self._all]

    def _keep(self, viewer: Viewer) -> Viewer:
        self._viewers = [one for one in self._viewers if not one.closed]
        self._viewers.append(viewer)
        return viewer

    def _start(self, session: Session, ask: Ask) -> Session:
        session.detach_with(detach_command(session))
        session.on_question(ask)
        self._all = [
            EndedRun.of(one) if isinstance(one, Session) and not one.living else one
            for one in self._all
        ]
        self._all.append(session)
        session.start()
        return session
