"""Containers of podman without an image: their root is a tree that is built here."""

from __future__ import annotations

import subprocess
import tempfile
import uuid
from pathlib import Path
from types import TracebackType

from tests.support.patience import PATIENCE
from tests.testbed import TestbedError, disk, proc
from tests.testbed.proc import Process

_IDLE = ("sleep", "infinity")


class Container:
    """A container in the machine's own network, with the system's programs and TensorFlow.

    `via` is the command that reaches it. Its PID 1 reaps, as `podman run --init` provides: without
    one, what an agent leaves behind would stay as zombies.
    """

    python = disk.PYTHON

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tfmux-containers-", dir="/tmp"))
        self.name = f"tfmux-test-{uuid.uuid4().hex[:8]}"
        self.root = self._folder / "root"
        # Storage of its own: nobody else's containers are seen, and nothing stays.
        self._podman = [
            "podman",
            *("--root", str(self._folder / "s"), "--runroot", str(self._folder / "r")),
            *("--tmpdir", str(self._folder / "t"), "--storage-driver", "vfs"),
            *("--cgroup-manager", "cgroupfs", "--runtime", "runc", "--events-backend", "file"),
        ]
        self.via = [*self._podman, "exec", "-i", self.name]
        self._pid = 0

    def __enter__(self) -> Container:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        subprocess.run([*self._podman, "rm", "-f", "-t", "0", self.name], capture_output=True)
        for process in proc.scan():  # what podman started in the background writes there, too
            if any(str(self._folder) in word for word in process.argv):
                proc.wait_gone(process, PATIENCE)
        disk.wipe(self._folder)

    def stop(self) -> None:
        """Kill it, and all that is in it."""
        self._run("kill", self.name)

    def processes(self) -> list[Process]:
        """Return the living processes in the container but for its own PID 1 and what that runs."""
        namespace = proc.pid_namespace(self._pid)
        if namespace is None:
            raise TestbedError(f"container {self.name} has ended")
        found = [p for p in proc.scan(namespace) if p.alive and p.pid != self._pid]
        return [p for p in found if p.argv != _IDLE]

    def read(self, path: str) -> bytes:
        """Return the content of a file in it."""
        return disk.inside(self.root, path).read_bytes()

    def hosts_toml(self, name: str) -> str:
        """Return its `[hosts.*]` table of a cluster file."""
        words = ", ".join(f'"{word}"' for word in self.via)
        return (
            f'[hosts.{name}]\nvia = [{words}]\naddress = "127.0.0.1"\npython = "{self.python}"\n\n'
        )

    def _start(self) -> None:
        disk.build(self.root, disk.ROOT)
        disk.write_accounts(self.root, disk.ROOT)
        environment = self._folder / "environment"
        disk.make_environment(environment)
        volumes = {"/usr": "/usr", "/etc": "/.etc", str(environment): disk.ENVIRONMENT}
        volumes |= disk.python_folders()
        mounts = [f"--volume={source}:{target}:ro" for source, target in volumes.items()]
        limits = [f"--ulimit={name}=10000:10000" for name in ("nofile", "nproc")]
        run = ["run", "-d", "--name", self.name, "--init", "--network", "host", *limits]
        self._run(*run, *mounts, "--rootfs", str(self.root), *_IDLE)
        self._pid = int(self._run("inspect", "--format", "{{.State.Pid}}", self.name))

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._podman, *words], capture_output=True, text=True, timeout=PATIENCE
        )
        if done.returncode:
            raise TestbedError(f"podman {words[0]}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout
