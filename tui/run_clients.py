"""The runs that one screen has launched or attached to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from launcher.client.launcher_link import has_launcher
from launcher.client.run_client import RunClient
from launcher.client.standby import Standby
from launcher.cluster.file_model import ClusterModel
from launcher.frozen import frozen
from launcher.history.control import RunControl
from launcher.history.stored import FinishedRun, StoredRun
from launcher.hosts.auth_prompt import PromptHandler
from launcher.run.snapshot import Snapshot
from launcher.store.runs import RunFolder, beside_notes

if TYPE_CHECKING:
    from launcher.history.again import EarlierRun

_KILLS_AT_ONCE = 32
"""Runs to which one screen attaches at a time in order to kill them."""


@frozen
class EndedRun:
    """Last state of a run that was launched here and has ended or was detached."""

    snapshot: Snapshot
    folder: RunFolder
    detached: bool = False
    doubt: str = ""
    """Why a run that was detached may not go on; empty where its launcher process lives."""


class RunClients:
    """Holds a client for each run, and ends the runs launched here when the screen has gone."""

    _screen = True
    """When it has gone its runs are in the background."""

    def __init__(self, standby: Standby | None = None, launched: Sequence[RunClient] = ()) -> None:
        """`standby` has a launcher process wait for the next launch; without it each launch starts
        one. Runs that have been `launched` already end with the screen, too."""
        self._standby = standby
        self._launched: list[RunClient | EndedRun] = [*launched]
        """In the order of their launch. A client of an ended run would keep its logs' marks."""
        self._adding = threading.Lock()
        """Guards what is launched in threads while the screen closes."""
        self._gone = False
        """The screen has been told to end, or has ended."""
        self._attached: list[RunClient] = []
        self._kills = ThreadPoolExecutor(_KILLS_AT_ONCE, "kill")

    def launch(
        self, cluster: ClusterModel, text: str, ask: PromptHandler, resume: str | None = None
    ) -> RunControl:
        """Launches a cluster; `text` is its file as it stands. Its tasks are not known yet.

        Raises:
            TfmuxError: the run's folder cannot be made, or the screen has gone.
        """
        process = self._standby.take() if self._standby is not None else None
        beside = beside_notes(cluster)
        client = RunClient.launch(cluster, text, resume=resume, process=process, ask=ask)
        for sentence in beside:
            client.note(sentence)
        with self._adding:
            self._launched = [_kept(run) for run in self._launched]
            self._launched.append(client)
            gone = self._gone
        if gone:  # meanwhile; nobody would watch over it
            client.kill_all(by_person=False)
        return client

    def launch_again(self, run_id: str, ask: PromptHandler) -> RunControl:
        """Launches a past run again as it was, in its workdir as it is now. What has changed since
        is among the notes of the new run.

        Raises:
            TfmuxError: the run is not known, its cluster file cannot be launched any more, or as
                for `launch`.
        """
        from launcher.history.again import EarlierRun  # not before a screen opens

        earlier = EarlierRun.read(RunFolder.find(run_id))
        run = self.launch(earlier.cluster, earlier.text, ask, earlier.resumed)
        if isinstance(run, RunClient):
            note_changes(run, earlier)
        return run

    def expect_launch(self, *, ssh: bool) -> None:
        """Has a launcher process wait, which logs in to hosts with `ssh`: a cluster is shown that a
        person may launch. Called again and again while it is."""
        if self._standby is not None:
            self._standby.prepare(ssh=ssh)

    def expect_no_launch(self) -> None:
        """Lets no launcher process wait: another thing than a cluster is shown."""
        if self._standby is not None:
            self._standby.dismiss()

    def attach(self, run_id: str, ask: PromptHandler) -> RunControl:
        """Follows a run that goes on; one without a launcher process gets one. A run that has
        ended is shown as it was.

        Raises:
            TfmuxError: it is not known here, or its files cannot be read.
        """
        return self._open(
            run_id,
            lambda folder: RunClient.attach(folder, screen=self._screen, ask=ask, wait=False),
        )

    def kill(self, run_id: str, ask: PromptHandler) -> Future[RunControl]:
        """Kills a run and follows it, in a thread; returns at once, and nothing that becomes of
        the screen stops it."""
        return self._kills.submit(
            self._open, run_id, lambda folder: RunClient.kill(folder, ask=ask)
        )

    def _open(self, run_id: str, follow: Callable[[RunFolder], RunClient]) -> RunControl:
        folder = RunFolder.find(run_id, removed=True)
        if not has_launcher(folder) and (stored := StoredRun(folder)).over:
            return FinishedRun(stored)
        return self._follow(follow(folder))

    def launched(self) -> list[RunClient]:
        """The clients of the runs launched here, those that have ended long ago excepted."""
        return [run for run in self._launched if isinstance(run, RunClient)]

    def interrupt(self) -> None:
        """Ends all runs launched here, as a person has asked for by SIGINT."""
        self._gone = True
        for client in self.launched():
            client.interrupt()

    def terminate(self) -> None:
        """Ends all runs launched here, not because a person asked for it."""
        self._gone = True
        for client in self.launched():
            client.terminate()

    def hang_up(self) -> None:
        """The terminal was closed: each run launched here does what its cluster file says."""
        for client in self.launched():
            client.hang_up()

    def detach_all(self) -> None:
        """Leaves all runs, which go on, those excepted that are being ended."""
        for client in [*self.launched(), *self._attached]:
            if not client.ending:
                client.detach()

    def _follow(self, client: RunClient) -> RunClient:
        """Holds a client whose run is not ours to end."""
        self._attached = [one for one in self._attached if not one.closed]
        self._attached.append(client)
        return client

    def close(self) -> list[EndedRun]:
        """Kills what lives of the runs launched here and waits for it; returns all of them."""
        if self._standby is not None:
            self._standby.close()
        with self._adding:
            self._gone = True
        self._kills.shutdown()
        for client in self._attached:
            client.close()
        for client in self.launched():
            if not client.ending and not client.closed and not client.detached:
                client.kill_all()
        for client in self.launched():
            if not client.closed and not client.detached:
                client.wait()
            client.close()
        return [_ended(run) if isinstance(run, RunClient) else run for run in self._launched]


class PendingRun:
    """A run on its way to the screen: a thread launches it, or attaches to it, and a launcher
    process tells its tasks. Commands that come before there is a run wait for it."""

    def __init__(
        self, what: str, begin: Callable[[], RunControl], *, launches: bool = False
    ) -> None:
        """`what` is done, for the person who waits; `begin` does it, and may take long; it
        `launches`, and could do so again."""
        self.what = what
        self.begin = begin
        self.launches = launches
        self.killed = False
        """A person has pressed the kill key."""
        self.told = False
        """A person has been told why there is nothing to show."""
        self.run: RunControl | None = None
        self.error: Exception | None = None
        self.since = time.monotonic()
        self._lock = threading.Lock()
        self._kills = 0

    @classmethod
    def of(cls, what: str, run: RunControl) -> PendingRun:
        """A run that has been launched already."""
        beginning = cls(what, lambda: run)
        beginning.run = run
        return beginning

    def start(self, changed: Callable[[], None]) -> None:
        """Begins in a thread, which nobody waits for: what is read may lie on a disk that hangs.
        `changed` is called from it, and whenever the run has news."""

        def work() -> None:
            try:
                run = self.run or self.begin()
            except Exception as error:
                self.error = error
            else:
                run.subscribe(lambda _: changed())
                with self._lock:
                    self.run, kills, self._kills = run, self._kills, 0
                for _ in range(kills):
                    run.press_kill()
            changed()

        threading.Thread(target=work, name="begin", daemon=True).start()

    def press_kill(self) -> None:
        """Kills the run, or will as soon as there is one; for any thread."""
        self.killed = True
        with self._lock:
            if self.run is None:
                self._kills += 1
                return
        self.run.press_kill()

    @property
    def known(self) -> bool:
        """The run can be shown: its tasks are known, or it is one of the past."""
        run = self.run
        return run is not None and (bool(run.snapshot().tasks) or isinstance(run, FinishedRun))

    @property
    def failure(self) -> str:
        """Why there is nothing to show; empty while there may be."""
        if self.error is not None:
            return str(self.error)
        if self.run is None or self.known or self.run.living:
            return ""
        return self.run.snapshot().launcher_error or "its launcher process has told no tasks"


def note_changes(client: RunClient, earlier: EarlierRun) -> None:
    """Has a run that was launched again show what has changed since, when that is known."""

    def look() -> None:
        for sentence in earlier.changes():
            client.note(sentence)

    threading.Thread(target=look, name="changes", daemon=True).start()


def _kept(run: RunClient | EndedRun) -> RunClient | EndedRun:
    if isinstance(run, RunClient) and not run.living:
        run.close()
        return _ended(run)
    return run


def _ended(client: RunClient) -> EndedRun:
    doubt = client.doubt() if client.detached else ""
    return EndedRun(client.snapshot(), client.folder, client.detached, doubt)
