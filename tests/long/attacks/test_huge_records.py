"""Gigabytes in the files of a run's folder that hold no record: what is read of them is bounded."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.session.run_list import read_run
from launcher.store.runs import RunFolder

RUN_ID = "huge-20261120-183002-7f3a"
RUN = {"event": "run", "run": RUN_ID, "name": "huge", "started": 1000.0, "state": "running"}
CLUSTER = """
name = "huge"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto", "localhost:auto"]
command = ["true"]
"""


@pytest.mark.parametrize("name", ["events.jsonl", "metrics.jsonl", "cluster.toml", "launch.json"])
@pytest.mark.parametrize("fill", ["zeros", "lines"])
def test_gigabytes_that_hold_no_record_hold_no_list(name: str, fill: str) -> None:
    """Given six gigabytes of zeros, or a million lines of nothing: what is read of them is bounded,
    and the record at their end is known all the same."""
    folder = RunFolder(runs_home() / RUN_ID)
    folder.path.mkdir(parents=True)
    folder.cluster_file.write_text(CLUSTER)
    (folder.path / "launch.json").write_text(json.dumps({"run": RUN_ID}))
    folder.events.write_text(json.dumps({"time": 1001.0, **RUN}) + "\n")
    path = folder.path / name
    last = path.read_bytes().splitlines(keepends=True)[-1] if path.exists() else b"{}\n"
    if fill == "zeros":
        path.touch()
        os.truncate(path, 6 << 30)
    with path.open("ab") as file:
        if fill == "lines":
            file.write(b"{}\n" * 1_000_000)
        file.write(b"\n" + last)
    before = time.process_time()
    told = read_run(RunFolder(folder.path))
    assert time.process_time() - before < 10 * _cost_of(256 << 20, Path(folder.path))
    if name == "events.jsonl":
        assert told.summary.tasks == 3 and told.problem
    assert told.folder.run_id == RUN_ID


def _cost_of(size: int, folder: Path) -> float:
    """Processor time that it takes to read so many bytes, here and now."""
    path = folder / "zeros"
    with path.open("wb") as file:
        file.truncate(size)
    before = time.process_time()
    with path.open("rb") as file:
        while file.readline(1 << 18):
            pass
    return max(time.process_time() - before, 0.05)
