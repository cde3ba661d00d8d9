"""Preflight, prompts and hosts on the screen: what is asked, what is told, what is repaired."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from launcher.cluster import library
from launcher.cluster.file_model import Host
from launcher.hosts.auth_prompt import AuthPrompt, OfferedKey, PromptKind
from launcher.ids import TaskId
from launcher.preflight import Check, Finding
from launcher.preflight.findings import blocking, warning
from launcher.run.gpus import GpuFigures, GpuProcess, GpuSample, GpuView, Throttle
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from tests.support.cluster_texts import cluster_text
from tests.support.fakes import ScriptedRun
from tests.support.homes import home
from tests.support.preflights import OFFER, Preflights, missing
from tests.support.screens import screen_text, showing, shows, until, visible
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.dialogs import AskText, Confirm
from tui.screens.editor.form import Form
from tui.screens.editor.screen import EditorScreen
from tui.screens.home import HomeScreen
from tui.screens.host_key_dialog import HostKeyDialog, OpenPrompt
from tui.screens.hosts_screen import HostsScreen
from tui.screens.preflight_screen import PreflightScreen
from tui.screens.prompt_dialogs import PromptDialog
from tui.widgets.footer import KeyFooter
from tui.widgets.table import Table

# From a finding of the preflight to its repair, and to the launch.

HOSTS = ("tf1", "tf2", "tf3", "tf4")


def saved(count: int = 4) -> Path:
    """A cluster with a worker on each of these hosts."""
    hosts = [f"tf{number}" for number in range(1, count + 1)]
    tables = {host: {"ssh": f"me@{host}.invalid"} for host in hosts}
    return library.create(
        "far", cluster_text({"worker": " ".join(hosts)}, hosts=tables, workdir="")
    )


def top(pilot: Pilot[int]) -> Any:
    """The screen on top."""
    return pilot.app.screen


def field(pilot: Pilot[int]) -> str | None:
    """The key in whose field the cursor is."""
    focused = pilot.app.focused
    return focused.name if isinstance(focused, Input) else None


async def check_first(pilot: Pilot[int]) -> TfmuxApp:
    """Checks the first cluster of home; returns the app."""
    await pilot.press("T")
    await until(pilot, lambda: isinstance(top(pilot), PreflightScreen))
    app = pilot.app
    assert isinstance(app, TfmuxApp)
    return app


async def test_checks_of_no_host_have_no_row(preflights: Preflights) -> None:
    """Given a preflight in which no host makes a check, then its row of dashes is shown only until
    the preflight is over."""
    saved()
    preflights.made = lambda host, entry: []
    preflights.over.clear()
    async with home(size=(80, 24)) as pilot:
        app = await check_first(pilot)
        await shows(pilot, "checking, ")
        await until(pilot, lambda: any(" tensorflow  –" in row for row in screen_text(app)))
        preflights.over.set()
        await shows(pilot, "✓ ready to launch")
        await until(pilot, lambda: not any(" tensorflow " in row for row in screen_text(app)))
        assert any(" python " in row for row in screen_text(app))


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=str)
async def test_four_hosts_fit_and_equal_findings_are_one(
    size: tuple[int, int], preflights: Preflights
) -> None:
    """Every host has its column, however long a server's version is; what is missing on all is one
    error and one sentence, and a key says what it leads to."""
    saved()
    async with home(size=size) as pilot:
        app = await check_first(pilot)
        await shows(pilot, "✗ a launch would fail   1 error")
        (titles,) = [row for row in screen_text(app) if " check  " in row]
        assert all(f" {host} " in f"{titles} " for host in HOSTS)
        (row,) = [row for row in screen_text(app) if " tensorflow  " in row]
        assert row.count("✗ missing") == 4
        await shows(pilot, "✗ tf1–tf4: TensorFlow is not installed for python3")
        await shows(pilot, "Enter edit python of tf1–tf4")
        assert not visible(app, "shows the others")
        await pilot.press("e", "e")
        assert visible(app, "tf1–tf4: TensorFlow") and top(pilot)._checks.cursor_column == 1


async def test_hosts_that_do_not_fit_are_counted(preflights: Preflights) -> None:
    """Nine in eighty columns: the frame says that there are more, and how to see them."""
    saved(9)
    async with home(size=(80, 24)) as pilot:
        await check_first(pilot)
        await shows(pilot, "Checks: 9 hosts, ← → shows the others")


async def test_what_is_offered_is_taken_by_one_key(preflights: Preflights) -> None:
    """Given a Python with TensorFlow on each host, of which one is elsewhere, then Enter writes
    each into the editor's text, and checks again: ready, and `l` launches."""
    path = saved()

    def offered(host: str, entry: Host) -> Sequence[Finding]:
        return missing(host, entry, "/srv/tf/bin/python" if host == "tf3" else OFFER)

    preflights.made = offered
    async with home(size=(120, 40)) as pilot:
        app = await check_first(pilot)
        await shows(pilot, f'→ write python = "{OFFER}" for the host; tf2: {OFFER}, tf3: /srv/tf')
        await pilot.press("enter")
        await shows(pilot, "✓ ready to launch")
        python = {name: host.python for name, host in preflights.checked[-1].hosts.items()}
        assert python == {
            **dict.fromkeys(HOSTS, OFFER),
            "tf3": "/srv/tf/bin/python",
        }
        assert len(preflights.checked) == 2 and "python" not in path.read_text()
        await shows(pilot, "l launch")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(top(pilot), EditorScreen))
        assert isinstance(app.screen, EditorScreen) and app.screen.modified
        await pilot.press("u", "u", "u", "u", "u")
        await until(pilot, lambda: not top(pilot).modified)


async def test_without_an_offer_it_is_asked_once_for_all(preflights: Preflights) -> None:
    """A line is asked for, and what is answered is written for every host; a cancelled question
    changes nothing."""
    saved()
    async with home(size=(100, 30)) as pilot:
        await check_first(pilot)
        await shows(pilot, "✗ tf1–tf4: TensorFlow")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(top(pilot), AskText))
        await shows(pilot, "python of tf1–tf4")
        await shows(pilot, "TensorFlow is not installed for python3")
        await pilot.press(*"/x/python", "enter")
        await shows(pilot, "✓ ready to launch")
        assert {host.python for host in preflights.checked[-1].hosts.values()} == {"/x/python"}
        preflights.made = lambda host, entry: missing(host, replace_python(entry))
        await pilot.press("f5")
        await shows(pilot, "1 error")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(top(pilot), AskText))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(top(pilot), EditorScreen))
        assert len(preflights.checked) == 3


def replace_python(host: Host) -> Host:
    """The host as if no Python were written for it."""
    return host.model_copy(update={"python": None})


async def test_the_key_for_the_launch_is_shown_once_all_is_well(preflights: Preflights) -> None:
    """Given a preflight without findings that is over a moment after its last one, then the footer
    names the key that launches, without any key pressed."""
    preflights.made = lambda host, entry: []
    preflights.over.clear()
    saved()
    async with home(size=(80, 24)) as pilot:
        app = await check_first(pilot)
        await until(pilot, lambda: visible(app, "OpenSSH") and visible(app, "checking, "))
        assert not visible(app, "l launch")
        preflights.over.set()
        await shows(pilot, "✓ ready to launch")
        await shows(pilot, "l launch")
        assert isinstance(app.screen, PreflightScreen)


async def test_hosts_are_named_in_the_order_of_the_file(preflights: Preflights) -> None:
    """Given hosts that answer in another order, when they lack the same, then they are named as a
    series."""
    preflights.made = lambda host, entry: []
    answers = [each for host in ("tf2", "tf4", "tf1", "tf3") for each in missing(host, Host())]
    saved()
    async with home(size=(80, 24)) as pilot:
        app = await check_first(pilot)
        await shows(pilot, "✓ ready to launch")
        screen = app.screen
        assert isinstance(screen, PreflightScreen)
        screen._found += answers
        await shows(pilot, "1 error")
        await pilot.press("e")
        await shows(pilot, "✗ tf1–tf4: TensorFlow is not installed for python3")


@pytest.mark.parametrize(
    ("finding", "key", "written"),
    [
        (blocking(Check.TCP, "tcp-refused", "tf2", "refused", "refused", "start sshd"), "ssh", "x"),
        (blocking(Check.LOGIN, "key-file", "tf2", "key file", "no key"), "identity", "/k"),
        (blocking(Check.TENSORFLOW, "tensorflow-missing", "tf2", "missing", "no"), "python", "/p"),
        (warning(Check.GPUS, "gpus-fewer", "tf2", "1 of 2", "expects 2"), "gpus", "1"),
    ],
    ids=lambda value: value.code if isinstance(value, Finding) else "",
)
async def test_the_form_opens_with_the_cursor_in_the_field(
    finding: Finding, key: str, written: str, preflights: Preflights
) -> None:
    """Given a finding about one host, then Enter leads to the key that repairs it; what is written
    there is checked again, and the cursor goes to the worst of what is left."""
    saved()
    preflights.made = lambda host, entry: [finding] if host == "tf2" else []
    async with home(size=(100, 40)) as pilot:
        await check_first(pilot)
        await shows(pilot, f"✗ tf2: {finding.sentence}" if key != "gpus" else "1 warning")
        if key == "gpus":
            await pilot.press("e")
        await shows(pilot, f"Enter edit {key} of tf2")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(top(pilot), Form) and field(pilot) == key)
        await pilot.press("end", *written, "enter")
        await until(pilot, lambda: isinstance(top(pilot), PreflightScreen))
        await until(pilot, lambda: len(preflights.checked) == 2)
        host = preflights.checked[-1].hosts["tf2"].model_dump()
        assert written in str(host[key])


async def test_a_setting_of_the_tasks(preflights: Preflights) -> None:
    """A directory that no host has: one line for all, and the form of `[run]` for all."""
    path = saved()
    path.write_text(path.read_text().replace('workdir = ""', 'directory = "/proj"'))

    def without(host: str, entry: Host) -> Sequence[Finding]:
        about = (Check.FILES, "directory-missing", host, "no directory", f"{host}: none", "make it")
        return [blocking(*about)]

    preflights.made = without
    async with home(size=(100, 40)) as pilot:
        await check_first(pilot)
        await shows(pilot, "Enter edit directory")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(top(pilot), Form) and field(pilot) == "directory")


async def test_what_no_setting_repairs(preflights: Preflights) -> None:
    """The key says so; and a launch that would fail is none. What leads on comes first in the
    footer: another check, after a repair elsewhere. There is no run to kill."""
    saved()
    preflights.made = lambda host, entry: [
        blocking(Check.CLOCK, "clock-off", host, "+99 s", "the clock is wrong", "set it")
    ]
    async with home(size=(100, 30)) as pilot:
        app = await check_first(pilot)
        await shows(pilot, "✗ tf1–tf4: the clock is wrong")
        await until(pilot, lambda: screen_text(app)[-1].startswith(" F5 check again  e next"))
        assert not visible(app, "kill all")
        await pilot.press("enter")
        await shows(pilot, "no setting of the file repairs this")
        await pilot.press("l")
        await shows(pilot, "a launch would fail: F5 checks again after the")
        assert isinstance(top(pilot), PreflightScreen)


async def test_a_cell_is_cut_only_where_there_is_no_room(preflights: Preflights) -> None:
    """Given a long version of a server and a wide terminal, then its cell is shown as a whole; and
    a table without a row says of what is over that it is."""
    saved(2)
    version = "OpenSSH_9.2p1 Debian-2+deb12u3"
    preflights.made = lambda host, entry: []
    async with home(size=(200, 50)) as pilot:
        app = await check_first(pilot)
        await shows(pilot, "✓ ready to launch")
        await until(pilot, lambda: any(row.count(version) == 2 for row in screen_text(app)))
        await shows(pilot, "no connection was tried")
        assert not visible(app, "after the logins")


async def test_a_launch_from_a_check_of_the_editor_asks_whether_to_save(
    preflights: Preflights,
) -> None:
    """As from the editor itself: what was taken is not saved yet."""
    saved()
    preflights.made = lambda host, entry: missing(host, entry, OFFER)
    async with home(size=(100, 30)) as pilot:
        await check_first(pilot)
        await shows(pilot, "Enter take that python on tf1–tf4")
        await pilot.press("enter")
        await shows(pilot, "✓ ready to launch")
        await pilot.press("l")
        await shows(pilot, "The file is not saved")


def test_findings_that_only_look_alike_stay_apart() -> None:
    """Another severity, another sentence, an offer where the other host has none."""
    from launcher.preflight.repairs import grouped

    first = missing("a", Host(), OFFER)[0]
    others = [
        replace(first, host="b", sentence="TensorFlow is not installed for python2"),
        replace(first, host="b", offer="", todo="install it"),
        warning(first.check, first.code, "b", first.brief, first.sentence, first.todo),
    ]
    assert [len(group.findings) for group in grouped([first, *others])] == [1, 1, 1, 1]
    same = replace(first, host="b", offer="/b/python", todo=first.todo.replace(OFFER, "/b/python"))
    (group,) = grouped([first, same])
    assert group.hosts == ("a", "b") and group.offers == {"a": OFFER, "b": "/b/python"}


# Questions of a launcher on its own loop, answered in dialogs of the app.

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
async def home_screen(
    size: tuple[int, int] = (100, 30),
) -> AsyncIterator[tuple[Pilot[int], HomeScreen]]:
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
    async with home_screen() as (pilot, screen):
        asked = launcher.ask(screen, PASSWORD)
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptDialog))
        await pilot.press(*"s3cret")
        await shows(pilot, "•" * 6)
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
    async with home_screen() as (pilot, screen):
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
    async with home_screen((80, 24)) as (pilot, screen):
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
    async with home_screen() as (pilot, screen):
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
    async with home_screen() as (pilot, screen):
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
    async with home_screen() as (pilot, screen):
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
    async with home_screen() as (pilot, screen):
        asked = [launcher.ask(screen, key(f"tf{n}")) for n in (1, 2)]
        await keys_on(pilot, 2)
        await pilot.click("HostKeyList", offset=(4, 2))
        await shows(pilot, "y trust tf2")
        assert not any(one.done() for one in asked)
        choices = pilot.app.screen.query_one(KeyFooter)
        row = screen_text(pilot.app)[choices.region.y]
        await pilot.click(offset=(row.index("y trust tf2") + 3, choices.region.y))
        await until(pilot, asked[1].done)
        assert asked[1].result() == "yes" and not asked[0].done()
        await pilot.press("ctrl+q")
        await until(pilot, asked[0].done)
        assert asked[0].result() == "no"


async def test_a_password_waits_for_the_keys(launcher: Launcher) -> None:
    """One dialog at a time."""
    async with home_screen() as (pilot, screen):
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
    async with home_screen() as (pilot, screen):
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
    async with home_screen() as (pilot, screen):
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
    async with home_screen() as (pilot, screen):
        assert isinstance(pilot.app, TfmuxApp)
        pilot.app.open_run(run)
        asked = launcher.ask(screen, PASSWORD)
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptDialog))
        await pilot.press(*"half", "f9")
        await until(pilot, lambda: run.asked == ["kill_all"])
        assert pilot.app.screen.query_one(Input).value == "half"
        asked.cancel()
        await until(pilot, lambda: not isinstance(pilot.app.screen, PromptDialog))


# The hosts screen: a row a GPU, whose it is and what is wrong with it; the same in titles and
# header.

GB = 1_000_000_000
EACH = 8


def gpu(index: int, task: TaskId | None = None, *others: GpuProcess, **said: Any) -> GpuView:
    held = (GpuProcess(4000 + index, task, memory=61 * GB),) if task is not None else ()
    made: dict[str, Any] = {
        "utilisation": 0.9,
        "memory_used": 62 * GB,
        "memory_total": 80 * GB,
        "temperature": 60.0 + index,
        "power": 650.0,
        **said,
    }
    return GpuView(index, "NVIDIA H100", f"GPU-{index}", processes=(*held, *others), **made)


def training(folder: Path, hosts: int = 4, **third: Any) -> ScriptedRun:
    """Hosts with eight GPUs and eight workers each; the third GPU of tf2 has other values."""
    run = ScriptedRun(folder, ps=0, workers=hosts * EACH, hosts=hosts)
    run.change(state=RunPhase.RUNNING)
    run.all_tasks(state=TaskState.RUNNING, pid=4121)
    run.occupy_hosts(*[HostState.UP] * hosts, now=time.time())
    give(run, **third)
    return run


def give(run: ScriptedRun, **third: Any) -> None:
    hosts = []
    for host in run.snapshot().hosts:
        own = [task.id for task in run.snapshot().tasks if task.host == host.name]
        gpus = [gpu(index, own[index]) for index in range(EACH)]
        if host.name == "tf2":
            gpus[3] = gpu(3, own[3], **third)
            root = GpuProcess(455, None, "root", "python3 busy.py", 2 * GB)
            gpus[5] = gpu(5, own[5], root)
        hosts.append(replace(host, gpus=tuple(gpus)))
    run.change(hosts=tuple(hosts))


def rows_of(app: Any, table: str) -> list[str]:
    """The rows of a table that are in sight."""
    region = app.screen.query_one(table, Table).region
    return [
        row[region.x : region.right]
        for row in screen_text(app)[region.y + 1 : region.bottom]
        if row[region.x : region.right].strip()
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids="{0[0]}x{0[1]}".format)
async def test_every_gpu_has_a_row(tmp_path: Path, size: tuple[int, int]) -> None:
    """Given four hosts with eight GPUs each, then those of the host under the cursor are all in
    sight, with load, memory, temperature and their tasks, and from 200 columns on those of all
    hosts; a task has its GPU memory; a process that is no task's is named."""
    run = training(tmp_path)
    async with showing(run, size) as (app, pilot):
        await pilot.press("H", "j")
        await shows(pilot, "Tasks on tf2")
        if size[0] == 200:
            await shows(pilot, "32 GPUs of 4 hosts: NVIDIA H100")
        else:
            await shows(pilot, "GPUs of tf2: NVIDIA H100")
        for index in range(EACH):
            task = f"worker:{index * 4 + 1} 61 GB"
            row = next(row for row in rows_of(app, "#gpus") if task in row)
            words = row.split()
            assert {str(index), "90", "78", f"{60 + index}"} <= set(words), row
        await shows(pilot, "GPU 5: root's pid 455 (python3 busy.py), 2.0 GB")
        tasks = rows_of(app, "#tasks")
        assert any("worker:1 " in row and " 61 GB " in row for row in tasks), tasks
        await pilot.press("k")
        await shows(pilot, "Tasks on tf1")
        await until(pilot, lambda: not visible(app, "GPU 5: root"))
    run.logs.close()


async def test_the_tasks_of_hosts_with_gpus_are_in_sight_at_80_columns(tmp_path: Path) -> None:
    """Given hosts with GPUs and leases on a narrow terminal, then their tasks are told in the row
    of each, as a whole."""
    run = training(tmp_path, hosts=2)
    run.task("worker:1", state=TaskState.FAILED, exit_code=1)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("H")
        await until(pilot, lambda: any("R 8" in row for row in rows_of(app, "#hosts")))
        assert any("worker:1  R 7" in row for row in rows_of(app, "#hosts"))
    run.logs.close()


async def test_a_lost_host_has_no_load(tmp_path: Path) -> None:
    """Given a host that is lost, then its row and those of its GPUs and tasks show no figures that
    its agent told before; its neighbours keep theirs."""
    run = training(tmp_path)
    run.change(
        hosts=tuple(
            replace(host, cpu=0.37, state=HostState.LOST if host.name == "tf2" else host.state)
            for host in run.snapshot().hosts
        )
    )
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("H", "j")
        await shows(pilot, "GPUs of tf2: NVIDIA H100")
        rows = {row.strip("│ ").split()[0]: row for row in rows_of(app, "#hosts")}
        assert "37" in rows["tf1"] and "lost" in rows["tf2"] and "37" not in rows["tf2"], rows
        row = next(row for row in rows_of(app, "#gpus") if "worker:1 " in row)
        assert "90" not in row and "60 C" not in row, row
    run.logs.close()


async def test_gpus_can_be_scrolled_to(tmp_path: Path) -> None:
    run = training(tmp_path, hosts=1)
    (host,) = run.snapshot().hosts
    run.change(hosts=(replace(host, gpus=tuple(gpu(index) for index in range(30))),))
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("H")
        await shows(pilot, "GPUs of tf1")
        assert not any(" 29 " in row for row in rows_of(app, "#gpus"))
        await pilot.press("tab", "end")
        await until(pilot, lambda: any(" 29 " in row for row in rows_of(app, "#gpus")))
    run.logs.close()


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"utilisation": 0.0, "idle_since": -12600.0}, "idle 3 h"),
        ({"temperature": 91.0}, "hot 91 C"),
        ({"throttled": (Throttle.POWER_BRAKE,)}, "throttled (power-brake)"),
        ({"problem": "GPU is lost"}, "cannot be used: GPU is lost"),
    ],
    ids=["idle", "hot", "throttled", "lost"],
)
async def test_titles_and_header_warn_of_a_tasks_gpu(
    tmp_path: Path, said: dict[str, Any], text: str
) -> None:
    """On every page of the run, while the task runs; its row of the GPU says the same. The warning
    goes with its reason."""
    if "idle_since" in said:
        said = {**said, "idle_since": time.time() + said["idle_since"]}
    run = training(tmp_path, **said)
    whole = f"GPU {text}"
    async with showing(run, (200, 50)) as (app, pilot):
        await shows(pilot, f"! worker:13: {whole}")
        await pilot.press("apostrophe", *"worker:13", "enter")
        await shows(pilot, f"running  {whole.partition(' (')[0][:16]}")
        for key in ("M", "H"):
            await pilot.press(key)
            await until(pilot, lambda: f"! worker:13: {whole}" in screen_text(app)[0])
        assert isinstance(app.screen, HostsScreen)
        assert any(f" {text}  worker:13 61 GB" in row for row in rows_of(app, "#gpus"))
        (row,) = (row for row in rows_of(app, "#hosts") if "! GPU 3" in row)
        assert " tf2 " in row
        give(run)
        await until(pilot, lambda: not visible(app, text))
    run.logs.close()


async def test_a_long_sentence_about_a_gpu_hides_no_task(tmp_path: Path) -> None:
    """Given nvidia-smi's sentence about a GPU that is lost, then the row of the GPU still has its
    task, that of the host its tasks, and the sentence stands as a whole over these."""
    lost = "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error"
    run = training(tmp_path, problem=lost)
    hosts = run.snapshot().hosts
    run.change(hosts=(hosts[0], replace(hosts[1], gpu_problem=lost), *hosts[2:]))
    async with showing(run, (200, 50)) as (app, pilot):
        await pilot.press("H", "j")
        await shows(pilot, "GPU0000:07:00.0: Unknown Error  ")  # the end of the sentence
        assert any(
            "cannot be used: " in row and "worker:13" in row for row in rows_of(app, "#gpus")
        )
        (row,) = (row for row in rows_of(app, "#hosts") if " tf2 " in row)
        assert "! GPU 3" in row and "R 8" in row and "Unable" not in row
    run.logs.close()


async def test_without_gpus_nothing_speaks_of_them(tmp_path: Path) -> None:
    """No column, no empty table; columns that say nothing leave their room to the others. After the
    end of a run nobody measures its GPUs."""
    run = training(tmp_path)
    with_gpus = run.snapshot().hosts
    run.change(hosts=tuple(replace(host, gpus=()) for host in with_gpus))
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("H")
        await shows(pilot, "lease")
        assert not visible(app, "gpu") and not visible(app, "GPU") and not visible(app, "note")
        run.change(hosts=with_gpus)
        await shows(pilot, "gpu memory")
        run.change(state=RunPhase.ENDED, outcome=Outcome.SUCCESS, ended=time.time())
        await until(pilot, lambda: not visible(app, "gpu") and not visible(app, "GPU"))
    run.logs.close()


async def test_load_over_time_where_there_is_room(tmp_path: Path) -> None:
    """Given reports of a minute, then a wide screen has sparklines of the processor, the memory and
    each GPU; a report that says the same draws nothing anew."""
    run = training(tmp_path)
    began = time.time()
    async with showing(run, (200, 50)) as (app, pilot):
        await pilot.press("H")
        await shows(pilot, "32 GPUs")
        screen = app.screen
        assert isinstance(screen, HostsScreen)
        for number in range(40):
            run.change(hosts=tuple(
                replace(host, cpu=number / 39, last_heard=began + 2 * number)
                for host in run.snapshot().hosts
            ))  # fmt: skip
            screen.logs.monitor.history.take(run.snapshot())
        figures = tuple(GpuFigures(index, 0.9) for index in range(EACH))
        samples = [GpuSample("", figures, time=began + 5 * number) for number in range(40)]
        run.samples = dict.fromkeys(("tf1", "tf2", "tf3", "tf4"), samples)
        await until(pilot, lambda: sum("▄▄▅▅▆▇▇█" in row for row in rows_of(app, "#hosts")) == 4)
        assert sum("▇▇▇▇▇▇▇▇▇▇" in row for row in rows_of(app, "#gpus")) == 32
    run.logs.close()
