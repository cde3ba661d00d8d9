"""Logins to hosts: what a check sees of them, many at once, and the server that stands in for
one."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from launcher.cluster.read import loads
from launcher.errors import AuthError, HostError, HostKeyError, UnreachableError
from launcher.hosts import dial, ssh
from launcher.hosts.auth_prompt import AuthPrompt, PromptHandler, PromptKind
from launcher.hosts.credentials import display_path
from launcher.hosts.host_keys import HostName, KnownHosts, accepted_keys
from launcher.hosts.ssh import LOGINS_AT_ONCE, SshConnector
from launcher.plan.run_plan import SshTarget
from launcher.preflight import Check, Severity
from launcher.preflight.preflight import preflight
from tests.support.budgets import variants
from tests.support.patience import PATIENCE, until
from tests.testbed import keys, proc
from tests.testbed.inprocess import SshServer
from tests.testbed.proc import Process


def target(server: SshServer) -> SshTarget:
    """The way to the server, with its key known."""
    return SshTarget(
        server.user,
        "127.0.0.1",
        server.port,
        identity=str(server.client_key.path),
        known_hosts=str(server.known_hosts),
    )


def stranger(server: SshServer) -> SshTarget:
    """The way to the server for somebody who was never there."""
    return replace(target(server), known_hosts="/nowhere")


async def login(
    to: SshTarget, ask: PromptHandler | None = None, *, accept_new: bool = False
) -> list[str]:
    """Logs in and out; returns the steps that were passed."""
    steps: list[str] = []
    logins = SshConnector(
        ask, accept_new=accept_new, on_step=lambda host, step, _: steps.append(step)
    )
    try:
        connection = await logins.connect("far", to)
    finally:
        await logins.aclose()
    connection.abort()
    await connection.wait_closed()
    return steps


async def test_a_login_without_a_session_ends_with_its_connector(ssh_server: SshServer) -> None:
    """Commands of a login host have one, and nothing else ends it."""
    logins = SshConnector()
    connection = await logins.connect("login", target(ssh_server))
    assert not connection.is_closed()
    await logins.aclose()
    async with asyncio.timeout(PATIENCE):
        await connection.wait_closed()


def lock_key(server: SshServer, folder: Path) -> Path:
    """Gives the server's user a key with the passphrase `secret`; returns its file."""
    path = folder / "locked"
    argv = ["ssh-keygen", "-q", "-t", "ecdsa", "-m", "PEM", "-N", "secret", "-f"]
    subprocess.run([*argv, path], check=True)
    server.client_key = keys.KeyPair(path)
    return path


class Person:
    """Answers every question alike, and remembers them."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.asked: list[AuthPrompt] = []

    async def __call__(self, question: AuthPrompt) -> str | None:
        self.asked.append(question)
        return self.answer


@contextmanager
def speaker(words: bytes) -> Iterator[int]:
    """A server on the loopback that says something to whoever connects; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            guest, _ = listener.accept()
            with guest:
                guest.sendall(words)
                with suppress(ConnectionResetError):
                    while guest.recv(4096):
                        continue

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
    thread.join(PATIENCE)


# --- the steps --------------------------------------------------------------------------------


async def test_a_login_tells_each_step_that_it_passes(ssh_server: SshServer) -> None:
    """Name, TCP, SSH, key and login, in this order."""
    assert await login(target(ssh_server)) == ["name", "tcp", "ssh", "key", "login"]


@pytest.mark.parametrize(
    ("change", "error", "said", "code"),
    [
        (
            {"host": "no-such-host.invalid"},
            UnreachableError,
            r"'no-such-host\.invalid' does not resolve",
            "name-unresolved",
        ),
        ({"port": 1}, UnreachableError, "connection refused by", "tcp-refused"),
        (
            {"identity": "/nowhere/id"},
            AuthError,
            "/nowhere/id cannot be used: No such file",
            "key-file",
        ),
    ],
)
async def test_what_is_wrong_in_the_file_is_told_as_that(
    ssh_server: SshServer, change: dict[str, Any], error: type[HostError], said: str, code: str
) -> None:
    """The name and not the network, sshd and not the machine, the key's file."""
    with pytest.raises(error, match=said) as told:
        await login(replace(target(ssh_server), **change))
    assert told.value.code == code


async def test_a_server_that_says_nothing_is_given_up(
    ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server accepts and stays silent: a deadline ends that."""
    monkeypatch.setattr(dial, "BANNER_SECONDS", 0.3)
    ssh_server.relay.silent = True
    with pytest.raises(UnreachableError, match="sent no SSH banner") as told:
        await login(target(ssh_server))
    assert told.value.code == "ssh-silent"


async def test_another_kind_of_server_is_quoted(
    ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What listens there and is no SSH server is named by its own words, made harmless."""
    monkeypatch.setattr(dial, "_PREAMBLE_SECONDS", 0.2)
    with speaker(b"220 mail.example.org \x1b]52;c;x\x07ESMTP\r\n") as port:
        with pytest.raises(
            UnreachableError, match="not an SSH server: it answered '220 mail"
        ) as told:
            await login(replace(target(ssh_server), port=port))
    assert told.value.code == "not-ssh"
    assert "\x1b" not in str(told.value)


async def test_lines_before_the_version_are_no_fault(ssh_server: SshServer) -> None:
    """A server may greet before it says its version (RFC 4253, 4.2)."""
    with speaker(b"welcome\r\nto us\r\nSSH-2.0-Test\r\n") as port:
        steps: list[str] = []
        link = await dial.dial("far", "127.0.0.1", port, lambda step, _: steps.append(step))
        assert link.recv(7) == b"welcome"
        link.close()
    assert steps == ["name", "tcp", "ssh"]


async def test_dropped_logins_are_tried_again_and_then_told(ssh_server: SshServer) -> None:
    """sshd drops connections when too many log in; twice is forgiven, for ever is not."""
    ssh_server.relay.refuse_next = 2
    assert "login" in await login(target(ssh_server))
    ssh_server.relay.refuse_next = 100
    with pytest.raises(UnreachableError, match="closes them") as told:
        await login(target(ssh_server))
    assert told.value.code == "ssh-dropped"


async def test_too_many_logins_are_not_another_kind_of_server(ssh_server: SshServer) -> None:
    """sshd says so before its version and hangs up: that is tried again."""
    guests = 0

    async def full(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal guests
        guests += 1
        writer.write(b"Exceeded MaxStartups\r\n")
        writer.close()

    async with await asyncio.start_server(full, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnreachableError, match="Exceeded MaxStartups") as told:
            await login(replace(target(ssh_server), port=port))
    assert told.value.code == "ssh-dropped" and guests > 1


async def test_hosts_behind_a_jump_host_are_reached_and_blamed_apart(ssh_server: SshServer) -> None:
    """Two jumps in a row work, a connection for each; a host that the last one cannot reach is told
    so."""
    way = f"{ssh_server.user}@127.0.0.1:{ssh_server.port}"
    assert "login" in await login(replace(target(ssh_server), jump=f"{way},{way}"))
    assert ssh_server.relay.connections == 3
    with pytest.raises(UnreachableError, match=r"jump host .* cannot reach 127\.0\.0\.1:1") as told:
        await login(replace(target(ssh_server), jump=way, port=1))
    assert told.value.code == "jump-failed"


# --- host keys --------------------------------------------------------------------------------


async def test_an_unknown_key_is_refused_with_its_fingerprint(ssh_server: SshServer) -> None:
    """Headless: nothing is trusted, and what to compare is shown."""
    with pytest.raises(HostKeyError, match="not known here") as told:
        await login(stranger(ssh_server))
    key = asyncssh.import_public_key(ssh_server.host_key.public)
    assert f"ssh-ed25519 {key.get_fingerprint()}" in str(told.value)
    assert (told.value.code, accepted_keys().exists()) == ("key-unknown", False)


async def test_accept_new_trusts_a_key_once_and_keeps_it(ssh_server: SshServer) -> None:
    """The key goes to tfmux's own file, and the next login needs no permission."""
    await login(stranger(ssh_server), accept_new=True)
    kept = accepted_keys().read_text()
    assert (
        kept == f"[127.0.0.1]:{ssh_server.port} {ssh_server.host_key.public.rpartition(' ')[0]}\n"
    )
    assert accepted_keys().stat().st_mode & 0o777 == 0o600
    await login(stranger(ssh_server))
    await login(stranger(ssh_server), accept_new=True)
    assert accepted_keys().read_text() == kept


async def test_a_person_decides_at_first_contact(ssh_server: SshServer) -> None:
    """Only `yes` trusts; the question shows place, type and fingerprint."""
    for answer in ("no", "", None):
        with pytest.raises(HostKeyError):
            await login(stranger(ssh_server), Person(answer))
    assert not accepted_keys().exists()
    person = Person("yes")
    await login(stranger(ssh_server), person)
    (question,) = person.asked
    assert question.kind is PromptKind.HOST_KEY and not question.secret
    assert "SHA256:" in question.text and str(ssh_server.port) in question.text
    await login(stranger(ssh_server))


async def test_all_hosts_behind_one_door_ask_once(ssh_server: SshServer) -> None:
    """Although fewer log in at once: questions that are alike are one, and its answer is all's."""
    person = Person("yes")
    logins = SshConnector(person)
    try:
        async with asyncio.timeout(PATIENCE):
            count = LOGINS_AT_ONCE + 2
            places = (logins.connect(f"h{n}", stranger(ssh_server)) for n in range(count))
            for connection in await asyncio.gather(*places):
                connection.abort()
    finally:
        await logins.aclose()
    (question,) = person.asked
    assert question.key is not None and question.key.fingerprint.startswith("SHA256:")
    assert question.key.place == f"[127.0.0.1]:{ssh_server.port}"


async def test_a_changed_key_is_never_accepted(ssh_server: SshServer) -> None:
    """Neither --accept-new nor a person may trust it in passing."""
    ssh_server.new_host_key()
    person = Person("yes")
    for ask in (None, person):
        with pytest.raises(HostKeyError, match="HAS CHANGED") as told:
            await login(target(ssh_server), ask, accept_new=True)
        assert told.value.code == "key-changed"
    assert person.asked == [] and not accepted_keys().exists()


@pytest.mark.parametrize(
    ("mark", "other_kind", "said"), [("", True, "HAS CHANGED"), ("@revoked ", False, "revoked")]
)
async def test_a_key_that_known_hosts_speaks_against_is_never_accepted(
    ssh_server: SshServer, mark: str, other_kind: bool, said: str
) -> None:
    """One of another kind than the known one may be an impostor's; `--accept-new` helps neither."""
    other = asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_public_key().decode()
    public = other if other_kind else ssh_server.host_key.public
    line = keys.known_hosts_line(["127.0.0.1"], public, ssh_server.port)
    ssh_server.known_hosts.write_text(f"{mark}{line}")
    with pytest.raises(HostKeyError, match=said):
        await login(target(ssh_server), accept_new=True)


async def test_a_known_hosts_that_cannot_be_read_is_named(ssh_server: SshServer) -> None:
    """A file that is there and cannot be read stops the login: it may hold a revoked key."""
    ssh_server.known_hosts.unlink()
    ssh_server.known_hosts.mkdir()
    with pytest.raises(HostKeyError, match=f"cannot be read: {ssh_server.known_hosts}") as told:
        await login(target(ssh_server), accept_new=True)
    assert told.value.code == "known-hosts-broken"


def test_a_key_of_port_22_says_nothing_against_another_port(tmp_path: Path) -> None:
    """Two servers behind one address: the second one is unknown, not an impostor."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    file = tmp_path / "known_hosts"
    file.write_text(keys.known_hosts_line(["10.0.0.1"], key.export_public_key().decode()))
    assert KnownHosts([str(file)], HostName("10.0.0.1")).any
    other = KnownHosts([str(file)], HostName("10.0.0.1", 2222))
    assert not other.any
    assert [each.get_fingerprint() for each in other.port22_keys] == [key.get_fingerprint()]


# --- who we are -------------------------------------------------------------------------------


async def test_refused_keys_are_named_one_by_one(ssh_server: SshServer, tfmux_home: Path) -> None:
    """Each key that was offered: its file, kind and fingerprint, so that one sees which."""
    ssh_server.refuse_keys = True
    (tfmux_home / ".ssh").mkdir()
    made = [keys.make_key(tfmux_home / ".ssh" / name, name) for name in ("id_ed25519", "id_ecdsa")]
    with pytest.raises(AuthError, match="permission denied for") as told:
        await login(replace(target(ssh_server), identity=None))
    for key in made:
        fingerprint = asyncssh.import_public_key(key.public).get_fingerprint()
        assert f"~/.ssh/{key.path.name} (ssh-ed25519 {fingerprint})" in told.value.what


async def test_a_locked_key_is_named_when_nobody_can_unlock_it(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Headless, a key with a passphrase is not offered, and the way to unlock it is told."""
    path = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "word", "-f", path], check=True)
    with pytest.raises(AuthError, match="locked has a passphrase") as told:
        await login(replace(target(ssh_server), identity=str(path)))
    assert told.value.todo.startswith(f"unlock it first: ssh-add {display_path(str(path))}")


async def test_a_passphrase_is_asked_for_until_it_is_right(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """Three times at most; what was wrong is said, and nothing hangs on who does not answer."""
    lock_key(ssh_server, tmp_path)
    assert "login" in await login(target(ssh_server), Person("secret"))
    for answer, asked in (("wrong", 3), (None, 1)):
        person = Person(answer)
        with pytest.raises(AuthError, match="could not be unlocked"):
            await login(target(ssh_server), person)
        assert [question.kind for question in person.asked] == [PromptKind.PASSPHRASE] * asked


@pytest.mark.parametrize("public", [True, False], ids=["with its public half", "alone"])
async def test_a_locked_key_is_asked_about_once(
    ssh_server: SshServer, tmp_path: Path, public: bool
) -> None:
    """Whichever hosts need it, and not again at a reconnect, when nobody is there any more; a
    launcher that has not been told asks anew."""
    path = lock_key(ssh_server, tmp_path)
    alone = tmp_path / "alone"
    alone.write_bytes(path.read_bytes())
    way = replace(target(ssh_server), identity=str(path if public else alone))
    person = Person("secret")
    logins = SshConnector(person)
    try:
        async with asyncio.timeout(PATIENCE):
            hosts = (logins.connect(f"h{n}", way) for n in range(LOGINS_AT_ONCE + 2))
            await asyncio.gather(*hosts)
            await logins.connect("h0", way)
    finally:
        await logins.aclose()
    assert [question.kind for question in person.asked] == [PromptKind.PASSPHRASE]
    other = Person("secret")
    await login(way, other)
    assert len(other.asked) == 1


async def test_a_password_is_asked_for_and_never_without_a_person(ssh_server: SshServer) -> None:
    """With somebody to ask it logs in; else the error says what is wanted."""
    ssh_server.password = "correct horse"
    person = Person("correct horse")
    assert "login" in await login(target(ssh_server), person)
    assert all(question.secret for question in person.asked) and person.asked
    with pytest.raises(AuthError, match=r"accepts no key .* a password; nobody has answered"):
        await login(target(ssh_server))
    other = Person("wrong")
    with pytest.raises(AuthError, match="what was typed was refused"):
        await login(target(ssh_server), other)
    assert other.asked and ssh_server.refused


@pytest.mark.parametrize("interactive", [True, False], ids=["keyboard-interactive", "password"])
async def test_a_password_that_was_accepted_is_not_asked_for_again(
    ssh_server: SshServer, interactive: bool
) -> None:
    """A reconnect at night finds nobody. One that the server refuses is forgotten."""
    ssh_server.password = "correct horse"
    ssh_server.interactive = interactive
    person = Person("correct horse")
    logins = SshConnector(person)
    try:
        for host in ("far", "far", "same"):
            connection = await logins.connect(host, target(ssh_server))
            connection.abort()
            await connection.wait_closed()
        assert len(person.asked) == 1
        person.answer = ssh_server.password = "another one"
        await logins.connect("far", target(ssh_server))
        assert len(person.asked) == 2
    finally:
        await logins.aclose()


async def test_a_one_time_code_is_tried_again_once(ssh_server: SshServer) -> None:
    """An answer that is right only once is not kept a second time."""
    ssh_server.interactive = True
    person = Person("")
    logins = SshConnector(person)
    logged_in = []
    try:
        for code in ("1", "2", "3"):
            person.answer = ssh_server.password = code
            ssh_server.refused.clear()
            connection = await logins.connect("far", target(ssh_server))
            connection.abort()
            await connection.wait_closed()
            logged_in.append(list(ssh_server.refused))
    finally:
        await logins.aclose()
    assert logged_in == [[], ["1"], []] and len(person.asked) == 3


@pytest.mark.parametrize("question", ["password", "passphrase"])
async def test_a_server_that_does_not_wait_for_the_answer_gets_it_later(
    ssh_server: SshServer, tmp_path: Path, question: str
) -> None:
    """`LoginGraceTime` is over while the dialog is open: one question, answered once."""
    to = target(ssh_server)
    if question == "password":
        ssh_server.password = "secret"
    else:
        to = replace(to, identity=str(lock_key(ssh_server, tmp_path)))
    ssh_server.grace_time(0.5)
    asked = []

    async def person(prompt: AuthPrompt) -> str | None:
        asked.append(prompt)
        dropped = ssh_server.relay.ended
        await until(lambda: ssh_server.relay.ended > dropped, "the server hangs up")
        ssh_server.grace_time(PATIENCE)
        return "secret"

    async with asyncio.timeout(PATIENCE):
        assert "login" in await login(to, person)
    assert len(asked) == 1 and ssh_server.relay.connections == 2


async def test_the_time_that_a_person_takes_is_not_the_agent_s(ssh_server: SshServer) -> None:
    """Neither in its cell nor in its sentence: only a login waits for an answer."""
    thought = 2.0

    async def person(question: AuthPrompt) -> str | None:
        await asyncio.sleep(thought)
        return "yes"

    to = stranger(ssh_server)
    text = (
        f'[hosts.far]\nssh = "{to.user}@{to.host}:{to.port}"\nidentity = "{to.identity}"\n'
        f'known_hosts = "{to.known_hosts}"\naddress = "far"\npython = "{sys.executable}"\n'
        '[jobs.worker]\ntasks = ["far:auto"]\ncommand = ["true"]\n'
        '[run]\nworkdir = ""\n'
    )
    report = await preflight(loads(text, "c.toml", Path("/")), person)
    (agent,) = (each for each in report.findings if each.check is Check.AGENT)
    assert agent.severity is Severity.OK
    seconds = float(agent.brief.removesuffix(" s"))
    assert report.seconds - seconds > thought
    assert f"within {seconds:.1f} s" in agent.sentence


@variants(
    ("framework", "severity"),
    [("none", Severity.OK), ("torch", Severity.OK), ("tensorflow", Severity.WARN)],
    test=2,
)
async def test_tensorflow_is_missed_only_where_it_is_used(
    ssh_server: SshServer, tmp_path: Path, framework: str, severity: Severity
) -> None:
    """A host without it is no fault of a cluster whose commands never import it."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    text = (
        f'{ssh_server.host_toml("far", str(python))}[jobs.worker]\ntasks = ["far:auto"]\n'
        f'command = ["sleep", "1"]\n[run]\nworkdir = ""\nframework = "{framework}"\n'
    )
    report = await preflight(loads(text, "c.toml", Path("/")))
    (found,) = (each for each in report.findings if each.check is Check.TENSORFLOW)
    assert (found.severity, "not installed" in found.sentence) == (severity, True)


async def test_names_that_wait_for_a_slow_name_server_all_resolve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time of a lookup begins with the lookup, and not with the wait for its turn."""
    monkeypatch.setattr(dial, "RESOLVE_SECONDS", 6.0)
    asked: list[str] = []

    def slow(host: str, port: int, *_: object) -> list[Any]:
        asked.append(host)
        time.sleep(2.4)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def one(number: int) -> str:
        """Comes to the connection, which is refused."""
        with pytest.raises(UnreachableError) as told:
            await dial.dial("h", f"h{number}", 1, lambda step, found: None)
        return told.value.code

    assert set(await asyncio.gather(*map(one, range(150)))) == {"tcp-refused"}
    assert len(asked) == 150


async def test_a_name_server_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not the host, which was never asked."""
    monkeypatch.setattr(dial, "RESOLVE_SECONDS", 0.1)
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: released.wait() and [])
    try:
        with pytest.raises(UnreachableError, match="the name server did not answer") as told:
            await dial.dial("far", "tf1.example", 22, lambda step, found: None)
    finally:
        released.set()
    assert told.value.code == "name-unresolved" and "IP address" in told.value.todo


async def test_handshakes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand handshakes at a time each would take longer than a login may."""
    under_way, most = 0, 0

    async def connect(*_: object, **__: object) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1
        raise OSError("no server")

    monkeypatch.setattr(asyncssh, "connect", connect)
    monkeypatch.setattr(ssh, "HANDSHAKES_AT_ONCE", 3)
    logins = SshConnector()
    with socket.create_server(("127.0.0.1", 0)) as server:
        links = []

        async def dialled(*_: object, **__: object) -> socket.socket:
            links.append(socket.create_connection(server.getsockname()))
            return links[-1]

        monkeypatch.setattr(ssh, "dial", dialled)
        try:
            places = [SshTarget("me", f"127.0.0.{n}", 1, known_hosts="/nowhere") for n in range(12)]
            ends = await asyncio.gather(
                *(logins.connect(f"h{n}", place) for n, place in enumerate(places)),
                return_exceptions=True,
            )
        finally:
            for link in links:
                link.close()
    assert [type(end) for end in ends] == [UnreachableError] * 12
    assert most == 3


def test_known_hosts_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it changes."""
    parsed = 0
    parse = asyncssh.SSHKnownHosts.load

    def counted(self: asyncssh.SSHKnownHosts, line: str) -> None:
        nonlocal parsed
        parsed += 1
        parse(self, line)

    monkeypatch.setattr(asyncssh.SSHKnownHosts, "load", counted)
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    file = tmp_path / "known_hosts"
    file.write_text("odd\n" + "".join(keys.known_hosts_line([f"h{n}"], key) for n in range(20)))
    for n in range(20):
        known = KnownHosts([str(file)], HostName(f"h{n}"))
        assert known.any and known.odd == (
            f"{file}:1: not a line of known_hosts (names, key type and key); the line is skipped",
        )
    assert parsed == 20
    with file.open("a") as more:
        more.write(keys.known_hosts_line(["h20"], key))
    assert KnownHosts([str(file)], HostName("h20")).any and parsed == 41


async def test_a_login_that_is_dropped_after_the_yes_does_not_ask_again(
    ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person has agreed to this key of this host."""
    asked: list[AuthPrompt] = []

    async def person(question: AuthPrompt) -> str | None:
        asked.append(question)
        return "yes"

    connecting = asyncssh.connect
    tries = 0

    async def connect(*args: Any, **options: Any) -> asyncssh.SSHClientConnection:
        nonlocal tries
        tries += 1
        if tries == 2:
            options["sock"].close()
            raise asyncssh.ConnectionLost("dropped")
        return await connecting(*args, **options)

    monkeypatch.setattr(asyncssh, "connect", connect)
    logins = SshConnector(person)
    target = SshTarget(
        ssh_server.user,
        "127.0.0.1",
        ssh_server.port,
        identity=str(ssh_server.client_key.path),
        known_hosts="/nowhere",
    )
    connection = await logins.connect("far", target)
    connection.abort()
    await connection.wait_closed()
    assert tries == 3 and len(asked) == 1


def connect(server: SshServer) -> asyncssh.misc._ACMWrapper[asyncssh.SSHClientConnection]:
    """Log in with the server's own key, and nothing of who runs the tests."""
    return asyncssh.connect(
        "127.0.0.1",
        server.port,
        username=server.user,
        client_keys=None if server.password else [str(server.client_key.path)],
        password=server.password,
        known_hosts=str(server.known_hosts),
        config=None,
        agent_path=None,
    )


async def gone(process: Process) -> bool:
    """Wait, beside the loop, until a process has ended."""
    return await asyncio.to_thread(proc.wait_gone, process)


async def test_logins_at_once_are_measured(ssh_server: SshServer) -> None:
    """`peak_logins` is the number of clients that were logging in at the same time."""
    ssh_server.login_delay = 0.3
    connections = await asyncio.gather(*(connect(ssh_server) for _ in range(4)))
    for connection in connections:
        connection.close()
    ssh_server.login_delay = 0.0
    async with connect(ssh_server):
        assert (ssh_server.relay.peak_logins, ssh_server.logins) == (4, 5)


async def test_dropped_connection_ends_input_and_spares_the_command(ssh_server: SshServer) -> None:
    """A command whose client was cut off sees the end of its input, and no signal."""
    async with connect(ssh_server) as connection:
        process = await connection.create_process("echo $$; cat; echo end > told; exec sleep 1000")
        pid = int(await process.stdout.readline())
        child = proc.read(pid)
        assert child is not None
        ssh_server.drop_connections()
        await asyncio.wait_for(connection.wait_closed(), PATIENCE)
    told = ssh_server.home / "told"
    await until(lambda: told.exists() and told.read_text() == "end\n", "its input has ended")
    assert proc.signal_process(child, signal.SIGKILL)
    assert await gone(child)


async def test_pulled_wire_is_silent_and_a_healed_one_loses_nothing(ssh_server: SshServer) -> None:
    """While pulled nothing passes in either direction; afterwards every byte arrives."""
    async with connect(ssh_server) as connection:
        process = await connection.create_process("cat", encoding=None)
        ssh_server.pull()
        process.stdin.write(b"through\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.stdout.readline(), 0.3)
        ssh_server.heal()
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"through\n"
