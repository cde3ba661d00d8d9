"""Exceptions of the trainer, each told in one line instead of a traceback.

TrainerError            exit status 1: the run cannot go on
├── UsageError          exit status 2: flags or TF_CONFIG are wrong, nothing was started
├── DataError           a data file is missing, broken or does not fit its neighbour
└── CheckpointError     a checkpoint is stale, foreign, unreadable or cannot be written
"""

import re

_PREAMBLE = re.compile(
    r"From /job:|Graph execution error:|\d+ root error|=+$|Detected at node|File \".+\", line \d"
)
_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")
_REMOTE = re.compile(r"remote target /job:(\w+)/replica:\d+/task:(\d+)")
_GRPC_STATUS = re.compile(r"(?:last error: )?(?:UNKNOWN|UNAVAILABLE|INTERNAL): ")
_SOCKET = re.compile(
    r"(Connection refused|Connection reset by peer|Socket closed|No route to host|"
    r"Network is unreachable|Connection timed out|Broken pipe|recvmsg:[^\"(,}]*|"
    r"DNS resolution failed)",
    re.IGNORECASE,
)


class TrainerError(Exception):
    """A failure whose message is complete in itself: path or host, and the reason."""

    exit_status = 1


class UsageError(TrainerError):
    exit_status = 2


class DataError(TrainerError):
    pass


class CheckpointError(TrainerError):
    pass


def reason(error: BaseException) -> str:
    """The one line of a TensorFlow error that says what is wrong.

    Its messages begin with where in the program an operation was made, or with a count of "root
    errors", and go on with the names of nodes.
    """
    text = _message(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    nodes = [number for number, line in enumerate(lines[:-1]) if line.startswith("Node: ")]
    lines = lines[nodes[-1] + 1 :] if nodes else lines
    while len(lines) > 1 and _PREAMBLE.match(lines[0]):
        lines = lines[1:]
    line = re.sub(r"^\(\d+\) (\w+: )?", "", lines[0] if lines else type(error).__name__)
    return re.sub(r"\{\{.*?\}\} ?| \[Op:.*", "", line) or type(error).__name__


def named_task(error: BaseException, own: tuple[str, int]) -> tuple[str, int] | None:
    """The other task that a TensorFlow error is about.

    That is the first target, next to the socket's words: later ones passed the error on. Without
    a target it is the last task that is named.
    """
    targets = _REMOTE.findall(_message(error))
    named = targets or _TASK.findall(_message(error))[::-1]
    others = [(job, int(index)) for job, index in named if (job, int(index)) != own]
    return others[0] if others else None


def socket_reason(error: BaseException) -> str:
    """The socket's error in a TensorFlow error about a connection, else its `reason`."""
    match = _SOCKET.search(_message(error))
    return match[1].strip() if match else _GRPC_STATUS.sub("", reason(error))


def _message(error: BaseException) -> str:
    return str(getattr(error, "message", "") or getattr(error, "strerror", "") or error)
