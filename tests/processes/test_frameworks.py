"""Programs that launch their own: MPI, and servers with a client, as Ray and Dask have them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import Up, run, write
from tests.support.paths import REPOSITORY
from tests.testbed.inprocess import SshServer

EXAMPLES = REPOSITORY / "docs" / "examples"
STAND_IN = REPOSITORY / "tests" / "support" / "ray_and_dask.py"


def _programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts stand-ins of Ray and Dask, where one is not installed, on PATH and PYTHONPATH."""
    (folder / "bin").mkdir()
    for program, module in (("ray", "ray.py"), ("dask", "dask/distributed.py")):
        if importlib.util.find_spec(program) and shutil.which(program):
            continue
        script = folder / "bin" / program
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
        script.chmod(0o755)
        target = folder / "lib" / module
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(STAND_IN, target)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(folder / "lib"))


@pytest.mark.prove
@pytest.mark.parametrize(
    ("example", "client", "servers"),
    [
        ("ray", "driver:0", ("head:0", "node:0")),
        ("dask", "client:0", ("scheduler:0", "node:0", "node:1")),
    ],
)
def test_the_clients_end_is_the_end_of_the_run(
    example: str,
    client: str,
    servers: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given servers that are in no cluster spec, then they start in order, the client finds them,
    and when it has ended with 0 the run is a success and they are stopped. `check` has nothing to
    say of them."""
    _programs(tmp_path, monkeypatch)
    work = tmp_path / "work"
    shutil.copytree(EXAMPLES, work, ignore=shutil.ignore_patterns("__pycache__"))
    file = str(work / f"{example}.toml")
    planned, checked = run("plan", file), run("check", file)
    assert planned.stderr == "" and checked.returncode == 0
    assert f"\nends when {client} has ended; " in planned.stdout
    assert "[command-" not in checked.stdout and "[never-ends]" not in checked.stdout
    with Up("up", file, "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log(client, "sum of squares 285")
    began = {e["task"]: e["time"] for e in reversed(up.of("task")) if e["state"] == "starting"}
    assert sorted(began, key=lambda task: began[task])[0] == servers[0]
    assert max(began, key=lambda task: began[task]) == client
    last = {event["task"]: event["state"] for event in up.of("task")}
    assert last == {client: "exited", **dict.fromkeys(servers, "stopped")}


def test_a_run_that_would_never_end_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the same servers as jobs of the cluster, then the run would wait for their end: `plan`
    and `check` say so."""
    _programs(tmp_path, monkeypatch)
    text = (EXAMPLES / "dask.toml").read_text().replace("in_cluster = false", "")
    shutil.copy(EXAMPLES / "dask_sum.py", tmp_path)
    file = str(write(tmp_path, text))
    planned, checked = run("plan", file), run("check", file)
    assert "\nends when scheduler:0, node:0–1, client:0 have ended\n" in planned.stdout
    for text in (planned.stderr, checked.stdout):
        said = " ".join(text.split())
        for job, name in (("scheduler", "scheduler:0 has"), ("node", "node:0–1 have")):
            assert f"the run ends only when {name} ended, and dask" in said
            assert f"write in_cluster = false in [jobs.{job}]" in said
    assert checked.stdout.count("[never-ends]") == 2


CLUSTER = """
name = "ranks"
{hosts}
[jobs.worker]
tasks = ["{host}:auto", "{host}:auto"]
ready = "started"
[run]
framework = "mpi-like"
command = {command}
workdir = "{workdir}"
env = {{ LD_LIBRARY_PATH = "{folder}", PYTHONPATH = "{folder}" }}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that is linked with a library that is linked with `libmpi.so.40`, and mpi4py."""
    made = tmp_path / "made"
    (made / "mpi4py").mkdir(parents=True)
    (made / "mpi4py" / "__init__.py").write_text("")

    def cc(text: str, *words: str) -> None:
        argv = ["cc", "-x", "c", "-", f"-L{made}", f"-Wl,-rpath,{made}", *words]
        subprocess.run(argv, input=text.encode(), cwd=made, check=True)

    shared = ("-shared", "-fPIC")
    cc("int mpi(void) { return 0; }", *shared, "-Wl,-soname,libmpi.so.40", "-o", "libmpi.so.40")
    cc(
        "int mpi(void); int go(void) { return mpi(); }",
        *shared,
        "-l:libmpi.so.40",
        "-o",
        "libgo.so",
    )
    cc("int go(void); int main(void) { return go(); }", "-lgo", "-o", "sim")
    return made


def text(folder: Path, command: list[str], hosts: str = "", workdir: str = "") -> str:
    return CLUSTER.format(
        hosts=hosts,
        host="far" if hosts else "localhost",
        command=json.dumps(command),
        workdir=workdir,
        folder=folder,
    )


@pytest.mark.prove
def test_check_looks_on_the_host(ssh_server: SshServer, tmp_path: Path, folder: Path) -> None:
    """A program there, with a library of a library; mpi4py of the interpreter there, of which only
    the program knows whether it is used; others have neither."""
    hosts = ssh_server.host_toml("far", sys.executable)
    for command, said in (
        ([str(folder / "sim")], "the command of worker:0 uses an MPI library (libmpi.so.40)"),
        (["{python}", "-c", "x"], "if the command of worker:0 uses an MPI library (mpi4py)"),
        (["sleep", "0"], ""),
    ):
        done = run("check", str(write(tmp_path, text(folder, command, hosts))))
        assert (said in done.stdout) and ("[mpi-library]" in done.stdout) is bool(said), done.stdout
        assert not said or "tfmux run -H far -- mpirun -n 2 -H 127.0.0.1:2" in done.stdout


def test_a_launch_notes_what_is_seen_here(tmp_path: Path, folder: Path) -> None:
    """A program of the workdir; it runs all the same, and no other is named."""
    file = write(tmp_path, text(folder, ["./sim"], workdir=str(folder)))
    done = run("up", str(file), "--headless")
    assert done.returncode == 0, done.stderr
    said = (
        'worker:0 uses an MPI library (libmpi.so.40), which takes no rank from framework = "mpi-l'
    )
    assert said in done.stderr
    assert "there would be 2 processes, each of them rank 0 of 1" in done.stderr
    assert "tfmux run -- mpirun -n 2 ./sim" in done.stderr
    file = write(tmp_path, text(folder, ["true"], workdir=str(folder)))
    assert "MPI" not in run("up", str(file), "--headless").stderr
