"""Signals of which several come for one reason: the grace of the first one stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support.budgets import soak
from tests.support.cluster_texts import one_task
from tests.support.command import write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.saving_task import await_lines, cluster, is_killed, only_run
from tests.support.terminal import Terminal

TFMUX = (sys.executable, "-m", "tui.main")
WINDOW = """
import sys
from launcher import decision
decision.SECONDS = float(sys.argv[1])
from tui.main import main
sys.exit(main(sys.argv[2:]))
"""
TOGETHER, APART = "1000", "0"
"""Seconds within which signals are one decision, for signals that come when something was seen."""
FORWARDS = """
import signal, subprocess, sys
child = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGINT, lambda number, frame: child.send_signal(number))
sys.exit(child.wait())
"""
SENDS_TWICE = FORWARDS.replace(
    "child.send_signal(number)", "[child.send_signal(number) for _ in range(2)]"
)


@contextmanager
def started(folder: Path, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a command in a session of its own, and ends its whole group at the end."""
    with (folder / "said").open("ab") as said:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=REPOSITORY,
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def await_training() -> RunFolder:
    """Waits for the one run, whose task has set up its trap."""
    wait_until(lambda: len(RunFolder.all()) == 1, "a run", PATIENCE)
    log = only_run().path / "worker-0.log"
    wait_until(lambda: log.exists() and log.stat().st_size, "its trap is there", PATIENCE)
    return only_run()


def outcome(run: RunFolder) -> tuple[str, int]:
    """How a run has ended, by its record."""
    records = map(json.loads, run.events.read_text().splitlines())
    ends = [one for one in records if one.get("event") == "run" and one.get("outcome")]
    return ends[-1]["outcome"], ends[-1]["exit_code"]


@pytest.mark.parametrize(
    ("first", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_what_comes_within_the_window_is_the_first_decision(
    tmp_path: Path, first: signal.Signals, code: int
) -> None:
    """Given a run that is being ended by a signal, when others come, of any kind, then its task
    still has its grace, and the end is the first one's."""
    words = [sys.executable, "-c", WINDOW, TOGETHER, "up", str(cluster(tmp_path)), "--headless"]
    with started(tmp_path, words) as up:
        run = await_training()
        up.send_signal(first)
        wait_until(lambda: is_killed(run), "the first order", PATIENCE)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            up.send_signal(number)
            await_lines(run, 3)
        (tmp_path / "go on").touch()
        assert up.wait(PATIENCE) == code
    assert (tmp_path / "saved").exists()


def test_a_closed_terminal_and_a_service_manager(tmp_path: Path) -> None:
    """Given `on_hangup = "detach"`, when HUP and TERM come at the end of a session, then the run
    goes on, as the first of them says."""
    file = cluster(tmp_path, settings='on_hangup = "detach"')
    with started(tmp_path, [sys.executable, "-c", WINDOW, TOGETHER, "up", str(file)]) as up:
        run = await_training()
        up.send_signal(signal.SIGHUP)
        up.send_signal(signal.SIGTERM)
        assert up.wait(PATIENCE) == 0
    await_lines(run, 3)
    assert not is_killed(run)
    (tmp_path / "go on").touch()
    done = subprocess.run([*TFMUX, "kill", run.run_id], capture_output=True, cwd=REPOSITORY)
    assert done.returncode == 0, done


def test_a_later_signal_is_another_decision(tmp_path: Path) -> None:
    """Given a run that is being ended by Ctrl-C, when it comes again later, then nothing is left of
    the grace."""
    words = [sys.executable, "-c", WINDOW, APART, "up", str(cluster(tmp_path)), "--headless"]
    with started(tmp_path, words) as up:
        run = await_training()
        up.send_signal(signal.SIGINT)
        wait_until(lambda: is_killed(run), "the first order", PATIENCE)
        up.send_signal(signal.SIGINT)
        assert up.wait(PATIENCE) == 130
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("front", "number", "whole_group"),
    [
        (("timeout", "-s", "INT", "1000"), signal.SIGALRM, False),
        soak(("timeout", "-s", "INT", "1000"), signal.SIGINT, True),
        soak(("timeout", "1000"), signal.SIGALRM, False),
        ((sys.executable, "-c", FORWARDS), signal.SIGINT, True),
        soak((sys.executable, "-c", SENDS_TWICE), signal.SIGINT, False),
        (("sh", "-c", 'trap : INT; "$@"; exit $?', "sh"), signal.SIGINT, True),
    ],
    ids=["timeout", "timeout in a group", "timeout term", "forwards", "twice", "shell"],
)
def test_programs_that_pass_a_signal_on(
    tmp_path: Path, front: Sequence[str], number: signal.Signals, whole_group: bool
) -> None:
    """Real ones: `timeout` at its end signals its child and the group in which that is; `uv run`
    passes on what a terminal has sent to all of them."""
    with started(tmp_path, [*front, *TFMUX, "up", str(cluster(tmp_path)), "--headless"]) as up:
        run = await_training()
        (os.killpg if whole_group else os.kill)(up.pid, number)
        wait_until(lambda: is_killed(run), "an order", PATIENCE)
        await_lines(run, 5)
        (tmp_path / "go on").touch()
        up.wait(PATIENCE)
    assert (tmp_path / "saved").exists()
    assert outcome(run) == (
        ("terminated", 143) if front == ("timeout", "1000") else ("killed", 130)
    )


def test_two_commands_in_one_group(tmp_path: Path) -> None:
    """Given `tfmux up` and `tfmux attach` that one Ctrl-C reaches, then it is pressed once; the
    second one has seen the kill of the first."""
    file = str(cluster(tmp_path))
    with started(tmp_path, [*TFMUX, "up", file, "--headless"]) as up:
        run = await_training()
        words = [sys.executable, "-c", WINDOW, TOGETHER, "attach", run.run_id, "--json"]
        (tmp_path / "attached").mkdir()
        with started(tmp_path / "attached", words) as attached:
            said = tmp_path / "attached/said"
            wait_until(lambda: "trains" in said.read_text(), "it follows", PATIENCE)
            up.send_signal(signal.SIGINT)
            wait_until(lambda: '"killing"' in said.read_text(), "it sees the kill", PATIENCE)
            attached.send_signal(signal.SIGINT)
            await_lines(run, 5)
            (tmp_path / "go on").touch()
            assert attached.wait(PATIENCE) == up.wait(PATIENCE) == 130
    assert (tmp_path / "saved").exists()


def test_a_signal_to_all_processes_of_a_service(tmp_path: Path) -> None:
    """Given TERM to the launcher process, which has ended the run, when the command's own comes,
    then what follows the end is not given up."""
    wait = "import os, time; open('begun', 'w').close()\nwhile not os.path.exists('go on'): "
    hook = ["python3", "-c", f"{wait}time.sleep(0.05)\nopen('saved', 'w').close()"]
    text = one_task("import time; print('trains', flush=True); time.sleep(1000)")
    file = write(tmp_path, f"{text}[hooks]\non_end = {json.dumps(hook)}\n")
    words = [sys.executable, "-c", WINDOW, TOGETHER, "up", str(file), "--json"]
    with started(tmp_path, words) as up:
        pid = await_training().launcher_pid()
        assert pid
        os.kill(pid, signal.SIGTERM)
        wait_until((tmp_path / "begun").exists, "the hook runs", PATIENCE)
        said = tmp_path / "said"
        wait_until(lambda: '"ended"' in said.read_text(), "the end is seen", PATIENCE)
        up.send_signal(signal.SIGTERM)
        (tmp_path / "go on").touch()
        assert up.wait(PATIENCE) == 143, said.read_text()
    assert (tmp_path / "saved").exists() and "given up" not in said.read_text()


def test_a_screen_that_is_told_twice(
    tmp_path: Path, terminal: Callable[[int, int], Terminal]
) -> None:
    """Given a run on a screen, when SIGINT comes to its process and comes again, then its task has
    its grace, and the receipt is printed."""
    window = terminal(120, 40)
    window.start([sys.executable, "-c", WINDOW, TOGETHER, "up", str(cluster(tmp_path))])
    run = await_training()
    window.wait_for("trains")
    pid = _process("decision.SECONDS", str(tmp_path))
    os.kill(pid, signal.SIGINT)
    wait_until(lambda: is_killed(run), "an order", PATIENCE)
    for _ in range(2):
        os.kill(pid, signal.SIGINT)
        await_lines(run, 3)
    (tmp_path / "go on").touch()
    window.wait_for("killed after", "no process is left")
    assert (tmp_path / "saved").exists() and outcome(run) == ("killed", 130)


def _process(*parts: str) -> int:
    """The Python process whose command line has these parts."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_text(errors="replace")
            if words.startswith(sys.executable) and all(part in words for part in parts):
                found.append(int(name))
    (pid,) = found
    return pid
