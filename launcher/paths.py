"""Directories of tfmux on this machine, by the XDG base directory specification.

`expand_user` is for paths that a person has typed.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from .errors import TfmuxError
from .frozen import frozen
from .printable import printable


def expand_user(text: str) -> Path:
    """Returns the path that a person has typed, in which `~` and `~name` are home directories.

    Raises:
        TfmuxError: there is no user of that name.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise TfmuxError(f"{printable(text, 200)}: there is no such user") from None


def tilde(path: Path) -> str:
    """Returns a path as a person types it, with `~` for this user's home."""
    try:
        return str(Path("~") / path.absolute().relative_to(Path.home()))
    except (ValueError, RuntimeError):  # elsewhere, or this user has no home
        return str(path)


def config_home() -> Path:
    """Directory of the user's settings: `$XDG_CONFIG_HOME/tfmux`."""
    return _home("XDG_CONFIG_HOME", "~/.config")


def cache_home() -> Path:
    """Directory of data that can be made again: `$XDG_CACHE_HOME/tfmux`."""
    return _home("XDG_CACHE_HOME", "~/.cache")


def state_home() -> Path:
    """Directory of the agents' files for tasks of this machine: `$XDG_STATE_HOME/tfmux`."""
    return _home("XDG_STATE_HOME", "~/.local/state")


def runs_home() -> Path:
    """Directory of all runs: `$XDG_DATA_HOME/tfmux/runs`."""
    return _home("XDG_DATA_HOME", "~/.local/share") / "runs"


def default_runs_home() -> Path:
    """Directory of all runs where `$XDG_DATA_HOME` is not set."""
    return Path("~/.local/share/tfmux/runs").expanduser()


def installed_scripts() -> str:
    """Directory of the scripts that run on hosts."""
    return str(Path(__file__).resolve().parent / "on_host")


def installed_trainer() -> str:
    """Directory with the bundled trainer package, empty if it is missing.

    It is neither imported nor searched for: a folder of the user's may have the same name. In an
    installation it holds nothing else, since the tasks get it on their `PYTHONPATH`; a checkout
    has the package next to the launcher's.
    """
    own = Path(__file__).resolve().parent
    folders = (own / "bundled", own.parent)
    found = (each for each in folders if (each / "trainer" / "__main__.py").exists())
    return str(next(found, ""))


def read_small(path: Path | str, most: int) -> bytes:
    """Returns the contents of a small file: at most so many bytes, and of a regular file only.

    Raises:
        OSError: it is not there, cannot be read, or is a folder or a pipe.
        ValueError: it is longer.
    """
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"longer than {most} bytes")
    return data


def open_regular(path: Path | str) -> BinaryIO:
    """Opens a file for reading, and nothing else that may be in its place: a pipe without a writer
    would block the open for ever.

    Raises:
        OSError: it is not there, cannot be read, or is a folder or a pipe.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return open(fd, "rb")
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file")


def _home(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or default).expanduser() / "tfmux"


@frozen
class Stamp:
    """Identity, size and time of a file when it was read or written, to detect changes."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """Returns the file's stamp now; None if there is no such file."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)
