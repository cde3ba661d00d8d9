"""A Slurm cluster on one machine: real slurmctld, slurmd and munge, nodes that can be cut off.

Each node is a network, UTS, PID, mount and cgroup namespace with a slurmd of its own and a private
`/tmp`; slurmctld and munged are in another. The tests' own namespace is the machine where `sbatch`
is. The network and its claim are those of the SSH hosts (`network`), so a bed that a dead test run
has left behind is taken down by the next bed.

Nodes are 10.77.NUMBER.1 and so on, called `sl1`, `sl2`, …; nothing listens on this machine's own
addresses.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from tests.support.patience import PATIENCE, pauses
from tests.testbed import TestbedError, disk, keys, namespaces, network, private_tmp, proc
from tests.testbed.proc import Process
from tests.testbed.slurm_files import BOOT, CGROUP, CONF

_UNSHARE = "unshare --mount --uts --net --pid --cgroup --fork --kill-child --mount-proc".split()
_FREEZER = Path("/sys/fs/cgroup/freezer")
_PROGRAMS = ("slurmctld", "slurmd", "munged")
_CONTROLLER, _LOGIN = 253, 200
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_OWN = ("slurmd", "slurmstepd", "sshd", "munged", "slurmctld")


def missing() -> str | None:
    """Return why this machine cannot carry the bed, or None when it can."""
    reason = namespaces.missing()
    for program in _PROGRAMS:
        if reason is None and shutil.which(program, path=_PATH) is None:
            reason = f"the testbed of Slurm needs {program}: apt-get install slurm-wlm munge"
    return reason


class SlurmBed:
    """Nodes, controller and munge. Use as a context manager: `SLURM_CONF` is set in it.

    Args:
        nodes: how many; each has 8 cores and 2 GPUs by name.
        track: how Slurm finds a job's processes, `cgroup` or `linuxproc`.
        login: also have a machine `sllogin` with an sshd, which is a login node.
    """

    def __init__(self, nodes: int = 4, *, track: str = "cgroup", login: bool = False) -> None:
        self.names = [f"sl{number}" for number in range(1, nodes + 1)]
        self._track = track
        self._login = login
        self._shells: dict[str, subprocess.Popen[bytes]] = {}
        self._controller: subprocess.Popen[bytes] | None = None
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> SlurmBed:
        namespaces.clear_stale()
        self._claim = network.claim()
        try:
            self._up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    @property
    def folder(self) -> Path:
        """Configuration, logs and spool; it goes with the bed."""
        return self._claim.directory

    @property
    def environ(self) -> Mapping[str, str]:
        """What Slurm's commands need to find this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    # --- life -----------------------------------------------------------------------------

    def _up(self) -> None:
        net = f"{self._claim.address(0)}/24"
        show = [network.IP, "route", "show", "root", net]
        routes = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        if strangers := [line for line in routes.splitlines() if self._claim.bridge not in line]:
            raise TestbedError(f"{net} is routed already: {strangers[0]}")
        self.folder.chmod(0o755)
        for name in ("state", "spool", "munge"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge" / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        self._configure()
        self._before = {name: os.environ.get(name) for name in self.environ}
        os.environ.update(self.environ)
        munge = self.folder / "munge"
        words = [f"--{name}={munge}/{name}" for name in ("socket", "pid-file", "log-file")]
        words += [f"--key-file={key}", f"--seed-file={munge}/seed"]
        self._start("slctl", _CONTROLLER, f"munged --force --foreground {' '.join(words)} &")
        for number, name in enumerate(self.names, 1):
            self._start_node(number, name)
        if self._login:
            self._start_login()
        self._wait(lambda: (munge / "socket").exists(), "munged listens")
        self.start_controller()
        self._wait(lambda: self.sinfo("%T") == ["idle"] * len(self.names), "all nodes are idle")

    def down(self) -> None:
        """End everything and remove every trace, as far as each step can."""
        with ExitStack() as steps:
            steps.callback(network.release, self._claim)
            steps.callback(disk.wipe, self.folder)
            for name in ["slctl", "sllogin", *self.names]:
                steps.callback(self._remove_cgroup, name)
                steps.callback(self._kill, name)
            steps.callback(self.stop_controller)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _configure(self) -> None:
        conf = CONF.format(
            controller=self._claim.address(_CONTROLLER), folder=self.folder, track=self._track
        )
        for number, name in enumerate(self.names, 1):
            conf += f"NodeName={name} NodeAddr={self._claim.address(number)} NodeHostname={name}"
            conf += " CPUs=8 RealMemory=16000 Gres=gpu:2 State=UNKNOWN\n"
        conf += "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        conf += "PartitionName=short Nodes=ALL MaxTime=1 State=UP\n"
        conf += "PartitionName=few Nodes=ALL MaxNodes=2 State=UP\n"
        conf += "PartitionName=members Nodes=ALL AllowAccounts=members State=UP\n"
        conf += "PartitionName=urgent Nodes=ALL PriorityTier=10 State=UP\n"
        conf += "PartitionName=closed Nodes=ALL DisableRootJobs=YES State=UP\n"
        (self.folder / "slurm.conf").write_text(conf)
        # Slurm only numbers them: any character devices do.
        gres = (f"NodeName={name} Name=gpu File=/dev/tty[1-2]\n" for name in self.names)
        (self.folder / "gres.conf").write_text("".join(gres))
        (self.folder / "cgroup.conf").write_text(CGROUP)
        # Whoever reports to slurmctld must have a name there, or it stalls at each job's end.
        names = dict(enumerate(self.names, 1))
        names |= {_CONTROLLER: "slctl", _LOGIN: "sllogin"}
        names |= {network.ROOT_SIDE: socket.gethostname()}
        lines = [f"{self._claim.address(number)} {name}\n" for number, name in names.items()]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))

    def _start_node(self, number: int, name: str) -> None:
        (self.folder / "spool" / name).mkdir(exist_ok=True)
        (self.folder / f"{name}.pid").unlink(missing_ok=True)
        self._start(name, number, f"slurmd -D -N {name} -f {self.folder}/slurm.conf &")

    def _start_login(self) -> None:
        host = keys.make_key(self.folder / "host_key", "sllogin")
        client = keys.make_key(self.folder / "id_ed25519", "launcher")
        (self.folder / "authorized").write_text(client.public + "\n")
        (self.folder / "sshd_config").write_text(
            f"Port 22\nHostKey {host.path}\nAuthorizedKeysFile {self.folder}/authorized\n"
            "UsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\nPidFile none\n"
            f"PasswordAuthentication no\nSetEnv SLURM_CONF={self.folder}/slurm.conf\n"
        )
        self._start("sllogin", _LOGIN, f"/usr/sbin/sshd -D -e -f {self.folder}/sshd_config &")

    def give_access(self, home: Path) -> str:
        """Let the user with this home log in at the login node; return its destination."""
        address = self._claim.address(_LOGIN)
        ssh = home / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.folder / "id_ed25519", ssh / "id_ed25519")
        public = keys.KeyPair(self.folder / "host_key").public
        (ssh / "known_hosts").write_text(keys.known_hosts_line((address,), public))
        return f"root@{address}:22"

    def _start(self, name: str, number: int, program: str) -> None:
        """Boot a namespace; `program` is a line of its first process, a shell that reaps."""
        wiring = network.host_commands(self._claim.address(number))
        pipe = self.folder / f"{name}.pipe"
        if not pipe.exists():
            os.mkfifo(pipe)
        script = self.folder / f"{name}.boot"
        script.write_text(
            BOOT.format(
                name=name,
                folder=self.folder,
                private_tmp=private_tmp.mounting(self.folder),
                wiring="\n".join(f"{network.IP} {line}" for line in wiring),
                program=program,
            )
        )
        enter = ""
        if os.access(_FREEZER / "tasks", os.W_OK):
            self._cgroup(name).mkdir(exist_ok=True)
            # A cgroup namespace's root is where its first process stands.
            enter = f"echo $$ >{self._cgroup(name)}/tasks; "
        with (self.folder / f"{name}.out").open("ab") as out:
            shell = subprocess.Popen(
                ["sh", "-c", f"{enter}exec {' '.join(_UNSHARE)} bash {script}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                start_new_session=True,
                env={"PATH": _PATH, "LANG": "C.UTF-8"},
            )
        self._shells[name] = shell
        assert shell.stdin is not None and shell.stdout is not None
        with shell.stdin, shell.stdout:
            if shell.stdout.readline() != b"mounted\n":
                raise TestbedError(f"{name} did not boot: {self._last_words(name)}")
            network.connect(self._claim, number, self._pid(name))
            shell.stdin.write(b"wired\n")

    def _enter(self, name: str) -> list[str]:
        return f"nsenter --target={self._pid(name)} --mount --uts --net --pid".split()

    def _pid(self, name: str) -> int:
        """The id of a namespace's first process."""
        (first,) = proc.children(self._shells[name].pid)
        return first.pid

    def _kill(self, name: str) -> None:
        shell = self._shells.pop(name, None)
        if shell is None:
            return
        children = proc.children(shell.pid)
        for process in children:
            proc.signal_process(process, signal.SIGKILL)
        if not children:
            shell.kill()
        shell.wait(PATIENCE)
        with suppress(ValueError):
            network.disconnect(self._claim, self._number(name))

    def _number(self, name: str) -> int:
        return {"slctl": _CONTROLLER, "sllogin": _LOGIN}.get(name) or int(name[2:])

    def _cgroup(self, name: str) -> Path:
        return _FREEZER / f"{self._claim.bridge}-{name}"

    def _remove_cgroup(self, name: str) -> None:
        top = self._cgroup(name)
        if top.is_dir():
            for folder in sorted(top.rglob("*"), reverse=True):
                if folder.is_dir():
                    folder.rmdir()
            top.rmdir()

    # --- faults ---------------------------------------------------------------------------

    def cut(self, name: str) -> None:
        """Pull a node's cable: nothing passes any more and nobody is told, both ways."""
        network.ip(f"link set {self._claim.port(self._number(name))} down")

    def heal(self, name: str) -> None:
        """Plug the cable in again."""
        network.ip(f"link set {self._claim.port(self._number(name))} up")

    def crash(self, name: str) -> None:
        """A power failure of a node."""
        self.cut(name)
        self._kill(name)

    def boot(self, name: str) -> None:
        """Start a node that has crashed."""
        self._start_node(self._number(name), name)

    def start_controller(self) -> None:
        """Start slurmctld; it goes on with the jobs that it knew."""
        enter = self._enter("slctl")
        with (self.folder / "slurmctld.out").open("ab") as out:
            self._controller = subprocess.Popen(
                [*enter, "slurmctld", "-D", "-f", str(self.folder / "slurm.conf")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={"PATH": _PATH, **self.environ},
            )

    def stop_controller(self) -> None:
        """End slurmctld."""
        controller, self._controller = self._controller, None
        if controller is None:
            return
        for process in proc.children(controller.pid):
            proc.signal_process(process, signal.SIGTERM)
        try:
            controller.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            controller.kill()
            controller.wait()

    @contextmanager
    def without_munge(self) -> Iterator[None]:
        """No munged answers, as where it does not run: its socket is not there."""
        there = self.folder / "munge" / "socket"
        there.rename(away := there.with_name("away"))
        try:
            yield
        finally:
            away.rename(there)

    # --- looking in -----------------------------------------------------------------------

    def run(self, *argv: str, timeout: float = PATIENCE) -> str:
        """Run one of Slurm's commands here; return what it printed.

        Raises:
            TestbedError: it failed.
        """
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise TestbedError(f"{' '.join(argv)}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def run_on(self, name: str, *argv: str) -> str:
        """Run a command on a node; return what it printed.

        Raises:
            TestbedError: it failed.
        """
        return self.run(*self._enter(name), *argv)

    def sinfo(self, form: str) -> list[str]:
        """The nodes in a format of `sinfo`; nothing while slurmctld does not answer."""
        with suppress(TestbedError):
            return self.run("sinfo", "-h", "-N", "-p", "all", "-o", form).split()
        return []

    def jobs(self) -> list[str]:
        """Return the jobs that Slurm still has, each with its state."""
        return self.run("squeue", "-h", "-o", "%i %T").splitlines()

    def processes(self, name: str) -> list[Process]:
        """Return all processes of a node, as its kernel has them."""
        namespace = proc.pid_namespace(self._pid(name))
        return [] if namespace is None else proc.scan(namespace)

    def leftovers(self, *names: str) -> list[Process]:
        """Return the living processes of nodes (of all) that are not Slurm's own."""
        return [
            process
            for name in names or self.names
            if name in self._shells
            for process in self.processes(name)
            if process.alive
            and process.pid != self._pid(name)
            and not os.path.basename(process.exe).startswith(_OWN)
        ]

    def wait_empty(self) -> None:
        """Wait until no job is left and no process of one.

        Raises:
            TestbedError: there still is.
        """
        self._wait(lambda: not self.leftovers() and not self.jobs(), "no job and process is left")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        for seconds in pauses(0.05, PATIENCE):
            if condition():
                return
            time.sleep(seconds)
        raise TestbedError(f"never: {what}\n{self._state()}")

    def _state(self) -> str:
        said = [f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in self._logs()]
        left = [f"{process.pid} {' '.join(process.argv)[:150]}" for process in self.leftovers()]
        return "\n".join([*said, *left])

    def _logs(self) -> Iterator[Path]:
        yield from self.folder.glob("*.out")
        yield from self.folder.glob("*.log")

    def _last_words(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(errors="replace")[-2000:].strip()
