"""Frames between launcher and agent: length u32, type u8, body.

Bodies are JSON objects (`requests`, `messages`), except those of `DATA` (log bytes). Both ends use
this module. A frame that is too long or of an unknown type is a `WireError`: the other side is not
what we think it is, and the connection ends.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Iterator, Mapping, NamedTuple

VERSION = 7
OTHER_VERSION = "other-version"
"""Code of a refusal: a launcher that wants to end the run has such an agent replaced."""
MAX_BODY = 4 * 1024 * 1024
DATA_BYTES = 64 * 1024

# launcher → agent
HELLO, START, BEAT, KILL, LEAVE, READ_LOG, CREDIT, PORTS, STATS = range(1, 10)
RELEASE, SHARE_TEXT = 18, 19
# agent → launcher
WELCOME, STARTED, LISTENING, EXITED, EOF, LOG_SIZE, DATA, PONG, RECEIPT, NOTE, ERROR = range(65, 76)
GONE, REPLY = 76, 77

NAMES = {
    value: name
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, int) and (0 < value < 20 or 64 < value < 80)
    if name != "VERSION"
}

_HEAD = struct.Struct(">IB")
_DATA = struct.Struct(">HQ")


_MOST_DIGITS = 20
"""Of an integer: 64 bits. Python 3.8 needs minutes for one that fills a frame."""


class WireError(Exception):
    """These bytes are not a frame of this protocol."""


class VersionError(WireError):
    """The other side speaks another version of the protocol."""


class Frame(NamedTuple):
    """A frame: its type and its raw body."""

    type: int
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            WireError: it is not one.
        """
        try:
            value = _STRICT.decode(self.body.decode())
        except (ValueError, RecursionError) as error:
            raise WireError(f"{NAMES.get(self.type)}: the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise WireError(f"{NAMES.get(self.type)}: the body is not a JSON object")
        return value

    def data(self) -> tuple[int, int, bytes]:
        """The body of a `DATA` frame: the log's number, the offset, the bytes.

        Raises:
            WireError: it is too short.
        """
        if len(self.body) < _DATA.size:
            raise WireError("DATA: the body is too short")
        number, offset = _DATA.unpack_from(self.body)
        return number, offset, self.body[_DATA.size :]


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ValueError("a number that is not finite")
    return value


def _constant(text: str) -> None:
    raise ValueError(f"{text} is not a number in JSON")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key occurs twice")
    return fields


_STRICT = json.JSONDecoder(
    parse_int=_integer,
    parse_float=_finite,
    parse_constant=_constant,
    object_pairs_hook=_no_key_twice,
)


def encode(kind: int, body: Mapping[str, Any] | None = None) -> bytes:
    """A frame with a JSON body.

    Raises:
        WireError: it is longer than the other side accepts.
    """
    raw = json.dumps(dict(body or {}), separators=(",", ":")).encode()
    if len(raw) > MAX_BODY:
        raise WireError(f"{NAMES.get(kind)} of {len(raw)} bytes; a frame has at most {MAX_BODY}")
    return encode_raw(kind, raw)


def encode_raw(kind: int, raw: bytes) -> bytes:
    """A frame with a raw body."""
    return _HEAD.pack(len(raw), kind) + raw


def encode_data(number: int, offset: int, chunk: bytes) -> bytes:
    """A `DATA` frame: `chunk` stands at `offset` of the log `number`."""
    return _HEAD.pack(_DATA.size + len(chunk), DATA) + _DATA.pack(number, offset) + chunk


class Decoder:
    """Puts frames together from chunks of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yields the frames that `chunk` completes.

        Raises:
            WireError: a length beyond 4 MiB or an unknown type.
        """
        self._buffer += chunk
        at = 0
        try:
            while len(self._buffer) - at >= _HEAD.size:
                length, kind = _HEAD.unpack_from(self._buffer, at)
                if length > MAX_BODY:
                    raise WireError(f"a frame of {length} bytes")
                if kind not in NAMES:
                    raise WireError(f"a frame of unknown type {kind}")
                end = at + _HEAD.size + length
                if len(self._buffer) < end:
                    break
                with memoryview(self._buffer) as view:
                    body = bytes(view[at + _HEAD.size : end])  # a slice would be one more copy
                at = end
                yield Frame(kind, body)
        finally:
            del self._buffer[:at]
