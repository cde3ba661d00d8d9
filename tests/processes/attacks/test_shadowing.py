"""A working directory whose files have the names of Python's modules and of our packages."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from launcher.cluster.read import load
from launcher.cluster.templates import TEMPLATES, render
from launcher.paths import installed_trainer, runs_home
from launcher.plan.planner import make_plan
from launcher.store.runs import RunFolder
from tests.support.command import run, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.testbed.inprocess import SshServer
from tests.testbed.serving import client, serving

MODULES = ("queue", "asyncio", "re", "random", "signal", "selectors", "json")
PACKAGES = ("launcher", "trainer", "tui")
TFMUX = Path(sys.executable).with_name("tfmux")
TICKER = "import time\nwhile True:\n    print('alive', flush=True)\n    time.sleep(0.1)\n"
CLUSTER = f'''
name = "tick"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
workdir = "."
command = ["{{python}}", "-P", "-u", "-c", """{TICKER}"""]
[start.ready]
worker = {{ log = "alive" }}
'''
TRAINER = """
name = "hello"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
workdir = "."
command = ["{python}", "{trainer}", "tour", "hello"]
[start.ready]
worker = "started"
"""
# Like `tests.hosts.test_leaving`, in a process whose working directory is the hostile one.
DETACH = """
import sys, time
from pathlib import Path
from launcher.cluster.read import load
from launcher.client.run_client import RunClient
from launcher.run.states import RunPhase

file = Path(sys.argv[1])
session = RunClient.launch(load(file, for_launch=True), file.read_text())
while session.snapshot().state is not RunPhase.RUNNING:
    time.sleep(0.05)
session.detach()
print(session.run_id, int(not session.detached))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Each of its modules says that it was imported, and fails."""
    place = tmp_path / "project"
    place.mkdir()
    for name in (*MODULES, *PACKAGES):
        note = f"open({str(place / 'imported')!r}, 'a').write({name!r} + '\\n')"
        text = f"{note}\nraise SystemExit(77)\n"
        if name in PACKAGES:
            (place / name).mkdir()
            (place / name / "__init__.py").write_text(text)
            (place / name / "__main__.py").write_text(text)
        else:
            (place / f"{name}.py").write_text(text)
    return place


def imported(folder: Path) -> str:
    """The names of its modules that something has imported."""
    path = folder / "imported"
    return path.read_text() if path.exists() else ""


def tfmux(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`tfmux` as it is installed, from that folder."""
    return subprocess.run(
        [TFMUX, *words], cwd=folder, capture_output=True, text=True, timeout=2 * PATIENCE
    )


def test_the_names_are_taken(folder: Path) -> None:
    """Given a folder with a `trainer` that fails, when `python -m trainer` is called there, then it
    runs that one. This is what the other tests guard against."""
    done = subprocess.run([sys.executable, "-m", "trainer"], cwd=folder)
    assert done.returncode == 77 and imported(folder) == "trainer\n"


def test_a_run_of_the_bundled_trainer(folder: Path) -> None:
    """Given a folder with modules named like Python's and ours, when `tfmux up` runs the bundled
    trainer there, then the run succeeds, and nothing has imported any of them."""
    done = tfmux(folder, "up", str(write(folder, TRAINER)), "--headless")
    assert done.returncode == 0, done.stderr
    assert "worker:0 |" in done.stdout
    assert not imported(folder)


@pytest.mark.soak
def test_a_demo(folder: Path) -> None:
    """Given a folder with modules named like Python's and ours, when `tfmux demo` is called there,
    then the demo succeeds, and nothing has imported any of them."""
    done = tfmux(folder, "demo", "hello", "--headless")
    assert done.returncode == 0, done.stderr
    assert not imported(folder)


def test_detaching(folder: Path) -> None:
    """Given a folder with modules named like Python's and ours, when a run is launched there and
    detached, then its launcher goes on until a kill, and nothing has imported any of them."""
    argv = [sys.executable, "-P", "-c", DETACH, str(write(folder, CLUSTER))]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=2 * PATIENCE)
    try:
        assert done.returncode == 0, done.stderr
        run_id, status = done.stdout.split()
        assert status == "0"
        assert RunFolder(runs_home() / run_id).launcher_pid() is not None
    finally:
        killed = tfmux(folder, "kill", "--all")
    assert killed.returncode == 0, killed.stderr
    assert not imported(folder)


@pytest.mark.parametrize("warm", ["false", '["decimal"]'])
def test_on_a_host(ssh_server: SshServer, folder: Path, warm: str) -> None:
    """Given modules named like Python's and ours in the workdir and on the login's PYTHONPATH, when
    a run prepares and starts a task on a host, then it succeeds, and none of them is imported."""
    ssh_server.bashrc(f"export PYTHONPATH={folder}\n")
    text = f"""
name = "far"
{ssh_server.host_toml("far", sys.executable)}
[jobs.worker]
tasks = ["far:auto"]
[run]
workdir = "."
prepare = ["test -d launcher"]
command = ["{{python}}", "-I", "-u", "-c", "print('alive')"]
[start]
warm = {warm}
[start.ready]
worker = "started"
"""
    done = tfmux(folder, "up", str(write(folder, text)), "--headless")
    assert done.returncode == 0, done.stderr
    assert "worker:0 | alive" in done.stdout
    assert not imported(folder)


async def test_a_page_that_launches(folder: Path) -> None:
    """Given a folder with modules named like Python's and ours, when a page of `tfmux serve`
    launches a run there, then its task writes, and nothing has imported any of them."""
    file = write(folder, CLUSTER)
    try:
        with serving(str(file), cwd=folder, safe_path=True) as server:
            async with await client(server) as session:
                origin = {"Origin": server.base.rstrip("/")}
                async with session.ws_connect(f"{server.base}ws", headers=origin) as page:
                    shown = b""
                    while b"launch" not in shown:
                        shown += await page.receive_bytes(timeout=PATIENCE)
                    await page.send_json(["stdin", "l"])
                    running = partial(wait_until, lambda: any(map(alive, RunFolder.all())), "a log")
                    await asyncio.to_thread(running)
                assert RunFolder.all()[0].launcher_pid() is not None
    finally:
        killed = await asyncio.to_thread(run, "kill", "--all")
    assert killed.returncode == 0, killed.stderr
    assert not imported(folder)


def alive(folder: RunFolder) -> bool:
    """Its task has written something."""
    log = folder.path / "worker-0.log"
    return log.exists() and log.stat().st_size > 0


def test_python_m(folder: Path) -> None:
    """Given a folder with modules named like Python's, and no `tui`, when `python -m tui.main plan`
    is called there, then it succeeds, and nothing has imported any of them."""
    (folder / "tui").rename(folder / "other")
    argv = [sys.executable, "-m", "tui.main", "plan", str(write(folder, TRAINER))]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert not imported(folder)


def test_the_trainers_folder_is_run_by_any_python(folder: Path) -> None:
    """Given a `trainer` on PYTHONPATH and in the directory of the call, when any Python runs the
    bundled trainer's folder, then that one answers: no `-P` is needed, which 3.10 lacks."""
    trainer = Path(installed_trainer()) / "trainer"
    own = folder / "own"
    shutil.copytree(folder / "trainer", own / "trainer")
    done = subprocess.run(
        [sys.executable, str(trainer), "--help"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(own)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "async" in done.stdout, done.stderr
    assert not imported(folder)


def test_new_clusters_run_the_bundled_trainer(tmp_path: Path) -> None:
    """Given each template, when a new cluster is made of it, then no task's command has `-m`, and
    each runs `train.py` or the bundled trainer's folder."""
    for template in TEMPLATES:
        hosts = {"tf1": "u@tf1.example", "tf2": "u@tf2.example"} if template.remote else {}
        file = write(tmp_path, render(template, "new", hosts, tmp_path))
        for task in make_plan(load(file), "run-1").tasks:
            assert "-m" not in task.argv
            if "train.py" not in task.argv:
                assert task.argv[1].endswith("/trainer")


def test_no_demo_looks_into_the_working_directory() -> None:
    """Given each demo, when it is planned, then its tasks run the bundled trainer by its folder, or
    have PYTHONSAFEPATH set."""
    for file in sorted((REPOSITORY / "tui" / "demos").glob("*.toml")):
        for task in make_plan(load(file), "run-1").tasks:
            script = f"{installed_trainer()}/trainer"
            bundled = (sys.executable, script) in zip(task.argv, task.argv[1:], strict=False)
            assert bundled or task.env.get("PYTHONSAFEPATH"), (file.name, task.argv)


def test_prepare_lines_do_not_import_from_the_users_folders(folder: Path) -> None:
    """Given modules named like Python's and ours in the workdir and on the file's PYTHONPATH, when
    `prepare` lines run, then they have that PYTHONPATH, and nothing has imported any of them."""
    text = CLUSTER.replace(TICKER, "print('alive')").replace("-P", "-I")
    settings = f'prepare = ["echo $PYTHONPATH"]\nenv = {{ PYTHONPATH = "{folder}" }}\n'
    text = text.replace("[run]\n", f"[run]\n{settings}")
    done = tfmux(folder, "up", str(write(folder, text)), "--headless")
    assert done.returncode == 0, done.stderr
    assert f"prepare:0 | {folder}:" in done.stdout
    assert not imported(folder)


def test_an_own_trainer_is_run_where_the_file_says_so(folder: Path) -> None:
    """Given a cluster file with `-m trainer` and a `trainer` that fails beside it, when it is
    launched, then that one is run, and the run fails: to Python the user's folder comes first."""
    text = TRAINER.replace('"{trainer}"', '"-m", "trainer"')
    done = tfmux(folder, "up", str(write(folder, text)), "--headless")
    assert done.returncode == 1
    assert imported(folder) == "trainer\n"
