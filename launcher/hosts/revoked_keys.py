"""`RevokedHostKeys` of ssh_config: a file of public keys, or a key revocation list (KRL).

As with `ssh`, a file that cannot be read refuses every host.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from ..subprocesses import end_session, start_session

_KRL_MAGIC = b"SSHKRL\n\x00"
_QUERY_SECONDS = 10.0


class RevocationError(Exception):
    """The file cannot be used; its text says why."""


@dataclass(frozen=True)
class RevokedKeys:
    """The keys of one file."""

    listed: frozenset[tuple[str, str]]
    """Type and base64 of each key of a plain file."""
    krl: Path | None = None
    ssh_keygen: str = ""

    @classmethod
    def read(cls, name: str) -> RevokedKeys:
        """Reads the file.

        Raises:
            RevocationError: it cannot be read, or is a KRL and there is no ssh-keygen.
        """
        path = Path(os.path.expanduser(name))
        try:
            data = path.read_bytes()
        except OSError as error:
            raise RevocationError(f"{path} cannot be read: {error.strerror or error}") from error
        if not data.startswith(_KRL_MAGIC):
            words = (line.split() for line in data.decode("latin-1").splitlines())
            lines = (each for each in words if len(each) > 1 and each[0][:1] != "#")
            return cls(frozenset((each[0], each[1]) for each in lines))
        ssh_keygen = shutil.which("ssh-keygen")
        if ssh_keygen is None:
            raise RevocationError(f"{path} is a KRL, which needs ssh-keygen to be read")
        return cls(frozenset(), path, ssh_keygen)

    def keys(self) -> list[asyncssh.SSHKey]:
        """The keys of a plain file that are of a kind supported here."""
        found = []
        for kind, blob in self.listed:
            with suppress(asyncssh.KeyImportError, ValueError):
                found.append(asyncssh.import_public_key(f"{kind} {blob}"))
        return found

    async def contains(self, key: asyncssh.SSHKey) -> bool:
        """The key is revoked.

        Raises:
            RevocationError: the KRL cannot be read.
        """
        line = key.export_public_key("openssh").decode()
        if self.krl is None:
            return tuple(line.split()[:2]) in self.listed
        with tempfile.NamedTemporaryFile("w", suffix=".pub") as file:
            file.write(line)
            file.flush()
            pipe = asyncio.subprocess.PIPE
            argv = [self.ssh_keygen, "-Q", "-f", str(self.krl), file.name]
            nothing = asyncio.subprocess.DEVNULL
            process = await start_session(*argv, stdin=nothing, stdout=pipe, stderr=pipe)
            try:
                async with asyncio.timeout(_QUERY_SECONDS):
                    printed, said = await process.communicate()
            except TimeoutError as error:
                raise RevocationError(f"ssh-keygen does not answer about {self.krl}") from error
            finally:
                await end_session(process)
        verdict = printed.decode(errors="replace").strip()
        if process.returncode == 0 and verdict.endswith("ok"):
            return False
        if verdict.endswith("REVOKED"):
            return True
        reason = (said.decode(errors="replace").strip() or verdict).splitlines()[-1:]
        raise RevocationError(f"{self.krl} cannot be read: {' '.join(reason)}")
