"""Breaks a part of each launcher process that has this folder on its PYTHONPATH.

`BREAKS` names the part, `BREAKS_TIMES` how many launchers break; in `BREAKS_FOLDER` they count
themselves (`launchers`), and break from the moment on in which a file `now` is there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PLACES: dict[str, tuple[str, str, str]] = {
    # Before anybody wants the end.
    "the worker that reads logs": ("launcher.process.output", "LogMonitor", "_read"),
    "the link": ("launcher.hosts.link", "Link", "_handle"),
    "a decision": ("launcher.run.machine", "RunStateMachine", "handle"),
    "what clients are sent": ("launcher.process.host_links", "HostStats", "note_heard"),
    "the sending": ("launcher.process.control_socket", "ControlSocket", "_send"),
    "the records": ("launcher.run.views", "Views", "pop_changed"),
    "the stream": ("launcher.store.run_writer", "RunWriter", "_append"),
    # From the kill on.
    "the kill": ("launcher.run.machine", "RunStateMachine", "handle:KillAll"),
    "the receipt": ("launcher.run.machine", "RunStateMachine", "handle:ReceiptReceived"),
    "a release": ("launcher.process.release", "Teardown", "release"),
    "the end": ("launcher.process.executor", "Executor", "_finish"),
    "the links' end": ("launcher.process.host_links", "HostLinks", "_close"),
    "the last wait": ("launcher.process.run_shell", "RunShell", "_finish_writing"),
    # In the beginning.
    "the take-up": ("launcher.run.machine", "RunStateMachine", "handle:HostsChecked"),
    "the start": ("launcher.process.run_shell", "RunShell", "_begin"),
}


def spoil(place: str, breaks_now: Callable[[], bool]) -> None:
    """Has a function raise an error; with `:Event` only where it is called with such an event."""
    from importlib import import_module

    module, owner, function = PLACES[place]
    function, _, event = function.partition(":")
    kind = getattr(import_module(module), owner)
    real = getattr(kind, function)

    def act(self: Any, *rest: Any, **options: Any) -> Any:
        if breaks_now() and event in ("", *(type(one).__name__ for one in rest)):
            raise RuntimeError(f"boom in {place}")
        return real(self, *rest, **options)

    setattr(kind, function, act)


def begin(argv: Sequence[str]) -> None:
    """Breaks what is to be broken in a process with these arguments."""
    if "BREAKS" not in os.environ or "launcher.process.entry" not in argv:
        return
    folder = Path(os.environ["BREAKS_FOLDER"])
    with (folder / "launchers").open("ab") as file:
        file.write(b".")
        number = file.tell()
    if number <= int(os.environ["BREAKS_TIMES"]):
        spoil(os.environ["BREAKS"], (folder / "now").exists)


begin(sys.orig_argv)
