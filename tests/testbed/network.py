"""The wires of a testbed: one bridge in the root namespace, a veth pair to each host.

The bridge's number is the testbed's number: it names the subnet 10.77.NUMBER.0/24 and is claimed by
the kernel, so testbeds of several test runs stand side by side. Its alias tells whose it is:
a testbed whose owner is dead is taken down by the next one that starts.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import PATIENCE
from tests.testbed import TestbedError, proc

IP = "/usr/sbin/ip"
_BRIDGE = "tfbed"
_NUMBERS = range(0, 200)
ROOT_SIDE = 254


@dataclass(frozen=True)
class Claim:
    """A testbed as its bridge tells it: its number, owner and directory."""

    number: int
    owner: int
    owner_started: float
    directory: Path

    @property
    def bridge(self) -> str:
        """The bridge's name in the root namespace."""
        return f"{_BRIDGE}{self.number}"

    @property
    def alias(self) -> str:
        """What stands on the bridge, so that another process can tell whose it is."""
        return f"{self.owner} {self.owner_started} {self.directory}"

    @property
    def owned(self) -> bool:
        """Whether the process that made the testbed still lives."""
        owner = proc.read(self.owner)
        return owner is not None and owner.alive and owner.started == self.owner_started

    def address(self, index: int) -> str:
        """Return the address of the host with this index (1 is the first)."""
        return f"10.77.{self.number}.{index}"

    def port(self, index: int) -> str:
        """Return the name of the root end of this host's veth pair."""
        return f"{self.bridge}-{index}"


def ip(*commands: str, inside: int | None = None) -> None:
    """Run `ip` commands in one go, in the network namespace of a process if one is given.

    Raises:
        TestbedError: one of them failed; its message is the kernel's.
    """
    argv = [IP, "-batch", "-"]
    if inside is not None:
        argv = ["nsenter", f"--net=/proc/{inside}/ns/net", *argv]
    done = subprocess.run(argv, input="\n".join(commands), capture_output=True, text=True)
    if done.returncode:
        raise TestbedError(f"ip: {'; '.join(commands)}: {done.stderr.strip()}")


def claim() -> Claim:
    """Make the bridge of a new testbed, and its directory under the temporary one."""
    owner = proc.read(os.getpid())
    assert owner is not None
    directory = Path(tempfile.mkdtemp(prefix="tfbed-")).resolve()
    with lock():
        for number in _NUMBERS:
            found = Claim(number, owner.pid, owner.started, directory)
            if not Path("/sys/class/net", found.bridge).exists():
                break
        else:
            directory.rmdir()
            raise TestbedError(f"all of {_BRIDGE}{_NUMBERS.start}-{_NUMBERS.stop - 1} are in use")
        ip(f"link add name {found.bridge} type bridge forward_delay 0")
        _alias(found.bridge).write_text(found.alias)
    ip(
        f"address add {found.address(ROOT_SIDE)}/24 dev {found.bridge}",
        f"link set {found.bridge} up",
    )
    return found


def release(claimed: Claim) -> None:
    """Remove the bridge, and wires that are left.

    Comes last: while the bridge stands, a half-removed testbed can be found again.
    """
    with lock():
        remove(claimed)


def remove(claimed: Claim) -> None:
    """Do so for who has the lock: without it, another testbed may have the number by now."""
    for path in Path("/sys/class/net").glob(f"{claimed.bridge}-*"):
        _delete(path.name)
    _delete(claimed.bridge)


def connect(claimed: Claim, index: int, namespace_of: int) -> None:
    """Lay the wire between the bridge and a process's network namespace.

    The host's end is `eth0`. Its hardware address does not change from boot to boot, as a
    machine's does not: others keep it in their caches.
    """
    mac = f"02:77:00:00:{claimed.number:02x}:{index:02x}"
    port = claimed.port(index)
    ip(
        f"link add name {port} type veth peer name eth0 address {mac} netns {namespace_of}",
        f"link set {port} master {claimed.bridge} up",
    )


def disconnect(claimed: Claim, index: int) -> None:
    """Take the wire away, if the kernel has not done so with the host's namespace already."""
    _delete(claimed.port(index))


def _delete(port: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while Path("/sys/class/net", port).exists():
        if time.monotonic() > deadline:
            raise TestbedError(f"the link {port} cannot be deleted")
        try:
            ip(f"link delete {port}")
        except TestbedError:
            # The kernel was faster. The name may stay for a moment, and a boot would find it
            # taken.
            time.sleep(0.002)


def host_commands(address: str) -> list[str]:
    """Return the `ip` commands that a host gives inside its own namespace."""
    return ["link set lo up", f"address add {address}/24 dev eth0", "link set eth0 up"]


def claims() -> list[Claim]:
    """Return all testbeds of this machine, living or not, in order of their number."""
    found = []
    for path in Path("/sys/class/net").glob(f"{_BRIDGE}*"):
        number = path.name.removeprefix(_BRIDGE)
        words = _read_alias(path.name).split(" ", 2)
        if number.isdigit() and len(words) == 3:
            found.append(Claim(int(number), int(words[0]), float(words[1]), Path(words[2])))
    return sorted(found, key=lambda each: each.number)


def _alias(bridge: str) -> Path:
    return Path("/sys/class/net", bridge, "ifalias")


def _read_alias(bridge: str) -> str:
    try:
        return _alias(bridge).read_text().strip()
    except OSError:
        return ""


@contextmanager
def lock() -> Iterator[None]:
    """Keep two testbeds from claiming, or clearing, the same number; leaves no file behind."""
    descriptor = os.open(tempfile.gettempdir(), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
