"""The program in a real terminal, a tmux that sends the keys and reads the screen."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from launcher.lines import screen
from launcher.store.runs import RunFolder
from tests.support.budgets import budget
from tests.support.patience import wait_until
from tests.support.recordings import trimmed
from tests.support.streams import records
from tests.support.terminal import Terminal, cluster, living
from tests.testbed import guard


def test_a_run_is_watched_and_killed_with_one_key(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """All panes are live, and still there when the terminal becomes smaller and larger. One with
    another character set sends bytes that are no UTF-8 for a letter: the keys after them work. F9
    ends everything, the receipt is shown, the exit code is 130."""
    window = terminal(200, 50)
    window.run("up", str(cluster(tmp_path)))
    window.wait_for("ps:0 @localhost", "worker:0 @localhost", "worker:1 @localhost", "step 2")
    everyone = {"ps:0", "worker:0", "worker:1"}
    window.wait_until(lambda _: living() == everyone, "all three processes")
    for width, height in ((80, 24), (400, 120), (100, 30)):
        window.resize(width, height)
        window.wait_until(
            lambda s, w=width: "worker:1 @" in s and max(map(len, s.splitlines())) <= w,  # type: ignore[misc]
            f"the panes at {width}×{height}",
        )
    window.paste(b"\xe4")
    window.keys("m")
    window.wait_for("all logs, 3 of 3 tasks")
    assert living() == everyone
    window.keys("F9")
    window.wait_for("no process is left")
    assert not living()
    window.keys("q")
    screen = window.wait_for("EXIT-CODE 130", "no process is left")
    assert "worker:1 on localhost: killed" in screen


@pytest.mark.parametrize("ended", [False, True])
def test_a_closed_terminal_leaves_nothing(
    terminal: Callable[[int, int], Terminal], tmp_path: Path, ended: bool
) -> None:
    """The window is closed while everything is printed: the run is ended, and the screen's own
    process goes too, though nobody takes what it still draws."""
    window = terminal(200, 50)
    window.run("up", str(cluster(tmp_path, pause=0.001)))
    window.wait_for("ps:0 @localhost", "worker:0 @localhost", "worker:1 @localhost")
    window.wait_until(lambda _: len(living()) == 3, "all three processes")
    if ended:
        window.keys("F9")
        window.wait_for("no process is left")
    assert guard.programs_here()
    window.close()
    wait_until(lambda: not guard.programs_here(), "the screen's process is gone")
    assert not living()
    (run,) = RunFolder.all()
    assert [r["clean"] for r in records(run) if r["event"] == "receipt"] == [True]


def test_a_command_without_a_file_on_the_screen(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """`tfmux run`: ranks in panes, the steps move, F9 ends it with a receipt."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, time\n"
        "for step in range(100000):\n"
        "    print('step', step, 'loss', 1 / (step + 1), 'rank', os.environ['RANK'], flush=True)\n"
        "    time.sleep(0.05)\n"
    )
    window = terminal(80, 24)
    window.run(
        "run", "-n", "2", "--framework", "torch", "--workdir", "", "--", "python3", str(script)
    )
    window.wait_for("worker:0 ", "worker:1 ", "rank 0", "rank 1")
    window.keys("F9")
    window.wait_for("no process is left")
    window.keys("q")
    window.wait_for("EXIT-CODE 130")


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


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
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
