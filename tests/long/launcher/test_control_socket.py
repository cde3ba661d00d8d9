"""States and prompts that are sent to the clients of a run, and those that do not read."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from launcher.hosts.auth_prompt import AuthPrompt, PromptKind
from launcher.process import control_socket
from launcher.run.states import RunPhase
from launcher.store.launcher_socket import connect
from launcher.store.runs import socket_path
from tests.support.control import Launcher, serving
from tests.support.patience import PATIENCE, until


def said(message: dict[str, Any]) -> list[str]:
    """The notes in a message."""
    return [one["note"] for one in message["changed"] if one["event"] == "note"]


def state_in(message: dict[str, Any]) -> list[str]:
    """The states of the run in a message."""
    return [one["state"] for one in message["changed"] if one["event"] == "run"]


async def test_many_changes_are_sent_together() -> None:
    """A thousand changes in half a second are at most thirty a second."""
    async with serving() as launcher:
        launcher.state.note("0")
        client = await launcher.client()
        assert said(client.first) == ["0"]
        began = time.monotonic()
        for number in range(1, 1001):
            launcher.state.note(str(number))
            launcher.control.changed()
            await asyncio.sleep(0.0005)
        received, seen = 0, "0"
        while seen != "1000":
            seen = said(await client.told())[-1]
            received += 1
        assert received <= 2 + 30 * (time.monotonic() - began)
        client.writer.close()


async def test_connections_that_say_nothing_lock_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as are served at once; they are told why they are closed, and one that has
    subscribed stays."""
    async with serving() as launcher:
        client = await launcher.client()
        monkeypatch.setattr(control_socket, "_SUBSCRIBE_SECONDS", 0.1)
        path = socket_path(launcher.run_id)
        idle = [await asyncio.open_unix_connection(path) for _ in range(63)]
        for silent, end in idle:
            assert "not subscribed" in json.loads(await silent.readline())["disconnected"]
            assert await silent.read() == b""
            end.close()
        monkeypatch.setattr(control_socket, "_SUBSCRIBE_SECONDS", PATIENCE)
        late = await launcher.client()
        assert "changed" in late.first
        late.writer.close()
        launcher.state.note("new")
        launcher.control.changed()
        assert said(await client.told()) == ["new"]
        client.writer.close()


async def test_a_newcomer_displaces_the_client_that_has_been_silent_longest() -> None:
    """Sixty-four that subscribed and never spoke again kept `tfmux kill` out. The displaced one has
    not gone by itself: that does not end the run."""
    async with serving() as launcher:
        clients = [await launcher.client("kill") for _ in range(64)]
        clients[0].writer.write(b'{"command": "signal", "task": "worker:0", "name": "TERM"}\n')
        await until(lambda: launcher.commands, "its command came")
        newcomer = connect(launcher.run_id)
        newcomer.sendall(b'{"command": "subscribe", "on_close": "nothing"}\n')
        newcomer.sendall(b'{"command": "kill_all", "by_person": true, "force": false}\n')
        displaced = clients.pop(1)
        assert "displaced" in (await displaced.told())["disconnected"]
        assert await displaced.reader.read() == b""
        await until(lambda: len(launcher.commands) == 2, "the kill came")
        assert [getattr(each, "by_person", None) for each in launcher.commands] == [None, True]
        newcomer.close()
        launcher.state.note("new")
        launcher.control.changed()
        for client in clients:
            assert said(await client.told()) == ["new"]
            client.writer.write(b'{"command": "detach"}\n')
            client.writer.close()


async def test_nothing_is_made_for_nobody() -> None:
    """Without a client no change is kept to be sent."""
    async with serving() as launcher:
        launcher.state.note("for nobody")
        launcher.control.changed()
        await asyncio.sleep(0.1)
    assert not launcher.state.pop_touched()


async def test_the_beginning_of_a_kill_waits_for_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that hears for three seconds nothing of its kill has another launcher take the run
    over. A change that comes after a quiet time waits for no pause, either; the next one does."""
    async with serving() as launcher:
        client = await launcher.client()
        assert state_in(client.first) == ["running"]
        await asyncio.sleep(control_socket._SECONDS_BETWEEN)
        monkeypatch.setattr(control_socket, "_SECONDS_BETWEEN", PATIENCE * 2)
        launcher.state.note("first")
        launcher.control.changed()
        assert said(await client.told()) == ["first"]
        launcher.state.update_run(state=RunPhase.KILLING)
        launcher.control.changed()  # would be sent when everybody has lost patience
        launcher.control.changed(True)
        assert state_in(await client.told()) == ["killing"]
        client.writer.close()


# --- clients that do not read -------------------------------------------------------------------


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Connections that are closed at the end; how long a last message takes is not the matter."""
    monkeypatch.setattr(control_socket, "_FLUSH_SECONDS", PATIENCE)
    with ExitStack() as stack:
        yield stack


def awaited(message: dict[str, Any]) -> list[str]:
    """What is waited for, in a message."""
    return [one.get("waiting", "") for one in message["changed"] if one["event"] == "run"]


def subscribe(links: ExitStack, launcher: Launcher, **wanted: bool) -> socket.socket:
    """A client that is connected and reads nothing."""
    link = links.enter_context(connect(launcher.run_id))
    command = {"command": "subscribe", "on_close": "nothing", **wanted}
    link.sendall(json.dumps(command).encode() + b"\n")
    return link


async def read(link: socket.socket, last: str) -> AsyncIterator[dict[str, Any]]:
    """The messages that come, to the one with this key."""
    reader, writer = await asyncio.open_unix_connection(sock=link.dup(), limit=1 << 24)
    try:
        message: dict[str, Any] = {}
        while last not in message:
            message = json.loads(await reader.readline())
            yield message
    finally:
        writer.close()


async def test_thousands_of_states_for_clients_that_never_read_cost_no_memory(
    links: ExitStack,
) -> None:
    """Each has one that it has not read, at most, and gets the newest one when it reads."""
    async with serving() as launcher:
        clients = [subscribe(links, launcher) for _ in range(20)]
        await launcher.subscribed(20)
        tracemalloc.start()
        try:
            for number in range(2000):
                await launcher.note(f"{number:05000}")
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 20 * 150_000
        count = 0
        async for message in read(clients[7], "nothing"):
            count += 1
            if awaited(message) == [launcher.state.run.waiting]:
                break
        assert count < 100


async def test_the_last_state_comes_to_a_client_that_is_behind(links: ExitStack) -> None:
    """The client kept the state before the last, and `finished` came all the same: `tfmux kill`
    waited for ever."""
    async with serving() as launcher:
        link = subscribe(links, launcher)
        await launcher.subscribed(1)
        await launcher.note("x" * 600_000)
        await launcher.note("not for it")
        launcher.state.update_run(state=RunPhase.ENDED)
        finishing = asyncio.create_task(launcher.control.finish())
        *_, last, end = [message async for message in read(link, "finished")]
        assert state_in(last) == ["ended"] and end == {"finished": True}
        await finishing


async def test_no_states_are_made_for_clients_that_do_not_read(links: ExitStack) -> None:
    """They were, thirty times a second, to see whether one had read. When it has, it gets the
    newest one."""
    async with serving() as launcher:
        link = subscribe(links, launcher)
        await launcher.subscribed(1)
        await launcher.note("x" * 600_000)
        await launcher.note("newest")
        made = launcher.made
        await asyncio.sleep(0.5)
        assert launcher.made <= made + 1
        async for message in read(link, "nothing"):
            if awaited(message) == ["newest"]:
                break


async def test_prompts_that_nobody_reads_are_sent_once(
    monkeypatch: pytest.MonkeyPatch, links: ExitStack
) -> None:
    """A stopped screen was sent the list again for each answer of hundreds."""
    monkeypatch.setattr(control_socket, "_MERGE_SECONDS", 0.0)
    questions = [AuthPrompt(f"tf{n}", "x" * 1000, False, PromptKind.HOST_KEY) for n in range(300)]
    async with serving() as launcher:
        link = subscribe(links, launcher, prompts=True)
        await launcher.subscribed(1)
        answers = [asyncio.create_task(launcher.prompts(each)) for each in questions]
        await asyncio.sleep(0)
        tracemalloc.start()
        try:
            for number, answer in enumerate(answers, 1):
                assert launcher.prompts.answer(number, "yes")
                assert await answer == "yes"
                await asyncio.sleep(0.001)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 1_000_000
        lists = 0
        async for message in read(link, "nothing"):
            lists += "prompts" in message
            if message.get("prompts") == []:
                break
        assert lists < 100
