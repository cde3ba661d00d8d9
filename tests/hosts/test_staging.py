"""Files on their way to a host: what goes, what is kept there, and what goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
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
