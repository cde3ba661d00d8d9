"""Questions of a preflight to an agent; each may block there (`probe` answers them)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Mapping

from . import answers, wire
from .fields import (
    ANSWER_ID,
    FLAG,
    PORT,
    RAW_TEXT,
    VARIABLES,
    Json,
    file_name_rule,
    items,
    meta,
    number,
    port_rule,
    raw_text,
)
from .requests import A, Question

_TOKEN = meta(raw_text(1000))


class Probe(Question[A]):
    """Base of all of them; `KIND` stands in the frame."""

    TYPE = wire.PROBE
    KIND: ClassVar[str]

    def to_json(self) -> Json:
        return {"kind": self.KIND, **super().to_json()}


@dataclass(frozen=True)
class ClockProbe(Probe[answers.ClockAnswer]):
    """What time it is there."""

    KIND = "clock"
    ANSWER = answers.ClockAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class AccountProbe(Probe[answers.AccountAnswer]):
    """Who we are there, and the login shell."""

    KIND = "account"
    ANSWER = answers.AccountAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class PythonProbe(Probe[answers.PythonAnswer]):
    """The version of an interpreter and of its TensorFlow."""

    KIND = "python"
    ANSWER = answers.PythonAnswer
    python: str = field(metadata=RAW_TEXT)
    env: Mapping[str, str] = field(metadata=VARIABLES)
    setup: str = field(metadata=RAW_TEXT)
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class GpusProbe(Probe[answers.GpusAnswer]):
    """Which GPUs nvidia-smi lists."""

    KIND = "gpus"
    ANSWER = answers.GpusAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class DiskSpaceProbe(Probe[answers.DiskSpaceAnswer]):
    """The free space where these paths and the run's folder lie, and the free memory."""

    KIND = "disk_space"
    ANSWER = answers.DiskSpaceAnswer
    paths: tuple[str, ...] = field(metadata=meta(items(raw_text(), 100)))
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class LogdirProbe(Probe[answers.LogdirAnswer]):
    """Whether a log directory can be written: makes the file `mark` in it, which stays until the
    agent leaves when it is to `keep` it."""

    KIND = "logdir"
    ANSWER = answers.LogdirAnswer
    path: str = field(metadata=RAW_TEXT)
    mark: str = field(metadata=meta(file_name_rule))
    keep: bool = field(metadata=FLAG)
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class PathProbe(Probe[answers.PathAnswer]):
    """Whether a path exists."""

    KIND = "path"
    ANSWER = answers.PathAnswer
    path: str = field(metadata=RAW_TEXT)
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class LeftoversProbe(Probe[answers.LeftoversAnswer]):
    """Which processes dead runs have left."""

    KIND = "leftovers"
    ANSWER = answers.LeftoversAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class ListenProbe(Probe[answers.ListenAnswer]):
    """Listens on ports as the tasks would, and says `token` to whoever connects."""

    KIND = "listen"
    ANSWER = answers.ListenAnswer
    ports: tuple[int, ...] = field(metadata=meta(items(port_rule, 4096)))
    token: str = field(metadata=_TOKEN)
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class ConnectProbe(Probe[answers.ConnectAnswer]):
    """Connects as a task would, by name, and waits for the token."""

    KIND = "connect"
    ANSWER = answers.ConnectAnswer
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
