"""Who is the launcher of a run: its lock, and folders that are moved, lost or taken over."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher import Cluster, Outcome, Run, RunNotFoundError
from launcher.agent import wire
from launcher.agent.folders import FolderError
from launcher.client.run_client import RunClient
from launcher.cluster.read import load, loads
from launcher.history.stored import StoredRun, find_resumed
from launcher.ids import is_run_id, new_run_id
from launcher.paths import runs_home
from launcher.plan.facts import Resume
from launcher.run.machine import RunStateMachine
from launcher.run.states import RunPhase
from launcher.store import launcher_lock, living_runs
from launcher.store.launcher_lock import (
    FollowedError,
    acquire,
    held,
    holder_of,
    launcher_pid,
    take_over,
)
from launcher.store.living_runs import (
    Holder,
    LivingRun,
    entries,
    entry_path,
    read_entry,
    start_of,
    this_boot,
)
from launcher.store.runs import RunFolder, socket_path
from tests.support import command
from tests.support.agent_client import Client, hello
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text, one_task
from tests.support.command import Up, run, write
from tests.support.patience import PATIENCE, wait_until
from tests.support.recorded import GOOD, Recording
from tests.support.terminal import cluster, living
from tests.testbed import guard
from tests.testbed.launcher_thread import LauncherThread

RUN = f"lock-{os.getpid()}"
"""A run of this test process."""


def said_by(holder: Holder, folder: Path) -> bytes:
    """What a launcher that is this one writes into the index."""
    return LivingRun(RUN, folder, (), holder, home="/root", living=True).line()


def test_two_who_look_at_once_are_no_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each saw the lock of the other, and took the pid of a launcher that had ended for alive."""
    fd = acquire(tmp_path, RUN)
    assert fd is not None
    os.write(fd, said_by(Holder(4121), tmp_path))
    assert launcher_pid(tmp_path, RUN) == 4121
    os.close(fd)
    flock = fcntl.flock
    seen: list[int | None] = []

    def locked(file: int, how: int) -> None:
        flock(file, how)
        if not seen:
            seen.append(-1)
            seen.append(launcher_pid(tmp_path, RUN))

    monkeypatch.setattr(fcntl, "flock", locked)
    assert launcher_pid(tmp_path, RUN) is None
    assert seen == [-1, None]


HOLDING = """
import sys, time
from pathlib import Path
from launcher.store.launcher_lock import acquire, held
folder, run_id = Path(sys.argv[1]), sys.argv[2]
with held(folder, run_id, acquire(folder, run_id)) as lock:
    lock.renew(["tf1"])
    time.sleep(600)
"""


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock, and has said who it is."""
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(folder), RUN]) as process:
        try:
            wait_until(lambda: launcher_pid(folder, RUN) == process.pid, "it holds the lock")
            yield process
        finally:
            process.kill()


def test_whoever_takes_a_run_over_ends_the_process_that_stands_still(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        assert acquire(tmp_path, RUN) is None
        fd = take_over(tmp_path, RUN)
        assert fd is not None and process.wait(PATIENCE) == -signal.SIGKILL
        assert acquire(tmp_path, RUN) is None
        os.close(fd)


@pytest.mark.parametrize("named", [False, True])
def test_whoever_was_quicker_to_follow_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Another one that follows the run takes the lock in the moment in which its holder dies, and
    may not have written down yet who it is: it is neither killed nor is another one started."""
    kill = launcher_lock._kill
    taken: list[int] = []

    def killed(holder: Holder) -> None:
        kill(holder)
        process.wait(PATIENCE)
        fd = acquire(tmp_path, RUN)
        assert fd is not None
        taken.append(fd)
        if named:
            os.pwrite(fd, said_by(Holder(os.getppid(), holder.machine, "1"), tmp_path), 0)

    with holding(tmp_path) as process:
        monkeypatch.setattr(launcher_lock, "_kill", killed)
        with pytest.raises(FollowedError):
            take_over(tmp_path, RUN)
    assert len(taken) == 1
    os.close(taken[0])


@pytest.mark.parametrize("field", ["machine", "started"])
def test_a_process_that_is_not_the_holder_is_not_killed(tmp_path: Path, field: str) -> None:
    """A launcher on another machine, whose pid is another process's here; and a pid that was used
    again since the line was written."""
    with holding(tmp_path) as process:
        holder = holder_of(tmp_path, RUN)
        assert holder is not None and holder.is_here
        words = {"machine": holder.machine, "started": holder.started, field: "other"}
        other = Holder(process.pid, **words)
        entry_path(RUN).write_bytes(said_by(other, tmp_path))
        assert holder_of(tmp_path, RUN) == other
        assert take_over(tmp_path, RUN) is None
        assert process.poll() is None


@pytest.mark.parametrize("line", [b"", b"nobody", b"PID", b"\xff PID", b"PID a b c"])
def test_a_lock_that_names_nobody_kills_nobody(tmp_path: Path, line: bytes) -> None:
    fd = acquire(tmp_path, RUN)
    assert fd is not None
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            named = line.replace(b"PID", b"%d" % process.pid)
            os.pwrite(fd, named, 0)
            (tmp_path / launcher_lock._NAME).write_bytes(named)
            assert take_over(tmp_path, RUN) is None
            assert process.poll() is None
        finally:
            process.kill()
            os.close(fd)


# --- the index, to which others come, too ---------------------------------------------------------


def removed_entry() -> None:
    entry_path(RUN).unlink()


def emptied_entry() -> None:
    os.truncate(entry_path(RUN), 0)


def replaced_entry() -> None:
    entry_path(RUN).unlink()
    entry_path(RUN).write_text("another file")


@pytest.mark.parametrize("cleaner", [removed_entry, emptied_entry, replaced_entry])
def test_a_cleaner_of_tmp_makes_no_second_launcher(
    tmp_path: Path, cleaner: Callable[[], None]
) -> None:
    """Before the launcher has made its entry again the file in the run's folder holds."""
    with held(tmp_path, RUN, acquire(tmp_path, RUN, new=True)) as lock:
        assert lock.renew(["tf1"]) == ""
        cleaner()
        assert acquire(tmp_path, RUN) is None
        assert lock.renew(["tf1"]) == ""
        entry = read_entry(RUN)
        assert entry is not None and entry.living and entry.hosts == ("tf1",)
        assert acquire(tmp_path, RUN) is None
    assert read_entry(RUN) is None and not entry_path(RUN).exists()


def test_an_index_that_takes_no_entry_is_said_and_the_lock_holds(tmp_path: Path) -> None:
    """Something else is in the entry's place: the lock is in the run's folder then."""
    entry_path(RUN).unlink(missing_ok=True)  # of a holder that another test has killed
    entry_path(RUN).mkdir()
    try:
        with held(tmp_path, RUN, acquire(tmp_path, RUN, new=True)) as lock:
            assert lock.renew(["tf1"]) == "Is a directory"
            assert acquire(tmp_path, RUN) is None and launcher_pid(tmp_path, RUN) == os.getpid()
            assert RUN not in {entry.run_id for entry in entries()}
        fd = acquire(tmp_path, RUN)
        assert fd is not None
        os.close(fd)
    finally:
        entry_path(RUN).rmdir()


def test_an_index_that_cannot_be_used_is_said_and_the_lock_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every folder that may be this user's is a file, or another user's."""

    def refuse() -> str:
        raise FolderError("/tmp/tfmux-0 belongs to another user (uid 7)")

    monkeypatch.setattr(living_runs, "local_folder", refuse)
    with held(tmp_path, RUN, acquire(tmp_path, RUN, new=True)) as lock:
        assert "belongs to another user" in lock.renew(["tf1"])
        assert acquire(tmp_path, RUN) is None and launcher_pid(tmp_path, RUN) == os.getpid()
        assert entries() == []


@pytest.mark.parametrize("machine", ["the boot before", ""])
def test_an_entry_of_before_a_boot_is_no_launcher(tmp_path: Path, machine: str) -> None:
    """Although a process of now has the pid that it names: nobody has locked it."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            holder = Holder(process.pid, machine or this_boot(), start_of(process.pid))
            entry_path(RUN).write_bytes(said_by(holder, tmp_path))
            entry = read_entry(RUN)
            assert entry is not None and not entry.living
            assert launcher_pid(tmp_path, RUN) is None
            fd = take_over(tmp_path, RUN)
            assert fd is not None and process.poll() is None
            os.close(fd)
        finally:
            process.kill()
            entry_path(RUN).unlink()


TEXT = cluster_text(
    {"worker": {"tasks": 1, "ready": "started"}},
    "again",
    command=["sh", "-c", "echo {logdir} $TFMUX_RESUME"],
    workdir="",
    logdir="logs/{run_id}",
)


def up(file: Path, *words: str) -> tuple[RunFolder, list[str]]:
    """A run to its end; its folder, and what its task printed."""
    done = run("up", str(file), "--headless", *words)
    assert done.returncode == 0, done.stderr
    return RunFolder.all()[0], done.stdout.removeprefix("worker:0 | ").split()


@pytest.mark.prove
def test_a_run_that_was_resumed_can_be_resumed_again(tmp_path: Path) -> None:
    """All go on in the first one's log directory, and each names the one that it goes on from; also
    where the folder of the first one was removed."""
    file = write(tmp_path, TEXT)
    first, printed = up(file)
    logs = str(tmp_path / "logs" / first.run_id)
    assert printed == [logs]
    second, printed = up(file, "--resume", first.run_id[:-1])
    assert printed == [logs, first.run_id]
    shutil.rmtree(first.path)
    third, printed = up(file, "--resume", second.run_id)
    assert printed == [logs, second.run_id]
    assert StoredRun(third).plan.tasks[0].logdir == logs
    assert find_resumed(first.run_id, "again") == Resume(first.run_id, first.run_id)


def test_an_unknown_run_is_not_resumed(tmp_path: Path) -> None:
    """Neither is a beginning that two runs have; nothing is launched."""
    done = run("up", str(write(tmp_path, TEXT)), "--headless", "--resume", "nonsense")
    assert done.returncode == 2 and not done.stdout
    assert "no run 'nonsense' here" in done.stderr
    assert not RunFolder.all()


async def test_a_program_names_the_run_in_the_same_way(tmp_path: Path) -> None:
    """A beginning that several have is refused before anything is made."""
    file = write(tmp_path, TEXT)
    for digit in "12":
        RunFolder.create(f"again-20260101-120000-000{digit}", TEXT, load(file))
    with pytest.raises(RunNotFoundError, match="beginning of several runs"):
        async with Cluster.from_file(file).launch(resume="again-2026"):
            pass
    assert len(RunFolder.all()) == 2


@pytest.mark.parametrize("name", ["again", "two words", "…"])
def test_a_full_id_of_the_cluster_need_not_be_known(name: str) -> None:
    """Another machine may have launched it; another cluster's, or half an id, is a mistake."""
    run_id = new_run_id(name)
    assert find_resumed(run_id, name) == Resume(run_id, run_id)
    assert not is_run_id(run_id[:-1], name) and not is_run_id(f"x{run_id}", name)
    with pytest.raises(RunNotFoundError):
        find_resumed(run_id, "other")


def test_a_stream_that_resumes_a_run_makes_the_plan_of_that_run() -> None:
    """Whoever takes it up knows of the resumed run only by the record of the run."""
    cluster = loads(TEXT, "again.toml", Path("/"))
    first = RunStateMachine(cluster, "again-2", resume=Resume("again-1", "again-0"))
    machine = RunStateMachine(cluster, "again-2", past=first.data)
    (task,) = machine.data.plan.tasks
    assert "again-1" in str(task.variables["TFMUX_RESUME"])
    assert "again-0" in str(task.words)


SLOWLY = "import time\nfor step in range(100000): print('step', step, flush=True); time.sleep(0.05)"
KEPT = 'on_hangup = "detach"\non_disconnect = "keep"'


def renamed(run: Path) -> str:
    run.rename(run.with_name("renamed"))
    return "renamed"


def renamed_and_back(run: Path) -> str:
    run.rename(run.with_name("renamed"))
    command.run("ps")
    run.with_name("renamed").rename(run)
    return run.name


def copied(run: Path) -> str:
    shutil.copytree(run, run.with_name("copy"))
    return "copy"


def copied_and_removed(run: Path) -> str:
    shutil.copytree(run, run.with_name("copy"))
    shutil.rmtree(run)
    return "copy"


def named_like_another_run(run: Path) -> str:
    other = f"{run.name.rpartition('-')[0]}-ffff"
    run.rename(run.with_name(other))
    return other


def linked(run: Path) -> str:
    elsewhere = runs_home().parent / "elsewhere"
    run.rename(elsewhere)
    run.with_name("link").symlink_to(elsewhere)
    return "link"


def removed(run: Path) -> str:
    shutil.rmtree(run)
    return run.name


def moved_home(run: Path) -> str:
    """The whole data directory is elsewhere, and its variable names the new place."""
    new = runs_home().parents[1] / "other"
    (new / "tfmux").mkdir(parents=True)
    runs_home().rename(new / "tfmux" / "runs")
    os.environ["XDG_DATA_HOME"] = str(new)
    return run.name


def other_home(run: Path) -> str:
    """The variable names another place, and the runs have stayed."""
    os.environ["XDG_DATA_HOME"] = str(runs_home().parents[1] / "other")
    return run.name


Move = Callable[[Path], str]
MOVES: list[Move] = [
    renamed,
    renamed_and_back,
    copied,
    copied_and_removed,
    named_like_another_run,
    linked,
    removed,
    moved_home,
    other_home,
]
WITHOUT_LAUNCHER: list[Move] = [
    renamed,
    copied,
    copied_and_removed,
    named_like_another_run,
    linked,
    moved_home,
]


@pytest.fixture
def data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the variable as it was when the test has ended."""
    monkeypatch.setenv("XDG_DATA_HOME", os.environ["XDG_DATA_HOME"])


@pytest.mark.usefixtures("data_home")
@variants("move", MOVES, ids=lambda move: move.__name__, test=2)
def test_a_kill_by_any_name_of_the_folder_reaches_the_launcher(tmp_path: Path, move: Move) -> None:
    """Given a living launcher, then the run is listed once, commands that look at it find it, and
    the kill ends it and says which run that was."""
    with Up("up", str(write(tmp_path, one_task(SLOWLY, settings=KEPT))), "--json") as up:
        up.log("worker:0", "step 3")
        launcher = up.launcher
        name = move(runs_home() / up.run_id)
        if move is not other_home:
            listed = command.run("ps")
            assert listed.stdout.count(up.run_id) == 1, listed.stdout + listed.stderr
            assert "worker" in command.run("stacks", name).stdout
        if move not in (removed, other_home):
            assert "step 3" in command.run("logs", name).stdout
            if move is not copied_and_removed:
                with Up("attach", name, "--json") as attached:
                    attached.log("worker:0", "step")
                    attached.process.kill()
            kept = command.run("rm", "--force", name)
            assert kept.returncode == 1 and "is active" in kept.stderr
        done = command.run("kill", name)
        assert done.returncode == 0, done.stderr
        assert f"run {up.run_id}:" in done.stdout
        assert "no process is left, 1 host confirmed" in done.stdout
        assert not living()
        assert up.wait() == 130
        if move not in (removed, copied, copied_and_removed, other_home):
            assert "log not stored" not in up.transcript()
            assert command.run("kill", name).stderr.endswith("has ended already, confirmed\n")
        wait_until(lambda: not os.path.exists(f"/proc/{launcher}"), "the launcher has ended")
    assert "no active runs" in command.run("ps").stderr


@pytest.mark.usefixtures("data_home")
@variants("move", WITHOUT_LAUNCHER, ids=lambda move: move.__name__, test=1)
def test_a_kill_by_any_name_of_the_folder_asks_the_hosts(tmp_path: Path, move: Move) -> None:
    """Given a launcher that was killed, and tasks that live."""
    with Up("up", str(write(tmp_path, one_task(SLOWLY, settings=KEPT))), "--json") as up:
        up.log("worker:0", "step 3")
        run_id = up.run_id
        up.kill_launcher()
    assert len(living()) == 1
    name = move(runs_home() / run_id)
    listed = command.run("ps")
    assert listed.stdout.count(run_id) == 1, listed.stdout + listed.stderr
    done = command.run("kill", name)
    assert done.returncode == 0, done.stderr
    assert f"run {run_id}:" in done.stdout
    assert "no process is left, 1 host confirmed" in done.stdout
    assert not living()
    again = command.run("kill", name)
    assert again.returncode == 0 and "has ended already" in again.stderr


@pytest.mark.usefixtures("data_home")
def test_a_kill_takes_a_run_over_whose_socket_was_removed(tmp_path: Path) -> None:
    """Its launcher lives, and nobody can speak to it."""
    with Up("up", str(write(tmp_path, one_task(SLOWLY, settings=KEPT))), "--json") as up:
        up.log("worker:0", "step 3")
        socket_path(up.run_id).unlink()
        done = command.run("kill", up.run_id)
        assert done.returncode == 0, done.stderr
        assert "no process is left, 1 host confirmed" in done.stdout
        assert not living()


@pytest.mark.usefixtures("data_home")
def test_an_attach_says_that_the_folder_was_removed(tmp_path: Path) -> None:
    """The command ends as the run does, of which the launcher tells."""
    with Up("up", str(write(tmp_path, one_task(SLOWLY, settings=KEPT))), "--json") as up:
        up.log("worker:0", "step 3")
        shutil.rmtree(runs_home() / up.run_id)
        with Up("attach", up.run_id, "--json") as attached:
            wait_until(lambda: "its folder has been removed" in attached.transcript(), "it says so")
            assert command.run("kill", up.run_id).returncode == 0
            code, said = attached.wait(), attached.transcript()
        # The run may end before the command has connected to its launcher process.
        assert code == (4 if "how the run ended is not known here" in said else 130), said
        assert "starting another" not in said and not living()


@pytest.mark.usefixtures("data_home")
def test_an_attach_that_stood_still_at_the_end_of_a_run_without_folder(tmp_path: Path) -> None:
    """No launcher process is started, which could not know the run; it ends as the run did."""
    with Up("up", str(write(tmp_path, one_task(SLOWLY, settings=KEPT))), "--json") as up:
        up.log("worker:0", "step 3")
        with Up("attach", up.run_id, "--json") as attached:
            assert attached.log("worker:0", "step")
            attached.process.send_signal(signal.SIGSTOP)
            shutil.rmtree(runs_home() / up.run_id)
            assert command.run("kill", up.run_id).returncode == 0
            attached.process.send_signal(signal.SIGCONT)
            assert attached.wait() == 130, attached.transcript()
        assert "starting another" not in attached.transcript() and not living()


@pytest.mark.usefixtures("data_home")
def test_a_run_without_folder_and_launcher_is_told(tmp_path: Path) -> None:
    """Its hosts are named, and how to ask them: nobody says that no run is active."""
    file = write(tmp_path, one_task(SLOWLY, settings=KEPT))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "step 3")
        run_id = up.run_id
        up.kill_launcher()
    shutil.rmtree(runs_home() / run_id)
    listed = command.run("ps")
    assert "no active runs" not in listed.stderr
    assert run_id in listed.stderr and "localhost" in listed.stderr and "--file" in listed.stderr
    alone = command.run("kill", run_id)
    assert alone.returncode == 2 and "--file" in alone.stderr
    every = command.run("kill", "--all")
    assert every.returncode == 4 and run_id in every.stderr
    assert len(living()) == 1
    done = command.run("kill", run_id, "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert not living()
    assert "no active runs" in command.run("ps").stderr


@pytest.mark.usefixtures("data_home")
def test_a_copy_of_an_ended_run_is_a_run_that_has_ended(recorded: Recording) -> None:
    """Given such a copy, then a kill asks no host, and a deletion deletes the copy alone."""
    run = recorded(GOOD).folder
    shutil.copytree(run, run.with_name("copy"))
    assert "no active runs" in command.run("ps").stderr
    for name in ("copy", run.name):
        assert "has ended already" in command.run("kill", name).stderr
        assert "fine" in command.run("logs", name).stdout
    assert command.run("rm", "copy").returncode == 0
    assert os.listdir(runs_home()) == [run.name]


@variants("words", [["--all"], ["RUN"], []], ids=["all", "name", "no name"], test=1)
def test_a_run_whose_folder_was_removed_is_listed_and_ended(
    tmp_path: Path, words: list[str]
) -> None:
    """Its launcher process lives, and its tasks do: neither `ps` nor `kill` says that no run is
    active."""
    file = write(tmp_path, one_task(SLOWLY, settings='on_hangup = "detach"'))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "step 3")
        run = up.run_id
        shutil.rmtree(RunFolder.find(run).path)
        listed = command.run("ps")
        assert listed.returncode == 0 and "no active runs" not in listed.stderr
        assert f"{run} is still active, but its folder has been removed" in listed.stderr
        done = command.run("kill", *(run if word == "RUN" else word for word in words))
        assert done.returncode == 0, done.stderr
        assert (
            f"run {run}:" in done.stdout and "no process is left, 1 host confirmed" in done.stdout
        )
        assert not living()
        assert up.wait() == 130
    assert "no active runs" in command.run("ps").stderr


DAMAGED = ("", "name = 'ticking", "name = 'ticking'\n", "\0" * 100)


def test_a_damaged_cluster_file_is_replaced_by_a_given_one(tmp_path: Path) -> None:
    """`kill RUN` says what is wrong with it, and with `--file` ends the tasks of a launcher that
    has died."""
    file = cluster(tmp_path)
    file.write_text(file.read_text() + 'on_disconnect = "keep"\n')
    with Up("up", str(file), "--json") as up:
        up.state("worker:1", "running")
        run = RunFolder.find(up.run_id)
        up.kill_launcher()
    for damage in DAMAGED:
        run.cluster_file.write_text(damage)
        alone = command.run("kill", run.run_id)
        assert alone.returncode == 2 and "cluster.toml" in alone.stderr
        assert "--file" in alone.stderr
        assert len(living()) == 3
    done = command.run("kill", run.run_id, "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert not living()


@variants("jump", [-86_400.0, 86_400.0], test=1)
def test_elapsed_time_does_not_follow_a_clock_that_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """A machine gets its time from the network after the start: the run is as old as before."""
    monkeypatch.setattr("launcher.client.run_client.LauncherProcess", LauncherThread)
    from launcher.cluster.read import load

    file = cluster(tmp_path)
    client = RunClient.launch(load(file), file.read_text())
    try:
        wait_until(lambda: client.snapshot().state is RunPhase.RUNNING, "running", PATIENCE)
        before = client.snapshot().started
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        wait_until(lambda: client.snapshot().started != before, "another start", PATIENCE)
        assert 0 <= time.time() - client.snapshot().started < PATIENCE
        (folder,) = RunFolder.all()
        text = command.run("ps", "--json").stdout
        assert folder.run_id in text
    finally:
        client.kill_all()
        client.wait(PATIENCE)
        client.close()
    assert not living()


@pytest.mark.prove
def test_after_a_kill_a_flood_is_not_printed_to_its_end(tmp_path: Path) -> None:
    """Whoever presses Ctrl-C gets the receipt and the prompt, and where the rest is."""
    flood = "while True: print('x' * 100)"
    with Up("up", str(write(tmp_path, one_task(flood))), "--json") as up:
        up.log("worker:0", "xxx")
        log = RunFolder.find(up.run_id).path / "worker-0.log"
        wait_until(lambda: log.stat().st_size > 200 << 20, "200 MB", PATIENCE)
        up.press_ctrl_c()
        assert up.wait() == 130
    assert "of logs were not printed after the kill; tfmux logs" in up.said
    assert sum(len(event["text"]) for event in up.of("log")) < log.stat().st_size / 2
    assert "no process is left" in up.said


BY = "elsewhere:7"
TOLD = "import os, sys; open(os.environ['TFMUX_EVENT'], 'w').write(sys.stdin.read())"
HOOKS = {f"on_{name}": [sys.executable, "-c", TOLD] for name in ("success", "failure", "end")}
CLUSTER = cluster_text(
    {"worker": 1},
    "taken",
    command=["sh", "-c", "while echo tick; do sleep 0.1; done"],
    workdir="",
    grace=1,
    on_disconnect="keep",
    start={"ready": {"worker": "started"}},
    hooks=HOOKS,
)


def taker(run_id: str, **said: Any) -> Client:
    """A launcher elsewhere that the agent has admitted as the run's."""
    client = Client(run_id, host="localhost", local=True, on_disconnect="keep", grace=1.0)
    client.hello(launcher=BY, **said)
    return client


def end(client: Client) -> None:
    """The run's end, by whoever has it."""
    assert client.kill()["confirmed"]
    client.leave()


def hooks_of(folder: Path) -> dict[str, Any]:
    """What each hook that has run was told."""
    names = [name.removeprefix("on_") for name in HOOKS]
    return {n: json.loads((folder / n).read_text()) for n in names if (folder / n).exists()}


@pytest.mark.parametrize(
    ("said", "outcome", "code"),
    [
        ({"purpose": "attach"}, "taken-over", 5),
        ({"purpose": "kill"}, "killed", 130),
        ({}, "taken-over", 4),
    ],
    ids=["attach", "kill", "unsaid"],
)
async def test_everybody_who_follows_it_here_says_the_same(
    tmp_path: Path, said: dict[str, str], outcome: str, code: int
) -> None:
    """`up`, `attach`, the Python interface and the hooks: the outcome is no
    success, names who has the run and what for, and says nothing of the host, where the task
    lives all the while."""
    with Up("up", str(write(tmp_path, CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        with Up("attach", up.run_id, "--json") as attached:
            attached.log("worker:0", "tick")
            async with asyncio.timeout(PATIENCE), Run.attach(up.run_id) as run:
                with taker(up.run_id, **said) as client:
                    ended = await run.wait()
                    codes = await asyncio.to_thread(lambda: (up.wait(), attached.wait()))
                    assert guard.first_pids().keys() == {"worker:0"}, "it was ended"
                    end(client)
    purpose = said.get("purpose", "")
    assert codes == (code, code), up.transcript() + attached.said
    assert (ended.outcome, ended.exit_code) == (Outcome(outcome), code)
    assert (ended.taken_by, ended.taken_for) == (BY, purpose)
    last = up.of("run")[-1]
    told = (last["outcome"], last["exit_code"], last["taken_by"], last.get("taken_for", ""))
    assert told == (outcome, code, BY, purpose)
    hooks = hooks_of(tmp_path)
    assert set(hooks) == ({"end", "failure"} if code == 4 else {"end"})
    assert (hooks["end"]["outcome"], hooks["end"]["exit_code"]) == (outcome, code)
    for text in (up.said, attached.said):
        assert f"another launcher ({BY}) has taken" in text
        assert "no process is left" not in text and "continues" not in text
    assert not any(receipt["clean"] for receipt in up.of("receipt") if "clean" in receipt)


def test_a_taker_that_dies_at_once_leaves_what_it_has_said(tmp_path: Path) -> None:
    """The taker was admitted, and died before it could order the kill: the command still says what
    was intended, and not that anything is dead. The run is listed, and a kill from here ends it."""
    with Up("up", str(write(tmp_path, CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        taker(up.run_id, purpose="kill").close()
        assert up.wait() == 130, up.transcript()
        assert guard.first_pids().keys() == {"worker:0"}
        assert "no process is left" not in up.said
        killed = command.run("kill", up.run_id)
        assert killed.returncode == 0 and "no process is left" in killed.stdout, killed
    assert not guard.first_pids()


def test_two_takers_in_sequence(tmp_path: Path) -> None:
    """Who supervises the run now is replaced by one that ends it: each that is replaced hears of
    the one that has taken its own place, also when it comes back."""
    with Up("up", str(write(tmp_path, CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        with taker(up.run_id, purpose="attach") as first:
            assert up.wait() == 5, up.transcript()
            with taker(up.run_id, purpose="kill") as second:
                told = first.get(wire.GONE)
                assert (told["by"], told["purpose"]) == (BY, "kill")
                with Client(up.run_id, host="localhost", local=True) as late:
                    late.token = first.token
                    late.send(wire.HELLO, hello(late.token, purpose="attach"))
                    assert late.get(wire.GONE)["purpose"] == "kill"
                end(second)
