"""The preflight of four real hosts: each fault by its name, each command on its own host behind its
own shells, and nothing left behind."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
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
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write
from tests.support.patience import wait_until
from tests.testbed import faults, proc
from tests.testbed.host import Host
from tests.testbed.namespaces import Testbed


def local(command: list[str], settings: str = "", workdir: str = "") -> str:
    """One task on this machine."""
    return cluster_text(
        {"worker": {"tasks": 1, "command": command}}, command=None, workdir=workdir, more=settings
    )


def problems(report: Report) -> dict[str, str]:
    """For each host what is said of its commands."""
    found = [f for f in report.findings if f.check is Check.COMMAND]
    return {f.host: f.sentence for f in found if f.severity is not Severity.OK}


async def of(text: str, base: Path) -> Report:
    return await preflight(loads(text, "cluster.toml", base))


def jobs(commands: Sequence[Sequence[str]], settings: str = "", workdir: str = "") -> str:
    """A task on this machine for each command."""
    tables = "".join(
        f'[jobs.job{n}]\ntasks = ["localhost:auto"]\ncommand = {json.dumps(command)}\n'
        for n, command in enumerate(commands)
    )
    return f'{tables}[run]\nworkdir = "{workdir}"\n{settings}\n'


def by_job(report: Report, commands: Sequence[object]) -> list[str]:
    """What is said of the command of each job; nothing where it is fine."""
    bad = [f for f in report.findings if f.check is Check.COMMAND and f.severity is not Severity.OK]
    found = {str(finding.task): finding.sentence for finding in bad}
    return [found.get(f"job{number}:0", "") for number, _ in enumerate(commands)]


CANNOT_RUN = {
    "no-such-trainer is not in PATH": ["no-such-trainer", "x"],
    "/no/such/trainer: no such file": ["/no/such/trainer"],
    "/tmp is a directory": ["/tmp"],
    "/etc/passwd has no execute permission": ["/etc/passwd"],
    "has no module no_such_module": ["{python}", "-u", "-m", "no_such_module.train"],
}
CAN_RUN = [
    ["echo", "-m", "nothing"],
    ["{python}", "-c", "pass", "-m", "nothing"],
    ["{python}", "train.py", "-m", "nothing"],
    ["{python}", "-m", "trainer", "async"],
    ["{python}", "-m", "json.tool"],
    ["{python}", "-m", "mine.train"],
    ["{python}", "-m", "single"],
    ["./train.sh"],
]


async def test_commands_that_cannot_run_are_named(tmp_path: Path) -> None:
    """Given commands whose program or module is missing, a directory or not executable, when the
    preflight runs, then each task is named with its reason."""
    commands = [*CANNOT_RUN.values()]
    report = await of(jobs(commands), tmp_path)
    assert not report.ok
    for number, (why, said) in enumerate(zip(CANNOT_RUN, by_job(report, commands), strict=True)):
        assert said.startswith(f"job{number}:0 cannot run on localhost: ") and why in said, said


async def test_commands_that_can_run_are_fine(tmp_path: Path) -> None:
    """Given commands from PATH, from the workdir and from tfmux itself, when the preflight runs,
    then it finds all of them and says nothing against any."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "single.py").touch()
    (tmp_path / "train.py").touch()
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "train.sh").chmod(0o755)
    report = await of(jobs(CAN_RUN, workdir="."), tmp_path)
    assert by_job(report, CAN_RUN) == [""] * len(CAN_RUN) and problems(report) == {}
    assert [f.brief for f in report.findings if f.check is Check.COMMAND] == ["found"]


async def test_a_script_of_the_workdir_must_be_executable(tmp_path: Path) -> None:
    """Given a script of the workdir without execute permission, when the preflight runs, then it
    says so. The script is copied as it is, so it is looked at here."""
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    report = await of(local(["./train.sh"], workdir="."), tmp_path)
    assert "train.sh has no execute permission" in problems(report)["localhost"]


ABSENT = {
    "absent.sh: no such file": ["./absent.sh"],
    "/bin/train.sh: no such file": ["~/bin/train.sh"],
    "absent.py: no such file": ["{python}", "-u", "-W", "ignore", "absent.py", "--x"],
    "/no/such/train.py: no such file": ["{python}", "/no/such/train.py"],
    "has no module no_such_module": ["{python}", "-um", "no_such_module"],
}


@variants("workdir", ["", "."], test=1)
async def test_what_is_started_from_the_workdir_must_be_there(tmp_path: Path, workdir: str) -> None:
    """Given programs, scripts and modules that are missing, with a workdir or beside the file, when
    the preflight runs, then each is named; if `prepare` may bring them, that is a warning."""
    commands = [*ABSENT.values()]
    report = await of(jobs(commands, workdir=workdir), tmp_path)
    for why, said in zip(ABSENT, by_job(report, commands), strict=True):
        assert said.endswith(why), said
    report = await of(jobs(commands, 'prepare = ["make"]', workdir), tmp_path)
    assert report.ok
    assert all(said.endswith("unless prepare installs it") for said in by_job(report, commands))


async def test_what_cannot_be_known_is_no_error_and_not_called_found(tmp_path: Path) -> None:
    """Given a `setup` that may change the directory, when the preflight looks for relative
    commands, then nothing is an error, but the finding is `found in part` and names their tasks."""
    commands = [["./train.sh"], ["{python}", "train.py"]]
    report = await of(jobs(commands, 'setup = "cd /srv/code || true"'), tmp_path)
    assert problems(report) == {}
    (finding,) = [f for f in report.findings if f.check is Check.COMMAND]
    assert finding.brief == "found in part"
    assert "job0:0" in finding.sentence and "job1:0" in finding.sentence


@pytest.mark.prove
async def test_every_job_is_looked_at(tmp_path: Path) -> None:
    """Given 26 jobs of which the last lacks its program, when the preflight runs, then that one is
    named."""
    jobs = "".join(
        f'[jobs.job{n}]\ntasks = ["localhost:auto"]\ncommand = ["/bin/{name}"]\n'
        for n, name in enumerate(["sh", "true", "cat", "ls", "cp"] * 5 + ["no-such-program"])
    )
    for number in range(25):
        (tmp_path / f"tool{number}").symlink_to("/bin/true")
        jobs = jobs.replace("/bin/sh", f"{tmp_path}/tool{number}", 1)
    report = await of(f'{jobs}[run]\nworkdir = ""\n', tmp_path)
    assert problems(report)["localhost"].endswith("/bin/no-such-program: no such file")


@pytest.mark.prove
async def test_commands_that_are_too_many_to_try_are_named(tmp_path: Path) -> None:
    """Given 21 jobs behind `setup`, each of which takes a shell to try, when the preflight runs,
    then it tries twenty and names the last one as not tried."""
    jobs = "".join(
        f'[jobs.job{n}]\ntasks = ["localhost:auto"]\nsetup = "N={n}"\n' for n in range(21)
    )
    report = await of(f'{jobs}[run]\nworkdir = ""\ncommand = ["true"]\n', tmp_path)
    (finding,) = [f for f in report.findings if f.check is Check.COMMAND]
    assert finding.brief == "found in part" and finding.sentence.endswith(
        "not all programs of job20:0 could be checked"
    )


@pytest.mark.prove
async def test_setup_and_variables_are_followed(tmp_path: Path) -> None:
    """Given a program that only `setup` or `env` puts on PATH, when the preflight runs, then it is
    found; when `setup` fails, then its status is told instead."""
    tool = tmp_path / "bin" / "my-trainer"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    added = f"PATH={shlex.quote(str(tool.parent))}:$PATH"
    for settings in (f'setup = "{added}"', f'env = {{ PATH = "{tool.parent}:/usr/bin:/bin" }}'):
        assert problems(await of(local(["my-trainer"], settings), tmp_path)) == {}
    for program in ("my-trainer", "bin/my-trainer"):
        report = await of(local([program], 'setup = "false"'), tmp_path)
        assert "setup failed with exit status 1" in problems(report)["localhost"]


def environment(folder: Path) -> None:
    """What a project may hold: an interpreter, a package, and a file that `setup` sources."""
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "python3").symlink_to(sys.executable)
    (folder / "src" / "mine").mkdir(parents=True)
    (folder / "env.sh").write_text("test -e env.sh\n")


OF_THE_WORKDIR = [
    (["{python}", "-m", "mine.train"], 'env = { PYTHONPATH = "src" }'),
    (["{python}", "-m", "mine.train"], 'env = { PYTHONPATH = "/tmp:{workdir}/src" }'),
    (["{python}", "-c", "pass"], 'setup = ". ./env.sh"'),
    (["venv/bin/python3", "-c", "pass"], ""),
]
"""Commands with settings that name what lies in the workdir."""


def of_the_workdir(place: str, workdir: str, hosts: str = "") -> str:
    """A job for each of them."""
    tables = "".join(
        f'[jobs.job{n}]\ntasks = ["{place}"]\ncommand = {json.dumps(command)}\n{settings}\n'
        for n, (command, settings) in enumerate(OF_THE_WORKDIR)
    )
    return f'{hosts}{tables}[run]\nworkdir = "{workdir}"\n'


@pytest.mark.prove
async def test_all_is_looked_for_in_the_directory_where_tasks_start(tmp_path: Path) -> None:
    """Given relative paths in `setup`, PYTHONPATH or the command, when the preflight runs, then
    they are found in a workdir that has them, and are an error in one that has not."""
    environment(tmp_path / "project")
    (tmp_path / "empty").mkdir()
    report = await of(of_the_workdir("localhost:auto", "project"), tmp_path)
    assert report.ok and problems(report) == {}, report.findings
    report = await of(of_the_workdir("localhost:auto", "empty"), tmp_path)
    assert not report.ok
    assert all(by_job(report, OF_THE_WORKDIR)), report.findings


async def test_what_is_copied_to_a_host_is_no_error_before_it_is(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Given a host and a workdir that has not been copied there, when the preflight runs, then what
    can be found here is fine, `setup` that needs it a warning, and an interpreter that is a link
    out of the workdir an error: it is not copied."""
    environment(tmp_path)
    report = await of(of_the_workdir("tf1:auto", ".", testbed.hosts_toml()), tmp_path)
    module, other_module, sourced, interpreter = by_job(report, OF_THE_WORKDIR)
    assert module == other_module == ""
    assert "unless it is among the files that are copied" in sourced
    assert "venv/bin/python3 is not copied: it is a link to" in interpreter
    errors = {str(f.task) for f in report.findings if f.severity is Severity.ERROR}
    assert errors == {"job3:0"}


async def test_what_prepare_may_bring_is_no_error(tmp_path: Path) -> None:
    """Given a program and a `setup` file that are missing, when the preflight runs for a run with
    `prepare` lines, then both are warnings: the lines have not run yet."""
    settings = 'prepare = ["pip install it"]'
    report = await of(local(["/no/such/trainer"], settings), tmp_path)
    assert "unless prepare installs it" in problems(report)["localhost"]
    found = [f for f in report.findings if f.code == "command-missing"]
    assert [f.severity for f in found] == [Severity.WARN]
    settings = f'{settings}\nsetup = ". ~/no-such-environment/bin/activate"'
    report = await of(local(["{python}", "-c", "pass"], settings), tmp_path)
    codes = {f.code: f.severity for f in report.findings if f.severity is not Severity.OK}
    assert codes["python-broken"] is codes["command-missing"] is Severity.WARN and report.ok


def test_check_ends_with_3_and_names_it(tmp_path: Path) -> None:
    """Given a program that is not in PATH, when `tfmux check` is called, then exit 3 with
    `command-missing` and the program's name."""
    done = run("check", str(write(tmp_path, local(["no-such-trainer"]))))
    assert done.returncode == 3
    assert "[command-missing]" in done.stdout
    assert "no-such-trainer is not in PATH" in " ".join(done.stdout.split())


async def test_the_host_that_lacks_it_is_named(testbed: Testbed) -> None:
    """Given programs and a module of which each host lacks another one, when the preflight runs,
    then each host is named with the one it lacks and why."""
    for host in testbed:
        host.run(["mkdir", "-p", "/tmp/it", "/tmp/mods"])
        for name in ("a", "b", "c"):
            host.write(f"/tmp/it/{name}", "#!/bin/sh\n", 0o755)
        host.write("/tmp/mods/special.py", "")
    testbed["tf1"].run(["rm", "/tmp/it/a"])
    testbed["tf2"].run(["chmod", "644", "/tmp/it/b"])
    testbed["tf3"].run(["sh", "-c", "rm /tmp/it/c && mkdir /tmp/it/c"])
    testbed["tf4"].run(["rm", "/tmp/mods/special.py"])
    commands = {"a": ["/tmp/it/a"], "b": ["/tmp/it/b"], "c": ["/tmp/it/c"]}
    commands["d"] = ["{python}", "-m", "special.train"]
    jobs = "".join(
        f'[jobs.{name}]\ntasks = ["tf1:auto", "tf2:auto", "tf3:auto", "tf4:auto"]\n'
        f'command = {json.dumps(command)}\nready = "started"\n'
        for name, command in commands.items()
    )
    run_table = '[run]\nworkdir = ""\nenv = { PYTHONPATH = "/tmp/mods" }\n'
    text = testbed.hosts_toml() + jobs + run_table
    assert problems(await of(text, Path("/"))) == {
        "tf1": "a:0 cannot run on tf1: /tmp/it/a: no such file",
        "tf2": "b:1 cannot run on tf2: /tmp/it/b has no execute permission",
        "tf3": "c:2 cannot run on tf3: /tmp/it/c is a directory",
        "tf4": f"d:3 cannot run on tf4: {testbed['tf4'].python} has no module special",
    }


@variants("workdir", ["", "."], test=1)
async def test_files_of_the_workdir_are_looked_for_where_they_are(
    testbed: Testbed, tmp_path: Path, workdir: str
) -> None:
    """Given relative commands on a host, when the preflight runs, then it looks for them in the
    workdir here that is copied, or else in the home there, which is also the `~` of `python`."""
    host = testbed["tf1"]
    home = host.account.home
    host.run(["ln", "-sf", host.python, f"{home}/python3"])
    toml = testbed.hosts_toml().replace(f'python = "{host.python}"', 'python = "~/python3"', 1)
    assert "~/python3" in toml
    jobs = "".join(
        f'[jobs.{name}]\ntasks = ["tf1:auto"]\nready = "started"\ncommand = {json.dumps(words)}\n'
        for name, words in {
            "script": ["{python}", "train.py"],
            "whole": ["{python}", "{workdir}/train.py"],
            "trainer": ["{python}", "{trainer}", "async"],
            "tool": ["./tool"],
        }.items()
    )
    text = f'{toml}{jobs}[run]\nworkdir = "{workdir}"\n'
    assert problems(await of(text, tmp_path)).keys() == {"tf1"}
    (tmp_path / "train.py").touch()
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    if not workdir:
        for name in ("train.py", "tool"):
            host.write(f"{home}/{name}", "#!/bin/sh\n", 0o755)
    report = await of(text, tmp_path)
    assert problems(report) == {}
    assert [f.brief for f in report.findings if f.check is Check.COMMAND] == ["found"]
    report = await of(f'{text}setup = "false"\n', tmp_path)
    assert problems(report)["tf1"].startswith("tool:0 ")
    assert "setup failed with exit status 1" in problems(report)["tf1"]


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
