"""The folders of runs on this machine: what a run leaves here, and who still tends it.

`$XDG_DATA_HOME/tfmux/runs/RUN_ID/` holds `cluster.toml` (as run), `events.jsonl`, and the logs.
A launcher holds a lock on `launcher.lock` while it lives; the lock goes with the process, so
nothing stale can stay behind after a crash.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..agent.folders import FolderError, private
from ..cluster.spec import Cluster
from ..errors import RunNotFoundError, TfmuxError
from ..paths import runs_home
from .disk import Disk, OwnDisk
from .stored_events import Damage, stored_records
from .worker import Worker

STALLED_SECONDS = 1.0
"""A write that lasts longer is not waited for: the disk is full, or does not answer."""
_AGAIN_SECONDS = 1.0
_MOST_UNWRITTEN = 10_000
_LOCK_SECONDS = 0.2
_PID_WIDTH = 10


class RunFolder:
    """One run's folder on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name

    @classmethod
    def create(cls, run_id: str, text: str, cluster: Cluster) -> RunFolder:
        """Makes the folder of a new run, mode 0700; `text` is the cluster's file as it stands.

        Raises:
            TfmuxError: the disk is full, or the folder of runs is somebody else's.
        """
        path = runs_home() / run_id
        try:
            private(str(runs_home()))
            path.mkdir(mode=0o700)
        except FolderError as error:
            raise TfmuxError(f"runs are not kept there: {error}") from error
        except OSError as error:
            raise TfmuxError(f"{path} cannot be made: {error.strerror}") from error
        if "name" not in tomllib.loads(text.removeprefix("\ufeff")):
            # A file without a name has that of the file, and this copy is called otherwise.
            text = f'name = "{cluster.name}"\n' + text.removeprefix("\ufeff")
        try:
            (path / "cluster.toml").write_text(text)
            (path / "origin").write_text(str(cluster.base))
        except OSError as error:
            raise TfmuxError(f"{path} cannot be written: {error.strerror}") from error
        return cls(path)

    @classmethod
    def find(cls, run_id: str) -> RunFolder:
        """The folder of a run, named whole or by a beginning that only one has.

        Raises:
            RunNotFoundError: no run, or several.
        """
        if run_id and "/" not in run_id and not _problem(runs_home() / run_id):
            return cls(runs_home() / run_id)
        found = [folder for folder in cls.all() if run_id and folder.run_id.startswith(run_id)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(folder.run_id for folder in found[:5])
            raise RunNotFoundError(f"{run_id!r} is the beginning of several runs: {names}")
        raise RunNotFoundError(f"no run {run_id!r} here; `tfmux ps` lists those that live")

    @classmethod
    def all(cls) -> list[RunFolder]:
        """All runs that can be looked at, the newest first."""
        return cls.scan()[0]

    @classmethod
    def scan(cls) -> tuple[list[RunFolder], list[UnreadableRun]]:
        """All runs, the newest first, and what stands among them and cannot be looked at."""
        found: list[tuple[float, RunFolder]] = []
        unreadable = []
        try:
            names = sorted(os.listdir(runs_home()))
        except FileNotFoundError:
            names = []
        except OSError as error:
            names = []
            unreadable.append(UnreadableRun(str(runs_home()), error.strerror or str(error)))
        for name in names:
            path = runs_home() / name
            problem = _problem(path)
            if problem is None:
                found.append((_age(path), cls(path)))
            elif problem:
                unreadable.append(UnreadableRun(name, problem))
        found.sort(key=lambda one: one[0], reverse=True)
        return [folder for _, folder in found], unreadable

    @property
    def cluster_file(self) -> Path:
        """The cluster file as run."""
        return self.path / "cluster.toml"

    @property
    def origin(self) -> Path:
        """Where the cluster file's relative paths start from."""
        with suppress(OSError):
            return Path((self.path / "origin").read_text())
        return self.path

    @property
    def journal(self) -> Path:
        """The run's events, one JSON object a line."""
        return self.path / "events.jsonl"

    def records(self, damage: Damage | None = None) -> Iterator[dict[str, Any]]:
        """The events so far as they stand there; `damage` gets what could not be read."""
        return stored_records(self.journal, Damage() if damage is None else damage)

    def tended(self) -> int | None:
        """The pid of the launcher that tends the run now, or None."""
        try:
            with (self.path / "launcher.lock").open("r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(file.read(20) or 0)
        except (OSError, ValueError):
            return None
        return None


@dataclass(frozen=True)
class UnreadableRun:
    """Something among the runs that could not be looked at, and why."""

    run_id: str
    reason: str


class Tending:
    """A launcher's lock on its run; two may overlap while one takes over from the other.

    While it is entered, a thread takes the lock as soon as an earlier launcher has left it.
    """

    def __init__(self, folder: RunFolder, disk: Disk | None = None) -> None:
        self._path = folder.path / "launcher.lock"
        self._disk = disk or OwnDisk()
        self._fd = -1
        self._trying = threading.Lock()
        self._over = threading.Event()

    def try_lock(self) -> bool:
        """Takes the lock; False while another launcher still holds it."""
        with self._trying:
            if not self._path.exists():
                self._disk.write(self._path, b"", 0)
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            with suppress(OSError):  # on a full disk nobody learns our pid, but the lock is ours
                self._disk.write(self._path, f"{os.getpid():<{_PID_WIDTH}}".encode(), 0)
            return True

    def __enter__(self) -> Self:
        threading.Thread(target=self._keep_trying, name="lock", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._release()

    def _keep_trying(self) -> None:
        while not self._over.is_set():
            with suppress(OSError):  # a full disk: others see no launcher here, for now
                if self.try_lock():
                    break
            self._over.wait(_LOCK_SECONDS)
        if self._over.is_set():  # meanwhile: `__exit__` does not wait for a disk
            self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Journal:
    """Appends to a run's `events.jsonl`, in a thread: whoever writes a record never waits for
    the disk. What a full or hanging disk does not take is kept and tried again; of metrics only
    so many."""

    def __init__(self, path: Path, disk: Disk, failed: Callable[[BaseException], None]) -> None:
        """`failed` gets what goes wrong here, but for the disk, on the thread."""
        self._path = path
        self._disk = disk
        self._trouble = ""
        self.unwritten = 0
        """Records that are not in the file yet."""
        self.dropped = 0
        """Metric records that were not kept while the disk did not take them."""
        self._worker = Worker("journal", failed)

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends one record, later."""
        if record.get("event") == "metric" and self.unwritten > _MOST_UNWRITTEN:
            self.dropped += 1
            return
        self.unwritten += 1
        self._worker.put(lambda: self._append(record))

    @property
    def trouble(self) -> str:
        """Why records wait; empty while all is well."""
        if self._worker.stalled > STALLED_SECONDS:
            return self._trouble or "the disk does not answer"
        return ""

    @property
    def idle(self) -> bool:
        """All records are in the file, or given up."""
        return self._worker.idle

    def close(self) -> None:
        """Takes no more; returns at once."""
        self._worker.stop()

    def _append(self, record: Mapping[str, Any]) -> None:
        text = json.dumps(record, ensure_ascii=False) + "\n"
        waiting = text.encode(errors="backslashreplace")  # half a surrogate pair, as JSON has it
        while waiting:
            try:
                waiting = waiting[self._disk.write(self._path, waiting) :]
            except OSError as error:
                self._trouble = error.strerror or str(error)
                if not self._worker.pause(_AGAIN_SECONDS):
                    return
        self._trouble = ""
        self.unwritten -= 1


def _problem(path: Path) -> str | None:
    """Why this is no folder of a run; empty where nothing was ever launched from it."""
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return "it is no folder"
        if stat.S_ISREG((path / "cluster.toml").stat().st_mode):
            return None
        return "its cluster.toml is no file"
    except FileNotFoundError:
        with suppress(OSError):
            # A run's folder is made before its files: it may be about to get them.
            return "it has no cluster.toml" if os.listdir(path) else ""
        return "it is a dangling link" if path.is_symlink() else ""
    except OSError as error:
        return error.strerror or str(error)


def _age(path: Path) -> float:
    with suppress(OSError):
        return (path / "cluster.toml").stat().st_mtime
    return 0.0
