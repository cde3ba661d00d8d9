"""Drives the `tfmux` command as its users do: as a process, by its output and exit code."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from launcher import decision
from launcher.agent.folders import local_folder
from launcher.client import launcher_process
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import launches
from tests.support.forked import ForkServer, Process, replace_popen
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until

MODULES = (
    "argparse",
    "launcher.hosts.ssh",
    "launcher.preflight.preflight",
    "launcher.reading.evidence",
    "launcher.reading.line_reading",
    "launcher.process.run_shell",
    "tui.commands.check",
    "tui.commands.kill",
    "tui.commands.launch",
    "tui.commands.plan",
    "tui.commands.ps",
    "tui.commands.attach",
)
"""What commands and launcher processes import."""

_MODULE = "tui.main"
_INTERPRETER = (sys.executable, "-m", _MODULE)


@cache
def _server() -> ForkServer:
    return ForkServer(*MODULES)


def fork_launchers() -> None:
    """Forks launcher processes from the server, too, when this process starts them."""
    replace_popen(launcher_process, lambda *argv, **options: _server().popen(*argv, **options))


def start(
    words: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    site: Path | None = None,
    prefix: Sequence[str] = (),
) -> tuple[Process | subprocess.Popen[bytes], IO[str], IO[str]]:
    """Starts a command, and returns what it writes to stdout and stderr, too: with `site` that of
    the packages in this folder, behind the command `prefix` by an interpreter of its own."""
    argv = [*prefix, *_INTERPRETER, *words]
    stdout, stdout_end = os.pipe()
    stderr, stderr_end = os.pipe()
    try:
        process: Process | subprocess.Popen[bytes]
        if site is not None or prefix:
            launches.note(_MODULE)
            if site is not None:
                env, cwd = {**env, "PYTHONPATH": str(site)}, site
            process = subprocess.Popen(argv, env=env, cwd=cwd, stdout=stdout_end, stderr=stderr_end)
        else:
            process = _server().start(argv, env=env, cwd=cwd, stdout=stdout_end, stderr=stderr_end)
    finally:
        os.close(stdout_end)
        os.close(stderr_end)
    return process, open(stdout), open(stderr)


def run(
    *words: str,
    timeout: float = PATIENCE,
    prefix: Sequence[str] = (),
    site: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; behind the command `prefix` by an interpreter of its own, with
    `site` that of the packages in this folder.

    Raises:
        subprocess.TimeoutExpired: it goes on, or another process holds its stdout or stderr.
    """
    if prefix:
        launches.note(_MODULE)
        argv = [*prefix, *_INTERPRETER, *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, cwd=REPOSITORY)
    process, stdout, stderr = start(words, os.environ, REPOSITORY, site)
    with stdout, stderr:
        try:
            said = _read_all([stdout.fileno(), stderr.fileno()], timeout)
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, code, *(text.decode() for text in said))


def other_machine(data: Path) -> list[str]:
    """The beginning of a command that runs as on another machine: it has its runs in `data`, and
    not the user's host-local folder of this one, by which it would find runs and launchers."""
    hide = f'mount -t tmpfs -o mode=700 none {shlex.quote(local_folder())} && exec "$@"'
    return ["env", f"XDG_DATA_HOME={data}", "unshare", "-m", "sh", "-c", hide, "sh"]


def _read_all(descriptors: Sequence[int], timeout: float) -> list[bytes]:
    """What is written to pipes until nobody can write to them any more."""
    deadline = time.monotonic() + timeout
    texts = dict.fromkeys(descriptors, b"")
    waiting = [*descriptors]
    while waiting:
        ready, _, _ = select.select(waiting, [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise subprocess.TimeoutExpired("tfmux", timeout)
        for descriptor in ready:
            if part := os.read(descriptor, 1 << 16):
                texts[descriptor] += part
            else:
                waiting.remove(descriptor)
    return [texts[descriptor] for descriptor in descriptors]


def slowness() -> float:
    """How many times as long as on an idle machine a command takes now, at least 1: by this much
    more time is given where a test asserts seconds."""
    began = time.monotonic()
    subprocess.run([*_INTERPRETER, "ps"], capture_output=True, cwd=REPOSITORY)
    return max(1.0, (time.monotonic() - began) / 0.5)  # half a second is what it takes when idle


class Up:
    """`tfmux up FILE --json` (or another streaming command) that goes on in the background.

    `events` holds what it printed so far; `wait_for` waits for one of them.
    """

    def __init__(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        cwd: Path = REPOSITORY,
        site: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.process, self._stdout, self._stderr = start(
            words, {**os.environ, **(env or {})}, cwd, site, prefix
        )
        self.events: list[dict[str, Any]] = []
        self.said = ""
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._listen, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for reader in self._readers:
            reader.join(5)

    def wait_for(
        self,
        condition: Callable[[dict[str, Any]], bool],
        what: str,
        timeout: float = PATIENCE,
        after: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The first event that the condition holds for, waited for if need be: of all, or of those
        that came after one of them."""
        deadline = time.monotonic() + timeout
        with self._news:
            at = self._events_until(after) if after else 0
            while True:
                while at < len(self.events):
                    if condition(self.events[at]):
                        return self.events[at]
                    at += 1
                left = deadline - time.monotonic()
                assert left > 0, f"no {what} within {timeout} s\n{self.transcript()}"
                assert self.process.poll() is None or self._readers[0].is_alive(), (
                    f"it ended without {what}\n{self.transcript()}"
                )
                self._news.wait(min(left, 0.2))

    def _events_until(self, event: dict[str, Any]) -> int:
        return next(at for at, each in enumerate(self.events, 1) if each is event)

    def state(
        self,
        task: str,
        state: str,
        timeout: float = PATIENCE,
        after: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The event that brings a task into a state; after another one, if that is given."""
        return self.wait_for(
            lambda e: e["event"] == "task" and (e["task"], e["state"]) == (task, state),
            f"{task} {state}",
            timeout,
            after,
        )

    def log(self, task: str, text: str, timeout: float = PATIENCE) -> dict[str, Any]:
        """The first log line of a task that contains a text."""
        return self.wait_for(
            lambda e: e["event"] == "log" and e["task"] == task and text in e["text"],
            f"{text!r} in {task}'s log",
            timeout,
        )

    def of(self, kind: str) -> list[dict[str, Any]]:
        """All events of a kind so far."""
        return [event for event in self.events if event["event"] == kind]

    @property
    def run_id(self) -> str:
        """The run's id."""
        return str(self.wait_for(lambda e: e["event"] == "run", "run")["run"])

    @property
    def launcher(self) -> int:
        """The pid of the run's launcher process."""
        folder = RunFolder(runs_home() / self.run_id)
        deadline = time.monotonic() + PATIENCE
        while not (pid := folder.launcher_pid()):
            assert time.monotonic() < deadline, "the run has no launcher process"
            time.sleep(0.02)
        return pid

    def signal_launcher(self, number: int) -> None:
        """Sends a signal to the launcher process, unless its run has ended."""
        pid = RunFolder(runs_home() / self.run_id).launcher_pid()
        if pid:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(pid, number)

    def kill_launcher(self) -> None:
        """Kills the launcher process, and this command before it can start another one. On a busy
        machine its threads take a while to end, and with the last one its lock."""
        folder = RunFolder(runs_home() / self.run_id)
        self.process.send_signal(signal.SIGSTOP)
        pid = folder.launcher_pid()
        self.signal_launcher(signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not pid or folder.launcher_pid() != pid, "the launcher has ended")

    def press_ctrl_c(self) -> None:
        """What a terminal does to the foreground process."""
        self.process.send_signal(signal.SIGINT)

    def press_ctrl_c_again(self) -> None:
        """A press that is a decision of its own, behind one that was acted on."""
        time.sleep(1.1 * decision.SECONDS)
        self.press_ctrl_c()

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit code, and all output read."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"it did not end within {timeout} s\n{self.transcript()}"
            ) from None
        for reader in self._readers:
            reader.join(30)
        return code

    def transcript(self) -> str:
        """Everything it said so far, for a failure's message."""
        lines = [json.dumps(event)[:300] for event in self.events[-60:]]
        return "\n".join(lines) + "\n" + self.said

    def _read(self) -> None:
        with self._stdout:
            for line in self._stdout:
                if not line.endswith("\n"):
                    break  # it was killed in the middle of a line
                with self._news:
                    self.events.append(json.loads(line))
                    self._news.notify_all()

    def _listen(self) -> None:
        with self._stderr:
            for line in self._stderr:
                self.said += line


def write(folder: Path, text: str, name: str = "cluster.toml") -> Path:
    """Writes a cluster file."""
    path = folder / name
    path.write_text(text)
    return path


def python_task(script: str) -> Sequence[str]:
    """A command that runs a Python script on a host."""
    return ["{python}", "-u", "-c", script.replace("{", "{{").replace("}", "}}")]
