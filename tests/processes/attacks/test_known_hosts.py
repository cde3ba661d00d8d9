"""Trust in host keys: revoked, unknown, changed, odd and very many lines of known_hosts."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import asyncssh
import pytest

from launcher.errors import HostKeyError, UnreachableError
from launcher.hosts.host_keys import accepted_keys
from tests.support import command
from tests.support.clients import Clients, Person
from tests.testbed import keys


def another_key(folder: Path) -> str:
    """Type and base64 of a key that is not the server's."""
    return " ".join(keys.make_key(folder / "other", "other").public.split()[:2])


async def refused(clients: Clients, match: str, code: str, *, accept_new: bool = True) -> str:
    """Neither client logs in; returns our sentence."""
    theirs = await asyncio.to_thread(clients.openssh)
    assert theirs.returncode == 255, theirs
    with pytest.raises((HostKeyError, UnreachableError), match=match) as told:
        await clients.ours(Person("yes"), accept_new=accept_new)
    assert told.value.code == code
    assert clients.server.logins == 0
    return str(told.value)


# --- revoked ----------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["*", "PLACE"])
async def test_a_revoked_line_of_known_hosts_is_named(clients: Clients, names: str) -> None:
    """Given a line of known_hosts with `@revoked` and one that trusts the same key, when `ssh` and
    the launcher log in, then both refuse the host, and the error names file and line."""
    names = names.replace("PLACE", clients.place)
    with clients.known_hosts.open("a") as file:
        file.write(f"@revoked {names} {clients.host_key}\n")
    said = await refused(clients, "revoked", "key-refused")
    assert f"{clients.known_hosts}:2" in said


# --- authorities ------------------------------------------------------------------------------


class Authority:
    """Signs the server's key."""

    def __init__(self, clients: Clients, principal: str) -> None:
        self._ca = asyncssh.generate_private_key("ssh-ed25519")
        self.line = self._ca.export_public_key().decode().strip()
        server = clients.server
        host_key = asyncssh.read_private_key(server.host_key.path)
        made = self._ca.generate_host_certificate(host_key, "id", principals=[principal])
        acceptor = server._acceptor
        assert acceptor is not None
        server._call(lambda: acceptor.update(server_host_keys=[(host_key, made)]))


async def test_an_authority_vouches_for_the_name(clients: Clients) -> None:
    """Given a `@cert-authority` in known_hosts and a host with a certificate of it for its name,
    when `ssh` and the launcher log in, then both get in."""
    authority = Authority(clients, "127.0.0.1")
    clients.known_hosts.write_text(f"@cert-authority {clients.place} {authority.line}\n")
    assert (await asyncio.to_thread(clients.openssh)).returncode == 0
    await clients.ours()


async def test_a_certificate_of_another_host_is_refused(clients: Clients) -> None:
    """Given a trusted authority and a host with a certificate of it for another name, when `ssh`
    and the launcher log in, then both refuse the host."""
    authority = Authority(clients, "elsewhere.example.org")
    clients.known_hosts.write_text(f"@cert-authority {clients.place} {authority.line}\n")
    await refused(clients, "cannot be trusted", "key-refused")


@pytest.mark.parametrize("whose", ["the authority's", "the host's"])
async def test_a_certificate_with_a_revoked_key_is_refused(clients: Clients, whose: str) -> None:
    """Given a certificate whose own key or whose authority's has a line with `@revoked`, when `ssh`
    and the launcher log in, then both refuse the host, and the error names file and line."""
    authority = Authority(clients, "127.0.0.1")
    line = authority.line if whose == "the authority's" else clients.host_key
    clients.known_hosts.write_text(
        f"@cert-authority {clients.place} {authority.line}\n@revoked * {line}\n"
    )
    said = await refused(clients, "revoked", "key-refused")
    assert f"{clients.known_hosts}:2" in said


async def test_a_certificate_of_nobody_known_is_a_first_contact(clients: Clients) -> None:
    """Given a host with a certificate of an unknown authority, when the launcher logs in with
    `--accept-new`, then it gets in as `ssh` does, and the plain key is put on file."""
    Authority(clients, "127.0.0.1")
    clients.known_hosts.unlink()
    theirs = await asyncio.to_thread(clients.openssh, "-o", "StrictHostKeyChecking=accept-new")
    assert theirs.returncode == 0, theirs
    clients.known_hosts.unlink()
    await clients.ours(accept_new=True)
    assert accepted_keys().read_text() == f"{clients.place} {clients.host_key}\n"


# --- names and addresses ----------------------------------------------------------------------


async def test_a_key_known_for_an_address_is_not_trusted_for_a_name(clients: Clients) -> None:
    """Given a key known for an address, when the launcher logs in by a name, then it asks, says
    where the key is known, and refuses after a no. Only the name counts, as for `ssh`."""
    clients.configure("HostName localhost", "AddressFamily inet")
    theirs = await asyncio.to_thread(clients.openssh)
    assert theirs.returncode == 255 and "Host key verification failed" in theirs.stderr
    person = Person("no")
    with pytest.raises(HostKeyError, match="not known here") as told:
        await clients.ours(person)
    assert f"known as {clients.place} ({clients.known_hosts}:1)" in str(told.value)
    (question,) = person.asked
    assert f"[localhost]:{clients.server.port}" in question.text
    assert f"The same key is known as {clients.place} ({clients.known_hosts}:1)" in question.text
    assert clients.server.logins == 0


async def test_another_key_of_the_address_does_not_matter(clients: Clients, tmp_path: Path) -> None:
    """Given a re-used address: known_hosts has the name with the new key and the address with the
    old one; when `ssh` and the launcher log in by the name, then both get in."""
    port = clients.server.port
    clients.known_hosts.write_text(
        f"{clients.place} {another_key(tmp_path)}\n[localhost]:{port} {clients.host_key}\n"
    )
    clients.configure("HostName localhost", "AddressFamily inet")
    assert (await asyncio.to_thread(clients.openssh)).returncode == 0
    await clients.ours()


async def test_check_host_ip_looks_at_the_address_too(clients: Clients, tmp_path: Path) -> None:
    """Given a name known with the new key, its address with the old one, and `CheckHostIP yes`,
    when the launcher logs in, then the key has changed, and the remedy is about the address."""
    port = clients.server.port
    clients.known_hosts.write_text(
        f"{clients.place} {another_key(tmp_path)}\n[localhost]:{port} {clients.host_key}\n"
    )
    clients.configure("HostName localhost", "AddressFamily inet", "CheckHostIP yes")
    with pytest.raises(HostKeyError, match="HAS CHANGED") as told:
        await clients.ours(accept_new=True)
    assert f"-R '{clients.place}'" in told.value.todo


@pytest.mark.parametrize("known_as", ["far-away", "PLACE"])
async def test_an_alias_stands_alone(clients: Clients, known_as: str) -> None:
    """Given a `HostKeyAlias`, when `ssh` and the launcher log in, then both get in if the key is
    known for the alias, without a port, and not if it is known for the address."""
    clients.configure("HostKeyAlias Far-Away")
    clients.known_hosts.write_text(
        f"{known_as.replace('PLACE', clients.place)} {clients.host_key}\n"
    )
    theirs = await asyncio.to_thread(clients.openssh)
    if known_as == "far-away":
        assert theirs.returncode == 0
        await clients.ours()
        return
    assert theirs.returncode == 255
    with pytest.raises(HostKeyError, match="not known here"):
        await clients.ours()


@pytest.mark.parametrize(
    ("pattern", "trusted"),
    [
        ("[127.0.0.?]:PORT", True),
        ("*,![127.0.0.1]:PORT", True),
        ("![127.0.0.2]:PORT,*", True),
        ("![127.0.0.1]:PORT", False),
        ("127.0.0.0/8", False),
        ("127.0.0.1", True),
        ("127.0.0.[1]", False),
        ("elsewhere", False),
    ],
)
async def test_patterns_mean_what_they_mean_to_ssh(
    clients: Clients, pattern: str, trusted: bool
) -> None:
    """Given a line of known_hosts with wildcards, negations, a network or no port, when `ssh` and
    the launcher log in, then both get in, or neither does."""
    pattern = pattern.replace("PORT", str(clients.server.port))
    clients.known_hosts.write_text(f"{pattern} {clients.host_key}\n")
    assert ((await asyncio.to_thread(clients.openssh)).returncode == 0) == trusted
    if trusted:
        await clients.ours()
    else:
        with pytest.raises(HostKeyError, match="not known here"):
            await clients.ours()


# --- changed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", ["plain", "hashed", "ours", "both", "alias", "wildcard", "two lines", "path"]
)
async def test_the_printed_command_helps(clients: Clients, tmp_path: Path, where: str) -> None:
    """Given a changed host key, known by one of eight kinds of lines, when the command in the error
    is run, then the next login is a first contact again, and the new key is put on file."""
    old = another_key(tmp_path)
    user = clients.known_hosts
    if where == "path":
        user = tmp_path / "it's a $(path)"
        clients.configure(f'UserKnownHostsFile /dev/null "{user}"')
    if where == "alias":
        clients.configure("HostKeyAlias the-machine")
    place = "the-machine" if where == "alias" else clients.place
    line = f"# first\n{place} {old}\n"
    user.write_text("" if where == "ours" else line)
    if where == "hashed":
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", user], check=True, capture_output=True)
    if where == "two lines":
        ecdsa = asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_public_key().decode()
        user.write_text(f"{line}x,{place} {ecdsa}")
    if where == "wildcard":
        user.write_text(f"[127.0.0.*]:{clients.server.port} {old}\n")
    if where in ("ours", "both"):
        accepted_keys().parent.mkdir(parents=True, exist_ok=True)
        accepted_keys().write_text(f"{place} {old}\n")
    theirs = await asyncio.to_thread(clients.openssh)
    assert theirs.returncode == 255
    with pytest.raises(HostKeyError, match="HAS CHANGED") as told:
        await clients.ours(Person("yes"), accept_new=True)
    if where not in ("ours", "wildcard"):
        assert f"{user.name}:2" in told.value.what
    (printed,) = re.findall("`([^`]*)`", told.value.todo)
    assert all(word.endswith("ssh-keygen") for word in shlex.split(printed)[:1])
    done = subprocess.run(printed, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done
    await clients.ours(accept_new=True)
    await clients.ours()
    assert clients.host_key in accepted_keys().read_text()


async def test_a_changed_key_behind_an_authority_says_where(clients: Clients) -> None:
    """Given a host known by its authority, when it shows a new key without a certificate, then the
    error names the authority's file and line. No command removes an authority."""
    authority = Authority(clients, "127.0.0.1")
    server = clients.server
    clients.known_hosts.write_text(f"@cert-authority {clients.place} {authority.line}\n")
    server.new_host_key()
    with pytest.raises(HostKeyError) as told:
        await clients.ours(accept_new=True)
    assert f"{clients.known_hosts}:1" in str(told.value)


ODD = {
    "bad base64": b"far ssh-ed25519 AAAA!!!!\n",
    "cut off": b"far ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA\n",
    "unknown key type": b"far ssh-unheard-of AAAAEHNzaC11bmhlYXJkLW9m\n",
    "unknown marker": b"@trusted far ssh-ed25519 AAAA\n",
    "empty marker": b"@ far ssh-ed25519 AAAA\n",
    "marker alone": b"@revoked\n",
    "one word": b"far\n",
    "two words": b"far ssh-ed25519\n",
    "binary": bytes(range(256)) * 3 + b"\n",
    "not text": b"\xff\xfe\x00f\x00a\x00r\n",
    "very long": b"x" * 3_000_000 + b" ssh-ed25519 AAAA\n",
    "odd hash": b"|1|nonsense ssh-ed25519 AAAA\n",
    "hash of another kind": b"|2|AAAA|AAAA ssh-ed25519 AAAA\n",
    "SSH 1": b"far 1024 35 1234567890\n",
}


NOTED = {
    "unknown marker",
    "empty marker",
    "marker alone",
    "one word",
    "two words",
    "binary",
    "not text",
}
"""Keys that asyncssh does not know are skipped without a note, as by `ssh`."""


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_line_is_skipped(clients: Clients, name: str) -> None:
    """Given an odd line of known_hosts before the host's own, when `ssh` and the launcher log in,
    then both get in; what is no line at all has a short note with file and number."""
    good = clients.known_hosts.read_bytes()
    clients.known_hosts.write_bytes(b"# comment\n" + ODD[name] + good)
    assert (await asyncio.to_thread(clients.openssh)).returncode == 0
    await clients.ours()
    assert clients.server.logins == 2
    noted = name in NOTED
    assert [note.startswith(f"{clients.known_hosts}:2: ") for note in clients.notes] == [
        True
    ] * noted
    assert all(len(note) < 300 for note in clients.notes)


def test_check_names_file_and_line(clients: Clients, tmp_path: Path) -> None:
    """Given an odd line of known_hosts, when `tfmux check` logs in to two hosts, then it warns of
    that line once, with file and number, and goes on."""
    with clients.known_hosts.open("a") as file:
        file.write("@trusted\tfar\n")
    tables = ""
    for name in ("one", "two"):
        tables += (
            f'[hosts.{name}]\nssh = "far"\naddress = "127.0.0.1"\npython = "{sys.executable}"\n'
        )
    text = '[jobs.worker]\ntasks = ["one:auto", "two:auto"]\nready = "started"\n'
    text += '[run]\ncommand = ["{python}", "x.py"]\nworkdir = ""\n'
    cluster = command.write(tmp_path, tables + text)
    done = command.run("check", str(cluster))
    assert f"{clients.known_hosts}:2: not a line of known_hosts" in done.stdout
    assert done.stdout.count("[known-hosts-odd]") == 1, done.stdout
    assert clients.server.logins == 2


async def test_ten_thousand_lines_are_read_quickly(clients: Clients) -> None:
    """Given ten thousand hashed lines of known_hosts before the host's own, when the launcher logs
    in, then that takes less than five seconds of a processor's time."""
    good = clients.known_hosts.read_text()
    hashed = "|1|" + "A" * 27 + "=|" + "B" * 27 + "=" + f" {clients.host_key}\n"
    clients.known_hosts.write_text(hashed * 10_000 + good)
    theirs = await asyncio.to_thread(clients.openssh)
    assert theirs.returncode == 0
    began = time.process_time()  # of a busy machine others take the rest
    await clients.ours()
    assert time.process_time() - began < 5
    assert os.path.getsize(clients.known_hosts) > 1_000_000
