"""Frames of a launcher, checked before the agent acts on them: fields, types, ranges.

Whoever speaks on a channel may do with this account what it likes. But a frame that is wrong by
mistake or on purpose must not bring the agent into a state from which its tasks do not come
back: it costs the channel on which it came and nothing else.
"""

from __future__ import annotations

import re
from typing import Any, Callable

from . import wire

Check = Callable[[Any], bool]

_TASK = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}:[0-9]{1,9}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST = 1 << 16
_LONGEST = 1 << 20
_MOST_PORTS = 4096


def _whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float) -> Check:
    return lambda value: type(value) in (int, float) and low <= value <= high


def _text(longest: int = _LONGEST) -> Check:
    return lambda value: isinstance(value, str) and len(value) <= longest


def _list(of: Check, most: int = _MOST) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(of, value))


def _row(*of: Check) -> Check:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(of)
        and all(check(each) for check, each in zip(of, value))
    )


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _texts_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _task(value: Any) -> bool:
    return isinstance(value, str) and _TASK.fullmatch(value) is not None


def _file_name(value: Any) -> bool:
    return _text(255)(value) and "/" not in value and value not in ("", ".", "..")


_ROW_OF_ENTRY = _row(
    _text(), _text(), lambda kind: kind in ("d", "f", "l"), _whole(0, 0o7777), _whole(0, 1 << 62),
    _text(),
)  # fmt: skip


def _entry(value: Any) -> bool:
    """One entry of a manifest; the content of a file is a SHA-256 and names a file in a cache."""
    return _ROW_OF_ENTRY(value) and (value[2] != "f" or _SHA256.fullmatch(value[5]) is not None)


_ID = _whole(0, 1 << 62)
_SIZE = _whole(0, 1 << 62)
_PORT = _whole(1, 65535)
_PORTS = _list(_PORT, _MOST_PORTS)
_LOG_NUMBER = _whole(0, (1 << 16) - 1)

# A field whose name ends in "?" may be missing.
_FIELDS: dict[int, dict[str, Check]] = {
    wire.HELLO: {
        "version": _whole(0, 1 << 31),
        "token": _text(100),
        "who": _text(1000),
        "names": _list(_text(1000), 100),
        "query?": _flag,
    },
    wire.START: {
        "task": _task,
        "attempt": _whole(1, 1 << 31),
        "argv": lambda value: _list(_text())(value) and value != [],
        "env": _texts_by_name,
        "cwd": _text(),
        "log_limit": _SIZE,
        "port?": _optional(_PORT),
        "pty?": _flag,
    },
    wire.BEAT: {},
    wire.OPEN: {"task": _task, "number": _LOG_NUMBER, "from": _SIZE, "log_limit?": _SIZE},
    wire.CREDIT: {"upto": _SIZE},
    wire.KILL: {"id": _ID, "tasks": _optional(_list(_task)), "grace": _number(-1e9, 1e9)},
    wire.PORTS: {
        "id": _ID,
        "look": _PORTS,
        "pick": _whole(0, _MOST_PORTS),
        "avoid": _list(_PORT),
    },
    wire.STATS: {"id": _ID},
    wire.STAGED: {
        "id": _ID,
        "entries": _list(_entry),
        "first?": _flag,
        "key?": _text(1000),
        "last?": _flag,
        "build?": _flag,
    },
    wire.LEAVE: {"remove?": _flag, "handover?": _flag},
    wire.PROBE: {"id": _ID, "what": _text(100)},
    wire.COLLECT: {
        "id?": _ID,
        "open?": _LOG_NUMBER,
        "from?": _SIZE,
        "upto?": _SIZE,
        "done?": _flag,
        "paths?": _list(_row(_file_name, _text())),
    },
}

_RULES: dict[str, Check] = {
    "lease": _number(0, 1e9),
    "grace": _number(0, 1e9),
    "on_disconnect": lambda value: value in ("stop", "keep"),
}
"""Of a greeting by a launcher; who only looks sends none."""

_PROBES: dict[str, dict[str, Check]] = {
    "clock": {},
    "account": {},
    "gpus": {},
    "leftovers": {},
    "python": {"python": _text(), "env": _texts_by_name, "setup": _text()},
    "room": {"paths": _list(_text(), 100)},
    "logdir": {"path": _text(), "mark": _file_name, "keep": _flag},
    "seen": {"path": _text()},
    "listen": {"ports": _PORTS, "token": _text(1000)},
    "connect": {
        "host": _text(1000),
        "port": _PORT,
        "token": _text(1000),
        "seconds": _number(0, 3600),
    },
}


def parse(frame: wire.Frame) -> dict[str, Any]:
    """The body of a launcher's frame.

    Raises:
        WireError: no launcher sends such a frame.
    """
    name = wire.NAMES[frame.type]
    if frame.type not in _FIELDS:
        raise wire.WireError(f"unexpected {name}")
    body = frame.json()
    if frame.type == wire.HELLO and body.get("version") != wire.VERSION:
        said = str(body.get("version"))[:20]
        raise wire.WireError(f"this agent speaks version {wire.VERSION}, the launcher {said}")
    _check(name, _FIELDS[frame.type], body)
    if frame.type == wire.HELLO and not body.get("query"):
        _check(name, _RULES, body)
    if frame.type == wire.PROBE:
        if body["what"] not in _PROBES:
            raise wire.WireError(f"{name}: unknown question")
        _check(f"{name} {body['what']}", _PROBES[body["what"]], body)
    if frame.type == wire.STAGED and body.get("first") and "key" not in body:
        raise wire.WireError(f"{name}: no key")
    if frame.type == wire.COLLECT:
        if "open" in body and not {"from", "upto"} <= body.keys():
            raise wire.WireError(f"{name}: no offset")
        if "id" not in body and "upto" not in body:
            raise wire.WireError(f"{name}: no id")
    return body


def _check(name: str, fields: dict[str, Check], body: dict[str, Any]) -> None:
    for field, check in fields.items():
        key = field.rstrip("?")
        if key not in body:
            if key == field:
                raise wire.WireError(f"{name}: no {key}")
        elif not check(body[key]):
            raise wire.WireError(f"{name}: {key} is not what it should be")
