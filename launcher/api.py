"""Python interface: launch, follow and end runs from a program (`docs/python-api.md`).

`Run` is an asyncio view of a `RunClient`, the client of all front ends: state and events come on
its thread and are handed over to the loop. The headless command line is written with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from .client.launcher_link import has_launcher
from .client.launcher_process import LauncherProcess
from .client.run_client import RunClient
from .cluster.file_model import ClusterModel
from .cluster.read import loads, read_text
from .crossing import loop_caller
from .errors import LauncherError, RunEndedError, TaskNotFoundError
from .frozen import frozen
from .history.control import STACKS_SECONDS
from .history.following import EventFiles, RunLogs
from .history.stored import StoredRun, stored_folder
from .ids import TaskId
from .printable import escaped
from .run.snapshot import Receipt, Snapshot, TaskView
from .run.states import RunPhase
from .store.stream import LogEvent, PublicEvent

if TYPE_CHECKING:
    from .history.kept_results import HostResults
    from .hosts.auth_prompt import PromptHandler
    from .run.stack_groups import Stacks

_PACE = 0.05
_Started = tuple[RunClient, EventFiles]
_ENDING = (RunPhase.KILLING, RunPhase.ENDED)


@frozen
class Cluster:
    """A cluster file that has been read and checked."""

    model: ClusterModel
    text: str
    """The file as it stands: each run keeps a copy."""

    @classmethod
    def from_file(cls, path: Path | str) -> Cluster:
        """Reads a cluster file; relative paths in it start from its directory.

        Raises:
            ClusterFileError: it cannot be read, or something in it is wrong; holds all problems.
        """
        path = Path(path)
        text, base = read_text(path), path.absolute().parent
        return cls(loads(text, escaped(str(path)), base, for_launch=True), text)

    @classmethod
    def from_text(cls, text: str, base: Path | str = ".") -> Cluster:
        """Reads the text of a cluster file; relative paths in it start from `base`.

        Raises:
            ClusterFileError: something in it is wrong; holds all problems.
        """
        return cls(loads(text, "cluster", Path(base).absolute(), for_launch=True), text)

    @property
    def name(self) -> str:
        """The cluster's name, with which the ids of its runs begin."""
        return self.model.name

    def launch(
        self,
        *,
        resume: str | None = None,
        detach: bool = False,
        ask: PromptHandler | None = None,
        process: LauncherProcess | None = None,
        begun: Callable[[RunClient], None] = lambda client: None,
    ) -> AbstractAsyncContextManager[Run]:
        """Launches a run, which the end of the `async with` block ends.

        However the block is left (at its end, by an exception, because the task was cancelled), a
        run that goes on is killed, and its receipt waited for. Another cancellation meanwhile
        kills at once.

        Args:
            resume: the run in whose log directory this one goes on: its id, or a beginning that
                only one run has.
            detach: lets the run go on when the block is left or this process ends.
            ask: answers SSH prompts (passphrases, passwords, host keys), on a loop of its own;
                without it they are refused.
            process: a launcher process that was started beforehand.
            begun: gets the client of the run, which can be killed from then on, before the
                launcher process has told its tasks and the block is entered.

        Raises:
            RunNotFoundError: on entering; `resume` is no run, or several.
            TfmuxError: on entering; the run's folder cannot be made.
        """

        def start(on_end: Callable[[], None]) -> _Started:
            client = RunClient.launch(
                self.model,
                self.text,
                resume=resume,
                process=process,
                on_close="nothing" if detach else None,
                ask=ask,
                on_end=on_end,
            )
            return client, EventFiles(client.folder, from_end=False)

        return opened(start, detach=detach, begun=begun)


class Run:
    """A run, while its `async with` block is open. Everything belongs to the block's loop."""

    def __init__(
        self, client: RunClient, files: EventFiles, ended: asyncio.Event, *, attached: bool
    ) -> None:
        """Not for callers: `Cluster.launch` and `Run.attach` give a run."""
        self.client = client
        """The client below, whose methods return at once and are safe in any thread."""
        self.id = client.run_id
        self.folder = client.folder.path
        """The folder of the run on this machine (`cluster.toml`, `events.jsonl`, logs)."""
        self._files = files
        self._ended = ended
        """Nothing follows any more."""
        self._own: list[PublicEvent] = []
        """Events of this side of the connection."""
        self.attached = attached
        """The run was there before; its log lines are those from now on."""
        self._lost_launchers = 0
        """Deaths of launcher processes that events have told."""
        self._killed = False
        """`kill` has been called."""
        self._changed = asyncio.Event()
        self._error: LauncherError | None = None
        call = loop_caller()
        client.subscribe(lambda _: call(self._on_change))
        self._on_change()

    @classmethod
    def attach(
        cls,
        run_id: str,
        *,
        file: Path | str | None = None,
        detach: bool = True,
        ask: PromptHandler | None = None,
        begun: Callable[[RunClient], None] = lambda client: None,
    ) -> AbstractAsyncContextManager[Run]:
        """Follows a run that goes on; one whose launcher process has died gets another one.

        Args:
            run_id: the id, the beginning of one, or the whole name of the cluster.
            file: the cluster file, for a run that another machine has launched; `run_id` is the
                whole id then.
            detach: lets the run go on when the block is left; False kills it then.
            ask: as for `Cluster.launch`.
            begun: as for `Cluster.launch`.

        Raises:
            RunNotFoundError: on entering; no such run is active here, or several are.
            RunEndedError: on entering; nothing of it is left.
            TfmuxError: on entering; its files cannot be read.
        """

        def start(on_end: Callable[[], None]) -> _Started:
            from .history.named_runs import active_run  # which few programs need

            if file is None:
                folder = active_run(run_id)
            else:
                folder = stored_folder(run_id, Path(file), removed=True)
            if not has_launcher(folder) and StoredRun(folder).over:
                raise RunEndedError(f"{folder.run_id} has ended")
            files = EventFiles(folder, from_end=True)
            return RunClient.attach(folder, ask=ask, on_end=on_end), files

        return opened(start, detach=detach, attached=True, begun=begun)

    def snapshot(self) -> Snapshot:
        """The run as it stands: states, metrics, hosts, the first failure."""
        return self.client.snapshot()

    @property
    def receipt(self) -> Receipt | None:
        """The proof of what is left on each host; None before the end."""
        return self.snapshot().receipt

    @property
    def exit_code(self) -> int | None:
        """The exit code that the command line would have; None before the end."""
        return self.snapshot().exit_code

    def log(self, task: str | TaskId) -> Path:
        """The file that a task's output goes to, byte for byte; it need not exist yet.

        Raises:
            TaskNotFoundError: the run has no such task.
        """
        return self.folder / f"{self._find(task).stem}.log"

    @overload
    def events(self, *, logs: Literal[False] = False) -> AsyncIterator[PublicEvent]: ...

    @overload
    def events(self, *, logs: Literal[True]) -> AsyncIterator[PublicEvent | LogEvent]: ...

    async def events(self, *, logs: bool = False) -> AsyncIterator[PublicEvent | LogEvent]:
        """Yields the events from the block's beginning to the run's end, each once.

        They are read from the run's files when the iterator is asked for more: one that is slow
        keeps nothing in memory and loses nothing. While the disk takes nothing only notes come,
        from the launcher; what the files lack at the end comes then, without what has been
        overtaken.

        Args:
            logs: yields the lines of the tasks, too, those of a run that was attached to from
                this call on.

        Raises:
            LauncherError: no launcher process stays alive.
        """
        reader = await self._reader() if logs else None
        ended = False
        while not ended:
            ended = self._ended.is_set()  # before the look: nothing comes after it
            lines = await asyncio.to_thread(_lines, reader) if reader is not None else []
            found = await asyncio.to_thread(self._files.read, self.client.records, last=ended)
            own, self._own = self._own, []
            for event in (*found, *own, *lines):
                yield event
            if not lines:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PACE):
                        await self._ended.wait()
        while reader is not None:
            lines = await asyncio.to_thread(_lines, reader, last=True)
            for line in lines:
                yield line
            if not lines and not reader.behind:
                break
        self._check()

    async def wait(self) -> Snapshot:
        """Waits until the run has ended and its hosts are released; returns its last state.

        Raises:
            LauncherError: no launcher process stays alive.
        """
        await self._ended.wait()
        self._check()
        return self.snapshot()

    async def kill(self, *, by_person: bool = True) -> Receipt:
        """Ends everything: TERM on all hosts at once, KILL after the grace. A second call kills at
        once. Returns the receipt; logs and results may still be on their way (`wait`).

        Args:
            by_person: the run's outcome is `killed` (130) rather than `terminated` (143).

        Raises:
            RunEndedError: the run has been detached.
            LauncherError: no launcher process stays alive to do it.
        """
        if self.snapshot().state is not RunPhase.ENDED:
            if self.client.detached:
                raise RunEndedError(f"kill: {self.id} has been detached")
            self.client.kill_all(by_person=by_person, force=self._killed)
            self._killed = True
        await self._until(lambda now: now.receipt is not None)
        self._check()
        if self.receipt is None:
            raise LauncherError(self.snapshot().launcher_error or "the run ended without a receipt")
        return self.receipt

    async def restart(self, task: str | TaskId, *, hard: bool = False) -> TaskView:
        """Ends a task, with the grace or at once (`hard`), and starts it again; returns its state
        when the next attempt has been started, or could not be.

        Raises:
            TaskNotFoundError: the run has no such task.
            RunEndedError: the run has ended, or is being ended.
        """
        task = self._find(task)
        before = self.snapshot().task(task).attempt
        self._check_commands(f"restart {task}")
        self.client.restart(task, hard=hard)

        def started(now: Snapshot) -> bool:
            view = now.task(task)
            begun = any(attempt.number > before for attempt in view.attempts)
            return begun or (view.attempt > before and view.state.ended)

        await self._until(lambda now: started(now) or now.state in _ENDING)
        self._check()
        if not started(self.snapshot()):
            raise RunEndedError(f"restart {task}: {self.id} has ended")
        return self.snapshot().task(task)

    def signal(self, task: str | TaskId, name: str) -> None:
        """Sends a task `TERM`, its stop signal (KILL follows after the grace), or `KILL`.

        Raises:
            TaskNotFoundError: the run has no such task.
            RunEndedError: the run has ended, or is being ended.
        """
        task = self._find(task)
        if name not in ("TERM", "KILL"):
            raise ValueError(f"{name!r} is neither TERM nor KILL")
        self._check_commands(f"{name} to {task}")
        self.client.signal(task, name)

    async def stacks(self, tasks: Sequence[str | TaskId] | None = None) -> Stacks:
        """Where these tasks stand now, or all: the stacks of their processes, in groups of tasks
        that stand in the same place. Hosts and tasks that do not answer are in `unanswered`.

        Raises:
            TaskNotFoundError: the run has no such task.
            RunEndedError: the run has ended.
            LauncherError: no launcher process supervises the run, or it does not answer.
        """
        wanted = None if tasks is None else [self._find(task) for task in tasks]
        self._check_commands("stacks", until=(RunPhase.ENDED,))
        look = asyncio.wrap_future(self.client.request_stacks(wanted))
        try:
            async with asyncio.timeout(STACKS_SECONDS):
                return await look
        except TimeoutError:
            text = f"stacks: the launcher process of {self.id} does not answer"
            raise LauncherError(text) from None

    async def detach(self) -> None:
        """Leaves the run, which goes on; `Run.attach` and `tfmux attach` come back to it."""
        await asyncio.to_thread(self.client.detach)

    # --- inside ---------------------------------------------------------------------------

    def _find(self, task: str | TaskId) -> TaskId:
        tasks = [view.id for view in self.snapshot().tasks]
        for known in tasks:
            if str(known) == str(task):
                return known
        raise TaskNotFoundError(str(task), tasks)

    async def _reader(self) -> RunLogs:
        tasks = {view.id: view.host for view in self.snapshot().tasks}
        return await asyncio.to_thread(RunLogs, self.folder, tasks, from_end=self.attached)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _check_commands(self, what: str, until: Sequence[RunPhase] = _ENDING) -> None:
        if self.client.closed or self.snapshot().state in until:
            gone = "has been detached" if self.client.detached else "has ended"
            raise RunEndedError(f"{what}: {self.id} {gone}")
        if not self.client.following:
            raise LauncherError(f"{what}: not sent, no launcher supervises this run")

    def _note(self, text: str) -> PublicEvent:
        return {"time": time.time(), "event": "note", "note": text}

    def _on_change(self) -> None:
        """There is a new snapshot. It is told when a launcher process has died."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        client = self.client
        if client.lost_launchers > self._lost_launchers:
            self._lost_launchers = client.lost_launchers
            self._own.append(self._note(self.snapshot().notes[-1]))
        if client.gave_up:
            text = f"no launcher process stays alive ({self.snapshot().launcher_error}); "
            self._error = LauncherError(f"{text}end the run with: tfmux kill {self.id}")
            self._ended.set()

    async def begin(self) -> None:
        """Waits until the run's tasks are known."""
        await self._until(lambda _: self.client.heard)

    async def _until(self, condition: Callable[[Snapshot], bool]) -> None:
        """Waits until a condition holds, or nothing follows any more."""
        ended = asyncio.create_task(self._ended.wait())
        try:
            while not condition(self.snapshot()) and not ended.done():
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait([ended, changed], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            ended.cancel()

    async def leave(self, *, detach: bool) -> None:
        """Ends the block: leaves the run, or kills it and waits until that is done."""
        client, cancelled = self.client, False
        if self._error is None and not client.closed and not self._ended.is_set():
            if detach:
                await self.detach()
            elif client.snapshot().state is not RunPhase.ENDED:
                client.kill_all(by_person=False)
            while not self._ended.is_set():
                try:
                    await self._ended.wait()
                except asyncio.CancelledError:
                    cancelled = True
                    if not detach:
                        client.kill_all(by_person=False, force=True)
        client.close()
        if cancelled:
            raise asyncio.CancelledError


async def collect(
    run_id: str,
    patterns: Sequence[str] = (),
    *,
    ask: PromptHandler | None = None,
    progress: Callable[[str, int, int], None] = lambda host, done, total: None,
) -> list[HostResults]:
    """Brings what the tasks of a run have left in the workdirs of its hosts to
    `collected/HOST` in the run's folder; what is there already does not come again.

    Args:
        run_id: the id, the beginning of one, or the whole name of a cluster with one run.
        patterns: paths in the workdir, or patterns of such; without any, everything comes.
        ask: as for `Cluster.launch`.
        progress: gets a host's name, its bytes so far and in all.

    Returns:
        For each host what has come, or the `problem` for which nothing has.

    Raises:
        RunNotFoundError: no run, or several.
        TfmuxError: its files cannot be read.
    """
    from .history.kept_results import collect_results
    from .history.named_runs import any_run

    run = await asyncio.to_thread(lambda: StoredRun(any_run(run_id)))
    return await collect_results(run, patterns, progress, ask)


def _lines(reader: RunLogs, *, last: bool = False) -> list[LogEvent]:
    """The next lines of the logs."""
    return [reader.event(task, line) for task, line in reader.read(last=last)]


@asynccontextmanager
async def opened(
    start: Callable[[Callable[[], None]], _Started],
    *,
    detach: bool,
    attached: bool = False,
    begun: Callable[[RunClient], None] = lambda client: None,
) -> AsyncIterator[Run]:
    """Opens the run of a client that `start` makes, in a thread since files are read there."""
    call, ended, cancelled = loop_caller(), asyncio.Event(), False
    starting = asyncio.ensure_future(asyncio.to_thread(start, lambda: call(ended.set)))
    while not starting.done():
        try:
            await asyncio.wait([starting])
        except asyncio.CancelledError:
            cancelled = True
    run = Run(*starting.result(), ended, attached=attached)
    try:
        if cancelled:
            raise asyncio.CancelledError
        begun(run.client)
        await run.begin()
        yield run
    finally:
        await run.leave(detach=detach)
