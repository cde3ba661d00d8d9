"""Any bytes as a run's records: nothing that reads them fails, and what is read is bounded."""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.history.run_list import read_run
from launcher.history.stored import FinishedRun, StoredRun
from launcher.paths import runs_home
from launcher.run import events as ev
from launcher.run.instructions import KillHost
from launcher.store.runs import RunFolder
from tests.support.budgets import examples
from tui.outcome import report

# Any bytes as a run's stream: nothing that reads them fails, and who takes the run up asks every
# host that may hold something.

CLUSTER = """
name = "fuzzed"
[jobs.ps]
tasks = ["localhost:auto"]
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["true"]
"""
BUDGET = 20.0
"""Seconds: some four are used on a machine that is not busy."""
_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["localhost", "worker:0", "ended", "success", "up", "\x1b[2J", "9e999"]),
    st.lists(st.integers(), max_size=2),
    st.just({"a": {"b": [None]}}),
)
RECEIPT = {"host": "localhost", "confirmed": True, "survivors": [], "unreachable_until": 1e9}
_RUN = {"event": "run", "run": "fuzzed-1", "name": "fuzzed", "started": 1000.0, "stage": 0}
_PS = {"event": "task", "task": "ps:0", "host": "localhost", "address": "localhost:1", "attempt": 1}
_ENDED = {"outcome": "success", "exit_code": 0, "ended": 1001.0, "state": "ended"}
_RECORDS: list[dict[str, object]] = [
    {**_RUN, "state": "connecting"},
    {**_RUN, "state": "starting", "resume": ["a-1", "a-0"]},
    {**_RUN, "state": "killing", "cause": "person", "kill_deadline": 1010.0, "kill_asked": True},
    {**_RUN, **_ENDED},
    {"event": "host", "host": "localhost", "destination": "x", "state": "up", "contacted": True},
    {"event": "facts", "host": "localhost", "facts": {"home": "/root", "ports": {"worker:0": 47}}},
    {**_PS, "state": "starting"},
    {**_PS, "state": "ready", "pid": 7, "attempts": [{"number": 1, "log_start": 0, "time": 1.0}]},
    {**_PS, "state": "lost", "state_before_loss": "ready"},
    {**_PS, "state": "failed", "exit_code": 1, "ended": 1001.0, "intent": "kill"},
    {"event": "note", "number": 1, "note": "seen"},
    {"event": "receipt", "hosts": [RECEIPT], "begun": True},
    {**_RUN, **_ENDED, "event": "end", "tasks": 3, "hosts": ["localhost"], "clean": True},
]


@st.composite
def _record(draw: st.DrawFn) -> bytes:
    """A record with some fields exchanged for odd ones, at any depth; or cut."""
    record: dict[str, object] = {"time": 1000.0, **draw(st.sampled_from(_RECORDS))}
    record = json.loads(json.dumps(record))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place: object = record
        while True:
            if isinstance(place, dict) and place:
                key = draw(st.sampled_from(sorted(place)))
                if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                    place = place[key]
                    continue
                if draw(st.booleans()):
                    place[key] = copy.deepcopy(draw(_ODD))  # it may be changed in the next turn
                else:
                    del place[key]
            elif isinstance(place, list) and place and isinstance(place[0], dict):
                place = place[0]
                continue
            break
    line = json.dumps(record).encode()
    return line[: draw(st.integers(0, len(line)))] if draw(st.integers(0, 9)) == 0 else line


def _file() -> st.SearchStrategy[bytes]:
    return st.one_of(
        st.binary(max_size=200),
        st.lists(_ODD.map(lambda value: json.dumps(value).encode()), max_size=5).map(b"\n".join),
        st.lists(_record(), max_size=12).map(lambda lines: b"\n".join(lines) + b"\n"),
    )


@pytest.fixture(scope="module")
def deadline() -> float:
    """When this module's examples must have ended."""
    return time.monotonic() + BUDGET


@examples(100)
@given(stream=_file() | st.none())
def test_any_bytes_are_read(
    tmp_path_factory: pytest.TempPathFactory, deadline: float, stream: bytes | None
) -> None:
    """Given any bytes as a run's stream, when the run is listed, shown and taken up to be killed,
    then nothing fails, and the kill asks all hosts that may hold something of the run."""
    if time.monotonic() > deadline:
        return  # on a machine that is busy
    path = tmp_path_factory.getbasetemp() / "fuzzed-1"
    path.mkdir(exist_ok=True)
    (path / "cluster.toml").write_text(CLUSTER)
    folder = RunFolder(path)
    folder.events.unlink(missing_ok=True)
    if stream is not None:
        folder.events.write_bytes(stream)

    told = read_run(folder)
    run = StoredRun(folder)
    assert not told.over or run.over, "the list says over, the whole record does not"
    report(FinishedRun(run).snapshot(), Path(path))
    report(run.snapshot(), Path(path))

    past = StoredRun(folder)
    contacted = set(past.run.data.contacted_hosts)
    instructions = past.run.handle(ev.Attached(2000.0, past.complete))
    instructions += past.run.handle(ev.KillAll(2000.0))
    past.run.validate()
    killed = {one.host for one in instructions if isinstance(one, KillHost)}
    assert killed == (contacted if past.complete else {"localhost"})


# Gigabytes in the files of a run's folder that hold no record: what is read of them is bounded.

RUN_ID = "huge-20261120-183002-7f3a"
RUN = {"event": "run", "run": RUN_ID, "name": "huge", "started": 1000.0, "state": "running"}
HUGE = """
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
    folder.cluster_file.write_text(HUGE)
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
