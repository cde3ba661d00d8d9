"""Frames for fuzzing: real ones of both sides, changed ones, log bytes and rubbish."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from launcher.agent import wire
from launcher.hosts.frames import Start
from launcher.ids import TaskId
from tests.support.agent_frames import ended, facts, welcome
from tests.support.budgets import examples

OWN = TaskId("worker", 1)
START = Start(OWN, 1, ("true",), {}, "/", 1000)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(st.characters(categories=None), max_size=10)
    | st.sampled_from(
        ["worker:0", "worker:1", "ps:0", "../../x:0", "/etc/x", "\0", "\x1b]52;c;eA==\x07"]
    )
    | st.sampled_from([-1, 0, 1, 1 << 31, 1 << 62, 1 << 63, 10**19]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
RECEIPT = {
    "ids": [1],
    "tasks": None,
    "signalled": 2,
    "survivors": [],
    "seconds": 0.1,
    "confirmed": True,
}
LEFT = {
    "processes": [
        {"pid": 5, "command": "x", "age": 0.1, "cpu": 0.2},
        {"pid": 6, "command": "y", "age": 0.1, "cpu": 0.2, "exit_code": 1, "forked": True},
        {"pid": 7, "command": "z", "age": 0.1, "cpu": 0.2, "signal": "HUP"},
    ],
    "unlisted": 1,
    "seconds": 1.0,
    "cpu": 0.1,
}
GPU = {
    "index": 0,
    "name": "T4",
    "uuid": "GPU-0",
    "utilisation": 0.5,
    "memory_used": 1,
    "memory_total": 2,
    "temperature": 40.0,
    "power": 50.0,
    "power_limit": 70.0,
    "throttled": ["power-cap"],
    "ecc_errors": 0,
    "xids": [79],
    "mode": "Default",
    "problem": "",
    "instances": [{"name": "1g.5gb", "uuid": "MIG-0"}],
    "processes": [
        {"pid": 5, "memory": 1, "task": "worker:1", "command": "x"},
        {"pid": 6, "memory": None, "user": "root", "command": "y", "elsewhere": True},
    ],
    "unlisted": 1,
}
SURVIVOR = {"pid": 5, "command": "x", "state": "D"}
FROM_AGENT: list[tuple[int, dict[str, Any]]] = [
    (wire.WELCOME, welcome(tasks=[facts("worker:1")])),
    (wire.STARTED, {**facts("worker:1"), "port_owner": {"port": 1, "pid": 2, "command": "x"}}),
    (wire.LISTENING, facts("worker:1", listening=True)),
    (wire.EXITED, ended("worker:1")),
    (wire.EXITED, ended("worker:1", left=LEFT)),
    (wire.EOF, ended("worker:1", eof=True, lost=1, cut=1)),
    (wire.LOG_SIZE, {"task": "worker:1", "size": 3}),
    (wire.LOG_SIZE, {"task": "worker:1", "size": 3, "attempt": 1}),
    (wire.PONG, {"time": 1.0}),
    (wire.RECEIPT, {**RECEIPT, "confirmed": False, "survivors": [SURVIVOR]}),
    (wire.RECEIPT, {**RECEIPT, "tasks": ["worker:1"], "confirmed": False}),
    (wire.NOTE, {"text": "x"}),
    (wire.ERROR, {"text": "x", "code": "y"}),
    (wire.GONE, {"by": "", "left": ["worker:1", None]}),
    (wire.REPLY, {"id": 1, "busy": [20000], "owners": []}),
    (
        wire.REPLY,
        {
            "id": 2,
            "cpu": 0.5,
            "memory_total": 2,
            "memory_used": 1,
            "gpus": [GPU],
            "gpu_problem": "x",
            "tasks": {"worker:1": [0.5, 100], "worker:0": [0.5, 1]},
        },
    ),
    (wire.REPLY, {"id": 2, "error": "full"}),
    (wire.REPLY, {"id": 3, "gpus": [GPU], "driver": "535", "cuda": "12.2", "why": "lost"}),
    (
        wire.REPLY,
        {
            "id": 4,
            "stacks": [[["f", "a.py", 1], ["sleeps", "", 0]]],
            "processes": [
                {
                    "task": "worker:1",
                    "pid": 5,
                    "command": "python",
                    "way": "python",
                    "state": "runs",
                    "note": "",
                    "threads": [["main", 0]],
                    "unlisted": 0,
                    "files": [],
                }
            ],
            "unlisted": 0,
        },
    ),
]
TO_AGENT: list[tuple[int, dict[str, Any]]] = [
    (
        wire.START,
        {
            "task": "junk:0",
            "attempt": 1,
            "argv": ["true"],
            "env": {"A": "b"},
            "cwd": "/",
            "log_limit": 1000,
            "port": None,
            "pty": False,
        },
    ),
    (wire.BEAT, {}),
    (
        wire.READ_LOG,
        {"task": "junk:0", "number": 3, "offset": 0, "log_limit": 1000, "attempt": 1},
    ),
    (wire.CREDIT, {"up_to": 1000}),
    (wire.KILL, {"id": 1, "tasks": ["junk:0"], "grace": 0.0}),
    (wire.PORTS, {"id": 1, "check": [1], "candidates": [2]}),
    (wire.STATS, {"id": 1}),
    (wire.GPUS, {"id": 1}),
    (wire.STACKS, {"id": 1, "tasks": ["junk:0"]}),
]


def tries(count: int) -> settings:
    """Settings of a fuzzer with up to so many examples."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return examples(count, suppress_health_check=checks)


@st.composite
def changed(draw: st.DrawFn, real: list[tuple[int, dict[str, Any]]]) -> bytes:
    """A real frame in which a value somewhere is another one, or is missing, or bytes differ."""
    kind, body = copy.deepcopy(draw(st.sampled_from(real)))
    for _ in range(draw(st.integers(0, 2))):
        place: Any = body
        while isinstance(place, dict | list) and place:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else [0]))
            if not isinstance(place[key], dict | list) or not draw(st.booleans()):
                if draw(st.integers(0, 4)):
                    place[key] = draw(JSON)
                else:
                    del place[key]
                break
            place = place[key]
    frame = wire.encode(kind, body)
    if not draw(st.integers(0, 5)):
        at = draw(st.integers(0, len(frame) - 1))
        frame = frame[:at] + draw(st.binary(max_size=4)) + frame[at + 1 :]
    return frame


def log_bytes() -> st.SearchStrategy[bytes]:
    """Frames with bytes of some log."""
    return st.builds(
        wire.encode_data,
        st.sampled_from([0, 1, 0xFFFF]),
        st.sampled_from([0, 3, 100, 1 << 40, (1 << 64) - 1]),
        st.binary(max_size=20),
    )


def rubbish() -> st.SearchStrategy[bytes]:
    """Bytes that are no frame, or one of any type with any body."""
    kinds = st.sampled_from(sorted(wire.NAMES))
    return st.binary(max_size=60) | st.builds(wire.encode_raw, kinds, st.binary(max_size=60))


FRAMES = st.lists(changed(FROM_AGENT) | log_bytes() | rubbish(), min_size=1, max_size=6)
