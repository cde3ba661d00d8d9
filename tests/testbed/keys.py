"""Keys, known hosts and client configuration, made anew for each testbed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import asyncssh


@dataclass(frozen=True)
class KeyPair:
    """A private key's file beside its public half `NAME.pub`."""

    path: Path

    @property
    def public(self) -> str:
        """The public key in the one-line form of `authorized_keys`."""
        return self.path.with_name(self.path.name + ".pub").read_text().strip()


def make_key(path: Path, comment: str) -> KeyPair:
    """Generate an ed25519 key pair; replaces what is there."""
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(key.export_private_key())
    path.with_name(path.name + ".pub").write_bytes(key.export_public_key())
    return KeyPair(path)


def known_hosts_line(names: Iterable[str], public: str, port: int = 22) -> str:
    """Return a `known_hosts` line for a host's names and its public key."""
    marked = [name if port == 22 else f"[{name}]:{port}" for name in names]
    return f"{','.join(marked)} {' '.join(public.split()[:2])}\n"
