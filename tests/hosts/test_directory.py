"""`directory`: tasks start in a directory that the hosts have already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, run, write
from tests.testbed.namespaces import Testbed


def on_hosts(testbed: Testbed, directory: str, *, command: list[str], more: str = "") -> str:
    """A task on each of two hosts."""
    return cluster_text(
        {"worker": {"tasks": "tf1 tf2", "ready": "started"}},
        "placed",
        testbed.hosts_toml(),
        command=command,
        directory=directory,
        success="all",
        more=more,
    )


def test_tasks_start_where_the_code_is(testbed: Testbed, tmp_path: Path) -> None:
    """Given a project in the home of each host, when a run with `directory` ends, then each task
    has found its own host's files, nothing was copied, and all that is there has stayed."""
    for host in (testbed["tf1"], testbed["tf2"]):
        host.write(f"{host.account.home}/proj/train.sh", f"#!/bin/sh\necho {host.name}\n", 0o755)
    (tmp_path / "unwanted").write_text("x")
    script = "./train.sh; pwd; echo saved > model; echo {workdir}"
    text = on_hosts(testbed, "~/proj", command=["sh", "-c", script])
    file = write(tmp_path, text)
    checked = run("check", str(file))
    assert checked.returncode == 0, checked.stdout
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        for index, name in enumerate(("tf1", "tf2")):
            home = testbed[name].account.home
            assert up.log(f"worker:{index}", name)
            said = [e["text"] for e in up.of("log") if e["task"] == f"worker:{index}"]
            assert said.count(f"{home}/proj") == 2
            kept = testbed[name].run(["ls", f"{home}/proj"]).stdout.split()
            assert kept == [b"model", b"train.sh"]


@pytest.mark.prove
def test_what_is_in_the_way_is_told_by_check_and_launch(testbed: Testbed, tmp_path: Path) -> None:
    """Given a directory that is missing on one host and a file on the other, or that the account
    cannot enter, when `check` and `up` are called, then both end with 3 and say the same of each
    host, and nothing is started."""
    two = testbed["tf2"]
    home = two.account.home
    two.write(f"{home}/proj", "a file")
    file = write(tmp_path, on_hosts(testbed, "~/proj", command=["./train.sh"]))
    done = run("check", str(file))
    said = " ".join(done.stdout.split())
    missing = f"worker:0 cannot run on tf1: {testbed['tf1'].account.home}/proj: no such directory"
    no_folder = f"worker:1 cannot run on tf2: {home}/proj is not a directory"
    assert done.returncode == 3 and missing in said and no_folder in said, done.stdout
    assert done.stdout.count("[directory-missing]") == 2
    assert "[command-missing]" not in done.stdout and "[python-broken]" not in done.stdout
    with Up("up", str(file), "--headless") as up:
        assert up.wait() == 3
    said = " ".join(up.said.split())
    assert missing in said and no_folder in said and "nothing was started" in said, up.said


@pytest.mark.prove
def test_a_directory_of_a_job(testbed: Testbed, tmp_path: Path) -> None:
    """Given a job with a directory of its own beside one that gets the copy of the workdir, when
    the run ends, then each has started in its own place; a host with the first job alone gets no
    copy."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/copied").touch()
    one = testbed["tf1"]
    one.run(["mkdir", "-p", "/tmp/have"])
    one.write("/tmp/have/there", "")
    text = cluster_text(
        {
            "chief": {"tasks": "tf2", "command": ["ls"]},
            "worker": {"tasks": "tf1", "command": ["ls"], "directory": "/tmp/have"},
        },
        hosts=testbed.hosts_toml(),
        workdir="work",
        success="all",
        start={"ready": {"chief": "started", "worker": "started"}},
    )
    file = write(tmp_path, text)
    copies = json.loads(run("plan", str(file), "--json").stdout)["files"]
    assert [each["host"] for each in copies] == ["tf2"]
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("chief:0", "copied") and up.log("worker:0", "there")


@pytest.mark.prove
def test_run_takes_a_directory(testbed: Testbed, tmp_path: Path, tfmux_home: Path) -> None:
    """Given `tfmux run --directory`, when it runs on a host, then its task starts there; with
    `--workdir`, or a path that is not whole, it is 2, and stderr says what to write."""
    testbed.give_access(tfmux_home)
    testbed["tf1"].run(["mkdir", "-p", "/tmp/have"])
    words = ["--directory", "/tmp/have", "-H", "tf1", "--json", "--", "pwd"]
    with Up("run", *words, cwd=tmp_path) as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", "/tmp/have")
    for more, said in (
        (["--directory", "/x", "--workdir", "."], "exclude each other"),
        (["--directory", "proj"], 'write the whole path on the hosts, such as "~/proj"'),
        (["--directory", "$HOME/x"], "no shell reads it"),
    ):
        with Up("run", *more, "-H", "tf1", "--headless", "--", "true", cwd=tmp_path) as up:
            assert up.wait() == 2 and said in up.said, up.said


@variants("command", ["up", "check"], test=1)
def test_a_directory_of_this_machine(command: str, tmp_path: Path, tfmux_home: Path) -> None:
    """Given tasks here and `directory`, when it is there, then they start in it; when not, it is 3,
    with the path."""
    text = cluster_text({"worker": 1}, command=["pwd"], directory="~/proj/{job}")
    file = write(tmp_path, text)
    words = [command, str(file), *(["--headless"] if command == "up" else [])]
    done = run(*words)
    assert done.returncode == 3, done.stdout
    said = " ".join((done.stdout + done.stderr).split())
    assert f"{tfmux_home}/proj/worker: no such directory" in said
    (tfmux_home / "proj/worker").mkdir(parents=True)
    done = run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert command == "check" or f"{tfmux_home}/proj/worker" in done.stdout
