"""What tasks have made or changed: it stays on the host, is named, and is brought back."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
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
from tests.support import command
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
from tests.support.scenario import ready
from tests.support.short_programs import Running
from tests.testbed.inprocess import SshServer

WORK = """
import os, pathlib
here = pathlib.Path(".")
print("FOUND", *sorted(str(path) for path in here.rglob("*")))
(here / "model.ckpt").write_text("model")
(here / "staged.txt").write_text("changed")
(here / "deep/er").mkdir(parents=True)
(here / "deep/er/2.ckpt").write_text("2")
os.chmod("tool.py", 0o755)
for name in ("__pycache__/tool.pyc", "a.tmp", "keep.tmp", "build/x", "own/.gitignore", "own/x",
             "env/pyvenv.cfg", "env/bin/python", "sub/secret", "sub/fine"):
    path = here / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("*" if path.name == ".gitignore" else "by-product")
os.symlink("model.ckpt", "latest")
os.symlink("/etc", "outside")
os.mkfifo("pipe")
(here / "empty").mkdir()
"""
LEFT = {
    "model.ckpt",
    "staged.txt",
    "deep/er/2.ckpt",
    "keep.tmp",
    "a.tmp",
    "build/x",
    "own/.gitignore",
    "own/x",
    "sub/fine",
    "sub/secret",
    "latest",
    "outside",
}
"""Results of that script, whatever git ignores; not its bytecode and its virtual environment."""


def workdir(tmp_path: Path) -> Path:
    """A workdir with rules of what is ignored, in the file and in folders."""
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    (root / "staged.txt").write_text("staged")
    (root / "tool.py").write_text("pass")
    (root / ".gitignore").write_text("*.tmp\n!keep.tmp\n")
    (root / "sub/.gitignore").write_text("secret\n")
    return root


def cluster(server: SshServer, script: str = WORK, run: str = "", tasks: int = 1) -> str:
    """Workers on the host `far` that run a script in a copy of `work`."""
    return cluster_text(
        {"worker": ["far"] * tasks},
        "results",
        server.host_toml("far", sys.executable),
        command=python_task(script),
        workdir="work",
        start={"ready": {"worker": "started"}},
        more=run,
    )


def state(server: SshServer, run_id: str) -> Path:
    """The folder of a run on the host."""
    return server.home / f".local/state/tfmux/{run_id}.far"


def files(folder: Path) -> set[str]:
    """What is below a folder but for folders."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def digest(path: Path) -> str:
    """A file's hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def kept(up: Up) -> list[dict[str, Any]]:
    """The results that stay on hosts, as the last event of the run has them."""
    found: list[dict[str, Any]] = up.of("run")[-1].get("results_kept", [])
    return found


def nothing_staged(state_home: Path) -> bool:
    """Whether no workdir is left of any run."""
    return not list(state_home.glob("*/stage"))


def wait_gone(folder: Path) -> None:
    """Waits until nothing but results is left of a run on the host: its agent has gone."""
    wait_until(lambda: {path.name for path in folder.iterdir()} == {"results"}, "its agent goes")


def test_what_prepare_makes_is_no_result(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given `prepare` lines that build in the workdir and change a file of it, and a task that
    changes one of what they have made, when it ends, then only that one stays."""
    workdir(tmp_path)
    lines = [
        "mkdir -p out",
        "echo built > out/lib.so",
        "echo 1 > out/count",
        "echo x >> staged.txt",
    ]
    script = "open('out/count', 'a').write('2'); open('model.ckpt', 'w').write('model')"
    text = cluster(ssh_server, script, f"prepare = {json.dumps(lines)}")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 0, up.transcript()
    (results,) = kept(up)
    assert files(Path(results["folder"])) == {"out/count", "model.ckpt"}


def test_what_tasks_leave_stays_on_the_host_and_is_named(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given a task that makes and changes files, some of them ignored or excluded, when it ends,
    then all but by-products stay on the host, a line says how many and where and what does not
    stay, and the next launch sends nothing and finds the workdir as it is here."""
    workdir(tmp_path)
    file = write(tmp_path, cluster(ssh_server, run='exclude = ["build/"]'))
    found = []
    for _ in range(2):
        with Up("up", str(file), "--json") as up:
            assert up.wait() == 0, up.transcript()
        (one,) = kept(up)
        results = state(ssh_server, up.run_id) / "results"
        assert (one["host"], one["files"], one["folder"]) == ("far", 10, str(results))
        assert one["bytes"] == 74
        line = (
            f"far: 10 new files, 74 B, kept in {results}; `tfmux collect {up.run_id}` fetches "
            "them; not kept: 3 by-products, 30 B (__pycache__, env)"
        )
        assert line in up.said.splitlines()
        wait_gone(results.parent)
        assert files(results) == LEFT
        assert (results / "staged.txt").read_text() == "changed"
        found.append(next(e["text"] for e in up.of("log") if e["text"].startswith("FOUND")))
        sent = [e for e in up.of("host") if "staged_total" in e]
    assert found[0] == found[1] and not sent


def test_nothing_is_said_and_nothing_stays_where_tasks_leave_nothing(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Neither of a task that only reads, nor of one whose new files were collected."""
    workdir(tmp_path)
    everything = 'collect = ["*.*", "deep", "sub", "latest", "build", "own"]'
    for script, run in (("", ""), (WORK, everything)):
        text = cluster(ssh_server, script, run)
        with Up("up", str(write(tmp_path, text)), "--json") as up:
            assert up.wait() == 0, up.transcript()
        assert kept(up)[0]["files"] == 0 and "new file" not in up.said
        state_home = state(ssh_server, up.run_id).parent
        wait_until(partial(nothing_staged, state_home), "the agent goes")
    here = RunFolder.find(up.run_id).path / "collected/far"
    assert files(here) >= {"model.ckpt", "staged.txt", "deep/er/2.ckpt", "keep.tmp", "sub/fine"}


BIG = """
import os, sys, time
os.makedirs("out", exist_ok=True)
open("out/big", "wb").write(os.urandom(int(sys.argv[1])))
open("out/small.ckpt", "w").write("small")
open("top.ckpt", "w").write("top")
print("saved", flush=True)
while len(sys.argv) > 2:
    time.sleep(1)
"""


def writing(server: SshServer, size: int, *, lives: bool = False, run: str = "") -> str:
    """A worker that writes a large file and two small ones."""
    text = cluster(server, BIG, run)
    line = next(row for row in text.splitlines() if row.startswith("command"))
    words = [*python_task(BIG), str(size), *(["lives"] if lives else [])]
    return text.replace(line, f"command = {json.dumps(words)}")


def launched(server: SshServer, tmp_path: Path, text: str) -> str:
    """Runs to a good end; returns the id."""
    (tmp_path / "work").mkdir(exist_ok=True)
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 0, up.transcript()
    wait_gone(state(server, up.run_id))
    return up.run_id


def test_results_are_brought_later_whole_in_part_and_once(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given results on a host, when they are collected by a pattern, and then all of them, then
    each comes once; a pattern that nothing matches is named, exit 1."""
    run_id = launched(ssh_server, tmp_path, writing(ssh_server, 100_000))
    there, here = (
        state(ssh_server, run_id) / "results",
        RunFolder.find(run_id).path / "collected/far",
    )
    done = command.run("collect", run_id, "out/*.ckpt")
    assert (done.returncode, files(here)) == (0, {"out/small.ckpt"}), done.stderr
    done = command.run("collect", run_id, "*.ckpt", "nothing*")
    assert (done.returncode, files(here)) == (1, {"out/small.ckpt", "top.ckpt"})
    assert f"no result of {run_id} matches nothing*" in done.stderr
    assert "far: 1 file (" in done.stdout and ", 1 fetched before" in done.stdout
    done = command.run("collect", run_id)
    assert (done.returncode, files(here)) == (0, files(there)), done.stderr
    assert digest(here / "out/big") == digest(there / "out/big")
    assert f"collected in {here}, 2 fetched before" in done.stdout
    (here / "top.ckpt").write_text("mine, by mistake")
    (there / "out/small.ckpt").write_text("newer")
    done = command.run("collect", run_id)
    assert done.returncode == 0 and ", 1 fetched before" in done.stdout
    assert (here / "top.ckpt").read_text() == "top"
    assert (here / "out/small.ckpt").read_text() == "newer"
    done = command.run("collect", run_id)
    assert done.stdout == f"far: 3 files fetched before, in {here}\n"
    assert not here.with_name("far.partial").exists()
    for folder in (here, there):
        shutil.rmtree(folder)
    done = command.run("collect", run_id)
    assert done.returncode == 1 and "its results have been removed" in done.stderr


def test_collecting_goes_on_after_a_cut_and_after_its_end(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given a large result, when the connection breaks while it comes, then the command goes on
    by itself where it was; and when the command is ended, the next one goes on where that was."""
    run_id = launched(ssh_server, tmp_path, writing(ssh_server, 24 << 20))
    there, here = (
        state(ssh_server, run_id) / "results",
        RunFolder.find(run_id).path / "collected/far",
    )
    part = here.with_name("far.partial") / "out/big"
    ssh_server.relay.strike = 8 << 20, ssh_server.relay.pull
    with Up("collect", run_id) as collecting:
        wait_until(lambda: part.exists() and part.stat().st_size > 4 << 20, "half of it is here")
        collecting.process.kill()
    ssh_server.heal()
    begun = part.stat()
    ssh_server.relay.strike = 4 << 20, ssh_server.relay.cut_off
    done = command.run("collect", run_id)
    assert done.returncode == 0, done.stderr
    assert ssh_server.relay.struck
    assert digest(here / "out/big") == digest(there / "out/big")
    assert (here / "out/big").stat().st_ino == begun.st_ino
    assert files(here) == files(there)


def test_results_of_a_run_whose_launcher_died_are_found(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given a run whose launcher is killed and cannot come back, when its lease has ended it, then
    its results are brought, and `tfmux kill` after it names them and leaves them there."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/staged").write_text("staged")
    file = write(tmp_path, writing(ssh_server, 1000, lives=True, run="lease = 2\ngrace = 1"))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "saved")
        assert command.run("collect", up.run_id, "top.ckpt").returncode == 0, "while it runs"
        ssh_server.pull()
        up.kill_launcher()
        up.process.kill()
        wait_until((state(ssh_server, up.run_id) / "exit").exists, "the lease has ended it")
    ssh_server.heal()
    here = RunFolder.find(up.run_id).path / "collected/far"
    done = command.run("collect", up.run_id)
    assert done.returncode == 0, done.stderr
    assert files(here) == {"out/big", "out/small.ckpt", "top.ckpt"}
    done = command.run("kill", up.run_id)
    assert done.returncode == 0 and "far: 3 new files" in done.stdout, done.stdout + done.stderr
    wait_gone(state(ssh_server, up.run_id))
    assert files(state(ssh_server, up.run_id) / "results") == files(here)
    assert " fetched before, in " in command.run("collect", up.run_id).stdout


HOSTILE = """
import os, shutil, sys
stage, (what, elsewhere) = os.path.dirname(os.getcwd()), sys.argv[1:]
if what == "index":
    open(stage + ".index", "w").write('{"kept": "", "made": {"/": []}, "more": 7}')
elif what == "workdir":
    shutil.rmtree("../work")
    os.symlink(elsewhere, "../work")
    sys.exit()
elif what == "links":
    os.symlink(elsewhere, "folder")
    os.symlink(elsewhere + "/mine", "file")
elif what == "closed":
    os.mkdir("closed")
    open("closed/x", "w").write("x")
    os.chmod("closed", 0)
elif what == "results":
    os.symlink(elsewhere, os.path.join(os.path.dirname(stage), "results"))
elif what == "below results":
    os.makedirs("out")
    os.mkdir(os.path.join(os.path.dirname(stage), "results"))
    os.symlink(elsewhere, os.path.join(os.path.dirname(stage), "results/out"))
    open("out/mine", "w").write("out")
open("left", "w").write("left")
"""
PLANTED = {
    "index": {"left", "staged"},
    "workdir": set(),
    "links": {"left"},
    "closed": {"left", "closed/x"},
    "results": {"left"},
    "below results": {"left", "out/mine"},
}


@variants("what", PLANTED, test=1)
def test_what_a_task_plants_leads_nowhere(ssh_server: SshServer, tmp_path: Path, what: str) -> None:
    """A damaged index, links in the place of the workdir, in it and where results will be, a closed
    folder: the run ends as it should, nothing is lost, and nothing elsewhere is brought, removed
    or changed."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/staged").write_text("staged")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/mine").write_text("mine")
    text = cluster(ssh_server, HOSTILE)
    line = next(row for row in text.splitlines() if row.startswith("command"))
    words = [*python_task(HOSTILE), what, str(tmp_path / "elsewhere")]
    with Up(
        "up",
        str(write(tmp_path, text.replace(line, f"command = {json.dumps(words)}"))),
        "--json",
    ) as up:
        assert up.wait() == 0, up.transcript()
    folder = state(ssh_server, up.run_id)
    wait_until(lambda: not (folder / "agent.log").exists(), "the agent goes")
    done = command.run("collect", up.run_id)
    assert done.returncode == 0, done.stderr
    here = RunFolder.find(up.run_id).path / "collected/far"
    assert (files(here) if here.exists() else set()) == PLANTED[what]
    assert not any(path.is_symlink() for path in here.rglob("*"))
    assert files(tmp_path / "elsewhere") == {"mine"}
    assert (tmp_path / "elsewhere/mine").read_text() == "mine"


def test_tasks_that_share_a_host_and_start_again_share_their_files(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given two ranks on one host of which one fails once, when all start again, then the second
    attempt finds what the first has saved, and the host is named once, with all of it."""
    (tmp_path / "work").mkdir()
    script = (
        "import os, sys\\nrank, attempt = os.environ['PMI_RANK'], os.environ['TFMUX_ATTEMPT']\\n"
        "print('BEFORE', attempt, *sorted(os.listdir('.')), flush=True)\\n"
        "open(f'{rank}.{attempt}', 'w').write('x')\\n"
        "sys.exit(1 if attempt == '1' and rank == '1' else 0)"
    ).replace("\\n", "\n")
    run = 'framework = "mpi-like"\non_failure = "restart-all"\nsuccess = "all"'
    with Up("up", str(write(tmp_path, cluster(ssh_server, script, run, 2))), "--json") as up:
        assert up.wait() == 0, up.transcript()
    (one,) = kept(up)
    wait_gone(state(ssh_server, up.run_id))
    left = files(state(ssh_server, up.run_id) / "results")
    assert left >= {"1.1", "0.2", "1.2"} and one["files"] == len(left)
    second = [e["text"] for e in up.of("log") if e["text"].startswith("BEFORE 2")]
    assert len(second) == 2 and all(" 1.1" in text for text in second)


def test_a_forced_kill_loses_no_results(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a task that ignores TERM, when kill-all is pressed twice, then what it has saved stays
    on the host and can be brought."""
    (tmp_path / "work").mkdir()
    script = "import signal, time\nsignal.signal(15, 1)\nopen('half', 'w').write('half')\n"
    script += "print('there', flush=True)\ntime.sleep(1000)"
    with Up("up", str(write(tmp_path, cluster(ssh_server, script, "grace = 600"))), "--json") as up:
        up.log("worker:0", "there")
        up.press_ctrl_c()
        up.wait_for(lambda e: e.get("state") == "killing", "killing")
        up.press_ctrl_c_again()
        assert up.wait() == 130, up.transcript()
    wait_gone(state(ssh_server, up.run_id))
    assert f"tfmux collect {up.run_id}" in up.said
    assert command.run("collect", up.run_id).returncode == 0
    assert (RunFolder.find(up.run_id).path / "collected/far/half").read_text() == "half"


def test_run_collects_by_a_pattern(ssh_server: SshServer, tmp_path: Path) -> None:
    """`--collect` is `collect` of the file that the options make, may be given again, and has no
    placeholders."""
    saved = tmp_path / "made.toml"
    done = command.run(
        "run", "--collect", "*.ckpt", "--collect", "out/{a}", "--workdir", "", "--headless",
        "--save", str(saved), "--", "true",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 'collect = ["*.ckpt", "out/{{a}}"]' in saved.read_text()


HEAD = re.compile(rb'{"name"').finditer


def collecting_kept(server: SshServer) -> list[Path]:
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


def collecting_cluster(
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
    text = collecting_cluster(server.host_toml("far", sys.executable), size, status, until=until)
    return write(tmp_path, text)


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
    wait_until(lambda: not collecting_kept(ssh_server), "its folder on the host is removed")
    last = [e for e in up.of("host") if "collected_total" in e][-1]
    assert last["collected_bytes"] == last["collected_total"] > 100_000


@pytest.mark.prove
def test_results_come_back_after_kill_all(ssh_server: SshServer, tmp_path: Path) -> None:
    """F9 pressed once ends the run and brings what is there."""
    (tmp_path / "work").mkdir()
    script = 'import sys, time\nopen("half", "w").write("half")\nprint("there")\ntime.sleep(1000)'
    text = collecting_cluster(ssh_server.host_toml("far", sys.executable))
    line = next(row for row in text.splitlines() if row.startswith("command"))
    text = text.replace(line, f"command = {json.dumps(list(python_task(script)))}")
    text = text.replace("table.csv", "half")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("worker:0", "there")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert (RunFolder.find(up.run_id).path / "collected/far/half").read_text() == "half"
    wait_until(lambda: not collecting_kept(ssh_server), "its folder on the host is removed")


def test_results_that_a_forced_kill_gives_up_are_named_and_stay(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """F9 pressed twice waits for nothing, and removes nothing that was to be brought back."""
    (tmp_path / "work").mkdir()
    script = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        'open("half", "w").write("half")\nprint("there")\ntime.sleep(1000)'
    )
    text = collecting_cluster(ssh_server.host_toml("far", sys.executable), more="grace = 600")
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
    text = collecting_cluster(ssh_server.host_toml("far", sys.executable))
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
    wait_until(lambda: not collecting_kept(ssh_server), "its folder on the host is removed")


@pytest.mark.parametrize("number", [signal.SIGINT, soak(signal.SIGTERM)])
def test_one_signal_after_the_end_gives_the_results_up(
    ssh_server: SshServer, tmp_path: Path, number: signal.Signals
) -> None:
    """The network is silent while they flow: they stay on the host, and that is said."""
    (tmp_path / "work").mkdir()
    end = tmp_path / "end"
    far = ssh_server.host_toml("far", sys.executable)
    text = collecting_cluster(far, 20 << 20, more="lease = 60", until=end)
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
    text = collecting_cluster("").replace("far:", "localhost:").replace("/nowhere/at-all", "more")
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
