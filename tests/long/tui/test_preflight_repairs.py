"""From a finding of the preflight to its repair, and to the launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from launcher.cluster import library
from launcher.cluster.file_model import Host
from launcher.preflight import Check, Finding
from launcher.preflight.findings import blocking, warning
from tests.support.cluster_texts import cluster_text
from tests.support.homes import home
from tests.support.preflights import OFFER, Preflights, missing
from tests.support.screens import screen_text, shows, until, visible
from tui.app import TfmuxApp
from tui.screens.dialogs import AskText
from tui.screens.editor.form import Form
from tui.screens.editor.screen import EditorScreen
from tui.screens.preflight_screen import PreflightScreen

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
