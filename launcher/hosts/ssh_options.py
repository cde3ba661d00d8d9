"""Options of ssh_config: what becomes of each, in one table, and their values for asyncssh.

Options that change who is trusted or where we connect are honoured or refused, never skipped, and
so is an option that this table does not know. asyncssh gets each value as an argument and reads no
file itself. The way for a host with an option that is refused is `ssh` itself.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import TfmuxError, UnreachableError
from ..frozen import frozen
from ..paths import expand_user
from .credentials import USUAL_KEYS
from .host_keys import KnownHosts
from .ssh_config import SshConfig, account_home
from .ssh_library import asyncssh

_FAMILIES = {
    "inet": socket.AF_INET,
    "inet6": socket.AF_INET6,
    str(int(socket.AF_INET)): socket.AF_INET,
    str(int(socket.AF_INET6)): socket.AF_INET6,
}
_UNSAFE_IN_SHELL = re.compile(r"""['"`$\\;&<>|(){}\s]|^-""")

Values = Mapping[str, Any]
"""Arguments of asyncssh's options."""


@frozen
class Use:
    """What becomes of an option that a file sets."""

    translate: Callable[[SshConfig, str], Values] | None = None
    """Its arguments for asyncssh; None where the option is honoured elsewhere, or ignored."""
    refused: bool = False


def unsupported(config: SshConfig, what: str) -> UnreachableError:
    """An option that cannot be honoured: `ssh` itself can."""
    words = json.dumps(["ssh", "-T", config.alias, "{command}"])
    todo = f"remove the option for this host, or write via = {words} instead of ssh"
    return UnreachableError(config.host, what, code="ssh-config", todo=todo)


# --- values -------------------------------------------------------------------------------


def _switch(argument: str) -> Use:
    return Use(lambda config, option: {argument: config.on(option)})


def _text(argument: str) -> Use:
    return Use(lambda config, option: {argument: config.get(option)} if config.get(option) else {})


def _algorithms(argument: str, known: Callable[[], list[bytes]]) -> Use:
    def translate(config: SshConfig, option: str) -> Values:
        value = config.get(option)
        if value[:1] in ("+", "-", "^"):  # from asyncssh's parser; ssh -G has resolved it
            return {argument: value}
        supported = known()
        found = [each for each in value.split(",") if each.encode() in supported]
        if not found:
            what = f"{config.where(option)} allows only what is not supported here ({value})"
            raise unsupported(config, what)
        return {argument: found}

    return Use(translate)


def _host_key_algorithms() -> list[bytes]:
    return [*asyncssh.public_key.get_certificate_algs(), *asyncssh.public_key.get_public_key_algs()]


def _public_key(config: SshConfig, option: str) -> Values:
    return {"public_key_auth": config.get(option).lower() not in ("no", "false")}  # `host-bound`


def _compression(config: SshConfig, option: str) -> Values:
    return {"compression_algs": "zlib@openssh.com,zlib,none"} if config.on(option) else {}


def _forward_agent(config: SshConfig, option: str) -> Values:
    value = config.get(option)
    if value.lower() in ("", "no", "false"):
        return {}
    return {"agent_forwarding": True if config.on(option) else value}


def _bind_address(config: SshConfig, option: str) -> Values:
    return {"local_addr": (config.get(option), 0)} if config.get(option) else {}


def _proxy_command(config: SshConfig, option: str) -> Values:
    command = " ".join(config.all(option))
    if not command or command.lower() == "none":
        return {}
    tokens = _tokens(config)
    for token in "hnr":
        if f"%{token}" in command and _UNSAFE_IN_SHELL.search(tokens[token]):
            what = f"{config.where(option)}: {tokens[token]!r} holds characters that a "
            raise unsupported(config, what + "shell would act on")
    return {"proxy_command": ["/bin/sh", "-c", f"exec {_replaced(command, tokens)}"]}


def _certificates(config: SshConfig, option: str) -> Values:
    return {"client_certs": found} if (found := _paths(config, option)) else {}


# --- the table ----------------------------------------------------------------------------

_ELSEWHERE = Use()
"""Honoured, by a look at the option where it matters."""
_HARMLESS = Use()
"""Ignored: who is trusted, where we connect and what runs does not depend on it."""
_REFUSED = Use(refused=True)


def _table(use: Use, names: str) -> dict[str, Use]:
    return dict.fromkeys(names.split(), use)


OPTIONS: Mapping[str, Use] = {
    # Which options hold, where we connect and as whom: `ssh -G` has decided, and `arguments`.
    **_table(
        _ELSEWHERE,
        "host hostname port user addressfamily tag ignoreunknown canonicaldomains "
        "canonicalizehostname canonicalizefallbacklocal canonicalizemaxdots "
        "canonicalizepermittedcnames",
    ),
    "proxyjump": _ELSEWHERE,  # ssh._find_way
    "proxycommand": Use(_proxy_command),
    "bindaddress": Use(_bind_address),
    "connecttimeout": _ELSEWHERE,  # dial
    **_table(_REFUSED, "bindinterface proxyusefdpass refuseconnection"),
    # Trust in the host.
    **_table(
        _ELSEWHERE,  # ssh.SshConnector, host_keys.KnownHosts
        "stricthostkeychecking hostkeyalias checkhostip userknownhostsfile globalknownhostsfile "
        "requiredrsasize casignaturealgorithms verifyhostkeydns nohostauthenticationforlocalhost",
    ),
    "hostkeyalgorithms": _algorithms("server_host_key_algs", _host_key_algorithms),
    **_table(_REFUSED, "knownhostscommand revokedhostkeys"),
    **_table(_HARMLESS, "updatehostkeys hashknownhosts visualhostkey fingerprinthash"),
    # The connection.
    "ciphers": _algorithms("encryption_algs", asyncssh.encryption.get_encryption_algs),
    "kexalgorithms": _algorithms("kex_algs", asyncssh.kex.get_kex_algs),
    "macs": _algorithms("mac_algs", asyncssh.mac.get_mac_algs),
    "compression": Use(_compression),
    "tcpkeepalive": _switch("tcp_keepalive"),
    **_table(
        _HARMLESS,
        "connectionattempts serveraliveinterval serveralivecountmax ipqos rekeylimit loglevel "
        "logverbose syslogfacility channeltimeout versionaddendum warnweakcrypto "
        "obscurekeystroketiming",
    ),
    # Who we are.
    "batchmode": _ELSEWHERE,
    **_table(_ELSEWHERE, "identityfile identityagent identitiesonly"),  # `_identities`
    "certificatefile": Use(_certificates),
    "pkcs11provider": _text("pkcs11_provider"),
    "preferredauthentications": _text("preferred_auth"),
    "pubkeyauthentication": Use(_public_key),
    "passwordauthentication": _switch("password_auth"),
    "kbdinteractiveauthentication": _switch("kbdint_auth"),
    "challengeresponseauthentication": _switch("kbdint_auth"),
    "hostbasedauthentication": _switch("host_based_auth"),
    "gssapiauthentication": _switch("gss_auth"),
    "gssapikeyexchange": _switch("gss_kex"),
    "gssapidelegatecredentials": _switch("gss_delegate_creds"),
    "forwardagent": Use(_forward_agent),
    **_table(
        _HARMLESS,
        "pubkeyacceptedalgorithms pubkeyacceptedkeytypes hostbasedacceptedalgorithms "
        "hostbasedkeytypes numberofpasswordprompts securitykeyprovider addkeystoagent usekeychain "
        "enablesshkeysign gssapikexalgorithms gssapirenewalforcesrekey gssapitrustdns "
        "gssapiclientidentity gssapiserveridentity kbdinteractivedevices",
    ),
    # The session: our own command, never in a terminal, and nothing beside it.
    **_table(_ELSEWHERE, "sendenv setenv"),
    **_table(
        _HARMLESS,
        "requesttty remotecommand sessiontype stdinnull forkafterauthentication escapechar "
        "enableescapecommandline controlmaster controlpath controlpersist localforward "
        "remoteforward dynamicforward clearallforwardings exitonforwardfailure gatewayports "
        "permitremoteopen streamlocalbindmask streamlocalbindunlink tunnel tunneldevice forwardx11 "
        "forwardx11timeout forwardx11trusted xauthlocation permitlocalcommand localcommand",
    ),
}


def arguments(config: SshConfig, identity: str | None) -> dict[str, Any]:
    """The arguments of asyncssh's options for a host.

    Raises:
        UnreachableError: an option cannot be honoured.
    """
    given: dict[str, Any] = {
        "config": None,
        "host": config.get("hostname") or config.alias,
        "port": int(config.get("port")),
        "username": config.get("user"),
        "family": _FAMILIES.get(config.get("addressfamily").lower(), socket.AF_UNSPEC),
        "tunnel": None,
        "request_pty": False,
        "send_env": list(config.all("sendenv")),
        "env": list(config.all("setenv")),
        # Half the processor time of ChaCha20, which asyncssh would take first: 0.75 s a GB of logs.
        "encryption_algs": "^*-gcm@openssh.com",
        "gss_auth": False,
        "gss_kex": False,
        "gss_delegate_creds": False,
    }
    for option in filter(config.differs, config.values):
        use = OPTIONS.get(option, _REFUSED)
        if use.refused and config.get(option).lower() not in ("", "no"):
            what = f"{config.where(option)} is not supported, and without it another host may be "
            raise unsupported(config, what + "reached or trusted")
        if use.translate is not None:
            given |= use.translate(config, option)
    return given | _identities(config, identity)


def host_key_algs(known: KnownHosts, configured: list[str] | str | None) -> list[str] | None:
    """The kinds of host keys to ask a server for; None leaves it to asyncssh, which asks for
    the known ones.

    Without an authority a server's certificate would be no first contact, and with a list of
    the user's own a key of an unknown kind would look like a change.
    """
    if isinstance(configured, str) or (configured is None and known.any):
        return None
    certificates = {each.decode() for each in asyncssh.public_key.get_certificate_algs()}
    if not known.any:
        plain = configured or [
            each.decode() for each in asyncssh.public_key.get_default_public_key_algs()
        ]
        return [each for each in plain if each not in certificates] or None
    kinds = {kind.decode() for key in known.trusted for kind in key.sig_algorithms}
    kinds |= certificates if known.authorities else set()
    return [each for each in configured or () if each in kinds] or None


def _tokens(config: SshConfig) -> dict[str, str]:
    """The tokens of ssh_config(5)."""
    local = socket.gethostname()
    host = config.get("hostname") or config.alias
    return {
        "%": "%",
        "d": account_home(),
        "h": host,
        "i": str(os.getuid()),
        "k": config.get("hostkeyalias") or host,
        "L": local.split(".")[0],
        "l": local,
        "n": config.alias,
        "p": config.get("port"),
        "r": config.get("user"),
        "u": os.environ.get("USER", config.get("user")),
    }


def _replaced(text: str, tokens: dict[str, str]) -> str:
    return re.sub("%(.)", lambda found: tokens.get(found[1], found[0]), text)


def _paths(config: SshConfig, option: str) -> list[str]:
    """The files that an option names, with its variables, tokens and `~`."""
    tokens = _tokens(config)
    given = (text for text in config.all(option) if text != "none")
    texts = (re.sub(r"\$\{(\w+)\}", lambda m: os.environ.get(m[1], ""), text) for text in given)
    return [_in_home(config, option, _replaced(text, tokens)) for text in texts]


def _in_home(config: SshConfig, option: str, path: str) -> str:
    try:
        return str(expand_user(path))
    except TfmuxError as error:
        raise unsupported(config, f"{config.where(option)}: {error}") from error


def _identities(config: SshConfig, identity: str | None) -> dict[str, Any]:
    """Keys and the agent."""
    found: dict[str, Any] = {"agent_path": _agent(config)}
    files = [] if identity is None else [identity]
    if identity is None and config.differs("identityfile"):
        files = _paths(config, "identityfile")
        public = [path for path in files if path.endswith(".pub")]  # of keys in the agent
        private = [path for path in files if path not in public]
        found["ignore_encrypted"] = True
        # Empty: those of the agent alone, which asyncssh would take for the usual files.
        found["client_keys"] = [path for path in private if Path(path).exists()] or private
    elif files:
        found["client_keys"] = files
    if config.on("identitiesonly"):
        names = files or _paths(config, "identityfile")
        names = names or [os.path.expanduser(path) for path in USUAL_KEYS]
        public = [each if each.endswith(".pub") else f"{each}.pub" for each in names]
        public = [path for path in public if Path(path).exists()]
        found["agent_identities"] = public
        if not public:
            found["agent_path"] = None
    return found


def _agent(config: SshConfig) -> str | None:
    where = config.get("identityagent")
    if not where:
        named = config.all("identityagent")
        return None if named else os.environ.get("SSH_AUTH_SOCK")
    if where == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK")
    if where.startswith("$"):
        return os.environ.get(where.strip("${}"))
    return _in_home(config, "identityagent", where)


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
