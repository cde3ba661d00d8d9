"""Results brought back at the end of a run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import tree
from launcher.agent.folders import Folders, lock_file, remove_tree
from launcher.agent.tree import WorkdirFile, keep_results
from launcher.files.collecting import named
from launcher.files.unpacking import Unpacker
from launcher.on_host.pipe import LENGTH
from launcher.on_host.transfer import ENOUGH, MORE, PIECE, collect, collect_results
from launcher.store.runs import RunFolder
from tests.support.budgets import soak, variants
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
from tests.support.scenario import ready
from tests.support.short_programs import Running
from tests.testbed.inprocess import SshServer

HEAD = re.compile(rb'{"name"').finditer


def kept(server: SshServer) -> list[Path]:
    """Folders of runs that are still on the host: an agent that was left removes its own."""
    return list((server.home / ".local/state/tfmux").iterdir())


RESULTS = """
import os, sys, time
logdir = sys.argv[1]
os.makedirs(logdir + "/deep/empty")
open(logdir + "/checkpoint", "w").write("step 12")
open(logdir + "/deep/big", "wb").write(os.urandom(int(sys.argv[2])))
open(logdir + "/deep/none", "w")
os.symlink("checkpoint", logdir + "/latest")
os.symlink("/etc/passwd", logdir + "/outside")
os.mkfifo(logdir + "/pipe")
open("table.csv", "w").write("1,2\\n")
while not os.path.exists(sys.argv[4]):
    time.sleep(0.02)
sys.exit(int(sys.argv[3]))
"""


def cluster(
    host: str, size: int = 100_000, status: int = 0, more: str = "", until: Path = Path("/")
) -> str:
    """One worker that leaves results in its log directory and in its workdir; it ends when a file
    of this machine, where the server's hosts are, is there."""
    command = json.dumps([*python_task(RESULTS), "{logdir}", str(size), str(status), str(until)])
    return f"""
name = "results"
{host}
[jobs.worker]
tasks = ["far:auto"]
[run]
command = {command}
workdir = "work"
logdir = "~/out/{{run_id}}"
collect = ["{{logdir}}", "table.csv", "/nowhere/at-all"]
{more}
[start.ready]
worker = "started"
"""


def on_server(
    server: SshServer, tmp_path: Path, size: int = 100_000, status: int = 0, until: Path = Path("/")
) -> Path:
    """The file of that cluster, on the in-process SSH server."""
    (tmp_path / "work").mkdir()
    text = cluster(server.host_toml("far", sys.executable), size, status, until=until)
    return write(tmp_path, text)


def digest(path: Path) -> str:
    """A file's hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@variants("status", [0, 3], test=1)
def test_results_come_back(ssh_server: SshServer, tmp_path: Path, status: int) -> None:
    """After success and after failure: every file as it was, symbolic links left out and named,
    what was not there named, and progress up to the last byte."""
    with Up("up", str(on_server(ssh_server, tmp_path, status=status)), "--json") as up:
        assert up.wait() == (1 if status else 0), up.transcript()
    there = ssh_server.home / "out" / up.run_id
    here = RunFolder.find(up.run_id).path / "collected/far"
    assert (here / up.run_id / "checkpoint").read_text() == "step 12"
    assert digest(here / up.run_id / "deep/big") == digest(there / "deep/big")
    assert (here / up.run_id / "deep/none").read_bytes() == b""
    assert (here / up.run_id / "deep/empty").is_dir()
    assert not (here / up.run_id / "latest").is_symlink()
    assert not (here / up.run_id / "outside").is_symlink()
    assert not (here / up.run_id / "pipe").exists()
    assert (here / "table.csv").read_text() == "1,2\n"
    notes = "\n".join(e["note"] for e in up.of("note"))
    assert "/nowhere/at-all: no such file or directory" in notes
    for name in ("latest", "outside"):
        assert f"far: not collected: {up.run_id}/{name}, a symbolic link" in notes
    assert str(here) in notes
    wait_until(lambda: not kept(ssh_server), "its folder on the host is removed")
    last = [e for e in up.of("host") if "collected_total" in e][-1]
    assert last["collected_bytes"] == last["collected_total"] > 100_000


@pytest.mark.prove
def test_results_come_back_after_kill_all(ssh_server: SshServer, tmp_path: Path) -> None:
    """F9 pressed once ends the run and brings what is there."""
    (tmp_path / "work").mkdir()
    script = 'import sys, time\nopen("half", "w").write("half")\nprint("there")\ntime.sleep(1000)'
    text = cluster(ssh_server.host_toml("far", sys.executable))
    line = next(row for row in text.splitlines() if row.startswith("command"))
    text = text.replace(line, f"command = {json.dumps(list(python_task(script)))}")
    text = text.replace("table.csv", "half")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("worker:0", "there")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert (RunFolder.find(up.run_id).path / "collected/far/half").read_text() == "half"
    wait_until(lambda: not kept(ssh_server), "its folder on the host is removed")


def test_results_that_a_forced_kill_gives_up_are_named_and_stay(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """F9 pressed twice waits for nothing, and removes nothing that was to be brought back."""
    (tmp_path / "work").mkdir()
    script = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        'open("half", "w").write("half")\nprint("there")\ntime.sleep(1000)'
    )
    text = cluster(ssh_server.host_toml("far", sys.executable), more="grace = 600")
    line = next(row for row in text.splitlines() if row.startswith("command"))
    text = text.replace(line, f"command = {json.dumps(list(python_task(script)))}")
    text = text.replace("table.csv", "half")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("worker:0", "there")
        up.press_ctrl_c()
        up.wait_for(lambda e: e.get("state") == "killing", "killing")
        up.press_ctrl_c_again()
        assert up.wait() == 130, up.transcript()
    assert not (RunFolder.find(up.run_id).path / "collected").exists()
    missing = "results of far were not fetched: the run was killed at once; they stay"
    assert any(missing in e["note"] for e in up.of("note"))
    assert missing in up.said.partition("killed after")[2], "the report at the end says it"
    (left,) = (ssh_server.home / ".local/state/tfmux").rglob("half")
    assert left.read_text() == "half"


@pytest.mark.prove
def test_collecting_goes_on_after_a_cut(ssh_server: SshServer, tmp_path: Path) -> None:
    """The connection breaks while results flow; they are whole in the end."""
    ssh_server.relay.strike = 8 << 20, ssh_server.relay.cut_off
    with Up("up", str(on_server(ssh_server, tmp_path, size=20 << 20)), "--json") as up:
        assert up.wait() == 0, up.transcript()
    assert ssh_server.relay.struck
    there = ssh_server.home / "out" / up.run_id / "deep/big"
    here = RunFolder.find(up.run_id).path / "collected/far" / up.run_id / "deep/big"
    assert digest(here) == digest(there)


def test_no_room_here_is_told_and_the_host_keeps_its_folder(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Results that cannot be stored here are said to stay on the host, and they do; the run's
    own outcome is what it was, and its exit code is not 0."""
    (tmp_path / "home/.local/share/tfmux").mkdir(parents=True)
    end = tmp_path / "end"
    with Up("up", str(on_server(ssh_server, tmp_path, until=end)), "--json") as up:
        run = RunFolder.find(up.run_id).path
        (run / "collected").write_text("a file stands where the folder should be")
        end.touch()
        assert up.wait() == 1, up.transcript()
    notes = "\n".join(e["note"] for e in up.of("note"))
    missing = f"results of far were not fetched: {run / 'collected'}: File exists"
    assert f"{missing}; they stay on the host in" in notes
    assert missing in up.said.partition("success after")[2], "the report at the end says it"
    assert (next((ssh_server.home / ".local/state/tfmux").iterdir()) / "stage").is_dir()


DEEP = """
import os
base = os.getcwd()
for number in range(1200):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").write("deep down")
os.chdir(base)
"""


@pytest.mark.prove
def test_folders_nested_deeper_than_an_interpreter_recurses(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """They come whole, and the host's copy is removed with the workdir in which they are."""
    (tmp_path / "work").mkdir()
    text = cluster(ssh_server.host_toml("far", sys.executable))
    line = next(row for row in text.splitlines() if row.startswith("command"))
    text = text.replace(line, f"command = {json.dumps(list(python_task(DEEP)))}")
    text = text.replace('"{logdir}", "table.csv"', '"d"')
    try:
        with Up("up", str(write(tmp_path, text)), "--json") as up:
            assert up.wait() == 0, up.transcript()
        bottom = RunFolder.find(up.run_id).path / "collected/far" / ("d/" * 1200) / "bottom"
        assert bottom.read_text() == "deep down"
    finally:
        remove_tree(str(tmp_path / "home"))  # pytest's own way recurses, too
    wait_until(lambda: not kept(ssh_server), "its folder on the host is removed")


@pytest.mark.parametrize("number", [signal.SIGINT, soak(signal.SIGTERM)])
def test_one_signal_after_the_end_gives_the_results_up(
    ssh_server: SshServer, tmp_path: Path, number: signal.Signals
) -> None:
    """The network is silent while they flow: they stay on the host, and that is said."""
    (tmp_path / "work").mkdir()
    end = tmp_path / "end"
    far = ssh_server.host_toml("far", sys.executable)
    text = cluster(far, 20 << 20, more="lease = 60", until=end)
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        ready(up, "worker:0")
        ssh_server.relay.strike = 8 << 20, ssh_server.relay.pull
        end.touch()
        up.wait_for(lambda e: e.get("collected_bytes", 0) > 1 << 20, "progress")
        up.process.send_signal(number)
        assert up.wait() == 1, up.transcript()
    ssh_server.heal()
    notes = "\n".join(e["note"] for e in up.of("note"))
    assert "results of far were not fetched: stopped before they were complete" in notes
    assert "results and hooks that were still under way are given up" in notes


def test_results_of_this_machine_are_named_and_not_copied(tmp_path: Path) -> None:
    """The path stands in a note; nothing is copied."""
    text = cluster("").replace("far:", "localhost:").replace("/nowhere/at-all", "more")
    (tmp_path / "work").mkdir()
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 0, up.transcript()
    notes = "\n".join(e["note"] for e in up.of("note"))
    assert str(tmp_path / "work/table.csv") in notes
    assert not (RunFolder.find(up.run_id).path / "collected").exists()


def blocks(program: Running) -> bytes:
    """The stream of a program that collects, asked for block by block to its end."""
    stream = b""
    while True:
        program.write(MORE)
        (length,) = LENGTH.unpack(program.read(LENGTH.size))
        if not length:
            program.write(ENOUGH)
            return stream
        stream += program.read(length)


def cut(path: Path) -> None:
    """Leaves a file's beginning."""
    path.write_bytes(b"short")


def replace(path: Path) -> None:
    """Puts a pipe in its place, which nobody writes to."""
    path.unlink()
    os.mkfifo(path)


def save_anew(path: Path) -> None:
    """Puts a larger file in its place, as a program does that saves without a moment of half a
    file."""
    new = path.with_name("new")
    new.write_bytes(b"n" * 12 * PIECE)
    new.replace(path)


def link(path: Path) -> None:
    """Puts a link to another file in its place."""
    path.unlink()
    path.symlink_to("/etc/passwd")


SPOILED: dict[str, tuple[Callable[[Path], None], str]] = {
    "shrinks": (cut, "became shorter while it was read"),
    "goes": (Path.unlink, "No such file or directory"),
    "pipe": (replace, "is no longer a file"),
    "link": (link, "Too many levels"),
    "saved anew": (save_anew, "was replaced by another file"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_file_that_cannot_be_read_to_its_end_is_left_out_and_named(
    tmp_path: Path, how: str
) -> None:
    """Given three files, when something happens to the second one after it was announced, then it
    does not come, neither in part nor as zeros, nothing is sent in its place, and the others
    are whole."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    for name in ("a", "b", "c"):
        (source / name).write_bytes(name.encode() * 10 * PIECE)
    spoil, why = SPOILED[how]
    with Running(lambda pipe: collect(pipe, [("x", str(source))])) as program:
        announced = program.receive()
        spoil(source / "b")
        stream = blocks(program)
        problems = program.receive()["problems"]
    assert len(stream) < announced["size"] - 9 * PIECE
    unpacker = Unpacker(target, announced["size"], announced["files"])
    unpacker.feed(stream)
    unpacker.finish()
    unpacker.close()
    assert unpacker.broken_off == ["x/b"]
    assert {one.name for one in (target / "x").iterdir()} == {"a", "c"}
    assert (target / "x/c").read_bytes() == b"c" * 10 * PIECE
    assert len(problems) == 1 and problems[0].startswith(str(source / "b")) and why in problems[0]


@pytest.mark.parametrize("end", ["goes", "dies"])
def test_collecting_waits_until_the_agent_has_moved_all(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Given an agent that moves results out of the workdir, when they are collected, then nothing
    is announced before it has gone or died, and then everything is, wherever it lies by then."""
    folders = Folders("run-1", "far", None, dict(os.environ))
    folders.make()
    work, kept = Path(folders.stage, "work"), Path(folders.results)
    work.mkdir(parents=True)
    kept.mkdir()
    for name in ("moved", "left"):
        (work / name).write_text(name)
    watch = lock_file(folders.watch)
    Path(folders.leaving).touch()
    waits = threading.Event()
    sleep = time.sleep

    def wait(seconds: float) -> None:
        waits.set()
        sleep(seconds)

    monkeypatch.setattr("launcher.on_host.transfer.time.sleep", wait)
    asked: dict[str, Any] = {"patterns": [], "have": []}
    with Running(lambda pipe: collect_results(pipe, folders, asked)) as program:
        assert waits.wait(60)
        (work / "moved").rename(kept / "moved")
        (kept / "moved later").write_text("x")
        if end == "goes":
            (work / "left").rename(kept / "left")
            folders.remove(proven=True)
        os.close(watch)
        announced = program.receive()
        assert announced["files"] == 3
        found = {head["name"] for head in heads(blocks(program))}
        assert found == {"left", "moved", "moved later"}
        assert program.receive()["problems"] == []


def test_a_file_that_moves_after_it_was_announced_comes(tmp_path: Path) -> None:
    """Given results of a living run, when it ends between their announcement and their bytes, then
    they come from where the agent has moved them."""
    folders = Folders("run-1", "far", None, dict(os.environ))
    folders.make()
    work, kept = Path(folders.stage, "work"), Path(folders.results)
    (work / "deep").mkdir(parents=True)
    (work / "deep/model.pt").write_text("model")
    asked = {"patterns": ["*.pt"], "have": []}
    with Running(lambda pipe: collect_results(pipe, folders, asked)) as program:
        assert program.receive()["files"] == 1
        assert keep_results(folders.stage, folders.results)
        assert b"model" in blocks(program)
        assert program.receive()["problems"] == []
    assert (kept / "deep/model.pt").exists()


def test_a_file_that_is_written_to_while_it_is_read_is_left_out(tmp_path: Path) -> None:
    """Given a log that grows and an array that a program writes in place, when they are collected
    meanwhile, then the beginning of the log comes; of the array nothing does, and it is named."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("array", "log"):
        (source / name).write_bytes(b"0" * 10 * PIECE)
    with Running(lambda pipe: collect(pipe, [("x", str(source))])) as program:
        announced = program.receive()
        program.write(MORE)
        (length,) = LENGTH.unpack(program.read(LENGTH.size))
        stream = program.read(length)  # the first piece of the array
        with (source / "array").open("r+b") as array:
            array.write(b"1" * 10 * PIECE)
        with (source / "log").open("ab") as log:
            log.write(b"1" * PIECE)
        stream += blocks(program)
        problems = program.receive()["problems"]
    (tmp_path / "target").mkdir()
    unpacker = Unpacker(tmp_path / "target", announced["size"], announced["files"])
    unpacker.feed(stream)
    unpacker.finish()
    unpacker.close()
    assert unpacker.broken_off == ["x/array"]
    assert problems == [f"{source / 'array'}: was written to while it was read"]
    assert (tmp_path / "target/x/log").read_bytes() == b"0" * 10 * PIECE


def test_files_that_move_or_go_while_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given results of a living run, when it ends after its files have been listed and before each
    is announced, then all come from where the agent has moved them; of a folder that a task has
    removed meanwhile nothing is said."""
    folders = Folders("run-1", "far", None, dict(os.environ))
    folders.make()
    work = Path(folders.stage, "work")
    for name in ("deep/model.pt", "deep/er/model.pt", "part/model.pt"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("model")
    scan = os.scandir

    def lose(path: str) -> Any:
        if isinstance(path, str) and path.endswith("/part"):
            remove_tree(path)
        return scan(path)

    kept_files = tree.kept_files

    def move(kept: str, problems: list[str]) -> list[WorkdirFile]:
        found = list(kept_files(kept, problems))
        assert keep_results(folders.stage, folders.results)
        return found

    monkeypatch.setattr("launcher.agent.tree.os.scandir", lose)
    monkeypatch.setattr(tree, "kept_files", move)
    asked: dict[str, Any] = {"patterns": [], "have": []}
    with Running(lambda pipe: collect_results(pipe, folders, asked)) as program:
        assert program.receive()["files"] == 2
        assert {head["name"] for head in heads(blocks(program))} == {
            "deep/model.pt",
            "deep/er/model.pt",
        }
        assert program.receive()["problems"] == []


def heads(stream: bytes) -> list[dict[str, Any]]:
    """The members of a stream of small files, without folders."""
    found = [
        json.loads(stream[m.start() : stream.index(b"}", m.start()) + 1]) for m in HEAD(stream)
    ]
    return [head for head in found if head["kind"] == "file"]


def test_paths_with_one_name_get_numbers() -> None:
    """No result overwrites another."""
    assert named(["/a/out", "/b/out/", "/c/x", "/d/out"]) == [
        ("out", "/a/out"),
        ("out-2", "/b/out/"),
        ("x", "/c/x"),
        ("out-3", "/d/out"),
    ]
