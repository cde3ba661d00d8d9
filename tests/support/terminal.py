"""A real terminal, in which tmux sends the keys and reads the screen, and tasks that count."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support import launches
from tests.support.cluster_texts import cluster_text
from tests.support.command import write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.testbed import guard

TICKER = (
    "import socket, sys, time\n"
    "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "for step in range(100000):\n"
    "    print('step', step, 'loss', 1 / (step + 1), flush=True)\n"
    "    time.sleep(float(sys.argv[2]))\n"
)


class Terminal:
    """A tmux server of the test's own with one window."""

    def __init__(self, folder: Path, width: int, height: int) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self._size = ["-x", str(width), "-y", str(height)]

    def run(self, *words: str) -> None:
        """Starts tfmux in the window; its exit code is shown when it has ended."""
        launches.note("tui.main")
        self.start([sys.executable, "-m", "tui.main", *words])

    def start(self, words: Sequence[str]) -> None:
        """Starts a program in the window; its exit code is shown when it has ended."""
        command = shlex.join(words)
        shell = f"{command}; echo EXIT-CODE $?; sleep 1000"
        self._call("new-session", "-d", *self._size, "-c", str(REPOSITORY), shell)

    def keys(self, *keys: str) -> None:
        """Presses keys, in tmux's names."""
        self._call("send-keys", *keys)

    def paste(self, data: bytes) -> None:
        """Sends bytes as they are."""
        words = [*self._tmux, "load-buffer", "-"]
        subprocess.run(words, input=data, capture_output=True, check=True)
        self._call("paste-buffer", "-r")

    def resize(self, width: int, height: int) -> None:
        """Makes the window another size."""
        self._call("resize-window", "-x", str(width), "-y", str(height))

    def screen(self) -> str:
        """What stands on the screen."""
        return self._call("capture-pane", "-p")

    def wait_for(self, *texts: str, timeout: float = PATIENCE) -> str:
        """Waits until all texts stand on the screen together."""
        return self.wait_until(lambda s: all(text in s for text in texts), str(texts), timeout)

    def wait_until(
        self, condition: Callable[[str], bool], what: str, timeout: float = PATIENCE
    ) -> str:
        """Waits until the screen is as wanted; looks less often at what takes longer, as each look
        is a process."""
        began = time.monotonic()
        while not condition(screen := self.screen()):
            waited = time.monotonic() - began
            assert waited < timeout, f"never on the screen: {what}\n{screen}"
            time.sleep(min(max(0.05, waited / 10), 0.5))
        return screen

    def close(self) -> None:
        """Ends the tmux server and what runs in it."""
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)

    def _call(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words],
            capture_output=True,
            text=True,
            env={**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def cluster(folder: Path, pause: float = 0.25) -> Path:
    """1 ps and 2 workers that only count, with so many seconds between lines."""
    command = ["{python}", "-c", TICKER, "{port}", str(pause)]
    jobs = {"ps": 1, "worker": 2}
    return write(folder, cluster_text(jobs, "ticking", command=command, workdir="", grace=3.0))


def living() -> set[str]:
    """The tasks that have a process on this machine, by the process table."""
    return set(guard.first_pids())
