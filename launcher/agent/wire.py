"""Frames between launcher and agent: length u32, type u8, body.

Bodies are JSON objects, except those of `DATA` (log bytes); what is in them is declared in
`launcher/hosts/frames.py`. Both ends use this module. A frame that is too long or of an unknown
type is a `WireError`: the other side is not what we think it is, and the connection ends.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any, Dict, Iterator, Mapping, NamedTuple

Json = Dict[str, Any]
"""A JSON object."""

VERSION = 12
OTHER_VERSION = "other-version"
"""Code of a refusal: a launcher that wants to end the run has such an agent replaced."""
MAX_BODY = 4 * 1024 * 1024
DATA_BYTES = 64 * 1024
MOST_SURVIVORS = 100
"""Processes that a receipt lists."""
MOST_FULL = 4
"""Full disks that are told of one failure."""
MOST_LEFT = 5
"""Processes that an end lists which a task's first process has left."""
MOST_PROCESSES, MOST_THREADS, MOST_FRAMES = 256, 64, 64
"""Bounds of an answer with stacks: processes in all, threads of a process, frames of a thread."""
MOST_GPUS, MOST_GPU_PROCESSES = 64, 32
"""GPUs of a host in an answer, and MIG instances of a GPU; processes of a GPU that are listed."""
FROZEN_SECONDS = 8.0
"""Silence of an agent after which its watchdog ends everything; the launcher waits for longer."""
KILL_SECONDS = 5.0
"""Time for processes to end after KILL; then an agent reports those that are left."""
STACK_SECONDS = 2.0
"""Time in which an agent looks at all processes of its host; the launcher waits for longer."""
NO_FOLDER_STATUS = 73
"""Exit status where an engine starts an agent that has no place for its files (`sysexits.h`)."""
SLURM_OF_JOB = "TFMUX_SLURM"
"""Variable with Slurm's variables of the job, a line each, for an agent in one of its steps."""
BY_LAUNCHER, BY_AGENT, BY_SIGNAL = "launcher", "agent", "signal"
"""Who had asked a task to end before it did: a launcher's kill; the agent, by its lease or because
it was told to stop; a signal to the job step that the agent has passed on."""
FOR_ATTACH, FOR_KILL = "attach", "kill"
"""What a launcher takes a run over for: to supervise it from now on, or to end it."""
TASK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}:(?:0|[1-9][0-9]{0,8})")
"""The one form of a task's name in frames: it becomes the name of a file."""

# launcher → agent
HELLO, START, BEAT, KILL, LEAVE, READ_LOG, CREDIT, PORTS, STATS, GPUS = range(1, 11)
RELEASE, STACKS, RULES = 18, 19, 20
# agent → launcher
WELCOME, STARTED, LISTENING, EXITED, EOF, LOG_SIZE, DATA, PONG, RECEIPT, NOTE, ERROR = range(65, 76)
GONE, REPLY = 76, 77

NAMES = {
    value: name
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, int) and (0 < value < 21 or 64 < value < 80)
    if name != "VERSION"
}

_HEAD = struct.Struct(">IB")
_DATA = struct.Struct(">HQ")


class WireError(Exception):
    """These bytes are not a frame of this protocol."""


class VersionError(WireError):
    """The other side speaks another version of the protocol."""


class RawFrame(NamedTuple):
    """A frame: its type and its raw body."""

    type: int
    body: bytes

    def json(self) -> Json:
        """The body as a JSON object.

        Raises:
            WireError: it is not one.
        """
        try:
            value = json.loads(self.body)
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


def encode(kind: int, body: Mapping[str, Any] | None = None) -> bytes:
    """A frame with a JSON body.

    Raises:
        WireError: it is longer than the other side accepts.
    """
    text = json.dumps(dict(body or {}), separators=(",", ":"))
    if kind >= WELCOME and "\\ud" in text:  # half a character, of a path that is not UTF-8
        text = json.dumps(dict(body or {}), ensure_ascii=False)
    raw = text.encode(errors="replace")
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

    def feed(self, chunk: bytes) -> Iterator[RawFrame]:
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
                yield RawFrame(kind, body)
        finally:
            del self._buffer[:at]
