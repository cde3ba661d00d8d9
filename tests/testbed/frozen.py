"""Processes that no signal ends for a while: on a file system that hangs, or in a frozen cgroup.

Writers to a frozen file system (a loop device with ext4) sleep in the kernel, uninterruptibly,
until it is thawed: what a rebooting NFS server or a failing disk does to them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.patience import wait_until
from tests.support.requirements import require


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


class Freezer:
    """A cgroup (version 1) with the controller `freezer`, mounted at `mountpoint`: KILL waits for
    a process that is frozen there. Use as a context manager.

    Needs root. Leaving thaws the processes, and waits until they have gone.
    """

    def __init__(self, mountpoint: Path) -> None:
        self._mountpoint = mountpoint
        self._group = mountpoint / f"tfmux-{os.urandom(4).hex()}"

    def __enter__(self) -> Self:
        self._mountpoint.mkdir()
        mount = ["mount", "-t", "cgroup", "-o", "freezer", "freezer", str(self._mountpoint)]
        done = subprocess.run(mount, capture_output=True, text=True)
        require(f"no freezer of cgroups here: {done.stderr}" if done.returncode else None)
        self._group.mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.thaw()
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self._pids(), "what was frozen has gone")
        self._group.rmdir()
        subprocess.run(["umount", "--lazy", self._mountpoint], check=True)

    def freeze(self, *pids: int) -> None:
        """Freezes these processes, and what they have forked until then stays as it is."""
        for pid in pids:
            (self._group / "cgroup.procs").write_text(str(pid))
        (self._group / "freezer.state").write_text("FROZEN")
        state = self._group / "freezer.state"
        wait_until(lambda: state.read_text().strip() == "FROZEN", "they are frozen")

    def thaw(self) -> None:
        """Lets them go on: to their end, where they have been killed meanwhile."""
        (self._group / "freezer.state").write_text("THAWED")

    def _pids(self) -> list[int]:
        return [int(pid) for pid in (self._group / "cgroup.procs").read_text().split()]


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
