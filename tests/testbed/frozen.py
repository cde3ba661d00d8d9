"""A file system that can be made to hang: a loop device with ext4, frozen by the kernel.

Writers to a frozen file system sleep in the kernel, uninterruptibly, until it is thawed: what a
rebooting NFS server or a failing disk does to them.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self


class FreezableDisk:
    """A small ext4 file system mounted at `mountpoint`; use as a context manager.

    Needs root. Leaving thaws it, unmounts it and removes its image.
    """

    def __init__(self, image: Path, mountpoint: Path, megabytes: int = 64) -> None:
        self._image = image
        self.mountpoint = mountpoint
        self._megabytes = megabytes
        self._frozen = False

    def __enter__(self) -> Self:
        with self._image.open("wb") as file:
            file.truncate(self._megabytes << 20)
        # Without a journal and lazy initialisation nothing of the kernel's own writes to it.
        options = "^has_journal,^uninit_bg"
        subprocess.run(["/sbin/mkfs.ext4", "-q", "-F", "-O", options, self._image], check=True)
        self.mountpoint.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-o", "loop", self._image, self.mountpoint], check=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.thaw()
        subprocess.run(["umount", "--lazy", self.mountpoint], check=True)
        self._image.unlink()

    def freeze(self) -> None:
        """Makes every writer hang from now on."""
        subprocess.run(["/sbin/fsfreeze", "--freeze", self.mountpoint], check=True)
        self._frozen = True

    def thaw(self) -> None:
        """Lets the writers go on."""
        if self._frozen:
            self._frozen = False
            subprocess.run(["/sbin/fsfreeze", "--unfreeze", self.mountpoint], check=True)


def writers(folder: Path) -> list[str]:
    """Descriptors of all processes for files below a folder."""
    found = []
    for fd in (fd for process in Path("/proc").glob("[0-9]*") for fd in _descriptors(process)):
        try:
            if os.readlink(fd).startswith(f"{folder}/"):
                found.append(str(fd))
        except OSError:
            continue
    return found


def _descriptors(process: Path) -> list[Path]:
    """The descriptors of a process; none when it has ended."""
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []
