"""The folders of runs on this machine: what a run leaves here, and who still tends it.

`$XDG_DATA_HOME/tfmux/runs/RUN_ID/` holds `cluster.toml` (as run), `events.jsonl`, and the logs.
A launcher holds a lock on `launcher.lock` while it lives; the lock goes with the process, so
nothing stale can stay behind after a crash.
"""

from __future__ import annotations

import fcntl
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..agent.folders import FolderError, private
from ..cluster.spec import Cluster
from ..errors import RunNotFoundError, TfmuxError
from ..homes import runs_home


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
        if run_id and "/" not in run_id and (runs_home() / run_id / "events.jsonl").is_file():
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
        """All runs, the newest first."""
        if not runs_home().is_dir():
            return []
        paths = [path for path in runs_home().iterdir() if (path / "cluster.toml").is_file()]
        return [cls(path) for path in sorted(paths, key=_age, reverse=True)]

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

    def records(self) -> Iterator[dict[str, Any]]:
        """The events so far; a last line that a crash has cut is left out."""
        with suppress(FileNotFoundError), self.journal.open("rb") as file:
            for line in file:
                with suppress(ValueError):
                    yield json.loads(line)

    def tended(self) -> int | None:
        """The pid of the launcher that tends the run now, or None."""
        try:
            with (self.path / "launcher.lock").open("r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(file.read() or 0)
        except (FileNotFoundError, ValueError):
            return None
        return None


class Tending:
    """A launcher's lock on its run; two may overlap while one takes over from the other."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / "launcher.lock"
        self._fd = -1

    def try_lock(self) -> bool:
        """Takes the lock; False while another launcher still holds it."""
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        with suppress(OSError):  # on a full disk nobody learns our pid, but the lock is ours
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, str(os.getpid()).encode(), 0)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Journal:
    """Appends to a run's `events.jsonl`. A full disk must not end the run: what could not be
    written is kept and tried again with the next record."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._waiting = b""

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends one record."""
        self._waiting += json.dumps(record, ensure_ascii=False).encode() + b"\n"
        try:
            written = os.write(self._fd, self._waiting)
        except OSError:
            self._waiting = self._waiting[-(1 << 20) :]
            return
        self._waiting = self._waiting[written:]

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)


def _age(path: Path) -> float:
    return (path / "cluster.toml").stat().st_mtime
