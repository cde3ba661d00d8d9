"""Process of a hook: fed, read, and ended with its process group when its time is over."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..cluster.model import hook_problem
from ..store.logs import tail_lines

HOOK_SECONDS = 10.0
_PACE = 0.05
_KEPT_BYTES = 4096
"""Of the end of what a hook prints."""
_SHOWN_LINES = 3


@dataclass(frozen=True)
class HookProgram:
    """Program and arguments of a hook; relative paths start from `base`."""

    argv: Sequence[str]
    base: Path

    def problem(self) -> str:
        """Reason for which the program cannot be run; empty if it can."""
        return hook_problem(self.argv, self.base)

    def run(self, text: bytes, environ: Mapping[str, str], stopped: threading.Event) -> str:
        """Runs it to its end; returns what is to be noted, or nothing. Blocks.

        Args:
            text: goes to its standard input.
            stopped: when set, it is killed before its time.
        """
        if problem := self.problem():  # before a fork that would wait for a disk
            return problem
        try:
            process = subprocess.Popen(
                [os.path.expanduser(self.argv[0]), *self.argv[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.base if self.base.is_dir() else "/",
                env=dict(environ),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            return f"{self.argv[0]}: {error.strerror}"
        with process:
            ended, output = _converse(process, text, stopped)
            if not ended:  # its id is nobody else's before it is reaped
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        said = "; ".join(tail_lines(output)[-_SHOWN_LINES:])
        if ended and process.returncode == 0:
            return said
        if ended:
            how = _exit_text(process.returncode)
        else:
            how = "killed" if stopped.is_set() else f"killed after {HOOK_SECONDS:g} s"
        return f"{self.argv[0]} {how}: {said}" if said else f"{self.argv[0]} {how}"


def _converse(
    process: subprocess.Popen[bytes], text: bytes, stopped: threading.Event
) -> tuple[bool, bytes]:
    """Feeds a process and reads it: whether it has ended in time and closed its output, and the
    last of that."""
    assert process.stdin is not None and process.stdout is not None
    deadline = time.monotonic() + HOOK_SECONDS
    output, unsent = b"", memoryview(text)
    with selectors.DefaultSelector() as selector:
        for stream, event in ((process.stdin, "w"), (process.stdout, "r")):
            os.set_blocking(stream.fileno(), False)
            what = selectors.EVENT_WRITE if event == "w" else selectors.EVENT_READ
            selector.register(stream, what)
        while time.monotonic() < deadline and not stopped.is_set():
            for key, _ in selector.select(_PACE):
                stream = process.stdin if key.fileobj is process.stdin else process.stdout
                if stream is process.stdin:
                    unsent = unsent[_write(stream, unsent) :]
                    over = not unsent
                else:
                    data = _read(stream)
                    output, over = (output + data)[-_KEPT_BYTES:], not data
                if over:
                    selector.unregister(stream)
                    stream.close()
            if process.stdout.closed and process.poll() is not None:
                return True, output
            if process.stdout.closed:
                stopped.wait(_PACE)
    return False, output


def _write(stream: IO[bytes], data: memoryview) -> int:
    """Number of the bytes that need not be written any more."""
    try:
        return stream.write(data[:65536]) or 0
    except BrokenPipeError:  # it does not read its input
        return len(data)


def _read(stream: IO[bytes]) -> bytes:
    return stream.read(65536) or b""


def _exit_text(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"ended by {signal.Signals(-code).name.removeprefix('SIG')}"
    return f"ended with exit code {code}"
