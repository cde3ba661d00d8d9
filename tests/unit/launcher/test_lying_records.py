"""Records that contradict another file of their run's folder: read as damaged, and believed by
nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.paths import runs_home
from launcher.run import events as ev
from launcher.run.instructions import KillHost
from launcher.session.kept_results import hosts_with_results
from launcher.session.run_list import read_run
from launcher.session.stored import FinishedRun, StoredRun
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tui.outcome import report

TEXT = cluster_text(
    {"ps": "tf1:2222", "worker": "tf1:2223 tf2:2222"},
    hosts={"tf1": {"ssh": "tf1.invalid"}, "tf2": {"ssh": "tf2.invalid"}},
    command=["x"],
)
RUN_ID = "lies-20261120-183002-7f3a"
RUN = {"event": "run", "run": RUN_ID, "name": "lies", "started": 1000.0, "stage": 0}
ENDED = {"outcome": "success", "exit_code": 0, "ended": 1002.0, "state": "ended"}
WORKER = {"event": "task", "task": "worker:0", "host": "tf1", "address": "tf1:2223"}
HOST = {"event": "host", "destination": "x", "state": "up", "contacted": True}
TRUTH: list[dict[str, Any]] = [
    {**RUN, "state": "running"},
    {**HOST, "host": "tf1"},
    {**HOST, "host": "tf2"},
    {**WORKER, "state": "running", "attempt": 1, "pid": 7},
]
FAILURE = {"task": "worker:0", "host": "tf1", "how": "exit 1", "time": 1001.0}
VERDICT = {"tasks": ["worker:7"], "kind": "named", "sure": True, "text": "worker:7 is guilty"}
LIES: dict[str, dict[str, Any]] = {
    "host": {**HOST, "host": "tf9"},
    "usage": {**HOST, "host": "tf1", "usage": {"worker:7": [1.0, 1]}},
    "usage of another host": {**HOST, "host": "tf2", "usage": {"worker:0": [1.0, 1]}},
    "task": {**WORKER, "task": "worker:7", "state": "running", "attempt": 1},
    "job": {**WORKER, "task": "evaluator:0", "state": "running", "attempt": 1},
    "host of a task": {**WORKER, "host": "tf2", "state": "running", "attempt": 1},
    "unknown host of a task": {**WORKER, "host": "tf9", "state": "running", "attempt": 1},
    "facts": {"event": "facts", "host": "tf9", "facts": {"home": "/root"}},
    "ports": {"event": "facts", "host": "tf1", "facts": {"ports": {"worker:7": 47}}},
    "ports of another host": {"event": "facts", "host": "tf1", "facts": {"ports": {"worker:1": 4}}},
    "receipt": {"event": "receipt", "begun": True, "hosts": [{"host": "tf9", "confirmed": True}]},
    "failed task": {**RUN, "state": "killing", "first_failure": {**FAILURE, "task": "worker:7"}},
    "failed host": {**RUN, "state": "killing", "first_failure": {**FAILURE, "host": "tf2"}},
    "other failures": {
        **RUN,
        "state": "killing",
        "first_failure": {**FAILURE, "others": ["worker:7"]},
    },
    "restart": {**RUN, "state": "running", "restart_cause": {**FAILURE, "task": "ps:3"}},
    "verdict": {**RUN, "state": "running", "verdict": VERDICT},
    "results": {**RUN, "state": "running", "results_kept": [{"host": "tf9", "files": 1}]},
    "another run": {**RUN, **ENDED, "run": "other-20261120-183002-7f3a"},
    "end of another run": {
        **RUN,
        **ENDED,
        "event": "end",
        "run": "other-20261120-183002-7f3a",
        "clean": True,
        "hosts": ["tf1", "tf2"],
    },
    "end": {**RUN, **ENDED, "event": "end", "clean": True, "hosts": ["tf9"]},
}


def stored(*records: dict[str, Any], text: str = TEXT) -> RunFolder:
    """The folder of a run with such a stream."""
    path = runs_home() / RUN_ID
    path.mkdir(parents=True, exist_ok=True)
    (path / "cluster.toml").write_text(text)
    (path / "launch.json").write_text(json.dumps({"run": RUN_ID}))
    lines = [json.dumps({"time": 1001.0, **record}) for record in records]
    (path / "events.jsonl").write_text("\n".join([*lines, ""]))
    return RunFolder(path)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_damage_and_the_kill_goes_to_the_hosts_of_the_cluster_file(lie: str) -> None:
    """Whether it is the last word or not."""
    for records in ([*TRUTH, LIES[lie]], [TRUTH[0], LIES[lie], *TRUTH[1:]]):
        folder = stored(*records)
        run = StoredRun(folder)
        assert run.damage.records == 1
        assert {view.name for view in run.snapshot().hosts} == {"tf1", "tf2"}
        assert run.snapshot().run_id == RUN_ID and not run.over
        assert lie == "end" or not read_run(folder).over  # a list reads no cluster file
        report(FinishedRun(run).snapshot(), folder.path)
        instructions = run.run.handle(ev.Attached(2000.0, run.complete))
        instructions += run.run.handle(ev.KillAll(2000.0))
        killed = {one.host for one in instructions if isinstance(one, KillHost)}
        assert killed <= {"tf1", "tf2"} and set(run.data.contacted_hosts) == {"tf1", "tf2"}
        assert {host.name for host in hosts_with_results(run)} <= {"tf1", "tf2"}


def test_the_truth_is_no_damage() -> None:
    """With hosts that Slurm has yet to name, and names with ranges, too."""
    assert not StoredRun(stored(*TRUTH)).damage
    text = 'name = "lies"\n[slurm]\nnodes = 2\ntime = "01:00:00"\n'
    text += '[jobs.worker]\ntasks = ["node0:auto", "node1:auto"]\ncommand = ["x"]\n'
    waits = {**TRUTH[0], "state": "queued"}
    hosts = [{**HOST, "host": f"node{n}", "contacted": False} for n in (0, 1)]
    assert not StoredRun(stored(waits, *hosts, text=text)).damage
