"""A log that a new launcher has not counted: nothing waits for that."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from launcher.paths import runs_home
from launcher.run.states import Outcome, RunPhase
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder
from tests.support.command import Up, python_task, run, write
from tests.support.patience import PATIENCE, wait_until
from tests.testbed import proc

HOURS_OF_COUNTING = 1 << 42
"""Bytes of a log with holes: counting them takes hours."""
A_WHILE = 24 << 14
"""Bytes of an index for 1 GiB, which takes some seconds to count."""
WORDS = """
import os, time
print('begun', flush=True)
while not os.path.exists(END):
    time.sleep(0.02)
raise SystemExit(3)
"""


def abandoned(tmp_path: Path) -> RunFolder:
    """A run with a huge log and no index, whose launcher has died; its task goes on until there is
    a file `end`."""
    words = json.dumps(list(python_task(WORDS.replace("END", repr(str(tmp_path / "end"))))))
    lines = ['name = "huge"', "[jobs.worker]", 'tasks = ["localhost:auto"]', f"command = {words}"]
    lines += ["ready = { log = '^begun' }", "[run]", 'workdir = ""', "grace = 1"]
    lines += ['on_disconnect = "keep"']
    with Up("up", str(write(tmp_path, "\n".join(lines) + "\n")), "--json") as up:
        up.state("worker:0", "ready")
        run_id = up.run_id
        up.kill_launcher()
    log = runs_home() / run_id / "worker-0.log"
    wait_until(lambda: RunFolder(log.parent).launcher_pid() is None, "the launcher is dead")
    log.with_suffix(".idx").unlink(missing_ok=True)
    os.truncate(log, HOURS_OF_COUNTING)
    return RunFolder(log.parent)


def end(folder: RunFolder) -> None:
    """Ends what a failed test has left."""
    for process in proc.scan(having=folder.run_id):
        proc.signal_process(process, signal.SIGKILL)


def test_a_kill_does_not_wait_for_the_count_of_a_log(tmp_path: Path) -> None:
    """Given an abandoned run with a log that takes hours to count, when `tfmux kill` is called,
    then receipt and end come long before the log is counted."""
    folder = abandoned(tmp_path)
    try:
        done = run("kill", folder.run_id)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no process is left" in done.stdout
        counted = (folder.path / "worker-0.idx").stat().st_size
        assert counted < HOURS_OF_COUNTING >> 12, "the whole log had been counted"
    finally:
        end(folder)


def test_a_long_count_is_no_disk_that_does_not_answer(tmp_path: Path) -> None:
    """Given an abandoned run that is taken up while its huge log is counted, when its task exits,
    then the run ends with that failure, and no note speaks of a disk that does not answer. The disk
    of a busy machine may be silent for a second itself, but not in each of three runs."""
    for number in range(3):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        if not notes_of_disks(folder):
            return
    raise AssertionError("each time, the count was taken for a disk that does not answer")


def notes_of_disks(tmp_path: Path) -> list[str]:
    """What a run says of the disk while its log is counted."""
    folder = abandoned(tmp_path)
    index = folder.path / "worker-0.idx"
    try:
        client = RunClient.attach(folder)
        wait_until(lambda: client.snapshot().state is RunPhase.RUNNING, "it runs")
        wait_until(lambda: index.exists() and index.stat().st_size > A_WHILE, "it is being counted")
        (tmp_path / "end").touch()
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        client.close()
        assert ended.outcome is Outcome.FAILED and ended.clean
        assert ended.first_failure is not None and ended.first_failure.how == "exit 3"
        return [note for note in ended.notes if "disk" in note or "not stored" in note]
    finally:
        end(folder)
