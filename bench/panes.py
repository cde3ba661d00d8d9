"""How many lines a second panes take while keys are answered, beside Textual's own `RichLog`.

    python -m bench.panes [--seconds 5] [--panes 1 4 16]

A process with the app runs in a pseudo-terminal of 200×50. A thread in it floods all panes with
coloured lines; keys are typed at the terminal, and the time from the keystroke to its handler is
taken on one clock. For our panes the lines go the way they go in a run: onto disk through the log
store. `RichLog` is fed as its documentation says, by one call a line on the app's loop.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import struct
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
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

KINDS = ("tfmux", "RichLog")
LINE = (
    b"\x1b[32mINFO\x1b[0m 12:04:11 batch %07d of \x1b[1mepoch 3\x1b[0m took 12 ms, "
    b"the queue is \x1b[33m4\x1b[0m deep\n"
)
CHUNK_LINES = 700
KEY_EVERY = 0.1
QUIET = 1.0
"""Seconds before the flood, for mounting."""


@dataclass(frozen=True)
class Result:
    """What one process measured; latencies in milliseconds."""

    lines: int
    seconds: float
    latencies: list[float]


class Ours(TfmuxApp):
    """The app itself, on a run whose tasks all flood; `x` is the key that is timed."""

    def __init__(self, run: ScriptedRun, pressed: list[float]) -> None:
        super().__init__(run)
        self._pressed = pressed

    def on_mount(self) -> None:
        self.bind("ctrl+t", "pressed")

    def action_pressed(self) -> None:
        """The key has arrived."""
        self._pressed.append(time.monotonic())


class Stock(App[int]):
    """The same number of `RichLog` widgets in a grid."""

    CSS = "Grid { grid-size: 4; } RichLog { border: none; }"

    def __init__(self, panes: int, pressed: list[float]) -> None:
        super().__init__()
        self._panes = panes
        self._pressed = pressed

    def compose(self) -> ComposeResult:
        """The logs."""
        with Grid():
            for _ in range(self._panes):
                yield RichLog(max_lines=10_000)

    def on_mount(self) -> None:
        self.bind("ctrl+t", "pressed")
        columns = {1: 1, 4: 2}.get(self._panes, 4)
        self.query_one(Grid).styles.grid_size_columns = columns

    def action_pressed(self) -> None:
        """The key has arrived."""
        self._pressed.append(time.monotonic())


def chunks() -> list[bytes]:
    """A few different chunks of lines."""
    return [b"".join(LINE % (i * CHUNK_LINES + j) for j in range(CHUNK_LINES)) for i in range(8)]


def measure_ours(panes: int, seconds: float) -> dict[str, object]:
    """Runs in the child: floods the log store from a thread, as the launcher's loop does."""
    pressed: list[float] = []
    done: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        scripted = ScriptedRun(Path(folder), ps=0, workers=panes)
        scripted.change(state=RunPhase.RUNNING)
        app = Ours(scripted, pressed)

        def flood() -> None:
            time.sleep(QUIET)
            logs = [scripted.logs.open(task.id) for task in scripted.snapshot().tasks]
            parts, count = chunks(), 0
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                for log in logs:
                    log.append(log.size, parts[count % len(parts)], time.time())
                    count += 1
                time.sleep(0)
            done["lines"] = count * CHUNK_LINES
            done["seconds"] = time.monotonic() - began
            app.call_from_thread(app.exit, 0)

        threading.Thread(target=flood, daemon=True).start()
        app.run()
        scripted.logs.close()
    return {**done, "pressed": pressed}


def measure_stock(panes: int, seconds: float) -> dict[str, object]:
    """Runs in the child: writes line after line on the app's loop, giving way after each frame."""
    pressed: list[float] = []
    done: dict[str, object] = {}
    app = Stock(panes, pressed)

    def flood() -> None:
        time.sleep(QUIET)
        lines = [line for chunk in chunks() for line in chunk.decode().splitlines()]
        logs = list(app.query(RichLog))
        count = 0
        began = time.monotonic()

        def write_some() -> None:
            nonlocal count
            until = time.monotonic() + 1 / 60
            while time.monotonic() < until:
                for log in logs:
                    log.write(Text.from_ansi(lines[count % len(lines)]))
                    count += 1

        while time.monotonic() - began < seconds:
            app.call_from_thread(write_some)
        done["lines"] = count
        done["seconds"] = time.monotonic() - began
        app.call_from_thread(app.exit, 0)

    threading.Thread(target=flood, daemon=True).start()
    app.run()
    return {**done, "pressed": pressed}


def in_terminal(kind: str, panes: int, seconds: float) -> Result:
    """Runs one measurement in a pseudo-terminal and types at it."""
    read_end, write_end = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.close(read_end)
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        measure = measure_ours if kind == "tfmux" else measure_stock
        answer = json.dumps(measure(panes, seconds)).encode()
        os.write(write_end, answer)
        os._exit(0)
    os.close(write_end)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    sent: list[float] = []
    next_key = time.monotonic() + QUIET + 0.5
    last_key = next_key + seconds - 1.0
    while True:
        try:
            if select.select([terminal], [], [], 0.01)[0] and not os.read(terminal, 1 << 16):
                break
        except OSError:  # the terminal's other end is closed
            break
        now = time.monotonic()
        if next_key <= now < last_key:
            sent.append(now)
            os.write(terminal, b"\x14")
            next_key += KEY_EVERY
    with os.fdopen(read_end, "rb") as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(pid, 0)
    os.close(terminal)
    waits = [(got - at) * 1000 for at, got in zip(sent, answer["pressed"], strict=False)]
    return Result(answer["lines"], answer["seconds"], waits)


def rates(results: Sequence[Result]) -> tuple[float, ...]:
    """Lines a second."""
    return tuple(result.lines / result.seconds for result in results)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Lines a second and keys, for each number of panes."""
    for panes in options.panes:
        found = interleave(
            {kind: partial(in_terminal, kind, panes, options.seconds) for kind in KINDS},
            options.rounds,
        )
        ours, theirs = (found[kind] for kind in KINDS)
        name = f"{panes} panes flooded"
        yield Row(f"{name}: lines/s", "", rates(ours), "`RichLog`", rates(theirs))
        keys = tuple(p95(result.latencies) for result in ours)
        stock = tuple(p95(result.latencies) for result in theirs)
        yield Row(f"{name}: key to handler, p95", "ms", keys, "`RichLog`", stock)


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how long, and with how many panes."""
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--panes", type=int, nargs="+", default=[1, 4, 16])


if __name__ == "__main__":
    run(__doc__, measure, extend)
