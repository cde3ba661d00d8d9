"""The terminal: Textual's driver, for which a terminal that has gone is no reason to stay, and
with which the kill key does not wait for the screen."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from encodings.utf_8 import IncrementalDecoder
from functools import partial
from types import FrameType
from typing import IO, Any, TextIO, cast

from textual import events
from textual.driver import Driver
from textual.drivers import linux_driver, web_driver
from textual.drivers.linux_driver import (  # type: ignore[attr-defined]
    LinuxDriver,
    ParseError,
    XTermParser,
)
from textual.message import Message


class _TerminalDecoder(IncrementalDecoder):
    """Raises EOFError at the end of the input, which Textual would read again and again."""

    def decode(self, input: Any, final: bool = False) -> str:  # noqa: A002 Python's name
        """Decodes what was read."""
        if not input and not final:
            raise EOFError
        return super().decode(input, final)


def decode_leniently() -> None:
    """A byte that is no UTF-8, as terminals with another character set send it, would end the app:
    both drivers of Textual make their decoder by this name, in the middle of their loops."""
    for driver, kind in ((linux_driver, _TerminalDecoder), (web_driver, IncrementalDecoder)):
        decoder = partial(kind, errors="replace")
        driver.getincrementaldecoder = lambda _, decoder=decoder: decoder  # type: ignore[attr-defined]


class _Outlet:
    """Output that nobody may be there to take any more.

    Textual writes in a thread of its own, which an error ends; the app would then wait for ever
    for room in the thread's queue, with its run long ended.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Writes to whoever still looks."""
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        """Sends what is buffered to the terminal."""
        with suppress(OSError):
            self._file.flush()


class KeysFirst(Driver):
    """Mixin: tells the app of each key in the thread that reads the terminal, before the app's
    loop has a turn. The loop may be waiting for a screen, a disk or an endless drawing."""

    def send_message(self, message: Message) -> None:
        """Sends a message to the app's loop."""
        if isinstance(message, events.Key | events.Paste):
            if not cast(Any, self._app).key_read(message):
                return
        super().send_message(message)


class TerminalDriver(LinuxDriver):
    """Reads keys from, and draws on, a terminal that may be closed at any moment.

    Textual stops and goes on inside its signal handlers, which may interrupt it while it puts
    something into the writer's queue, and then waits for itself; here both are done by the loop.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Textual draws on stderr, which `2> FILE` makes a file; a screen is opened where stdout
        # is a terminal. As on stderr, a character that its encoding lacks is no error.
        stdout = cast(TextIO, sys.__stdout__)
        file = open(
            stdout.fileno(),
            "w",
            encoding=stdout.encoding,
            errors="backslashreplace",
            closefd=False,
        )
        self._file = cast(Any, _Outlet(file))
        self._size = self._get_terminal_size()

    def _get_terminal_size(self) -> tuple[int, int]:
        """The size that the kernel has of the terminal. Textual would take that of `COLUMNS` and
        `LINES`, where those are exported: a terminal's size when its shell began, or another's."""
        with suppress(OSError):
            size = os.get_terminal_size(cast(TextIO, sys.__stdout__).fileno())
            if size.columns and size.lines:  # a serial line has none
                return size.columns, size.lines
        return super()._get_terminal_size()

    def _run_input_thread(self) -> None:
        """Reads the terminal. An error there is one of the program: the screen fails, and the run
        goes on. To Textual it is an end like any other. A terminal that has gone without a signal,
        as one that is not the controlling terminal does, has hung up."""
        try:
            self.run_input_thread()
        except EOFError:
            os.kill(os.getpid(), signal.SIGHUP)
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def disable_input(self) -> None:
        """Reads no more. Textual throws away what has been typed and not read; of a screen that has
        crashed it is read: the kill key may be among it, and what is meant for the next screen."""
        if self._app._exception is None or self.exit_event.is_set():
            super().disable_input()
            return
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        self._disable_mouse_support()
        self.exit_event.set()
        if self._key_thread is not None:
            self._key_thread.join()
        self.exit_event.clear()
        with suppress(OSError, ParseError):
            self._read_rest()

    def _read_rest(self) -> None:
        parser = XTermParser()
        poller = select.poll()
        poller.register(self.fileno, select.POLLIN)
        while poller.poll(0) and (data := os.read(self.fileno, 4096)):
            for event in parser.feed(data.decode(errors="replace")):
                self.process_message(event)
        for event in parser.tick():
            self.process_message(event)

    def _sigtstp_application(self, *_: int | FrameType | None) -> None:
        self._soon(super()._sigtstp_application)

    def _sigcont_application(self, *_: int | FrameType | None) -> None:
        self._soon(self._go_on)

    def _go_on(self) -> None:
        """A process is continued after every hang-up, and after a stop that it did not see
        coming: another writer and another reader would be started beside those it has."""
        if self._auto_restart and not self._must_signal_resume:
            self.suspend_application_mode()
        super()._sigcont_application()
        self._app.refresh(layout=True)

    def _soon(self, act: Callable[[], None]) -> None:
        if not self._loop.is_closed():  # else the app has ended, and has no terminal any more
            self._loop.call_soon_threadsafe(act)
