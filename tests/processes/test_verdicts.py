"""The guilty rank of a run that fails is named, though a victim is the first to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.budgets import soak
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write

# Four ranks in a ring: each sends to the next one and waits for the one before, which is the
# collective. Who misses its peer says so in the words of gloo.
RING = """
import os, socket, sys, time

def collective():
    out.sendall(b"x")
    try:
        got = before.recv(1)
    except TimeoutError:
        raise RuntimeError("[unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation")
    except OSError:
        got = b""
    if not got:
        raise RuntimeError(f"[pair.cc:561] Connection closed by peer [127.0.0.1]:{ports[rank - 1]}")

def next_batch():
    time.sleep(1000)

rank, how = int(os.environ["RANK"]), sys.argv[1]
ports = [int(address.rpartition(":")[2]) for address in sys.argv[2].split(",")]
server = socket.create_server(("127.0.0.1", ports[rank]))
while True:
    try:
        out = socket.create_connection(("127.0.0.1", ports[(rank + 1) % len(ports)]))
        break
    except OSError:
        time.sleep(0.02)
before, _ = server.accept()
before.settimeout(3)
for step in range(1000):
    if rank == 2 and step == 3:
        if how == "raises":
            raise ValueError("bad sample in shard 17")
        if how == "leaves":
            sys.exit(0)
        if how == "slowly":
            out.close(), before.close()
            try:
                raise ValueError("bad sample in shard 17")
            finally:
                time.sleep(2)
        if how == "killed":
            os.kill(os.getpid(), 9)
        if how == "stopped":
            os.kill(os.getpid(), 19)
        if how == "sleeps":
            next_batch()
    collective()
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    time.sleep(0.05)
"""

WAYS = {
    "leaves": ("left-early", "left with exit code 0"),
    "stopped": ("stopped", "is stopped"),
    "sleeps": ("stuck", "was in next_batch"),
    "raises": ("raised", "raised ValueError: bad sample in shard 17"),
    "killed": ("killed", "was killed by SIGKILL, not by tfmux"),
}


@pytest.mark.parametrize(
    "how", ["leaves", "stopped", "sleeps", *(soak(how) for how in ("raises", "killed"))]
)
def test_the_guilty_rank_is_named(tmp_path: Path, how: str) -> None:
    """Given four ranks of which one leaves, stands still or fails, when the run has ended for the
    failure of whoever missed it first, then its record, and the first line on stderr, name that
    one and what it did."""
    text = cluster_text(
        {"worker": 4},
        command=[*python_task(RING), how, "{worker_hosts}"],
        framework="torch",
        success="all",
        workdir="",
        grace=1,
        start={"order": [["worker"]], "ready": {"worker": "started"}},
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    kind, words = WAYS[how]
    verdict: dict[str, Any] = up.of("run")[-1]["verdict"]
    assert verdict["tasks"] == ["worker:2"] and verdict["kind"] == kind and verdict["sure"], verdict
    cause = next(line for line in up.said.splitlines() if not line.startswith("tfmux: "))
    assert cause.startswith(f"cause: worker:2 on localhost {words}"), up.said
    assert up.of("end")[-1]["cause_text"] == verdict["text"]
