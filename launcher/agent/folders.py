"""Where a run lives on a host: one folder of mode 0700, and a socket in a host-local place.

Homes are often one NFS share for all hosts, so the folder's name holds the run *and* the host,
and the socket never lies in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat


class FolderError(Exception):
    """A folder is somebody else's, or nothing can be written anywhere."""


def private(path: str) -> str:
    """Makes a folder that only we may enter, or checks that it is one.

    Raises:
        FolderError: it is a link, belongs to another user, or cannot be made.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass  # checked below, as ours from an earlier run would be
        info = os.lstat(path)
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror}") from error
    if not stat.S_ISDIR(info.st_mode):
        raise FolderError(f"{path} is no folder (a link or a file stands in its place)")
    if info.st_uid != os.getuid():
        raise FolderError(f"{path} belongs to another user (uid {info.st_uid})")
    if stat.S_IMODE(info.st_mode) & 0o077:
        os.chmod(path, 0o700)
    return path


class Folders:
    """The places of one run on this host."""

    def __init__(self, run_id: str, host: str, logs: str | None, environ: dict[str, str]) -> None:
        name = f"{run_id}.{host}"
        self.local = private(f"/tmp/tfmux-{os.getuid()}")
        digest = hashlib.sha256(name.encode()).hexdigest()[:24]
        self.socket = os.path.join(self.local, digest + ".sock")
        self.lock = os.path.join(self.local, digest + ".lock")
        self.home = os.path.expanduser("~")
        state = environ.get("XDG_STATE_HOME") or os.path.join(self.home, ".local", "state")
        base = self._writable(os.path.join(state, "tfmux"), "state")
        self._cache = environ.get("XDG_CACHE_HOME") or os.path.join(self.home, ".cache")
        self.run = private(os.path.join(base, name))
        self.logs = logs or private(os.path.join(self.run, "logs"))
        self.state = os.path.join(self.run, "state.json")
        self.errors = os.path.join(self.run, "agent.log")
        self.stage = os.path.join(self.run, "stage")

    @property
    def cache(self) -> str:
        """Where staged contents are kept for the next launch; made when it is first needed.

        Raises:
            FolderError: it cannot be made.
        """
        return self._writable(os.path.join(self._cache, "tfmux"), "cache")

    def _writable(self, wanted: str, instead: str) -> str:
        """A private folder: the wanted one, or on a read-only home one in the host-local place."""
        try:
            folder = private(wanted)
            if os.access(folder, os.W_OK):
                return folder
        except FolderError:
            pass  # the usual case of a read-only home: it cannot be made
        return private(os.path.join(self.local, instead))

    def log(self, task: str) -> str:
        """The log file of a task."""
        return os.path.join(self.logs, task.replace(":", "-") + ".log")

    def remove(self) -> None:
        """Takes the run's folder off this host."""
        shutil.rmtree(self.run, ignore_errors=True)
        self.unlink_socket()
        _unlink(self.lock)

    def unlink_socket(self) -> None:
        """Nobody listens any more."""
        _unlink(self.socket)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return  # another agent's bridge, or a cleaner of /tmp, has
