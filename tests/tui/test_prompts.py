"""Questions of a launcher on its own loop, answered in dialogs of the app."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from launcher.hosts.auth_prompt import AuthPrompt, PromptKind
from tests.tui.conftest import screen_text, shows, until
from tests.tui.fakes import ScriptedRun
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.home import HomeScreen
from tui.screens.prompts import HostKeyDialog, PromptDialog

PASSWORD = AuthPrompt("tf1", "Password", True, PromptKind.PASSWORD)
KEY = AuthPrompt(
    "tf1",
    "First contact with 10.77.0.1. Its key: ssh-ed25519 SHA256:abc+/=. Trust it? (yes/no)",
    False,
    PromptKind.HOST_KEY,
)


class Launcher:
    """A loop in a thread of its own, as a session has one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def ask(self, home: HomeScreen, question: AuthPrompt) -> concurrent.futures.Future[str | None]:
        """Asks as a session does."""
        return asyncio.run_coroutine_threadsafe(home.prompts(question), self._loop)

    def close(self) -> None:
        """Ends the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    """The other side."""
    one = Launcher()
    yield one
    one.close()


@asynccontextmanager
async def home() -> AsyncIterator[tuple[Pilot[int], HomeScreen]]:
    """The app on its home screen."""
    screen = HomeScreen(RunClients())
    app = TfmuxApp(pages=[screen])
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await shows(pilot, "Demos")
        yield pilot, screen


async def test_a_password_is_asked_for_and_never_shown(launcher: Launcher) -> None:
    """What is typed is the answer; the screen shows dots."""
    async with home() as (pilot, screen):
        asked = launcher.ask(screen, PASSWORD)
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptDialog))
        await pilot.press(*"s3cret")
        assert isinstance(pilot.app, TfmuxApp)
        assert not any("s3cret" in row for row in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, asked.done)
        assert asked.result() == "s3cret"


async def test_a_question_of_the_servers_own_is_shown_as_it_is_typed(launcher: Launcher) -> None:
    """Such as a one-time code that the server wants echoed; Esc refuses."""
    async with home() as (pilot, screen):
        asked = launcher.ask(screen, AuthPrompt("tf1", "Code [bold]", secret=False))
        await shows(pilot, "Code [bold]")
        await pilot.press(*"123")
        await shows(pilot, "123")
        await pilot.press("escape")
        await until(pilot, asked.done)
        assert asked.result() is None


@pytest.mark.parametrize(
    ("key", "answer"), [("y", "yes"), ("n", "no"), ("enter", "no"), ("escape", "no")]
)
async def test_a_host_key_is_shown_and_trusted_only_on_purpose(
    launcher: Launcher, key: str, answer: str
) -> None:
    """Kind and fingerprint are there; Enter alone refuses."""
    async with home() as (pilot, screen):
        asked = launcher.ask(screen, KEY)
        await until(pilot, lambda: isinstance(pilot.app.screen, HostKeyDialog))
        await shows(pilot, "SHA256:abc+/=")
        await pilot.press(key)
        await until(pilot, asked.done)
        assert asked.result() == answer


async def test_questions_come_one_after_the_other(launcher: Launcher) -> None:
    """Four hosts ask at once; each answer reaches its own."""
    async with home() as (pilot, screen):
        questions = [AuthPrompt(f"tf{n}", "Password", True) for n in range(4)]
        asked = {q.host: launcher.ask(screen, q) for q in questions}
        for _ in questions:
            await until(pilot, lambda: isinstance(pilot.app.screen, PromptDialog))
            dialog = pilot.app.screen
            assert isinstance(dialog, PromptDialog)
            await pilot.press(*dialog.prompt.host, "enter")
            await until(pilot, lambda d=dialog: pilot.app.screen is not d)  # type: ignore[misc]
        await until(pilot, lambda: all(one.done() for one in asked.values()))
        assert {host: one.result() for host, one in asked.items()} == {h: h for h in asked}


async def test_a_dialog_goes_when_nobody_waits_any_more(launcher: Launcher) -> None:
    """The launcher gave up (killed, or the server closed): the question leaves the screen."""
    async with home() as (pilot, screen):
        asked = launcher.ask(screen, PASSWORD)
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptDialog))
        asked.cancel()
        await until(pilot, lambda: pilot.app.screen is screen)


async def test_f9_works_in_a_question(launcher: Launcher, run: ScriptedRun) -> None:
    """Also while a password is half typed: everything is killed, nothing of it is answered."""
    async with home() as (pilot, screen):
        assert isinstance(pilot.app, TfmuxApp)
        pilot.app.open_run(run)
        asked = launcher.ask(screen, PASSWORD)
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptDialog))
        await pilot.press(*"half", "f9")
        await until(pilot, lambda: run.asked == ["kill_all"])
        assert pilot.app.screen.query_one(Input).value == "half"
        asked.cancel()
        await until(pilot, lambda: not isinstance(pilot.app.screen, PromptDialog))
