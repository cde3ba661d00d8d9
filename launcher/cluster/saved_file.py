"""File that is saved as a whole, and the stamp by which a change of it is seen."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from ..errors import TfmuxError
from ..paths import Stamp
from ..printable import escaped


class SaveError(TfmuxError):
    """A file could not be read or written."""


def write(path: Path, text: str) -> Stamp:
    """Writes a file atomically; an existing file keeps its mode, and a symbolic link is kept.

    Raises:
        SaveError: it is read-only, the disk is full, and so on.
    """
    import tempfile  # slow: many only look whether a file has changed

    target = Path(os.path.realpath(path))
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = escaped(text[error.start])
        what = f"the text has {found}, which cannot be written as UTF-8: remove it"
        raise SaveError(what) from None
    mode = 0o600
    temporary = ""
    try:
        with suppress(FileNotFoundError):
            before = target.stat()
            if stat.S_ISDIR(before.st_mode):
                raise SaveError(f"{path} is a directory: use the name of a file")
            # A rename would replace a read-only file as well.
            if not before.st_mode & 0o222 or not os.access(target, os.W_OK):
                raise SaveError(f"{path} is read-only: save it under another name")
            mode = stat.S_IMODE(before.st_mode)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=target.parent)
        with open(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, target)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        raise SaveError(f"{path} cannot be saved: {error.strerror or error}") from None
    found_now = Stamp.of(target)
    if found_now is None:
        raise SaveError(f"{path} was removed while it was being saved: save it again")
    return found_now
