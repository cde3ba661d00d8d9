"""The SSH configuration that holds for one host, read by OpenSSH itself where it is installed.

`ssh -G` evaluates `Match`, `Include`, `CanonicalizeHostname` and the system's file as a login
would; asyncssh's own parser skips what it does not know and sees the user's file alone. It is
the fallback where there is no OpenSSH client, extended by the options that decide who is
trusted.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO

from ..errors import UnreachableError
from ..frozen import frozen
from ..subprocesses import end_session, start_session
from .credentials import display_path
from .ssh_library import asyncssh

READ_SECONDS = 20.0
"""As long as the commands of `Match exec` may take."""
READS_AT_ONCE = 16
"""Each takes a process and five open files; a login may have 1,024 of these, a run more hosts."""
SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_READ = re.compile(r"^debug1: Reading configuration data (.+?)\r?$", re.MULTILINE)
_DEFAULTS_LOCK = threading.Lock()

Values = Mapping[str, tuple[str, ...]]


@frozen
class SshConfig:
    """What holds for one host: options by their names in lower case, as `ssh -G` prints them."""

    host: str
    """The host's name in the cluster file, for errors."""
    alias: str
    """What the cluster file has as `ssh`: an alias, or a name."""
    values: Values
    defaults: Values
    """What holds for every host when nothing is configured."""
    files: tuple[Path, ...]
    """The files that were read."""

    def get(self, option: str) -> str:
        """The value, or the first of several; empty where there is none."""
        first = self.values.get(option, ("",))[0]
        return "" if first.lower() == "none" else first

    def all(self, option: str) -> tuple[str, ...]:
        """The values of an option that may be given several times."""
        return self.values.get(option, ())

    def on(self, option: str) -> bool:
        """Whether the value of an option is yes."""
        return self.get(option).lower() in ("yes", "true")

    def differs(self, option: str) -> bool:
        """A file sets the option to something else than its default."""
        return option in self.values and self.values[option] != self.defaults.get(option)

    def where(self, option: str) -> str:
        """The lines that may have set an option: `ProxyJump in ~/.ssh/config:3`."""
        found = []
        name = option
        for path in self.files:
            with suppress(OSError):
                for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                    keyword = re.split(r"[\s=]", line.strip(), maxsplit=1)[0]
                    if keyword.lower() == option:
                        name = keyword
                        found.append(f"{display_path(str(path))}:{number}")
        return f"{name} in {', '.join(found[:4]) or 'ssh_config'}"


async def read_config(name: str, host: str, user: str | None, port: int | None) -> SshConfig:
    """Reads what ssh_config says of `host`, an alias or a name, for the host called `name`.

    Raises:
        UnreachableError: the configuration cannot be used; says which file and why.
    """
    ssh = shutil.which("ssh")
    if ssh is None:
        try:
            config = await asyncio.to_thread(_parse, name, host, user, port)
        except (OSError, ValueError) as error:
            raise _unusable(name, str(error)) from error
    else:
        # With a command, since ssh refuses some options without one, and RemoteCommand with it.
        argv = ["-v", "-G", "-o", "RemoteCommand=none"]
        argv += ["-l", user] if user is not None else []
        argv += ["-p", str(port)] if port is not None else []
        if set('*?[{"\\') & set(str(_user_config())):  # Include would take it for a pattern
            raise _unusable(name, f"the path {_user_config()} is not supported")
        sources = f'Include "{_user_config()}"\nInclude "{SYSTEM_CONFIG}"\n'
        command = [*argv, "--", host, "true"]
        try:
            (printed, said), defaults = await asyncio.gather(
                _run(name, ssh, command, sources), asyncio.to_thread(_defaults, ssh)
            )
        except subprocess.TimeoutExpired as error:
            raise _unusable(name, f"`ssh -G` did not end in {READ_SECONDS:.0f} s") from error
        except OSError as error:
            raise _unusable(name, f"{ssh}: {error.strerror}") from error
        files = tuple(dict.fromkeys(Path(path) for path in _READ.findall(said)))[1:]
        config = SshConfig(name, host, _values(printed), defaults, files)
    return config


def _unusable(name: str, why: str) -> UnreachableError:
    what = f"the SSH configuration cannot be used: {why}"
    return UnreachableError(name, what, code="ssh-config", todo="correct ~/.ssh/config, or ssh")


def _user_config() -> Path:
    return Path("~/.ssh/config").expanduser()


def _defaults(ssh: str) -> Values:
    """The defaults of the installed OpenSSH, asked for once."""
    with _DEFAULTS_LOCK:  # hosts are read side by side
        return _ask_defaults(ssh)


@lru_cache
def _ask_defaults(ssh: str) -> Values:
    argv = [ssh, "-F", "none", "-G", "--", "localhost", "true"]
    nothing = subprocess.DEVNULL
    done = subprocess.run(argv, stdin=nothing, capture_output=True, timeout=READ_SECONDS)
    return _values(done.stdout.decode(errors="surrogateescape"))


async def _run(name: str, ssh: str, argv: list[str], sources: str) -> tuple[str, str]:
    """Runs `ssh -G` with a configuration; returns what it printed to stdout and stderr."""
    pipe = asyncio.subprocess.PIPE
    with _source(sources) as (file, path):
        process = await start_session(
            *(ssh, "-F", path, *argv), stdin=file, stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(READ_SECONDS):
                printed, complaint = await process.communicate()
        except TimeoutError as error:
            what = f"`ssh -G` did not end in {READ_SECONDS:.0f} s (a command of Match exec?)"
            raise _unusable(name, what) from error
        finally:
            await end_session(process)
    said = complaint.decode(errors="replace")
    if process.returncode:
        lines = [line for line in said.splitlines() if line and not line.startswith("debug")]
        lines = [line for line in lines if not line.startswith("OpenSSH_")]
        raise _unusable(name, "; ".join(lines[:3]) or f"ssh -G failed ({process.returncode})")
    return printed.decode(errors="surrogateescape"), said


@contextmanager
def _source(text: str) -> Iterator[tuple[IO[bytes], str]]:
    """File with a configuration, for the standard input of `ssh`, and its path there.

    A regular file: `Match final` makes ssh read its configuration a second time. In memory where
    the system has such files, and opens `/dev/stdin` anew each time; else one with a name.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("ssh_config"), "w+b", buffering=0) as file:
            file.write(text.encode())
            yield file, "/dev/stdin"
    else:
        with tempfile.NamedTemporaryFile(buffering=0) as named:
            named.write(text.encode())
            yield named, named.name


def _values(printed: str) -> dict[str, tuple[str, ...]]:
    values: dict[str, list[str]] = {}
    for line in printed.splitlines():
        option, _, value = line.partition(" ")
        values.setdefault(option.lower(), []).append(value)
    return {option: tuple(dict.fromkeys(given)) for option, given in values.items()}


def account_home() -> str:
    """The home as OpenSSH sees it: the account's, whatever `$HOME` says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return os.path.expanduser("~")


# --- without an OpenSSH client ------------------------------------------------------------

_MORE_STRINGS = (
    "BatchMode",
    "BindInterface",
    "CheckHostIP",
    "NoHostAuthenticationForLocalhost",
    "ProxyUseFdpass",
    "PubkeyAcceptedAlgorithms",
    "RefuseConnection",
    "RequiredRSASize",
    "RevokedHostKeys",
    "StrictHostKeyChecking",
    "VerifyHostKeyDNS",
)


class _Parser(asyncssh.config.SSHClientConfig):
    """asyncssh's parser with the options that it skips and that decide who is trusted."""

    _handlers = asyncssh.config.SSHClientConfig._handlers | {
        name.lower(): (name, handler)
        for names, handler in (
            (_MORE_STRINGS, asyncssh.config.SSHClientConfig._set_string),
            (("KnownHostsCommand",), asyncssh.config.SSHClientConfig._set_string_list),
        )
        for name in names
    }

    def parse(self, path: Path) -> None:
        """Reads a file, an included one too, and remembers it.

        Raises:
            ValueError: others may change it; OpenSSH refuses such a file, too.
        """
        found = path.stat()
        if found.st_uid not in (0, os.getuid()) or found.st_mode & 0o022:
            raise ValueError(f"Bad owner or permissions on {path}")
        self.__dict__.setdefault("read", []).append(path)
        super().parse(path)


def _parse(name: str, host: str, user: str | None, port: int | None) -> SshConfig:
    paths = [path for path in (_user_config(), SYSTEM_CONFIG) if path.exists()]
    local = getpass.getuser()
    given = (user if user is not None else (), host, port if port is not None else ())
    parser = _Parser.load(None, paths, False, False, False, local, *given)
    values = {option.lower(): _words(value) for option, value in parser.get_options(False).items()}
    if parser.has_match_final() or values.get("canonicalizehostname", ("no",)) != ("no",):
        raise ValueError("Match final and CanonicalizeHostname need an OpenSSH client here")
    plain = {"hostname": (host,), "user": (local,), "port": ("22",)}
    read = tuple(parser.__dict__.get("read", ()))
    return SshConfig(name, host, plain | values, plain, read)


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("yes" if value else "no",)
    if isinstance(value, list | tuple):
        return tuple(str(each) for each in value) or ("none",)
    return ("none" if value is None else str(value),)
