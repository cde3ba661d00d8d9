"""Launcher process of a run: `python -P -m launcher.process.entry FD [ssh]`.

Started by a front end (`launcher_process.LauncherProcess`), in a session of its own, so that
neither a closed terminal nor Ctrl-C reaches it. `FD` is the connection to that front end, which
sends one order, and with it a descriptor that holds the run's lock. The order comes at once, or
when a person says so (`standby`): until then it makes ready what every launch needs, and ends when
the connection does. With `ssh` it imports what logs in to hosts, which takes as long as all else:

    {"launch": RUN_ID, "folder": PATH, "resume": [RUN_ID, RUN_ID] | null,
     "on_close": "kill" | "nothing"}
        with the fields of a `Resume`
    {"attach": RUN_ID, "folder": PATH, "on_close": "kill" | "nothing", "died": "…", "end": false,
     "kill": false}
        without a descriptor: although a launcher that stands still holds the lock; `died` says
        what the one before died of, and with `end` the run is ended, since they all do; `kill`:
        the front end is about to order that

and is from then on a client like any other (`control_socket`); what its disappearance means counts
from the order on, since it may be gone before it has subscribed. Standard error goes to
`launcher.log` in the run's folder.

What nobody expected ends the process at once, as SIGKILL does: there is one way in which a launcher
dies, and the next one takes the run up from its record.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until all is imported: it would look at modules, which stay, again and again

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ..cluster.read import load
from ..errors import LauncherError, TfmuxError
from ..history.stored import StoredRun
from ..plan.facts import Resume
from ..printable import printable
from ..run import events as ev
from ..run.machine import RunStateMachine
from ..store.runs import RunFolder
from .rehearsal import make_ready
from .run_shell import Beginning, Crash, RunShell

_LONGEST = 64 * 1024
EXIT_CODE = 70
"""Exit code of a launcher process that broke (`EX_SOFTWARE` of sysexits.h)."""


def main(words: list[str]) -> int:
    """Waits for the order and carries it out; 0 unless it could not begin."""
    ssh = "ssh" in words[1:]
    sys.modules.setdefault("asyncssh.crypto.x509", None)  # type: ignore[arg-type]  # `ssh_library`
    if ssh:
        import_module("launcher.hosts.ssh")
    link = socket.socket(fileno=int(words[0]))
    make_ready(lambda: not _has_news(link), ssh=ssh)
    order, lock = _order(link)
    if order is None:
        return 0  # whoever started us has gone before it said what for
    try:
        _log_to(_folder(order))
        shell = shell_for(order)
    except (TfmuxError, OSError) as error:
        with suppress(OSError):  # the client has found the same, and gone
            link.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        return 1

    def terminate(number: int, frame: FrameType | None) -> None:
        shell.terminate()

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, terminate)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # of `scancel --full`: for tasks alone
        signal.signal(number, lambda *_: None)  # unlike SIG_IGN no program inherits it
    gc.freeze()  # under a flood a tenth of the processor time went into looking at modules
    gc.enable()
    link.setblocking(False)
    try:
        shell.run(link, lock, on_close=order.get("on_close", "nothing"))
    except LauncherError as error:
        link.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        return 1
    return 0


def crash(where: str, error: BaseException, story: Iterable[str] = ()) -> NoReturn:
    """Writes down what nobody expected, and what the run had come to, and ends this process:
    nothing that it would still do can be relied on. Its hosts go on under their lease, and clients
    start the next one, which is told the last line."""
    try:
        with suppress(Exception):  # it is told by what has broken
            for line in story:
                sys.stderr.write(f"{line}\n")
        traceback.print_exception(error)
        sys.stderr.write(f"{where}: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(EXIT_CODE)


def _has_news(link: socket.socket) -> bool:
    """An order has come, or the front end has gone."""
    poller = select.poll()
    poller.register(link, select.POLLIN)
    return bool(poller.poll(0))


def _order(link: socket.socket) -> tuple[dict[str, Any] | None, int | None]:
    """The first line that comes, and the descriptor with it; nothing behind it is read."""
    line = b""
    lock: int | None = None
    while not line.endswith(b"\n") and len(line) < _LONGEST:
        byte, descriptors, _, _ = socket.recv_fds(link, 1, 1)
        if not byte:
            return None, lock
        line += byte
        for fd in descriptors:
            os.set_inheritable(fd, False)
            lock = fd
    order = json.loads(line)
    assert isinstance(order, dict)
    return order, lock


def shell_for(order: dict[str, Any], crash: Crash = crash) -> RunShell:
    """The shell of the run that an order names; `crash` is how it ends when it breaks.

    Raises:
        TfmuxError: the run's files cannot be used.
    """
    folder, now = _folder(order), time.time()
    if "launch" in order:
        cluster = load(folder.cluster_file, base=folder.origin, for_launch=True)
        resume = order.get("resume")
        resume = resume and Resume(*resume)
        machine = RunStateMachine(cluster, folder.run_id, now, resume=resume)
        return RunShell(folder, machine, Beginning(ev.Begin(now)), crash)
    past = StoredRun(folder)
    first = ev.Attached(now, past.complete)
    died, ends = printable(str(order.get("died", ""))), bool(order.get("end"))
    beginning = Beginning(first, died, ends, kills=bool(order.get("kill")))
    return RunShell(folder, past.run, beginning, crash)


def _folder(order: dict[str, Any]) -> RunFolder:
    return RunFolder(Path(order["folder"]), order.get("launch") or order["attach"])


def _log_to(folder: RunFolder) -> None:
    """Sends standard error to the run's folder; a full disk is no reason not to begin."""
    try:
        fd = os.open(folder.path / "launcher.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
