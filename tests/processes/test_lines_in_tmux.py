"""Lines that programs rewrite, compared with those of tmux, a real terminal."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from launcher.lines import screen
from tests.support.budgets import budget
from tests.support.patience import wait_until
from tests.support.recordings import trimmed

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

PIECES = ["abc", "x", "é", "\t", "\r", "\n", "\b", "\x1b[A", "\x1b[2A", "\x1b[F", "\x1b[K"]
PIECES += ["\x1b[1K", "\x1b[2K", "\x1b[G", "\x1b[5G", "\x1b[2C", "\x1b[3D", "\x1b[2X", "\x1b[P"]
PIECES += ["\x1b[J", "\x1b[31m", "\x1b[m", "\x1b7\x1b8", "\x1b]0;title\x07"]


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Runs commands of a tmux server of this test."""
    words = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]

    def call(*more: str) -> str:
        return subprocess.run([*words, *more], capture_output=True, text=True, check=True).stdout

    yield call
    subprocess.run([*words, "kill-server"], capture_output=True, check=False)


def _has(look: Callable[[], str], text: str) -> bool:
    return text in look()


def test_random_output_looks_as_in_tmux(tmp_path: Path, tmux: Callable[..., str]) -> None:
    """Given random output with movements, erasures and titles, its lines are those that tmux shows.
    Half a wide character is drawn by each terminal in its own way, so there are none."""
    rng, end = random.Random(7), "end of the output"
    texts = ["".join(rng.choices(PIECES, k=25)) for _ in range(budget(12, 200))]
    for number, text in enumerate(texts):
        (tmp_path / str(number)).write_text(text + "\n" * 30 + end)
    for number, text in enumerate(texts):
        file = tmp_path / str(number)
        tmux("new-session", "-d", "-s", f"s{number}", "-x", "150", "-y", "60", f"cat {file}; cat")
        look = partial(tmux, "capture-pane", "-p", "-t", f"s{number}:")
        wait_until(partial(_has, look, end), end)
        seen = look().split("\n")
        assert trimmed(screen(text.encode() + b"\n" * 30 + end.encode())) == trimmed(seen), text
