"""Hosts that are set up or named in ways that are rare: a run works there as anywhere, or says why
not."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.preflight import Check, Severity
from launcher.preflight.preflight import preflight
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.command import Up, python_task, run, write
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, confirmed, ready
from tests.testbed import faults
from tests.testbed.host import Host
from tests.testbed.namespaces import Testbed

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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


FILE = """
name = "named"
{hosts}
[jobs.worker]
tasks = ["tf1:auto", "tf2:auto"]
command = ["sh", "-c", "echo at $MASTER_ADDR, {{address.worker.1}}"]
[run]
framework = "torch"
workdir = ""
"""
ALIASES = '[hosts.tf1]\nssh = "tf1"\n[hosts.tf2]\nssh = "tf2"\n'


@pytest.fixture
def bed(testbed: Testbed, tfmux_home: Path) -> Testbed:
    testbed.give_access(tfmux_home)
    return testbed


def plan(file: Path) -> tuple[list[str], str, str]:
    """The addresses of a plan's tasks, what it prints as text, and what it says beside it."""
    answer = command.run("plan", str(file), "--json")
    assert answer.returncode == 0, answer.stderr
    text = command.run("plan", str(file))
    places = [each["address"].rpartition(":")[0] for each in json.loads(answer.stdout)["tasks"]]
    return places, text.stdout, text.stderr


def test_a_file_and_run_give_the_same_addresses(bed: Testbed, tmp_path: Path) -> None:
    """Given aliases with a `HostName`, when they are in a file or in `tfmux run -H`, then tasks get
    the `HostName`; the stored file has the aliases; `plan` and `check` say the same."""
    first, second = bed["tf1"].address, bed["tf2"].address
    file = write(tmp_path, FILE.format(hosts=ALIASES))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", f"at {first}, {second}")
        stored = RunFolder.find(up.run_id).cluster_file.read_text()
    assert 'ssh = "tf1"' in stored and first not in stored
    listed = ["-H", "tf1,tf2", "--framework", "torch", "--json", "--workdir", ""]
    with Up("run", *listed, "--", "sh", "-c", "echo at $MASTER_ADDR, {address.worker.1}") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", f"at {first}, {second}")
    places, printed, _ = plan(file)
    assert places == [first, second]
    assert f"tf1 is {first} to the other hosts (HostName in ssh_config)" in printed
    report = json.loads(command.run("check", str(file), "--json").stdout)
    assert {pair["address"].rpartition(":")[0] for pair in report["reach"]} == {
        first,
        second,
    }


@pytest.mark.prove
def test_hosts_of_a_list_are_named_so_too(bed: Testbed, tmp_path: Path) -> None:
    """Given a list of aliases for `--hosts-from`, when a file is launched on them, then its tasks
    get the `HostName`."""
    text = FILE.format(hosts="").replace("tf1:", "node0:").replace("tf2:", "node1:")
    file = write(tmp_path, text)
    (tmp_path / "list").write_text("tf1\ntf2\n")
    words = ["--hosts-from", "hostfile", "--hostfile", str(tmp_path / "list"), "--json"]
    with Up("up", str(file), *words) as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", f"at {bed['tf1'].address}, {bed['tf2'].address}")


@pytest.mark.prove
def test_an_address_of_the_file_stays(bed: Testbed, tmp_path: Path) -> None:
    """Given a host with an `address`, when the plan is made, then that is its address."""
    hosts = ALIASES.replace('ssh = "tf1"', 'ssh = "tf1"\naddress = "train-1"')
    places, printed, _ = plan(write(tmp_path, FILE.format(hosts=hosts)))
    assert places == ["train-1", bed["tf2"].address] and "tf1 is" not in printed


@pytest.mark.prove
@pytest.mark.parametrize(
    "config",
    [
        "Host tf1\n  HostName 127.0.0.1\n  Port 2201\n",
        "Host tf1\n  HostName gpu.example\n  Port 2201\nHost tf3\n  HostName gpu.example\n",
        "Host tf1\n  HostName fe80::1%%eth0\n",
    ],
    ids=["tunnel", "forwarded-ports", "link-local"],
)
def test_a_name_for_this_machine_alone(bed: Testbed, tmp_path: Path, config: str) -> None:
    """Given a `HostName` by which only this machine comes to the host, when the plan is made, then
    the alias stays its address, and stderr says so."""
    own = Path(os.environ["HOME"]) / ".ssh" / "config"
    own.write_text(config + own.read_text())
    hosts = ALIASES + '[hosts.tf3]\nssh = "tf3"\n'
    text = FILE.format(hosts=hosts).replace('"tf2:auto"', '"tf2:auto", "tf3:auto"')
    places, _, said = plan(write(tmp_path, text))
    assert places[:2] == ["tf1", bed["tf2"].address]
    assert "tf1 is" in said and "set address in [hosts.tf1]" in said


SERVER = """
import os, socket, sys, time
names = [sys.argv[2], *os.environ.get("MORE", "").split()]
made = [socket.create_server((name, int(sys.argv[1]))) for name in names]
time.sleep(1000)
"""
CLUSTER = """
name = "names"
{hosts}
[jobs.ps]
tasks = ["tf1:2222", "tf2:2222"]
command = {server}
[jobs.worker]
tasks = ["tf3:2222"]
command = ["sleep", "0.2"]
[run]
workdir = ""
"""


def as_debian_does(host: Host, testbed: Testbed) -> None:
    others = "".join(f"{each.address} {each.name}\n" for each in testbed if each is not host)
    host.etc("hosts", f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n{others}")


@pytest.fixture
def text(testbed: Testbed) -> str:
    server = [*python_task(SERVER), "{port}", "{host}"]
    return CLUSTER.format(hosts=testbed.hosts_toml(), server=json.dumps(server))


async def test_check_asks_each_host_for_its_own_name(testbed: Testbed, text: str) -> None:
    """The matrix cannot see it: each host knows the others. A host alone in its cluster may be
    called as it likes."""
    as_debian_does(testbed["tf1"], testbed)
    as_debian_does(testbed["tf4"], testbed)
    report = await preflight(loads(text, "names.toml", Path("/")))
    (finding,) = [f for f in report.findings if f.code == "address-loopback"]
    assert (finding.host, finding.check, finding.severity) == ("tf1", Check.ADDRESS, Severity.WARN)
    assert "tf1 is 127.0.1.1 on tf1 itself" in finding.sentence
    assert "/etc/hosts of tf1" in finding.todo and report.ok
    alone = text.replace(', "tf2:2222"', "").replace("tf3:2222", "tf1:2223")
    report = await preflight(loads(alone, "names.toml", Path("/")))
    assert "address-loopback" not in {f.code for f in report.findings}


@pytest.mark.prove
def test_a_ps_that_only_its_own_host_reaches_is_named(
    testbed: Testbed, tmp_path: Path, text: str
) -> None:
    """The ps is ready by the letter, and a note says what the workers would find out by timeouts; a
    ps that listens on another address as well is not named."""
    as_debian_does(testbed["tf1"], testbed)
    as_debian_does(testbed["tf2"], testbed)
    more = f'[hosts.tf2]\nenv = {{ MORE = "{testbed["tf2"].address}" }}'
    with Up("up", str(write(tmp_path, text.replace("[hosts.tf2]", more))), "--json") as up:
        assert up.wait() == 0, up.transcript()
    notes = [e["note"] for e in up.of("note") if "listens on" in e["note"]]
    said = "ps:0 on tf1 listens on 127.0.1.1 only, where no other host reaches it: "
    assert notes == [said + "correct tf1 in /etc/hosts there, or the address in its program"]


PAGE = """
import http.server, os, sys
http.server.HTTPServer((os.environ["ADDRESS"], int(sys.argv[1])),
                       http.server.SimpleHTTPRequestHandler).serve_forever()
"""
FORWARDS_CLUSTER = """
name = "pages"
{hosts}
[jobs.page]
tasks = ["tf1:6006", "tf2:6006", "tf3:6006", "tf4:6006"]
in_cluster = false
forward = true
command = {command}
[run]
workdir = ""
env = {{ ADDRESS = "127.0.0.1" }}
grace = 1.0
"""


@pytest.mark.prove
def test_no_dead_address_is_announced(testbed: Testbed, tmp_path: Path) -> None:
    """Given two SSH servers that allow no channel, and a page that is not on the loopback, then
    each gets a note with its reason instead of an address; check warns of the servers; the page
    of the fourth host answers at the address that is announced."""
    faults.forbid_channels(testbed["tf1"])
    faults.forbid_channels(testbed["tf2"], "PermitOpen 127.0.0.1:6007")
    hosts = testbed.hosts_toml().replace(
        "[hosts.tf3]", f'[hosts.tf3]\nenv = {{ ADDRESS = "{testbed["tf3"].address}" }}'
    )
    command = json.dumps([*python_task(PAGE), "{port}"])
    file = str(write(tmp_path, FORWARDS_CLUSTER.format(hosts=hosts, command=command)))
    checked = json.loads(run("check", file, "--json").stdout)
    found = [f for f in checked["findings"] if f["code"] == "forward-refused"]
    assert [(f["host"], f["severity"]) for f in found] == [("tf1", "warn"), ("tf2", "warn")]
    assert checked["ok"]
    with Up("up", file, "--json") as up:
        for number, why in enumerate(
            (
                "the SSH server of tf1 allows no channel to its port 6006 (AllowTcpForwarding",
                "the SSH server of tf2 allows no channel to its port 6006 (AllowTcpForwarding",
                "nothing listens on 127.0.0.1:6006 of tf3",
            )
        ):
            said = f"page:{number} is not forwarded: {why}"
            up.wait_for(lambda e, said=said: said in e.get("note", ""), said)  # type: ignore[misc]
        note = up.wait_for(lambda e: "page:3 is at " in e.get("note", ""), "the address")["note"]
        url = re.findall(r"http://127\.0\.0\.1:\d+/", note)[0]
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200
        wait_until(lambda: any(e.get("url") for e in up.of("task")), "it is in the record")
        assert {e["task"] for e in up.of("task") if e.get("url")} == {"page:3"}
        assert len([e for e in up.of("note") if " is at http" in e["note"]]) == 1
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
