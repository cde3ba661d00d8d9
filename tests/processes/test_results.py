"""What tasks have made or changed in the workdir of a host: it stays there, and is named."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
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
