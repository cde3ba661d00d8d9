"""Hosts that are set up in ways that are rare: a run works there as anywhere, or says why not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, confirmed, ready
from tests.testbed import faults
from tests.testbed.host import Host
from tests.testbed.namespaces import Testbed

pytestmark = pytest.mark.prove


NOISE = {
    "tf1": "",
    "tf2": "head -c 8000000 /dev/zero | tr '\\0' x; echo; echo Welcome\n",
    "tf3": "",
    "tf4": "printf '\\033[2J\\377\\000'; yes tfmux-agent- | head -n 100000; echo oops >&2\n",
}
SHELLS = {"tf1": "/usr/bin/fish", "tf2": "/bin/bash", "tf3": "/bin/tcsh", "tf4": "/bin/bash"}
NAMES = {"tf1": "höst_1 x", "tf2": "\033[31mred\a", "tf3": "-n", "tf4": "a" * 64}
HOUR = 3600
CLOCKS = {"tf1": 5 * HOUR, "tf3": -7 * HOUR}


@pytest.fixture
def odd_scenario(fresh_scenario: FaultScenario) -> Iterator[FaultScenario]:
    """Four hosts with login shells that are no POSIX shells or print a lot, with names that are
    no names, and with clocks that are hours off."""
    for host in fresh_scenario.testbed:
        host.write(f"{host.account.home}/.bashrc", NOISE[host.name])
        if faults.has_shell(host, SHELLS[host.name]):
            faults.login_shell(host, SHELLS[host.name])
        words = 'printf %s "$1" >/proc/sys/kernel/hostname'
        host.run(["sh", "-c", words, "sh", NAMES[host.name]], as_user=False)
        if host.name in CLOCKS and faults.can_shift_clock():
            faults.shift_clock(host, CLOCKS[host.name])
    yield fresh_scenario


def test_shells_names_and_clocks_change_nothing(odd_scenario: FaultScenario) -> None:
    """Given four odd hosts, when a launcher is killed while tasks run there, each host ends its
    tasks by the lease, whatever its clock says; and a second run there ends well, with events and
    lines in the order in which they came here."""
    places = {"ps": ["tf1"], "worker": ["tf2", "tf3", "tf4"]}
    names = ["ps:0", "worker:0", "worker:1", "worker:2"]
    with odd_scenario.up(odd_scenario.file(places, run="lease = 8\ngrace = 1")) as up:
        ready(up, *names)
        up.kill_launcher()
    odd_scenario.wait_dead()
    file = odd_scenario.file(places, run="lease = 600\ngrace = 1", env={"SECONDS": "2"})
    with odd_scenario.up(file) as up:
        assert up.wait() == 0, up.transcript()
        assert confirmed(up)
        assert odd_scenario.check_logs(up.run_id) > 0
        times = [event["time"] for event in up.events if event["event"] != "log"]
        assert times == sorted(times) and abs(times[-1] - time.time()) < HOUR / 2
        lines = [event["time"] for event in up.of("log")]
        assert lines == sorted(lines) and abs(lines[-1] - time.time()) < HOUR / 2
    odd_scenario.wait_dead()


def no_exec(host: Host) -> None:
    """Mounts `/tmp` so that nothing on it can be executed."""
    options = "noexec,nosuid,nodev,mode=1777"
    host.run(["mount", "-t", "tmpfs", "-o", options, "tmp", "/tmp"], as_user=False)


def test_a_home_that_is_read_only_and_a_tmp_without_exec(testbed: Testbed, tmp_path: Path) -> None:
    """Given hosts with both or one of them, when a run prepares, stages, trains and collects
    there, then it ends well and leaves nothing; what is prepared cannot be remembered, and that is
    said."""
    for host in testbed:
        if host.name != "tf1":
            no_exec(host)
        if host.name != "tf2":
            faults.read_only_home(host)
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.sh").write_text("mkdir -p out && cp prepared out/result\n")
    tasks = ", ".join(f'"{host.name}:auto"' for host in testbed)
    text = f'name = "odd"\n{testbed.hosts_toml()}\n[jobs.worker]\ntasks = [{tasks}]\n[run]\n'
    text += 'command = ["sh", "train.sh"]\nworkdir = "work"\ncollect = ["out"]\n'
    text += 'prepare = ["echo yes > prepared"]\nlogdir = "/tmp/logs"\n'
    with command.Up("up", str(command.write(tmp_path, text)), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert confirmed(up)
    said = [e["host"] for e in up.of("log") if "so they run at each launch" in e["text"]]
    assert sorted(said) == ["tf1", "tf3", "tf4"]
    for host in testbed:
        folder = RunFolder.find(up.run_id).path / "collected" / host.name
        assert [path.read_text() for path in folder.rglob("result")] == ["yes\n"]
        wait_until(lambda host=host: host.leftovers() == [], "the agents go")  # type: ignore[misc]
        if host.name != "tf2":
            left = host.run(["sh", "-c", "ls -A /tmp/tfmux-*/state"]).stdout
            assert left.strip() == b"", "the private place of its run has gone"


def test_a_host_without_a_writable_tmp_is_refused(testbed: Testbed, tmp_path: Path) -> None:
    """Given a host whose `/tmp` is read-only, when a run is launched, then exit 3 says that the
    agent's socket needs `/tmp`."""
    host = testbed["tf3"]
    host.run(["mount", "-t", "tmpfs", "-o", "ro", "tmp", "/tmp"], as_user=False)
    tables = testbed.hosts_toml().split("[hosts.")
    text = "".join(f"[hosts.{table}" for table in tables if table[:3] == "tf3")
    text += '[jobs.worker]\ntasks = ["tf3:auto"]\n[run]\ncommand = ["true"]\nworkdir = ""\n'
    done = command.run("up", str(command.write(tmp_path, text)), "--headless")
    assert done.returncode == 3
    assert "the agent's socket needs /tmp: Read-only file system" in done.stderr


@pytest.mark.skipif(not faults.can_shift_clock(), reason="no C compiler")
def test_a_c_library_that_remembers_its_pid(fresh_scenario: FaultScenario) -> None:
    """Given hosts with a C library of before 2017, when tasks there fail and are restarted, then
    the run is a success, every host confirms that nothing is left, and the logs are whole."""
    for name in ("tf1", "tf3"):
        faults.remember_pids(fresh_scenario.testbed[name])
    file = fresh_scenario.file(
        {"ps": ["tf1"], "worker": ["tf3", "tf3"]},
        run='lease = 600\ngrace = 1\non_failure = "restart"',
        modes={"worker": "fails child"},
        env={"SECONDS": "0.5", "FAILURES": "1"},
    )
    with fresh_scenario.up(file) as up:
        assert up.wait() == 0, up.transcript()
        assert confirmed(up)
        fresh_scenario.check_logs(up.run_id)
    fresh_scenario.wait_dead()
