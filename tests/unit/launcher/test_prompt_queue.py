"""SSH prompts of a launcher, answered by its clients over a real control socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from launcher.client.run_client import RunClient
from launcher.hosts.auth_prompt import AuthPrompt, PromptKind
from launcher.ids import new_run_id
from launcher.process.prompt_queue import PromptQueue
from launcher.run.snapshot import RunView
from launcher.run.states import RunPhase
from launcher.run.views import Views
from launcher.store.launcher_socket import connect
from launcher.store.runs import RunFolder, socket_path
from tests.support.control import serving
from tests.support.patience import PATIENCE, until

PASSWORD = AuthPrompt("tf1", "Password of root", True, PromptKind.PASSWORD)
CODE = AuthPrompt("tf2", "One-time code", False)


class Page:
    """A client of the run; `typed` answers what it is asked."""

    def __init__(self, folder: RunFolder, typed: str | None) -> None:
        self.typed = typed
        self.seen: list[AuthPrompt] = []
        self.dropped: list[AuthPrompt] = []
        self._folder = folder

    async def __aenter__(self) -> Page:
        run = Views(RunView("r", "r", RunPhase.CONNECTING, 0.0))
        self._client = RunClient(self._folder, run, None, ask=self._ask)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._client.close)

    async def _ask(self, prompt: AuthPrompt) -> str | None:
        self.seen.append(prompt)
        try:
            while self.typed is None:  # noqa: ASYNC110 a person thinks
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            self.dropped.append(prompt)
            raise
        return self.typed


@asynccontextmanager
async def listening(folder: RunFolder, unattended: float = PATIENCE) -> AsyncIterator[PromptQueue]:
    """A launcher's control socket; its prompts."""
    async with serving(folder.run_id, unattended) as launcher:
        yield launcher.prompts


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Any run's."""
    path = tmp_path / new_run_id("asked")
    path.mkdir()
    return RunFolder(path)


async def test_the_first_answer_counts_and_the_others_are_withdrawn(folder: RunFolder) -> None:
    """Two pages; one of them types."""
    async with (
        listening(folder) as prompts,
        Page(folder, None) as silent,
        Page(folder, None) as busy,
    ):
        answer = asyncio.create_task(prompts(PASSWORD))
        await until(lambda: silent.seen and busy.seen)
        busy.typed = "s3cret ü"
        assert await answer == "s3cret ü"
        assert prompts.pending == ()
        await until(lambda: silent.dropped == [PASSWORD])
        assert silent.seen == busy.seen == [PASSWORD]


async def test_several_hosts_ask_at_once_and_one_who_comes_late_is_asked(folder: RunFolder) -> None:
    """Each prompt gets its own answer; a prompt outlasts the page that showed it."""
    async with listening(folder) as prompts:
        answers = [asyncio.create_task(prompts(each)) for each in (PASSWORD, CODE)]
        async with Page(folder, None) as first:
            await until(lambda: len(first.seen) == 2)
        assert not any(answer.done() for answer in answers)
        async with Page(folder, "123") as second:
            assert await asyncio.gather(*answers) == ["123", "123"]
        assert set(second.seen) == {PASSWORD, CODE}


async def test_one_press_may_answer_for_hundreds_of_hosts(folder: RunFolder) -> None:
    """More answers in a second than a client may send commands: it is not disconnected, and what
    it sends besides is still counted."""
    questions = [AuthPrompt(f"tf{n}", "Trust it?", False, PromptKind.HOST_KEY) for n in range(300)]
    async with listening(folder) as prompts, Page(folder, None) as page:
        answers = [asyncio.create_task(prompts(each)) for each in questions]
        await until(lambda: len(page.seen) == len(questions))
        page.typed = "yes"
        assert await asyncio.gather(*answers) == ["yes"] * len(questions)
        last = asyncio.create_task(prompts(PASSWORD))
        page.typed = "still there"
        assert await last == "still there"


async def test_when_nobody_is_connected_nobody_answers(folder: RunFolder) -> None:
    async with listening(folder, 0.1) as prompts:
        assert await prompts(PASSWORD) is None
    assert prompts.pending == ()


async def test_a_headless_client_is_not_waited_for(folder: RunFolder) -> None:
    async with listening(folder) as prompts:
        run = Views(RunView("r", "r", RunPhase.CONNECTING, 0.0))
        client = RunClient(folder, run, None)
        try:
            await until(lambda: prompts.others)
            assert await prompts(PASSWORD) is None
        finally:
            await asyncio.to_thread(client.close)


async def test_a_refusal_is_an_answer_and_a_prompt_that_is_given_up_is_withdrawn(
    folder: RunFolder,
) -> None:
    """Esc is told; a prompt that is withdrawn leaves every screen."""
    async with listening(folder) as prompts, Page(folder, None) as page:
        given_up = asyncio.create_task(prompts(PASSWORD))
        await until(lambda: page.seen == [PASSWORD])
        given_up.cancel()
        await until(lambda: page.dropped == [PASSWORD])
        refused = asyncio.create_task(prompts(CODE))
        await until(lambda: prompts.pending)
        prompts.answer(prompts.pending[0].id + 1, "of another prompt")
        with connect(folder.run_id) as link:
            answer = {"command": "answer", "id": prompts.pending[0].id, "text": None}
            link.sendall(json.dumps(answer).encode() + b"\n")
            assert await refused is None


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"x" * (1 << 18), "a line of more than 65536 bytes"),
        (b'{"command": "dance"}\n', "not a command"),
        (b'{"command": "detach"}\n' * 101, "more than 100 commands a second"),
        (b'{"command": "answer", "id": 1, "text": null}\n' * 101, "more than 100 commands"),
    ],
    ids=["long", "unknown", "many", "answers to nothing"],
)
async def test_a_client_is_told_why_it_is_disconnected(
    folder: RunFolder, sent: bytes, reason: str
) -> None:
    """A client may send what it likes, but not have it kept."""
    async with listening(folder):
        reader, writer = await asyncio.open_unix_connection(socket_path(folder.run_id))
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            said = await reader.readline()
        assert reason in json.loads(said)["disconnected"]
        writer.close()
