"""`tfmux serve`: the same UI in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TextIO

from launcher.cluster.file import load
from launcher.errors import TfmuxError
from tui.exits import Exit
from tui.web.launches import FOLDER_VARIABLE, Launches
from tui.web.peers import is_loopback
from tui.web.server import PageServer


def serve(file: Path | None, host: str, port: int) -> int:
    """Serves pages until it is told to end; the runs that they have launched go on.

    The address is printed on stdout.

    Raises:
        ClusterFileError: the file cannot be used.
        TfmuxError: the address is taken or not of this machine.
    """
    words = [sys.executable, "-m", "tui.web.page"]
    if file is not None:
        load(file)
        words.append(str(file.absolute()))
    listener = _listen(host, port)
    if not is_loopback(host):
        print(
            f"tfmux: WARNING: {host} is not the loopback: whoever reaches this port sees and ends "
            f"your runs, and runs commands as you, without a password and unencrypted.\n"
            f"tfmux: safer: ssh -L {port or 8000}:127.0.0.1:{port or 8000} this-machine",
            file=sys.stderr,
        )
    with tempfile.TemporaryDirectory(prefix="tfmux-serve-") as folder:
        os.environ[FOLDER_VARIABLE] = folder
        # exec: no shell shall stand between the server and its page.
        server = PageServer(f"exec {shlex.join(words)}", host)
        address = partial(_welcome, listener, sys.stdout)
        # What a page says that fails is no data.
        with contextlib.redirect_stdout(sys.stderr):
            asyncio.run(server.run(listener, address))
        living = [run.run_id for run in Launches(Path(folder)).living()]
    for run_id in living:
        print(
            f"tfmux: {run_id} goes on in the background; tfmux attach {run_id} shows it, "
            f"tfmux kill {run_id} ends it",
            file=sys.stderr,
        )
    return Exit.SUCCESS


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family)
    except OSError as error:
        hint = "; --port 0 picks a free one" if port else ""
        raise TfmuxError(f"cannot listen on {host}:{port}: {error.strerror}{hint}") from error


def _welcome(listener: socket.socket, out: TextIO) -> None:
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    name = f"[{shown}]" if ":" in shown else shown
    print(f"http://{name}:{port}/", file=out, flush=True)
    print("tfmux: open it in a browser; Ctrl-C ends the server, not the runs", file=sys.stderr)
