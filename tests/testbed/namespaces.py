"""Four hosts on one machine: real OpenSSH servers, real networks, cables that can be pulled.

`tf1` and `tf2` log in as root, `tf3` and `tf4` as an ordinary user. The tests' own namespace is
the launcher's machine; it reaches the hosts by address, or by name through `ssh_config`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import TracebackType

from tests.testbed import disk, keys, network, proc
from tests.testbed.host import UNSHARE, Host
from tests.testbed.proc import Process

_CLEAR_SECONDS = 30.0
"""Longest wait for the end of a host that a dead test run has left."""
_ORDINARY_USERS = (3, 4)
"""Hosts whose login is not root's."""


def missing() -> str | None:
    """Return why this machine cannot carry the testbed, or None when it can."""
    if os.geteuid() != 0:
        return "the testbed of four hosts needs root"
    for program in (network.IP, "/usr/sbin/sshd", "/usr/bin/unshare", "/usr/bin/nsenter"):
        if not os.access(program, os.X_OK):
            return f"the testbed of four hosts needs {program}"
    return _refusal()


@cache
def _refusal() -> str | None:
    """Ask the kernel: root in a container often may not make namespaces."""
    probe = [*UNSHARE, "true"]
    done = subprocess.run(probe, capture_output=True, text=True)
    if done.returncode:
        return f"the testbed of four hosts may not make namespaces here: {done.stderr.strip()}"
    return None


class Testbed:
    """Four hosts and the client's side of their keys.

    Use as a context manager; `testbed["tf1"]` is a host. Everything is below `directory`: the
    hosts' disks and logs, `id_ed25519`, `known_hosts` and `ssh_config`.
    """

    __test__ = False

    def __init__(self, data: Path | None = None, *, hosts: int = 4) -> None:
        self._data = data
        self._count = hosts
        self.hosts: dict[str, Host] = {}

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts.values())

    def __enter__(self) -> Testbed:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    @property
    def address(self) -> str:
        """The launcher's address in the hosts' network."""
        return self._claim.address(network.ROOT_SIDE)

    @property
    def number(self) -> int:
        """The testbed's number: no other testbed on this machine has it at this time."""
        return self._claim.number

    @property
    def bridge(self) -> str:
        """The bridge in the root namespace that all cables end in."""
        return self._claim.bridge

    @property
    def directory(self) -> Path:
        """The testbed's own directory; it goes with the testbed."""
        return self._claim.directory

    def up(self) -> None:
        """Boot all hosts; what a dead test run left behind goes first."""
        clear_stale()
        self._claim = network.claim()
        try:
            self._lay_out()
            for host in self:
                host.start()
            for host in self:
                host.finish()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End all hosts and remove every trace of the testbed, as far as each step can."""
        with ExitStack() as steps:
            steps.callback(network.release, self._claim)
            steps.callback(disk.wipe, self.directory)
            for host in self:
                steps.callback(host.kill)
        self.hosts = {}

    def _lay_out(self) -> None:
        client = keys.make_key(self.directory / "id_ed25519", "launcher")
        environment = self.directory / "environment"
        disk.make_environment(environment)
        fixed = {disk.ENVIRONMENT: environment}
        if self._data is not None:
            fixed[disk.DATA] = self._data
        for index in range(1, self._count + 1):
            account = disk.USER if index in _ORDINARY_USERS else disk.ROOT
            host = Host(self._claim, index, account, fixed)
            self.hosts[host.name] = host
        names = [(host.address, host.name) for host in self]
        names += [("127.0.0.1", "localhost"), (self.address, "launcher")]
        etc_hosts = "".join(f"{address} {name}\n" for address, name in names)
        for host in self:
            host.install(client.public + "\n", etc_hosts)
        self.write_client_files(self.directory)

    def processes(self) -> list[Process]:
        """Return the processes of all hosts that are up."""
        return [process for host in self if host.up for process in host.processes()]

    def give_access(self, home: Path) -> None:
        """Give the user with this home what a user of the hosts has in `~/.ssh`.

        After it `ssh tf1`, or an alias `tf1` in a cluster file, logs in.
        """
        folder = home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        for name in ("id_ed25519", "id_ed25519.pub"):
            shutil.copy(self.directory / name, folder / name)
        self.write_client_files(folder, "config")

    def hosts_toml(self) -> str:
        """Return the `[hosts.*]` tables of a cluster file, with no ssh_config needed."""
        return "".join(
            f'[hosts.{host.name}]\nssh = "{host.account.name}@{host.address}:{host.port}"\n'
            f'identity = "{self.directory}/id_ed25519"\n'
            f'known_hosts = "{self.directory}/known_hosts"\n'
            f'address = "{host.name}"\npython = "{host.python}"\n\n'
            for host in self
        )

    def write_client_files(self, folder: Path, config: str = "ssh_config") -> None:
        """Write `known_hosts` and the client's configuration as the hosts are now."""
        (folder / "known_hosts").write_text(
            "".join(
                keys.known_hosts_line((host.name, host.address), host.host_key.public)
                for host in self
            )
        )
        (folder / config).write_text(
            "".join(
                f"Host {host.name}\n  HostName {host.address}\n  User {host.account.name}\n"
                f"  IdentityFile {folder}/id_ed25519\n  IdentitiesOnly yes\n"
                f"  UserKnownHostsFile {folder}/known_hosts\n"
                for host in self
            )
        )
        (folder / config).chmod(0o600)


def clear_stale() -> None:
    """Take down the testbeds whose owner is dead (killed before it could do so itself)."""
    with network.lock():
        for claim in network.claims():
            if not claim.owned:
                _clear(claim)


def _clear(claim: network.Claim) -> None:
    # A host's `unshare` has the testbed's directory, a random name, on its command line.
    everyone = proc.scan()
    hosts = [
        process
        for process in everyone
        if process.exe.endswith("/unshare") and str(claim.directory) in " ".join(process.argv)
    ]
    firsts = [first for host in hosts for first in proc.children(host.pid)]
    # A host ends when all in it are reaped. What was started from outside is reaped by its
    # `nsenter`, which stops when that stops.
    targets = {f"--target={first.pid}" for first in firsts}
    entered = [process for process in everyone if targets.intersection(process.argv)]
    for process in (*firsts, *entered):
        proc.signal_process(process, signal.SIGKILL)
    if not all(proc.wait_gone(host, _CLEAR_SECONDS) for host in hosts):
        return  # all other testbeds wait for the lock; the next one tries again
    disk.wipe(claim.directory)
    network.remove(claim)
