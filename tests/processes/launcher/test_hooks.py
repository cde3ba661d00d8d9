"""Hooks: what they are told, when, and that none of them gets in the way of a run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from launcher import Cluster, ClusterFileError, Run
from launcher.process import hooks as hooks_module
from launcher.process.hooks import HookProgram
from launcher.process.release import Teardown
from tests.support.patience import PATIENCE, until, wait_until
from tests.testbed import launcher_thread, proc

TELL = (
    "import os, sys\n"
    "name = os.environ['TFMUX_EVENT']\n"
    "text = sys.stdin.read()\n"
    "environ = {k: v for k, v in os.environ.items() if k.startswith('TFMUX_') or 'TOKEN' in k}\n"
    "open(name, 'w').write(text)\n"
    "open(name + '.env', 'w').write(repr(environ))\n"
)
TEXT = """
name = "hooked"
[jobs.worker]
tasks = ["localhost:auto"]
ready = "started"
[run]
workdir = ""
grace = 2
env_from = ["TOKEN_OF_MINE"]
command = ["{python}", "-u", "-c", "SCRIPT"]
[hooks]
"""
ALL = ("success", "failure", "stall", "end")


def text(script: str, **hooks: list[str]) -> str:
    """A cluster of one task with these hooks, `end = […]`."""
    lines = (f"on_{name} = {json.dumps(argv)}\n" for name, argv in hooks.items())
    return TEXT.replace("SCRIPT", script) + "".join(lines)


def received(folder: Path) -> dict[str, dict[str, Any]]:
    """What each hook that has run was told."""
    return {
        name: json.loads((folder / name).read_text()) for name in ALL if (folder / name).exists()
    }


async def run(folder: Path, script: str, **hooks: list[str]) -> Run:
    """A run to its end."""
    cluster = Cluster.from_text(text(script, **hooks), folder)
    async with asyncio.timeout(PATIENCE), cluster.launch() as launched:
        await launched.wait()
    return launched


def wait_until_dead(pid: int) -> None:
    """Waits for a process that has been killed."""
    wait_until(lambda: (found := proc.read(pid)) is None or not found.alive, f"{pid} is dead")


def tellers() -> dict[str, list[str]]:
    """For each event a hook that writes down what it is told."""
    return {name: [sys.executable, "-c", TELL] for name in ALL}


async def test_a_success_is_told_with_all_that_is_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To `on_success` and `on_end`; a secret is in no hook's environment."""
    monkeypatch.setenv("TOKEN_OF_MINE", "swordfish")
    monkeypatch.setenv("OTHER_TOKEN", "shown")
    ended = await run(tmp_path, "import os; print(os.environ['TOKEN_OF_MINE'])", **tellers())
    assert ended.log("worker:0").read_text() == "swordfish\n"
    assert ended.snapshot().notes == ()
    found = received(tmp_path)
    assert found.keys() == {"success", "end"}
    records = map(json.loads, (ended.folder / "events.jsonl").read_text().splitlines())
    record = [line for line in records if line["event"] == "run"][-1]
    del record["time"]
    for name, event in found.items():
        assert event.pop("time") <= time.time()
        receipt = event.pop("receipt")
        assert receipt["clean"] and [host["host"] for host in receipt["hosts"]] == ["localhost"]
        told = {"event": name, "folder": str(ended.folder), "first_failure": None, "verdict": None}
        assert event == {**record, **told}
        assert (event["outcome"], event["exit_code"], event["attempt"]) == ("success", 0, 1)
    environ = (tmp_path / "end.env").read_text()
    assert "swordfish" not in environ and "TOKEN_OF_MINE" not in environ
    assert "'OTHER_TOKEN': 'shown'" in environ
    assert f"'TFMUX_RUN': '{ended.id}'" in environ and "'TFMUX_OUTCOME': 'success'" in environ


async def test_a_failure_is_told_with_its_task_and_last_lines(tmp_path: Path) -> None:
    """To `on_failure` and `on_end`."""
    await run(tmp_path, "print('the last words'); raise SystemExit(3)", **tellers())
    found = received(tmp_path)
    assert found.keys() == {"failure", "end"}
    event = found["failure"]
    assert (event["outcome"], event["exit_code"]) == ("failed", 1)
    assert event["first_failure"]["task"] == "worker:0"
    assert event["first_failure"]["host"] == "localhost"
    assert event["first_failure"]["tail"] == ["the last words"]


async def test_the_start_of_all_tasks_is_told_by_its_number(tmp_path: Path) -> None:
    """Where all have started again, the hook hears of the last one."""
    again = 'on_failure = "restart-all"\nmax_restarts = 1\n[hooks]'
    file = text("raise SystemExit(3)", **tellers()).replace("[hooks]", again)
    async with asyncio.timeout(PATIENCE), Cluster.from_text(file, tmp_path).launch() as launched:
        await launched.wait()
    assert received(tmp_path)["failure"]["attempt"] == 2


async def test_a_kill_is_told_to_on_end_alone(tmp_path: Path) -> None:
    """A kill is neither a success nor a failure."""
    script = "import time; print('step 1 loss 1'); time.sleep(1000)"
    cluster = Cluster.from_text(text(script, **tellers()), tmp_path)
    async with asyncio.timeout(PATIENCE), cluster.launch() as launched:
        async for event in launched.events():
            if event["event"] == "metric":
                await launched.kill()
    assert received(tmp_path).keys() == {"end"}
    assert received(tmp_path)["end"]["outcome"] == "killed"


async def test_what_a_hook_prints_and_why_it_fails_are_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Printable, and in the records of the run; the exit code of the run is its own."""
    monkeypatch.setenv("TOKEN_OF_MINE", "swordfish")
    said = [sys.executable, "-c", "print('sent \\x1b]0;evil\\x07 on')"]
    fails = [sys.executable, "-c", "import sys; sys.exit('no mail server')"]
    ended = await run(tmp_path, "print(1)", success=said, end=fails)
    assert ended.exit_code == 0
    assert set(ended.snapshot().notes) == {
        "hook on_success: sent  on",
        f"hook on_end: {sys.executable} ended with exit code 1: no mail server",
    }
    assert "no mail server" in (ended.folder / "events.jsonl").read_text()


async def test_a_program_that_is_not_there_is_noted_at_the_beginning(tmp_path: Path) -> None:
    """Hours before it is needed, and the run goes on."""
    script = "import time; print('step 1 loss 1'); time.sleep(1000)"
    cluster = Cluster.from_text(text(script, end=["no-such-program"]), tmp_path)
    async with asyncio.timeout(PATIENCE), cluster.launch() as launched:
        async for event in launched.events():
            if "no-such-program is not in PATH (" in str(event.get("note")):
                break
        assert launched.receipt is None


async def test_the_receipt_does_not_wait_for_a_hook_that_hangs(tmp_path: Path) -> None:
    """The receipt is out while the hook still runs; another kill ends that, its children
    included."""
    hang = "import os, subprocess, time; p = subprocess.Popen(['sleep', '1000'])\n"
    hang += "open('pids.new', 'w').write(f'{os.getpid()} {p.pid}')\n"
    hang += "os.rename('pids.new', 'pids'); time.sleep(1000)"
    cluster = Cluster.from_text(text("print(1)", end=[sys.executable, "-c", hang]), tmp_path)
    async with asyncio.timeout(PATIENCE), cluster.launch() as launched:
        async for event in launched.events():
            if event["event"] == "receipt":
                break
        else:
            raise AssertionError("the run ended before the receipt")
        await until((tmp_path / "pids").exists, "the hook has told its pids")
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert launched.client.living and all(map(proc.read, pids))
        launched.client.kill_all(force=True)
        await launched.wait()
    assert any("killed" in note for note in launched.snapshot().notes), launched.snapshot().notes
    assert launched.exit_code == 0
    for pid in pids:
        wait_until_dead(pid)


def test_hooks_run_although_a_launcher_has_broken_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one runs them, a process here, where nothing is broken."""

    async def boom(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(Teardown, "release", boom)
    cluster = Cluster.from_text(text("print(1)", **tellers()), tmp_path)
    client = launcher_thread.launch(cluster.model, cluster.text)
    assert client.wait(PATIENCE)
    client.close()
    assert client.lost_launchers == 1
    assert received(tmp_path)["success"]["exit_code"] == 0
    assert received(tmp_path).keys() == {"success", "end"}


# --- the process -------------------------------------------------------------------------


def program(*argv: str, base: Path) -> HookProgram:
    return HookProgram(argv, base)


def outcome(*argv: str, base: Path, document: bytes = b"{}\n") -> str:
    """What is noted of a hook."""
    return program(*argv, base=base).run(document, os.environ, threading.Event())


def test_programs_that_cannot_be_run_are_named(tmp_path: Path) -> None:
    """Missing, no program, a directory, of a format that the kernel does not know."""
    (tmp_path / "plain.sh").write_text("echo hi\n")
    said = outcome("nowhere-to-be-found", base=tmp_path)
    assert said.startswith("nowhere-to-be-found is not in PATH (")
    assert outcome("./nowhere", base=tmp_path) == f"{tmp_path}/nowhere: no such file"
    assert outcome("./plain.sh", base=tmp_path) == f"{tmp_path}/plain.sh has no execute permission"
    assert outcome(str(tmp_path), base=tmp_path) == f"{tmp_path} is a directory"
    (tmp_path / "plain.sh").chmod(0o700)
    assert "/plain.sh: it is text whose first line names no" in outcome("./plain.sh", base=tmp_path)
    (tmp_path / "plain.sh").write_text("#!/no/such/interpreter\n")
    assert "/no/such/interpreter: no such file" in outcome("./plain.sh", base=tmp_path)


def test_the_directory_of_the_cluster_file_may_be_gone(tmp_path: Path) -> None:
    """Programs on PATH still run."""
    assert outcome("pwd", base=tmp_path / "gone") == "/"
    assert outcome("pwd", base=tmp_path) == str(tmp_path)


def test_a_hook_that_reads_nothing_gets_no_pipe_error(tmp_path: Path) -> None:
    """However much it would have been told."""
    document = b"x" * 10_000_000
    assert outcome("true", base=tmp_path, document=document) == ""
    assert outcome("wc", "-c", base=tmp_path, document=document) == "10000000"


def test_a_flood_is_read_and_only_its_end_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook comes to its end, or is killed in time."""
    script = (
        "import sys\nfor n in range(200): sys.stdout.write('y' * 99_999 + '\\n')\nprint('done')"
    )
    said = outcome(sys.executable, "-c", script, base=tmp_path)
    assert said.endswith("; done") and len(said) < 2000
    monkeypatch.setattr(hooks_module, "HOOK_SECONDS", 3.0)
    assert outcome("yes", base=tmp_path).startswith("yes killed after 3 s: y; y")


def test_a_hook_that_hangs_is_killed_with_all_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose parent has ended and which holds the pipe."""
    monkeypatch.setattr(hooks_module, "HOOK_SECONDS", 4.0)
    script = "sleep 1000 & echo $!; trap '' TERM; sleep 1000"
    assert outcome("sh", "-c", script, base=tmp_path).startswith("sh killed after 4 s: ")
    said = outcome("sh", "-c", "sleep 1000 & echo $!", base=tmp_path)
    assert said.startswith("sh killed after 4 s: ")
    wait_until_dead(int(said.split()[-1]))


def test_a_hook_may_leave_a_process_behind_that_holds_nothing(tmp_path: Path) -> None:
    """Such as a daemon of its own."""
    script = "sleep 1000 > /dev/null 2>&1 & echo $!"
    pid = int(outcome("sh", "-c", script, base=tmp_path))
    found = proc.read(pid)
    assert found is not None and found.alive
    os.kill(pid, 9)


def test_a_hook_ended_by_a_signal_is_told_so(tmp_path: Path) -> None:
    """By its name."""
    assert outcome("sh", "-c", "kill -9 $$", base=tmp_path) == "sh ended by KILL"


# --- stalls ------------------------------------------------------------------------------


async def test_a_stall_is_told_while_the_run_goes_on(tmp_path: Path) -> None:
    """With the task, and neither outcome nor receipt."""
    script = "import time\\nfor i in range(5): print('step', i, 'loss', 1); time.sleep(0.1)\\n"
    cluster = Cluster.from_text(text(f"{script}time.sleep(1000)", **tellers()), tmp_path)
    async with asyncio.timeout(PATIENCE), cluster.launch():
        while not (tmp_path / "stall.env").exists():  # noqa: ASYNC110 another process makes it
            await asyncio.sleep(0.1)
        event = received(tmp_path)["stall"]
    (stalled,) = event["stalled"]
    assert (stalled["task"], stalled["state"]) == ("worker:0", "running")
    assert event["time"] - stalled["stalled_since"] >= 10
    assert event["hang"]["text"].startswith("worker:0 is in")
    assert (event["outcome"], event["exit_code"], event["receipt"]) == (None, None, None)
    assert received(tmp_path).keys() == {"stall", "end"}


# --- the file ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('on_end = "notify-send done"', "list of arguments"),
        ("on_end = []", "the command is empty"),
        ('on_fail = ["true"]', "on_failure"),
        ('on_end = ["a\\u0000b"]', "NUL"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, line: str, message: str) -> None:
    """Before anything is started."""
    with pytest.raises(ClusterFileError, match=message):
        Cluster.from_text(text("print(1)") + line, tmp_path)


def test_braces_are_no_placeholders(tmp_path: Path) -> None:
    """A hook's arguments are what they are."""
    found = Cluster.from_text(text("print(1)", end=["echo", "{run_id}", "}"]), tmp_path)
    assert found.model.hooks.on_end == ("echo", "{run_id}", "}")
