"""Probes: questions of a preflight and their answers. Each may block on the host (see `prober`).

An agent imports this module when the first one comes: most are never asked any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Mapping

from . import wire
from .answers import Answer
from .fields import (
    ANSWER_ID,
    FIGURE,
    FLAG,
    PORT,
    RAW_TEXT,
    SECONDS,
    TEXT,
    VARIABLES,
    Json,
    choice,
    figure_rule,
    file_name_rule,
    items,
    meta,
    number,
    optional,
    pid_rule,
    port_rule,
    port_text_rule,
    raw_text,
    row,
    shown_text,
    signed_rule,
    table,
    whole,
)
from .requests import A, Question

_PATH = meta(raw_text(1 << 16))
_TOKEN = meta(raw_text(1000))


class Probe(Question[A]):
    """Base of all of them; `KIND` stands in the frame."""

    TYPE = wire.PROBE
    KIND: ClassVar[str]

    def to_json(self) -> Json:
        return {"kind": self.KIND, **super().to_json()}


@dataclass(frozen=True)
class ClockAnswer(Answer):
    """The host's time."""

    time: float = field(metadata=FIGURE)


@dataclass(frozen=True)
class ClockProbe(Probe[ClockAnswer]):
    """What time it is there."""

    KIND = "clock"
    ANSWER = ClockAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class AccountAnswer(Answer):
    """The user, the login shell, proxies of the environment, and the agent's Python."""

    user: str = field(metadata=TEXT)
    shell: str = field(metadata=TEXT)
    proxies: Mapping[str, str] = field(metadata=meta(table(shown_text(), shown_text())))
    python: str = field(metadata=TEXT)
    executable: str = field(metadata=TEXT)


@dataclass(frozen=True)
class AccountProbe(Probe[AccountAnswer]):
    """Who we are there, and the login shell."""

    KIND = "account"
    ANSWER = AccountAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class PythonAnswer(Answer):
    """`failed` says why nothing is known; else the rest is known."""

    failed: str | None = field(default=None, metadata=meta(optional(shown_text())))
    version: str = field(default="", metadata=TEXT)
    executable: str = field(default="", metadata=TEXT)
    tensorflow: str = field(default="", metadata=TEXT)
    there: bool = field(default=False, metadata=FLAG)

    def problem(self) -> str:
        return "no version" if self.failed is None and not self.version else ""


@dataclass(frozen=True)
class PythonProbe(Probe[PythonAnswer]):
    """The version of an interpreter and of its TensorFlow."""

    KIND = "python"
    ANSWER = PythonAnswer
    python: str = field(metadata=RAW_TEXT)
    env: Mapping[str, str] = field(metadata=VARIABLES)
    setup: str = field(metadata=RAW_TEXT)
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class GpusAnswer(Answer):
    """Of each GPU index, name, driver and memory, as nvidia-smi prints them; `why` says why
    nvidia-smi lists none."""

    gpus: tuple[tuple[str, str, str, str], ...] = field(
        metadata=meta(items(row(shown_text(), shown_text(), shown_text(), shown_text())))
    )
    why: str = field(default="", metadata=TEXT)


@dataclass(frozen=True)
class GpusProbe(Probe[GpusAnswer]):
    """Which GPUs nvidia-smi lists."""

    KIND = "gpus"
    ANSWER = GpusAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class DiskSpaceAnswer(Answer):
    """Of each place what it is for, its path, its free bytes and its device; free and total
    memory."""

    disks: tuple[tuple[str, str, int, int], ...] = field(
        metadata=meta(items(row(shown_text(), shown_text(), signed_rule, signed_rule), fewest=1))
    )
    memory: tuple[int, int] = field(metadata=meta(row(signed_rule, signed_rule)))


@dataclass(frozen=True)
class DiskSpaceProbe(Probe[DiskSpaceAnswer]):
    """The free space where these paths and the run's folder lie, and the free memory."""

    KIND = "disk_space"
    ANSWER = DiskSpaceAnswer
    paths: tuple[str, ...] = field(metadata=meta(items(raw_text(), 100)))
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class LogdirAnswer(Answer):
    """The log directory, and the folder that exists so many levels `above` it; `why` says why
    it cannot be written; the newest checkpoint (`old`) and its age in seconds."""

    path: str = field(metadata=_PATH)
    base: str = field(metadata=_PATH)
    above: int = field(metadata=meta(whole(0, 4096)))
    why: str = field(metadata=TEXT)
    old: tuple[str, float] | None = field(metadata=meta(optional(row(shown_text(), figure_rule))))


@dataclass(frozen=True)
class LogdirProbe(Probe[LogdirAnswer]):
    """Whether a log directory can be written: makes the file `mark` in it, which stays until the
    agent leaves when it is to `keep` it."""

    KIND = "logdir"
    ANSWER = LogdirAnswer
    path: str = field(metadata=RAW_TEXT)
    mark: str = field(metadata=meta(file_name_rule))
    keep: bool = field(metadata=FLAG)
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class PathAnswer(Answer):
    """Whether a path exists."""

    exists: bool = field(metadata=FLAG)


@dataclass(frozen=True)
class PathProbe(Probe[PathAnswer]):
    """Whether a path exists."""

    KIND = "path"
    ANSWER = PathAnswer
    path: str = field(metadata=RAW_TEXT)
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class LeftoversAnswer(Answer):
    """Of each process left over its run, task, pid and command line."""

    found: tuple[tuple[str, str, int, str], ...] = field(
        metadata=meta(items(row(shown_text(), shown_text(), pid_rule, shown_text())))
    )


@dataclass(frozen=True)
class LeftoversProbe(Probe[LeftoversAnswer]):
    """Which processes dead runs have left."""

    KIND = "leftovers"
    ANSWER = LeftoversAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class ListenAnswer(Answer):
    """Ports on which it cannot listen, and why; those which only root may use."""

    failed: Mapping[str, str] = field(metadata=meta(table(port_text_rule, shown_text())))
    forbidden: tuple[int, ...] = field(metadata=meta(items(port_rule)))


@dataclass(frozen=True)
class ListenProbe(Probe[ListenAnswer]):
    """Listens on ports as the tasks would, and says `token` to whoever connects."""

    KIND = "listen"
    ANSWER = ListenAnswer
    ports: tuple[int, ...] = field(metadata=meta(items(port_rule, 4096)))
    token: str = field(metadata=_TOKEN)
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class ConnectAnswer(Answer):
    """How a connection went, to which address, and how long the name and the connection took."""

    outcome: str = field(
        metadata=meta(
            choice("ok", "refused", "filtered", "no-route", "failed", "stranger", "unresolved")
        )
    )
    text: str = field(metadata=TEXT)
    address: str = field(metadata=TEXT)
    resolved: float = field(metadata=SECONDS)
    connected: float = field(default=0.0, metadata=SECONDS)


@dataclass(frozen=True)
class ConnectProbe(Probe[ConnectAnswer]):
    """Connects as a task would, by name, and waits for the token."""

    KIND = "connect"
    ANSWER = ConnectAnswer
    host: str = field(metadata=meta(raw_text(1000)))
    port: int = field(metadata=PORT)
    token: str = field(metadata=_TOKEN)
    seconds: float = field(metadata=meta(number(0, 3600)))
    id: int | None = field(default=None, metadata=ANSWER_ID)


PROBES: dict[str, type[Probe[Any]]] = {
    kind.KIND: kind
    for kind in (
        ClockProbe,
        AccountProbe,
        PythonProbe,
        GpusProbe,
        DiskSpaceProbe,
        LogdirProbe,
        PathProbe,
        LeftoversProbe,
        ListenProbe,
        ConnectProbe,
    )
}
