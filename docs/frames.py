"""Reference of the frames between launcher and agent, from their classes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator

from docs.markdown import table
from launcher.agent import wire
from launcher.hosts.frames import MESSAGES, REQUESTS, Frame, Question, Request, TaskFacts

_RAW = {
    wire.DATA: ("number of the log, offset, bytes", "Bytes of a log."),
    wire.REPLY: ("`id`, and the fields of the answer", "The answer to a frame with an `id`."),
}
"""Frames whose body is no record of their own: the body, and what it is."""
_HEADS = ("type", "frame", "fields", "answer", "is")


def markdown() -> Iterator[str]:
    """The frames of each direction."""
    yield f"Version {wire.VERSION}. A body has at most {wire.MAX_BODY // 2**20} MiB."
    kinds = sorted(wire.NAMES)
    first = kinds.index(wire.WELCOME)
    for title, chosen in (
        ("Launcher to agent", kinds[:first]),
        ("Agent to launcher", kinds[first:]),
    ):
        yield from ("", f"### {title}", "")
        yield from table(_HEADS, map(_frame, chosen))
    yield from ("", f"Facts of an attempt: {_fields(TaskFacts)}.")


def _frame(kind: int) -> tuple[str, ...]:
    name = f"`{wire.NAMES[kind]}`"
    if kind in _RAW:
        body, about = _RAW[kind]
        return (str(kind), name, body, "", about)
    record: type[Frame | Request] = REQUESTS[kind] if kind in REQUESTS else MESSAGES[kind]
    return (str(kind), name, *_columns(record))


def _columns(record: type[Frame | Request]) -> tuple[str, str, str]:
    answer = _fields(record.ANSWER) or "done" if issubclass(record, Question) else ""
    about = " ".join((inspect.getdoc(record) or "").split())
    if issubclass(record, TaskFacts):
        return "facts, see below", answer, about
    return _fields(record), answer, about


def _fields(record: type[Frame | Request]) -> str:
    if issubclass(record, Frame):
        names = list(record.model_fields)
    else:
        names = [field.name for field in dataclasses.fields(record)]
    return ", ".join(f"`{name}`" for name in names)
