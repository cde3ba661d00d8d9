"""Access to `tfmux serve`: its own user with the token, nobody else, from wherever."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from tests.support.command import run
from tests.support.patience import PATIENCE
from tests.testbed.serving import OTHER_USER, Serve, client, network, serving
from tui.web import peer_user

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
IPV4, IPV6 = "192.0.2.7", "2001:db8::7"


@pytest.fixture(scope="module")
def machine() -> Iterator[list[str]]:
    """A machine with two more addresses; the prefix of commands in it."""
    with network(f"{IPV4}/32", f"{IPV6}/128") as prefix:
        yield prefix


@pytest.fixture(scope="module")
def loopback(machine: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """A server on 127.0.0.1, with a home of its own."""
    with pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("XDG_")]:
            patched.delenv(name)
        patched.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        server = Serve(prefix=machine)
    try:
        yield server
    finally:
        server.end()


@pytest.fixture(scope="module")
def cookie(loopback: Serve) -> str:
    """The value of a Cookie header that the server has given to its owner."""
    return loopback.log_in()


@pytest.mark.parametrize("bind", ["", "127.0.0.1", "127.0.0.2", "127.255.0.9", IPV4])
def test_another_user_with_the_token_is_refused(loopback: Serve, cookie: str, bind: str) -> None:
    """Given another user of this machine with the token or the cookie, when a request comes from
    any address here, then the answer is 403, and no page starts; the owner is answered."""
    path = f"/?token={loopback.token}"
    own = {"Cookie": cookie}
    for headers, target in (({}, path), (own, "/"), (loopback.upgrade(**own), "/ws")):
        reply = loopback.request(target, headers=headers, bind=bind, uid=OTHER_USER)
        assert reply.status == 403 and "another user" in reply.body, (target, reply)
        assert not reply.header("Set-Cookie")
    assert not loopback.pages()
    assert loopback.request("/", headers=own, bind=bind).status == 200


@pytest.mark.parametrize(
    ("host", "ways"),
    [
        (
            "0.0.0.0",
            [
                ("127.0.0.1", ""),
                ("127.0.0.1", IPV4),
                (IPV4, ""),
                (IPV4, "127.0.0.3"),
                ("::ffff:127.0.0.1", ""),
                ("::ffff:127.0.0.1", "::ffff:127.0.0.2"),
                ("::ffff:127.0.0.1", f"::ffff:{IPV4}"),
            ],
        ),
        ("::", [("::1", ""), ("::1", IPV6), (IPV6, ""), (IPV6, "::1")]),
    ],
    ids=["IPv4", "IPv6"],
)
def test_another_user_is_refused_on_every_address(
    machine: list[str], host: str, ways: list[tuple[str, str]]
) -> None:
    """Given a server on all addresses, when another user with the cookie connects to any of them,
    then the answer is 403. IPv4 written as IPv6 has its row in the kernel's other table."""
    with serving("--host", host, "--insecure", prefix=machine) as server:
        for to, bind in ways:
            cookie = {"Cookie": server.log_in(to=to)}
            for path in ("/", "/static/js/textual.js"):
                reply = server.request(path, headers=cookie, to=to, bind=bind, uid=OTHER_USER)
                assert reply.status == 403 and "another user" in reply.body, (to, bind, reply)
            assert server.request("/", headers=cookie, to=to, bind=bind).status == 200, (to, bind)


def test_the_kernels_row_counts_only_while_both_ends_are_open() -> None:
    """Given a TCP connection, when the kernel is asked whose it is, then it is ours, and nobody's
    as soon as one end is closed: rows of such connections carry uid 0, which is root's."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        with closing(near), closing(far):
            ends = (far.getpeername(), far.getsockname())
            assert peer_user.uid(*ends) == os.getuid()
            assert peer_user.uid(ends[1], ends[0]) == os.getuid()
            near.shutdown(socket.SHUT_WR)
            far.recv(1)
            assert peer_user.uid(*ends) is None
            near.close()
            far.close()
            assert peer_user.uid(*ends) is None


def test_a_half_closed_connection_is_refused(loopback: Serve, cookie: str) -> None:
    """Given another user with a stolen cookie, when a request comes whose sender has closed its
    end, but could read the answer, then the answer is 403 or none."""
    for _ in range(5):
        reply = loopback.request("/", headers={"Cookie": cookie}, close="half", uid=OTHER_USER)
        assert reply.status in (0, 403)


def test_a_connection_that_is_closed_at_once_starts_nothing(loopback: Serve) -> None:
    """Given a stopped server, when another user with a stolen cookie asks for a page and goes, then
    no page starts for that one: when the server goes on, the owner's next page is the only one."""
    headers = loopback.upgrade(Cookie=loopback.log_in())
    loopback.process.send_signal(signal.SIGSTOP)
    try:
        loopback.request("/ws", headers=headers, uid=OTHER_USER, close="all")
    finally:
        loopback.process.send_signal(signal.SIGCONT)
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(loopback.request, "/ws", headers=headers)
        seen: set[int] = set()
        while not seen or loopback.pages():
            assert not reply.done() or reply.result().status == 101, reply.result()
            seen |= set(loopback.pages())
            time.sleep(0.02)  # a page's interpreter takes longer to start
    assert len(seen) == 1


@pytest.mark.parametrize("path", ["/", "/static/js/textual.js", "/page/page.js", "/ws", "/none"])
def test_no_token_no_answer(loopback: Serve, cookie: str, path: str) -> None:
    """Given the server's own user without a token, when any path is asked for, also with a wrong
    cookie, then the answer is 403 and says what to do, no cookie is set, and no page starts."""
    headers = loopback.upgrade() if path == "/ws" else {}
    name = cookie.split("=")[0]
    for wrong in ({}, {"Cookie": f"{name}="}, {"Cookie": f"{name}=é"}, {"Cookie": "a=b"}):
        reply = loopback.request(path, headers={**headers, **wrong})
        assert reply.status == 403 and "?token=" in reply.body, reply
        assert not reply.header("Set-Cookie")
    assert not loopback.pages()


@pytest.mark.parametrize("query", ["", "x", "%C3%A9", "%FF", "TOKEN&token=x"])
def test_a_wrong_token_is_refused(loopback: Serve, cookie: str, query: str) -> None:
    """Given a wrong token, when the first page is asked for, also with the right cookie, then the
    answer is 403 and sets no cookie; a right token opens no other path than the first page."""
    query = query.replace("TOKEN", loopback.token[:-1])
    for headers in ({}, {"Cookie": cookie}):
        reply = loopback.request(f"/?token={query}", headers=headers)
        assert reply.status == 403 and not reply.header("Set-Cookie"), reply
    for path in ("/static/js/textual.js", "/ws"):
        assert loopback.request(f"{path}?token={loopback.token}").status == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address_bar(loopback: Serve) -> None:
    """Given the right token, when the first page is asked for, then the answer leads to `/`, with a
    cookie that is not the token; every answer forbids frames, caching and referrers."""
    assert len(loopback.token) >= 43  # 256 bits
    reply = loopback.request(f"/?token={loopback.token}")
    assert reply.status == 303 and reply.header("Location") == "/"
    cookie = reply.header("Set-Cookie")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert loopback.token not in reply.head
    again = loopback.request("/", headers={"Cookie": cookie.split(";")[0]})
    for each in (reply, again, loopback.request("/"), loopback.request("/none")):
        assert each.header("Referrer-Policy") == "no-referrer"
        assert each.header("X-Frame-Options") == "DENY"
        assert each.header("X-Content-Type-Options") == "nosniff"
        assert each.header("Cache-Control") == "no-store"
        assert "frame-ancestors 'none'" in each.header("Content-Security-Policy")
    assert again.status == 200 and loopback.token not in again.body


def test_each_server_has_a_token_of_its_own(machine: list[str], loopback: Serve) -> None:
    """Given two servers, when the token or the cookie of one is shown to the other, then the answer
    is 403."""
    with serving(prefix=machine) as other:
        assert other.token != loopback.token
        value = loopback.log_in().split("=", 1)[1]
        name = other.log_in().split("=", 1)[0]
        assert other.request("/", headers={"Cookie": f"{name}={value}"}).status == 403
        assert other.request(f"/?token={loopback.token}").status == 403


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({"Host": "evil.example"}, "/"),
        ({"Host": "evil.example:8000", "Origin": "http://evil.example:8000"}, "/ws"),
        ({"Origin": "http://evil.example"}, "/ws"),
        ({"Origin": "http://localhost:3000"}, "/ws"),
        ({"Origin": "null"}, "/ws"),
        ({"Origin": ""}, "/ws"),
        ({"Sec-Fetch-Site": "cross-site"}, "/static/js/textual.js"),
        ({"Sec-Fetch-Site": "same-site"}, "/static/js/textual.js"),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "iframe"}, "/"),
    ],
)
def test_pages_of_another_origin_are_refused(
    loopback: Serve, cookie: str, headers: dict[str, str], path: str
) -> None:
    """Given the owner's cookie, when a request comes from another origin or names another host,
    then the answer is 403. To a browser another port of this machine is the same site."""
    own = {"Cookie": cookie}
    every = {**(loopback.upgrade() if path == "/ws" else {}), **own, **headers}
    assert loopback.request(path, headers=every).status == 403
    assert not loopback.pages()


async def test_the_owner_with_the_token_is_let_in() -> None:
    """Given the owner with the printed address, when the page's WebSocket is opened, then a page
    starts; and no command line or environment of a process holds the token."""
    with serving() as server:
        async with await client(server) as session:
            origin = {"Origin": server.base.rstrip("/")}
            async with session.ws_connect(f"{server.base}ws", headers=origin) as websocket:
                message = await websocket.receive(PATIENCE)
                assert message.type is aiohttp.WSMsgType.BINARY
                (page,) = server.pages()
                _nothing_shown(server, page)


def _nothing_shown(server: Serve, page: int) -> None:
    """What others may read of processes does not hold the token; nor do a page's variables."""
    for pid in (server.process.pid, page):
        for file in ("cmdline", "environ"):
            assert server.token.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()


def test_beyond_the_loopback_only_with_tls_or_by_will(machine: list[str], tmp_path: Path) -> None:
    """Given an address beyond the loopback, when `tfmux serve` is called without TLS, then it exits
    with 2 and names both ways out; with `--insecure` it serves and warns."""
    for host in ("0.0.0.0", "::", IPV4, "::ffff:0.0.0.0"):
        refused = run("serve", "--port", "0", "--host", host)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--tls-cert" in refused.stderr and "--insecure" in refused.stderr
    with serving("--host", IPV4, "--insecure", prefix=machine) as server:
        said = server.end()
    assert "WARNING" in said and "unencrypted" in said


def test_over_tls_the_cookie_is_for_tls_alone(machine: list[str], tmp_path: Path) -> None:
    """Given a certificate and its key, when `tfmux serve` uses them, then its cookie is for TLS
    alone; when one is missing or is none, then it exits with 2 and names the option."""
    cert, key = certificate(tmp_path)
    words = ("--host", IPV4, "--tls-cert", str(cert), "--tls-key", str(key))
    with serving(*words, prefix=machine) as server:
        assert server.url.startswith(f"https://{IPV4}:")
        script = (
            "import http.client, ssl, sys\n"
            "context = ssl.create_default_context(cafile=sys.argv[1])\n"
            "address = (sys.argv[2], int(sys.argv[3]))\n"
            "connection = http.client.HTTPSConnection(*address, context=context)\n"
            "connection.request('GET', '/?token=' + sys.argv[4])\n"
            "print(connection.getresponse().headers['Set-Cookie'])\n"
        )
        argv = [
            *machine,
            sys.executable,
            "-c",
            script,
            str(cert),
            IPV4,
            str(server.port),
            server.token,
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)
        assert "Secure" in done.stdout.strip().split("; "), done
    for pair in ((tmp_path / "none", key), (key, key), (cert, cert)):
        options = ("--tls-cert", str(pair[0]), "--tls-key", str(pair[1]))
        wrong = run("serve", "--port", "0", *options)
        assert wrong.returncode == 2 and "--tls-cert" in wrong.stderr, wrong
    alone = run("serve", "--port", "0", "--tls-key", str(key))
    assert alone.returncode == 2 and "--tls-cert" in alone.stderr


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for the machine's address, signed by itself, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "2", "-subj", "/CN=tfmux", "-keyout", str(key), "-out", str(cert)]
    words += ["-addext", f"subjectAltName=IP:{IPV4}"]
    subprocess.run(words, check=True, capture_output=True)
    return cert, key
