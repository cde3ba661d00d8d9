"""What a command prints is a copy for people: where it cannot be written, the run goes on."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support.budgets import variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.terminal import Terminal, cluster, living

TFMUX = [sys.executable, "-P", "-m", "tui.main"]
LINES = 2000
MANY = f"for number in range({LINES}): print('line', number, 'x' * 100)"
SLOWLY = (
    "import time\nfor number in range(100000): print('line', number, flush=True); time.sleep(0.01)"
)


def only_run() -> RunFolder:
    """The only run's folder."""
    (folder,) = RunFolder.all()
    return folder


@variants("words", [["--headless"], ["--json"]], ids=["headless", "json"], test=1)
@variants(
    ("flags", "path", "reason"),
    [(os.O_WRONLY, "/dev/full", "No space left on device"), (os.O_RDONLY, os.devnull, "Bad file")],
    ids=["full", "read-only"],
    test=1,
)
def test_a_log_that_cannot_be_written_is_no_matter_of_the_run(
    tmp_path: Path, words: list[str], flags: int, path: str, reason: str
) -> None:
    """The run ends by itself with its own code, its logs are whole, and stderr says once what
    stdout lacks, and at the end how much."""
    stdout = os.open(path, flags)
    up = [*TFMUX, "up", str(write(tmp_path, one_task(MANY))), *words]
    done = subprocess.run(up, cwd=REPOSITORY, stdout=stdout, stderr=subprocess.PIPE, text=True)
    os.close(stdout)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count(reason) == 1
    assert "could not be written to stdout" in done.stderr
    log = (only_run().path / "worker-0.log").read_text()
    assert log.splitlines()[-1] == f"line {LINES - 1} {'x' * 100}"


def test_lines_come_again_when_there_is_room(tmp_path: Path) -> None:
    """A disk gets full in the middle of a line, and then has room: each line is whole, and the
    run's end is the person's."""
    file, copy = write(tmp_path, one_task(SLOWLY)), tmp_path / "copy"
    with copy.open("wb") as stdout, (tmp_path / "said").open("wb") as said:
        up = subprocess.Popen(
            [*TFMUX, "up", str(file), "--headless"], cwd=REPOSITORY, stdout=stdout, stderr=said
        )
    try:
        wait_until(lambda: copy.stat().st_size > 100, "lines")
        full = copy.stat().st_size + 1005
        resource.prlimit(up.pid, resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
        wait_until(lambda: "left out" in (tmp_path / "said").read_text(), "the sentence")
        assert copy.stat().st_size == full
        lost = (only_run().path / "worker-0.log").stat().st_size + 100
        wait_until(lambda: (only_run().path / "worker-0.log").stat().st_size > lost, "lost lines")
        resource.prlimit(up.pid, resource.RLIMIT_FSIZE, (-1, -1))
        wait_until(lambda: copy.stat().st_size > full + 100, "lines again")
        assert living() == {"worker:0"}
        up.terminate()
        assert up.wait(PATIENCE) == 143
    finally:
        up.kill()
        up.wait()
    lines = copy.read_text().splitlines()
    numbers = [int(line.removeprefix("worker:0 | line ")) for line in lines]
    assert numbers == sorted(numbers) and len(numbers) <= numbers[-1]
    assert (tmp_path / "said").read_text().count("File too large") == 1


def test_a_pipe_that_does_not_block_gets_every_line(tmp_path: Path) -> None:
    """Node.js, and whoever else shares a descriptor, may set it so."""
    reading, writing = os.pipe()
    flags = fcntl.fcntl(writing, fcntl.F_GETFL)
    fcntl.fcntl(writing, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    up = [*TFMUX, "up", str(write(tmp_path, one_task(MANY))), "--headless"]
    with subprocess.Popen(up, cwd=REPOSITORY, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        wait_until(lambda: RunFolder.all() and not living(), "the task has ended")
        with open(reading) as stdout:
            lines = stdout.read().splitlines()
        assert process.wait(PATIENCE) == 0, process.stderr and process.stderr.read()
    assert len(lines) == LINES


@pytest.mark.prove
def test_messages_that_cannot_be_written_change_no_exit_code(tmp_path: Path) -> None:
    """Neither that of a run nor that of wrong usage."""
    file = str(write(tmp_path, one_task(MANY)))
    with open("/dev/full", "wb") as full:
        for words, code in ((["up", file, "--headless"], 0), (["up", "no.toml"], 2), (["x"], 2)):
            done = subprocess.run(
                [*TFMUX, *words], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=full, text=True
            )
            assert done.returncode == code, words
            assert done.stdout.count("\n") == (0 if code else LINES)


def test_receipts_that_cannot_be_printed_end_runs_as_others_do(tmp_path: Path) -> None:
    """All runs are dead, the code is that of the kill, and stderr says what is the matter."""
    file = write(tmp_path, one_task(SLOWLY))
    with Up("up", str(file), "--json") as first, Up("up", str(file), "--json") as second:
        for up in (first, second):
            up.log("worker:0", "line 1")
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*TFMUX, "kill", "--all"],
                cwd=REPOSITORY,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert done.returncode == 0, done.stderr
        assert done.stderr == "tfmux: stdout: No space left on device\n"
        assert not living()
        assert first.wait() == second.wait() == 130


@variants(
    "words",
    [["--version"], ["--help"], ["plan"], ["plan", "--json"], ["schema"], ["ps"], ["logs"]],
    ids=" ".join,
    test=3,
)
def test_commands_that_only_print_say_so(tmp_path: Path, words: Sequence[str]) -> None:
    """On a full disk one sentence and exit code 1; to a reader that has gone, nothing."""
    file = write(tmp_path, one_task(SLOWLY))
    if words[0] == "plan":
        words = [words[0], str(file), *words[1:]]
    if words[0] not in ("ps", "logs"):
        printed(words)
        return
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "line 1")
        printed([*words, up.run_id] if words[0] == "logs" else words)


def printed(words: Sequence[str]) -> None:
    """Runs a command whose output goes to a full disk, and into a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    said = "tfmux: stdout: No space left on device\n"
    for stdout, text in ((full, said), (writing, "")):
        done = subprocess.run(
            [*TFMUX, *words], cwd=REPOSITORY, stdout=stdout, stderr=subprocess.PIPE, text=True
        )
        os.close(stdout)
        assert (done.returncode, done.stderr) == (1, text)


def test_a_screen_is_drawn_where_stdout_is(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """`2> FILE` at a terminal takes messages, and no screen."""
    file, errors = cluster(tmp_path), tmp_path / "errors"
    window = terminal(120, 40)
    window.start(["sh", "-c", f'"$0" -P -m tui.main up {file} 2> {errors}', sys.executable])
    window.wait_for("worker:1 @localhost", "step 2")
    assert not errors.read_text()
    window.keys("F9")
    window.wait_for("no process is left", "q leave")
    window.keys("q")
    window.wait_for("EXIT-CODE 130")
    said = errors.read_text()
    assert "no process is left" in said and "\x1b" not in said
    assert not living()


def test_without_keys_there_is_no_screen(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """In `while read host; do tfmux up …; done < list` the list is no sequence of keys."""
    file, words = write(tmp_path, one_task("print('fine')")), tmp_path / "list"
    words.write_text("q\ny\nd\n")
    window = terminal(120, 40)
    window.start(["sh", "-c", f'"$0" -P -m tui.main up {file} < {words}', sys.executable])
    window.wait_for(
        "no terminal on stdin: continuing as with --headless", "worker:0 | fine", "EXIT-CODE 0"
    )
