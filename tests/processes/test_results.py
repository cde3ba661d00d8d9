"""What tasks have made or changed in the workdir of a host: it stays there, and is named."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
from tests.testbed.inprocess import SshServer

WORK = """
import os, pathlib
here = pathlib.Path(".")
print("FOUND", *sorted(str(path) for path in here.rglob("*")))
(here / "model.ckpt").write_text("model")
(here / "staged.txt").write_text("changed")
(here / "deep/er").mkdir(parents=True)
(here / "deep/er/2.ckpt").write_text("2")
os.chmod("tool.py", 0o755)
for name in ("__pycache__/tool.pyc", "a.tmp", "keep.tmp", "build/x", "own/.gitignore", "own/x",
             "env/pyvenv.cfg", "env/bin/python", "sub/secret", "sub/fine"):
    path = here / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("*" if path.name == ".gitignore" else "by-product")
os.symlink("model.ckpt", "latest")
os.symlink("/etc", "outside")
os.mkfifo("pipe")
(here / "empty").mkdir()
"""
LEFT = {"model.ckpt", "staged.txt", "deep/er/2.ckpt", "keep.tmp", "sub/fine", "latest", "outside"}
"""Results of that script: not what is ignored, nor what a virtual environment or a cache is."""


def workdir(tmp_path: Path) -> Path:
    """A workdir with rules of what is ignored, in the file and in folders."""
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    (root / "staged.txt").write_text("staged")
    (root / "tool.py").write_text("pass")
    (root / ".gitignore").write_text("*.tmp\n!keep.tmp\n")
    (root / "sub/.gitignore").write_text("secret\n")
    return root


def cluster(server: SshServer, script: str = WORK, run: str = "", tasks: int = 1) -> str:
    """Workers on the host `far` that run a script in a copy of `work`."""
    return cluster_text(
        {"worker": ["far"] * tasks},
        "results",
        server.host_toml("far", sys.executable),
        command=python_task(script),
        workdir="work",
        start={"ready": {"worker": "started"}},
        more=run,
    )


def state(server: SshServer, run_id: str) -> Path:
    """The folder of a run on the host."""
    return server.home / f".local/state/tfmux/{run_id}.far"


def files(folder: Path) -> set[str]:
    """What is below a folder but for folders."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def kept(up: Up) -> list[dict[str, Any]]:
    """The results that stay on hosts, as the last event of the run has them."""
    found: list[dict[str, Any]] = up.of("run")[-1].get("results_kept", [])
    return found


def nothing_staged(state_home: Path) -> bool:
    """Whether no workdir is left of any run."""
    return not list(state_home.glob("*/stage"))


def wait_gone(folder: Path) -> None:
    """Waits until nothing but results is left of a run on the host: its agent has gone."""
    wait_until(lambda: {path.name for path in folder.iterdir()} == {"results"}, "its agent goes")


def test_what_tasks_leave_stays_on_the_host_and_is_named(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given a task that makes and changes files, some of them ignored, when it ends, then those
    that are not ignored stay on the host, a line says how many and where, and the next launch
    sends nothing and finds the workdir as it is here."""
    workdir(tmp_path)
    file = write(tmp_path, cluster(ssh_server, run='exclude = ["build/"]'))
    found = []
    for _ in range(2):
        with Up("up", str(file), "--json") as up:
            assert up.wait() == 0, up.transcript()
        (one,) = kept(up)
        results = state(ssh_server, up.run_id) / "results"
        assert (one["host"], one["files"], one["folder"]) == ("far", 5, str(results))
        assert one["bytes"] == 33
        line = f"far: 5 new files, 33 B, kept in {results}; `tfmux collect {up.run_id}` brings them"
        assert line in up.said.splitlines()
        wait_gone(results.parent)
        assert files(results) == LEFT
        assert (results / "staged.txt").read_text() == "changed"
        found.append(next(e["text"] for e in up.of("log") if e["text"].startswith("FOUND")))
        sent = [e for e in up.of("host") if "staged_total" in e]
    assert found[0] == found[1] and not sent


def test_nothing_is_said_and_nothing_stays_where_tasks_leave_nothing(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Neither of a task that only reads, nor of one whose new files were collected."""
    workdir(tmp_path)
    for script, run in (("", ""), (WORK, 'collect = ["*.*", "deep", "sub/fine", "latest"]')):
        text = cluster(ssh_server, script, run + '\nexclude = ["build/"]')
        with Up("up", str(write(tmp_path, text)), "--json") as up:
            assert up.wait() == 0, up.transcript()
        assert kept(up) == [] and "new file" not in up.said
        state_home = state(ssh_server, up.run_id).parent
        wait_until(partial(nothing_staged, state_home), "the agent goes")
    here = RunFolder.find(up.run_id).path / "collected/far"
    assert files(here) >= {"model.ckpt", "staged.txt", "deep/er/2.ckpt", "keep.tmp", "fine"}
