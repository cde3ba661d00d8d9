"""The run screen under load: a flood into panes, a search of a large log, many long logs.

    python -m bench.screens [--rounds 5] [--seconds 5] [--megabytes 1024] [--lines 1000000]

The app runs in a process of its own in a pseudo-terminal of 200×50, on a run whose logs go the way
they go in a run: onto disk through the log store. A key is typed ten times a second, and the time
to its handler is taken on one clock.

- Panes: a thread floods 16 of them with coloured lines. Beside them 16 `RichLog` widgets, fed as
  their documentation says, by one call a line on the app's loop.
- Search: the log has one hit at its beginning, and the pane stands at the end. Beside it `grep -n`
  with the same expression on the same file.
- Memory: 64 tasks with long logs and metrics; every page of panes is turned, a pane scrolled to
  its first line, the merged log and the metrics opened. Beside it an empty app.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Grid
from textual.widgets import RichLog

from bench.report import Row, interleave, run
from bench.terminal import SIZE, p95
from launcher.run.states import RunPhase
from tests.support.fakes import ScriptedRun
from tui.app import TfmuxApp

PANES = 16
COLOURED = (
    b"\x1b[32mINFO\x1b[0m 12:04:11 batch %07d of \x1b[1mepoch 3\x1b[0m took 12 ms, "
    b"the queue is \x1b[33m4\x1b[0m deep\n"
)
PLAIN = b"2026-11-21 12:04:11.1: After %d training steps, loss on training batch is 0.4512\n"
HIT = b"Some words, then the word Needle, and then HERE-IT-IS\n"
SEARCHES = (("plain", PLAIN, "word (n|N)ee+dle,"), ("coloured", COLOURED, "needle"))
"""What stands in the log, and what is searched; small letters alone find capitals, too."""
SEARCH_SECONDS = 6.0
CHUNK_LINES = 700
METRIC_EVERY = 250
"""Lines that come at a time, four times a second; the last has a metric's value."""
KEY_EVERY = 0.1
QUIET = 1.0
"""Seconds for mounting, before a flood or a search."""


@dataclass(frozen=True)
class Seen:
    """What one process has measured; how long keys took, in milliseconds; when the hit was
    painted, in seconds from the Enter of the search, and infinitely late where it was not."""

    answer: dict[str, float]
    keys: list[float]
    hit: float


class Timed(App[int]):
    """An app with one more key, whose arrivals are kept."""

    arrivals: list[float]

    def on_mount(self) -> None:
        self.arrivals = []
        self.bind("ctrl+t", "arrived")

    def action_arrived(self) -> None:
        """The key has come to its handler."""
        self.arrivals.append(time.monotonic())


class Ours(TfmuxApp, Timed):
    """The app itself."""


class Stock(Timed):
    """As many `RichLog` widgets in a grid."""

    CSS = "Grid { grid-size: 4; } RichLog { border: none; }"

    def compose(self) -> ComposeResult:
        """The logs."""
        with Grid():
            for _ in range(PANES):
                yield RichLog(max_lines=10_000)


def run_beside(app: Timed, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Runs an app until `work`, done in a thread once the app stands, has ended."""
    done: dict[str, float] = {}

    def act() -> None:
        time.sleep(QUIET)
        done.update(work())
        app.call_from_thread(app.exit, 0)

    threading.Thread(target=act, daemon=True).start()
    before = time.process_time()
    app.run()
    return {**done, "processor": time.process_time() - before}


def flooded(seconds: float, write: Callable[[int], int]) -> dict[str, float]:
    """Writes for so long; `write` is given the number of its call and returns its lines."""
    lines = calls = 0
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        lines += write(calls)
        calls += 1
    return {"lines": lines, "seconds": time.monotonic() - began}


def wait(_: int) -> int:
    """Writes nothing for a moment."""
    time.sleep(0.1)
    return 0


def our_panes(seconds: float, begin: Callable[[], None]) -> tuple[Timed, dict[str, float]]:
    """Floods the log store from a thread, as the launcher's loop does."""
    with tempfile.TemporaryDirectory() as folder:
        scripted = ScriptedRun(Path(folder), ps=0, workers=PANES)
        scripted.change(state=RunPhase.RUNNING)
        logs = [scripted.logs.open(task.id) for task in scripted.snapshot().tasks]
        chunks = [
            b"".join(COLOURED % (i * CHUNK_LINES + j) for j in range(CHUNK_LINES)) for i in range(8)
        ]

        def write(call: int) -> int:
            for number, log in enumerate(logs):
                log.append(log.size, chunks[(call + number) % 8], time.time())
            time.sleep(0)
            return CHUNK_LINES * PANES

        app = Ours(scripted)
        begin()
        done = run_beside(app, lambda: flooded(seconds, write))
        scripted.logs.close()
    return app, done


def stock_panes(seconds: float, begin: Callable[[], None]) -> tuple[Timed, dict[str, float]]:
    """Writes line after line on the app's loop, giving way after each frame."""
    app = Stock()
    lines = [(COLOURED % number).decode().rstrip("\n") for number in range(1000)]

    def write_some() -> int:
        count, until = 0, time.monotonic() + 1 / 60
        while time.monotonic() < until:
            for log in app.query(RichLog):
                log.write(Text.from_ansi(lines[count % len(lines)]))
                count += 1
        return count

    begin()
    write = lambda _: app.call_from_thread(write_some)  # noqa: E731
    return app, run_beside(app, lambda: flooded(seconds, write))


def one_log(
    folder: Path, line: bytes, size: int, begin: Callable[[], None]
) -> tuple[Timed, dict[str, float]]:
    """A run with one task, whose log has the hit at its beginning."""
    scripted = ScriptedRun(folder, ps=0, workers=1)
    log = scripted.logs.open(scripted.snapshot().tasks[0].id)
    log.append(0, HIT, time.time())
    chunk = b"".join(line % number for number in range(20_000))
    while log.size < size:
        log.append(log.size, chunk, time.time())
    scripted.change(state=RunPhase.RUNNING)
    app = Ours(scripted)
    begin()
    done = run_beside(app, lambda: flooded(SEARCH_SECONDS, wait))
    scripted.logs.close()
    return app, done


def in_terminal(
    child: Callable[[Callable[[], None]], tuple[Timed, dict[str, float]]],
    seconds: float,
    pattern: str = "",
) -> Seen:
    """Runs an app in a pseudo-terminal, types a search at it, and keys for so many seconds."""
    ready_end, ready = os.pipe()
    answer_end, answer_to = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        app, answer = child(lambda: os.close(ready))
        os.write(answer_to, json.dumps([answer, app.arrivals]).encode())
        os._exit(0)
    os.close(ready)
    os.close(answer_to)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    os.read(ready_end, 1)
    os.close(ready_end)
    begin = time.monotonic() + QUIET
    typed = [(begin - 0.3, b"/"), (begin, f"{pattern}\r".encode())] if pattern else []
    next_key, last_key = begin + 0.5, begin + seconds - 0.5
    sent: list[float] = []
    seen, hit, entered = b"", float("inf"), begin
    while True:
        try:
            if select.select([terminal], [], [], 0.005)[0]:
                seen = seen[-100:] + os.read(terminal, 1 << 16)
        except OSError:  # the terminal's other end is closed
            break
        now = time.monotonic()
        if pattern and hit == float("inf") and b"HERE-IT-IS" in seen:
            hit = now - entered
        if typed and typed[0][0] <= now:
            os.write(terminal, typed.pop(0)[1])
            entered, seen = now, b""
        if next_key <= now < last_key:
            sent.append(now)
            os.write(terminal, b"\x14")
            next_key += KEY_EVERY
    with os.fdopen(answer_end, "rb") as pipe:
        answer, arrivals = json.loads(pipe.read())
    os.waitpid(pid, 0)
    os.close(terminal)
    keys = [1000 * (came - typed) for typed, came in zip(sent, arrivals, strict=False)]
    return Seen(answer, keys, hit)


def panes(rounds: int, seconds: float) -> Iterator[Row]:
    """Lines a second, and keys."""
    sides = {"tfmux": our_panes, "RichLog": stock_panes}
    found = interleave(
        {who: partial(in_terminal, partial(side, seconds), seconds) for who, side in sides.items()},
        rounds,
    )
    rate, theirs = (
        tuple(one.answer["lines"] / one.answer["seconds"] for one in side)
        for side in found.values()
    )
    yield Row(f"{PANES} panes flooded: lines/s", "", rate, "`RichLog`", theirs)
    keys, stock = (tuple(p95(one.keys) for one in side) for side in found.values())
    yield Row(f"{PANES} panes flooded: key to handler, p95", "ms", keys, "`RichLog`", stock)


def grep(path: Path, pattern: str) -> float:
    """Seconds that `grep` takes for the whole file; into a pipe: for /dev/null it ends at the
    first hit."""
    began = time.monotonic()
    words = ["grep", "-E", "-n", *([] if pattern != pattern.lower() else ["-i"])]
    subprocess.run([*words, pattern, str(path)], stdout=subprocess.PIPE, check=True)
    return time.monotonic() - began


def searches(rounds: int, megabytes: int) -> Iterator[Row]:
    """The hit beside `grep`, and the keys meanwhile."""
    keys: list[float] = []
    for what, line, pattern in SEARCHES:
        hits, beside = [], []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as name:
                child = partial(one_log, Path(name), line, megabytes << 20)
                seen = in_terminal(child, SEARCH_SECONDS, pattern)
                hits.append(seen.hit)
                beside.append(grep(next(Path(name).rglob("worker-0.log")), pattern))
            keys.append(p95(seen.keys))
        label = f"search of {megabytes} MiB, {what} lines"
        yield Row(label, "s", tuple(hits), "`grep -n`", tuple(beside), at_most=1.5)
    yield Row("key to handler during searches, p95", "ms", tuple(keys), at_most=50)


def peak_of(work: Callable[[], None]) -> float:
    """Does something in a process of its own; returns the most memory that it had, in MB."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        work()
        status = Path("/proc/self/status").read_text().splitlines()
        (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM"))
        os.write(write_end, peak.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        found = int(pipe.read()) / 1000
    os.waitpid(pid, 0)
    return found


def look_at(app: App[int], keys: Sequence[str]) -> None:
    """Runs an app without a terminal and presses keys."""

    async def look() -> None:
        async with app.run_test(size=SIZE) as pilot:
            for key in keys:
                await pilot.press(key)
                await pilot.pause(0.5)

    asyncio.run(look())


def long_logs(tasks: int, lines: int) -> None:
    """The app on a run with many long logs."""
    with tempfile.TemporaryDirectory() as folder:
        scripted = ScriptedRun(Path(folder), ps=0, workers=tasks)
        names = [str(task.id) for task in scripted.snapshot().tasks]
        logs = [scripted.logs.open(task.id) for task in scripted.snapshot().tasks]
        now = time.time()
        for first in range(0, lines, METRIC_EVERY):
            last = min(lines, first + METRIC_EVERY) - 1
            chunk = b"".join(b"batch %d is done\n" % i for i in range(first, last))
            now += 0.25
            for name, log in zip(names, logs, strict=True):
                log.append(log.size, chunk, now)
                scripted.write(name, b"step %d loss 0.5\n" % last, now)
        scripted.change(state=RunPhase.RUNNING)
        look_at(TfmuxApp(scripted), ("pagedown", *["]"] * 8, "home", "z", "m", "G", "m", "M"))
        scripted.logs.close()


def memory(rounds: int, tasks: int, lines: int) -> Iterator[Row]:
    """Both peaks."""
    found = interleave(
        {
            "tfmux": lambda: peak_of(lambda: long_logs(tasks, lines)),
            "empty": lambda: peak_of(lambda: look_at(App[int](), ("a",))),
        },
        rounds,
    )
    what = f"memory with the screen: {tasks} tasks of {lines:,} lines, peak"
    ours, empty = (tuple(side) for side in found.values())
    yield Row(what, "MB", ours, "an empty Textual app", empty)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Panes, searches, memory."""
    yield from panes(options.rounds, options.seconds)
    yield from searches(options.rounds, options.megabytes)
    yield from memory(options.rounds, options.tasks, options.lines)


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how long, and how much."""
    parser.add_argument("--seconds", type=float, default=5.0, help="of a flood")
    parser.add_argument("--megabytes", type=int, default=1024, help="of the log to be searched")
    parser.add_argument("--tasks", type=int, default=64, help="with long logs")
    parser.add_argument("--lines", type=int, default=1_000_000, help="of each of them")


if __name__ == "__main__":
    run(__doc__, measure, extend)
