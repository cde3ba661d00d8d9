"""Secrets that must not leak, and input that must not be run or trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.errors import TfmuxError
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.cluster_texts import cluster_text
from tests.support.command import python_task, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario, ready

SECRET = "hunter2-4f1c9a7e"
NASTY = (
    "plain",
    "two words",
    "$(touch /tmp/owned)",
    "`touch /tmp/owned`",
    'it\'s "quoted"',
    "a\nb",
    "; touch /tmp/owned #",
    "*?[a-z]~",
    "\\ \\n",
    "-rf",
    "",
    "!history",
    "grüße %s {{x}}",
)
ECHO = "import os, sys; print(repr(sys.argv[2:]), repr(os.environ['NASTY']), os.getcwd())"


def test_no_secret_on_a_command_line_or_in_a_file(
    scenario: FaultScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a variable that `env_from` passes on, when tasks run here and on hosts, then it is in
    their environment, and on no command line, in no file of the run, no event and no output."""
    monkeypatch.setenv("TOKEN_OF_MINE", SECRET)
    script = "import hashlib, os, time; print(hashlib.md5(os.environ['TOKEN_OF_MINE'].encode())"
    script += ".hexdigest(), flush=True); import socket, sys;"
    script += "s = socket.create_server(('', int(sys.argv[1]))); time.sleep(1000)"
    file = scenario.file(
        {"ps": ["tf1"], "worker": ["tf3", "here"]},
        run='env_from = ["TOKEN_OF_MINE"]\nsetup = "export X=1"\ngrace = 1',
        words=[*python_task(script), "{port}"],
    )
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0", "worker:1")
        # A log line takes another way than the port that is seen to be open.
        wait_until(lambda: len(up.of("log")) >= 3, "all have printed")
        digest = [e["text"] for e in up.of("log")]
        assert len(set(digest)) == 1 and len(digest) == 3, digest
        holders = scenario.of("tf3", "worker:0")
        assert any(p.environ.get("TOKEN_OF_MINE") == SECRET for p in holders)
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue
            assert SECRET.encode() not in line, line
        folders = [
            runs_home(),
            scenario.testbed["tf1"].disk / "home",
            scenario.testbed["tf3"].disk / "home",
        ]
        folders += [scenario.testbed[name].disk / "tmp" for name in ("tf1", "tf3")]
        folders += [scenario.folder / "home/.local/state", Path(f"/tmp/tfmux-{os.getuid()}")]
        assert holding(folders) == []
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert holding(folders) == []
    assert SECRET not in json.dumps(up.events) + up.said
    scenario.wait_dead(up.run_id)


def holding(folders: list[Path]) -> list[Path]:
    """The files below these folders that hold the secret; runs of other tests may remove some."""

    def holds(path: Path) -> bool:
        with suppress(FileNotFoundError):
            return SECRET.encode() in path.read_bytes()
        return False

    walked = [Path(at, name) for top in folders for at, _, names in os.walk(top) for name in names]
    files = [path for path in walked if path.is_file()]
    assert files
    return [path for path in files if holds(path)]


def test_everything_is_quoted(fresh_scenario: FaultScenario) -> None:
    """Given arguments, a variable, a workdir and an interpreter with blanks, quotes, line breaks
    and `$()`, when a task starts on a host, then they arrive as they are and none is run."""
    host = fresh_scenario.testbed["tf3"]
    python = "/tmp/my $(touch owned) 'py'"
    host.run(["ln", "-s", "/opt/tf/bin/python", python])
    work = fresh_scenario.folder / "a $(touch owned) \"b\" 'c'"
    work.mkdir()
    (work / "it's a $(file)").write_text("here")
    nasty = [word.replace("{{x}}", "{{{{x}}}}") for word in NASTY]
    text = fresh_scenario.hosts_toml(["tf3"]).replace(f'"{host.python}"', json.dumps(python))
    text = f"""
name = "nasty"
{text}
[jobs.worker]
tasks = ["tf3:auto"]
ready = "started"
[run]
command = {json.dumps(["{python}", "-c", ECHO, "{workdir}", *nasty])}
workdir = {json.dumps(work.name)}
env = {{ NASTY = {json.dumps(nasty[2] + nasty[4] + nasty[5])} }}
"""
    file = write(fresh_scenario.folder, text)
    with fresh_scenario.up(file) as up:
        assert up.wait() == 0, up.transcript()
        said = up.log("worker:0", "plain")["text"]
        assert repr(list(NASTY)) in said, said
        assert repr(NASTY[2] + NASTY[4] + NASTY[5]) in said
    assert not host.run(["find", "/tmp", "-name", "owned"]).stdout
    assert not list(fresh_scenario.folder.rglob("owned")) and not Path("/tmp/owned").exists()
    fresh_scenario.wait_dead()


ESCAPES = (
    b"\x1b]52;c;ZXZpbA==\x07 \x1b[2J\x1b[H \x1b]0;title\x07 \x1bP+q\x1b\\ \x1b]8;;http://x\x1b\\y"
    b" \xc2\x9b31m \x9b31m \x08\x08 \x0e \x1bc \x1b(0 \x1b[?1049h \x1b]52;c;unfinished"
)


def test_escape_sequences_do_not_reach_stdout(tmp_path: Path) -> None:
    """Given a failing task that writes escape sequences, when `tfmux up` prints its lines as text
    or as JSON, then stdout and stderr hold none of them, and the stored log has the raw bytes."""
    script = f"import sys, os; os.write(1, {ESCAPES!r} + b'\\nend\\n'); sys.exit(3)"
    text = cluster_text(
        {"worker": {"tasks": 1, "ready": "started"}}, "escapes", command=python_task(script)
    )
    file = write(tmp_path, text)
    for words in (("--headless",), ("--json",)):
        done = subprocess.run(
            [sys.executable, "-m", "tui.main", "up", str(file), *words],
            capture_output=True,
            timeout=PATIENCE,
            cwd=REPOSITORY,
        )
        assert done.returncode == 1, done
        for said in (done.stdout, done.stderr):
            assert b"end" in said
            text = said.decode()
            assert not [c for c in text if not c.isprintable() and c not in "\n\t"], said
    logs = [folder.path / "worker-0.log" for folder in RunFolder.all()]
    assert [log.read_bytes() for log in logs] == [ESCAPES + b"\nend\n"] * 2
    for folder in RunFolder.all():
        assert folder.path.stat().st_mode & 0o777 == 0o700


def test_a_socket_folder_of_somebody_else_is_not_used(fresh_scenario: FaultScenario) -> None:
    """Given a `/tmp/tfmux-UID` that another user or a link has put there, when a run starts, then
    its sockets are in a private folder of another name, and `tfmux kill` still finds its agents."""
    linked, another = fresh_scenario.testbed["tf3"], fresh_scenario.testbed["tf4"]
    places = {host: f"/tmp/tfmux-{host.account.uid}" for host in (linked, another)}
    linked.run(["mkdir", "/tmp/elsewhere"])
    linked.run(["ln", "-s", "/tmp/elsewhere", places[linked]])
    another.run(["mkdir", "-m", "777", places[another]], as_user=False)
    file = fresh_scenario.file({"ps": ["tf3"], "worker": ["tf4"]}, run="lease = 600\ngrace = 1")
    with fresh_scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        for host, place in places.items():
            assert host.run(["ls", "-A", f"{place}/"]).stdout == b"", host.name
            mode = host.run(["sh", "-c", f"stat -c %a {place}-*"]).stdout
            assert mode == b"700\n", host.name
        code, said = fresh_scenario.kill(up.run_id)  # another launcher finds the same agents
        assert code == 0, said
        up.wait()
    fresh_scenario.wait_dead()


def test_the_folder_of_runs_must_be_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a folder of runs that is a link or belongs to another user, when a run is launched,
    then exit 2 with that reason, and nothing is written through the link."""
    text = '\n[jobs.worker]\ntasks = ["localhost:auto"]\n[run]\ncommand = ["true"]\n'
    file = write(tmp_path, text)
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o777)
    data = tmp_path / "data"
    (data / "tfmux").mkdir(parents=True)
    (data / "tfmux" / "runs").symlink_to(theirs)
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    done = command.run("up", str(file), "--json")
    assert done.returncode == 2 and "is not a directory" in done.stderr, done
    assert not list(theirs.iterdir())
    if os.geteuid() == 0:
        (data / "tfmux" / "runs").unlink()
        (data / "tfmux" / "runs").mkdir()
        os.chown(data / "tfmux" / "runs", 4242, 4242)
        done = command.run("up", str(file), "--json")
        assert done.returncode == 2 and "belongs to another user" in done.stderr, done


def test_a_stored_run_with_links_in_its_folder_is_not_written_through(tmp_path: Path) -> None:
    """Given a stored run with a link in the place of a log, when the log is appended to, then that
    is an error, and the file behind the link is unchanged."""
    from launcher.ids import TaskId
    from launcher.store.logs import LogStore

    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "worker-0.log").symlink_to(victim)
    log = LogStore(folder).open(TaskId("worker", 0))
    with pytest.raises(OSError, match="symbolic"):
        log.append(log.size, b"evil", 0.0)
    assert victim.read_text() == "precious"


def test_a_run_is_not_found_outside_its_folder() -> None:
    """Given `../../etc` as a run's name, when that run is looked for, then it is an error."""
    with pytest.raises(TfmuxError):
        RunFolder.find("../../etc")
