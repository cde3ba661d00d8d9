"""Files on their way to a host: what goes, on which `check`, `plan` and a launch agree, what is
kept there, and what goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.client.run_client import RunClient
from launcher.ids import TaskId
from launcher.store.runs import RunFolder
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, start, write
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import notes
from tests.testbed.faults import allow_one_session, full_home
from tests.testbed.inprocess import SshServer
from tests.testbed.namespaces import Testbed

LISTING = """
import hashlib, json, os
found = {}
for base, folders, names in os.walk("."):
    for name in [*names, *(f for f in folders if os.path.islink(os.path.join(base, f)))]:
        path = os.path.join(base, name)
        if os.path.islink(path):
            found[path] = "-> " + os.readlink(path)
        else:
            run = "x" if os.access(path, os.X_OK) else "-"
            found[path] = run + hashlib.sha256(open(path, "rb").read()).hexdigest()
print("FOUND", json.dumps(found))
"""


def cluster(host: str, workdir: str, script: str = LISTING, run: str = "") -> str:
    """A cluster of one worker on the host `far`, that runs a script in its workdir."""
    return cluster_text(
        {"worker": "far"},
        "staged",
        host,
        command=python_task(script),
        workdir=workdir,
        start={"ready": {"worker": "started"}},
        more=run,
    )


def on_server(server: SshServer, workdir: str, script: str = LISTING, run: str = "") -> str:
    """A cluster on the in-process SSH server."""
    return cluster(server.host_toml("far", sys.executable), workdir, script, run)


def launch(file: Path) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Runs to a good end: what the task found in its workdir, and the progress of the host."""
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
    found = [e["text"] for e in up.of("log") if e["text"].startswith("FOUND ")]
    listing = json.loads(found[0].removeprefix("FOUND ")) if found else {}
    return listing, [e for e in up.of("host") if "staged_total" in e]


def code(data: bytes, run: str = "-") -> str:
    """A file as the listing shows it."""
    return run + hashlib.sha256(data).hexdigest()


def test_the_tree_arrives_as_it_is(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a workdir with executables, links, odd names and ignored or excluded files, when a run
    starts, then its task finds the workdir as it is, but nothing of what is ignored or excluded."""
    root = tmp_path / "work"
    for name in ("src", "out", ".git", "src/__pycache__"):
        (root / name).mkdir(parents=True)
    (root / "train.py").write_bytes(b"print('hi')\n")
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "empty").write_bytes(b"")
    (root / "src/öäü space.py").write_bytes(b"x = 1\n")
    (root / "src/link.py").symlink_to("../train.py")
    (root / "latest").symlink_to("src")
    (root / ".gitignore").write_bytes(b"out/\n*.tmp\n")
    (root / "src/.gitignore").write_bytes(b"local.py\n")
    for name in ("out/big", ".git/config", "src/a.tmp", "src/local.py", "m.ckpt"):
        (root / name).write_bytes(b"no")
    (root / "src/__pycache__/a.pyc").write_bytes(b"no")
    file = write(tmp_path, on_server(ssh_server, "work", run='exclude = ["*.ckpt"]'))
    found, _ = launch(file)
    assert found == {
        "./train.py": code(b"print('hi')\n"),
        "./run.sh": code(b"#!/bin/sh\n", "x"),
        "./empty": code(b""),
        "./src/öäü space.py": code(b"x = 1\n"),
        "./src/link.py": "-> ../train.py",
        "./latest": "-> src",
        "./.gitignore": code(b"out/\n*.tmp\n"),
        "./src/.gitignore": code(b"local.py\n"),
    }


def test_a_second_launch_sends_what_changed_here(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a task that changes, removes, replaces and adds files, and locks a folder; the first
    launch sends everything, an unchanged one nothing, the next the changed file alone; a removed
    file is gone, a new one there, and nothing of what the task did is."""
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    for name in (*map(str, range(50)), "a", "b", "c", "sub/d"):
        (root / name).write_text(f"this is {name}")
    os.utime(root / "a", (1e9, 1e9))
    script = LISTING + (
        'open("a", "r+").write("THIS"); os.utime("a", (1e9, 1e9)); os.unlink("b")\n'
        'os.unlink("c"); os.symlink("a", "c"); os.makedirs("more/deep"); open("more/x", "w")\n'
        'open("sub/y", "w"); os.chmod("sub", 0)\n'
    )
    file = write(tmp_path, on_server(ssh_server, "work", script))
    first, progress = launch(file)
    assert len(first) == 54
    assert progress[-1]["staged_bytes"] == progress[-1]["staged_total"]
    assert progress[-1]["staged_files"] == progress[-1]["staged_total_files"] > 50
    again, progress = launch(file)
    assert again == first
    assert progress == []
    (root / "7").write_text("changed")
    (root / "8").unlink()
    (root / "new").write_text("new")
    changed, progress = launch(file)
    assert progress[-1]["staged_total_files"] == 2
    assert progress[-1]["staged_total"] == len("changed") + len("new")
    same = first.keys() - {"./7", "./8"}
    assert changed == {name: first[name] for name in same} | {
        "./7": code(b"changed"),
        "./new": code(b"new"),
    }


def test_links_that_lead_nowhere_on_a_host_are_left_out_and_named(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given links to `/etc/passwd`, to nothing, and by whole paths into the workdir, when a run is
    launched, then it goes on; the task finds those that lead inside, by relative paths, and a note
    names the others."""
    root = tmp_path / "work"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("x")
    for name, target in {
        "secret": "/etc/passwd",
        "nothing": "gone",
        "whole": f"{root}/a/b/file",
        "a/up": f"{root}/a",
        "a/round": "../../work/a/b",
    }.items():
        (root / name).symlink_to(target)
    with Up("up", str(write(tmp_path, on_server(ssh_server, "work"))), "--json") as up:
        assert up.wait() == 0, up.transcript()
    text = next(e["text"] for e in up.of("log") if e["text"].startswith("FOUND "))
    assert json.loads(text.removeprefix("FOUND ")) == {
        "./a/b/file": code(b"x"),
        "./whole": "-> a/b/file",
        "./a/up": "-> .",
        "./a/round": "-> b",
    }
    (note,) = [e["note"] for e in up.of("note")]
    assert "secret is a link to /etc/passwd" in note and "nothing is a link to gone" in note
    assert "whole" not in note


def test_staging_goes_on_after_a_cut(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a workdir of 48 MiB in many files, when the connection breaks while they are sent, then
    the files that arrived whole are not sent again, and the task finds every byte."""
    root = tmp_path / "work"
    root.mkdir()
    for number in range(96):
        (root / f"{number}").write_bytes(os.urandom(1 << 18))
    file = write(tmp_path, on_server(ssh_server, "work"))
    ssh_server.relay.strike = 10 << 20, ssh_server.relay.cut_off
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
    states = [e["state"] for e in up.of("host")]
    assert "lost" in states, up.transcript()
    back = up.of("host")[states.index("up", states.index("lost")) + 1 :]
    everything = up.wait_for(lambda e: "staged_total" in e, "progress")["staged_total"]
    assert all(e.get("staged_total", 0) < everything for e in back), up.transcript()
    text = next(e["text"] for e in up.of("log"))
    found = json.loads(text.removeprefix("FOUND "))
    assert found == {f"./{p.name}": code(p.read_bytes()) for p in root.iterdir()}


@pytest.mark.prove
def test_a_large_file_goes_again_after_a_cut(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given one file of 64 MiB, when the connection breaks in its middle, then it is sent again
    from its beginning and is whole, and no part of the first try stays on the host."""
    (tmp_path / "work").mkdir()
    data = os.urandom(24 << 20)
    (tmp_path / "work/big").write_bytes(data)
    file = write(tmp_path, on_server(ssh_server, "work"))
    ssh_server.relay.strike = 15 << 20, ssh_server.relay.cut_off
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
    states = [e["state"] for e in up.of("host")]
    assert "lost" in states, up.transcript()
    back = up.of("host")[states.index("up", states.index("lost")) + 1 :]
    rest = [e["staged_total"] for e in back if "staged_total" in e]
    assert rest and max(rest) >= 24 << 20, up.transcript()
    assert not list((ssh_server.home / ".cache/tfmux").glob("??/*.*"))
    found = json.loads(next(e["text"] for e in up.of("log")).removeprefix("FOUND "))
    assert found == {"./big": code(data)}


def test_data_comes_whole_and_has_a_place_in_the_workdir(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given data directories in the workdir, linked into it, elsewhere and of a job, when a task
    runs, then the first two have their relative path although they are ignored, and the others
    their own name."""
    root = tmp_path / "work"
    (root / "data/digits").mkdir(parents=True)
    (tmp_path / "mnist/train").mkdir(parents=True)
    (tmp_path / "more").mkdir()
    (root / ".gitignore").write_text("data/\n")
    (root / "data/other").write_text("ignored")
    (root / "data/digits/a.pyc").write_text("a")
    (tmp_path / "mnist/train/.gitignore").write_text("*")
    (tmp_path / "mnist/train/b.ckpt").write_text("b")
    (tmp_path / "more/c").write_text("c")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/d").write_text("d")
    (root / "linked").symlink_to("../linked")
    run = f'exclude = ["*.ckpt"]\ndata = ["work/data/digits", "work/linked", "{tmp_path}/mnist"]'
    text = on_server(ssh_server, "work", run=run)
    text = text.replace("[run]", 'data = ["more"]\n[run]', 1)
    found, _ = launch(write(tmp_path, text))
    assert set(found) == {
        "./.gitignore",
        "./data/digits/a.pyc",
        "./linked/d",
        "./mnist/train/.gitignore",
        "./mnist/train/b.ckpt",
        "./more/c",
    }


@pytest.mark.prove
def test_data_without_a_workdir(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given `data` and `workdir = ""`, when a run starts, then nothing but the data is copied, and
    the task starts where the data is."""
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist/a").write_text("a")
    (tmp_path / "unwanted").write_text("x")
    found, _ = launch(write(tmp_path, on_server(ssh_server, "", run='data = ["mnist"]')))
    assert found == {"./mnist/a": code(b"a")}


def test_a_restart_with_changed_files_says_that_the_host_has_the_old_ones(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given a task on a host, when files of its workdir are changed here and it is restarted, then
    it runs the files of the launch, and a note names those that were written since, programs first,
    but none that is not copied; without changes nothing is said."""
    root = tmp_path / "work"
    root.mkdir()
    for name in ("train.py", "data.txt", "notes.py", ".gitignore"):
        (root / name).write_text("*.tmp\nold\n")
        os.utime(root / name, (1, 1))
    script = (
        "import os, time\nattempt = os.environ['TFMUX_TASK'].rstrip(';').split('/')[-1]\n"
        "print(attempt, 'has', open('train.py').read().split()[-1]); time.sleep(3000)"
    )
    with Up("up", str(write(tmp_path, on_server(ssh_server, "work", script))), "--json") as up:
        up.log("worker:0", "1 has old")
        _restart(up)
        up.log("worker:0", "2 has old")
        assert not [note for note in notes(up) if "written here" in note]
        for name in ("train.py", "data.txt", "left.tmp"):
            (root / name).write_text("new\n")
        _restart(up)
        up.wait_for(lambda e: "written here since" in e.get("note", ""), "the note")
        (note,) = (note for note in notes(up) if "written here" in note)
        assert "worker:0" in note and "far" in note and "train.py, data.txt have been" in note
        up.log("worker:0", "3 has old")


def _restart(up: Up) -> None:
    client = RunClient.attach(RunFolder.find(up.run_id))
    try:
        client.restart(TaskId("worker", 0))
    finally:
        client.close()


@pytest.mark.prove
def test_data_of_two_places_with_one_name_is_refused(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given two folders of `data` with the same name, when a run is launched, then exit 3, and
    stderr names both."""
    for name in ("a/set", "b/set", "work"):
        (tmp_path / name).mkdir(parents=True)
    text = on_server(ssh_server, "work", run='data = ["a/set", "b/set"]')
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 3, up.transcript()
    assert "a/set" in up.said and "b/set" in up.said


def test_no_room_on_the_host_is_told_with_the_path(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a host that can write no more in the middle of a file, when a run is launched, then
    exit 3 with the path and the reason, and no part of the file stays on the host."""
    ssh_server.bashrc("ulimit -f 2000\n")
    root = tmp_path / "work"
    root.mkdir()
    (root / "big").write_bytes(os.urandom(12 << 20))
    (root / "small").write_bytes(b"small")
    with Up("up", str(write(tmp_path, on_server(ssh_server, "work"))), "--json") as up:
        assert up.wait() == 3, up.transcript()
    assert str(ssh_server.home / ".cache/tfmux") in up.said
    assert "too large" in up.said
    left = [path for path in (ssh_server.home / ".cache").rglob("*") if path.is_file()]
    assert not [path for path in left if "." in path.name], left


@pytest.mark.prove
def test_a_full_home_is_told_with_the_path(testbed: Testbed, tmp_path: Path) -> None:
    """Given a host whose home is full, when a run is launched, then exit 3, stderr names the host,
    the path and the reason, and no process is left there."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/big").write_bytes(os.urandom(1 << 20))
    full_home(testbed["tf1"])
    text = cluster(testbed.hosts_toml(), "work").replace("far:", "tf1:")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 3, up.transcript()
    assert "tf1" in up.said and "/tfmux/" in up.said
    assert "No space left on device" in up.said and "nothing was started" in up.said
    wait_until(lambda: not testbed["tf1"].leftovers(), "the last interpreter has ended")


@pytest.mark.prove
def test_a_login_that_may_have_but_one_session_is_no_hindrance(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Given a host whose sshd allows one session a login, when a run with a workdir is launched,
    then its task finds its files: they went by a login of their own."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a").write_text("a")
    allow_one_session(testbed["tf1"])
    text = cluster(testbed.hosts_toml(), "work").replace("far:", "tf1:")
    found, _ = launch(write(tmp_path, text))
    assert found == {"./a": code(b"a")}


MANIFEST_LISTING = """
import hashlib, json, os
found = {name: hashlib.sha256(open(name, "rb").read()).hexdigest() for name in os.listdir()}
print("FOUND", json.dumps(found))
"""


def project(
    server: SshServer, *commands: Sequence[str], workdir: str = "work", more: str = ""
) -> str:
    """A cluster on the server of a job for each command."""
    jobs = {
        f"job{number}": {"tasks": "far", "ready": "started", "command": command}
        for number, command in enumerate(commands)
    }
    host = server.host_toml("far", sys.executable)
    return cluster_text(jobs, "project", host, workdir=workdir, more=more)


def manifest_code(data: bytes) -> str:
    """A file as the listing shows it."""
    return hashlib.sha256(data).hexdigest()


def words(text: str) -> str:
    """What was printed, without the breaks of lines and what marks them."""
    return " ".join(text.replace("  → ", " ").split())


def make(root: Path, **texts: str) -> None:
    """Makes executable files."""
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


REFUSED = {
    "train.py is not copied: it is left out by {work}/.gitignore:2 (*.py)": [
        "{python}",
        "train.py",
    ],
    "run.sh is not copied: it is left out by exclude in [run], line {line}": ["./run.sh"],
    "b.sh is not copied: it is left out by exclude in [run], line {line}": ["bash", "b.sh"],
    "env/ is not copied: it is a virtual environment (pyvenv.cfg)": ["env/bin/python", "x"],
    "py is not copied: it is a link to /usr/bin/env, which is outside of {work}": ["./py", "x"],
    "gone is not copied: it is a link to nowhere, which does not exist": ["{python}", "gone"],
    "old/ is not copied: it is left out by {work}/.gitignore:3 (old/)": ["{python}", "new"],
}
"""Commands that need what is not copied, and what is said of each."""


def test_commands_that_are_not_copied_are_refused_with_one_sentence(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given programs and scripts that an ignored line, `exclude`, the marks of a virtual
    environment or a link keep from hosts, when `check` is called, then it names all reasons; `plan`
    and `up` name the first, and `up` ends with 3 as `check` does."""
    work = tmp_path / "work"
    make(work, train_py="", run_sh="#!/bin/sh\n", b_sh="", env__bin__python="", old__train="")
    (work / "env/pyvenv.cfg").touch()
    (work / ".gitignore").write_text("# of Python\n*.py\nold/\n")
    for name, target in {"py": "/usr/bin/env", "gone": "nowhere", "new": "old/train"}.items():
        (work / name).symlink_to(target)
    text = project(ssh_server, *REFUSED.values(), more='exclude = ["*.log",\n  "*.sh"]')
    line = text.splitlines().index('  "*.sh"]') + 1
    file = write(tmp_path, text)
    checked = run("check", str(file))
    assert checked.returncode == 3 and checked.stdout.count("[command-missing]") == len(REFUSED)
    assert "[python-broken]" not in checked.stdout
    planned = run("plan", str(file)).stdout
    launched = run("up", str(file), "--headless")
    assert launched.returncode == 3
    reasons = [why.format(work=work, line=line) for why in REFUSED]
    assert [why for why in reasons if why not in words(checked.stdout)] == [], checked.stdout
    assert reasons[0] in words(planned) and reasons[0] in words(launched.stderr), planned


@pytest.mark.prove
def test_a_module_that_is_ignored_is_named_beside_the_missing_one(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given `-m` of a package that `.gitignore` leaves out, when `check` is called, then its
    finding names the line."""
    make(tmp_path / "work", mine__train_py="")
    (tmp_path / "work/.gitignore").write_text("mine/\n")
    file = write(tmp_path, project(ssh_server, ["{python}", "-m", "mine.train"]))
    said = words(run("check", str(file)).stdout)
    line = f"{tmp_path}/work/.gitignore:1 (mine/)"
    assert f"has no module mine: mine/ is not copied: it is left out by {line}" in said


@pytest.mark.prove
def test_other_words_that_are_not_copied_are_warnings(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given a configuration that the command names and `.gitignore` leaves out, when `check` is
    called, then it is 0, and a warning names file and line; a run goes on."""
    work = tmp_path / "work"
    script = "import os, json as j\ntry:\n    from secrets_of import x\nexcept ImportError: pass\n"
    make(work, train_py=script, configs__local_yaml="x", out__log="x", list_txt="")
    (work / "secrets_of.py").touch()
    (work / ".gitignore").write_text("local.*\nout/\nlist.txt\nsecrets_*\n")
    command = ["{python}", "train.py", "--config=configs/local.yaml", "--out", "out"]
    file = write(tmp_path, project(ssh_server, command, more='setup = "test ! -e list.txt"'))
    done = run("check", str(file))
    said = words(done.stdout)
    assert done.returncode == 0, done.stdout
    assert f"configs/local.yaml is not copied: it is left out by {work}/.gitignore:1" in said
    assert f"list.txt is not copied: it is left out by {work}/.gitignore:3" in said
    assert "train.py imports secrets_of, but secrets_of.py is not copied" in said
    assert done.stdout.count("[file-left-out]") == 3
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()


@variants("place", ["home", "keys"], test=1)
def test_a_home_is_not_copied_unless_it_is_named(
    ssh_server: SshServer, tmp_path: Path, tfmux_home: Path, place: str
) -> None:
    """Given a cluster file in the home, or in a directory with SSH keys, when `check` and `up` are
    called, then both end with 3 and the same sentence; a run of a file that names the directory
    copies it."""
    folder = tfmux_home if place == "home" else tmp_path / "keys"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".ssh/id").write_text("secret")
    shutil.copy(ssh_server.known_hosts, folder / "mine")
    (folder / "here").write_text("x\n")
    file = write(folder, project(ssh_server, ["cat", "here"], workdir="."))
    said = "copy your home to hosts" if place == "home" else "copy SSH keys to hosts"
    done = run("check", str(file))
    assert done.returncode == 3 and said in words(done.stdout), done.stdout
    assert "[files-refused]" in done.stdout
    with Up("up", str(file), "--headless") as up:
        assert up.wait() == 3 and said in words(up.said), up.said
    (sentence,) = [line for line in done.stdout.splitlines() if said in line]
    assert words(sentence.partition(": ")[2]) in words(up.said)
    named = "~" if place == "home" else str(folder)
    file = write(folder, project(ssh_server, ["cat", "here"], workdir=named))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()


@pytest.mark.prove
def test_a_run_in_the_home_copies_nothing_unless_told_to(
    ssh_server: SshServer, tmp_path: Path, tfmux_home: Path
) -> None:
    """Given `tfmux run` in the home, with and without `--save`, when there is another host, then it
    is refused; on this machine alone nothing is copied, and it runs."""
    (tfmux_home / ".ssh").mkdir()
    shutil.copy(ssh_server.known_hosts, tfmux_home / ".ssh/known_hosts")
    shutil.copy(ssh_server.client_key.path, tfmux_home / ".ssh/id_ed25519")
    words_ = ["-H", "far", "--", "true"]
    config = f"Host far\n HostName 127.0.0.1\n Port {ssh_server.port}\n User {ssh_server.user}\n"
    (tfmux_home / ".ssh/config").write_text(config)
    for more, code_ in (
        (["--save", str(tmp_path / "x.toml")], 2),
        (["--workdir", "."], 3),
        ([], 3),
    ):
        with Up("run", *more, "--headless", *words_, cwd=tfmux_home) as up:
            assert up.wait() == code_, up.said
        assert "refused to copy your home to hosts" in up.said, up.said
    with Up("run", "--headless", "--", "true", cwd=tfmux_home) as up:
        assert up.wait() == 0, up.said


def test_files_and_bytes_are_told(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a workdir of three files, when `check` and `plan` are called, then both say how many
    files and bytes are copied to the host, and name a link that is not."""
    work = tmp_path / "work"
    make(work, a="x" * 1000, b__c="y" * 500, d="z" * 500)
    (work / "out").symlink_to("/scratch/nobody")
    file = write(tmp_path, project(ssh_server, ["true"]))
    told = json.loads(run("check", str(file), "--json").stdout)["findings"]
    briefs = [each["brief"] for each in told if each["check"] == "files"]
    assert "3 files, 2.0 KB" in briefs and "1 link" in briefs
    printed = run("plan", str(file)).stdout
    assert "copied to far: 3 files, 2.0 KB\n  not copied: out is a link to /scratch/nob" in printed
    (record,) = json.loads(run("plan", str(file), "--json").stdout)["files"]
    assert (record["host"], record["files"], record["bytes"]) == ("far", 3, 2000)


LINES = {
    "lines end as in Windows": b"#!/bin/sh\r\necho a\r\n",
    "/no/such/shell: no such file": b"#!/no/such/shell -x\n",
    "no-such-python is not in PATH": b"#!/usr/bin/env no-such-python\n",
    "write env -S": b"#!/usr/bin/env python3 -u\n",
    "a byte order mark": b"\xef\xbb\xbf#!/bin/sh\n",
    "names no interpreter: #!/bin/sh": b"echo a\n",
    "": b"#! /usr/bin/env -S python3 -u\nprint(1)\n",
}


@variants("copied", [True, False], test=1)
def test_the_first_line_of_a_script_is_read(
    ssh_server: SshServer, tmp_path: Path, copied: bool
) -> None:
    """Given scripts with Windows line ends, or with an interpreter that the host lacks, copied or
    on the host already, when `check` is called, then it is 3 and says so of each; of one that is
    fine it says nothing."""
    (tmp_path / "work").mkdir()
    scripts = [tmp_path / f"work/train{number}.sh" for number in range(len(LINES))]
    for script, line in zip(scripts, LINES.values(), strict=True):
        script.write_bytes(line)
        script.chmod(0o755)
    commands = [[f"./{script.name}"] if copied else [str(script)] for script in scripts]
    text = project(ssh_server, *commands, workdir="work" if copied else "")
    done = run("check", str(write(tmp_path, text)), "--json")
    assert done.returncode == 3, done.stdout
    said = [each["sentence"] for each in json.loads(done.stdout)["findings"]]
    for script, why in zip(scripts, LINES, strict=True):
        told = [sentence for sentence in said if f"{script}: " in sentence]
        assert not (told if not why else [each for each in told if why not in each]), told
        assert bool(told) == bool(why), (why, said)


@pytest.mark.prove
def test_a_shell_runs_a_script_without_a_first_line(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given `setup` in front of such a script, when it is checked and run, then both end with 0."""
    make(tmp_path / "work", a_sh="echo fine\n")
    more = 'setup = "true"'
    file = write(tmp_path, project(ssh_server, ["./a.sh"], more=more))
    done = run("check", str(file))
    assert done.returncode == 0, done.stdout
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()


@pytest.mark.prove
def test_a_shell_gets_no_script_with_windows_line_ends(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given `bash SCRIPT` with such lines, when `check` is called, then it is 3; Python takes
    them."""
    make(tmp_path / "work", a_sh="set -e\r\ntrue\r\n", a_py="pass\r\n")
    for command, expected in ((["bash", "a.sh"], 3), (["{python}", "a.py"], 0)):
        done = run("check", str(write(tmp_path, project(ssh_server, command))))
        assert done.returncode == expected, done.stdout


def test_files_that_change_while_they_are_sent_are_read_again(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given files that shrink, grow, vanish, are written anew, or become a directory or a pipe
    while a large one is sent, when the run starts, then its task finds them as they are then, and
    nothing is aborted."""
    root = tmp_path / "work"
    root.mkdir()
    large = os.urandom(8 << 20)
    (root / "0").write_bytes(large)
    names = ("folder", "grown", "pipe", "same", "shrunk", "vanished", "written")
    for name in names:
        (root / name).write_bytes(name.encode() * 100_000)

    def change() -> None:
        (root / "shrunk").write_bytes(b"short")
        for name in ("folder", "pipe"):
            (root / name).unlink()
        (root / "folder").mkdir()
        os.mkfifo(root / "pipe")
        (root / "vanished").unlink()
        (root / "written").write_bytes(b"neWritt" * 100_000)
        with (root / "grown").open("ab") as file:
            file.write(b"more")

    ssh_server.relay.strike = 3 << 20, change
    file = write(tmp_path, project(ssh_server, [*python_task(MANIFEST_LISTING)]))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
    text = next(e["text"] for e in up.of("log") if e["text"].startswith("FOUND "))
    found = json.loads(text.removeprefix("FOUND "))
    grown = b"grown" * 100_000
    assert found.pop("grown") in (manifest_code(grown), manifest_code(grown + b"more"))
    assert found == {
        "0": manifest_code(large),
        "same": manifest_code(b"same" * 100_000),
        "shrunk": manifest_code(b"short"),
        "written": manifest_code(b"neWritt" * 100_000),
    }
    for blob in (ssh_server.home / ".cache/tfmux").glob("??/*"):
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name


def test_permissions_arrive(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given files and directories with all kinds of permissions, when two runs start, then each
    task finds them as they are here; a read-only directory is no hindrance for the second."""
    root = tmp_path / "work"
    modes = {"key": 0o600, "run": 0o750, "read": 0o444, "all": 0o666, "shut": 0o700, "ro": 0o555}
    for name, mode in modes.items():
        if name in ("shut", "ro"):
            (root / name).mkdir(parents=True)
            (root / name / "file").write_text("x")
        else:
            root.mkdir(exist_ok=True)
            (root / name).write_text(name)
        (root / name).chmod(mode)
    script = f"import os\nfor n in {list(modes)!r}: print(n, oct(os.stat(n).st_mode & 0o777))\n"
    for text in ("x", "changed"):
        (root / "shut/file").write_text(text)
        file = write(tmp_path, project(ssh_server, [*python_task(script)]))
        with Up("up", str(file), "--json") as up:
            assert up.wait() == 0, up.transcript()
        said = [e["text"] for e in up.of("log")]
        assert {f"{name} {mode:#o}".replace("0o", "0o") for name, mode in modes.items()} <= set(
            said
        )
    (root / "ro").chmod(0o755)


@pytest.mark.prove
def test_a_workdir_that_the_host_shares_is_told(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a host that has the very workdir of this machine, when `check` is called, whether it
    ends well or not, then it says so with the key to write, and no marker stays."""
    (tmp_path / "work").mkdir()
    for command, code_ in ((["true"], 0), (["no-such-program"], 3)):
        done = run("check", str(write(tmp_path, project(ssh_server, command))))
        assert done.returncode == code_, done.stdout
        assert "[workdir-shared]" in done.stdout
        assert f'directory = "{tmp_path}/work"' in words(done.stdout)
        assert not list((tmp_path / "work").iterdir())


def test_a_check_that_is_ended_leaves_no_marker(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a check that waits for a login, when it gets SIGTERM, then it ends with 143, and its
    marker is gone from the workdir; one that an earlier check could not remove goes, too."""
    work = tmp_path / "work"
    work.mkdir()
    old = work / ".tfmux-check-0123"
    old.touch()
    os.utime(old, (0, 0))
    ssh_server.login_delay = 60.0
    file = write(tmp_path, project(ssh_server, ["true"]))
    process, stdout, stderr = start(("check", str(file)), os.environ, tmp_path)
    with stdout, stderr:
        wait_until(lambda: [*work.iterdir()] not in ([], [old]), "there is a marker")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
    assert not list(work.iterdir())
