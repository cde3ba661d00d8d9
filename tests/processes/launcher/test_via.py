"""Hosts that a command reaches (`via`): commands that work, and those that do not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from launcher.cluster.read import loads
from launcher.errors import ClusterFileError, HostError
from launcher.hosts import bootstrap, ways
from launcher.hosts.bootstrap import LinkSettings, query_agent
from launcher.hosts.ssh import SshConnector
from launcher.hosts.ways import transport_factory
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import HostPlan
from launcher.preflight import Check, Report, Severity
from launcher.preflight.preflight import preflight
from tests.support.agent_frames import RULES
from tests.support.patience import PATIENCE, wait_until
from tests.testbed import proc
from tests.testbed.proc import Process

FILE = """
[hosts.tf1]
via = ["podman", "exec", "-i", "tf1"]
address = "10.0.0.7"
[jobs.worker]
tasks = ["tf1:2222"]
command = ["true"]
"""


def shell(script: str, *words: str) -> tuple[str, ...]:
    """A command that runs a script, whose arguments are what it should run."""
    return ("sh", "-c", script, "sh", *words)


PLAIN = shell('exec "$@"')
WORKING = {
    "passes on": PLAIN,
    "prints first": shell('echo; echo "Welcome to tf1"; echo notice >&2; exec "$@"'),
    "a shell": ("sh", "-c", "{command}"),
    "one of several words": ("sh", "-c", "exec env LEVEL=2 {command}"),
    "leaves a child behind": shell('sleep 4711 & "$@"'),
}

UNSEVEN = "LC_ALL=C stdbuf -i0 -o0 tr '\\200-\\377' '\\000-\\177'"
BROKEN = {
    "ends at once": (
        ("true",),
        "via-ended",
        "status 0 before the agent had started: no output; try it in a shell.*: true true <",
    ),
    "fails at once": (
        shell("echo no such container >&2; exit 125"),
        "via-ended",
        "status 125 .*no such container",
    ),
    "wants a terminal": (
        shell('test -t 0 || { echo "the input device is not a TTY" >&2; exit 1; }', "-it"),
        "via-ended",
        "not a TTY.*leave out -t",
    ),
    "is a terminal": (("script", "-qec", "{command}", "/dev/null"), "via-terminal", "-t"),
    "is not there": (("no-such-program-here",), "via-missing", "no program no-such-program-here"),
    "is a folder in PATH": (("a-folder",), "via-missing", "no program a-folder"),
    "may not be run": (("/etc/passwd",), "via-failed", "Permission denied"),
    "is no program": (("~/text",), "via-failed", "Exec format error"),
    "has a first line for nobody": (("~/script",), "via-failed", "first line of .*script is missi"),
    "says nothing": (shell("sleep 4711 & sleep 4712"), "via-silent", "no answer"),
    "asks": (shell("echo Password: ; read line"), "via-silent", "Password:.*without questions"),
    "prints without end": (shell("exec yes"), "via-noisy", "more than 1 MiB"),
    "ignores all that ends it": (
        shell("trap '' TERM HUP; sleep 4711; sleep 4712"),
        "via-silent",
        "no answer",
    ),
    "has no python": (PLAIN, "python-missing", "python = "),
    "buffers lines": (shell('"$@" | grep --line-buffered -a ""'), "via-buffered", "srun -u"),
    "buffers all": (
        shell('"$@" | dd bs=1M iflag=fullblock status=none'),
        "via-buffered",
        "holds output back",
    ),
    "buffers input": (
        shell('dd bs=1M iflag=fullblock status=none | "$@"'),
        "via-buffered",
        "holds input back",
    ),
    "makes line ends": (shell("\"$@\" | sed -u 's/$/\\r/'"), "via-terminal", "changes line ends"),
    "drops bits": (shell(f'"$@" | {UNSEVEN}'), "via-altered", "0x80 came as 0x00"),
    "drops bits of input": (shell(f'{UNSEVEN} | "$@"'), "via-altered", "changes its input"),
    "passes no input on": (shell('exec "$@" </dev/null'), "via-input", "add -i"),
}


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """A text in the environment of all that the test starts."""
    text = f"via-{uuid4().hex}"
    monkeypatch.setenv("VIA_MARK", text)
    return text


def left(mark: str) -> list[Process]:
    """Living processes that the test has started."""
    return [p for p in proc.scan(having=mark) if p.alive and p.pid != os.getpid()]


async def answer(command: tuple[str, ...], python: str = sys.executable) -> object:
    """What the host behind a command says to the question for an agent."""
    host = HostPlan("tf1", None, python, "tf1", {}, None, via=command)
    settings = LinkSettings("via-1", "tf1", RULES, local=False)
    return await query_agent(settings, transport_factory(host, SshConnector()))


@pytest.mark.parametrize("command", WORKING.values(), ids=WORKING.keys())
async def test_a_command_that_passes_on_both_ways(command: tuple[str, ...], mark: str) -> None:
    """The agent's code arrives and answers: there is no agent. Nothing is left running."""
    assert await answer(command) is None
    assert not left(mark)


@pytest.mark.parametrize(("command", "code", "told"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_command_that_does_not(
    command: tuple[str, ...],
    code: str,
    told: str,
    mark: str,
    tfmux_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One error that says what is wrong and what to change; nothing is left."""
    # What ends by silence ends soon; all others have the time that a busy machine needs.
    waits = code in ("via-silent", "via-buffered", "via-input") or told == "changes its input"
    monkeypatch.setattr(bootstrap, "START_SECONDS", 8.0 if waits else PATIENCE)
    monkeypatch.setattr(bootstrap, "PROBE_SECONDS", 4.0 if waits else PATIENCE)
    monkeypatch.setattr(ways, "INPUT_SECONDS", 4.0 if waits else PATIENCE)
    if shutil.which(command[0]) is None and code not in ("via-missing", "via-failed"):
        pytest.skip(f"no {command[0]}")
    (tfmux_home / "text").write_bytes(b"\x7fELF, but not really")
    (tfmux_home / "script").write_text("#!/nowhere/sh\n")
    for name in ("text", "script"):
        (tfmux_home / name).chmod(0o755)
    (tfmux_home / "bin" / "a-folder").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{tfmux_home / 'bin'}:{os.environ['PATH']}")
    command = (os.path.expanduser(command[0]), *command[1:])
    python = "/nowhere/python3" if code == "python-missing" else sys.executable
    with pytest.raises(HostError, match=told) as error:
        await answer(command, python)
    assert error.value.code == code
    assert error.value.todo and "\n" not in str(error.value)
    assert not left(mark)


async def test_an_error_names_the_command_that_reaches_a_node() -> None:
    """Not only the node, by which people know the host."""
    line = shell("exit 127")
    host = HostPlan("node3", None, "python3", "sl4", {}, None, via=line, has_agent=True)
    settings = LinkSettings("via-1", "node3", RULES, local=False, has_agent=True)
    with pytest.raises(HostError, match=r"node3: via: sh -c 'exit 127' sh ended with status 127"):
        await query_agent(settings, transport_factory(host, SshConnector()))


async def test_cancelled_while_it_waits(mark: str) -> None:
    """A launch that is given up ends the command."""
    task = asyncio.create_task(answer(shell("echo here; sleep 4711")))
    await asyncio.to_thread(
        wait_until, lambda: any("sleep" in p.argv for p in left(mark)), "the command runs"
    )
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not left(mark)


# --- preflight ----------------------------------------------------------------------------------


async def check(command: tuple[str, ...]) -> Report:
    """The report on a cluster of one host behind a command."""
    text = FILE.replace('["podman", "exec", "-i", "tf1"]', json.dumps(command))
    text = text.replace("10.0.0.7", "127.0.0.1").replace("2222", "auto")
    text = text.replace("[jobs", f"python = {json.dumps(sys.executable)}\n[jobs")
    return await preflight(loads(text + '[run]\nworkdir = ""', "x.toml", Path("/")))


LINGERING = shell('"$@"; sleep 4711')
DEAF = shell('{ cat; exec sleep 4711; } | "$@"')
CHECKED = {
    "works": (PLAIN, "ok", "passes every byte on at once, and ends with its input"),
    "prints first": (shell('echo "Welcome"; exec "$@"'), "ok", "passes every byte on"),
    "goes on": (LINGERING, "via-lingers", "keeps running after its input"),
    "does not pass the end on": (DEAF, "via-lingers", "keeps running after its input"),
    "a terminal": (("script", "-qec", "{command}", "/dev/null"), "via-terminal", "terminal"),
    "not there": (("no-such-program-here",), "via-missing", "there is no program"),
}


@pytest.mark.parametrize(("command", "code", "told"), CHECKED.values(), ids=CHECKED.keys())
async def test_what_the_preflight_says(
    command: tuple[str, ...], code: str, told: str, mark: str
) -> None:
    """The command is one finding; where it does not work, no other check is made."""
    report = await check(command)
    (found,) = [finding for finding in report.findings if finding.check is Check.LOGIN]
    assert (found.code, bool(found.todo)) == (code, code != "ok") and told in found.sentence
    assert report.ok is (found.severity is not Severity.ERROR)
    if report.ok:
        (shells,) = [finding for finding in report.findings if finding.check is Check.SHELL]
        assert shells.code == "ok" and ("Welcome" in shells.sentence) is ("echo" in command[2])
        assert any(finding.check is Check.PYTHON for finding in report.findings)
    else:
        assert len(report.findings) == 1
    assert not left(mark)


# --- cluster file -----------------------------------------------------------------------------


def problems(text: str) -> list[str]:
    """What is wrong with a file."""
    try:
        loads(text, "x.toml", Path("/srv"))
    except ClusterFileError as error:
        return [f"{p.line} {p}" for p in error.problems]
    return []


def test_a_host_with_via() -> None:
    """A host with `via` is no local host, is called by its address, and its program may be in the
    home here."""
    text = FILE.replace('"podman"', '"~/bin/enter"')
    plan = make_plan(loads(text, "x.toml", Path("/srv")), "x-1")
    (host,) = plan.hosts
    assert host.via == (os.path.expanduser("~/bin/enter"), "exec", "-i", "tf1")
    assert (host.ssh, host.local, host.python) == (None, False, "python3")
    assert host.destination.endswith("bin/enter exec -i tf1")
    assert plan.tasks[0].address == "10.0.0.7:2222"


VIA = '["podman", "exec", "-i", "tf1"]'
WRONG = {
    "ssh as well": (VIA, f'{VIA}\nssh = "tf1"', "3 hosts.tf1.via: the host has both ssh"),
    "no address": ('address = "10.0.0.7"', "", "2 hosts.tf1: a host with via needs an address"),
    "empty": (VIA, "[]", "3 hosts.tf1.via: the command is empty"),
    "a text": (VIA, '"podman exec"', '3 hosts.tf1.via: write a list.*"podman", "exec"'),
    "an empty text": (VIA, '""', "3 hosts.tf1.via: write a list"),
    "a number": (VIA, "7", "3 hosts.tf1.via: write a list of arguments, such as"),
    "numbers": (VIA, '["nice", 7]', r"3 hosts.tf1.via\[1\]: write text in quotes"),
    "an empty program": (VIA, '["", "x"]', "3 hosts.tf1.via: the first argument is empty"),
    "a relative path": (VIA, '["bin/enter"]', "3 hosts.tf1.via: write the program as an abs"),
    "a line break": (VIA, '["podman", "a\\nb"]', r"3 hosts.tf1.via\[1\]: control characters"),
    "NUL": (VIA, '["podman", "a\\u0000"]', r"3 hosts.tf1.via\[1\]: a NUL character"),
    "an escape": (VIA, '["podman", "\\u001b[2J"]', r"3 hosts.tf1.via\[1\]: control characters"),
    "ssh unquoted": (VIA, '["ssh", "login"]', '3 hosts.tf1.via: ssh gives.*end with "{command}"'),
    "an ssh key": (VIA, f'{VIA}\nidentity = "k"', "4 hosts.tf1.identity: identity is an option"),
    "a home of there": (VIA, f'{VIA}\npython = "~/p"', '4 hosts.tf1.python: "~/" is not expanded'),
    "forward": ('["true"]', '["true"]\nforward = true', "8 jobs.worker.forward: ports are forw"),
    "this machine": ("tf1", "localhost", "localhost is this machine and has no via"),
}


@pytest.mark.parametrize(("old", "new", "told"), WRONG.values(), ids=WRONG.keys())
def test_what_a_file_may_not_say(old: str, new: str, told: str) -> None:
    """One problem, with its line and what to write."""
    (problem,) = problems(FILE.replace(old, new))
    assert re.search(told, problem), problem
