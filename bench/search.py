"""Search of a large log: when the first hit is on the screen, and how keys are answered meanwhile.

    python -m bench.search [--megabytes 1024]

The log has one line that hits, at its beginning, in its middle, or nowhere; the pane stands at
the end and looks back from there, so that the beginning is as far away as can be. The app runs in
a pseudo-terminal of 200×50 into which the search is typed; keys are typed at it all the while.
Beside each stands `grep -n` with the same expression on the same file, which is written anew for
each round; it ends at the hit (`-m 1`) where that is in the middle, so that both go through as
many bytes.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.panes import KEY_EVERY, Ours
from bench.report import Row, run
from bench.terminal import SIZE, p95
from launcher.ids import TaskId
from launcher.run.states import RunPhase
from launcher.store.logs import LogFile
from tests.support.fakes import ScriptedRun

PLAIN = b"2026-11-21 12:04:11.1: After %d training steps, loss on training batch is 0.4512\n"
COLOURED = b"\x1b[32mINFO\x1b[0m 12:04:11 batch %07d of epoch 3 took 12 ms, the queue is 4 deep\n"
HIT = b"Some words, then the word Needle, and then HERE-IT-IS\n"
CHUNK = 20_000
"""Lines that are made once and written again and again."""
BEGIN = 2.0
"""Seconds after the start at which the search is typed."""
SECONDS = 6.0


def write(log: LogFile, line: bytes, size: int, place: float) -> None:
    """Fills a log; `place` is where the hit stands, from 0 to 1, beyond 1 for nowhere."""
    chunk = b"".join(line % i for i in range(CHUNK))
    done = False
    while log.size < size:
        if not done and log.size >= place * size:
            log.append(log.size, HIT, time.time())
            done = True
        log.append(log.size, chunk, time.time())


def child(folder: Path, fill: Callable[[LogFile], None], ready: int, answer: int) -> None:
    """The app on a run with one task, whose log is filled before it opens."""
    pressed: list[float] = []
    scripted = ScriptedRun(folder, ps=0, workers=1)
    fill(scripted.logs.open(TaskId("worker", 0)))
    scripted.change(state=RunPhase.RUNNING)
    app = Ours(scripted, pressed)
    os.write(ready, b"1")

    def stop() -> None:
        time.sleep(BEGIN + SECONDS)
        app.call_from_thread(app.exit, 0)

    threading.Thread(target=stop, daemon=True).start()
    app.run()
    os.write(answer, json.dumps(pressed).encode())
    scripted.logs.close()


def search(
    folder: Path, fill: Callable[[LogFile], None], pattern: str
) -> tuple[float | None, list[float]]:
    """Seconds from Enter to the hit on the screen (None: not shown), and the keys' waits in
    milliseconds from then on."""
    ready_read, ready = os.pipe()
    answer_read, answer = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        child(folder, fill, ready, answer)
        os._exit(0)
    os.close(ready)
    os.close(answer)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    os.read(ready_read, 1)
    os.close(ready_read)
    begin = time.monotonic() + BEGIN
    asked = 0
    entered = shown = None
    sent: list[float] = []
    next_key = begin + KEY_EVERY
    seen = b""
    while True:
        try:
            if select.select([terminal], [], [], 0.005)[0]:
                seen = seen[-100:] + os.read(terminal, 1 << 16)
        except OSError:  # the terminal's other end is closed
            break
        now = time.monotonic()
        if not asked and now >= begin - 0.5:
            asked = os.write(terminal, b"/")
        if entered is None and now >= begin:
            os.write(terminal, pattern.encode() + b"\r")
            entered = now
        if entered and shown is None and b"HERE-IT-IS" in seen:
            shown = now - entered
        if entered and next_key <= now < begin + SECONDS - 1:
            sent.append(now)
            os.write(terminal, b"\x14")
            next_key += KEY_EVERY
    with os.fdopen(answer_read, "rb") as pipe:
        pressed = json.loads(pipe.read())
    os.waitpid(pid, 0)
    os.close(terminal)
    return shown, [(got - at) * 1000 for at, got in zip(sent, pressed, strict=False)]


def grep(path: Path, pattern: str, place: float) -> float:
    """Seconds that `grep` takes for as many bytes as are searched from the end to the hit."""
    began = time.monotonic()
    words = ["grep", "-E", "-n", *([] if pattern != pattern.lower() else ["-i"])]
    words += ["-m", "1"] if 0 < place < 1 else []
    # into a pipe: for /dev/null it ends at the first hit
    subprocess.run([*words, pattern, str(path)], stdout=subprocess.PIPE)
    return time.monotonic() - began


CASES = (
    ("at the beginning, plain, a word", PLAIN, 0.0, "needle"),
    ("in the middle, plain, a word", PLAIN, 0.5, "needle"),
    ("at the beginning, plain, an expression", PLAIN, 0.0, "word (n|N)ee+dle,"),
    ("at the beginning, coloured, a word", COLOURED, 0.0, "needle"),
    (
        "at the beginning, coloured, an expression",
        COLOURED,
        0.0,
        "needle.*then|nowhere [0-9]+",
    ),
    ("nowhere, plain, a word", PLAIN, 2.0, "needle"),
)


def both(line: bytes, place: float, size: int, pattern: str) -> tuple[float, float, float]:
    """Seconds to the hit on the screen, the keys' p95, seconds of `grep`."""
    with tempfile.TemporaryDirectory() as folder:
        shown, waits = search(Path(folder), lambda log: write(log, line, size, place), pattern)
        beside = grep(next(Path(folder).rglob("worker-0.log")), pattern, place)
    return (float("nan") if shown is None else shown), p95(waits), beside


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Each case: the hit beside `grep`, and the keys meanwhile."""
    keys: list[float] = []
    for name, line, place, pattern in CASES:
        rounds = [
            both(line, place, options.megabytes << 20, pattern) for _ in range(options.rounds)
        ]
        keys += [wait for _, wait, _ in rounds]
        if place <= 1:
            shown = tuple(seconds for seconds, _, _ in rounds)
            theirs = tuple(seconds for _, _, seconds in rounds)
            what = f"search of {options.megabytes} MiB, the hit {name}"
            peer = "`grep -n -m 1`" if 0 < place < 1 else "`grep -n`"
            yield Row(what, "s", shown, peer, theirs)
    yield Row("key to handler during searches, p95", "ms", tuple(keys), at_most=50)


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds the size of the log."""
    parser.add_argument("--megabytes", type=int, default=1024)


if __name__ == "__main__":
    run(__doc__, measure, extend)
