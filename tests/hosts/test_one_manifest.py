"""`check`, `plan` and a launch agree on what is copied; files that change while they are sent."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, start, write
from tests.support.patience import PATIENCE, wait_until
from tests.testbed.inprocess import SshServer

LISTING = """
import hashlib, json, os
found = {name: hashlib.sha256(open(name, "rb").read()).hexdigest() for name in os.listdir()}
print("FOUND", json.dumps(found))
"""


def project(server: SshServer, command: list[str], workdir: str = "work", more: str = "") -> str:
    """A cluster of one task on the server."""
    return cluster_text(
        {"worker": {"tasks": "far", "ready": "started"}},
        "project",
        server.host_toml("far", sys.executable),
        command=command,
        workdir=workdir,
        more=more,
    )


def code(data: bytes) -> str:
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
    "run.sh is not copied: it is left out by exclude in [run], line 1": ["./run.sh"],
    "b.sh is not copied: it is left out by exclude in [run], line 1": ["bash", "b.sh"],
    "env/ is not copied: it is a virtual environment (pyvenv.cfg)": ["env/bin/python", "x"],
    "py is not copied: it is a link to /usr/bin/env, which is outside of {work}": ["./py", "x"],
    "gone is not copied: it is a link to nowhere, which does not exist": ["{python}", "gone"],
    "old/ is not copied: it is left out by {work}/.gitignore:3 (old/)": ["{python}", "new"],
}
"""Commands that need what is not copied, and what is said of each."""


@variants("why", REFUSED, test=1)
def test_a_command_that_is_not_copied_is_refused_with_one_sentence(
    ssh_server: SshServer, tmp_path: Path, why: str
) -> None:
    """Given a program or a script that an ignored line, `exclude`, the marks of a virtual
    environment or a link keep from hosts, when `check`, `plan` and `up` are called, then the first
    and the last end with 3, and all name the reason."""
    work = tmp_path / "work"
    make(work, train_py="", run_sh="#!/bin/sh\n", b_sh="", env__bin__python="", old__train="")
    (work / "env/pyvenv.cfg").touch()
    (work / ".gitignore").write_text("# of Python\n*.py\nold/\n")
    for name, target in {"py": "/usr/bin/env", "gone": "nowhere", "new": "old/train"}.items():
        (work / name).symlink_to(target)
    text = project(ssh_server, REFUSED[why], more='exclude = ["*.log",\n  "*.sh"]')
    file = write(tmp_path, text)
    said = why.format(work=work)
    checked = run("check", str(file))
    assert checked.returncode == 3 and said in words(checked.stdout), checked.stdout
    assert "[command-missing]" in checked.stdout and "[python-broken]" not in checked.stdout
    assert said in words(run("plan", str(file)).stdout)
    with Up("up", str(file), "--headless") as up:
        assert up.wait() == 3
    assert said in words(up.said), up.said


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
    file = write(folder, project(ssh_server, ["cat", "here"], "."))
    said = "copy your home to hosts" if place == "home" else "copy SSH keys to hosts"
    done = run("check", str(file))
    assert done.returncode == 3 and said in words(done.stdout), done.stdout
    assert "[files-refused]" in done.stdout
    with Up("up", str(file), "--headless") as up:
        assert up.wait() == 3 and said in words(up.said), up.said
    (sentence,) = [line for line in done.stdout.splitlines() if said in line]
    assert words(sentence.partition(": ")[2]) in words(up.said)
    named = "~" if place == "home" else str(folder)
    file = write(folder, project(ssh_server, ["cat", "here"], named))
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
@variants("why", LINES, test=2)
def test_the_first_line_of_a_script_is_read(
    ssh_server: SshServer, tmp_path: Path, why: str, copied: bool
) -> None:
    """Given a script with Windows line ends, or with an interpreter that the host lacks, copied or
    on the host already, when `check` is called, then it is 3 and says so; one that is fine is 0."""
    (tmp_path / "work").mkdir()
    script = tmp_path / "work/train.sh"
    script.write_bytes(LINES[why])
    script.chmod(0o755)
    command = ["./train.sh"] if copied else [str(script)]
    file = write(tmp_path, project(ssh_server, command, "work" if copied else ""))
    done = run("check", str(file))
    assert done.returncode == (3 if why else 0), done.stdout
    assert why in words(done.stdout) and (not why or f"{script}: " in words(done.stdout))


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
    file = write(tmp_path, project(ssh_server, [*python_task(LISTING)]))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
    text = next(e["text"] for e in up.of("log") if e["text"].startswith("FOUND "))
    found = json.loads(text.removeprefix("FOUND "))
    grown = b"grown" * 100_000
    assert found.pop("grown") in (code(grown), code(grown + b"more"))
    assert found == {
        "0": code(large),
        "same": code(b"same" * 100_000),
        "shrunk": code(b"short"),
        "written": code(b"neWritt" * 100_000),
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
