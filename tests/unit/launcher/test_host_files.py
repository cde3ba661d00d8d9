"""Files of a host: its program before the first task, its logs before its folder is removed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.errors import AgentError
from launcher.files import staging
from launcher.files.listing import Tree
from launcher.hosts.programs import HostProgram
from launcher.ids import TaskId
from launcher.process import release as module
from launcher.process.gpu_watch import GpuWatch
from launcher.process.preparation import LaunchPreparation
from launcher.process.release import Teardown
from launcher.run import events as ev
from launcher.subprocesses import Workers
from tests.support.cluster_texts import STAGED
from tests.support.fake_core import FakeCore, fake_hosts
from tests.support.patience import PATIENCE
from tests.support.short_programs import Talker, message

# Preparation of a launch before the first task starts.


class Reached:
    """A host that has all contents and counts how often it builds the trees."""

    connected = True
    sessions = 1

    def __init__(self) -> None:
        self.built = 0
        self.talkers: list[Talker] = []
        self.asked = asyncio.Event()

    async def start_program(self) -> HostProgram:
        """Files come."""
        self.built += 1
        said: list[dict[str, Any]] = [{}, {"missing": []}, {"built": True}]

        async def open_session(nonce: str) -> Talker:
            self.asked.set()
            self.talkers.append(Talker(nonce, *map(message, said)))
            return self.talkers[-1]

        return await HostProgram.start("staged-1", "far", open_session)


async def test_files_that_go_to_a_host_again_go_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host was cut off and is back while its files are still being read here: the trees are
    built once. Built a second time they would be gone for a moment, after tasks have started."""
    may_read = threading.Event()

    def read(tree: Tree) -> staging.Manifest:
        may_read.wait(PATIENCE)
        return staging.Manifest((), {})

    monkeypatch.setattr(staging, "read_tree", read)
    link: Any = Reached()
    preparation, told = prepared(link, tmp_path)
    twice = [asyncio.create_task(preparation.stage("far")) for _ in range(2)]
    await asyncio.sleep(0)
    may_read.set()
    await asyncio.wait(twice)
    assert link.built == 1
    assert [type(event) for event in told] == [ev.Staged]


def prepared(link: Any, folder: Path) -> tuple[LaunchPreparation, list[ev.Event]]:
    """The preparation of a run with nothing to send, on one host, and what it tells."""
    core = FakeCore(STAGED, folder, {"far": link})
    gpus = GpuWatch(core, lambda sample: None)
    return LaunchPreparation(core, fake_hosts(), gpus, None), core.fed


async def test_the_program_that_was_begun_takes_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is started while other hosts are logged in to; but a program that belongs to a
    connection which was cut is ended, and another one takes the files."""
    monkeypatch.setattr(staging, "read_tree", lambda tree: staging.Manifest((), {}))
    link: Any = Reached()
    preparation, told = prepared(link, tmp_path)
    preparation.begin_program("far")
    await asyncio.create_task(preparation.stage("far"))
    assert link.built == 1
    preparation.begin_program("far")
    await asyncio.sleep(0)
    link.sessions = 2
    await asyncio.create_task(preparation.stage("far"))
    assert link.built == 3
    assert [type(event) for event in told] == [ev.Staged, ev.Staged]
    assert all(talker.closed for talker in link.talkers)


async def test_a_program_that_nobody_needed_is_ended(tmp_path: Path) -> None:
    """The run was killed while it connected."""
    link: Any = Reached()
    preparation, _ = prepared(link, tmp_path)
    preparation.begin_program("far")
    await link.asked.wait()
    await preparation.aclose()
    assert [talker.closed for talker in link.talkers] == [True]


async def test_a_program_that_cannot_be_started_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure counts where the files are due, and not for ever."""
    monkeypatch.setattr(staging, "read_tree", lambda tree: staging.Manifest((), {}))
    link: Any = Reached()
    works = link.start_program

    async def fail() -> HostProgram:
        raise AgentError("far", "no more processes there")

    preparation, told = prepared(link, tmp_path)
    link.start_program = fail
    preparation.begin_program("far")
    await asyncio.create_task(preparation.stage("far"))
    link.start_program = works
    await asyncio.create_task(preparation.stage("far"))
    assert [type(event) for event in told] == [ev.HostRefused, ev.Staged]


async def test_a_machine_without_threads_refuses_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch ends with a sentence; it was taken for a fault of the launcher."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    asyncio.get_running_loop().set_default_executor(Workers())  # as the launcher's loop
    link: Any = Reached()
    preparation, told = prepared(link, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        await preparation.stage("far")
    (refused,) = told
    assert isinstance(refused, ev.HostRefused) and refused.host == "far"
    assert "starts no more threads" in refused.reason and not link.built


# The end of a run at one host: its logs are fetched before its folder is removed.


WORKER = TaskId("worker", 0)


class LostLink:
    """A link that was connected a moment ago."""

    connected = False
    closed = False
    agent_gone = False
    left: bool | None = None

    def leave(self, *, remove: bool, brought: tuple[str, ...] = ()) -> None:
        """Notes whether the folder may go."""
        self.left = remove


@pytest.fixture
def link() -> Any:
    return LostLink()


@pytest.fixture
def whole() -> list[bool]:
    """Whether all of the log is here, as its only entry."""
    return [False]


class Disk:
    """A disk that takes everything, and counts how often it is looked at."""

    looks = 0

    @property
    def stalled(self) -> bool:
        self.looks += 1
        return False


class Logs:
    """Logs of hosts, of which something may be missing."""

    def __init__(self, whole: list[bool]) -> None:
        self._whole = whole
        self.looks = 0
        self.news: dict[str, Callable[[], None] | None] = {}
        self.monitor = SimpleNamespace(size=lambda _: 10)
        self.cut = False

    def is_cut(self, view: Any) -> bool:
        """Whether somebody has removed the log."""
        return self.cut

    def is_whole(self, view: Any) -> bool:
        self.looks += 1
        return self._whole[0]

    def listen(self, host: str, news: Callable[[], None] | None) -> None:
        """Notes who wants to hear of a host's logs."""
        self.news[host] = news

    def notify_all(self) -> None:
        """Tells all of them that there is more."""
        for news in self.news.values():
            if news is not None:
                news()


def releasing(
    links: dict[str, Any], logs: Logs, disk: Disk, folder: Path, survivors: tuple[str, ...] = ()
) -> tuple[list[ev.Event], list[asyncio.Task[None]]]:
    """Begins to release all hosts; returns what is told."""
    core = FakeCore(STAGED, folder, links)
    plan = core.data.plan
    view = SimpleNamespace(id=WORKER, host="far", attempts=(1,), attempt=1)
    data = SimpleNamespace(run=SimpleNamespace(forced=False), on_host=lambda _: [view])
    data.survivors_on = lambda _: survivors
    planned = replace(plan, workdir=None)  # nothing was copied there
    data.plan = SimpleNamespace(
        hosts=plan.hosts, host=lambda _: plan.host("far"), copies=planned.copies
    )
    data.allocation = None
    core.data = data
    hosts, bytes_, takes = fake_hosts(), cast(Any, logs), cast(Any, disk)
    teardown_ = Teardown(core, hosts, bytes_, takes, folder)
    gone = asyncio.create_task(asyncio.sleep(0))
    hosts.tasks.update(dict.fromkeys(links, gone))
    return core.fed, [asyncio.create_task(teardown_.release(host)) for host in links]


async def release(link: Any, logs: Logs, tmp_path: Path) -> list[ev.Event]:
    """Releases the host; returns what was told."""
    told, work = releasing({"far": link}, logs, Disk(), tmp_path)
    await asyncio.gather(*work)
    return told


async def test_a_host_that_is_lost_before_its_last_bytes_came_is_waited_for(
    link: Any, whole: list[bool], tmp_path: Path
) -> None:
    """A busy host, or a bad network: it confirmed the kill, and is back a moment later."""
    logs = Logs(whole)

    def back() -> None:
        link.connected = whole[0] = True
        logs.notify_all()

    asyncio.get_running_loop().call_later(0.5, back)
    assert await release(link, logs, tmp_path) == []
    assert link.left is True


@pytest.mark.parametrize(
    ("how", "survivors"), [("closed", ()), ("agent_gone", ()), ("connected", ("rsync",))]
)
async def test_bytes_that_will_not_come_are_not_waited_for(
    link: Any,
    whole: list[bool],
    tmp_path: Path,
    how: str,
    survivors: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Output is missing where a host does not come back, or a survivor holds the log, as what waits
    in the kernel may for days: what is missing stays there, and that is said."""
    monkeypatch.setattr(module, "COLLECT_STALL", 2 * PATIENCE)
    setattr(link, how, True)
    told, work = releasing({"far": link}, Logs(whole), Disk(), tmp_path, survivors)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*work)
    (note,) = told
    assert (
        isinstance(note, ev.NoteAdded)
        and "the last log bytes of far were not received" in note.text
    )
    assert link.left is (None if survivors else False)


async def test_an_agent_above_survivors_is_not_released(
    link: Any, whole: list[bool], tmp_path: Path
) -> None:
    """Its logs are fetched; it stays, for the next `tfmux kill`."""
    link.connected = whole[0] = True
    told, work = releasing({"far": link}, Logs(whole), Disk(), tmp_path, ("rsync",))
    await asyncio.gather(*work)
    assert told == [] and link.left is None


async def test_output_that_somebody_has_removed_is_not_waited_for(
    link: Any, whole: list[bool], tmp_path: Path
) -> None:
    """The loss is reported; nothing of the output stays on the host."""
    link.connected = whole[0] = True
    logs = Logs(whole)
    logs.cut = True
    (told,) = await release(link, logs, tmp_path)
    assert isinstance(told, ev.NoteAdded) and "the last output of worker:0 is lost" in told.text
    assert link.left is True


async def test_hosts_that_wait_for_bytes_leave_the_loop_alone(
    whole: list[bool], tmp_path: Path
) -> None:
    """A hundred of them cost no more looks at the disk than one, and none at logs of which nothing
    new has come: beats and a second kill go on beside them."""
    logs, disk = Logs(whole), Disk()
    links = {f"h{number}": LostLink() for number in range(100)}
    told, work = releasing(links, logs, disk, tmp_path)
    began = time.monotonic()
    await asyncio.wait(work, timeout=1.0)
    assert not any(task.done() for task in work)
    assert disk.looks < 200 * (time.monotonic() - began)
    assert logs.looks == 100
    whole[0] = True
    logs.notify_all()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*work)
    assert told == [] and all(link.left for link in links.values())
    assert not any(logs.news.values())
