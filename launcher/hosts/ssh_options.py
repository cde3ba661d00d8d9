"""Options of ssh_config, translated for a login with asyncssh: `docs/ssh.md` has the table.

Options that change who is trusted or where we connect are honoured or refused, never skipped.
asyncssh gets each value as an argument and reads no file itself.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import (
    get_certificate_algs,
    get_default_public_key_algs,
    get_public_key_algs,
)

from ..errors import TfmuxError, UnreachableError
from ..paths import expand_user
from .credentials import USUAL_KEYS
from .host_keys import KnownHosts
from .ssh_config import SshConfig, account_home

REFUSED = (
    "bindinterface",
    "knownhostscommand",
    "proxyusefdpass",
    "refuseconnection",
)
"""Options that decide who is trusted or where we connect, and that are not supported."""

_SWITCHES = {
    "passwordauthentication": "password_auth",
    "kbdinteractiveauthentication": "kbdint_auth",
    "challengeresponseauthentication": "kbdint_auth",
    "hostbasedauthentication": "host_based_auth",
    "tcpkeepalive": "tcp_keepalive",
}
_OFF_BY_DEFAULT = {
    "gssapiauthentication": "gss_auth",
    "gssapikeyexchange": "gss_kex",
    "gssapidelegatecredentials": "gss_delegate_creds",
}
_FAMILIES = {
    "inet": socket.AF_INET,
    "inet6": socket.AF_INET6,
    str(int(socket.AF_INET)): socket.AF_INET,
    str(int(socket.AF_INET6)): socket.AF_INET6,
}


def _host_key_algs() -> list[bytes]:
    return [*get_certificate_algs(), *get_public_key_algs()]


_ALGORITHMS: dict[str, tuple[str, Callable[[], list[bytes]]]] = {
    "ciphers": ("encryption_algs", get_encryption_algs),
    "hostkeyalgorithms": ("server_host_key_algs", _host_key_algs),
    "kexalgorithms": ("kex_algs", get_kex_algs),
    "macs": ("mac_algs", get_mac_algs),
}
_UNSAFE_IN_SHELL = re.compile(r"""['"`$\\;&<>|(){}\s]|^-""")


def refuse_unsupported(name: str, config: SshConfig) -> None:
    """Refuses what would be trusted, or connected to, otherwise than `ssh` does it.

    Raises:
        UnreachableError: names the option and its file and line.
    """
    for option in REFUSED:
        if config.differs(option) and config.get(option) and config.get(option).lower() != "no":
            what = f"{config.where(option)} is not supported, and without it another host may be "
            what += "reached or trusted"
            raise unsupported(name, what)


def unsupported(name: str, what: str) -> UnreachableError:
    """An option that cannot be honoured."""
    todo = "remove the option for this host"
    return UnreachableError(name, what, code="ssh-config", todo=todo)


def arguments(name: str, alias: str, config: SshConfig, identity: str | None) -> dict[str, Any]:
    """The arguments of asyncssh's options for a host that the cluster file calls `alias`.

    Raises:
        UnreachableError: an option cannot be honoured.
    """
    refuse_unsupported(name, config)
    given: dict[str, Any] = {
        "config": None,
        "host": config.get("hostname") or alias,
        "port": int(config.get("port")),
        "username": config.get("user"),
        "family": _FAMILIES.get(config.get("addressfamily").lower(), socket.AF_UNSPEC),
        "tunnel": None,
        "request_pty": False,
        "send_env": list(config.all("sendenv")),
        "env": list(config.all("setenv")),
        # Half the processor time of ChaCha20, which asyncssh would take first: 0.75 s a GB of logs.
        "encryption_algs": "^*-gcm@openssh.com",
    }
    for option, argument in _OFF_BY_DEFAULT.items():
        given[argument] = config.on(option)
    for option, argument in _SWITCHES.items():
        if config.differs(option):
            given[argument] = config.on(option)
    for option, (argument, known) in _ALGORITHMS.items():
        if config.differs(option):
            given[argument] = _algorithms(name, config, option, known())
    if config.differs("pubkeyauthentication"):  # also `unbound`, `host-bound`
        given["public_key_auth"] = config.get("pubkeyauthentication").lower() not in ("no", "false")
    if config.on("compression"):
        given["compression_algs"] = "zlib@openssh.com,zlib,none"
    if config.get("preferredauthentications"):
        given["preferred_auth"] = config.get("preferredauthentications")
    if config.get("pkcs11provider"):
        given["pkcs11_provider"] = config.get("pkcs11provider")
    if (forwarded := config.get("forwardagent")).lower() not in ("", "no", "false"):
        given["agent_forwarding"] = True if config.on("forwardagent") else forwarded
    return given | _identities(name, alias, config, identity) | _way(name, alias, config)


def host_key_algs(known: KnownHosts, configured: list[str] | str | None) -> list[str] | None:
    """The kinds of host keys to ask a server for; None leaves it to asyncssh, which asks for
    the known ones.

    Without an authority a server's certificate would be no first contact, and with a list of
    the user's own a key of an unknown kind would look like a change.
    """
    if isinstance(configured, str) or (configured is None and known.any):
        return None
    certificates = {each.decode() for each in get_certificate_algs()}
    if not known.any:
        plain = configured or [each.decode() for each in get_default_public_key_algs()]
        return [each for each in plain if each not in certificates] or None
    kinds = {kind.decode() for key in known.trusted for kind in key.sig_algorithms}
    kinds |= certificates if known.authorities else set()
    return [each for each in configured or () if each in kinds] or None


def _algorithms(name: str, config: SshConfig, option: str, known: list[bytes]) -> list[str] | str:
    value = config.get(option)
    if value[:1] in ("+", "-", "^"):  # from asyncssh's parser; ssh -G has resolved it
        return value
    found = [each for each in value.split(",") if each.encode() in known]
    if not found:
        what = f"{config.where(option)} allows only what is not supported here ({value})"
        raise unsupported(name, what)
    return found


def _way(name: str, alias: str, config: SshConfig) -> dict[str, Any]:
    """Address to connect from, and a command to connect through."""
    way: dict[str, Any] = {}
    if config.get("bindaddress"):
        way["local_addr"] = (config.get("bindaddress"), 0)
    command = " ".join(config.all("proxycommand"))
    if command and command.lower() != "none":
        way["proxy_command"] = ["/bin/sh", "-c", f"exec {_expand(name, alias, config, command)}"]
    return way


def _expand(name: str, alias: str, config: SshConfig, text: str) -> str:
    """The tokens of ssh_config(5) in a command that a shell runs."""
    tokens = _tokens(alias, config)
    for token in "hnr":
        if f"%{token}" in text and _UNSAFE_IN_SHELL.search(tokens[token]):
            what = f"{config.where('proxycommand')}: {tokens[token]!r} holds characters that a "
            raise unsupported(name, what + "shell would act on")
    return _replaced(text, tokens)


def _tokens(alias: str, config: SshConfig) -> dict[str, str]:
    local = socket.gethostname()
    host = config.get("hostname") or alias
    return {
        "%": "%",
        "d": account_home(),
        "h": host,
        "i": str(os.getuid()),
        "k": config.get("hostkeyalias") or host,
        "L": local.split(".")[0],
        "l": local,
        "n": alias,
        "p": config.get("port"),
        "r": config.get("user"),
        "u": os.environ.get("USER", config.get("user")),
    }


def _replaced(text: str, tokens: dict[str, str]) -> str:
    return re.sub("%(.)", lambda found: tokens.get(found[1], found[0]), text)


def _paths(name: str, alias: str, config: SshConfig, option: str) -> list[str]:
    """The files that an option names, with its variables, tokens and `~`."""
    tokens = _tokens(alias, config)
    given = (text for text in config.all(option) if text != "none")
    texts = (re.sub(r"\$\{(\w+)\}", lambda m: os.environ.get(m[1], ""), text) for text in given)
    return [_in_home(name, config, option, _replaced(text, tokens)) for text in texts]


def _in_home(name: str, config: SshConfig, option: str, path: str) -> str:
    try:
        return str(expand_user(path))
    except TfmuxError as error:
        raise unsupported(name, f"{config.where(option)}: {error}") from error


def _identities(name: str, alias: str, config: SshConfig, identity: str | None) -> dict[str, Any]:
    """Keys, certificates and the agent."""
    found: dict[str, Any] = {"agent_path": _agent(name, config)}
    files = [] if identity is None else [identity]
    if identity is None and config.differs("identityfile"):
        files = _paths(name, alias, config, "identityfile")
        public = [path for path in files if path.endswith(".pub")]  # of keys in the agent
        private = [path for path in files if path not in public]
        found["ignore_encrypted"] = True
        # Empty: those of the agent alone, which asyncssh would take for the usual files.
        found["client_keys"] = [path for path in private if Path(path).exists()] or private
    elif files:
        found["client_keys"] = files
    if certificates := _paths(name, alias, config, "certificatefile"):
        found["client_certs"] = certificates
    if config.on("identitiesonly"):
        names = files or _paths(name, alias, config, "identityfile")
        names = names or [os.path.expanduser(path) for path in USUAL_KEYS]
        public = [each if each.endswith(".pub") else f"{each}.pub" for each in names]
        public = [path for path in public if Path(path).exists()]
        found["agent_identities"] = public
        if not public:
            found["agent_path"] = None
    return found


def _agent(name: str, config: SshConfig) -> str | None:
    where = config.get("identityagent")
    if not where:
        named = config.all("identityagent")
        return None if named else os.environ.get("SSH_AUTH_SOCK")
    if where == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK")
    if where.startswith("$"):
        return os.environ.get(where.strip("${}"))
    return _in_home(name, config, "identityagent", where)


def known_hosts_files(config: SshConfig) -> list[str]:
    """The user's and the system's files with the keys of hosts, in the order of their reading."""
    user = _files(config, "userknownhostsfile", ".ssh/known_hosts", ".ssh/known_hosts2")
    system = _files(config, "globalknownhostsfile", "ssh_known_hosts", "ssh_known_hosts2")
    return user + system


def _files(config: SshConfig, option: str, *usual: str) -> list[str]:
    if not config.differs(option):
        home = Path("~").expanduser() if usual[0].startswith(".ssh") else Path("/etc/ssh")
        return [str(home / name) for name in usual]
    text = " ".join(config.all(option))
    return [path for path in _split(text.split(" ")) if path.lower() != "none"]


def _split(words: list[str]) -> list[str]:
    """Paths that `ssh -G` has put on one line without quotes: a blank within one is told from
    one between two by which files there are."""
    if not words:
        return []
    for end in range(len(words), 1, -1):
        path = os.path.expanduser(" ".join(words[:end]))
        if os.path.exists(path):
            return [path, *_split(words[end:])]
    return [os.path.expanduser(words[0]), *_split(words[1:])]


def key_files(given: dict[str, Any]) -> list[str]:
    """The key files that a login looks at."""
    named = given.get("client_keys", USUAL_KEYS) or []
    return [each for each in named if isinstance(each, str)]
