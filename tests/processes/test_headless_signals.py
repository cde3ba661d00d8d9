"""`tfmux up --headless` and signals that come at a bad moment."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.support.budgets import soak, variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.paths import REPOSITORY

LONG_LINES = """
import json, signal, sys
from pathlib import Path
from types import SimpleNamespace
from tui.headless import _Output

signal.signal(signal.SIGINT, lambda *_: None)
snapshot = SimpleNamespace(tasks=())
out = _Output(SimpleNamespace(folder=Path(), attached=False, snapshot=lambda: snapshot), True)
for number in range(8000):
    out._write(json.dumps({"number": number, "text": "1" * 30_000}))
    if number % 7 == 0:
        out._flush()
out._flush()
"""


def test_a_signal_costs_no_part_of_a_line() -> None:
    """Ctrl-C while a pipe has taken a part of a long line: Python's own buffer forgets the rest of
    it (seen in 3.11.7, once in some thousand lines)."""
    child = subprocess.Popen([sys.executable, "-c", LONG_LINES], stdout=subprocess.PIPE)
    assert child.stdout is not None
    done = threading.Event()

    def interrupt() -> None:
        while not done.wait(random.random() * 0.002):
            child.send_signal(signal.SIGINT)

    with child:
        first = child.stdout.readline()  # its handler is there
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        try:
            for number, line in enumerate(itertools.chain([first], child.stdout)):
                assert json.loads(line)["number"] == number
        finally:
            done.set()
            interrupter.join()
            child.kill()
    assert number == 7999


INTERRUPTED = """
import os, signal, sys
from launcher.session.client import RunClient
signal.signal(signal.SIGINT, signal.default_int_handler)
launch = RunClient.launch
def interrupted(*args, **options):
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    return launch(*args, **options)
RunClient.launch = interrupted
from tui.main import main
sys.exit(main(sys.argv[2:]))
"""


@variants(
    ("name", "code", "outcome"),
    [("SIGINT", 130, "killed"), ("SIGTERM", 143, "terminated")],
    test=1,
)
def test_an_interrupted_launch_says_how_it_ended(
    tmp_path: Path, name: str, code: int, outcome: str
) -> None:
    """A signal that comes before there is a run ends it as soon as there is one, with what `up`
    says at every end; on a slow machine Ctrl-C right behind the command ended without that."""
    file = write(tmp_path, one_task("import time; time.sleep(1000)"))
    words = [sys.executable, "-c", INTERRUPTED, name, "up", str(file), "--headless"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stderr
    assert f"■ {outcome} after 0:" in done.stderr and "\nlogs: " in done.stderr


LATE = """
import builtins, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT, write=os.write):
        write(2, b"late\\n")
        kill(pid, number)
builtins.late = Late()  # what is left of other modules may never be looked at
from tui.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_an_interrupt_behind_the_end_changes_nothing(tmp_path: Path) -> None:
    """The interpreter is on its way out and handles no signal any more: the command, a success,
    died of Ctrl-C."""
    file = write(tmp_path, one_task("print('done')"))
    words = [sys.executable, "-c", LATE, "up", str(file), "--headless"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert "worker:0 | done" in done.stdout and "Traceback" not in done.stderr
    assert done.stderr.endswith("\nlate\n")


@variants("whom", ["command", "launcher"], test=1)
def test_signals_that_are_for_tasks_end_nothing_of_ours(tmp_path: Path, whom: str) -> None:
    """Given a run here, when USR1 and USR2 come to `tfmux up` or to its launcher process, as those
    of a batch script do, then both go on: the run ends with its task."""
    here = tmp_path / "go"
    task = "import os, time\nprint('at work', flush=True)\n"
    task += f"while not os.path.exists({str(here)!r}): time.sleep(0.05)"
    with Up("up", str(write(tmp_path, one_task(task))), "--json") as up:
        up.log("worker:0", "at work")
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            if whom == "command":
                up.process.send_signal(number)
            else:
                up.signal_launcher(number)
        here.touch()
        assert up.wait() == 0, up.transcript()


@variants("closed", [">&-", "<&- >&- 2>&-", soak("<&-"), soak("2>&-")], test=1)
def test_a_run_needs_no_standard_streams(tmp_path: Path, closed: str) -> None:
    """Closed ones are as good as the null device: no traceback, and the exit code of the run. What
    is opened next does not get their numbers."""
    file = write(tmp_path, one_task("print('done')"))
    words = [sys.executable, "-m", "tui.main", "up", str(file), "--headless"]
    script = f'"$@" {closed}; echo "code $?"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *words], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert "code 0" in done.stdout.splitlines(), done
    assert "Traceback" not in done.stderr
    assert ("worker:0 | done" in done.stdout) == (closed in ("<&-", "2>&-"))
    assert ("success" in done.stderr) == (closed in ("<&-", ">&-"))
