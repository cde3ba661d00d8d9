"""Processes that outlive KILL: never confirmed, and no proof for the next agent while they live."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from launcher.agent import wire
from tests.support.agent_client import Client, family, state_folder, watchdog_and_agent
from tests.support.budgets import variants
from tests.support.patience import wait_until
from tests.testbed import proc
from tests.testbed.frozen import FreezableDisk, Freezer

WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while True:
    os.write(file, b"x" * 4096)
    os.fsync(file)
"""


class Stuck(NamedTuple):
    """Processes of a task that no signal ends, until they are let go."""

    pids: tuple[int, ...]
    let_go: Callable[[], None]


@contextmanager
def frozen_group(client: Client, folder: Path) -> Iterator[Stuck]:
    """The task and its child, which has left its session and emptied its environment, are in a
    frozen cgroup."""
    script = "setsid env -i sleep 1000 & exec sleep 1000"
    pid = client.start("w:0", ["sh", "-c", script])["pid"]
    child = wait_for_child(pid)
    with Freezer(folder / "freezer") as freezer:
        freezer.freeze(pid, child)
        yield Stuck((pid, child), freezer.thaw)


@contextmanager
def frozen_child(client: Client, folder: Path) -> Iterator[Stuck]:
    """The task itself ends; a child of it, a daemon without a mark, is in a frozen cgroup."""
    pid = client.start("w:0", ["sh", "-c", "setsid env -i sleep 1000 & exec sleep 1000"])["pid"]
    child = wait_for_child(pid)
    with Freezer(folder / "freezer") as freezer:
        freezer.freeze(child)
        yield Stuck((child,), freezer.thaw)


@contextmanager
def frozen_disk(client: Client, folder: Path) -> Iterator[Stuck]:
    """The task writes to a disk that hangs."""
    with FreezableDisk(folder / "disk.image", folder / "disk") as disk:
        file = disk.mountpoint / "checkpoint"
        pid = client.python("w:0", WRITER, str(file))["pid"]
        wait_until(lambda: file.exists() and file.stat().st_size, "it writes")
        disk.freeze()
        wait_until(lambda: (p := proc.read(pid)) and p.state == "D", "it hangs")
        yield Stuck((pid,), disk.thaw)
        disk.thaw()
        wait_until(lambda: proc.read(pid) is None, "it has gone")


def wait_for_child(pid: int) -> int:
    """The child of a shell, once that is its own program."""
    found: list[int] = []

    def there() -> bool:
        found[:] = [p.pid for p in proc.scan() if p.ppid == pid and p.argv[:1] == ("sleep",)]
        return bool(found)

    wait_until(there, "it has a child")
    return found[0]


def living(pids: tuple[int, ...]) -> list[int]:
    """Pids of `pids` that live."""
    return [pid for pid in pids if (process := proc.read(pid)) is not None and process.alive]


def named(receipt: dict[str, Any]) -> set[int]:
    """The pids of a receipt's survivors."""
    return {one["pid"] for one in receipt["survivors"]}


@variants("way", [frozen_group, frozen_child, frozen_disk], test=1)
def test_survivors_are_never_confirmed_and_their_agent_stays(way: Any, tmp_path: Path) -> None:
    """Given a task that outlives KILL, when everything is killed, the launcher goes and the lease
    ends, then no receipt is confirmed and the same agent is there as long as they live: the next
    launcher hears of them by name. When they have gone, the agent goes with its proof."""
    with ExitStack() as stack, Client(lease=1.0) as client:
        agent = client.hello()["pid"]
        stuck = stack.enter_context(way(client, tmp_path))
        receipt = client.kill(grace=0.1)
        assert named(receipt) == set(stuck.pids) == set(living(stuck.pids))
        assert not receipt["confirmed"]
        client.close()
        wait_until(lambda: "ending all tasks" in log_of(client), "the lease has ended")
        with Client(client.run_id, lease=1.0) as again:
            assert again.hello()["pid"] == agent
            receipt = again.kill()
            assert named(receipt) == set(stuck.pids) and not receipt["confirmed"]
        stuck.let_go()
        wait_until(lambda: family(client.run_id) == [], "the agent has gone by itself")
        with Client(client.run_id) as last:
            assert last.hello()["pid"] != agent
            assert last.kill()["confirmed"]
            last.leave()


def log_of(client: Client) -> str:
    return (state_folder(client.run_id) / "agent.log").read_text()


@variants(
    ("way", "end"),
    [(frozen_disk, "told"), (frozen_group, "killed"), (frozen_child, "left")],
    test=1,
)
def test_an_agent_that_goes_beside_survivors_leaves_a_doubt(
    way: Any, end: str, tmp_path: Path
) -> None:
    """Given survivors, when their agent is told to end, is killed, or is let go by a launcher, then
    no later agent confirms anything: before they have gone, nor after."""
    with ExitStack() as stack, Client() as client:
        client.hello()
        stuck = stack.enter_context(way(client, tmp_path))
        assert not client.kill()["confirmed"]
        watchdog, agent = watchdog_and_agent(client.run_id)
        if end == "left":
            client.send(wire.LEAVE, {"remove": True})
        else:
            number = signal.SIGTERM if end == "told" else signal.SIGKILL
            proc.signal_process(agent, number)
        client.everything()
        assert proc.wait_gone(watchdog)
        assert living(stuck.pids)
        with Client(client.run_id) as again:
            again.hello()
            receipt = again.kill()
            assert not receipt["confirmed"] and "earlier agent" in receipt["doubt"]
            again.leave()
        stuck.let_go()
        wait_until(lambda: not living(stuck.pids), "they have gone")
        with Client(client.run_id) as last:
            last.hello()
            receipt = last.kill()
            assert receipt["survivors"] == [] and not receipt["confirmed"]
            assert "earlier agent" in receipt["doubt"]
            last.leave()


def test_on_the_launching_machine_survivors_keep_their_agent(tmp_path: Path) -> None:
    """The end of the channel is the launcher's death there, and ends everything again: it is no
    proof, either."""
    with ExitStack() as stack, Client(lease=600.0, local=True) as client:
        agent = client.hello()["pid"]
        stuck = stack.enter_context(frozen_group(client, tmp_path))
        assert not client.kill()["confirmed"]
        client.close()
        wait_until(lambda: "ending all tasks" in log_of(client), "it acts")
        with Client(client.run_id, lease=600.0, local=True) as again:
            assert again.hello()["pid"] == agent
            assert not again.kill()["confirmed"]
            stuck.let_go()
            wait_until(lambda: not living(stuck.pids), "they have gone")
            receipt = again.kill()
            assert receipt["confirmed"] and receipt["survivors"] == []
            again.leave()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")


def test_under_keep_the_end_of_survivors_is_proven(tmp_path: Path) -> None:
    """Given survivors under `keep`, when they have gone, then the agent goes, too, and the next one
    has no doubt."""
    rules: dict[str, Any] = {"lease": 3.0, "on_disconnect": "keep"}
    with ExitStack() as stack, Client(**rules) as client:
        client.hello()
        stuck = stack.enter_context(frozen_child(client, tmp_path))
        assert not client.kill()["confirmed"]
        client.close()
        stuck.let_go()
        wait_until(lambda: family(client.run_id) == [], "the agent has gone by itself")
        with Client(client.run_id, **rules) as last:
            last.hello()
            assert last.kill()["confirmed"]
            last.leave()


def test_a_receipt_of_one_task_names_its_survivors(client: Client, tmp_path: Path) -> None:
    """And its neighbour goes on."""
    neighbour = client.start("w:1", [sys.executable, "-c", "import time; time.sleep(1000)"])
    with frozen_child(client, tmp_path) as stuck:
        receipt = client.kill(["w:0"])
        assert named(receipt) == set(stuck.pids) and not receipt["confirmed"]
        assert os.path.exists(f"/proc/{neighbour['pid']}")
        assert named(client.kill()) == set(stuck.pids)
