"""Odd records and odd things among the runs: counted and named, and no other run suffers."""

from __future__ import annotations

import errno
import json
import os
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from launcher.ids import TaskId
from launcher.paths import runs_home
from launcher.session.attach import StoredRun
from launcher.session.history import summary
from launcher.session.viewing import Viewer
from launcher.store.records import metric_record
from launcher.store.runs import RunFolder
from launcher.store.stored_events import Damage
from tests.beds.inprocess import SshServer
from tests.command import Up, python_task, run, write

CLUSTER = """
name = "odd"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["sleep", "1000"]
[start.ready]
worker = "started"
"""
START = {"time": 1000.0, "event": "run", "state": "connecting"}
LINES: dict[str, bytes] = {
    "null": b"null\n",
    "number": b"123\n",
    "text": b'"a text"\n',
    "hosts": b'{"hosts": null}\n',
    "receipt": b'{"time": 1, "event": "receipt", "hosts": null, "clean": true}\n',
    "cut": b'{"time": 1000.0, "event": "ru\n',
    "nan": b'{"time": NaN, "event": "run", "state": "ended", "outcome": "success"}\n',
    "late": b'{"time": 1e300, "event": "run", "state": "ended", "outcome": "success"}\n',
    "state": b'{"time": 1, "event": "run", "state": "undone"}\n',
    "task": b'{"time": 1, "event": "metric", "task": 7.0, "step": 1}\n',
    "kind": b'{"time": 1, "event": ["run"]}\n',
    "binary": bytes(range(11, 256)) * 4 + b"\n",
    "deep": b"[" * 100_000 + b"\n",
    "digits": b'{"time": ' + b"9" * 50_000 + b', "event": "run", "state": "ended"}\n',
}


def odd_run(name: str, journal: bytes | None, text: str = CLUSTER) -> RunFolder:
    """The folder of a run with such events."""
    path = runs_home() / f"odd-20261120-183002-{name}"
    path.mkdir(parents=True)
    (path / "cluster.toml").write_text(text)
    folder = RunFolder(path)
    if journal is not None:
        folder.journal.write_bytes(journal)
    return folder


def odd_entries() -> set[str]:
    """Things among the runs that are no runs to be looked at; their names."""
    home = runs_home()
    (home / "a-file").write_text("no folder")
    (home / "dangling").symlink_to("nowhere")
    (home / "circle").symlink_to("circle")
    (home / "no-cluster-file").mkdir()
    (home / "no-cluster-file/events.jsonl").write_text("null\n")
    (home / "folder-for-file/cluster.toml").mkdir(parents=True)
    odd_run("toml", b"", "name = [[[")
    return {
        "a-file",
        "dangling",
        "circle",
        "no-cluster-file",
        "folder-for-file",
        "odd-20261120-183002-toml",
    }


def damage_of(folder: RunFolder) -> Damage:
    """What could not be read of a run."""
    return StoredRun(folder).damage


@pytest.mark.parametrize("name", LINES)
def test_one_odd_line_is_counted_and_the_others_are_read(name: str) -> None:
    """Summary, replay and viewer know the records around it; the run is not taken for ended."""
    end = {**START, "state": "running", "note": "seen"}
    whole = [json.dumps(START).encode() + b"\n", LINES[name], json.dumps(end).encode() + b"\n"]
    folder = odd_run(name, b"".join(whole))
    stored = StoredRun(folder)
    assert stored.damage.records == 1
    assert stored.replay.snapshot.notes == ("seen",)
    assert not stored.over and stored.replay.met is None
    told = summary(folder)
    assert (told.started, told.last) == (1000.0, 1000.0)
    assert not told.over and told.problem == f"1 record of {folder.run_id} could not be read"
    viewer = Viewer(folder)
    try:
        assert viewer.snapshot().notes == ("seen", told.problem)
    finally:
        viewer.close()


def test_a_line_of_100_mb_costs_no_memory() -> None:
    """It is counted, and what stands before and behind it is read."""
    folder = odd_run("long", json.dumps(START).encode() + b"\n")
    with folder.journal.open("r+b") as file:
        file.seek(100 << 20)
        file.write(b"\n" + json.dumps({**START, "note": "behind"}).encode() + b"\n")
    tracemalloc.start()
    try:
        stored = StoredRun(folder)
        told = summary(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stored.damage.records == 1
    assert stored.replay.snapshot.notes == ("behind",)
    assert told.last == 1000.0
    assert peak < 20 << 20


def test_a_disk_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """EIO from the events, and from the folder of all runs."""
    folder = odd_run("disk", json.dumps(START).encode() + b"\n")

    def broken(*arguments: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("launcher.store.stored_events.open_regular", broken)
        patch.setattr("launcher.session.history.open_regular", broken)
        assert "Input/output error" in damage_of(folder).reason
        assert "Input/output error" in summary(folder).problem
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", broken)
        assert [one.reason for one in RunFolder.scan()[1]] == ["Input/output error"]


def test_a_run_that_is_just_being_made_is_no_damage() -> None:
    """Neither an empty folder nor one without events is named."""
    (runs_home() / "empty").mkdir(parents=True)
    folder = odd_run("new", None)
    found, unreadable = RunFolder.scan()
    assert ([one.run_id for one in found], unreadable) == ([folder.run_id], [])
    assert not damage_of(folder)


def test_ps_logs_and_kill_all_beside_odd_runs(tmp_path: Path) -> None:
    """A living run is listed, its logs are shown and it is killed, whatever stands beside it;
    what could not be looked at is named, and then a kill of all does not count as done."""
    odd = [odd_run(name, line) for name, line in LINES.items()]
    names = odd_entries()
    with Up("up", str(write(tmp_path, CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        listed = run("ps")
        assert listed.returncode == 0, listed.stderr
        assert up.run_id in listed.stdout
        for name in names:
            assert f"tfmux: {name} could not be read: " in listed.stderr
        for command in (["logs", up.run_id], ["logs", odd[0].run_id]):
            shown = run(*command)
            assert (shown.returncode, shown.stderr) == (0, "")
        killed = run("kill", "--all")
        assert killed.returncode == 4, killed.stderr
        assert f"run {up.run_id}:" in killed.stdout
        assert "nothing is left on any host" in killed.stdout
        for name in names:
            assert f"tfmux: {name} could not be read: " in killed.stderr
        assert "Traceback" not in listed.stderr + killed.stderr
        assert up.wait() == 130, up.told()


def test_no_active_runs_is_said_only_when_all_were_asked() -> None:
    """Beside something that could not be looked at, nobody knows."""
    for command in (["ps"], ["kill", "--all"]):
        asked = run(*command)
        assert (asked.returncode, asked.stderr) == (0, "tfmux: no active runs\n")
    runs_home().mkdir(parents=True)
    (runs_home() / "circle").symlink_to("circle")
    for command, code in ((["ps"], 0), (["kill", "--all"], 4)):
        asked = run(*command)
        assert asked.returncode == code
        assert asked.stderr.startswith("tfmux: circle could not be read: ")
        assert "no active runs" not in asked.stderr


def test_kill_of_a_run_whose_cluster_file_is_broken_asks_its_launcher(tmp_path: Path) -> None:
    """Its own launcher still knows the hosts: it is told, and the exit code says that nothing was
    confirmed here."""
    with Up("up", str(write(tmp_path, CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        RunFolder.find(up.run_id).cluster_file.write_text("name = [[[")
        killed = run("kill", up.run_id)
        assert killed.returncode == 4, killed.stderr
        assert f"its launcher (pid {up.process.pid}) was told to kill it" in killed.stderr
        assert "cluster.toml:1" in killed.stderr
        assert up.wait() == 130, up.told()


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _nowhere(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


def _empty(path: Path) -> None:
    path.write_text("")


def _said_to_be_over(path: Path) -> None:
    end = {**START, "state": "ended", "outcome": "success", "exit_code": 0}
    receipt = {"time": 1001.0, "event": "receipt", "hosts": [], "clean": True}
    odd = {"time": 1.0, "event": "host", "host": "far", "state": 7}
    path.write_text("".join(json.dumps(one) + "\n" for one in (START, odd, end, receipt)))


@pytest.mark.parametrize(
    "make", [_folder, _pipe, _nowhere, _circle, _empty, _said_to_be_over], ids=lambda f: f.__name__
)
def test_kill_needs_no_events(make: Any, ssh_server: SshServer, tmp_path: Path) -> None:
    """The launcher is dead and its events are gone or worthless: `kill` asks every host of the
    cluster file, and what lives there ends."""
    script = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(1000)"
    text = f"""
name = "orphan"
{ssh_server.host_toml("far", sys.executable)}
[jobs.worker]
tasks = ["far:auto"]
[run]
command = {json.dumps(list(python_task(script)))}
workdir = ""
on_disconnect = "keep"
grace = 1
[start.ready]
worker = "started"
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        pid = int(up.log("worker:0", "pid ")["text"].split()[1])
        folder = RunFolder.find(up.run_id)
        up.process.kill()
        up.process.wait()
    assert Path(f"/proc/{pid}").exists()
    folder.journal.unlink()
    make(folder.journal)
    killed = run("kill", folder.run_id)
    assert killed.returncode == 0, killed.stdout + killed.stderr
    assert "far: " in killed.stdout and "nothing is left on any host" in killed.stdout
    assert not Path(f"/proc/{pid}").exists()


def test_metrics_of_any_name_leave_the_record_alone(tmp_path: Path) -> None:
    """Groups called as the record's own keys stand in `values`, and the run is read as ever."""
    names = ("time", "event", "task", "host", "values", "rate", "run", "state", "step")
    pattern = " ".join(f"{name}=(?P<{name}>[0-9]+)" for name in names)
    line = " ".join(f"{name}={number}" for number, name in enumerate(names))
    text = CLUSTER.replace('["sleep", "1000"]', json.dumps(["echo", line]))
    text += f"[metrics]\npattern = '{pattern}'\n"
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 0, up.told()
    (record,) = up.of("metric")
    assert record["values"] == {name: float(number) for number, name in enumerate(names)}
    assert (record["task"], record["host"], record["step"]) == ("worker:0", "localhost", 8)
    assert record["time"] > 1e9 and "rate" not in record and "state" not in record
    folder = RunFolder.find(up.run_id)
    assert (damage_of(folder).records, summary(folder).step) == (0, 8)
    assert StoredRun(folder).replay.snapshot.tasks[0].metrics == record["values"]
    assert run("ps").stderr == "tfmux: no active runs\n"


def test_the_metric_record_has_values_that_are_numbers() -> None:
    """All finite values stand in `values`; step, loss and rate at the top as well."""
    values = {"step": 3.0, "loss": float("inf"), "nan": float("nan"), "acc": 0.5}
    record = metric_record(1000.0, TaskId("worker", 0), "tf1", values, 2.00049)
    assert record == {
        "time": 1000.0,
        "event": "metric",
        "task": "worker:0",
        "host": "tf1",
        "step": 3.0,
        "rate": 2.0,
        "values": {"step": 3.0, "acc": 0.5},
    }
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_metrics_of_the_earlier_form_are_read() -> None:
    """Values at the top level, as 0.1 wrote them."""
    old = {"time": 1001.0, "event": "metric", "task": "worker:0", "host": "localhost"}
    line = {**old, "step": 7.0, "loss": 0.25, "acc": 0.5, "rate": 1.5}
    folder = odd_run("old", "".join(json.dumps(one) + "\n" for one in (START, line)).encode())
    stored = StoredRun(folder)
    view = stored.replay.snapshot.tasks[0]
    assert not stored.damage
    assert (view.step, view.loss, view.rate) == (7, 0.25, 1.5)
    assert view.metrics == {"step": 7.0, "loss": 0.25, "acc": 0.5}
    assert (summary(folder).step, summary(folder).loss) == (7, 0.25)
