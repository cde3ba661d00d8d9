"""The preflight of tasks' commands: each is looked for on its own host, behind its own shells."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from launcher.cluster.file import loads
from launcher.preflight import Check, Report, Severity, preflight
from tests.command import run, write
from tests.testbed.namespaces import Testbed


def local(command: list[str], settings: str = "", workdir: str = "") -> str:
    """One task on this machine."""
    return f"""
[jobs.worker]
tasks = ["localhost:auto"]
command = {json.dumps(command)}
[run]
workdir = "{workdir}"
{settings}
"""


def problems(report: Report) -> dict[str, str]:
    """For each host what is said of its commands."""
    found = [f for f in report.findings if f.check is Check.COMMAND]
    return {f.host: f.sentence for f in found if f.severity is not Severity.OK}


async def of(text: str, base: Path) -> Report:
    return await preflight(loads(text, "cluster.toml", base))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["no-such-trainer", "x"], "no-such-trainer is not on PATH"),
        (["/no/such/trainer"], "/no/such/trainer: no such file"),
        (["/tmp"], "/tmp is a directory"),
        (["/etc/passwd"], "/etc/passwd is not executable"),
        (["{python}", "-u", "-m", "no_such_module.train"], "has no module no_such_module"),
    ],
)
async def test_a_command_that_cannot_run_is_named(
    tmp_path: Path, command: list[str], why: str
) -> None:
    """With task, host and reason; nothing may be launched."""
    report = await of(local(command), tmp_path)
    assert not report.ok
    sentence = problems(report)["localhost"]
    assert sentence.startswith("worker:0 cannot run on localhost: ") and why in sentence


@pytest.mark.processes
@pytest.mark.parametrize(
    "command",
    [
        ["echo", "-m", "nothing"],
        ["{python}", "-c", "pass", "-m", "nothing"],
        ["{python}", "train.py", "-m", "nothing"],
        ["{python}", "-m", "trainer", "async"],
        ["{python}", "-m", "json.tool"],
        ["{python}", "-m", "mine.train"],
        ["{python}", "-m", "single"],
        ["./train.sh"],
    ],
)
async def test_a_command_that_can_run_is_fine(tmp_path: Path, command: list[str]) -> None:
    """Also what is part of the workdir, or comes with tfmux."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "single.py").touch()
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "train.sh").chmod(0o755)
    report = await of(local(command, workdir="."), tmp_path)
    assert problems(report) == {}
    assert any(f.check is Check.COMMAND and f.brief == "found" for f in report.findings)


@pytest.mark.processes
async def test_a_script_of_the_workdir_must_be_executable(tmp_path: Path) -> None:
    """It is copied as it is, so it is looked at here."""
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    report = await of(local(["./train.sh"], workdir="."), tmp_path)
    assert "train.sh is not executable" in problems(report)["localhost"]


@pytest.mark.processes
async def test_setup_and_variables_are_followed(tmp_path: Path) -> None:
    """A program that only `setup` or `env` brings is there; a `setup` that fails is told."""
    tool = tmp_path / "bin" / "my-trainer"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    added = f"PATH={shlex.quote(str(tool.parent))}:$PATH"
    for settings in (f'setup = "{added}"', f'env = {{ PATH = "{tool.parent}:/usr/bin:/bin" }}'):
        assert problems(await of(local(["my-trainer"], settings), tmp_path)) == {}
    report = await of(local(["my-trainer"], 'setup = "false"'), tmp_path)
    assert "setup failed with exit status 1" in problems(report)["localhost"]


@pytest.mark.processes
async def test_what_prepare_may_bring_is_no_error(tmp_path: Path) -> None:
    """A warning: the lines have not run yet."""
    settings = 'prepare = ["pip install it"]'
    report = await of(local(["/no/such/trainer"], settings), tmp_path)
    assert "unless prepare brings it" in problems(report)["localhost"]
    found = [f for f in report.findings if f.code == "command-missing"]
    assert [f.severity for f in found] == [Severity.WARN]


def test_check_ends_with_3_and_names_it(tmp_path: Path) -> None:
    """As for every error of the preflight."""
    done = run("check", str(write(tmp_path, local(["no-such-trainer"]))))
    assert done.returncode == 3
    assert "[command-missing]" in done.stdout
    assert "no-such-trainer is not on PATH" in " ".join(done.stdout.split())


@pytest.mark.testbed
async def test_the_host_that_lacks_it_is_named(testbed: Testbed) -> None:
    """Missing, not executable, a directory, and a module: each on one host only."""
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
        "tf2": "b:1 cannot run on tf2: /tmp/it/b is not executable",
        "tf3": "c:2 cannot run on tf3: /tmp/it/c is a directory",
        "tf4": f"d:3 cannot run on tf4: {testbed['tf4'].python} has no module special",
    }
