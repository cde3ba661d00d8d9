"""The preflight of four real hosts: each fault by its name, and nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import jsonschema
import pytest

from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import loads
from launcher.hosts import dial
from launcher.preflight import (
    CHECKS,
    Check,
    Finding,
    Reach,
    Reachability,
    Report,
    Severity,
    report_schema,
)
from launcher.preflight.findings import Result
from launcher.preflight.preflight import preflight
from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write
from tests.support.patience import wait_until
from tests.testbed import faults, proc
from tests.testbed.host import Host
from tests.testbed.namespaces import Testbed

JOBS = cluster_text(
    {"ps": "tf1:2222", "worker": "tf2:2222 tf3:2222 tf4:2222 tf4"},
    command=["{python}", "-m", "trainer", "async"],
    workdir="",
)
RUN = "old-20261120-183002-7f3a"


def cluster(testbed: Testbed, settings: str = "", hosts: str = "") -> ClusterModel:
    """The cluster of the testbed; `settings` goes on in `[run]`."""
    return loads((hosts or testbed.hosts_toml()) + JOBS + settings, "testbed.toml", Path("/"))


def daemon(host: Host, command: str, tag: str) -> None:
    """Leaves a process on a host as a dead run's task does."""
    host.run(["sh", "-c", f"TFMUX_TASK='{tag}' setsid {command} >/dev/null 2>&1 &"])


def nothing_stays(testbed: Testbed) -> None:
    """No process, no folder of a run, no socket and no mark is left on any host."""
    for host in testbed:
        wait_until(lambda host=host: host.leftovers() == [], f"{host.name} is empty")  # type: ignore[misc]
        names = ["-name", "check-*", "-o", "-name", "*.sock", "-o", "-name", ".check-*"]
        found = host.run(["find", "/tmp", host.account.home, *names], check=False)
        assert found.stdout == b"", (host.name, found.stdout)


def codes(report: Report, host: str) -> set[str]:
    """The codes of what is wrong with a host."""
    bad = [f for f in report.findings if f.severity is not Severity.OK]
    return {finding.code for finding in bad if finding.host == host}


def said(report: Report, host: str, code: str) -> Finding:
    """The one finding with a code."""
    (found,) = [f for f in report.findings if (f.host, f.code) == (host, code)]
    return found


def reaches(report: Report) -> dict[tuple[str, str], Reach]:
    """The matrix."""
    return {(pair.source, str(pair.task)): pair.reach for pair in report.reachability}


async def test_healthy_hosts_pass_every_check_and_are_left_as_they_were(testbed: Testbed) -> None:
    """Given four healthy hosts, when the preflight runs, then every check of every host passes, all
    pairs are reached, all findings came live, the JSON fits its schema, and nothing is left."""
    live: list[Result] = []
    report = await preflight(cluster(testbed), on_result=live.append)
    nothing_stays(testbed)
    assert report.ok and not [f for f in report.findings if f.severity is not Severity.OK]
    for host in testbed:
        filled = {f.check for f in report.findings if f.host == host.name}
        assert filled == set(CHECKS), host.name
    assert len(report.reachability) == 4 * 5 - 3  # tf1–tf3 need not reach their only task
    assert set(reaches(report).values()) == {Reach.OK}
    assert {pair.resolved for pair in report.reachability} == {host.address for host in testbed}
    assert {r for r in live if isinstance(r, Finding)} == set(report.findings)
    assert {r for r in live if isinstance(r, Reachability)} == set(report.reachability)
    jsonschema.validate(report.json(), report_schema())


async def test_ways_between_hosts_are_told_apart(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given filtered and held ports, names that lead astray or nowhere, an unreachable sshd, text
    at login and a proxy, when the preflight runs, then each host gets the codes of its faults."""
    monkeypatch.setattr(dial, "TCP_SECONDS", 6.0)
    faults.drop_port(testbed["tf1"], 2222, testbed["tf3"].address)
    faults.drop_port(testbed["tf2"], 22)
    testbed["tf4"].etc(
        "hosts", f"127.0.0.1 localhost\n{testbed['tf3'].address} tf1\n10.99.9.9 tf3\n"
    )
    daemon(testbed["tf4"], "python3 -m http.server 2222", f"{RUN}/worker:1/1;")
    wait_until(lambda: any(each.port == 2222 for each in testbed["tf4"].listeners()), "it listens")
    faults.bashrc(testbed["tf1"], "echo hello\nexport http_proxy=http://proxy:3128\n")
    (process,) = testbed["tf4"].leftovers()
    report = await preflight(cluster(testbed))
    proc.signal_process(process, signal.SIGKILL)

    assert codes(report, "tf1") == {"shell-noise", "proxy-set"}
    assert "'hello'" in said(report, "tf1", "shell-noise").sentence
    assert codes(report, "tf2") == {"tcp-timeout"}
    assert codes(report, "tf3") == {"reach-filtered"}
    assert codes(report, "tf4") == {
        "port-in-use",
        "leftovers",
        "reach-stranger",
        "reach-unresolved",
        "reach-no-route",
    }
    matrix = reaches(report)
    assert matrix["tf3", "ps:0"] is Reach.FILTERED
    assert matrix["tf4", "ps:0"] is Reach.STRANGER
    assert matrix["tf4", "worker:1"] is Reach.NO_ROUTE
    assert matrix["tf4", "worker:2"] is Reach.UNRESOLVED
    assert matrix["tf1", "worker:2"] is Reach.OK  # whoever listens there: the way is open
    assert matrix["tf1", "worker:0"] is Reach.UNKNOWN
    held = said(report, "tf4", "port-in-use")
    assert f"of worker:1 of the run {RUN} (python3 -m http.server 2222)" in held.sentence
    left = said(report, "tf4", "leftovers")
    assert left.todo.startswith(f"end them: tfmux kill {RUN} --file FILE") and left.run == RUN
    assert f"pid {process.inner} " in left.sentence
    nothing_stays(testbed)


async def test_homes_and_keys_that_fail(testbed: Testbed) -> None:
    """Given a full home, a changed host key, a read-only home and a refused login key, when the
    preflight runs, then each host gets its code, and each error says what to do."""
    faults.full_home(testbed["tf1"])
    faults.new_host_key(testbed["tf2"])
    faults.read_only_home(testbed["tf3"])
    faults.refuse_keys(testbed["tf4"])
    report = await preflight(cluster(testbed), accept_new=True)
    assert codes(report, "tf1") == {"disk-full", "logdir-unwritable"}
    assert codes(report, "tf2") == {"key-changed"}
    assert codes(report, "tf3") == {"logdir-unwritable"}
    assert "Read-only" in said(report, "tf3", "logdir-unwritable").sentence
    assert codes(report, "tf4") == {"login-refused"}
    assert "id_ed25519 (ssh-ed25519 SHA256:" in said(report, "tf4", "login-refused").sentence
    assert all(f.todo for f in report.findings if f.severity is Severity.ERROR)
    assert report.accepted == ()
    nothing_stays(testbed)


@pytest.mark.prove
async def test_what_only_shows_beside_other_hosts(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an old checkpoint, log directories that are not shared, a Python without TensorFlow, a
    public address and a silent sshd, when the preflight runs, then each host gets its codes."""
    monkeypatch.setattr(dial, "BANNER_SECONDS", 8.0)
    faults.freeze_sshd(testbed["tf4"])
    testbed["tf2"].write(f"{testbed['tf2'].account.home}/logs/model.ckpt-100.index", "")
    hosts = testbed.hosts_toml()
    hosts = hosts.replace('address = "tf3"', 'address = "8.8.8.8"')
    hosts = hosts.replace(f'python = "{testbed["tf1"].python}"', 'python = "python3"', 1)
    report = await preflight(
        cluster(testbed, 'logdir = "~/logs"\non_failure = "restart"\n', hosts), accept_new=True
    )
    faults.thaw_sshd(testbed["tf4"])
    assert {"tensorflow-missing", "logdir-not-shared"} <= codes(report, "tf1")
    assert said(report, "tf1", "tensorflow-missing").severity is Severity.ERROR
    assert codes(report, "tf2") == {"logdir-stale", "reach-no-route"}
    assert codes(report, "tf3") == {"logdir-not-shared", "address-public"}
    assert codes(report, "tf4") == {"ssh-silent"}
    assert not report.ok
    nothing_stays(testbed)


@pytest.mark.prove
async def test_one_home_for_two_hosts_is_seen_as_shared(testbed: Testbed) -> None:
    """Given two hosts with one home, and the clock of one an hour behind, when they are checked,
    then the log directory is called shared, the clock is measured, and nothing stops a launch."""
    if faults.can_shift_clock():
        faults.shift_clock(testbed["tf3"], -3600)
    faults.share_home(testbed["tf3"], testbed["tf4"])
    jobs = (
        '[jobs.worker]\ntasks = ["tf3:2222", "tf4:2222"]\n[run]\nworkdir = ""\ncommand = ["true"]\n'
    )
    text = testbed.hosts_toml() + jobs + 'logdir = "~/logs"\non_failure = "restart"\n'
    report = await preflight(loads(text, "testbed.toml", Path("/")))
    assert report.ok and codes(report, "tf4") == set()
    if faults.can_shift_clock():
        assert codes(report, "tf3") == {"clock-off"}
        assert "behind" in said(report, "tf3", "clock-off").sentence
    shared = [f for f in report.findings if f.host == "tf4" and f.check is Check.LOGDIR]
    assert [finding.brief for finding in shared] == ["writable", "shared"]
    nothing_stays(testbed)


SHELLS = {"tf1": "/bin/dash", "tf2": "/bin/tcsh", "tf3": "/bin/csh", "tf4": "/usr/bin/fish"}


@pytest.mark.prove
async def test_login_shells_of_other_kinds_do(testbed: Testbed) -> None:
    """Given an account whose login shell is dash, tcsh, csh or fish, when the preflight runs, then
    the agent comes up and all is well, but all shells except dash get `shell-odd`."""
    there = [host for host in testbed if faults.has_shell(host, SHELLS[host.name])]
    assert there, "this machine has none of them"
    for host in there:
        faults.login_shell(host, SHELLS[host.name])
    tasks = json.dumps([f"{host.name}:2222" for host in there])
    jobs = f'[jobs.worker]\ntasks = {tasks}\n[run]\nworkdir = ""\ncommand = ["{{python}}", "-V"]\n'
    report = await preflight(loads(testbed.hosts_toml() + jobs, "testbed.toml", Path("/")))
    assert report.ok, json.dumps(report.json(), indent=1)
    for host in there:
        odd = SHELLS[host.name] != "/bin/dash"
        assert codes(report, host.name) == ({"shell-odd"} if odd else set()), host.name


@pytest.mark.prove
async def test_a_login_shell_that_lets_nobody_in_is_named(testbed: Testbed) -> None:
    """Given a `nologin` account and a start-up file that ends the login, when the preflight runs,
    then both hosts get `shell-blocked` with the words that their shells say."""
    faults.login_shell(testbed["tf3"], "/usr/sbin/nologin")
    faults.bashrc(testbed["tf4"], "exec sh -c 'echo closed for today; exit 1'\n")
    report = await preflight(cluster(testbed))
    assert codes(report, "tf3") == {"shell-blocked"}
    assert "not available" in said(report, "tf3", "shell-blocked").sentence
    assert codes(report, "tf4") == {"shell-blocked"}
    assert "closed for today" in said(report, "tf4", "shell-blocked").sentence


# --- the same faults, met by a launch ---------------------------------------------------------


def launch(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """`tfmux up --headless` of a file, to its end."""
    return run("up", str(write(tmp_path, text)), "--headless")


def test_hosts_that_refuse_end_a_launch_with_3_and_a_reason_each(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Given hosts with a changed key, a refused key, no login shell or a full home, when runs are
    launched on them, then exit 3, and stderr has each host's reason."""
    faults.new_host_key(testbed["tf1"])
    faults.refuse_keys(testbed["tf2"])
    faults.login_shell(testbed["tf3"], "/usr/sbin/nologin")
    faults.full_home(testbed["tf4"])
    done = launch(tmp_path, testbed.hosts_toml() + JOBS)
    assert done.returncode == 3
    for words in (
        "HAS CHANGED",
        "permission denied for root on ",
        "This account is currently not available",
        "nothing was started",
    ):
        assert words in done.stderr, done.stderr
    nothing_stays(testbed)
