"""`framework = "mpi-like"` for programs of an MPI library, of which there is a stand-in here: real
shared objects, and a Python package of its name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import run, write
from tests.testbed.inprocess import SshServer

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
