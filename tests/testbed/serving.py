"""`tfmux serve` as a process, and raw requests to it by any user from any address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

import aiohttp

from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.testbed import proc

OTHER_USER = 41078
"""A uid that nobody has here."""

# Sends one request, bytes as they are, and prints what comes back. `bind` is the source address;
# `close` says which sides it closes as soon as it has sent: none, "half" (sending) or "all".
_CLIENT = """
import json, os, socket, sys
want = json.loads(sys.stdin.read())
if want["uid"] is not None:
    os.setgroups([])
    os.setuid(want["uid"])
family = socket.AF_INET6 if ":" in want["to"] else socket.AF_INET
with socket.socket(family) as connection:
    connection.settimeout(60)
    if want["bind"]:
        connection.bind((want["bind"], 0))
    connection.connect((want["to"], want["port"]))
    connection.sendall(want["request"].encode())
    if want["close"]:
        connection.shutdown(socket.SHUT_WR)
    if want["close"] == "all":
        sys.exit(print('["", ""]'))
    answer = b""
    while b"\\r\\n\\r\\n" not in answer and (some := connection.recv(65536)):
        answer += some
    head, _, body = answer.partition(b"\\r\\n\\r\\n")
    for line in head.lower().splitlines():
        if line.startswith(b"content-length:"):
            while len(body) < int(line.split(b":")[1]) and (some := connection.recv(65536)):
                body += some
print(json.dumps([head.decode(), body.decode(errors="replace")]))
"""
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@dataclass(frozen=True)
class Reply:
    """A status, the lines of the head, and the body as far as its length was told."""

    status: int
    head: str
    body: str

    def header(self, name: str) -> str:
        """The value of a header; empty when it is not there."""
        for line in self.head.splitlines()[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return ""


class Serve:
    """`tfmux serve`, started in `cwd` by way of the command `prefix`."""

    def __init__(
        self,
        *words: str,
        prefix: Sequence[str] = (),
        cwd: Path = REPOSITORY,
        safe_path: bool = False,
    ) -> None:
        python = [sys.executable, *(["-P"] if safe_path else [])]
        self._home = os.environ["HOME"]
        self._prefix = prefix
        self.process = subprocess.Popen(
            [*prefix, *python, "-m", "tui.main", "serve", "--port", "0", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        """As it is printed: with the token."""
        assert self.url, self.process.communicate()[1]

    @property
    def netloc(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc

    @property
    def port(self) -> int:
        """Where it listens."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def base(self) -> str:
        """The address without the token."""
        return urlunsplit(urlsplit(self.url)._replace(query=""))

    @property
    def token(self) -> str:
        """What the printed address ends in."""
        return parse_qs(urlsplit(self.url).query).get("token", ["none"])[0]

    def pages(self) -> list[int]:
        """The processes of pages with this server's home, not what a page itself forks."""
        found = [
            each
            for each in proc.scan(having=self._home, saying="tui.web.browser_page")
            if each.alive
            and "tui.web.browser_page" in each.argv
            and each.environ.get("HOME") == self._home
        ]
        return [each.pid for each in proc.without_forks(found)]

    def request(
        self,
        path: str = "/",
        *,
        headers: Mapping[str, str] = {},
        to: str = "127.0.0.1",
        bind: str = "",
        uid: int | None = None,
        close: str = "",
    ) -> Reply:
        """Sends one request from a process of its own, as another user where `uid` is given."""
        every = {"Host": f"localhost:{self.port}", **headers}
        lines = [f"GET {path} HTTP/1.1", *(f"{k}: {v}" for k, v in every.items())]
        want = {
            "uid": uid,
            "to": to,
            "port": self.port,
            "bind": bind,
            "close": close,
            "request": "\r\n".join([*lines, "", ""]),
        }
        done = subprocess.run(
            [*self._prefix, sys.executable, "-c", _CLIENT],
            input=json.dumps(want),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        head, body = json.loads(done.stdout)
        return Reply(int(head.split()[1]) if head else 0, head, body)

    def log_in(self, to: str = "127.0.0.1", host: str = "") -> str:
        """The value of a Cookie header that lets in who calls the server `host`."""
        headers = {"Host": host} if host else {}
        reply = self.request(f"/?token={self.token}", to=to, headers=headers)
        return reply.header("Set-Cookie").split(";")[0]

    def upgrade(self, **more: str) -> dict[str, str]:
        """The headers with which a page of ours opens its WebSocket, but the cookie."""
        return {**UPGRADE, "Origin": f"http://localhost:{self.port}", **more}

    def end(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Ends it; what it said on stderr."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE)
        return said


@contextmanager
def serving(
    *words: str, prefix: Sequence[str] = (), cwd: Path = REPOSITORY, safe_path: bool = False
) -> Iterator[Serve]:
    """A server that has ended afterwards."""
    server = Serve(*words, prefix=prefix, cwd=cwd, safe_path=safe_path)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


@contextmanager
def network(*addresses: str) -> Iterator[list[str]]:
    """A network namespace with a loopback and a machine of these addresses; the command prefix
    that runs in it."""
    lines = ["set -e", "ip link set lo up"]
    lines += [f"ip addr add {each} dev lo" for each in addresses]
    script = "\n".join([*lines, "echo ready", "exec cat"])
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
    finally:
        holder.communicate()


async def client(server: Serve) -> aiohttp.ClientSession:
    """A session that has shown the token, as a browser does."""
    session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
    async with session.get(server.url) as answer:
        assert answer.status == 200, await answer.text()
    return session
