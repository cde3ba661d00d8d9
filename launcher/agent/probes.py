"""Probes: questions of a preflight and their answers. Each may block on the host (see `prober`).

An agent imports this module when the first one comes: most are never asked any.
"""

from __future__ import annotations

from typing import Any, ClassVar, Mapping, Tuple

from . import wire
from .fields import (
    Annotated,
    AnyNumber,
    Figure,
    FileName,
    Json,
    Pid,
    Port,
    RawText,
    Seconds,
    ShortRawText,
    Text,
    Variables,
    choice,
    items,
    number,
    pattern,
    raw_text,
    row,
    table,
    whole,
)
from .messages import Answer
from .requests import A, CheckedPorts, Question

PathText = Annotated[str, raw_text(1 << 16)]
Paths = Annotated[Tuple[str, ...], items(RawText, 100)]
Texts = Annotated[Mapping[str, str], table(Text, Text)]
Gpu = Annotated[Tuple[str, str, str, str], row(Text, Text, Text, Text)]
Disks = Annotated[
    Tuple[Tuple[str, str, int, int], ...], items(row(Text, Text, AnyNumber, AnyNumber), fewest=1)
]
Memory = Annotated[Tuple[int, int], row(AnyNumber, AnyNumber)]
Levels = Annotated[int, whole(0, 4096)]
Checkpoint = Annotated[Tuple[str, float], row(Text, Figure)]
Leftover = Annotated[Tuple[str, str, int, str], row(Text, Text, Pid, Text)]
Failures = Annotated[
    Mapping[str, str], table(pattern("[0-9]{1,5}", "not the number of a port"), Text)
]
Outcome = Annotated[
    str, choice("ok", "refused", "filtered", "no-route", "failed", "stranger", "unresolved")
]
Patience = Annotated[float, number(0, 3600)]

PROBES: dict[str, type[Probe[Any]]] = {}


class Probe(Question[A]):
    """Base of all of them; `KIND` stands in the frame."""

    TYPE = wire.PROBE
    KIND: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        PROBES[cls.KIND] = cls

    def to_json(self) -> Json:
        return {"kind": self.KIND, **super().to_json()}


class ClockAnswer(Answer):
    """Time by the host's clock."""

    time: Figure


class ClockProbe(Probe[ClockAnswer]):
    """Question for the time of the host's clock."""

    KIND = "clock"


class AccountAnswer(Answer):
    """The user, the login shell, proxies of the environment, and the agent's Python."""

    user: Text
    shell: Text
    proxies: Texts
    python: Text
    executable: Text


class AccountProbe(Probe[AccountAnswer]):
    """Question for the account's name and its login shell."""

    KIND = "account"


class PythonAnswer(Answer):
    """`failed` says why nothing is known; else the rest is known."""

    failed: Text | None = None
    version: Text = ""
    executable: Text = ""
    tensorflow: Text = ""
    there: bool = False

    def problem(self) -> str:
        return "no version" if self.failed is None and not self.version else ""


class PythonProbe(Probe[PythonAnswer]):
    """The version of an interpreter and of its TensorFlow."""

    KIND = "python"
    python: RawText
    env: Variables
    shell: Paths
    """Words of the shells through which tasks are started, before the program."""
    cwd: RawText = "/"
    """Directory in which shells and program start."""


class CommandAnswer(Answer):
    """Reason for which a task's command cannot run; empty if it can."""

    why: Text = ""


class CommandProbe(Probe[CommandAnswer]):
    """Whether a program is there, and for Python whether it has a module."""

    KIND = "command"
    program: RawText
    module: RawText
    """Of `python -m`; empty: none."""
    env: Variables
    shell: Paths
    cwd: RawText = "/"


class GpusAnswer(Answer):
    """Of each GPU index, name, driver and memory, as nvidia-smi prints them; `why` is
    what it says of those that it does not list, or of itself."""

    gpus: tuple[Gpu, ...]
    why: Text = ""


class GpusProbe(Probe[GpusAnswer]):
    """Question for the GPUs that nvidia-smi lists."""

    KIND = "gpus"


class DiskSpaceAnswer(Answer):
    """Of each place what it is for, its path, its free bytes and its device; free and total
    memory."""

    disks: Disks
    memory: Memory


class DiskSpaceProbe(Probe[DiskSpaceAnswer]):
    """The free space where these paths and the run's folder lie, and the free memory."""

    KIND = "disk_space"
    paths: Paths


class LogdirAnswer(Answer):
    """The log directory, and the folder that exists so many levels `above` it; `why` says why
    it cannot be written; the newest checkpoint (`old`) and its age in seconds."""

    path: PathText
    base: PathText
    above: Levels
    why: Text
    old: Checkpoint | None


class LogdirProbe(Probe[LogdirAnswer]):
    """Whether a log directory can be written: makes the file `mark` in it, which stays until the
    agent leaves when it is to `keep` it."""

    KIND = "logdir"
    path: RawText
    mark: FileName
    keep: bool


class PathAnswer(Answer):
    """Answer whether the path of a `PathProbe` exists."""

    exists: bool


class PathProbe(Probe[PathAnswer]):
    """Question whether a path exists on the host."""

    KIND = "path"
    path: RawText


class LeftoversAnswer(Answer):
    """Of each process left over its run, task, pid and command line."""

    found: tuple[Leftover, ...]


class LeftoversProbe(Probe[LeftoversAnswer]):
    """Which processes dead runs have left."""

    KIND = "leftovers"


class ListenAnswer(Answer):
    """Ports on which it cannot listen, and why; those which only root may use."""

    failed: Failures
    forbidden: tuple[Port, ...]


class ListenProbe(Probe[ListenAnswer]):
    """Listens on ports as the tasks would, and says `token` to whoever connects."""

    KIND = "listen"
    ports: CheckedPorts
    token: ShortRawText


class ConnectAnswer(Answer):
    """Result of a connection, its address, and the seconds that name and connection took."""

    outcome: Outcome
    text: Text
    address: Text
    resolved: Seconds
    connected: Seconds = 0.0


class ConnectProbe(Probe[ConnectAnswer]):
    """Connects as a task would, by name, and waits for the token."""

    KIND = "connect"
    host: ShortRawText
    port: Port
    token: ShortRawText
    seconds: Patience
