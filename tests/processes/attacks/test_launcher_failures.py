"""Something in the launcher itself breaks, or the locks of its home do: it dies as of a SIGKILL,
and the next one takes the run up."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from launcher.agent.folders import FolderError
from launcher.client import launcher_process, supervision
from launcher.client.run_client import RunClient
from launcher.cluster.read import load
from launcher.errors import LockError
from launcher.history.stored import StoredRun
from launcher.hosts.auth_prompt import AuthPrompt
from launcher.ids import TaskId
from launcher.paths import runs_home
from launcher.process import control_socket
from launcher.process.host_links import HostStats
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase, TaskState
from launcher.store import launcher_lock
from launcher.store.launcher_lock import acquire, launcher_pid
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.breaks.sitecustomize import PLACES
from tests.support.budgets import soak
from tests.support.cluster_texts import KEPT
from tests.support.command import Up, run, write
from tests.support.forked import ForkServer, replace_popen
from tests.support.paths import REPOSITORY, SUPPORT
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario
from tests.support.snapshots import wait
from tests.testbed import guard, proc
from tests.testbed.launcher_thread import LauncherThread, launch
from tui.commands.launch import show
from tui.run_clients import RunClients
from tui.screens.prompt_dialogs import PromptDialogs

FILE = """
name = "breaks"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["sh", "-c", "i=0; while true; do i=$((i+1)); echo step $i loss 2; sleep 0.05; done"]
workdir = ""
grace = 1
on_disconnect = "keep"
[start.ready]
worker = "started"
"""
WORKER = TaskId("worker", 0)
BEFORE = ["the worker that reads logs", "the link", "a decision", "what clients are sent"]
BEFORE += ["the sending", "the records", "the stream"]
AT_THE_END = ["the kill", "the receipt", "a release", "the end", "the links' end"]
FOR_GOOD_IN_TEST = {"a decision", "the stream", "the kill", "the end"}
"""Places of which one breaks for good in `make test`: state, disk, begin and end of a kill. Four to
five launchers die at each; all places break once there."""
ONCE, FOR_GOOD = 1, 1000
BREAKS = str(SUPPORT / "breaks")
Break = Callable[[str, int], Path]


@cache
def breaking() -> ForkServer:
    """Forks launcher processes that break."""
    return ForkServer(*command.MODULES, PYTHONPATH=BREAKS)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Break:
    """Has a place of so many launcher processes break; returns the file that is the moment."""

    def set_up(place: str, times: int) -> Path:
        assert place in PLACES
        monkeypatch.setattr(launcher_process, "subprocess", subprocess)  # put back afterwards
        replace_popen(launcher_process, breaking().popen)
        monkeypatch.setenv("PYTHONPATH", BREAKS)
        monkeypatch.setenv("BREAKS", place)
        monkeypatch.setenv("BREAKS_TIMES", str(times))
        monkeypatch.setenv("BREAKS_FOLDER", str(tmp_path))
        return tmp_path / "now"

    return set_up


@contextmanager
def launched(folder: Path, text: str = FILE) -> Iterator[RunClient]:
    """A run whose task writes; in the end it is killed, with launchers that do not break."""
    file = write(folder, text)
    client = RunClient.launch(load(file), text)
    client.await_state(PATIENCE)
    try:
        yield client
    finally:
        client.close()
        for variable in ("BREAKS", "PYTHONPATH"):
            os.environ.pop(variable, None)
        if not StoredRun(client.folder).over:
            done = command.run("kill", client.run_id, "--force")
            assert done.returncode == 0, done
        wait_until(lambda: not FaultScenario.here(client.run_id), "nothing is left")


def running(client: RunClient) -> Snapshot:
    """The run when its task writes."""
    return wait(client, lambda s: (s.task(WORKER).step or 0) > 2, "its task writes")


def stepping(least: int) -> Callable[[Snapshot], object]:
    """The run goes on, and its task has come to a step, as a launcher says: the next one hears of
    steps before it has looked at the host's files."""
    return lambda seen: seen.state is RunPhase.RUNNING and (seen.task(WORKER).step or 0) >= least


@pytest.mark.parametrize("place", BEFORE)
def test_a_run_outlives_what_breaks_once(tmp_path: Path, broken: Break, place: str) -> None:
    """Given a launcher that dies of an error in one of its parts, when the next one takes the run
    up, then the task is the same process, that error is on record, and a kill ends the run."""
    now = broken(place, ONCE)
    with launched(tmp_path) as client:
        before = running(client)
        now.touch()
        if place == "a decision":
            client.restart(WORKER)  # which is lost with the launcher
        wait(client, lambda _: client.lost_launchers == 1, "it breaks")
        after = wait(client, stepping((before.step or 0) + 40), "later steps")
        assert after.task(WORKER).pid == before.task(WORKER).pid
        assert after.state is RunPhase.RUNNING and after.task(WORKER).attempt == 1
        died = "the previous launcher process has died: "
        assert any(died in note and f"boom in {place}" in note for note in after.notes)
        log = (client.folder.path / "launcher.log").read_text()
        assert log.count("Traceback") == 1 and f"boom in {place}" in log
        client.kill_all()
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        assert ended.exit_code == 130 and ended.clean and not ended.launcher_error
        assert client.lost_launchers == 1


def test_a_crash_leaves_the_story_of_its_run(
    tmp_path: Path, broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a run whose task has secrets in its environment, when the launcher dies of an error,
    then `launcher.log` has the last events in their order, without these secrets, and the error
    is its last line."""
    monkeypatch.setenv("PASSED_ON", "secret-of-the-shell")
    now = broken("what clients are sent", ONCE)
    extra = 'env_from = ["PASSED_ON"]\nenv = { TOKEN = "secret-of-the-file" }\n'
    with launched(tmp_path, FILE.replace("grace = 1\n", f"grace = 1\n{extra}")) as client:
        running(client)
        now.touch()
        wait(client, lambda _: client.lost_launchers == 1, "it breaks")
        log = (client.folder.path / "launcher.log").read_text()
        told = log.splitlines()
        begin, up, started = (
            next(at for at, line in enumerate(told) if event in line)
            for event in (" Begin(", " HostUp(host=localhost", " TaskStarted(task=worker:0")
        )
        assert begin < up < started < told.index("Traceback (most recent call last):")
        assert told[-1] == "snapshot: RuntimeError: boom in what clients are sent"
        assert "secret" not in log and os.environ["PATH"] not in log
        client.kill_all()
        assert client.wait(PATIENCE)


@pytest.mark.parametrize("place", AT_THE_END)
def test_a_kill_comes_to_its_end_although_something_breaks_once(
    tmp_path: Path, broken: Break, place: str
) -> None:
    """Given a launcher that dies of an error during a kill, when two more kills are pressed, then
    the next launcher ends the run with a clean receipt and exit code 130."""
    now = broken(place, ONCE)
    with launched(tmp_path) as client:
        running(client)
        now.touch()
        for _ in range(3):
            client.press_kill()
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        assert (ended.state, ended.exit_code) == (RunPhase.ENDED, 130)
        assert ended.receipt is not None and ended.clean and not ended.launcher_error
        assert [host.host for host in ended.receipt.hosts] == ["localhost"]
        assert client.lost_launchers == 1
        wait_until(lambda: not FaultScenario.here(client.run_id), "nothing is left")
        assert StoredRun(client.folder).over


@pytest.mark.parametrize(
    "place",
    [place if place in FOR_GOOD_IN_TEST else soak(place) for place in (*BEFORE, *AT_THE_END)],
)
def test_what_breaks_for_good_ends_the_run_with_4(
    tmp_path: Path, broken: Break, place: str
) -> None:
    """Given a part that breaks in each launcher, when four or five have died of it, then the run
    has ended with exit code 4 and that error, and its receipt is not clean while a task lives."""
    now = broken(place, FOR_GOOD)
    with launched(tmp_path) as client:
        running(client)
        now.touch()
        if place in AT_THE_END:
            client.press_kill()
        elif place == "a decision":
            client.restart(WORKER)
        assert client.wait(PATIENCE), "it hangs"
        ended = client.snapshot()
        assert (ended.state, ended.exit_code) == (RunPhase.ENDED, 4)
        assert f"boom in {place}" in ended.launcher_error
        assert 4 <= client.lost_launchers <= 5
        assert ended.receipt is not None
        assert [host.host for host in ended.receipt.hosts] == ["localhost"]
        if ended.clean:
            assert not guard.tasks_here()
        if guard.tasks_here():
            assert not StoredRun(client.folder).over


def test_deaths_of_long_ago_do_not_count(
    tmp_path: Path, broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given launchers that die with more than ten minutes in between, when more of them have died
    than may in a row, then the run goes on with the same task, until it is killed."""
    monkeypatch.setattr(supervision, "RESTART_SECONDS", 0.0)  # each is older than that
    now = broken("what clients are sent", supervision.MOST_RESTARTS + 2)
    with launched(tmp_path) as client:
        before = running(client)
        now.touch()
        died = supervision.MOST_RESTARTS + 2
        wait(client, lambda _: client.lost_launchers == died, "all of them die")
        after = wait(client, stepping((before.step or 0) + 40), "later steps")
        assert after.task(WORKER).pid == before.task(WORKER).pid and not after.launcher_error
        client.kill_all()
        assert client.wait(PATIENCE)
        assert client.snapshot().exit_code == 130 and client.lost_launchers == died


def test_what_breaks_behind_the_end_changes_nothing(tmp_path: Path, broken: Break) -> None:
    """Given a launcher that dies of an error when the end is on the disk already, when the run is
    killed, then it ends with exit code 130, a clean receipt and no error."""
    now = broken("the last wait", ONCE)
    with launched(tmp_path) as client:
        running(client)
        now.touch()
        client.press_kill()
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        assert ended.exit_code == 130 and ended.clean and not ended.launcher_error


def test_what_breaks_at_the_start_starts_nothing(tmp_path: Path, broken: Break) -> None:
    """Given launchers that all die before they have begun, when a run is launched, then it ends
    with exit code 4 and that error after five of them, and no task is there."""
    broken("the start", FOR_GOOD).touch()
    with launched(tmp_path) as client:
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        assert ended.exit_code == 4 and "boom in the start" in ended.launcher_error
        assert not guard.tasks_here() and client.lost_launchers == 5


def test_the_last_launcher_kills_everything(tmp_path: Path, broken: Break) -> None:
    """Given launchers that cannot go on with a run, when the first is killed and three more have
    died, then the last one ends the task, and client, record and hook learn of exit code 4."""
    now, told = broken("the take-up", FOR_GOOD), tmp_path / "told"
    hook = f'[hooks]\non_failure = ["sh", "-c", "cat > {told}"]\n'
    with launched(tmp_path, FILE + hook) as client:
        running(client)
        now.touch()
        pid = client.folder.launcher_pid()
        assert pid
        os.kill(pid, signal.SIGKILL)
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        assert (ended.exit_code, client.lost_launchers) == (4, 4)
        why = "HostsChecked: RuntimeError: boom in the take-up (4 times)"
        assert ended.launcher_error == why
        assert ended.receipt is not None and ended.clean
        assert [host.host for host in ended.receipt.hosts] == ["localhost"]
        wait_until(lambda: not FaultScenario.here(client.run_id), "nothing is left")
        assert StoredRun(client.folder).snapshot().launcher_error == why
        assert json.loads(told.read_text())["exit_code"] == 4


@pytest.mark.parametrize(("times", "code", "deaths"), [(ONCE, 0, 1), (FOR_GOOD, 4, 5)])
def test_a_success_only_where_all_is_released(
    tmp_path: Path, broken: Break, times: int, code: int, deaths: int
) -> None:
    """Given a task that ends well, when a launcher dies while it releases the host, then the next
    one makes the run a success; when all die so, then the exit code is 4, not 0."""
    broken("a release", times).touch()
    with launched(tmp_path, FILE.replace("while true", "while [ $i -lt 9 ]")) as client:
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        assert (ended.exit_code, ended.task(WORKER).state) == (code, TaskState.EXITED)
        assert 1 <= client.lost_launchers <= deaths
    assert not guard.tasks_here()


def test_tasks_of_this_machine_end_with_their_launcher_under_stop(
    tmp_path: Path, broken: Break
) -> None:
    """Given a task of this machine under `on_disconnect = stop`, when its launcher dies of an
    error, then the agent ends the task, and the next launcher fails the run and notes why."""
    now = broken("what clients are sent", ONCE)
    with launched(tmp_path, FILE.replace("keep", "stop")) as client:
        running(client)
        now.touch()
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        assert ended.exit_code == 1 and ended.clean
        assert any("boom in what clients are sent" in note for note in ended.notes)


@pytest.mark.parametrize("times", [ONCE, FOR_GOOD])
def test_the_command_goes_on_or_exits_4_with_the_reason_first(
    tmp_path: Path, broken: Break, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Given `tfmux up --headless` whose launcher dies of an error, when the next one works, then
    the run goes on until Ctrl-C; when none does, then the exit code is 4, with the reason first."""
    now = broken("what clients are sent", times)
    argv = [sys.executable, "-m", "tui.main", "up", "--headless", str(write(tmp_path, FILE))]
    reading, writing = os.pipe()
    with open(reading) as lines, (tmp_path / "said").open("w") as told:
        process = breaking().start(
            argv, env=os.environ, cwd=REPOSITORY, stdout=writing, stderr=told.fileno()
        )
        os.close(writing)
        try:
            lines.readline()
            now.touch()
            if times == ONCE:
                wait_until(lambda: (tmp_path / "launchers").stat().st_size == 2, "another launcher")
                now.unlink()
                for _ in range(50):
                    lines.readline()
                process.send_signal(signal.SIGINT)
            lines.read()
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
    said = (tmp_path / "said").read_text()
    assert "boom in what clients are sent; starting another" in said
    if times == ONCE:
        assert process.returncode == 130, said
        assert "no process is left" in said
    else:
        assert process.returncode == 4, said
        report = said[said.index("✗ failed") :].splitlines()
        assert "the launcher failed: snapshot: RuntimeError: boom in what clients" in report[1]
        assert "localhost: not confirmed" in said and "finish with: tfmux kill" in said
        monkeypatch.delenv("BREAKS")
        assert command.run("kill", "--all").returncode == 0
    assert not guard.tasks_here()


def test_figures_of_hosts_are_no_reason_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an error in what asks hosts for their figures, when a run is launched, then a note says
    so, and the run goes on until it is killed."""

    async def boom(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(HostStats, "poll", boom)
    run = launch(load(write(tmp_path, FILE)), FILE)
    wait_until(lambda: any("stats" in note for note in run.snapshot().notes), "it is said")
    run.kill_all()
    assert run.wait(PATIENCE)
    assert run.snapshot().exit_code == 130 and not run.snapshot().launcher_error


@pytest.fixture
def unusable(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Launchers on threads here cannot listen."""

    def path(run_id: str) -> Path:
        raise request.param

    monkeypatch.setattr(control_socket, "socket_path", path)


ERRORS = [OSError("no room"), FolderError("/tmp: no room")]


@pytest.mark.parametrize("unusable", ERRORS, ids=repr, indirect=True)
@pytest.mark.usefixtures("unusable")
def test_a_launcher_that_cannot_listen_is_said(tmp_path: Path) -> None:
    """Given a launcher that cannot listen on its control socket, when a run is launched, then it
    ends with exit code 4 and that reason."""
    text = FILE
    run = launch(load(write(tmp_path, text)), text)
    assert run.wait(PATIENCE)
    assert run.snapshot().exit_code == 4 and "no room" in run.snapshot().launcher_error
    run.close()


@pytest.mark.parametrize("unusable", ERRORS[:1], ids=repr, indirect=True)
@pytest.mark.usefixtures("unusable")
def test_a_screen_says_that_a_launcher_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a launcher that cannot listen, when a run is launched from a screen, then it ends with
    the reason, and nothing waits."""
    monkeypatch.setattr("launcher.client.run_client.LauncherProcess", LauncherThread)
    clients = RunClients()
    run = clients.launch(load(write(tmp_path, FILE)), FILE, nobody)
    wait_until(lambda: run.snapshot().state is RunPhase.ENDED, "it has ended")
    (ended,) = clients.close()
    assert ended.snapshot.exit_code == 4 and "no room" in ended.snapshot.launcher_error


@pytest.mark.parametrize("unusable", ERRORS[:1], ids=repr, indirect=True)
@pytest.mark.usefixtures("unusable")
def test_a_command_opens_no_screen_of_a_run_that_cannot_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a launcher that cannot listen, when a command would open the screen of its run, then it
    prints the end and the reason, and exits with 4."""
    run = launch(load(write(tmp_path, FILE)), FILE)
    assert show(run, PromptDialogs()) == 4
    assert "no room" in capsys.readouterr().err
    run.close()


async def nobody(prompt: AuthPrompt) -> str | None:
    """Answers no prompt."""
    return None


@pytest.fixture
def abandoned(tmp_path: Path) -> Iterator[RunFolder]:
    """A run that goes on although its launcher process has died."""
    run = RunClient.launch(load(write(tmp_path, FILE)), FILE)
    wait_until(lambda: run.snapshot().state is RunPhase.RUNNING, "it runs")
    run.stay_alive()
    run.close()
    pid = run.folder.launcher_pid()
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: run.folder.launcher_pid() is None, "its launcher is dead")
    yield run.folder
    if not StoredRun(run.folder).over:
        assert command.run("kill", run.run_id, "--force").returncode == 0
    assert not guard.tasks_here()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_launcher_that_cannot_listen_ends_a_run_that_it_takes_up(
    abandoned: RunFolder, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Given an abandoned run and a launcher that cannot listen, when whoever has started that one
    kills the run, then the receipt is clean, and a note says that no other client can connect."""

    def unusable(run_id: str) -> Path:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(control_socket, "socket_path", unusable)
        patch.setattr("launcher.client.run_client.LauncherProcess", LauncherThread)
        client = RunClient.attach(abandoned)
        client.kill_all()
        assert client.wait(PATIENCE)
        ended = client.snapshot()
        client.close()
    assert ended.receipt is not None and ended.receipt.clean
    assert [host.host for host in ended.receipt.hosts] == ["localhost"]
    assert any("no other client can connect" in note for note in ended.notes)
    assert not guard.tasks_here()


def test_launchers_that_cannot_take_a_run_up_confirm_nothing(
    abandoned: RunFolder, broken: Break
) -> None:
    """Given an abandoned run with a living task, when no launcher can take it up, then the client
    sees exit code 4 and an unconfirmed host, and the run is still to be ended."""
    broken("the start", FOR_GOOD).touch()
    client = RunClient.attach(abandoned)
    assert client.wait(PATIENCE)
    ended = client.snapshot()
    client.close()
    os.environ.pop("BREAKS")
    assert guard.tasks_here()
    assert ended.exit_code == 4 and "boom in the start" in ended.launcher_error
    assert ended.receipt is not None and not ended.receipt.clean
    assert [(host.host, host.confirmed) for host in ended.receipt.hosts] == [("localhost", False)]
    assert not StoredRun(abandoned).over


SOURCE = SUPPORT / "flock.c"
RUN = f"locks-{os.getpid()}"
"""A run of this test process."""
HANGS = 0
FAULTS = pytest.mark.parametrize(
    "number", [errno.ENOLCK, soak(errno.EIO), HANGS], ids=["ENOLCK", "EIO", "hangs"]
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with such a `flock`."""
    path = tmp_path_factory.mktemp("flock") / "flock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Up]:
    """A run that goes on."""
    with Up("up", str(write(tmp_path, KEPT)), "--json") as up:
        up.state("worker:0", "ready")
        run_id = up.run_id
        yield up
    wait_until(lambda: not tasks_of(run_id), "its task has ended")


def without_locks(library: Path, number: int) -> list[str]:
    """What stands before a command that gets no lock."""
    return ["env", f"LD_PRELOAD={library}", f"FLOCK_ERROR={number}"]


def tasks_of(run_id: str) -> list[int]:
    return [one.pid for one in proc.scan(having=run_id) if "/worker:0/" in (one.tag or "")]


@FAULTS
def test_a_run_whose_lock_cannot_be_taken_is_not_launched(
    tmp_path: Path, library: Path, number: int
) -> None:
    """Given a file system whose locks fail or never answer, when `tfmux up` is called, then it
    exits with 2, names the lock's file and a remedy, and leaves no folder of a run."""
    prefix = without_locks(library, number)
    done = run("up", str(write(tmp_path, KEPT)), "--headless", prefix=prefix)
    assert done.returncode == 2, done.stderr
    assert "launcher.lock cannot be used" in done.stderr and "XDG_DATA_HOME" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(runs_home().iterdir())


@FAULTS
def test_a_kill_without_locks_reaches_the_launcher_that_listens(
    living: Up, library: Path, number: int
) -> None:
    """Given a living launcher, and locks that fail or never answer, when `tfmux kill` is called,
    then it has that launcher end the run, with nothing left on any host."""
    done = run("kill", living.run_id, prefix=without_locks(library, number))
    assert done.returncode == 0, done.stderr
    assert "no process is left" in done.stdout
    assert living.wait() == 130, living.transcript()
    assert not any("unsupervised" in str(event) for event in living.events)


@FAULTS
def test_nobody_takes_a_run_up_without_its_lock(living: Up, library: Path, number: int) -> None:
    """Given a run whose launcher has died, when `tfmux kill` and `ps` get no lock, then both say
    so, and the task lives on; when `kill` gets the lock, then it succeeds."""
    run_id, prefix = living.run_id, without_locks(library, number)
    living.kill_launcher()
    done = run("kill", run_id, prefix=prefix)
    assert done.returncode != 0 and "launcher.lock cannot be used" in done.stderr, done.stderr
    listed = run("ps", prefix=prefix)
    assert "launcher.lock cannot be used" in listed.stdout + listed.stderr
    assert tasks_of(run_id) and RunFolder.find(run_id).launcher_pid() is None
    for said in (done, listed):
        assert "Traceback" not in said.stderr
    assert run("kill", run_id).returncode == 0


def fails(file: int, how: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_look_at_a_lock_that_fails_finds_nobody_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a file system that gives no locks, when a launcher is looked for, then that is an error
    with the reason, and the run is not called abandoned."""
    fd = acquire(tmp_path, RUN)
    assert fd is not None
    (tmp_path / "launcher.lock").touch()
    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(LockError, match="No locks available"):
        launcher_pid(tmp_path, RUN)
    with pytest.raises(LockError, match="No locks available"):
        acquire(tmp_path, RUN)
    assert not launcher_lock.is_abandoned(tmp_path, RUN)
    os.close(fd)


def test_a_lock_that_comes_too_late_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a lock service that hangs, when it gives a lock after nobody waits for it any more,
    then the lock is given back, and the next one who asks gets it."""
    read_end, write_end = os.pipe()
    flock = fcntl.flock

    def slow(file: int, how: int) -> None:
        os.read(read_end, 1)
        flock(file, how)

    monkeypatch.setattr(launcher_lock, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(fcntl, "flock", slow)
    for _ in range(2):
        with pytest.raises(LockError, match="does not answer"):
            acquire(tmp_path, RUN)
    monkeypatch.setattr(fcntl, "flock", flock)
    os.write(write_end, b"x")
    monkeypatch.setattr(launcher_lock, "_ANSWER_SECONDS", 5.0)
    taken: list[int] = []

    def free() -> bool:
        try:
            fd = acquire(tmp_path, RUN)
        except LockError:
            return False
        if fd is not None:
            taken.append(fd)
        return fd is not None

    wait_until(free, "the lock is free again")
    for fd in (*taken, read_end, write_end):
        os.close(fd)
