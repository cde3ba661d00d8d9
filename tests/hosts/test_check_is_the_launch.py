"""A check says what the launch does: an error where that fails, and none where it starts."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from launcher.agent.processes import fits_descriptors
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write

ARGUMENTS = 'exec "$@"'
SLEEPS = ["sh", "-c", "sleep 0.2"]


def behind(script: str) -> list[str]:
    """A command of a host: a mount namespace, and what is set up in it before."""
    return ["unshare", "-m", "sh", "-c", f"{script}; {ARGUMENTS}", "sh"]


PYTHON = os.path.realpath(sys.executable)
"""Outside of a `/tmp` that a case covers."""
HOME = "mount -t tmpfs {options} none /mnt; export HOME=/mnt XDG_STATE_HOME=/mnt/state"


def tmp(options: str) -> str:
    """Mounts a `/tmp` and, elsewhere, a home, which else is below it."""
    return f"{HOME.format(options='')}; mount -t tmpfs -o {options} none /tmp"


FILL = "dd if=/dev/zero of={place}/fill bs=1k 2>/dev/null"
FILES = min(n for n in range(1, 1000) if fits_descriptors(n, 1))
CASES = {
    "a full /tmp": (f"{tmp('size=64k')}; {FILL.format(place='/tmp')}", SLEEPS, "", 0, "tmp-full"),
    "a /tmp with no inode": (tmp("nr_inodes=1"), SLEEPS, "", 3, "agent-failed"),
    "a /tmp with an inode too few": (tmp("nr_inodes=4"), SLEEPS, "", 3, "agent-failed"),
    "a /tmp with inodes for an agent": (tmp("nr_inodes=5"), SLEEPS, "", 0, ""),
    "a read-only /tmp": (tmp("ro"), SLEEPS, "", 3, "agent-failed"),
    "a home with an inode too few": (
        f"{HOME.format(options='-o nr_inodes=5')}",
        *(SLEEPS, "", 3, "agent-failed"),
    ),
    "few open files": (f"ulimit -n {FILES - 1}", SLEEPS, "", 3, "files-limit"),
    "enough open files": (f"ulimit -n {FILES}", SLEEPS, "", 0, ""),
    "a log directory that nothing names": (":", SLEEPS, "/proc/no/logs", 0, "logdir-unwritable"),
    "a log directory that is named": (
        ":",
        ["sh", "-c", "echo a >{logdir}/a"],
        "/proc/no/logs",
        3,
        "logdir-unwritable",
    ),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
@variants("case", CASES, test=2)
def test_both_say_the_same(tmp_path: Path, case: str) -> None:
    """Given a host with one thing that is short, when it is checked and launched on, then the check
    has an error exactly where the launch fails, and names it by its code."""
    script, command, logdir, code, said = CASES[case]
    text = cluster_text(
        {"worker": {"tasks": ["far"], "ready": "started"}},
        hosts={"far": {"via": behind(script), "address": "127.0.0.1", "python": PYTHON}},
        command=command,
        workdir="",
        framework="none",
        **({"logdir": logdir} if logdir else {}),
    )
    file = str(write(tmp_path, text))
    done = run("check", file, "--json")
    found = {f["code"]: f["severity"] for f in json.loads(done.stdout)["findings"]}
    assert done.returncode == code, found
    if said:
        assert found[said] == ("error" if code else "warn")
    launched = run("up", file, "--headless")
    assert (launched.returncode == 0) == (code == 0), launched.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="another account")
@pytest.mark.prove
@variants(("most", "code"), [(8, 0), (5, 3)], test=1)
def test_a_login_with_few_processes_is_asked_one_by_one(
    tmp_path: Path, most: int, code: int, request: pytest.FixtureRequest
) -> None:
    """Given an account that may have so few processes, when it is checked, then all questions are
    answered if a launch of one task succeeds there, else the limit is named."""
    account = 60000 + os.getpid() % 5000  # nobody else's processes count
    home = Path(tempfile.mkdtemp(prefix="few-processes-", dir="/tmp"))  # tmp_path is root's alone
    request.addfinalizer(lambda: shutil.rmtree(home))
    os.chown(home, account, account)
    words = ["env", f"HOME={home}", "setpriv", "--reuid", str(account), "--clear-groups"]
    via = [*words, "bash", "-c", f"ulimit -u {most}; {ARGUMENTS}", "sh"]
    text = cluster_text(
        {"worker": {"tasks": ["far"], "ready": "started"}},
        hosts={"far": {"via": via, "address": "127.0.0.1", "python": "/usr/bin/python3"}},
        command=SLEEPS,
        workdir="",
        framework="none",
    )
    file = str(write(tmp_path, text))
    done = run("check", file, "--json")
    bad = [f for f in json.loads(done.stdout)["findings"] if f["severity"] == "error"]
    said = {"processes-limit"} if code else set()
    assert (done.returncode, {f["code"] for f in bad}) == (code, said)
    assert (run("up", file, "--headless").returncode == 0) == (code == 0)


def test_a_path_that_only_this_machine_has_is_a_warning(tmp_path: Path) -> None:
    """Given words that name a file and a directory of this machine by their whole paths, on a host
    that lacks them, then each is named; what is there, too, or nowhere is not."""
    (tmp_path / "here/data").mkdir(parents=True)
    (tmp_path / "here/c.yaml").touch()
    (tmp_path / "both").mkdir()
    hide = f"mount -t tmpfs none {tmp_path}/here"
    command = [
        *("true", f"--config={tmp_path}/here/c.yaml", f"{tmp_path}/here/data"),
        *(f"{tmp_path}/both", f"{tmp_path}/none", "/usr/bin", "/etc/passwd"),
    ]
    text = cluster_text(
        {"worker": ["far"]},
        hosts={"far": {"via": behind(hide), "address": "127.0.0.1", "python": sys.executable}},
        command=command,
        workdir="",
        framework="none",
    )
    done = run("check", str(write(tmp_path, text)), "--json")
    findings = [f for f in json.loads(done.stdout)["findings"] if f["code"] == "argument-missing"]
    assert done.returncode == 0 and len(findings) == 2
    for found, name in zip(findings, ("c.yaml", "data"), strict=True):
        assert found["severity"] == "warn" and f"{tmp_path}/here/{name}" in found["sentence"]


def test_without_peers_nobody_must_reach_them(tmp_path: Path) -> None:
    """Given hosts that cannot reach each other by their addresses, when their programs have no
    framework, then that is a warning, unless a word of the file names the others' addresses; and
    `tfmux run --framework none` launches what it launches without that option."""
    hosts = {
        name: {"via": behind(":"), "address": f"{name}.invalid", "python": sys.executable}
        for name in ("far", "near")
    }

    def checked(**more: Any) -> int:
        text = cluster_text({"worker": "far near"}, hosts=hosts, workdir="", **more)
        return run("check", str(write(tmp_path, text))).returncode

    assert checked(command=["true"], framework="none") == 0
    assert checked(command=["true", "{worker_hosts}"], framework="none") == 3
    assert checked(command=["true"], framework="torch") == 3
    words = ["-H", "root@127.0.0.1:1,root@127.0.0.1:2", "--workdir", "", "--save"]
    for number, more in enumerate(([], ["--framework", "none"])):
        file = tmp_path / f"saved{number}.toml"
        done = run("run", *words, str(file), *more, "--", "true")
        assert file.exists(), done.stderr
