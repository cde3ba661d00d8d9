"""Bulkhead between the launcher process and its looks: what is guessed from text that other
programs print.

One door, `ask`: a question goes in, an answer comes out, or None within a limit of time. The text
is read by another process (`reader`), which the kernel ends when a question takes too much time or
memory: a thread could not be ended, and would hold the interpreter's lock. So whatever becomes of a
look costs its sentence and nothing else: beats, kills, receipts, order and exit codes are as if
nobody had asked. It is said in `launcher.log`, of each kind once with its traceback; `tfmux doctor`
counts. A look that ends its reader is the last of its kind in this run.
"""

from __future__ import annotations

import asyncio
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from ..crossing import awaited
from ..nameless import nameless_file
from ..printable import printable
from ..reading.looks import Look, LookQuestion
from ..reading.reader import CLOCK, message, receive
from ..store.disk import DiskThread

A = TypeVar("A")
FAULT = "fault in a look"
"""Beginning of the line of `launcher.log` that says so."""
_LONGEST_ANSWER = 1 << 20
_LONGEST_REASON = 300
_START_SECONDS = 20.0
"""Longest wait for a reader to have started, on a busy machine."""
_MARGIN = 1.0
"""Seconds after its kernel should have ended a reader: it may be stopped, or wait for a disk."""
_MOST_TOLD = 100
"""Faults of a kind that are written down."""
Told = Callable[[Any], None]
Make = Callable[[], LookQuestion[Any]]


class _Failed(Exception):
    """A reader has ended, or is of no use any more."""


class Bulkhead:
    """The looks of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed: set[Look] = set()
        """Looks that nobody makes any more."""
        self._faults: Counter[Look] = Counter()
        self._prepared = False
        self._log = DiskThread("faults of looks", lambda error: None)
        self._lines, self._runs = _Lane("reader of lines", self), _Lane("reader of runs", self)

    # --- the door -------------------------------------------------------------------------

    async def ask(self, question: LookQuestion[A]) -> A | None:
        """Returns the answer; None where there is none: in time, at all, or any more."""
        answered: asyncio.Future[A | None]
        answered, told = awaited()
        self.submit(question.look, lambda: question, told, of_lines=question.of_lines)
        longest = CLOCK * question.seconds + _MARGIN
        try:
            # What was asked before has as long.
            async with asyncio.timeout(2 * longest):
                return await answered
        except TimeoutError:
            self.end(question.look, "it has waited for too long")
            return None

    def submit(self, look: Look, make: Make, told: Told, *, of_lines: bool) -> None:
        """Asks a question that is made when its turn comes; `told` gets the answer, or None. Both
        are called by another thread, or at once. To be called by any thread."""
        if look in self._closed:
            told(None)
        else:
            (self._lines if of_lines else self._runs).put(look, make, told)

    def prepare(self) -> None:
        """Starts the reader of lines with the first task, so that it is there when it is needed."""
        if not self._prepared:
            self._prepared = True
            self._lines.prepare()

    def around(self, look: Look) -> _Around:
        """Encloses what the launcher process does itself for a look: a fault ends that, and nothing
        else."""
        return _Around(self, look)

    # --- faults ---------------------------------------------------------------------------

    def is_closed(self, look: Look) -> bool:
        """Whether nobody makes these looks any more."""
        return look in self._closed

    def end(self, look: Look, why: str) -> None:
        """Has nobody make these looks in this run any more."""
        with self._lock:
            if look in self._closed:
                return
            self._closed.add(look)
        self.fault(look, f"{why}; it was the last of its kind in this run\n")

    def fault(self, look: Look, text: str) -> None:
        """Takes note of a fault; `text` is a traceback, or a sentence."""
        with self._lock:
            self._faults[look] += 1
            number = self._faults[look]
        if number > _MOST_TOLD:
            return
        lines = text.rstrip().splitlines() or ["no reason"]
        said = [f"{FAULT} ({look}): {printable(lines[-1], _LONGEST_REASON)}"]
        if number == 1:
            said += [f"  {printable(line, 500)}" for line in lines]
        self._log.put(lambda: _write("\n".join(said) + "\n"))

    def close(self) -> None:
        """Ends the readers; nothing waits for that."""
        self._closed.update(Look)
        for lane in (self._lines, self._runs):
            lane.close()
        self._log.stop()


class _Around:
    """Block of code in which a fault is a look's."""

    def __init__(self, bulkhead: Bulkhead, look: Look) -> None:
        self._bulkhead, self._look = bulkhead, look

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._bulkhead.fault(self._look, "".join(traceback.format_exception(error)))
        return True


class _Lane:
    """One reader, and the thread that asks it one question after the other."""

    def __init__(self, name: str, bulkhead: Bulkhead) -> None:
        self._bulkhead = bulkhead
        self._jobs: queue.SimpleQueue[tuple[Look, Make, Told] | None] = queue.SimpleQueue()
        self._reader: _Reader | None = None
        self._closed = False
        self._begun = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def put(self, look: Look, make: Make, told: Told) -> None:
        self._jobs.put((look, make, told))
        self._begin()

    def prepare(self) -> None:
        """Starts the reader."""
        self._jobs.put(None)
        self._begin()

    def close(self) -> None:
        """Ends the reader, whatever it does."""
        self._closed = True
        self._jobs.put(None)
        if (reader := self._reader) is not None:
            reader.kill()

    def _begin(self) -> None:
        """Starts the thread, with the first question: it is the reader's parent, with which that
        ends."""
        with self._begun:
            if self._thread.ident is None:
                with suppress(RuntimeError):  # this machine starts no more threads
                    self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            job = self._jobs.get()
            if job is None:
                if not self._closed:
                    with suppress(Exception):  # the first question meets it again
                        self._ready()
                continue
            look, make, told = job
            answer = None
            if not self._bulkhead.is_closed(look):
                try:
                    answer = self._ask(make())
                except _Failed as error:
                    if not self._closed:
                        self._bulkhead.end(look, str(error))
                except Exception as error:
                    self._bulkhead.fault(look, "".join(traceback.format_exception(error)))
            try:
                told(answer)
            except Exception as error:
                self._bulkhead.fault(look, "".join(traceback.format_exception(error)))
        self._end_reader()

    def _ask(self, question: LookQuestion[A]) -> A | None:
        """Asks the reader.

        Raises:
            _Failed: it has not answered, and is gone.
            OSError: none can be started.
            ValueError: its answer is none.
        """
        data = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        if self._reader is not None and self._reader.has_ended():
            self._end_reader()  # somebody has ended it between two questions: no look has
        reader = self._ready()
        try:
            answer = reader.ask(data, CLOCK * question.seconds + _MARGIN)
        except _Failed:
            self._end_reader()
            raise
        if answer[:1] != b"A":
            self._bulkhead.fault(question.look, answer[1:].decode(errors="replace"))
            return None
        return question.form().validate_json(answer[1:])

    def _ready(self) -> _Reader:
        if self._reader is None:
            self._reader = _Reader()
            if self._closed:
                self._reader.kill()
        return self._reader

    def _end_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


class _Reader:
    """A process that answers; used by one thread, but for `kill`."""

    def __init__(self) -> None:
        """Starts it.

        Raises:
            OSError: no process can be started.
        """
        self._fresh = True
        with ExitStack() as unless_started:
            self._errors = unless_started.enter_context(nameless_file())
            self._link, theirs = socket.socketpair()
            unless_started.callback(self._link.close)
            with theirs:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-P", "-m", "launcher.reading.reader"),
                        str(theirs.fileno()),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=self._errors,
                    stderr=self._errors,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            unless_started.pop_all()

    def ask(self, data: bytes, seconds: float) -> bytes:
        """Returns the answer to a question.

        Raises:
            _Failed: there is none in time, or it is too long, or the process has died.
        """
        longest = seconds + (_START_SECONDS if self._fresh else 0.0)
        deadline = time.monotonic() + longest
        try:
            self._link.settimeout(longest)
            self._link.sendall(message(data))
            self._link.settimeout(max(0.01, deadline - time.monotonic()))
            answer = receive(self._link, _LONGEST_ANSWER)
        except TimeoutError as error:
            raise _Failed("its reader does not answer") from error
        except (OSError, ValueError) as error:
            raise _Failed(f"its reader is of no use: {error} {self._last_words()}") from error
        if answer is None:
            raise _Failed(self._end())
        self._fresh = False
        return answer

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Ends the process; its own thread reaps it."""
        with suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """Ends the process, and reaps it; one that waits for a disk is left."""
        self.kill()
        # The launcher process may be ending, and its descriptors with it.
        with suppress(OSError):
            self._link.close()
        with suppress(subprocess.TimeoutExpired, OSError):
            self._process.wait(_MARGIN)
        with suppress(OSError):
            self._errors.close()

    def _end(self) -> str:
        """Why it has ended."""
        try:
            status = self._process.wait(_MARGIN)
        except subprocess.TimeoutExpired:
            return "its reader has let go"
        if status == -signal.SIGPROF:
            return "it has taken too much of a processor's time"
        if status == -signal.SIGALRM:
            return "it has taken too long"
        how = f"status {status}" if status >= 0 else f"signal {-status}"
        return f"its reader has ended ({how}) {self._last_words()}".rstrip()

    def _last_words(self) -> str:
        with suppress(OSError):
            self._errors.seek(max(0, self._errors.seek(0, 2) - 2000))
            return self._errors.read(2000).decode(errors="replace").strip()
        return ""


def _write(text: str) -> None:
    with suppress(OSError):  # `launcher.log` lies on a disk that is full
        sys.stderr.write(text)
        sys.stderr.flush()
