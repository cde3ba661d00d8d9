"""Hosts that want more than a key, or something else: what a login says without a person, and what
a person is asked."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import AuthError
from launcher.hosts.auth_prompt import AuthPrompt
from launcher.hosts.ssh import SshConnector
from launcher.plan.run_plan import SshTarget
from tests.support import command
from tests.support.cluster_texts import cluster_text
from tests.support.patience import PATIENCE
from tests.testbed import faults, inprocess
from tests.testbed.host import Host
from tests.testbed.inprocess import SshServer
from tests.testbed.namespaces import Testbed

WORD = "correct horse"
PAM = "UsePAM yes\nKbdInteractiveAuthentication yes\nPermitRootLogin yes\n"
CODE = f"{PAM}AuthenticationMethods publickey,keyboard-interactive"
PASSWORD = "PermitRootLogin yes\nPubkeyAuthentication no\nPasswordAuthentication yes"
EXPIRED = "19000:0:99999:7::10:"
Table = Mapping[str, str]


def tables(bed: Testbed, **change: Table) -> dict[str, dict[str, str]]:
    """The tables of the hosts; `change` has keys of some."""
    return {
        host.name: {
            "ssh": f"{host.account.name}@{host.address}",
            "identity": str(bed.directory / "id_ed25519"),
            "known_hosts": str(bed.directory / "known_hosts"),
            "address": host.name,
            "python": host.python,
        }
        | dict(change.get(host.name, {}))
        for host in bed
    }


def told(bed: Testbed, folder: Path, **change: Table) -> dict[str, str]:
    """What `check` says of each host that cannot be logged in to; `up` says the same, and both end
    with 3."""
    hosts = tables(bed, **change)
    file = str(command.write(folder, cluster_text({"w": " ".join(hosts)}, hosts=hosts, workdir="")))
    checked = command.run("check", file, "--json")
    found = {
        each["host"]: f"{each['sentence']}; {each['todo']}"
        for each in json.loads(checked.stdout)["findings"]
        if each["code"] == "login-refused"
    }
    launched = command.run("up", "--headless", file)
    assert (checked.returncode, launched.returncode) == (3, 3), launched.stderr
    lines = launched.stderr.splitlines()
    missing = [h for h, text in found.items() if f"tfmux: {h} refused: {text}" not in lines]
    assert missing == [], (found, lines)
    return found


def accept_only(host: Host, public: str) -> None:
    """Has one key accepted there."""
    host.write(f"{host.account.home}/.ssh/authorized_keys", public, mode=0o600)


def security_key(path: Path) -> Path:
    """Makes the file of a key that a token holds, which is not plugged in."""

    def text(data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + data

    kind = b"sk-ssh-ed25519@openssh.com"
    public = text(kind) + text(os.urandom(32)) + text(b"ssh:")
    private = bytes(8) + public + b"\x01" + text(os.urandom(64)) + text(b"") + text(b"token")
    private += bytes(range(1, -len(private) % 8 + 1))
    file = b"openssh-key-v1\0" + text(b"none") * 2 + text(b"") + struct.pack(">I", 1)
    lines = base64.encodebytes(file + text(public) + text(private)).decode()
    path.write_text(
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}-----END OPENSSH PRIVATE KEY-----\n"
    )
    path.chmod(0o600)
    path.with_suffix(".pub").write_text(f"{kind.decode()} {base64.b64encode(public).decode()}\n")
    return path


def test_what_a_server_still_wants_is_said_where_nobody_can_be_asked(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Given hosts that want a code beside the key, a password, another key, a key of this machine,
    a token, a passphrase, or let nobody in, some behind a jump host, when `check` and `up
    --headless` log in, then both say what was accepted, what is wanted, and a way that helps."""
    tf1, tf2, tf3, tf4 = testbed
    accepted = r"the key \S+/id_ed25519 \(ssh-ed25519 SHA256:\S+\) was accepted, and the server"
    screen = "; nobody has answered; launch it on a screen, which asks "

    faults.set_login(tf1, CODE, WORD)
    faults.set_login(tf2, PASSWORD, WORD)
    both = "PasswordAuthentication yes\nAuthenticationMethods publickey,password"
    faults.set_login(tf3, both, WORD)
    faults.set_login(tf4, "AuthenticationMethods publickey,publickey")
    said = told(testbed, tmp_path)
    assert re.search(rf"{accepted} also wants answers to its own questions", said["tf1"])
    assert f"one-time code (keyboard-interactive){screen}" in said["tf1"]
    assert f'"ssh", "-T", "root@{tf1.address}", "{{command}}"]' in said["tf1"]
    assert f": the server accepts no key here, it wants a password{screen}" in said["tf2"]
    assert re.search(rf"{accepted} also wants a password{screen}", said["tf3"])
    assert re.search(rf"{accepted} also wants another key; name another", said["tf4"])
    assert not any("authorized_keys" in text for text in said.values())

    faults.set_login(tf2, "HostbasedAuthentication yes\nAuthenticationMethods hostbased")
    faults.set_login(tf3, "UsePAM yes", WORD, EXPIRED)
    faults.set_login(tf4, "PasswordAuthentication yes", WORD)
    said = told(testbed, tmp_path, tf4={"jump": f"root@{tf1.address}"})
    assert "no key here, it wants a host key of this machine (hostbased); if ssh" in said["tf2"]
    assert f"{tf3.address} accepted the key {testbed.directory}/id_ed25519 (" in said["tf3"]
    assert "closed the connection without an answer; the account tfuser may have " in said["tf3"]
    assert f"permission denied for root on the jump host {tf1.address}: the key" in said["tf4"]
    assert f"(keyboard-interactive){screen}" in said["tf4"]
    way = f'"ssh", "-T", "-J", "root@{tf1.address}", "tfuser@{tf4.address}", "{{command}}"]'
    assert way in said["tf4"]

    token, locked = security_key(tmp_path / "token"), tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", WORD, "-f", locked], check=True)
    faults.set_login(tf2, "DenyUsers root")
    faults.set_login(tf3, "PasswordAuthentication yes\nKbdInteractiveAuthentication yes", WORD)
    accept_only(tf3, "")
    accept_only(tf4, token.with_suffix(".pub").read_text())
    said = told(testbed, tmp_path, tf1={"identity": str(locked)}, tf4={"identity": str(token)})
    assert f"{locked} has a passphrase and could not be unlocked; unlock it" in said["tf1"]
    assert "no key was accepted (tried " in said["tf2"] and "sshd's log says why" in said["tf2"]
    assert "would accept a password or answers to its own questions" in said["tf3"]
    assert "put the public key into ~/.ssh/authorized_keys" in said["tf3"]
    assert f"the server accepts the key {token} (sk-ssh-" in said["tf4"]
    assert "could not sign here" in said["tf4"] and "(ssh-add), and touch" in said["tf4"]


class Person:
    """Gives one answer after the other, the last for ever."""

    def __init__(self, *answers: str | None) -> None:
        self._answers = list(answers)
        self.asked: list[AuthPrompt] = []

    async def __call__(self, question: AuthPrompt) -> str | None:
        self.asked.append(question)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def refusal(to: SshTarget, person: Person) -> str:
    """Why a person is not let in; empty where he is."""
    logins = SshConnector(person)
    try:
        async with asyncio.timeout(PATIENCE):
            await logins.connect("far", to)
    except AuthError as error:
        return str(error)
    finally:
        await logins.aclose()
    return ""


async def test_a_person_is_asked_for_the_second_factor(testbed: Testbed) -> None:
    """Given hosts that want a code or a password beside the key, one behind the other, then a
    person who knows it gets in, is asked once for each, unseen; who does not is asked three times
    at most, and is told that the answers were refused, not the key."""
    tf1, tf3 = testbed["tf1"], testbed["tf3"]
    faults.set_login(tf1, CODE, WORD)
    both = "PasswordAuthentication yes\nAuthenticationMethods publickey,password"
    faults.set_login(tf3, both, WORD)
    files = str(testbed.directory / "id_ed25519"), str(testbed.directory / "known_hosts")
    first = SshTarget("root", tf1.address, 22, files[0], None, files[1])
    behind = SshTarget("tfuser", tf3.address, 22, files[0], f"root@{tf1.address}", files[1])
    person = Person(WORD)
    assert await refusal(behind, person) == ""
    assert [question.secret for question in person.asked] == [True, True]
    assert "Password" in person.asked[0].text
    for to in (first, replace(behind, jump=None)):
        person = Person("wrong")
        said = await refusal(to, person)
        assert "was accepted, and the server also wants" in said, said
        assert "what was typed was refused (3 answers); check what was typed" in said, said
        assert len(person.asked) == 3
    person = Person(None)
    assert "; nobody has answered; launch it on a screen" in await refusal(first, person)
    assert len(person.asked) == 1


@pytest.mark.parametrize("prompts", [0, 1, 20])
async def test_a_server_that_asks_without_end_is_given_up(
    ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch, prompts: int
) -> None:
    """Given a server that answers each answer with other questions, none or thousands, all of them
    hostile text, then a person is asked a bounded number of times, in printable text."""
    text = "\x1b]52;c;x\x07" + "code " * 1000
    challenge = ("name", "", "", [(text, True)] * prompts)
    ssh_server.password, ssh_server.interactive = WORD, True
    monkeypatch.setattr(inprocess._Login, "get_kbdint_challenge", lambda *_: challenge)
    monkeypatch.setattr(inprocess._Login, "validate_kbdint_response", lambda *_: challenge)
    known = str(ssh_server.known_hosts)
    identity = str(ssh_server.client_key.path)
    to = SshTarget(ssh_server.user, "127.0.0.1", ssh_server.port, identity, None, known)
    person = Person("right")
    assert "permission denied for" in await refusal(to, person)
    assert len(person.asked) <= 20
    assert all(each.text.isprintable() and len(each.text) <= 1000 for each in person.asked)


def test_the_way_that_is_advised_leads_there(testbed: Testbed, tmp_path: Path) -> None:
    """Given a host that wants a code, a connection that a person has opened with ssh, and the `via`
    of the message with the socket of that, then a run without anybody to ask succeeds there."""
    tf1 = testbed["tf1"]
    faults.set_login(tf1, CODE, WORD)
    said = told(testbed, tmp_path)["tf1"]
    (found,) = re.findall(r"via = (\[[^]]*\])", said)
    config, shared = tmp_path / "config", tmp_path / "shared"
    config.write_text(
        f"IdentityFile {testbed.directory}/id_ed25519\n"
        f"UserKnownHostsFile {testbed.directory}/known_hosts\nControlPath {shared}\n"
    )
    helper = tmp_path / "answer"
    helper.write_text(f"#!/bin/sh\necho {WORD}\n")
    helper.chmod(0o755)
    ours = ["-F", str(config)]
    env = os.environ | {"SSH_ASKPASS": str(helper), "SSH_ASKPASS_REQUIRE": "force"}
    place = f"root@{tf1.address}"
    subprocess.run(["ssh", *ours, "-M", "-f", "-N", place], env=env, check=True, timeout=PATIENCE)
    try:
        ssh, *rest = json.loads(found)
        host = {"via": [ssh, *ours, *rest], "address": "tf1", "python": tf1.python}
        table = {"tf1": {**host, "via": None}}
        text = cluster_text({"w": "tf1"}, hosts=table, workdir="", command=["uname", "-n"])
        text = text.replace("[hosts.tf1]", f"[hosts.tf1]\nvia = {json.dumps(host['via'])}")
        done = command.run("up", "--headless", str(command.write(tmp_path, text)))
        assert done.returncode == 0 and "tf1" in done.stdout, done
    finally:
        subprocess.run(["ssh", *ours, "-O", "exit", place], check=True, capture_output=True)
