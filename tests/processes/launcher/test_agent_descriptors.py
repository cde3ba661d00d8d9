"""Open files of an agent: many tasks, restarts and launchers under a small limit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from launcher.agent import wire
from tests.support.agent_client import Client, family, socket_path, watchdog_and_agent
from tests.support.patience import PATIENCE, wait_until
from tests.testbed import proc

SLEEP = ["sleep", "1000"]


@contextmanager
def limited(soft: int, hard: int, *before: str) -> Iterator[Client]:
    """An admitted channel to an agent whose login has these limits of open files."""
    limits = ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh"]
    with Client(before=[*limits, *before]) as client:
        client.hello()
        yield client
        client.kill()
        client.leave()
    wait_until(lambda: family(client.run_id) == [], "nothing is left")


def open_files(client: Client) -> set[int]:
    """Numbers of the agent's descriptors."""
    _, agent = watchdog_and_agent(client.run_id)
    return {int(name) for name in os.listdir(f"/proc/{agent.pid}/fd")}


def alive(pids: Iterable[Any]) -> list[int]:
    """Which of these processes live."""
    found = map(proc.read, pids)
    return [process.pid for process in found if process is not None and process.alive]


def beat(client: Client) -> None:
    """Has a beat answered."""
    client.send(wire.BEAT)
    client.get(wire.PONG)


def start_all(client: Client, count: int) -> list[dict[str, object]]:
    """Starts so many tasks; what the agent says of each."""
    said = []
    for number in range(count):
        said.append(client.start(f"w:{number}", SLEEP))
    return said


def test_a_start_without_a_descriptor_is_one_tasks_error() -> None:
    """Under a hard limit of 64 some of 40 tasks are refused with the reason. Beats, queries and a
    kill need descriptors that tasks may not have, and afterwards there is room again."""
    with limited(64, 64) as client:
        said = start_all(client, 40)
        refused = [one for one in said if one["error"]]
        started = [one for one in said if not one["error"]]
        assert len(started) >= 3 and len(refused) >= 10
        for one in refused:
            assert "too many open files" in str(one["error"]) and one["ended"], one
            assert "64" in str(one["error"])
        beat(client)
        with Client(client.run_id) as other:
            assert len(other.hello(rules=None)["tasks"]) == 40
        assert client.ask(wire.STATS, {})["tasks"]
        receipt = client.kill()
        assert receipt["confirmed"] and receipt["survivors"] == []
        assert receipt["signalled"] == len(started)
        pids = {one["pid"] for one in started}
        assert not alive(pids)
        assert client.start("w:0", SLEEP, attempt=2)["error"] == ""


def test_restarts_keep_no_descriptor() -> None:
    """Forty ends of one task, and forty starts that fail, leave as many open files as one; their
    log can be read all the same."""
    with limited(64, 64) as client:
        client.follow("w:0")
        for attempt in range(1, 41):
            client.start("w:0", ["echo", f"line {attempt}"], attempt=attempt)
            client.get(wire.EOF, task="w:0", attempt=attempt)
            client.start(f"x:{attempt}", ["no-such-program"])
            if attempt == 1:
                client.log_until(b"line 1\n")
                wait_until(lambda: len(open_files(client)) < 32, "its end")
                first = len(open_files(client))
        client.log_until(b"line 40\n")
        wait_until(lambda: len(open_files(client)) <= first, "no descriptor is kept")


def test_tasks_have_the_logins_limit() -> None:
    """The agent raises its own soft limit as far as it may. Tasks have the login's."""
    with limited(200, 400) as client:
        _, agent = watchdog_and_agent(client.run_id)
        with open(f"/proc/{agent.pid}/limits") as file:
            assert [line.split()[3:5] for line in file if "open files" in line] == [["400", "400"]]
        for number in range(2):
            client.follow(f"w:{number}", number)
            client.start(f"w:{number}", ["sh", "-c", "ulimit -Sn; ulimit -Hn; echo end"])
            assert client.log_until(b"end\n", number) == b"200\n400\nend\n"


def test_a_kill_and_beats_go_on_without_any_descriptor() -> None:
    """Connections take all that are left: the agent lives on, beats, and kills its children. The
    receipt comes when it can look again."""
    with limited(64, 64) as client, ExitStack() as stack:
        pids = {client.start(f"w:{number}", SLEEP)["pid"] for number in range(3)}
        links = []

        def full() -> bool:
            link = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            link.setblocking(False)
            try:
                link.connect(socket_path(client.run_id))
            except BlockingIOError:  # the agent accepts no more
                link.close()
            else:
                links.append(link)
            return open_files(client) == set(range(64))

        wait_until(full, "no descriptor is left")
        beat(client)
        client.send(wire.KILL, {"id": 7, "tasks": None, "grace": 0.0})
        wait_until(lambda: not alive(pids), "they are dead")
        beat(client)
        for link in links:
            link.close()
        receipt = client.get(wire.RECEIPT, ids=[7])
        assert receipt["survivors"] == [] and receipt["tasks"] is None
        with Client(client.run_id) as other:
            assert len(other.hello(rules=None)["tasks"]) == 3


def test_a_scan_without_a_descriptor_is_an_error_and_not_an_empty_table() -> None:
    """Else a kill would confirm that nothing is left."""
    script = """
import os, resource
from launcher.agent import processes as proc
from launcher.agent.processes import ProcessTracker
tracker = ProcessTracker("nobody-20260101-000000-abcd")
everyone = proc.table()
assert os.getpid() in everyone
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for look in (lambda: proc.read_process(os.getpid()), proc.table, lambda: tracker.scan(everyone)):
    try:
        look()
    except OSError as error:
        print(error.errno)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.split() == ["24", "24", "24"], done.stderr
