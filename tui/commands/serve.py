"""`tfmux serve`: the same UI in a browser."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import socket
import ssl
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TextIO

from launcher.cluster.read import load
from launcher.errors import TfmuxError
from tui import extras
from tui.commands.hosts_from import refuse_other_files
from tui.exits import Exit
from tui.extras import Extra
from tui.streams import message
from tui.web import peer_user
from tui.web.clients import FOLDER_VARIABLE, ServedRuns
from tui.web.peer_user import is_loopback


def serve(arguments: argparse.Namespace) -> int:
    """Serves pages until it is told to end; the runs that they have launched go on.

    The address, with the token that lets a browser in, is printed on stdout.

    Raises:
        ClusterFileError: the file cannot be used.
        TfmuxError: the address is taken, not of this machine or not to be served unencrypted;
            the certificate cannot be used; the extra for it is not installed.
    """
    extras.require(Extra.WEB, "pages in a browser")
    from tui.web.access import RequestGuard
    from tui.web.page_server import PageServer

    file, host, port = arguments.file, arguments.host, arguments.port
    words = [sys.executable, "-P", "-m", "tui.web.browser_page"]
    if file is not None:
        refuse_other_files(file)
        load(file)
        words.append(str(file.absolute()))
    tls = _tls(arguments.tls_cert, arguments.tls_key)
    if not is_loopback(host) and tls is None:
        _refuse_or_warn(host, port, insecure=arguments.insecure)
    listener = _listen(host, port)
    guard = RequestGuard(host, tls=tls is not None)
    with tempfile.TemporaryDirectory(prefix="tfmux-serve-") as folder:
        os.environ[FOLDER_VARIABLE] = folder
        # exec: no shell shall stand between the server and its page.
        server = PageServer(f"exec {shlex.join(words)}", guard, tls)
        scheme = "http" if tls is None else "https"
        address = f"{scheme}://{_netloc(listener, host)}/?token={guard.token}"
        listening = partial(_welcome, address, sys.stdout)
        # What a page says that fails is no data.
        with contextlib.redirect_stdout(sys.stderr):
            asyncio.run(server.run(listener, listening))
        living = [run.run_id for run in ServedRuns(Path(folder)).living()]
    for run_id in living:
        ends = f"tfmux attach {run_id} shows it, tfmux kill {run_id} ends it"
        message(f"{run_id} continues in the background; {ends}")
    return Exit.SUCCESS


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family)
    except OSError as error:
        hint = "; --port 0 picks a free one" if port else ""
        raise TfmuxError(f"cannot listen on {host}:{port}: {error.strerror}{hint}") from error


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None:
        if key is not None:
            raise TfmuxError("--tls-key needs --tls-cert, the certificate of that key")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # an SSLError is one, too
        raise TfmuxError(
            f"--tls-cert {cert}{f' --tls-key {key}' if key else ''}: no certificate and key in "
            f"PEM that belong together: {error.strerror or error}"
        ) from error
    return context


def _refuse_or_warn(host: str, port: int, *, insecure: bool) -> None:
    """An unencrypted page beyond this machine: whoever reads the traffic gets the token."""
    tunnel = f"ssh -L {port or 8000}:127.0.0.1:{port or 8000} {socket.gethostname()}"
    if not insecure:
        raise TfmuxError(
            f"{host} is not the loopback, and without encryption anyone who can read the traffic "
            f"can run commands as you. Use --tls-cert FILE --tls-key FILE, or leave --host out "
            f"and connect with `{tunnel}`. --insecure serves without encryption"
        )
    warning = f"WARNING: {host} is not the loopback, and the traffic is unencrypted: anyone who "
    message(f"{warning}can read it can see and end your runs, and run commands as you.")
    message(f"safer: use --tls-cert and --tls-key, or {tunnel}")


def _netloc(listener: socket.socket, host: str) -> str:
    """The host and port that a browser is told: the name that was given, else the address."""
    address, port = listener.getsockname()[:2]
    if address in ("0.0.0.0", "::"):
        host = socket.gethostname()
    elif not host:
        host = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _welcome(address: str, out: TextIO) -> None:
    print(address, file=out, flush=True)
    if not peer_user.are_known():
        message("this system does not report who connects: only the token keeps others out")
    message(
        "open it in a browser; anyone with this address and its token can act as you; "
        "Ctrl-C ends the server, not the runs"
    )
