"""Warm start of the bundled trainer, with TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.command import Up
from tests.support.paths import REPOSITORY


def test_the_demos_workers_import_tensorflow_before_their_stage(tmp_path: Path) -> None:
    """All have their process at once, in which no thread of Python begins before its stage; the
    workers are ready one after the other and train. The log is that of an ordinary start."""
    text = (REPOSITORY / "tui" / "demos" / "async.toml").read_text()
    file = tmp_path / "demo.toml"
    file.write_text(
        text.replace("--steps=2000", "--steps=20").replace(
            "[run]\n", f'[run]\nlogdir = "{tmp_path}/logs"\n', 1
        )
    )
    with Up("up", str(file), "--json") as up:
        warming = up.wait_for(
            lambda e: (e.get("task"), e.get("state")) == ("worker:1", "warming") and "pid" in e,
            "the process of worker:1",
        )
        maps = Path(f"/proc/{warming['pid']}/cmdline").read_bytes().split(b"\0")
        assert b"tensorflow" in maps
        times = [up.state(task, "ready")["time"] for task in ("ps:0", "worker:0", "worker:1")]
        assert times == sorted(times)
        assert up.state("worker:1", "ready")["pid"] == warming["pid"]
        assert up.wait() == 0, up.transcript()
    folder = RunFolder(runs_home() / up.run_id).path
    for task in ("worker-0", "worker-1"):
        log = (folder / f"{task}.log").read_text()
        assert "starts at global step" in log
        assert "tfmux" not in log and os.fspath(REPOSITORY / "launcher") not in log
