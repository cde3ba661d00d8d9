"""Reader of what other programs print: `python -P -m launcher.reading.reader FD`.

A launcher process asks it about text (`looks`) over the connection `FD`, through its `bulkhead`.
Nothing else is open here. The kernel ends it when a question takes too long, by processor time or
by the clock, when the launcher process ends, and refuses it memory beyond a bound: whatever a
stranger's text does to the code that reads it, the launcher process beats and kills.

A message is its length, four bytes, and so many bytes more. A question is pickled by the launcher
process, whose own it is. An answer begins with `A` and is JSON, which the launcher process checks;
or with `F`, and is the traceback of what went wrong.
"""

from __future__ import annotations

import gc
import pickle
import resource
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any

from .looks import LookQuestion

MEMORY = 1 << 30
"""Bytes of address space; the code and its libraries take 50 MB."""
CLOCK = 5.0
"""Times its processor time a question may take by the clock: the machine may be busy."""
_PRINTED = 1 << 20
"""Bytes that it may print, which nobody reads unless it dies."""
_LONGEST_FAULT = 8000
_HEAD = 4


def main(words: list[str]) -> int:
    """Answers until the connection ends."""
    link = socket.socket(fileno=int(words[0]))
    _bound()
    _import_what_reads()
    with suppress(OSError):  # the launcher process has gone
        while (question := receive(link)) is not None:
            _serve(link, pickle.loads(question))
    return 0


def receive(link: socket.socket, most: int | None = None) -> bytes | None:
    """Returns a message; None where the other end has closed.

    Raises:
        OSError: the connection fails, or its time is over.
        ValueError: the message is longer than `most`.
    """
    head = _receive(link, _HEAD)
    if head is None:
        return None
    size = int.from_bytes(head, "big")
    if most is not None and size > most:
        raise ValueError(f"an answer of {size} bytes")
    return _receive(link, size)


def message(data: bytes) -> bytes:
    """Returns some bytes as a message."""
    return len(data).to_bytes(_HEAD, "big") + data


def _receive(link: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = link.recv(min(size - len(data), 1 << 20))
        if not more:
            return None
        data += more
    return bytes(data)


def _serve(link: socket.socket, question: LookQuestion[Any]) -> None:
    _limit(question.seconds)
    try:
        answer = b"A" + question.form().dump_json(question.answer())
    except Exception:
        answer = b"F" + traceback.format_exc()[-_LONGEST_FAULT:].encode(errors="replace")
    _limit(0.0)
    link.sendall(message(answer))


def _limit(seconds: float) -> None:
    """Has the kernel end this process after so much of a processor's time, or of the clock's; 0:
    no more."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, CLOCK * seconds)


def _bound() -> None:
    """Sets the bounds that hold for all questions."""
    numbers = (signal.SIGPROF, signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGXFSZ)
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_PRINTED, _PRINTED))
    if sys.platform == "linux":
        from ..agent.processes import set_parent_death_signal

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        set_parent_death_signal(signal.SIGKILL)


def _import_what_reads() -> None:
    """Imports what questions need, before the first one is waited for."""
    from . import evidence, line_reading  # noqa: F401

    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
