"""One process that launches and looks at many runs, one after the other: nothing piles up."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.client.run_client import RunClient
from launcher.cluster.read import loads
from launcher.history.run_list import read_run
from launcher.history.stored import FinishedRun, StoredRun
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tests.support.fakes import write_end
from tests.support.patience import PATIENCE, wait_until
from tui.run_clients import EndedRun, RunClients

CLUSTER = cluster_text(
    {"worker": 2},
    "many",
    command=["echo", "step 7 loss 0.5"],
    workdir="",
    start={"ready": {"worker": "started"}},
)


def launch() -> None:
    """A real run on this machine, whose logs are read when it has ended, as panes do."""
    session = RunClient.launch(loads(CLUSTER, "many.toml", Path("/")), CLUSTER)
    session.await_state(PATIENCE)
    assert session.wait(PATIENCE)
    session.close()
    for view in session.snapshot().tasks:
        assert session.logs.open(view.id).read(0, 100) == b"step 7 loss 0.5\n"


def past_run(number: int) -> RunFolder:
    """The folder of a run that has ended, with logs."""
    path = runs_home() / f"many-20261120-183002-{number:04x}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "cluster.toml").write_text(CLUSTER)
    for index in range(2):
        (path / f"worker-{index}.log").write_bytes(b"a line\n" * 1000)
    folder = RunFolder(path)
    write_end(folder, 1000.0, 1002.0)
    return folder


def look(folder: RunFolder) -> None:
    """What the home screen, the run screen and a page do with it."""
    assert read_run(folder).over
    past = FinishedRun(StoredRun(folder))
    for view in past.snapshot().tasks:
        assert past.logs.open(view.id).read(0, 6) == b"a line"
    past.close()


def follow(folder: RunFolder) -> None:
    """A client that finds no launcher."""
    client = RunClient(folder, StoredRun(folder).views, None)
    assert client.logs.open(client.snapshot().tasks[0].id).read(0, 6) == b"a line"
    client.close()


def figures() -> tuple[int, int, int]:
    """Descriptors, threads, and resident bytes of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    resident = pages * os.sysconf("SC_PAGE_SIZE")
    return len(os.listdir("/proc/self/fd")), threading.active_count(), resident


@pytest.fixture
def many() -> Iterator[list[RunFolder]]:
    """A thousand runs that have ended."""
    yield [past_run(number) for number in range(1000)]


@pytest.mark.soak
def test_descriptors_threads_and_memory_stay_flat(many: list[RunFolder]) -> None:
    """Twenty launches, a thousand past runs opened and closed, two hundred looked at from
    elsewhere: afterwards there is what there was before."""
    for folder in many[:50]:
        look(folder)
        follow(folder)
    for _ in range(2):
        launch()
    wait_for_clients()
    descriptors, threads, resident = figures()
    for _ in range(20):
        launch()
    for folder in many:
        look(folder)
    for folder in many[:200]:
        follow(folder)
    wait_for_clients()
    after = figures()
    assert after[0] <= descriptors
    assert after[1] <= threads
    assert after[2] - resident < 24 << 20


def wait_for_clients() -> None:
    """Their threads end by themselves, soon."""
    wait_until(
        lambda: not any(thread.name == "client" for thread in threading.enumerate()),
        "closed clients have ended",
    )


@pytest.mark.soak
def test_a_screen_keeps_no_run_that_has_ended() -> None:
    """What it keeps for the report at its end is the snapshot and the folder."""
    sessions = RunClients()
    kept: list[weakref.ref[object]] = []
    cluster = loads(CLUSTER, "many.toml", Path("/"))

    async def ask(question: object) -> None:
        return None

    for _ in range(2):
        sessions.launch(cluster, CLUSTER, ask)
        control = sessions.launched()[-1]
        assert control.wait(PATIENCE)
        kept.append(weakref.ref(control))
        del control
    gc.collect()
    assert kept[0]() is None
    ended = sessions.close()
    assert [type(one) for one in ended] == [EndedRun, EndedRun]
    assert [one.snapshot.exit_code for one in ended] == [0, 0]
