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

from launcher.hosts.auth_prompt import AuthPrompt, OfferedKey, PromptKind
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.dialogs import Confirm
from tui.screens.home import HomeScreen
from tui.screens.host_key_dialog import HostKeyDialog, OpenPrompt
from tui.screens.prompt_dialogs import PromptDialog
from tui.widgets.footer import KeyFooter

PASSWORD = AuthPrompt("tf1", "Password", True, PromptKind.PASSWORD)
FINGERPRINT = "SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8"


def key(host: str, kind: str = "ssh-ed25519", known_as: str = "") -> AuthPrompt:
    """Question about the key of a host, as a login puts it."""
    offered = OfferedKey("10.77.0.1", kind, FINGERPRINT, known_as)
    text = f"First contact with 10.77.0.1. Its key: {kind} {FINGERPRINT}. Trust it? (yes/no)"
    return AuthPrompt(host, text, False, PromptKind.HOST_KEY, offered)


KEY = key("tf1")


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
async def home(size: tuple[int, int] = (100, 30)) -> AsyncIterator[tuple[Pilot[int], HomeScreen]]:
    """The app on its home screen."""
    screen = HomeScreen(RunClients())
    app = TfmuxApp(pages=[screen])
    async with app.run_test(size=size, notifications=True) as pilot:
        await shows(pilot, "demos")
        yield pilot, screen


async def test_what_a_server_asks(launcher: Launcher) -> None:
    """What is typed is the answer, and of a password the screen shows dots. A question of the
    server's own, such as for a one-time code, is shown as it is typed; Esc refuses. A question
    leaves the screen when nobody waits any more: killed, or the server closed."""
    async with home() as (pilot, screen):
        asked = launcher.ask(screen, PASSWORD)
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptDialog))
        await pilot.press(*"s3cret")
        await shows(pilot, "•" * 6)
        assert isinstance(pilot.app, TfmuxApp)
        assert not any("s3cret" in row for row in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, asked.done)
        assert asked.result() == "s3cret"
        await until(pilot, lambda: pilot.app.screen is screen)
        asked = launcher.ask(screen, AuthPrompt("tf1", "Code [bold]", secret=False))
        await shows(pilot, "Code [bold]")
        await pilot.press(*"123")
        await shows(pilot, "123")
        await pilot.press("escape")
        await until(pilot, asked.done)
        assert asked.result() is None
        await until(pilot, lambda: pilot.app.screen is screen)
        asked = launcher.ask(screen, PASSWORD)
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptDialog))
        asked.cancel()
        await until(pilot, lambda: pilot.app.screen is screen)


async def test_a_host_key_is_shown_and_trusted_only_on_purpose(launcher: Launcher) -> None:
    """Kind and fingerprint are there; Enter alone refuses."""
    async with home() as (pilot, screen):
        for pressed, answer in (("y", "yes"), ("n", "no"), ("enter", "no"), ("escape", "no")):
            asked = launcher.ask(screen, KEY)
            await until(pilot, lambda: isinstance(pilot.app.screen, HostKeyDialog))
            await shows(pilot, FINGERPRINT)
            await pilot.press(pressed)
            await until(pilot, asked.done)
            assert asked.result() == answer, pressed
            await until(pilot, lambda: pilot.app.screen is screen)


async def keys_on(pilot: Pilot[int], count: int) -> HostKeyDialog:
    """The dialog, when it shows so many keys."""
    title = f"First contact with {count} hosts" if count > 1 else "First contact with tf"
    await shows(pilot, title)
    dialog = pilot.app.screen
    assert isinstance(dialog, HostKeyDialog)
    return dialog


async def test_the_keys_of_four_hosts_are_one_question_on_the_smallest_screen(
    launcher: Launcher,
) -> None:
    """Hosts, places, kinds and whole fingerprints are there at once; one key trusts them all."""
    kinds = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa", "ssh-ed25519")
    async with home((80, 24)) as (pilot, screen):
        questions = [key(f"tf{n}", kind) for n, kind in enumerate(kinds, 1)]
        asked = [launcher.ask(screen, each) for each in questions]
        await keys_on(pilot, 4)
        await shows(pilot, "a trust all 4 shown")
        for each, kind in zip(questions, kinds, strict=True):
            await shows(pilot, f"{each.host}  10.77.0.1")
            await shows(pilot, f"{kind} {FINGERPRINT}")
        for words in (
            "y trust tf1",
            "n refuse tf1",
            "Esc refuse all",
            "F9 kills all",
            "ssh-keygen -lf",
        ):
            await shows(pilot, words)
        await pilot.press("a")
        await until(pilot, lambda: all(one.done() for one in asked))
        assert [one.result() for one in asked] == ["yes"] * 4
        await until(pilot, lambda: pilot.app.screen is screen)


async def test_each_host_may_be_decided_by_itself(launcher: Launcher) -> None:
    """The others stay; one who is answered goes at once; the last answer closes the dialog."""
    async with home() as (pilot, screen):
        asked = [launcher.ask(screen, key(f"tf{n}")) for n in (1, 2, 3)]
        dialog = await keys_on(pilot, 3)
        await pilot.press("down", "y")
        await until(pilot, asked[1].done)
        assert asked[1].result() == "yes" and not asked[0].done() and not asked[2].done()
        assert await keys_on(pilot, 2) is dialog
        await pilot.press("g", "home", "n")
        await until(pilot, asked[0].done)
        assert asked[0].result() == "no"
        await shows(pilot, "First contact with tf3")
        await pilot.press("enter")
        await until(pilot, asked[2].done)
        assert asked[2].result() == "no"
        await until(pilot, lambda: pilot.app.screen is screen)


async def test_a_key_that_comes_later_is_added_and_one_answered_elsewhere_goes(
    launcher: Launcher,
) -> None:
    """The dialog stays, and the cursor on its key; the other page's answer counts."""
    async with home() as (pilot, screen):
        first = [launcher.ask(screen, key("tf1")), launcher.ask(screen, key("tf2"))]
        dialog = await keys_on(pilot, 2)
        await pilot.press("down")
        await shows(pilot, "y trust tf2")
        late = launcher.ask(screen, key("tf3", known_as="The same key is known as x (file:3)."))
        assert await keys_on(pilot, 3) is dialog
        await shows(pilot, "The same key is known as x (file:3).")
        await shows(pilot, "y trust tf2")
        first[0].cancel()
        assert await keys_on(pilot, 2) is dialog
        await shows(pilot, "y trust tf2")
        await pilot.press("escape")
        await until(pilot, lambda: first[1].done() and late.done())
        assert first[1].result() == late.result() == "no"
        await until(pilot, lambda: pilot.app.screen is screen)
        again = launcher.ask(screen, KEY)
        assert await keys_on(pilot, 1) is not dialog
        await pilot.press("y")
        await until(pilot, again.done)
        assert again.result() == "yes"


async def test_all_means_those_that_were_on_the_screen(launcher: Launcher) -> None:
    """A key that came between the look and the press is not trusted by it."""
    async with home() as (pilot, screen):
        asked = launcher.ask(screen, KEY)
        dialog = await keys_on(pilot, 1)
        unseen = OpenPrompt(key("tf2"))
        seen = [*dialog.prompts, unseen]
        await until(pilot, lambda: seen[0].drawn)
        dialog.show(seen)
        dialog.action_trust_shown()
        assert not unseen.answer.done()
        await until(pilot, asked.done)
        assert asked.result() == "yes"


async def test_what_is_chosen_with_the_mouse(launcher: Launcher) -> None:
    """A click on a key moves to it, one on a choice makes it: browsers have mice."""
    async with home() as (pilot, screen):
        asked = [launcher.ask(screen, key(f"tf{n}")) for n in (1, 2)]
        await keys_on(pilot, 2)
        await pilot.click("HostKeyList", offset=(4, 2))
        await shows(pilot, "y trust tf2")
        assert not any(one.done() for one in asked)
        choices = pilot.app.screen.query_one(KeyFooter)
        assert isinstance(pilot.app, TfmuxApp)
        row = screen_text(pilot.app)[choices.region.y]
        await pilot.click(offset=(row.index("y trust tf2") + 3, choices.region.y))
        await until(pilot, asked[1].done)
        assert asked[1].result() == "yes" and not asked[0].done()
        await pilot.press("ctrl+q")
        await until(pilot, asked[0].done)
        assert asked[0].result() == "no"


async def test_a_password_waits_for_the_keys(launcher: Launcher) -> None:
    """One dialog at a time."""
    async with home() as (pilot, screen):
        asked = launcher.ask(screen, KEY)
        await keys_on(pilot, 1)
        password = launcher.ask(screen, PASSWORD)
        other = launcher.ask(screen, key("tf2"))
        await keys_on(pilot, 2)
        await pilot.press("a")
        await until(pilot, lambda: asked.done() and other.done())
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptDialog))
        await pilot.press("x", "enter")
        await until(pilot, password.done)


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


async def test_f9_works_while_keys_are_asked_about(launcher: Launcher, run: ScriptedRun) -> None:
    """Nothing is answered by it; the dialog goes with the logins."""
    async with home() as (pilot, screen):
        assert isinstance(pilot.app, TfmuxApp)
        pilot.app.open_run(run)
        asked = [launcher.ask(screen, key(f"tf{n}")) for n in (1, 2)]
        await keys_on(pilot, 2)
        await pilot.press("f9")
        await until(pilot, lambda: run.asked == ["kill_all"])
        assert not any(one.done() for one in asked)
        pilot.app.push_screen(Confirm("above", "it"))
        for one in asked:
            one.cancel()
        await pilot.press("n")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "RunScreen")


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
