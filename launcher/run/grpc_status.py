"""Status of a call to another task, as gRPC and TensorFlow write it into an exception.

The code decides, not the words around it: a task that could not be reached has code 14, and one
that has answered with an error of its own another one. That error is the caller's exception,
wherever it was raised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

import re2

from ..frozen import frozen

CODES = {
    name: number
    for number, name in enumerate(
        "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS"
        " PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE"
        " UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED".split()
    )
}
"""Number of each status code of gRPC, which are TensorFlow's, too."""


class Meaning(Enum):
    """Meaning of a status for who has called."""

    NONE = "none"
    """No status is known."""
    ANSWER = "answer"
    """The other task has answered: the error is the caller's."""
    LOST = "lost"
    """The other task was not reached, or had been started again."""
    UNCLEAR = "unclear"
    """Neither follows: gRPC and the other task both use the code."""


_LOST = frozenset({CODES["UNAVAILABLE"]})
_UNCLEAR = frozenset(CODES[name] for name in ("CANCELLED", "UNKNOWN", "INTERNAL"))
_LATE = frozenset({CODES["DEADLINE_EXCEEDED"]})
_ABORTED = CODES["ABORTED"]

HEADLINE = re2.compile(
    r"^(?:\w{1,60}\.){0,8}errors_impl\.(?P<type>[A-Z]\w{2,40}Error):\s*(?P<text>.*)$"
)
"""First line of an exception of TensorFlow, whose type is its status."""
_NUMBER = re2.compile(r'\bgrpc_status"?:\s?(?P<code>\d{1,2})\b')
_NAME = re2.compile(r"\bstatus = StatusCode\.(?P<name>[A-Z_]{2,20})\b")
_DETAILS = re2.compile(r'^\s*details = "(?P<text>.+)"\s*$')
_PEER = re2.compile(r"\bpeer:? ?(?P<peer>(?:ipv[46]|dns|unix):[\w.:%\[\]/-]{1,255})")
_REMOTE = re2.compile(
    r"from remote target /job:(?P<job>[\w-]+)/replica:\d+/task:(?P<index>\d{1,6})"
)
_FROM = re2.compile(
    r"^(?:[A-Z_]{2,20}: )?From /job:(?P<job>[\w-]+)/replica:\d+/task:(?P<index>\d{1,6}):$"
)
_RESTARTED = re2.compile(r"different device incarnation|was (?:probably )?restarted")
_NODE = re2.compile(r"^Node: '")
_PREAMBLE = re2.compile(
    r"^(?:$|Graph execution error:|\d+ root error|=+$|Detected at node"
    r"|(?:[A-Z_]{2,20}: )?From /job:)"
)
_ROOT = re2.compile(r"^\s*\(\d+\) (?:[A-Z_]{2,20}: )?")
REPEATED = "Recent warning and error logs:"
"""Line behind a message of TensorFlow below which it repeats earlier lines of its log."""
STACK = "Original stack trace for "
"""Beginning of the line below which it shows where the operation was made."""
_MOST_LINES = 200


@frozen
class Status:
    """What an exception says of its status."""

    code: int | None = None
    at: str = ""
    """The task, or the address, that has answered so, or was not reached: `ps:0`."""
    text: str = ""
    """The sentence, where the first line of the exception does not have it."""
    restarted: bool = False
    """Whether it says that the other task was started again."""

    @property
    def meaning(self) -> Meaning:
        """What follows from it for who has called."""
        if self.code is None:
            return Meaning.NONE
        if self.code in _LOST or (self.code == _ABORTED and self.restarted):
            return Meaning.LOST
        if self.code in _LATE or self.code == _ABORTED:
            return Meaning.UNCLEAR
        if self.code in _UNCLEAR:
            return Meaning.UNCLEAR if self.at else Meaning.ANSWER
        return Meaning.ANSWER


def _own_lines(lines: Sequence[str]) -> Sequence[str]:
    """The lines of a message, without what TensorFlow adds to it."""
    lines = lines[:_MOST_LINES]
    ends = (n for n, line in enumerate(lines) if line.startswith((REPEATED, STACK)))
    return lines[: next(ends, len(lines))]


def status_of(lines: Sequence[str]) -> Status:
    """The status that an exception has, whose message is in these lines."""
    lines = _own_lines(lines)
    headline = HEADLINE.search(lines[0]) if lines else None
    code, at, text, restarted = None, "", "", False
    if headline is not None:
        code = CODES.get(_code_name(headline["type"]))
        text, at = _sentence(lines, headline["text"])
    remote = number = None
    for line in lines:
        # The first one stands beside the words of the error: later ones have passed it on.
        remote = remote or _REMOTE.search(line)
        number = number or _NUMBER.search(line)
        if (name := _NAME.search(line)) is not None:
            code = CODES.get(name["name"])
        if (details := _DETAILS.search(line)) is not None:
            text = text or details["text"]
        if (peer := _PEER.search(line)) is not None:
            at = at or peer["peer"]
        restarted = restarted or _RESTARTED.search(line) is not None
    if number is not None:
        code = int(number["code"])
    if remote is not None:
        at = f"{remote['job']}:{remote['index']}"
    return Status(code, at, text, restarted)


def _code_name(kind: str) -> str:
    """Name of the code of which TensorFlow has an exception of this type."""
    return "_".join(re.findall(r"[A-Z][a-z]*", kind.removesuffix("Error"))).upper()


def _sentence(lines: Sequence[str], headline: str) -> tuple[str, str]:
    """The sentence in a message of TensorFlow that begins with where an operation was made, empty
    where the first line has it; and the task that a line before it names."""
    begins = headline.strip()
    if begins and not _PREAMBLE.search(begins):
        return "", ""
    where = _FROM.search(begins)
    nodes = [number for number, line in enumerate(lines) if _NODE.search(line)]
    for line in lines[nodes[-1] + 1 if nodes else 1 :]:
        if (found := _FROM.search(line)) is not None:
            where = where or found
        if not _PREAMBLE.search(line.rstrip()):
            text = _ROOT.sub("", line).strip()
            return text, f"{where['job']}:{where['index']}" if where is not None else ""
    return "", ""
