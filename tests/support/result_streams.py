"""Streams of results as a hostile host may send them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from launcher.files.unpacking import Unpacker
from launcher.on_host.pipe import LENGTH
from launcher.on_host.transfer import WHOLE


def member(**head: Any) -> bytes:
    """A member of the stream, without contents."""
    raw = json.dumps(head).encode()
    return LENGTH.pack(len(raw)) + raw


def folder(name: str) -> bytes:
    """A folder."""
    return member(name=name, kind="folder", mode=0o755)


def file(name: str, data: bytes = b"evil", **head: Any) -> bytes:
    """A file with its contents, in one chunk."""
    rest = {"size": len(data), "mode": 0o644, "mtime": 1, **head}
    return member(name=name, kind="file", **rest) + chunk(data) + WHOLE


def chunk(data: bytes) -> bytes:
    """A piece of a file's contents."""
    return LENGTH.pack(len(data)) + data if data else b""


def block(data: bytes) -> bytes:
    """A block of the stream, as a host sends it for each byte of the launcher."""
    return LENGTH.pack(len(data)) + data


END = LENGTH.pack(0)


def unpack(root: Path, *members: bytes, files: int = 0, size: int | None = None) -> Unpacker:
    """Unpacks a stream in odd chunks; so many files are announced."""
    root.mkdir(exist_ok=True)
    stream = b"".join(members)
    total = len(stream) if size is None else size
    unpacker = Unpacker(root, total, files)
    try:
        for at in range(0, len(stream), 777):
            unpacker.feed(stream[at : at + 777])
        unpacker.finish()
    finally:
        unpacker.close()
    return unpacker
