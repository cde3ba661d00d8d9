"""The testbed of four hosts: what it promises to the tests that stand on it; its beginning and
end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.requirements import require_testbed
from tests.testbed import TestbedError, faults, private_tmp, proc, sockets
from tests.testbed.frozen import FreezableDisk
from tests.testbed.host import Host
from tests.testbed.namespaces import Testbed, clear_stale
from tests.testbed.traces import show, traces
from tests.testbed.watch import Watch


class Ssh:
    """The system's own OpenSSH client with the configuration of a test's home."""

    def __init__(self, home: Path) -> None:
        self._argv = ["ssh", "-F", str(home / ".ssh/config"), "-o", "BatchMode=yes"]

    def __call__(self, host: Host, command: str, *options: str) -> str:
        """Run a command to its end and return its output."""
        done = self.run(host, command, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, host: Host, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a command to whatever end it has."""
        argv = [*self._argv, *options, host.name, command]
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)

    @contextmanager
    def session(self, host: Host, command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command that goes on, with pipes to its stdin and from its stdout."""
        argv = [*self._argv, host.name, command]
        client = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        with client:
            try:
                yield client
            finally:
                client.kill()


@pytest.fixture
def ssh(testbed: Testbed, tfmux_home: Path) -> Ssh:
    """An OpenSSH client that may log in to all hosts of the testbed."""
    testbed.give_access(tfmux_home)
    return Ssh(tfmux_home)


def end_all(testbed: Testbed) -> None:
    """Kill everything but the hosts' sshd, and see it gone."""
    for host in testbed:
        for process in host.leftovers():
            proc.signal_process(process, signal.SIGKILL)
            assert proc.wait_gone(process)


# --- machines ---------------------------------------------------------------------------------


@pytest.mark.prove
def test_each_host_is_a_machine_of_its_own(testbed: Testbed, ssh: Ssh) -> None:
    """Given four booted hosts, when commands run there over SSH, then each sees its own host name,
    account, home and few processes; two accounts are root and two are not."""
    for host in testbed:
        words = ssh(host, "hostname; id -un; pwd; cat /proc/1/comm; ls /proc | grep -c '^[0-9]'")
        *known, processes = words.split()
        assert known == [host.name, host.account.name, host.account.home, "sshd"]
        assert int(processes) < 12
    assert [host.account.uid == 0 for host in testbed] == [True, True, False, False]


@pytest.mark.prove
def test_host_python_has_tensorflow_and_nothing_of_tfmux(testbed: Testbed) -> None:
    """Given the testbed, then its Python has TensorFlow (other tests train there), and the project
    and what only the launcher needs are not there."""
    ours = ("launcher", "tui", "trainer", "textual", "asyncssh", "pydantic", "pytest")
    look = f"import importlib.util as u; print([n for n in {ours} if u.find_spec(n)]"
    look += ", u.find_spec('tensorflow') is not None)"
    for host in testbed:
        assert host.run([host.python, "-c", look]).stdout == b"[] True\n"
        assert host.run(["test", "-e", str(REPOSITORY)], check=False).returncode == 1
        assert host.run(["ls", "-A", "/tmp"]).stdout == b""


@pytest.mark.prove
def test_a_project_below_tmp_is_seen_in_a_private_tmp(
    testbed_possible: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a clone below `/tmp`, when a namespace mounts a `/tmp` of its own, then that shows the
    clone, the other folder that is asked for, and nothing more."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        clone, kept, other = Path(folder, "my clone"), Path(folder, "kept"), Path(folder, "other")
        for each in (clone, kept, other):
            each.mkdir()
            (each / "file").write_text(each.name)
        monkeypatch.setattr(private_tmp, "REPOSITORY", clone)
        monkeypatch.setattr(sys, "prefix", str(clone / ".venv"))
        script = f"set -e\n{private_tmp.mounting(kept)}\nfind /tmp -type f"
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script], check=True, capture_output=True, text=True
        )
        seen = [line for line in done.stdout.splitlines() if line.startswith(folder)]
        assert sorted(seen) == [f"{kept}/file", f"{clone}/file"]


@pytest.mark.prove
def test_disks_are_private_and_outlive_a_crash(testbed: Testbed) -> None:
    """Given files in a host's home and `/tmp`, then no other host has them; when the host crashes
    and boots again, then the one in its home is as it was, and `/tmp` is empty."""
    host, other = testbed["tf3"], testbed["tf4"]
    for path in ("/tmp/there", "/home/tfuser/deep/there"):
        host.write(path, "here\n")
        assert not os.path.exists(path)
        with pytest.raises(FileNotFoundError):
            other.read(path)
    host.crash()
    assert host.read("/home/tfuser/deep/there") == b"here\n"
    host.boot()
    assert host.read("/home/tfuser/deep/there") == b"here\n"
    with pytest.raises(FileNotFoundError):
        host.read("/tmp/there")


# --- the cable --------------------------------------------------------------------------------


@pytest.mark.prove
def test_pulled_cable_is_silent_and_a_healed_one_goes_on(testbed: Testbed, ssh: Ssh) -> None:
    """Given an SSH session, when its host's cable is pulled, then the session falls silent without
    an end, and what was sent meanwhile comes back once the cable is healed."""
    host = testbed["tf2"]
    with ssh.session(host, "cat") as client:
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write(b"one\n")
        assert client.stdout.readline() == b"one\n"
        host.pull()
        client.stdin.write(b"two\n")
        assert not host.reachable(timeout=0.5)
        assert client.poll() is None
        host.heal()
        assert client.stdout.readline() == b"two\n"


@pytest.mark.prove
def test_crash_ends_all_at_once_without_a_word_and_boot_brings_it_back(
    testbed: Testbed, ssh: Ssh
) -> None:
    """Given an SSH session to a host, when the host crashes, then all its processes are gone and
    the client is not told; when the host boots, then it takes logins again and is empty."""
    host = testbed["tf1"]
    with ssh.session(host, "setsid sleep 1000 & cat") as client:
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write(b"one\n")
        assert client.stdout.readline() == b"one\n"
        before = host.processes()
        assert len(before) > 3
        host.crash()
        assert all(proc.read(process.pid) is None for process in before)
        assert client.poll() is None
    assert testbed["tf2"].up and not host.reachable(timeout=0.5)
    host.boot()
    assert ssh(host, "hostname").strip() == host.name
    wait_until(lambda: host.leftovers() == [], "what said the name has ended")


@pytest.mark.prove
def test_host_whose_pid_1_was_killed_has_crashed(testbed: Testbed) -> None:
    """Given a host, when its sshd, which is pid 1 there, is killed, then the host is down with all
    its processes, and can be booted again."""
    host = testbed["tf3"]
    host.run(["sh", "-c", "exec sleep 1000 >/dev/null 2>&1 &"])
    first, other = host.processes()
    assert first.pid == host.pid and proc.signal_process(first, signal.SIGKILL)
    wait_until(lambda: not host.up, "the host is down")
    assert proc.read(other.pid) is None
    with pytest.raises(TestbedError, match="tf3 is down"):
        host.processes()
    host.boot()
    assert host.reachable()
    wait_until(lambda: host.leftovers() == [], "what looked at it has ended")


# --- looking ----------------------------------------------------------------------------------


@pytest.mark.prove
def test_scan_finds_what_hides(testbed: Testbed, ssh: Ssh) -> None:
    """Given a daemon in a session of its own on two hosts, when one host's processes are listed,
    then only that host's daemon is found, with tag, parent, user, inner pid and start."""
    for host in (testbed["tf1"], testbed["tf3"]):
        tag = f"TFMUX_TASK='run/{host.name}:0/1;'"
        ssh(host, f"{tag} setsid sleep 1000 </dev/null >/dev/null 2>&1 &")
    alone = [("sleep", "1000")] * 2
    wait_until(
        lambda: [each.argv for host in testbed for each in host.leftovers()] == alone,
        "the shells end",
    )
    (found,) = testbed["tf3"].leftovers()
    assert found.tag == "run/tf3:0/1;"
    assert found.argv == ("sleep", "1000")
    assert (found.ppid, found.uid) == (testbed["tf3"].pid, testbed["tf3"].account.uid)
    assert found.inner != found.pid
    assert testbed["tf3"].read(f"/proc/{found.inner}/comm") == b"sleep\n"
    assert found.started <= proc.now()
    end_all(testbed)


@pytest.mark.prove
def test_a_process_can_be_frozen_and_killed_by_its_real_pid(testbed: Testbed) -> None:
    """Given two processes on a host, when one is stopped and then killed by its real pid, then the
    other is untouched, and a later signal to the dead one reaches nobody."""
    host = testbed["tf4"]
    for seconds in ("1000", "1001"):
        host.run(["sh", "-c", f"exec sleep {seconds} >/dev/null 2>&1 &"])
    first, second = host.leftovers()
    assert proc.signal_process(first, signal.SIGSTOP)
    wait_until(lambda: [each.state for each in host.leftovers()] == ["T", "S"], "one stands still")
    assert proc.signal_process(first, signal.SIGKILL)
    assert proc.wait_gone(first)
    assert host.leftovers() == [second]
    wait_until(lambda: proc.read(first.pid) != first, "its parent has read its status")
    assert not proc.signal_process(first, signal.SIGKILL)


@pytest.mark.prove
def test_listeners_tell_port_and_owner(testbed: Testbed) -> None:
    """Given a server on port 2222 of a host, when the host's listeners are read, then each port
    comes with the process that holds it, and another host shows only its sshd."""
    host = testbed["tf2"]
    host.run(["sh", "-c", "exec python3 -m http.server 2222 -b 0.0.0.0 >/dev/null 2>&1 &"])
    wait_until(lambda: 2222 in sockets.listening_ports(host.pid), "it listens")
    (server,) = host.leftovers()
    assert {each.port: each.pids for each in host.listeners()} == {
        22: (host.pid,),
        2222: (server.pid,),
    }
    assert [each.port for each in testbed["tf1"].listeners()] == [22]


@pytest.mark.prove
def test_watch_sees_the_order_of_things(testbed: Testbed) -> None:
    """Given a watch of two hosts, when one process starts before a port is open and another one
    after it, then the watch tells which was first, without any log."""
    first, second = testbed["tf1"], testbed["tf2"]
    with Watch(first, second) as watch:
        second.run(["sh", "-c", "TFMUX_TASK='r/early;' exec sleep 1000 >/dev/null 2>&1 &"])
        wait_until(lambda: bool(watch.processes("early")), "the early one was seen")
        wait_until(lambda: proc.now() > watch.first_start("early") + 0.05, "ticks have passed")
        first.run(["sh", "-c", "exec python3 -m http.server 2222 >/dev/null 2>&1 &"])
        wait_until(lambda: 2222 in sockets.listening_ports(first.pid), "it listens")
        wait_until(lambda: watch.listens(first, 2222), "and was seen to")
        wait_until(lambda: proc.now() > watch.open_from(first, 2222) + 0.05, "ticks have passed")
        second.run(["sh", "-c", "TFMUX_TASK='r/late;' exec sleep 1000 >/dev/null 2>&1 &"])
        wait_until(lambda: bool(watch.processes("late")), "the late one was seen")
    assert watch.first_start("early") < watch.closed_until(first, 2222)
    assert watch.first_start("late") >= watch.closed_until(first, 2222)
    assert watch.processes("early", first) == []
    end_all(testbed)


# --- faults -----------------------------------------------------------------------------------


@pytest.mark.prove
def test_homes_can_be_one_share(testbed: Testbed, ssh: Ssh) -> None:
    """Given two hosts whose homes are one share, when one host writes a file to its home and one to
    `/tmp`, then the other finds the first and not the second."""
    faults.share_home(testbed["tf3"], testbed["tf4"])
    ssh(testbed["tf3"], "echo x > new; echo x > /tmp/new")
    assert ssh(testbed["tf4"], "cat new; ls /tmp; hostname").split() == ["x", "tf4"]


@pytest.mark.prove
def test_killed_session_breaks_one_connection_only(testbed: Testbed, ssh: Ssh) -> None:
    """Given an SSH session, when the sessions of its host are killed, then its client ends with
    status 255, and the host takes the next login."""
    host = testbed["tf2"]
    with ssh.session(host, "echo ready; cat") as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        assert faults.kill_sessions(host) >= 1
        assert client.wait(PATIENCE) == 255
    assert ssh(host, "hostname").strip() == host.name


@pytest.mark.prove
def test_dropped_port_is_neither_open_nor_refused(testbed: Testbed) -> None:
    """Given a port whose packets are dropped, from one address or from all, when a host connects
    from there, then it gets neither a banner nor a refusal, until the port is opened."""
    host, near, far = testbed["tf1"], testbed["tf2"], testbed["tf3"]
    faults.drop_port(host, 22, near.address)
    assert near.banner("tf1").returncode == 124  # timeout's own status: no answer at all
    assert far.banner("tf1").stdout == b"SSH-"
    faults.open_port(host, 22, near.address)
    assert near.banner("tf1").stdout == b"SSH-"
    faults.drop_port(host, 2222)
    assert far.banner("tf1", 2222).returncode == 124
    refused = far.banner("tf1", 2223)
    assert refused.returncode == 1 and b"refused" in refused.stderr


@pytest.mark.prove
@pytest.mark.skipif(not faults.can_shift_clock(), reason="no C compiler to shift a clock with")
def test_clock_can_be_wrong_by_an_hour(testbed: Testbed, ssh: Ssh) -> None:
    """Given a host whose clock is an hour slow, when `date` and Python are asked for the time, then
    they tell that clock's time there, and the true time on another host."""
    faults.shift_clock(testbed["tf4"], -3600)
    script = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp())"
    for host, offset in ((testbed["tf3"], 0), (testbed["tf4"], -3600)):
        times = ssh(host, f"date +%s; {host.python} -IS -c '{script}'").split()
        assert all(abs(float(each) - time.time() - offset) < 60 for each in times), host.name


_INNER = """
import signal, subprocess, time, pytest
from tests.support.patience import wait_until
from tests.testbed.proc import children
from tests.testbed.traces import show

def stop_a_daemon(host):
    argv = ["nsenter", f"--target={host.pid}", "--pid", "--mount", "sleep", "1000"]
    entered = subprocess.Popen(argv)
    wait_until(lambda: children(entered.pid), "the daemon")
    entered.send_signal(signal.SIGSTOP)

def test_inner(testbed):
    testbed["tf1"].run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
    BEGIN
    print("TESTBED", *show(testbed), flush=True)
    END
"""


@contextmanager
def inner(
    tmp_path: Path, end: str, begin: str = "pass"
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run a test with a testbed of its own in another pytest, up to the line that shows it."""
    (tmp_path / "test_inner.py").write_text(_INNER.replace("BEGIN", begin).replace("END", end))
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-s", "-q"]
    argv += [
        "-c",
        str(REPOSITORY / "pyproject.toml"),
        f"--rootdir={tmp_path}",
        f"--confcutdir={tmp_path}",
    ]
    with subprocess.Popen(
        [*argv, str(tmp_path / "test_inner.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ) as child:
        assert child.stdout is not None
        output = []
        try:
            for line in child.stdout:
                output.append(line)
                if "TESTBED " in line:
                    break
            else:
                pytest.fail("".join(output))
            yield child, line[line.index("TESTBED ") :].split()[1:]
        finally:
            child.kill()


def rest(child: subprocess.Popen[str]) -> str:
    """Return what the inner pytest said after it had shown its testbed."""
    assert child.stdout is not None
    return child.stdout.read()


@pytest.mark.prove
@pytest.mark.usefixtures("testbed_possible")
def test_nothing_is_left_after_a_failed_test(tmp_path: Path) -> None:
    """Given a test with a testbed and a process on its tf1, when the test fails, then no trace of
    the testbed is left."""
    with inner(tmp_path, "assert False") as (child, shown):
        assert child.wait(PATIENCE) == pytest.ExitCode.TESTS_FAILED, rest(child)
        assert traces(shown) == []


@pytest.mark.prove
@pytest.mark.usefixtures("testbed_possible")
def test_nothing_is_left_after_an_interrupt(tmp_path: Path) -> None:
    """Given a test that sleeps with a testbed up, when Ctrl-C interrupts it, then no trace of the
    testbed is left."""
    with inner(tmp_path, "time.sleep(1000)") as (child, shown):
        assert len(traces(shown)) > 5
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) == pytest.ExitCode.INTERRUPTED, rest(child)
        assert traces(shown) == []


@pytest.mark.prove
@pytest.mark.usefixtures("testbed_possible")
def test_testbed_of_a_killed_test_run_is_cleared_and_a_living_one_is_not(
    tmp_path: Path, testbed: Testbed
) -> None:
    """Given two testbeds in use, when stale testbeds are cleared, then both stay; when the test run
    of one has been killed, then the next clearing takes down that one alone, also if a process that
    was started there from outside, as Slurm's daemons are, has been stopped."""
    stopped = 'stop_a_daemon(testbed["tf1"])'
    with inner(tmp_path, "time.sleep(1000)", stopped) as (child, shown):
        clear_stale()
        assert child.poll() is None
        assert len(traces(shown)) > 5
        child.kill()
        child.wait(PATIENCE)
        clear_stale()
        assert traces(shown) == []
    assert all(host.reachable() for host in testbed)


@pytest.mark.prove
@pytest.mark.usefixtures("testbed_possible")
def test_testbeds_stand_side_by_side() -> None:
    """Given two testbeds at once, then their hosts have different addresses and all answer, no host
    reaches those of the other testbed, and neither testbed leaves a trace."""
    with Testbed() as one, Testbed() as other:
        shown = [show(one), show(other)]
        assert {host.address for host in one}.isdisjoint(host.address for host in other)
        assert all(host.reachable() for host in [*one, *other])
        assert one["tf1"].banner(other["tf1"].address).returncode != 0
        assert all(len(traces(each)) > 5 for each in shown)
    assert [traces(each) for each in shown] == [[], []]


@pytest.mark.prove
def test_missing_testbed_is_a_skip_here_and_a_failure_in_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a user who is not root, when a test requires the testbed, then it is skipped for that
    reason, and where CI is set it fails, since CI must not pass without a testbed."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs root"):
        require_testbed()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs root"):
        require_testbed()


@pytest.mark.prove
def test_a_frozen_disk_holds_up_its_writers(tmp_path: Path, testbed_possible: None) -> None:
    """Given a file system that is frozen, when a thread writes a file on it, then the write hangs,
    and goes on once the file system is thawed."""
    with FreezableDisk(tmp_path / "image", tmp_path / "disk") as disk:
        written = threading.Event()

        def write() -> None:
            (disk.mountpoint / "file").write_text("text")
            written.set()

        disk.freeze()
        threading.Thread(target=write, daemon=True).start()
        assert not written.wait(0.5)
        disk.thaw()
        assert written.wait(PATIENCE)
