"""Odd, unsupported and very many lines of known_hosts."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from tests.support import command
from tests.support.clients import Clients

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
