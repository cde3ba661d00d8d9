"""Programs of a host that are asked for something, such as `nvidia-smi` or an interpreter.

Each has a session, and so a process group, of its own. All of it ends with the answer, whether the
program has ended, says too much, or its time is over: what it has left in the background, deaf ones
and those that hold its output open. What has made itself a session of its own falls to whoever is
the subreaper: the agent, which ends it with the run, or the process that answers a question
(`on_host/program.py`), which ends it with the answer. One that waits in the kernel (D) cannot be
ended by anybody; it is left.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from typing import Mapping, NamedTuple, Sequence

from .processes import waits_to_be_reaped

MOST_BYTES = 1 << 20
_LOOK = 0.02
"""Seconds between two looks whether a program has ended whose output somebody holds open."""
_END_SECONDS = 1.0


class Said(NamedTuple):
    """What a program has said: its status, negative for a signal, and what it has printed."""

    status: int
    out: bytes
    errors: bytes


class AskedProgram:
    """A program that runs; used by the thread that has started it, but for `kill`."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
        errors: bool = True,
    ) -> None:
        """Starts it. With `errors` these are apart, else among its output.

        Raises:
            OSError: it cannot be started.
        """
        import subprocess  # here and not above: most hosts ask nothing, and it takes 4 ms

        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe if errors else subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        self._killing = threading.Lock()
        self._over = False

    def answer(self, until: float | None, most: int = MOST_BYTES) -> Said | None:
        """Returns what the program says, by stream the first `most` bytes; None where its time is
        over. Nothing of its group is left behind."""
        process = self._process
        streams = [one for one in (process.stdout, process.stderr) if one is not None]
        said = {one.fileno(): bytearray() for one in streams}
        try:
            in_time = self._read(said, until, most)
        finally:
            self._end()
            for one in streams:
                one.close()
        if not in_time or process.returncode is None:
            return None
        out, *errors = map(bytes, said.values())
        return Said(process.returncode, out, b"".join(errors))

    def kill(self) -> None:
        """Ends the program and its group."""
        with self._killing:
            if not self._over:  # afterwards another group may have its number
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self, said: Mapping[int, bytearray], until: float | None, most: int) -> bool:
        """Reads until all streams have ended, or the program has and nothing more is there; or one
        is too long. False: its time is over."""
        from select import select

        open_ones = set(said)
        ended = False
        while open_ones:
            left = _LOOK if until is None else min(_LOOK, until - time.monotonic())
            if left <= 0 and not ended:
                return False
            ready = select(open_ones, (), (), 0 if ended else left)[0]
            if not ready and ended:
                return True
            for stream in ready:
                data = os.read(stream, 65536)
                said[stream] += data
                if not data:
                    open_ones.discard(stream)
                if len(said[stream]) >= most:
                    return True
            if not ready and waits_to_be_reaped(self._process.pid):
                self.kill()  # those that hold the streams open
                ended = True
        return self._await_end(until)

    def _await_end(self, until: float | None) -> bool:
        """Whether a program that has closed its streams has ended in time."""
        while not waits_to_be_reaped(self._process.pid):
            if until is not None and time.monotonic() >= until:
                return False
            time.sleep(_LOOK)
        return True

    def _end(self) -> None:
        """Ends the group while its number is the program's, and reaps that."""
        self.kill()
        with self._killing:
            self._over = True
        deadline = time.monotonic() + _END_SECONDS
        pause = 0.001
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, _LOOK)


def ask_program(
    argv: Sequence[str],
    seconds: float,
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
) -> Said | None:
    """Asks a program; None where it does not end in time.

    Raises:
        OSError: it cannot be started.
    """
    return AskedProgram(argv, env=env, cwd=cwd).answer(time.monotonic() + seconds)
