"""The guilty rank of a run that fails or hangs is named, though others end or fall silent first."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.support.budgets import soak, variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.patience import wait_until
from tests.support.silent import silent_ranks
from tests.testbed import proc

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


def ring(how: str, program: str = RING, **more: Any) -> str:
    return cluster_text(
        {"worker": 4},
        command=[*python_task(program), how, "{worker_hosts}"],
        framework="torch",
        success="all",
        workdir="",
        grace=1,
        start={"order": [["worker"]], "ready": {"worker": "started"}},
        **more,
    )


@variants(
    "how",
    ["leaves", "stopped", "sleeps", *(soak(how) for how in ("raises", "killed"))],
    test=1,
)
def test_the_guilty_rank_is_named(tmp_path: Path, how: str) -> None:
    """Given four ranks of which one leaves, stands still or fails, when the run has ended for the
    failure of whoever missed it first, then its record, and the first line on stderr, name that
    one and what it did."""
    with Up("up", str(write(tmp_path, ring(how))), "--json") as up:
        assert up.wait() == 1, up.transcript()
    kind, words = WAYS[how]
    verdict: dict[str, Any] = up.of("run")[-1]["verdict"]
    assert (verdict["tasks"], verdict["kind"]) == (["worker:2"], kind), verdict
    # What two looks must find is sure if a busy machine leaves time for both.
    assert verdict["sure"] or how in ("stopped", "sleeps"), verdict
    cause = next(line for line in up.said.splitlines() if not line.startswith("tfmux: "))
    sure = "" if verdict["sure"] else "probably "
    assert cause.startswith(f"cause: {sure}worker:2 on localhost {words}"), up.said
    assert up.of("end")[-1]["cause_text"] == verdict["text"]


# A rank that has missed its peer and is ending waits in the kernel for a moment, as one does that
# gives back memory, or writes a core: the parent of a child that comes to its program late.
IN_KERNEL = """
import subprocess, tempfile

def in_kernel():
    pipe = tempfile.mkdtemp() + "/pipe"
    os.mkfifo(pipe)
    subprocess.Popen(["sh", "-c", 'sleep 0.3; : > "$0"', pipe])
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(0, 0, pipe, 0, 0)])

def ends(*exception):
    sys.__excepthook__(*exception)
    in_kernel()

import os, sys
sys.excepthook = ends
"""


def test_a_rank_that_is_ending_is_not_named_for_a_moment_in_the_kernel(tmp_path: Path) -> None:
    """Given a rank that sleeps, and others that miss each other and wait in the kernel for a moment
    as they end, then the one that sleeps is named."""
    with Up("up", str(write(tmp_path, ring("sleeps", IN_KERNEL + RING))), "--json") as up:
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["tasks"], verdict["kind"]) == (["worker:2"], "stuck"), verdict


def test_prepare_lines_have_not_left_early(tmp_path: Path) -> None:
    """Given `prepare` lines, which end with 0 long before the others, when a rank is stuck, then
    that one is named."""
    text = ring("sleeps", prepare=["true"])
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    assert up.of("run")[-1]["verdict"]["tasks"] == ["worker:2"], up.transcript()


PATIENT = RING.replace("settimeout(3)", "settimeout(None)").replace("range(1000)", "range(100000)")
TELLER = "import pathlib, sys; pathlib.Path('told').write_text(sys.stdin.read())"
HANGS = {
    "stopped": ("stopped", "worker:2 on localhost is stopped; 3 others wait in collective"),
    "sleeps": ("stuck", "worker:2 on localhost is in next_batch"),
}


@variants("how", HANGS, test=1)
def test_the_guilty_rank_of_a_hang_is_named_while_it_lasts(tmp_path: Path, how: str) -> None:
    """Given four ranks of which one stands still and all others wait without end, when the run has
    stalled, then its record, the hook, `ps` and `stacks` name that one; when it goes on, none is
    named any more."""
    kind, words = HANGS[how]
    go = tmp_path / "go"
    program = PATIENT.replace("step == 3", f"os.path.exists({str(go)!r})")
    text = ring(how, program, hooks={"on_stall": [sys.executable, "-c", TELLER]})
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        wait_until(lambda: len(up.of("metric")) > 5 * 4, "the pace of all four")
        go.touch()
        event = up.wait_for(lambda e: e["event"] == "run" and "verdict" in e, "a verdict")
        verdict = event["verdict"]
        assert (verdict["tasks"], verdict["kind"]) == (["worker:2"], kind)
        assert event["state"] == "running" and verdict["sure"], event
        assert verdict["text"].startswith(words), verdict
        assert f"cause: {verdict['text']}" in run("ps").stderr
        first, second, *_ = run("stacks", up.run_id).stdout.splitlines()
        assert first == f"cause: {verdict['text']}"
        assert second.startswith("! 1 task: worker:2 — "), second
        told = tmp_path / "told"
        wait_until(lambda: told.exists() and told.read_text(), "the hook was told")
        assert json.loads(told.read_text())["verdict"] == verdict
        if how == "stopped":
            (pid,) = {e["pid"] for e in up.of("task") if e["task"] == "worker:2" and "pid" in e}
            os.kill(pid, signal.SIGCONT)
            up.wait_for(lambda e: "hang" in e and "verdict" not in e, "no verdict any more")
            assert "cause" not in run("ps").stderr
        up.press_ctrl_c()
        assert up.wait() == 130


NAMED = {
    "sleeps": "probably worker:2 on localhost is in next_batch",
    "stopped": "probably worker:2 on localhost is stopped",
    "all wait": "",
    "serves": "",
}


@variants("how", NAMED, test=1)
def test_a_person_who_asks_is_told_the_odd_one(tmp_path: Path, how: str) -> None:
    """Given four ranks that print no figures, when one sleeps or is stopped while all others wait
    in a framework, then `stacks` names that one, puts it first and marks it; where all wait, or
    none waits in a framework, nobody is named."""
    with Up("up", str(write(tmp_path, silent_ranks(tmp_path, how))), "--json") as up:
        for rank in range(4):
            assert up.log(f"worker:{rank}", "begins")
        if how == "stopped":
            started = up.wait_for(lambda e: e.get("task") == "worker:2" and "pid" in e, "its pid")
            pid = started["pid"]
            wait_until(lambda: (found := proc.read(pid)) and found.state == "T", "it is stopped")
        said = run("stacks", up.run_id).stdout
        if NAMED[how]:
            first, second, *_ = said.splitlines()
            assert first.startswith(f"cause: {NAMED[how]}"), said
            assert second.startswith("! 1 task: worker:2 — "), said
        else:
            assert "cause" not in said and "!" not in said, said
        assert not any("verdict" in event for event in up.of("run"))
        up.press_ctrl_c()
        assert up.wait() == 130


def test_the_cause_of_each_attempt_is_told(tmp_path: Path) -> None:
    """Given a rank that leaves too early in each attempt of all tasks, then a note names it before
    they start again, and the record of the last attempt names it, too."""
    text = ring("leaves", on_failure="restart-all", max_restarts=1)
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    (cause,) = [e["note"] for e in up.of("note") if e["note"].startswith("cause of")]
    assert cause.startswith(
        "cause of the failure of attempt 1: worker:2 on localhost left with exit code 0"
    )
    begun = [e for e in up.of("run") if e["state"] == "starting" and e["attempt"] == 2]
    assert begun and all("verdict" not in e for e in begun)
    assert up.of("run")[-1]["verdict"]["tasks"] == ["worker:2"]


OTHER_CAUSE = """
import os, sys, time
print("works", flush=True)
attempt = os.environ["TFMUX_ATTEMPT"] + os.environ["RANK"]
if attempt == "11":
    raise ValueError("bad sample in shard 17")
time.sleep(0.5)
if attempt == "20":
    sys.exit(3)
time.sleep(1000)
"""


def test_an_earlier_attempt_is_no_evidence(tmp_path: Path) -> None:
    """Given a rank that has raised in the first attempt, when another one ends in the second one
    without a word, then that one is named."""
    text = ring("", OTHER_CAUSE, on_failure="restart-all", max_restarts=1)
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["tasks"], verdict["kind"]) == (["worker:0"], "failed"), verdict
