"""What commands write: messages to the person at the terminal on stderr, data on stdout, which may
have names of files in it that need not be valid in its encoding."""

from __future__ import annotations

import fcntl
import io
import os
import re
import select
import stat
import sys
import termios

from launcher.printable import printable

TYPE_CHECKING = False  # `typing` and `json` are slow to import for a message
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_NO_TEXT = r"[\ud800-\udfff]"
"""What stands for a byte of a name that could not be decoded."""


class StdoutError(OSError):
    """What a command prints cannot be written: its disk is full, say."""


class _Stdout(io.FileIO):
    """Standard output of a command. The first error is the command's end; what is still buffered
    then is dropped, or the interpreter would try to write it once more on its way out."""

    def __init__(self) -> None:
        super().__init__(1, "w", closefd=False)
        self._failed = False

    def write(self, data: Any, /) -> int:
        """Writes all of it.

        Raises:
            BrokenPipeError: whoever read it has gone.
            StdoutError: it cannot be written.
        """
        if not self._failed:
            try:
                write_all(1, data)
            except BrokenPipeError:
                self._failed = True
                raise
            except OSError as error:
                self._failed = True
                raise StdoutError(error.errno, error.strerror) from None
        return len(data)


class _Stderr(io.FileIO):
    """Standard error, on which nothing depends: what cannot be written is dropped, and what comes
    next is tried again."""

    def __init__(self) -> None:
        super().__init__(2, "w", closefd=False)

    def write(self, data: Any, /) -> int:
        """Writes what can be written."""
        try:
            write_all(2, data)
        except OSError:
            pass  # there is nowhere else to say it
        return len(data)


def open_streams() -> None:
    """Makes `sys.stdout` and `sys.stderr` streams whose errors cost a command nothing but their
    text; others than the interpreter's own stay."""
    if _is_own(sys.stdout, 1):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Stdout()),
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            line_buffering=sys.stdout.isatty(),
        )
    if _is_own(sys.stderr, 2):
        sys.stderr = io.TextIOWrapper(
            _Stderr(),
            encoding=sys.stderr.encoding,
            errors=sys.stderr.errors,
            write_through=True,
        )


def _is_own(stream: Any, fd: int) -> bool:
    return type(stream) is io.TextIOWrapper and stream.fileno() == fd


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes all bytes. A descriptor that does not block, as one that is shared with Node.js, is
    waited for."""
    left = memoryview(data)
    while left:
        left = left[write_some(fd, left) :]


def write_some(fd: int, data: memoryview) -> int:
    """Writes as many bytes as there is room for, at least one; returns how many."""
    while True:
        try:
            return os.write(fd, data)
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(fd, select.POLLOUT)
            waiting.poll()


def missing_terminal() -> str:
    """The stream, `stdin` or `stdout`, that keeps a screen from being opened because it is no
    terminal; empty where both are: a screen reads keys, and would take a file for them."""
    return next(
        (name for name in ("stdout", "stdin") if not getattr(sys, name).isatty()),
        "",
    )


def unread_input(fd: int = 0) -> str:
    """What holds bytes that are lost on a command that does not read them: `a file` or `a pipe`;
    empty where nothing waits there, as on a terminal."""
    try:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode):
            return "a file" if os.lseek(fd, 0, os.SEEK_CUR) < info.st_size else ""
        if stat.S_ISFIFO(info.st_mode) or stat.S_ISSOCK(info.st_mode):
            waiting = bytearray(4)
            fcntl.ioctl(fd, termios.FIONREAD, waiting)
            return "a pipe" if any(waiting) else ""
    except OSError:  # it is closed
        pass
    return ""


_SUSPECT = re.compile(r"[=:@]|(?:^|\s)-|\S{16}")
"""Texts without any of these have no secret in them."""


def without_secrets(text: str) -> str:
    """The text of a message without what looks like a secret."""
    if not _SUSPECT.search(text):
        return text  # for most messages the table is not read
    from launcher.masking import mask

    return mask(text)


def message(text: str) -> None:
    """Writes `tfmux: text` to stderr, without what a terminal would act on, and without what looks
    like a secret."""
    write_line(f"tfmux: {without_secrets(printable(text))}")


def write_line(text: str) -> None:
    """Writes a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines for people on stdout, at once. What the command does goes on in any case: an
    error is said on stderr."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except StdoutError as error:
        message(f"stdout: {error.strerror}")


def write(parts: Iterable[str]) -> None:
    """Writes a text to stdout; of a name that could not be decoded, the bytes that it has on the
    disk."""
    sys.stdout.flush()
    out, encoding = sys.stdout.buffer, sys.stdout.encoding
    for part in parts:
        out.write(part.encode(encoding, "surrogateescape"))
    out.flush()


def write_json(value: Any) -> None:
    """Writes a value for a program to stdout. JSON knows no bytes that are no text, and strict
    readers refuse all of it for half a surrogate pair: U+FFFD stands for each."""
    import json

    text = re.sub(_NO_TEXT, "\ufffd", json.dumps(value, ensure_ascii=False))
    sys.stdout.write(json.dumps(json.loads(text), indent=2) + "\n")
