"""Clients of a run: what they see, say and survive. Real launcher processes, real tasks."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from launcher.agent.folders import FolderError
from launcher.client import launcher_link, supervision
from launcher.client.launcher_process import LauncherProcess
from launcher.client.run_client import RunClient
from launcher.client.supervision import HEARD_SECONDS, MOST_RESTARTS
from launcher.cluster.read import load
from launcher.history.stored import StoredRun
from launcher.ids import TaskId, new_run_id
from launcher.plan.planner import make_plan
from launcher.run.snapshot import Snapshot
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.store import launcher_socket
from launcher.store.launcher_socket import unknown
from launcher.store.runs import RunFolder
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import write
from tests.support.patience import PATIENCE
from tests.support.snapshots import wait
from tests.testbed import guard, proc

TICKER = (
    "import socket, sys, time\n"
    "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "for step in range(100000):\n"
    "    print('step', step, 'loss', 1 / (step + 1), flush=True)\n"
    "    time.sleep(0.05)\n"
)
CLUSTER = cluster_text(
    {"ps": 1, "worker": 1},
    "seen",
    command=["{python}", "-u", "-c", TICKER, "{port}"],
    workdir="",
    on_disconnect="stop",
)
WORKER = TaskId("worker", 0)


@contextmanager
def launched(folder: Path, text: str = CLUSTER) -> Iterator[RunClient]:
    """A run with its launcher process, and the first client of it."""
    file = write(folder, text)
    client = RunClient.launch(load(file), text)
    client.await_state(PATIENCE)
    try:
        yield client
    finally:
        if not client.closed:
            client.kill_all(force=True)
            client.wait(PATIENCE)
            client.close()


@contextmanager
def attached(folder: RunFolder) -> Iterator[RunClient]:
    """Another client."""
    client = RunClient.attach(folder)
    try:
        yield client
    finally:
        client.close()


def stepping(least: int) -> Callable[[Snapshot], object]:
    """The worker has come to a step."""
    return lambda snapshot: (snapshot.task(WORKER).step or 0) >= least


def test_a_second_client_sees_all_that_the_first_sees(tmp_path: Path) -> None:
    """States, steps, loads of hosts, series and whole logs; also one who comes late."""
    with launched(tmp_path) as first, attached(first.folder) as second:
        heard = threading.Event()
        second.subscribe(lambda _: heard.set())
        wait(second, stepping(5), "step 5")
        seen = wait(second, lambda s: s.hosts[0].usage and s.hosts[0].cpu is not None, "loads")
        own = wait(first, lambda s: s.hosts[0].usage, "loads")
        assert [(t.id, t.pid, t.address, t.attempts, t.started) for t in seen.tasks] == [
            (t.id, t.pid, t.address, t.attempts, t.started) for t in own.tasks
        ]
        assert seen.hosts[0].memory_total == own.hosts[0].memory_total
        assert seen.hosts[0].usage.keys() == own.hosts[0].usage.keys()
        assert (seen.rate is not None) and seen.started == own.started
        assert heard.is_set()
        with attached(first.folder) as late:
            assert late.run_id == first.run_id
            wait(late, stepping(5), "step 5")
            wait(late, lambda _: late.series(WORKER).points.times, "metrics")
            assert b"step 0 loss 1.0\n" in late.logs.open(WORKER).read(0, 1000)
            size = late.logs.open(WORKER).size
            wait(late, lambda _: late.logs.open(WORKER).size > size, "a log that grows")


def test_every_client_may_end_the_run_and_all_see_the_receipt(tmp_path: Path) -> None:
    """Receipt, exit code and notes are the launcher's own."""
    with launched(tmp_path) as first, attached(first.folder) as one:
        with attached(first.folder) as other:
            wait(one, stepping(1), "step 1")
            one.kill_all()
            for client in (one, other, first):
                ended = wait(client, lambda s: s.state is RunPhase.ENDED and s.receipt, "the end")
                assert (ended.outcome, ended.exit_code) == (Outcome.KILLED, 130)
                assert ended.receipt is not None and ended.receipt.clean
                assert client.wait(PATIENCE)
            assert one.snapshot().receipt == first.snapshot().receipt
            assert not guard.tasks_here()
        wait(first, lambda _: first.folder.launcher_pid() is None, "its launcher process has gone")
        assert (first.folder.path / "launcher.log").read_text() == "", "a traceback"


def test_a_client_that_detaches_ends_nothing(tmp_path: Path) -> None:
    """Neither does one that is attached when it goes without a word."""
    with launched(tmp_path) as first:
        wait(first, stepping(1), "step 1")
        first.detach()
        assert first.detached and first.closed
        with attached(first.folder) as second:
            step = wait(second, stepping(1), "a step").step or 0
            with attached(first.folder):
                pass
            wait(second, lambda s: (s.step or 0) > step + 5, "later steps")
            second.kill_all()
            assert second.wait(PATIENCE)


def test_a_detach_is_read_although_the_launcher_writes_first() -> None:
    """Its next write found a closed socket then, and lost what it had not read yet: a run that was
    left under load was killed."""
    ours, theirs = socket.socketpair()
    connection = launcher_socket.ControlConnection(ours)
    assert connection.send({"command": "detach"})
    closing = threading.Thread(target=lambda: connection.close(flush=True))
    closing.start()
    with theirs:
        for _ in range(20):
            theirs.sendall(b"{}\n" * 1000)
        assert theirs.recv(1000) == b'{"command": "detach"}\n'
        assert theirs.recv(1000) == b""
    closing.join(PATIENCE)
    assert ours.fileno() == -1


def test_a_launcher_that_stands_still_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A screen must close."""
    monkeypatch.setattr(launcher_socket, "FLUSH_SECONDS", 0.2)
    ours, theirs = socket.socketpair()
    with theirs:
        launcher_socket.ControlConnection(ours).close(flush=True)
        assert ours.fileno() == -1


def test_a_client_that_disappears_ends_its_run(tmp_path: Path) -> None:
    """The one that has launched it, without a word: as when its terminal was closed."""
    with launched(tmp_path) as first, attached(first.folder) as second:
        wait(second, stepping(1), "step 1")
        first.close()
        ended = wait(second, lambda s: s.state is RunPhase.ENDED and s.receipt, "the end")
        assert (ended.outcome, ended.exit_code) == (Outcome.TERMINATED, 143), ended
        assert second.wait(PATIENCE) and not guard.tasks_here()


def test_a_client_that_disappears_before_it_has_subscribed_ends_its_run(tmp_path: Path) -> None:
    """The client was killed right behind its order: what that means is part of the order."""
    file = write(tmp_path, CLUSTER)
    folder = RunFolder.create(new_run_id("seen"), CLUSTER, load(file))
    lock = folder.take_lock()
    order = {"launch": folder.run_id, "folder": str(folder.path), "on_close": "kill"}
    launcher = LauncherProcess()
    launcher.order(order, lock).close()
    launcher.forget()
    with attached(folder) as second:
        assert second.wait(PATIENCE)
        ended = second.snapshot()
    assert (ended.outcome, ended.exit_code) == (Outcome.TERMINATED, 143), ended
    assert not guard.tasks_here()


def test_a_kill_right_after_the_launch_is_not_lost(tmp_path: Path) -> None:
    """The key was pressed while the launcher process was still importing."""
    first = RunClient.launch(load(write(tmp_path, CLUSTER)), CLUSTER)
    first.kill_all()
    assert not first.heard and not first.snapshot().tasks
    ended = wait(first, lambda s: s.state is RunPhase.ENDED, "the end")
    assert ended.outcome is Outcome.KILLED and [task.id for task in ended.tasks]
    assert first.wait(PATIENCE)
    first.close()


def test_a_kill_waits_for_a_launcher_that_is_slow_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one beside it would log in to all hosts although nothing has been started there."""
    silent = SilentLauncher()
    file = write(tmp_path, CLUSTER)
    client = RunClient.launch(load(file), CLUSTER, process=silent)
    others: list[None] = []
    monkeypatch.setattr(launcher_link, "LauncherProcess", lambda: others.append(None))
    client.kill_all()
    assert not client.wait(HEARD_SECONDS + 1)
    assert others == [] and client.lost_launchers == 0
    silent.cancel()
    client.close()


class SilentLauncher(LauncherProcess):
    """A launcher process that imports for long."""

    def __init__(self) -> None:
        self.link, self._theirs = socket.socketpair()

    @property
    def pid(self) -> int:
        """The process at the other end."""
        return os.getpid()

    def order(self, order: dict[str, Any], lock: int | None = None) -> socket.socket:
        self._lock = lock
        return self.link

    def cancel(self) -> None:
        self._theirs.close()
        if self._lock is not None:
            os.close(self._lock)

    def forget(self) -> None:
        """Has no file of errors."""


def test_a_kill_of_a_run_whose_launcher_has_just_died_starts_another(tmp_path: Path) -> None:
    """Which ends what is left and proves it."""
    text = CLUSTER.replace('on_disconnect = "stop"', 'on_disconnect = "keep"')
    with launched(tmp_path, text) as first:
        wait(first, stepping(1), "step 1")
        os.kill(pid_of(first), signal.SIGKILL)
        first.kill_all()
        ended = wait(first, lambda s: s.state is RunPhase.ENDED and s.receipt, "the end")
        assert ended.receipt is not None and ended.receipt.clean and ended.exit_code == 130
        assert first.wait(PATIENCE)
    assert not guard.tasks_here()


def test_another_launcher_is_started_when_this_machine_has_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that cannot be started for a while is no launcher that has died: it is tried again,
    and the kill that waits for it is carried out."""
    monkeypatch.setattr(supervision, "RETRY_SECONDS", PATIENCE)  # for as many tries as it takes
    refusals = [OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))] * (2 * MOST_RESTARTS + 4)

    def start() -> LauncherProcess:
        if refusals:
            raise refusals.pop()
        return LauncherProcess()

    with launched(tmp_path) as first:
        wait(first, stepping(1), "step 1")
        monkeypatch.setattr(launcher_link, "LauncherProcess", start)
        os.kill(pid_of(first), signal.SIGKILL)
        wait(first, lambda _: first.lost_launchers > 0, "its death")
        first.kill_all()
        assert first.wait(PATIENCE)
        assert not refusals
        final = first.snapshot()
        assert (final.outcome, final.exit_code) == (Outcome.KILLED, 130)
        assert first.lost_launchers == 1
        [note] = [text for text in final.notes if "can be started" in text]
        assert note.endswith(os.strerror(errno.EAGAIN))


def test_another_launcher_goes_on_where_the_first_one_died(tmp_path: Path) -> None:
    """The tasks are the same processes, and their logs are whole. Until then, they are not shown
    as running, and it is said why."""
    text = CLUSTER.replace('on_disconnect = "stop"', 'on_disconnect = "keep"')
    with launched(tmp_path, text) as first:
        before = wait(first, stepping(1), "step 1")
        seen: list[Snapshot] = []
        first.subscribe(seen.append)
        os.kill(pid_of(first), signal.SIGKILL)
        wait(first, lambda _: first.lost_launchers == 1, "its death")
        after = wait(first, stepping((before.step or 0) + 20), "later steps")
        assert [t.pid for t in after.tasks] == [t.pid for t in before.tasks]
        assert all(len(t.attempts) == 1 for t in after.tasks)
        assert first.following and first.lost_launchers == 1
        lost = next(s for s in seen if s.task(WORKER).state is TaskState.LOST)
        assert any("no launcher supervises" in note for note in lost.notes)
        first.kill_all()
        assert first.wait(PATIENCE)
        log = (first.folder.path / "worker-0.log").read_text()
        whole, _, _ = log.rpartition("\n")  # the kill may have come in the middle of a line
        steps = [int(line.split()[1]) for line in whole.splitlines()]
        assert steps == list(range(len(steps)))


def test_a_line_is_awaited_of_an_attempt_that_the_stream_does_not_know(tmp_path: Path) -> None:
    """Its launcher died before it had written down that it had started the task."""
    go = tmp_path / "go"
    wait_for_it = f"until [ -e {go} ]; do sleep 0.05; done; echo up; sleep 1000"
    text = cluster_text(
        {"worker": 1},
        "awaited",
        command=["sh", "-c", wait_for_it],
        workdir="",
        on_disconnect="keep",
        start={"ready": {"worker": {"log": "up"}}},
    )
    with launched(tmp_path, text) as first:
        wait(first, lambda s: s.task(WORKER).pid is not None, "started")
        first.stay_alive()
        first.close()
        os.kill(pid_of(first), signal.SIGKILL)
        wait(first, lambda _: first.folder.launcher_pid() is None, "its death")
        stream = first.folder.events
        lines = stream.read_text().splitlines(keepends=True)
        begun = next(n for n, line in enumerate(lines) if '"attempt": 1' in line)
        stream.write_text("".join(lines[:begun]))
        before = StoredRun(first.folder).run.snapshot().task(WORKER)
        assert before.attempt == 0
        with attached(first.folder) as second:
            wait(second, lambda s: s.task(WORKER).pid is not None, "known again")
            go.touch()
            up = (TaskState.READY, TaskState.RUNNING)
            wait(second, lambda s: s.task(WORKER).state in up, "ready")
            second.kill_all()
            assert second.wait(PATIENCE)


def test_metrics_are_seen_while_nothing_else_happens(tmp_path: Path) -> None:
    """The state that clients get has the newest figures, also of a run without a last step."""
    with launched(tmp_path) as client:
        wait(client, lambda s: s.task(WORKER).state is TaskState.RUNNING, "training")
        seen: list[int] = []
        client.subscribe(lambda s: seen.append(s.step or 0))
        last = (client.snapshot().step or 0) + 120
        wait(client, lambda s: (s.step or 0) >= last, "120 steps, in six seconds or more")
        assert len(set(seen)) >= 4, seen


def test_two_who_attach_at_once_get_one_launcher(tmp_path: Path) -> None:
    """Whoever takes the lock starts it; the other connects to it."""
    text = CLUSTER.replace('on_disconnect = "stop"', 'on_disconnect = "keep"')
    with launched(tmp_path, text) as first:
        wait(first, stepping(1), "step 1")
        first.stay_alive()
        first.close()
        os.kill(pid_of(first), signal.SIGKILL)
        wait(first, lambda _: first.folder.launcher_pid() is None, "its death")
        found: list[RunClient] = []
        threads = [
            threading.Thread(target=lambda: found.append(RunClient.attach(first.folder)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        try:
            for client in found:
                wait(client, stepping(1), "a step")
            launchers = [
                p
                for p in proc.scan(having=f"{guard.MARK}={os.environ[guard.MARK]}")
                if "launcher.process.entry" in p.argv
            ]
            assert len(launchers) == 1
            found[0].kill_all()
            assert all(client.wait(PATIENCE) for client in found)
        finally:
            for client in found:
                client.close()


def test_a_client_that_cannot_look_for_launchers_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of their sockets cannot be read or made."""

    def unusable(run_id: str) -> Path:
        raise FolderError("/tmp: Permission denied")

    monkeypatch.setattr(launcher_socket, "socket_path", unusable)
    with following(tmp_path) as client:
        seen = wait(client, lambda s: any("no launcher supervises" in n for n in s.notes), "a note")
        assert any("/tmp: Permission denied" in note for note in seen.notes)


@pytest.mark.parametrize("over", [False, True])
def test_an_unforeseen_error_of_a_client_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    """Whoever waits for the end, or for the state, waits no longer. A run that has ended stays as
    it was."""
    with following(tmp_path, RunPhase.ENDED if over else RunPhase.RUNNING) as client:
        monkeypatch.setattr(client, "_read_files", lambda: 1 / 0)
        client.kill_all()
        assert client.wait(PATIENCE) and not client.living
        seen = client.snapshot()
        assert seen.state is RunPhase.ENDED
        assert any("ZeroDivisionError" in note and "tfmux kill" in note for note in seen.notes)
        if over:
            assert (seen.outcome, seen.exit_code, seen.launcher_error) == (None, None, "")
        else:
            assert (seen.outcome, seen.exit_code) == (Outcome.FAILED, 4)
            assert "ZeroDivisionError" in seen.launcher_error


def test_an_error_of_a_listener_ends_the_wait(tmp_path: Path) -> None:
    """The listener is called on the client's thread."""
    with following(tmp_path) as client:
        client.subscribe(lambda _: 1 / 0)  # type: ignore[arg-type]
        assert client.wait(PATIENCE)
        assert client.snapshot().exit_code == 4


def test_a_signal_may_come_while_a_client_is_being_closed(tmp_path: Path) -> None:
    """Given a client that is being closed, as by a terminal that has gone, when another hang-up
    interrupts that, then both come to their end."""
    with following(tmp_path) as client:
        handled = []

        def interrupt(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code is threading.Condition.notify_all.__code__:
                sys.setprofile(None)
                client.hang_up()
                handled.append(event)

        def close() -> None:
            sys.setprofile(interrupt)
            client.close()

        closing = threading.Thread(target=close, daemon=True)
        closing.start()
        closing.join(PATIENCE)
        assert handled and not closing.is_alive()


@contextmanager
def following(folder: Path, state: RunPhase = RunPhase.RUNNING) -> Iterator[RunClient]:
    """A client, without a connection, of a run that no launcher supervises."""
    run = RunFolder(folder / "seen-1")
    run.path.mkdir()
    views = unknown(run)
    views.update_run(state=state)
    client = RunClient(run, views, None)
    try:
        yield client
    finally:
        client.close()


def pid_of(client: RunClient) -> int:
    """The launcher process of a client's run."""
    wait(client, lambda _: client.folder.launcher_pid(), "a launcher process")
    pid = client.folder.launcher_pid()
    assert pid
    return pid


@variants("shell", ["none", "login"], test=1)
def test_programs_get_long_texts_as_the_plan_has_them(tmp_path: Path, shell: str) -> None:
    """What is sent once for all tasks of a host arrives in commands and environments byte for
    byte, with `TF_CONFIG`, and through a login shell as well."""
    address = ".".join(["a-host-with-a-long-name"] * 9)
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    text = f"""
name = "long"
[hosts.localhost]
address = "{address}"
[jobs.worker]
tasks = {[f"localhost:{port}" for port in range(41000, 41006)]}
ready = "started"
[run]
workdir = ""
success = "all"
shell = "{shell}"
command = ["{{python}}", "-c", "{show}", "--all={{worker_hosts}}", "{{index}}"]
env = {{ MINE = "{{index}} '{{cluster}}' {{worker_hosts}}" }}
"""
    with launched(tmp_path, text) as client:
        assert client.wait(PATIENCE) and client.snapshot().exit_code == 0
        for task in make_plan(load(tmp_path / "cluster.toml"), client.run_id).tasks:
            log = client.logs.open(task.id)
            argv, env = json.loads(log.read(0, log.size).splitlines()[-1])
            assert argv == [*task.argv[3:]] and len(argv[0]) > 1000
            extended = ("PYTHONPATH", "TFMUX_NO_PROXY")
            wanted = {name: value for name, value in task.env.items() if name not in extended}
            assert wanted.items() <= env.items() and len(env["TF_CONFIG"]) > 1000
