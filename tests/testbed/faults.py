"""Faults of a host of the namespace testbed, and odd files in users' accounts.

Each is a function of a host. They last until the host is installed anew (mounts: until it
crashes), and a testbed is new for each test, so nothing needs to be undone.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.patience import PATIENCE
from tests.testbed import TestbedError, disk, network, proc
from tests.testbed.host import SSHD_CONFIG, Host

# --- the account ------------------------------------------------------------------------------


def bashrc(host: Host, text: str) -> None:
    """Set what bash runs at each login, also for a command over SSH: `sleep 2`, `echo hello`."""
    host.write(f"{host.account.home}/.bashrc", text)


def has_shell(host: Host, path: str) -> bool:
    """Whether the host has this login shell; the testbed brings none that the machine lacks."""
    return host.run(["test", "-x", path], check=False).returncode == 0


def login_shell(host: Host, path: str) -> None:
    """Give the host's account another login shell, such as `/usr/bin/dash`."""
    host.account = replace(host.account, shell=path)
    disk.write_accounts(host.disk, host.account)


def full_home(host: Host) -> None:
    """Fill the account's home to its last byte; files in it can still be read."""
    home = shlex.quote(host.account.home)
    owner = host.account.uid
    _as_root(
        host,
        f"cp -a {home}/. /run/home && mount -t tmpfs -o size=256k,mode=700 full {home}"
        f" && cp -a /run/home/. {home} && chown -R {owner}:{owner} {home}"
        f" && ! dd if=/dev/zero of={home}/.full bs=4096 2>/dev/null",
    )


def read_only_home(host: Host) -> None:
    """Make the account's home read-only, for root too."""
    home = shlex.quote(host.account.home)
    _as_root(host, f"mount --bind {home} {home} && mount -o remount,bind,ro {home}")


def share_home(first: Host, second: Host) -> None:
    """Reboot `second` with the home of `first` as its own, as with homes on NFS.

    Both must log in as the same account.
    """
    assert first.account == second.account
    second.kill()
    second.shares[second.account.home] = disk.inside(first.disk, first.account.home)
    second.boot()


# --- sshd -------------------------------------------------------------------------------------


def new_host_key(host: Host) -> None:
    """Give the host another key, as a reinstalled machine or an impostor has.

    The testbed's `known_hosts` still holds the old one.
    """
    host.new_host_key()
    _restart_sshd(host)


def ask_for_password(host: Host, password: str) -> None:
    """Let nobody in but with this password."""
    ways = "PermitRootLogin yes\nPubkeyAuthentication no\nPasswordAuthentication yes"
    set_login(host, ways, password)


def set_login(host: Host, ways: str, password: str = "", days: str = "19000:0:99999:7:::") -> None:
    """Let people in by these lines of sshd_config alone; those with `UsePAM yes` and
    keyboard-interactive are asked for the password by PAM. `days` are the account's in shadow."""
    made = "*"
    if password:
        argv = ["openssl", "passwd", "-6", password]
        made = subprocess.check_output(argv, text=True).strip()
    lines = (host.disk / "etc/shadow").read_text().splitlines()
    ours = f"{host.account.name}:"
    lines = [f"{ours}{made}:{days}" if line.startswith(ours) else line for line in lines]
    host.etc("shadow", "\n".join(lines) + "\n")
    pam = host.disk / "etc/pam.d"
    if pam.is_symlink():  # to the machine's own
        pam.unlink()
    pam.mkdir(exist_ok=True)
    kinds = {"auth": "unix", "account": "unix", "password": "unix", "session": "permit"}
    rules = "".join(f"{kind} required pam_{name}.so\n" for kind, name in kinds.items())
    for name in ("sshd", "other"):
        (pam / name).write_text(rules)
    host.etc("ssh/sshd_config", f"{ways}\n{SSHD_CONFIG}")
    _restart_sshd(host)


def allow_one_session(host: Host) -> None:
    """Let each login have one session, as careful administrators do."""
    config = (host.disk / "etc/ssh/sshd_config").read_text()
    host.etc("ssh/sshd_config", f"MaxSessions 1\n{config}")
    _restart_sshd(host)


def forbid_channels(host: Host, line: str = "AllowTcpForwarding no") -> None:
    """Let nobody open channels to ports, as this line of sshd_config says."""
    config = (host.disk / "etc/ssh/sshd_config").read_text()
    host.etc("ssh/sshd_config", f"{line}\n{config}")
    _restart_sshd(host)


def _restart_sshd(host: Host) -> None:
    listened = _times_listening(host)
    os.kill(host.pid, signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    while _times_listening(host) == listened:
        if time.monotonic() > deadline:
            raise TestbedError(f"sshd of {host.name} did not start again")
        time.sleep(0.005)


def refuse_keys(host: Host) -> None:
    """Let no key in any more; sessions that are open stay."""
    host.write(f"{host.account.home}/.ssh/authorized_keys", "", mode=0o600)


def freeze_sshd(host: Host) -> None:
    """Stop the listening sshd: TCP connects, and then nothing is said. Sessions go on."""
    os.kill(host.pid, signal.SIGSTOP)


def thaw_sshd(host: Host) -> None:
    """Let the listening sshd go on."""
    os.kill(host.pid, signal.SIGCONT)


def kill_sessions(host: Host) -> int:
    """SIGKILL the sshd process of each open connection and return how many there were.

    The listening sshd, PID 1, lives on; to lose that too is `host.crash()`.
    """
    sessions = [
        process
        for process in host.processes()
        if process.pid != host.pid and os.path.basename(process.exe).startswith("sshd")
    ]
    return sum(proc.signal_process(process, signal.SIGKILL) for process in sessions)


# --- network and clock ------------------------------------------------------------------------


def drop_port(host: Host, port: int, source: str | None = None) -> None:
    """Swallow new connections to a TCP port, as a firewall that drops does: no refusal.

    Connections that stand go on; to silence those too is `host.pull()`.

    Args:
        host: the host whose packets are dropped on arrival.
        port: the destination port.
        source: only packets from this address; None means from anywhere.
    """
    rules = subprocess.check_output(
        ["nsenter", f"--net=/proc/{host.pid}/ns/net", network.IP, "rule"], text=True
    )
    if rules.startswith("0:"):
        # The rule that finds the host's own addresses stands before all others.
        network.ip("rule add pref 100 table local", "rule delete pref 0", inside=host.pid)
    network.ip(f"rule add {_dropping(port, source)}", inside=host.pid)


def open_port(host: Host, port: int, source: str | None = None) -> None:
    """Undo `drop_port`."""
    network.ip(f"rule delete {_dropping(port, source)}", inside=host.pid)


def _dropping(port: int, source: str | None) -> str:
    return f"pref 10 from {source or 'all'} ipproto tcp dport {port} blackhole"


def can_shift_clock() -> bool:
    """Whether `shift_clock` works here: it compiles a few lines of C."""
    return shutil.which("cc") is not None


@dataclass(frozen=True)
class Clock:
    """The wall clock of the programs that have loaded a library; it can be set at any time.

    The kernel has one wall clock for all namespaces, so the C library's answer is changed.
    """

    library: Path
    file: Path
    """Seconds that are added to the kernel's answer."""

    @classmethod
    def build(cls, folder: Path, seen_as: str = "") -> Clock:
        """Compiles the library into a folder that its programs see as `seen_as`."""
        source = folder / "clock.c"
        source.write_text(_CLOCK)
        clock = cls(folder / "clock.so", folder / "clock.shift")
        clock.set(0)
        file = json.dumps(f"{seen_as or folder}/{clock.file.name}")
        argv = ["cc", "-shared", "-fPIC", "-O1", f"-DFILE_OF_SHIFT={file}"]
        subprocess.run([*argv, "-o", clock.library, source], check=True)
        return clock

    def set(self, seconds: int) -> None:
        """Set it to so many seconds ahead."""
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, struct.pack("=q", seconds), 0)
        finally:
            os.close(descriptor)


def shift_clock(host: Host, seconds: int) -> Clock:
    """Set the wall clock of all programs that start on the host from now on."""
    clock = Clock.build(Path(host.disk, "opt"), "/opt")
    clock.set(seconds)
    host.etc("ld.so.preload", f"/opt/{clock.library.name}\n")
    return clock


def remember_pids(host: Host) -> None:
    """Have programs that start from now on meet a C library as old as 2016: `getpid` remembers what
    it has said, and only a `fork` that goes through the library tells it that it is another."""
    source = Path(host.disk, "opt/pids.c")
    source.write_text(_PIDS)
    library = source.with_suffix(".so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    host.etc("ld.so.preload", f"/opt/{library.name}\n")


_PIDS = """\
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile pid_t known;

static void renew(void) { known = syscall(SYS_getpid); }
__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, renew); }

pid_t getpid(void) {
    if (!known)
        known = syscall(SYS_getpid);
    return known;
}
"""

_CLOCK = """\
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift;

__attribute__((constructor)) static void map_shift(void) {
    int file = open(FILE_OF_SHIFT, O_RDONLY | O_CLOEXEC);
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED)
        shift = found;
    if (file >= 0)
        close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int status = syscall(SYS_clock_gettime, clock, at);
    if (status == 0 && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *shift;
    return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL)
        *at = now.tv_sec;
    return now.tv_sec;
}
"""


def _as_root(host: Host, command: str) -> None:
    host.run(["sh", "-c", command], as_user=False)


def _times_listening(host: Host) -> int:
    return host.log.read_text().count("Server listening on")
