"""Programs of an MPI library under `framework = "mpi-like"`: what a plan's words and files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.agent.asked import Said
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import loads
from launcher.on_host import linked
from launcher.plan import mpi
from launcher.plan.planner import make_plan

HOSTS = '[hosts.a]\nssh = "a"\n[hosts.b]\nssh = "b"\naddress = "b.lan"\n'


def cluster(folder: Path, *command: str, hosts: str = "localhost", more: str = "") -> ClusterModel:
    tasks = json.dumps([f"{host}:auto" for host in hosts.split()])
    table = HOSTS if hosts != "localhost" and not hosts.startswith("localhost") else ""
    text = f'{table}[jobs.worker]\ntasks = {tasks}\n[run]\nframework = "mpi-like"\n'
    return loads(f"{text}command = {json.dumps(command)}\n{more}", "c.toml", folder)


def found(model: ClusterModel) -> list[str]:
    plan = make_plan(model, "r")
    return [library for _, library in mpi.found_here(plan, plan.tasks)]


SCRIPTS = {
    "train.py": "import os\nfrom mpi4py import MPI\n",
    "late.py": "def main():\n    import mpi4py.MPI\n",
    "other.py": "# import mpi4py would be wrong\nimport mpi4pyx\n",
    "run.sh": "#!/bin/sh\nexec python3 train.py\n",
    "tool": "#!/usr/bin/env python3\nfrom mpi4py import MPI\n",
}


@pytest.mark.parametrize("hosts", ["localhost localhost", "a b"])
@pytest.mark.parametrize(
    ("command", "library"),
    [
        ("python3 train.py --steps 3", "mpi4py"),
        ("python3 -u late.py", "mpi4py"),
        ("{python} -m mpi4py.bench helloworld", "mpi4py"),
        ("python3 -c 'import os; from mpi4py import MPI'", "mpi4py"),
        ("./tool", "mpi4py"),
        ("./sim.x", "libmpi.so.40"),
        ("env OMP_NUM_THREADS=2 nice ./sim.x", "libmpi.so.40"),
        ("env A=1 python3 train.py", "mpi4py"),
        ("python3 other.py", ""),
        ("python3 missing.py", ""),
        ("python3 -m trainer", ""),
        ("sh run.sh", ""),
        ("sim.x", ""),
    ],
)
def test_what_is_here_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: str, command: str, library: str
) -> None:
    """The words of the command, a script of the workdir, a program there; each command once."""
    import shlex

    for name, text in {**SCRIPTS, "sim.x": "ELF"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    libraries = {str(tmp_path / "sim.x"): "libmpi.so.40"}
    monkeypatch.setattr(mpi, "mpi_library", lambda path: libraries.get(path, ""))
    assert found(cluster(tmp_path, *shlex.split(command), hosts=hosts)) == [library] * bool(library)


def test_one_rank_and_other_frameworks_are_right_as_they_are(tmp_path: Path) -> None:
    """Rank 0 of 1 is what one task is; a ps has no rank."""
    assert mpi.size_of(cluster(tmp_path, "x", hosts="a b a")) == 3
    assert mpi.size_of(cluster(tmp_path, "x", hosts="a")) == 0
    text = '[jobs.worker]\ntasks = ["localhost:1", "localhost:2"]\n[run]\ncommand = ["x"]\n'
    assert mpi.size_of(loads(text, "c", tmp_path)) == 0


def test_what_to_write_instead(tmp_path: Path) -> None:
    """A command that can be copied: with the hosts and slots of the file, by the first of them."""
    model = cluster(tmp_path, "x", hosts="localhost localhost")
    said = "start it by its own mpirun: tfmux run "
    assert mpi.advice(model, ["./x", "a b"]) == f"{said}-- mpirun -n 2 ./x 'a b'"
    model = cluster(tmp_path, "x", hosts="a a b")
    assert mpi.advice(model, ["x"]) == f"{said}-H a -- mpirun -n 3 -H a:2,b.lan:1 x"


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("\tlibmpi.so.40 => /lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f)", "libmpi.so.40"),
        ("\tlibmpi.so.12 => not found", "libmpi.so.12"),
        ("\tlibmpich.so.12 => /usr/lib/libmpich.so.12 (0x1)", "libmpich.so.12"),
        ("\tlibmpi_cxx.so.40 => /lib/libmpi_cxx.so.40 (0x1)", "libmpi_cxx.so.40"),
        ("\tlibmpifort.so.12 => /opt/intel/libmpifort.so.12 (0x1)", "libmpifort.so.12"),
        ("\t/opt/mpi/libmpi.so.40 (0x1)", "libmpi.so.40"),
        ("\tlibimpi.so.1 => /lib/libimpi.so.1 (0x1)", ""),
        ("\tlibmpiw.so => /lib/libmpiw.so (0x1)", ""),
        ("\tlibmpc.so.3 => /lib/libmpi.so.40/libmpc.so.3 (0x1)", ""),
        ("\tnot a dynamic executable", ""),
    ],
)
def test_lines_of_ldd(monkeypatch: pytest.MonkeyPatch, line: str, library: str) -> None:
    """Open MPI, MPICH and Intel's by their names, found or not; nothing that looks like one."""

    def ldd(*_: object, **options: object) -> Said:
        return Said(0, f"\tlinux-vdso.so.1 (0x1)\n{line}\n".encode(), b"")

    monkeypatch.setattr(linked, "ask_program", ldd)
    assert linked.mpi_library("x") == library


@pytest.mark.parametrize(
    ("command", "hosts", "said"),
    [
        ("mpirun -n 4 python3 train.py", "a b", "have one task: tfmux run -H a -n 1 -- mpirun …"),
        ("env A=1 mpiexec.hydra -n 4 sim.x", "localhost localhost", "tfmux run -n 1 -- mpiexec"),
        ("srun python3 train.py", "a a b", "tfmux run -H a -n 1 -- srun"),
        ("mpirun -n 4 sim.x", "a", ""),
        ("mpirun -n 4 sim.x --seed={rank}", "a b", ""),
        ("python3 mpirun", "a b", ""),
    ],
)
def test_a_launcher_of_mpi_is_one_task(command: str, hosts: str, said: str, tmp_path: Path) -> None:
    """Several with the same words would be several programs; whatever the framework is."""
    plan = make_plan(cluster(tmp_path, *command.split(), hosts=hosts), "r")
    found = [(str(task.id), why, todo) for task, why, todo in mpi.repeated(plan)]
    assert len(found) == bool(said)
    for task, why, todo in found:
        assert task == "worker:0" and said in todo
        assert f"{len(hosts.split())} tasks would start it as often" in why
