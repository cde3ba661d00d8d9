"""The Python interface: runs that are launched, followed and ended by a program. Real processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import launcher
from launcher import (
    Cluster,
    ClusterFileError,
    LauncherError,
    Outcome,
    Run,
    RunEndedError,
    RunNotFoundError,
    TaskNotFoundError,
    TaskState,
)
from launcher.client.run_client import RunClient
from launcher.history.stored import stored_folder
from launcher.store.runs import RunFolder
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.support.streams import records
from tests.testbed import guard

TICKER = (
    "import time\n"
    "for step in range(100000):\n"
    "    print('step', step, 'loss', 1 / (step + 1), flush=True)\n"
    "    time.sleep(0.05)\n"
)
TEXT = f'''
name = "api"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
ready = "started"
[run]
workdir = ""
grace = 2
command = ["{{python}}", "-u", "-c", """{TICKER}"""]
'''
FAILING = TEXT.replace(TICKER, "import sys, time\nsys.exit(3 * {index} or time.sleep(100))")
CLUSTER = Cluster.from_text(TEXT)


async def until_metric(run: Run) -> None:
    """Reads events until a task has trained a step."""
    async for event in run.events():
        if event["event"] == "metric":
            return
    raise AssertionError(f"no metric: {run.snapshot()}")


async def test_a_run_that_succeeds_yields_all_events(tmp_path: Path) -> None:
    """From the first state to the end: what its files keep, in their order."""
    text = TEXT.replace(TICKER, "print('step 1 loss 0.5')")
    (tmp_path / "c.toml").write_text(text)
    async with asyncio.timeout(PATIENCE), Cluster.from_file(tmp_path / "c.toml").launch() as run:
        begun = run.receipt, run.exit_code
        assert run.id.startswith("api-") and begun == (None, None)
        events = [event async for event in run.events()]
        ended = await run.wait()
    assert (ended.outcome, run.exit_code) == (Outcome.SUCCESS, 0)
    assert run.receipt is not None and run.receipt.clean
    assert run.log("worker:0").read_text() == "step 1 loss 0.5\n"
    stored = records(RunFolder(run.folder))
    stored = [one for one in stored if one["event"] != "facts"]
    assert events == sorted(stored, key=lambda event: float(event["time"]))
    assert [event["event"] for event in events][-1] == "end"


async def test_log_lines_are_events_when_they_are_asked_for() -> None:
    """Lines of all tasks come whole and in their order, to the last one, which has no newline; a
    reader that is slower than the tasks loses none, and the run does not wait for it."""
    count = 20_000
    program = (
        f"for n in range({count}):\n    print(chr(27) + '[31mline', n)\nprint('end', end='')\n"
    )
    lines: dict[str, list[str]] = {"worker:0": [], "worker:1": []}
    kinds = set()
    async with asyncio.timeout(PATIENCE):
        async with Cluster.from_text(TEXT.replace(TICKER, program)).launch() as run:
            async for event in run.events(logs=True):
                kinds.add(event["event"])
                if event["event"] == "log":
                    lines[event["task"]].append(event["text"])
                    assert event["host"] == "localhost"
                    if len(lines[event["task"]]) == 1:
                        await run.wait()  # all the rest is read behind the run's end
    expected = [*(f"line {n}" for n in range(count)), "end"]
    assert lines == {"worker:0": expected, "worker:1": expected}
    assert kinds == {"run", "host", "task", "receipt", "end", "log"}


async def test_a_run_that_is_attached_to_yields_its_lines_from_then_on() -> None:
    """Earlier lines are in the file."""
    async with asyncio.timeout(PATIENCE):
        async with Cluster.from_text(TEXT).launch(detach=True) as run:
            await until_metric(run)
        before = len(run.log("worker:0").read_text().splitlines())
        async with Run.attach(run.id, detach=False) as again:
            async for event in again.events(logs=True):
                if event["event"] == "log" and event["task"] == "worker:0":
                    assert int(event["text"].split()[1]) >= before - 1 >= 0
                    break


async def test_a_failure_is_seen_in_the_middle_and_the_kill_is_proven() -> None:
    """The first failure has task, host and exit; the other worker is dead when the block ends."""
    async with asyncio.timeout(PATIENCE), Cluster.from_text(FAILING).launch() as run:
        failed = [
            event["task"]
            async for event in run.events()
            if event["event"] == "task" and event["state"] == "failed"
        ]
    assert failed == ["worker:1"]
    failure = run.snapshot().first_failure
    assert failure is not None and (str(failure.task), failure.host) == ("worker:1", "localhost")
    assert run.exit_code == 1
    assert run.receipt is not None and run.receipt.clean and run.receipt.hosts[0].confirmed
    assert not guard.tasks_here()


async def test_an_exception_in_the_block_kills_the_run() -> None:
    """The exception is raised again when no process is left."""
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(PATIENCE), CLUSTER.launch() as run:
            await until_metric(run)
            raise ZeroDivisionError
    assert run.snapshot().outcome is Outcome.TERMINATED and run.exit_code == 143
    assert run.receipt is not None and run.receipt.clean and not guard.tasks_here()


async def test_a_cancelled_task_kills_its_run() -> None:
    """The task ends only when the receipt is there."""
    trains: asyncio.Future[Run] = asyncio.get_running_loop().create_future()

    async def follow() -> None:
        async with CLUSTER.launch() as run:
            await until_metric(run)
            trains.set_result(run)
            await run.wait()

    task = asyncio.create_task(follow())
    run = await asyncio.wait_for(trains, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert run.receipt is not None and run.receipt.clean and not guard.tasks_here()


async def test_a_task_cancelled_during_the_launch_leaves_nothing() -> None:
    """The launcher process was being started."""

    async def follow() -> None:
        async with CLUSTER.launch():
            raise AssertionError("never entered")

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert not guard.tasks_here()
    for folder in RunFolder.all():
        assert folder.launcher_pid() is None


async def test_a_second_cancellation_kills_at_once() -> None:
    """Tasks that ignore TERM are not given their grace."""
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('step 1 loss 1')"
    )
    text = TEXT.replace(TICKER, f"{deaf}; time.sleep(1000)").replace("grace = 2", "grace = 1000")
    trains: asyncio.Future[Run] = asyncio.get_running_loop().create_future()

    async def follow() -> None:
        async with Cluster.from_text(text).launch() as run:
            await until_metric(run)
            trains.set_result(run)
            await run.wait()

    task = asyncio.create_task(follow())
    run = await asyncio.wait_for(trains, PATIENCE)
    task.cancel()
    await run._until(lambda now: now.kill_deadline is not None)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert run.receipt is not None and run.receipt.clean


async def test_kill_returns_the_receipt() -> None:
    """Again and again; commands to tasks are refused from then on."""
    async with asyncio.timeout(PATIENCE), CLUSTER.launch() as run:
        await until_metric(run)
        receipt = await run.kill()
        assert receipt.clean and receipt == run.receipt == await run.kill()
        with pytest.raises(RunEndedError, match=f"restart worker:0: {run.id} has ended"):
            await run.restart("worker:0")
        with pytest.raises(RunEndedError, match="TERM to worker:0"):
            run.signal("worker:0", "TERM")
    assert run.snapshot().outcome is Outcome.KILLED and run.exit_code == 130


async def test_one_task_is_restarted_and_signalled() -> None:
    """`restart` returns when the next attempt runs; unknown tasks are named with the known ones."""
    text = TEXT.replace("grace = 2", 'grace = 2\non_failure = "keep"')
    async with asyncio.timeout(PATIENCE), Cluster.from_text(text).launch() as run:
        await until_metric(run)
        again = await run.restart("worker:1", hard=True)
        assert again.attempt == 2 and again.pid and again.state is not TaskState.FAILED
        with pytest.raises(
            TaskNotFoundError, match="no task 'worker:7'; it has worker:0, worker:1"
        ):
            await run.restart("worker:7")
        with pytest.raises(ValueError, match="neither TERM nor KILL"):
            run.signal("worker:1", "HUP")
        run.signal("worker:1", "KILL")
        async for event in run.events():  # the first attempt was ended by KILL, too, and came back
            if event["event"] == "task" and event["attempt"] == 2 and event["state"] == "killed":
                assert (event["task"], event["signal"]) == ("worker:1", "KILL")
                break


async def test_without_a_task_that_a_person_has_ended_a_run_is_no_success() -> None:
    """Given success = "all" and a task that is ended alone, then the other one goes on to its end,
    and the run is one that a person has ended."""
    text = TEXT.replace("range(100000)", "range(10**5 if {index} else 40)")
    text = text.replace("grace = 2", 'grace = 2\nsuccess = "all"')
    async with asyncio.timeout(PATIENCE), Cluster.from_text(text).launch() as run:
        await until_metric(run)
        run.signal("worker:1", "TERM")
        ended = await run.wait()
    assert [str(task.state) for task in ended.tasks] == ["exited", "killed"]
    assert ended.outcome is Outcome.KILLED and run.exit_code == 130
    assert "worker:1 was ended by the user: without it the run is not a success" in ended.notes


async def test_it_says_where_tasks_stand() -> None:
    """All tasks are asked, or the named ones; a host that is busy may have to be asked again."""
    async with asyncio.timeout(PATIENCE), CLUSTER.launch() as run:
        await until_metric(run)
        while len((found := await run.stacks()).tasks) < 2:
            pass
        assert [str(one.task) for one in found.tasks] == ["worker:0", "worker:1"]
        assert sum(len(group.tasks) for group in found.groups) == 2
        while not (found := await run.stacks(["worker:1"])).tasks:
            pass
        assert [str(one.task) for one in found.tasks] == ["worker:1"]
        with pytest.raises(TaskNotFoundError, match="no task 'worker:7'"):
            await run.stacks(["worker:7"])
        await run.kill()
        with pytest.raises(RunEndedError, match=f"stacks: {run.id} has ended"):
            await run.stacks()


async def test_a_detached_run_goes_on_and_is_attached_to() -> None:
    """Its block says so; `Run.attach` leaves it alone unless it is told otherwise."""
    async with asyncio.timeout(PATIENCE):
        async with CLUSTER.launch(detach=True) as first:
            await until_metric(first)
        async with Run.attach(first.id[:-1]) as second:
            assert second.id == first.id and second.snapshot().receipt is None
            await until_metric(second)
        async with Run.attach(first.id, detach=False) as third:
            await until_metric(third)
            with pytest.raises(RunEndedError, match="has been detached"):
                await first.kill()
        assert third.receipt is not None and third.receipt.clean
        assert not guard.tasks_here()
        with pytest.raises(RunEndedError, match=f"{first.id} has ended"):
            async with Run.attach(first.id):
                raise AssertionError("nothing of it is left")


async def test_detach_in_the_block_lets_the_run_go_on() -> None:
    """`events` ends, and the block's end kills nothing."""
    async with asyncio.timeout(PATIENCE):
        async with CLUSTER.launch() as run:
            await until_metric(run)
            await run.detach()
            ends = [event async for event in run.events() if event["event"] in ("receipt", "end")]
            assert ends == []
        async with Run.attach(run.id) as again:
            await until_metric(again)
            assert (await again.kill()).clean
            await again.wait()


async def test_a_launcher_process_that_dies_is_replaced_and_that_is_told() -> None:
    """The run goes on under another one, as at the command line."""
    text = TEXT.replace("grace = 2", 'grace = 2\non_disconnect = "keep"')
    async with asyncio.timeout(PATIENCE), Cluster.from_text(text).launch() as run:
        await until_metric(run)
        pid = RunFolder(run.folder).launcher_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        async for event in run.events():
            if "starting another" in str(event.get("note")):
                break
        await until_metric(run)
        assert RunFolder(run.folder).launcher_pid() not in (None, pid)
        assert (await run.kill()).clean


async def test_launchers_that_all_die_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which names the command that ends what is left."""
    async with asyncio.timeout(PATIENCE), CLUSTER.launch() as run:
        await until_metric(run)
        monkeypatch.setattr(RunClient, "gave_up", True)
        run._on_change()
        with pytest.raises(LauncherError, match=f"tfmux kill {run.id}"):
            await run.wait()
        with pytest.raises(LauncherError):
            async for _ in run.events():
                pass
        monkeypatch.undo()
        run._error = None
        run._ended.clear()


async def test_errors_are_those_of_the_command_line(tmp_path: Path) -> None:
    """Typed, with the same text."""
    (tmp_path / "bad.toml").write_text(TEXT.replace("grace", "garce"))
    with pytest.raises(ClusterFileError, match="garce") as caught:
        Cluster.from_file(tmp_path / "bad.toml")
    argv = [sys.executable, "-m", "tui.main", "up", str(tmp_path / "bad.toml")]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.stderr.strip() == str(caught.value)
    with pytest.raises(RunNotFoundError, match="no-such-run"):
        async with Run.attach("no-such-run"):
            pass


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is planned is what is kept with the run, although it is edited meanwhile."""
    path = tmp_path / "c.toml"
    path.write_text(TEXT)
    edited = iter([TEXT, TEXT.replace("api", "edited")])
    monkeypatch.setattr("launcher.cluster.read._bytes", lambda _: next(edited).encode())
    cluster = Cluster.from_file(path)
    assert (cluster.name, cluster.text, cluster.model.base) == ("api", TEXT, tmp_path)
    edited = iter([TEXT, TEXT.replace("api", "edited")])
    path.write_text(TEXT.replace("api", "edited"))
    folder = stored_folder("api-20261120-183002-7f3a", path)
    assert folder.cluster_file.read_text() == TEXT and folder.origin == tmp_path


def test_a_launch_is_planned_by_its_launcher_alone(tmp_path: Path) -> None:
    """Given a program that launches a run, when the run's tasks are known and it has ended, then
    the program has not even imported what plans."""
    (tmp_path / "c.toml").write_text(TEXT.replace(TICKER, "print('step 1 loss 0.5')"))
    code = """
import asyncio, sys
from launcher import Cluster
async def main():
    async with Cluster.from_file(sys.argv[1]).launch() as run:
        print([str(task.id) for task in run.snapshot().tasks])
        await run.wait()
    print([name for name in sys.modules if name.endswith(".planner")])
asyncio.run(main())
"""
    argv = [sys.executable, "-c", code, str(tmp_path / "c.toml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.splitlines() == ["['worker:0', 'worker:1']", "[]"]


def test_the_package_imports_nothing_until_it_is_asked() -> None:
    """`tfmux --help` imports `launcher`, too."""
    code = "import sys, launcher; print([m for m in sys.modules if m.startswith('launcher.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert all(getattr(launcher, name) for name in launcher.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Clutser'"):
        launcher.Clutser  # noqa: B018


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    """As it stands there, in a process of its own."""
    program, cluster = (example("python-api.md", kind) for kind in ("python", "toml"))
    (tmp_path / "c.toml").write_text(cluster)
    printed = printed_by(program, tmp_path)
    assert "worker:1 failed with status 3" in printed
    assert "no process is left" in printed


def test_the_example_of_a_preflight_runs(tmp_path: Path) -> None:
    """Also as it stands there."""
    (tmp_path / "c.toml").write_text(TEXT)
    printed = printed_by(example("preflight.md", "python"), tmp_path)
    assert "localhost python ok" in printed
    assert printed.endswith("ready to launch\n")


def example(page: str, language: str) -> str:
    """The first block in a language on a page of the manual."""
    text = (REPOSITORY / "docs" / page).read_text()
    block: str = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[0]
    return block


def printed_by(program: str, folder: Path) -> str:
    """What a program prints that is started in a folder."""
    (folder / "example.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
