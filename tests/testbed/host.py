"""One host of the namespace testbed: OpenSSH as PID 1 of its own network, mounts and processes."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.patience import PATIENCE
from tests.testbed import TestbedError, disk, keys, network, proc, sockets
from tests.testbed.disk import Account
from tests.testbed.proc import Process
from tests.testbed.sockets import Listener

UNSHARE = "unshare --mount --uts --net --pid --fork --kill-child".split()
SSHD_CONFIG = """\
Port 22
ListenAddress 0.0.0.0
HostKey /etc/ssh/host_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PidFile none
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""


class Host:
    """A host that can be booted, crashed, cut off and looked into.

    Paths are the host's own and absolute; process ids are the root namespace's (see `proc`).
    `python` has TensorFlow, `data` is where the real digits are, if the tests have them.
    """

    port = 22
    python = disk.PYTHON
    data = disk.DATA

    def __init__(
        self, claim: network.Claim, index: int, account: Account, fixed: Mapping[str, Path]
    ) -> None:
        self.name = f"tf{index}"
        self.address = claim.address(index)
        self.account = account
        self.disk = claim.directory / self.name
        self.log = claim.directory / f"{self.name}.log"
        self.shares: dict[str, Path] = {}  # the host's path -> the directory mounted there
        self._claim = claim
        self._index = index
        self._fixed = fixed
        self._shell: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    # --- life -----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The id of the host's PID 1.

        Raises:
            TestbedError: the host is down.
        """
        if self._pid is None or not self.up:
            raise TestbedError(f"{self.name} is down: {self._last_words()}")
        return self._pid

    @property
    def up(self) -> bool:
        """Whether the host runs; being cut off from the others does not matter here.

        A host whose PID 1 was killed has crashed, whoever did it.
        """
        return self._pid is not None and self._shell is not None and self._shell.poll() is None

    def install(self, authorized_keys: str, etc_hosts: str) -> None:
        """Lay out a new disk: accounts, keys, names. The host must be down."""
        disk.build(self.disk, self.account)
        disk.write_accounts(self.disk, self.account)
        self.etc("hostname", f"{self.name}\n")
        self.etc("hosts", etc_hosts)
        self.etc("machine-id", f"{uuid.uuid4().hex}\n")
        self.etc("ssh/sshd_config", SSHD_CONFIG)
        self.etc("ssh/authorized", authorized_keys)
        self.new_host_key()
        self._make_home()

    def start(self) -> None:
        """Begin to boot; `finish` ends it. Two steps, so that hosts boot side by side."""
        wiring = "\n".join(network.host_commands(self.address))
        script = (
            disk.mount_script(self.disk, self._fixed, self.shares)
            + f"hostname {self.name}\n"
            + f"echo {uuid.uuid4()} >run/boot_id\n"  # each boot has its own, as a machine's
            + "mount --bind run/boot_id proc/sys/kernel/random/boot_id\n"
            + "echo mounted\nread wired\n"
            + f"{network.IP} -batch - <<'END'\n{wiring}\nEND\n"
            + "pivot_root . .\ncd /\numount -l .\n"
            + "exec /usr/sbin/sshd -D -e </dev/null >/dev/null 2>&3\n"
        )
        with self.log.open("ab") as log:
            self._shell = subprocess.Popen(
                [*UNSHARE, "sh", "-c", f"exec 3>&2\n{script}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a terminal's Ctrl-C must not reach the hosts
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
            )

    def finish(self) -> None:
        """Wire the host up and wait until its sshd listens."""
        shell = self._shell
        assert shell is not None and shell.stdin is not None and shell.stdout is not None
        with shell.stdin, shell.stdout:
            if shell.stdout.readline() != b"mounted\n":
                raise TestbedError(f"{self.name} did not boot: {self._last_words()}")
            (pid1,) = proc.children(shell.pid)
            self._pid = pid1.pid
            network.connect(self._claim, self._index, self._pid)
            shell.stdin.write(b"wired\n")
        deadline = time.monotonic() + PATIENCE
        while self.port not in sockets.listening_ports(self.pid):
            if time.monotonic() > deadline:
                raise TestbedError(f"sshd of {self.name} does not listen: {self._last_words()}")
            time.sleep(0.002)

    def boot(self) -> None:
        """Start a host that is down; its disk is as the crash left it, but for `/tmp`.

        Raises:
            TestbedError: the host is up.
        """
        if self.up:
            raise TestbedError(f"{self.name} is up already")
        self.kill()
        shutil.rmtree(self.disk / "tmp")
        (self.disk / "tmp").mkdir()
        (self.disk / "tmp").chmod(0o1777)
        self.start()
        self.finish()

    def crash(self) -> None:
        """Cut the cable, then kill everything at once: no FIN leaves, no handler runs."""
        if self.up:
            self.pull()
        self.kill()

    def kill(self) -> None:
        """End all processes and the wire of the host, whatever state it is in."""
        shell, self._shell, self._pid = self._shell, None, None
        if shell is not None:
            # With PID 1 the kernel ends all others, and `unshare` is gone only after them.
            # Killed itself, it would not wait for them.
            children = proc.children(shell.pid)
            for process in children:
                proc.signal_process(process, signal.SIGKILL)
            if not children:
                shell.kill()
            shell.wait(PATIENCE)
        network.disconnect(self._claim, self._index)

    # --- network --------------------------------------------------------------------------

    def pull(self) -> None:
        """Pull the cable: nothing passes any more and nobody is told, both ways."""
        network.ip(f"link set {self._claim.port(self._index)} down")

    def heal(self) -> None:
        """Plug the cable in again."""
        network.ip(f"link set {self._claim.port(self._index)} up")

    # --- looking in -----------------------------------------------------------------------

    def processes(self) -> list[Process]:
        """Return all processes of the host, sshd included, in the order of their start."""
        namespace = proc.pid_namespace(self.pid)
        return [] if namespace is None else proc.scan(namespace)

    def leftovers(self) -> list[Process]:
        """Return the living processes that are not sshd's own. After a kill-all there is none but
        bridges that have said their last word: they take a moment to end."""
        return [
            process
            for process in self.processes()
            if process.alive and not os.path.basename(process.exe).startswith("sshd")
        ]

    def listeners(self) -> list[Listener]:
        """Return the host's listening TCP sockets with the processes that hold them."""
        return sockets.listeners(self.pid)

    def run(
        self,
        argv: Sequence[str],
        *,
        as_user: bool = True,
        stdin: bytes = b"",
        check: bool = True,
        timeout: float = PATIENCE,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command on the host without SSH, as its account or (`as_user=False`) as root.

        Raises:
            TestbedError: it ended with another status than 0 and `check` is set.
        """
        account = self.account if as_user else disk.ROOT
        environ = {
            "HOME": account.home,
            "USER": account.name,
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
        }
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--net", "--pid"]
        become = [f"--setgid={account.uid}", f"--setuid={account.uid}", f"--wdns={account.home}"]
        done = subprocess.run(
            [*enter, *become, "--", *argv],
            input=stdin,
            capture_output=True,
            timeout=timeout,
            env=environ,
        )
        if check and done.returncode:
            text = (done.stdout + done.stderr).decode(errors="replace").strip()
            raise TestbedError(f"{self.name}: {shlex.join(argv)}: {done.returncode}: {text}")
        return done

    def read(self, path: str) -> bytes:
        """Return a file's content, also of a host that is down.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if not self.up:
            return disk.inside(self.disk, path).read_bytes()
        done = self.run(["cat", "--", path], as_user=False, check=False)
        if done.returncode:
            raise FileNotFoundError(done.stderr.decode(errors="replace").strip())
        return done.stdout

    def write(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Write a file as the host's account, making its directories."""
        data = content.encode() if isinstance(content, str) else content
        place = shlex.quote(path)
        self.run(
            [
                "sh",
                "-c",
                f'mkdir -p "$(dirname {place})" && cat > {place} && chmod {mode:o} {place}',
            ],
            stdin=data,
        )

    def banner(self, other: str, port: int = 22) -> subprocess.CompletedProcess[bytes]:
        """Connect to another host's port and read four bytes, within two seconds."""
        script = f"exec 3<>/dev/tcp/{other}/{port}; head -c 4 <&3"
        return self.run(["timeout", "2", "bash", "-c", script], check=False)

    # --- set-up ---------------------------------------------------------------------------

    @property
    def host_key(self) -> keys.KeyPair:
        """The key that the host shows to those who log in."""
        return keys.KeyPair(self.disk / "etc/ssh/host_key")

    def new_host_key(self) -> None:
        """Write a new host key, for an sshd that starts after it."""
        keys.make_key(self.disk / "etc/ssh/host_key", self.name)

    def etc(self, name: str, content: str) -> None:
        """Write a file of the host's own `/etc`."""
        (self.disk / "etc" / name).write_text(content)

    def reachable(self, timeout: float = 1.0) -> bool:
        """Whether a TCP connection from the launcher's side to sshd can be made now."""
        try:
            socket.create_connection((self.address, self.port), timeout).close()
        except OSError:
            return False
        return True

    def _make_home(self) -> None:
        home = disk.make_home(self.disk, self.account)
        (home / ".ssh").mkdir(0o700)
        (home / ".ssh/authorized_keys").write_text((self.disk / "etc/ssh/authorized").read_text())
        for path in (home / ".ssh", home / ".ssh/authorized_keys"):
            os.chown(path, self.account.uid, self.account.uid)

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:].strip() or "nothing was said"
