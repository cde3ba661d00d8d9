"""A monkey in a real terminal, on a real run of three chatty tasks: neither of them minds."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import command
from tests.support.terminal import Terminal, cluster, living

KEYS = 300
EVERYONE = {"ps:0", "worker:0", "worker:1"}
MOVES = ("Up", "Down", "Left", "Right", "Enter", "Escape", "Tab", "PgUp", "PgDn", "Space")
PHRASES = (
    (":", "theme", "Enter"),
    (":", "ansi", "Enter"),
    ("&", "1", "Enter"),
    ("/", "s", "Enter"),
)
# What ends or leaves the run, restarts a task or stops the reader of the terminal is not pressed.
HARMFUL = frozenset("qdrRxX")


def presses(rng: random.Random) -> list[str]:
    """The next keys, in tmux's names."""
    dice = rng.random()
    if dice < 0.45:
        return [rng.choice([letter for letter in string.ascii_letters if letter not in HARMFUL])]
    if dice < 0.9:
        return [rng.choice((*MOVES, *string.digits, "&", "/", "'", "!", "[", "]", "?"))]
    return list(rng.choice(PHRASES))


@pytest.mark.soak
def test_neither_the_screen_nor_the_run_minds_a_monkey(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """300 keys with resizes from 40×8 to 220×60, other themes among them: the screen still stands,
    the tasks live, and F9 ends them."""
    rng = random.Random(7)
    window = terminal(120, 40)
    window.run("up", str(cluster(tmp_path, pause=0.01)))
    window.wait_for("worker:1 @localhost", "step 2")
    window.wait_until(lambda _: living() == EVERYONE, "all three processes")
    try:
        for _ in range(KEYS):
            window.keys(*presses(rng))
            if rng.random() < 0.08:
                window.resize(rng.randint(40, 220), rng.randint(8, 60))
        screen = window.screen()
        assert "screen failed" not in screen and "EXIT-CODE" not in screen, screen
        assert living() == EVERYONE, screen
        window.keys("F9")
        screen = window.wait_until(lambda _: not living(), "F9's effect")
        assert "screen failed" not in screen and "EXIT-CODE 70" not in screen, screen
    finally:
        command.run("kill", "--all")
