"""A working directory whose files have the names of Python's modules and of our packages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from launcher.cluster import load
from launcher.cluster.templates import TEMPLATES, render
from launcher.paths import installed_trainer, runs_home
from launcher.plan import make_plan
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
# Like `tests.hosts.test_attach`, in a process whose working directory is the hostile one.
DETACH = """
import sys, time
from pathlib import Path
from launcher.cluster import load
from launcher.session.client import RunClient
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
    """What this module guards against: `python -m` imports from the working directory."""
    done = subprocess.run([sys.executable, "-m", "trainer"], cwd=folder)
    assert done.returncode == 77 and imported(folder) == "trainer\n"


def test_a_run_of_the_bundled_trainer(folder: Path) -> None:
    """Launcher, agent and trainer are those that are installed."""
    done = tfmux(folder, "up", str(write(folder, TRAINER)), "--headless")
    assert done.returncode == 0, done.stderr
    assert "worker:0 |" in done.stdout
    assert not imported(folder)


def test_a_demo(folder: Path) -> None:
    """Its working directory is none of the user's."""
    done = tfmux(folder, "demo", "hello", "--headless")
    assert done.returncode == 0, done.stderr
    assert not imported(folder)


def test_detaching(folder: Path) -> None:
    """The launcher in the background goes on with the run, and answers."""
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
    """The agent and what runs `prepare` lines and tasks there import neither from the files that
    were copied, nor from a PYTHONPATH that the login sets."""
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
    """Page and launcher are processes of their own."""
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
    """`python -m tui.main` from a folder that has no `tui`."""
    (folder / "tui").rename(folder / "other")
    argv = [sys.executable, "-m", "tui.main", "plan", str(write(folder, TRAINER))]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert not imported(folder)


def test_the_trainers_folder_is_run_by_any_python(folder: Path) -> None:
    """Neither a `trainer` in the working directory nor one on PYTHONPATH takes its place; this
    needs no `-P`, which Python 3.10 does not know."""
    trainer = Path(installed_trainer()) / "trainer"
    own = folder / "own"
    own.mkdir()
    (folder / "trainer").rename(own / "trainer")
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
    """No template's command looks into the working directory, here or on hosts."""
    for template in TEMPLATES:
        hosts = {"tf1": "u@tf1.example", "tf2": "u@tf2.example"} if template.remote else {}
        file = write(tmp_path, render(template, "new", hosts, tmp_path))
        for task in make_plan(load(file), "run-1").tasks:
            assert "-m" not in task.argv
            if "train.py" not in task.argv:
                assert task.argv[1].endswith("/trainer")


def test_no_demo_looks_into_the_working_directory() -> None:
    """Each runs the bundled trainer by its folder, or has PYTHONSAFEPATH set."""
    for file in sorted((REPOSITORY / "tui" / "demos").glob("*.toml")):
        for task in make_plan(load(file), "run-1").tasks:
            script = f"{installed_trainer()}/trainer"
            bundled = (sys.executable, script) in zip(task.argv, task.argv[1:], strict=False)
            assert bundled or task.env.get("PYTHONSAFEPATH"), (file.name, task.argv)


def test_prepare_lines_do_not_import_from_the_users_folders(folder: Path) -> None:
    """The script that runs them imports neither from the workdir nor from PYTHONPATH; what it
    runs has the user's environment."""
    text = CLUSTER.replace(TICKER, "print('alive')").replace("-P", "-I")
    settings = f'prepare = ["echo $PYTHONPATH"]\nenv = {{ PYTHONPATH = "{folder}" }}\n'
    text = text.replace("[run]\n", f"[run]\n{settings}")
    done = tfmux(folder, "up", str(write(folder, text)), "--headless")
    assert done.returncode == 0, done.stderr
    assert f"prepare:0 | {folder}:" in done.stdout
    assert not imported(folder)


def test_an_own_trainer_is_run_where_the_file_says_so(folder: Path) -> None:
    """`-m trainer` stays what it is to Python: the user's folder comes first."""
    text = TRAINER.replace('"{trainer}"', '"-m", "trainer"')
    done = tfmux(folder, "up", str(write(folder, text)), "--headless")
    assert done.returncode == 1
    assert imported(folder) == "trainer\n"
