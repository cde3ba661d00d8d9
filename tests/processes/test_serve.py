"""The UI in a browser: the real server, and Chromium where it takes one."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from launcher.cluster.read import load
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, until
from tests.testbed import browser, guard
from tests.testbed.browser import Browser, Tab
from tests.testbed.inprocess import SshServer
from tests.testbed.relay import Relay
from tests.testbed.serving import Serve, client, serving

TICKER = (
    "import socket, sys, time\n"
    "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "for step in range(100000):\n"
    "    print('step', step, 'loss', 1 / (step + 1), flush=True)\n"
    "    time.sleep(0.5)\n"
)
CLUSTER = cluster_text(
    {"ps": 1, "worker": 2}, "tick", command=["{python}", "-u", "-c", TICKER, "{port}"], workdir=""
)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A server on a cluster file; whatever its pages launch is gone after the test."""
    server = Serve(str(write(tmp_path, CLUSTER)))
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()
        if RunFolder.all():
            run("kill", "--all")


@pytest_asyncio.fixture
async def wire(serve: Serve) -> AsyncIterator[Relay]:
    """The network between a browser and the server."""
    relay = Relay()
    await relay.start(serve.port)
    yield relay
    await relay.close()


@pytest_asyncio.fixture
async def chromium(tmp_path: Path) -> AsyncIterator[Browser]:
    """A browser, or a skip where there is none; in CI a missing one is a failure."""
    reason = browser.missing()
    if reason is not None and os.environ.get("CI"):
        pytest.fail(f"{reason}, and in CI a missing browser is a failure", pytrace=False)
    if reason is not None:
        pytest.skip(reason)
    async with Browser(tmp_path / "chromium") as found:
        yield found


async def stepping(tab: Tab, least: int = 1) -> str:
    """Waits until a page shows the run with all its tasks, at some step."""
    return await tab.wait_until(
        lambda screen: "worker:1 @" in screen and step(screen) >= least, f"step {least}"
    )


def step(screen: str) -> int:
    """The highest step that a page shows."""
    return max((int(n) for n in re.findall(r"step (\d+) loss", screen)), default=-1)


async def test_a_run_in_a_browser_from_launch_to_receipt(serve: Serve, chromium: Browser) -> None:
    """One key launches and the panes live; a reload and a second page come back to that very
    run; F9 in one page ends it, and every page shows the receipt. The page asks nobody but the
    server for anything. The next run outlives its pages and its server, which says what lives on,
    and is killed from a terminal."""
    first = await chromium.tab()
    await first.open(serve.url)
    await first.wait_for("l launch", "worker:1")
    await first.keys("l")
    seen = step(await stepping(first))
    await stepping(first, seen + 1)
    await first.wait_for("F9 kill all", "steps/s")
    runs = RunFolder.all()
    assert len(runs) == 1
    launcher = runs[0].launcher_pid()

    await first.reload()
    await stepping(first, seen + 1)
    second = await chromium.tab()
    await second.open(serve.url)
    await stepping(second, seen + 1)
    assert (RunFolder.all()[0].launcher_pid(), len(RunFolder.all())) == (launcher, 1)

    await second.keys("F9")
    for tab in (first, second):
        await tab.wait_for("Receipt", "no process is left", "confirmed")
        assert {urlsplit(url).netloc for url in tab.requested} == {serve.netloc}
        assert any(url.startswith("ws:") for url in tab.requested)
        assert any(url.endswith(".ttf") for url in tab.requested)
        assert not tab.errors
        address = urlsplit(await tab.evaluate("location.href"))
        assert (address.path, address.query) == ("/", "")
        assert "token" not in await tab.evaluate("document.cookie + document.referrer")
    assert not guard.tasks_here()

    await second.close()
    await first.keys("Escape")
    await first.wait_until(lambda screen: "Receipt" not in screen, "the run without its receipt")
    await first.keys("Escape")  # a key in the same tenth of a second would be one with Alt
    await first.wait_until(lambda screen: "launch again" not in screen, "the editor")
    await first.wait_for("l launch")
    await until(lambda: runs[0].launcher_pid() is None, "the launcher has gone")
    await first.keys("l")
    await first.wait_until(lambda _: len(RunFolder.all()) == 2, "another run")
    await stepping(first)
    (folder,) = [each for each in RunFolder.all() if each.run_id != runs[0].run_id]
    launcher = folder.launcher_pid()
    assert launcher is not None
    await first.close()
    await until(lambda: not serve.pages(), "the processes of the pages have gone")
    assert folder.launcher_pid() == launcher

    again = await chromium.tab()
    await again.open(serve.url)
    await stepping(again)
    said = await asyncio.to_thread(serve.end, signal.SIGINT)
    assert serve.process.returncode == 0
    assert f"tfmux kill {folder.run_id}" in said
    assert not serve.pages()
    assert folder.launcher_pid() == launcher
    await again.wait_for_banner("tfmux serve has ended.")

    killed = await asyncio.to_thread(run, "kill", folder.run_id)
    assert killed.returncode == 0, killed.stderr
    assert not guard.tasks_here()


@pytest.mark.soak
async def test_what_a_login_asks_is_asked_on_the_pages(
    tmp_path: Path, ssh_server: SshServer, chromium: Browser
) -> None:
    """An unknown host key and a password: every page asks, one answers, and the run goes on. The
    password is nowhere on disk."""
    ssh_server.password = "s3cretü"
    host = (
        f'name = "far"\n[hosts.far]\nssh = "{ssh_server.user}@127.0.0.1:{ssh_server.port}"\n'
        f'address = "far.invalid"\npython = "{sys.executable}"\n'
    )
    job = f'[jobs.worker]\ntasks = ["far:auto"]\ncommand = ["{sys.executable}", "-u", "-c", '
    text = f'{host}{job}"""{TICKER}""", "{{port}}"]\n[run]\nworkdir = ""\n'
    server = Serve(str(write(tmp_path, text)))
    try:
        tabs = [await chromium.tab() for _ in range(2)]
        for tab in tabs:
            await tab.open(server.url)
            await tab.wait_for("l launch")
        await tabs[0].keys("l")
        await tabs[0].wait_for("First contact with far", "SHA256:")
        await tabs[1].reload()  # comes back to the run, and to its question
        await tabs[1].wait_for("First contact with far")
        await tabs[1].keys("y")
        for tab in tabs:
            await tab.wait_for("far asks", "not shown, not stored")
        await tabs[0].keys(*"s3cretü", "Enter")
        for tab in tabs:
            await tab.wait_until(lambda screen: step(screen) >= 1, "a step")
        (found,) = RunFolder.all()
        for path in found.path.rglob("*"):
            assert b"s3cret" not in (path.read_bytes() if path.is_file() else b"")
        await tabs[0].keys("F9")
        await tabs[1].wait_for("Receipt", "no process is left", "confirmed")
    finally:
        server.end()
        if RunFolder.all():
            run("kill", "--all")


@pytest.mark.soak
async def test_two_pages_that_launch_at_once_get_one_run(serve: Serve, chromium: Browser) -> None:
    """Both pages show it."""
    tabs = [await chromium.tab() for _ in range(2)]
    for tab in tabs:
        await tab.open(serve.url)
    for tab in tabs:
        await tab.wait_for("l launch", "worker:1")
    await asyncio.gather(*(tab.keys("l") for tab in tabs))
    for tab in tabs:
        await stepping(tab)
    assert len(RunFolder.all()) == 1


@pytest.mark.soak
async def test_a_reload_during_the_launch_comes_back_to_it(serve: Serve, chromium: Browser) -> None:
    """The page goes at the moment of the key; the run starts all the same, once."""
    tab = await chromium.tab()
    await tab.open(serve.url)
    await tab.wait_for("l launch", "worker:1")
    await tab.keys("l")
    await until(RunFolder.all, "the run's folder")
    await tab.reload()
    await stepping(tab)
    await tab.keys("l")  # scrolls nothing, launches nothing: the run is on the screen
    assert len(RunFolder.all()) == 1


@pytest.mark.prove
async def test_a_connection_that_stands_still_is_shown(
    serve: Serve, wire: Relay, chromium: Browser
) -> None:
    """The page says so and goes on when its connection does; opens again where the network has
    forgotten that connection, or ended it; and always shows the run as it is, by one process."""
    tab = await chromium.tab()
    await tab.open(through(wire, serve))
    await tab.wait_for("l launch", "worker:1")
    assert not await tab.banner()
    await tab.keys("l")
    seen = step(await stepping(tab))

    for cut, says in (
        (wire.pull, "No answer for"),
        (wire.strand, "No answer for"),
        (wire.cut_off, "No connection for"),
    ):
        cut()
        assert "Runs go on" in await tab.wait_for_banner(says)
        wire.heal()
        await tab.wait_for_banner("")
        seen = step(await stepping(tab, seen + 1))
        await until(lambda: len(serve.pages()) == 1, "one page is left on the server")

    await tab.keys("F9")
    await tab.wait_for("Receipt", "no process is left", "confirmed")
    assert not tab.errors


@pytest.mark.prove
async def test_a_server_that_is_stopped_goes_on_or_has_ended(
    serve: Serve, chromium: Browser, tmp_path: Path
) -> None:
    """The page says that a stopped server does not answer, and goes on with it: what it tried in
    between has left no process. It says when the server has ended, is not let in by another one on
    that port, with the reason, until the browser has that one's token: then it opens by itself."""
    tab = await chromium.tab()
    await tab.open(serve.url)
    await tab.wait_for("l launch", "worker:1")
    await tab.keys("l")
    seen = step(await stepping(tab))
    tried = sum(url.endswith("/") for url in tab.requested)
    serve.process.send_signal(signal.SIGSTOP)
    try:
        await tab.wait_for_banner("No answer for")
        await until(
            lambda: sum(url.endswith("/") for url in tab.requested) > tried + 1, "two tries"
        )
    finally:
        serve.process.send_signal(signal.SIGCONT)
    await tab.wait_for_banner("")
    await stepping(tab, seen + 1)
    await until(lambda: len(serve.pages()) == 1, "one page is left on the server")

    await asyncio.to_thread(serve.end, signal.SIGINT)
    assert "start tfmux serve again" in await tab.wait_for_banner("tfmux serve has ended.")
    with serving(str(tmp_path / "cluster.toml"), "--port", str(serve.port)) as another:
        await tab.wait_for_banner("open the address that `tfmux serve` printed, with its ?token=")
        assert not another.pages()
        login = await chromium.tab()
        await login.open(another.url)
        await login.wait_for("l launch")
        await login.close()
        await tab.wait_for("l launch")
        await tab.wait_for_banner("")
        await until(lambda: len(another.pages()) == 1, "one page is left on the server")


@pytest.mark.prove
async def test_a_server_that_has_ended_has_ended_whoever_answers(
    serve: Serve, chromium: Browser
) -> None:
    """A connection that was open before still answers while the server goes, and then the page
    finds none to open: it says what the server said, not that it lost its connection."""
    tab = await chromium.tab()
    await tab.open(serve.url)
    await tab.wait_for("l launch")
    await tab.evaluate("""
        let asked = 0;
        window.fetch = async () => { if (++asked === 3) window.thrice(); return new Response(""); };
        window.asked = new Promise((done) => window.thrice = done);
        0
    """)
    await asyncio.to_thread(serve.end, signal.SIGINT)
    await tab.wait_for_banner("tfmux serve has ended.")
    await tab.evaluate("window.asked")  # two sockets have been refused by the third time
    assert "tfmux serve has ended." in await tab.banner()


@pytest.mark.prove
async def test_a_page_opens_again_at_the_moment_that_it_is_looked_at(
    serve: Serve, wire: Relay, chromium: Browser
) -> None:
    """Also where the timers of the browser stand still, as after a sleep."""
    tab = await chromium.tab()
    await tab.call("Page.addScriptToEvaluateOnNewDocument", source="window.setInterval = () => 0")
    await tab.open(through(wire, serve))
    await tab.wait_for("l launch")
    for event in (
        "window.dispatchEvent(new Event('online'))",
        "window.dispatchEvent(new Event('pageshow'))",
        "document.dispatchEvent(new Event('visibilitychange'))",
        "document.getElementById('now').click()",
    ):
        wire.cut_off()
        await tab.wait_for_banner("No connection for")
        await until(lambda: not serve.pages(), "the page's process has gone")
        await tab.evaluate(event)
        await tab.wait_for_banner("")
        await tab.wait_for("l launch")
        assert len(serve.pages()) == 1


@pytest.mark.prove
async def test_a_page_whose_process_died_says_so(serve: Serve, chromium: Browser) -> None:
    """The page does not stand still, and opens again with a click."""
    tab = await chromium.tab()
    await tab.open(serve.url)
    await tab.wait_for("l launch")
    (page,) = serve.pages()
    os.kill(page, signal.SIGKILL)
    await tab.wait_until_shown("#closed")
    await tab.evaluate("window.caught.reset(), document.getElementById('again').click()")
    await tab.wait_for("l launch")
    assert not await tab.shown("#closed")


def through(wire: Relay, serve: Serve) -> str:
    """The server's address over a relay."""
    return serve.url.replace(f":{serve.port}/", f":{wire.port}/")


@pytest.mark.prove
async def test_a_phone_shows_the_whole_screen(serve: Serve, chromium: Browser) -> None:
    """The page is as wide as the phone, not a desktop's page made small, and its last line, with
    the keys, is on it. A touch presses them, the kill key too: a phone has no other."""
    tab = await chromium.tab()
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 3, "mobile": True}
    await tab.call("Emulation.setDeviceMetricsOverride", **metrics)
    await tab.call("Emulation.setTouchEmulationEnabled", enabled=True)
    await tab.open(serve.url)
    await tab.wait_for("launch")
    assert await tab.evaluate("window.innerWidth") == 390
    rows = "document.querySelector('.xterm-screen').getBoundingClientRect().bottom"
    assert 700 < await tab.evaluate(rows) <= 844
    await tab.touch("launch")
    await tab.wait_until(lambda screen: "F9 kill all" in screen and step(screen) >= 1, "a step")
    await tab.touch("F9")
    await tab.wait_for("Receipt", "no process is left", "confirmed")


async def test_a_click_of_a_mouse_does_not_press_the_kill_key(
    serve: Serve, chromium: Browser
) -> None:
    """The click asks no question, and there are keys."""
    tab = await chromium.tab()
    await tab.open(serve.url)
    await tab.wait_for("l launch", "worker:1")
    await tab.keys("l")
    seen = step(await stepping(tab))
    await tab.click("F9")
    await tab.click("? help")
    await tab.wait_for("Kill all, on all hosts")
    await tab.keys("Escape")
    await stepping(tab, seen + 1)


@pytest.mark.soak
async def test_pages_go_when_the_server_is_killed(serve: Serve, chromium: Browser) -> None:
    """Nobody would see them any more."""
    tab = await chromium.tab()
    await tab.open(serve.url)
    await tab.wait_for("l launch", "worker:1")
    assert serve.pages()
    serve.process.kill()
    serve.process.communicate()
    await until(lambda: not serve.pages(), "the page's process has gone")


@pytest.mark.soak
async def test_a_run_of_a_terminal_is_looked_at_from_home(
    tmp_path: Path, chromium: Browser
) -> None:
    """Enter on a run that a launcher supervises shows it; the launcher stays the same one."""
    file = write(tmp_path, CLUSTER)
    words = [sys.executable, "-m", "tui.main", "up", str(file), "--headless"]
    up = subprocess.Popen(
        words, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = Serve()
    try:
        await until(lambda: [f for f in RunFolder.all() if f.launcher_pid()], "a launcher")
        launcher = RunFolder.all()[0].launcher_pid()
        tab = await chromium.tab()
        await tab.open(server.url)
        await tab.wait_for("Runs 1", "demos")
        await tab.keys("Enter")
        await stepping(tab)
        assert RunFolder.all()[0].launcher_pid() == launcher
        await tab.keys("F9")
        await tab.wait_for("Receipt", "no process is left")
        assert up.wait(PATIENCE) == 130
    finally:
        if up.poll() is None:
            up.terminate()
            up.wait(PATIENCE)
        server.end()


async def test_own_pages_are_let_in_and_load_nothing_from_elsewhere(serve: Serve) -> None:
    """Also through a forwarded port, where the browser knows the server by another address."""
    async with await client(serve) as session:
        async with session.get(serve.base) as answer:
            text = await answer.text()
            policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "http" not in policy
        assert "//" not in re.sub(r"<!--.*?-->", "", text)
        origin = {"Host": "localhost:9000", "Origin": "http://localhost:9000"}
        origin["Cookie"] = await asyncio.to_thread(serve.log_in, host="localhost:9000")
        async with session.ws_connect(f"{serve.base}ws", headers=origin) as socket:
            message = await socket.receive(PATIENCE)
            assert message.type is aiohttp.WSMsgType.BINARY
    await until(lambda: not serve.pages(), "the page's process has gone")


def test_what_cannot_be_served(serve: Serve, tmp_path: Path) -> None:
    """A port that is taken and a file that is wrong are said, with exit code 2."""
    port = str(urlsplit(serve.url).port)
    taken = run("serve", "--port", port)
    assert (taken.returncode, taken.stdout) == (2, "")
    assert f"127.0.0.1:{port}" in taken.stderr and "--port 0" in taken.stderr
    wrong = run("serve", str(write(tmp_path, "[jobs.ps]\ntask = []\n", "wrong.toml")))
    assert wrong.returncode == 2 and "tasks" in wrong.stderr


def test_the_clusters_name_is_kept_with_the_run(tmp_path: Path) -> None:
    """A file without a name is called after itself; its copy in the run's folder lies under
    another name and means the same cluster."""
    file = write(tmp_path, CLUSTER.replace('name = "tick"', ""), "nameless.toml")
    cluster = load(file)
    folder = RunFolder.create("nameless-1", file.read_text(), cluster)
    assert load(folder.cluster_file, base=folder.origin) == cluster
