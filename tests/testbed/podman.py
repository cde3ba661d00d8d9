"""Podman with a storage of its own: nobody else's containers are seen, and nothing stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from tests.support.patience import PATIENCE, wait_until
from tests.testbed import TestbedError, disk, namespaces, proc
from tests.testbed.proc import Process

# runc and plain files: the defaults want systemd, and rights that a container of ours lacks.
_CONTAINERS = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{folder}/t"
[containers]
default_ulimits = ["nofile=10000:10000", "nproc=10000:10000"]
"""
_STORAGE = """
[storage]
driver = "vfs"
graphroot = "{folder}/s"
runroot = "{folder}/r"
"""


def missing() -> str | None:
    """Return why this machine cannot run the containers, or None when it can."""
    for program in ("podman", "runc", "catatonit"):
        if shutil.which(program) is None:
            return f"containers need {program}"
    return namespaces.missing()


class PodmanBed:
    """Use as a context manager: podman finds the storage by the environment in it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tfmux-podman-", dir="/tmp"))
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> PodmanBed:
        files = {
            "CONTAINERS_CONF": ("containers.conf", _CONTAINERS),
            "CONTAINERS_STORAGE_CONF": ("storage.conf", _STORAGE),
        }
        for variable, (name, text) in files.items():
            path = self.folder / name
            path.write_text(text.format(folder=self.folder))
            self._before[variable] = os.environ.get(variable)
            os.environ[variable] = str(path)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.run("rm", "--all", "--force", "--time=0")
        finally:
            for name, value in self._before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            wait_until(lambda: not self._commands(), "podman has ended")
            disk.wipe(self.folder)

    def run(self, *words: str) -> str:
        """Run a command of podman; return its output."""
        done = subprocess.run(["podman", *words], capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode:
            raise TestbedError(f"podman {words[0]}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _commands(self) -> list[Process]:
        """Return the processes of podman that use the storage: it cleans up behind a container."""
        return [
            process
            for process in proc.scan()
            if Path(process.exe).name in ("conmon", "podman", "runc")
            and str(self.folder) in " ".join((*process.argv, *process.environ.values()))
        ]
