"""The guilty rank of a run that fails, hangs or takes too much memory is named; attempts, restarts
and first failures."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.store.runs import RunFolder
from tests.support import fault_tasks as tasks
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, confirmed, gone, last_states, launch
from tests.support.silent import silent_ranks
from tests.support.streams import records
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


def test_neither_a_moment_in_the_kernel_nor_lines_that_have_ended_are_named(tmp_path: Path) -> None:
    """Given a rank that sleeps, others that miss each other and wait in the kernel for a moment as
    they end, and `prepare` lines that have ended with 0 long before, then the one that sleeps is
    named."""
    text = ring("sleeps", IN_KERNEL + RING, prepare=["true"])
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["tasks"], verdict["kind"]) == (["worker:2"], "stuck"), verdict


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


FILLS = """
import os, sys, time
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
held = []
while True:
    held.append(b"x" * (4 << 20))
"""
KILLS = "import os; os.kill(os.getpid(), 9)"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of its own for the task, as a container or a job of Slurm has one."""
    name = f"tfmux-test-{os.getpid()}"
    for top, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        folder = Path(top, name)
        try:
            folder.mkdir()
            (folder / limit).write_text(str(64 << 20))
        except OSError:
            if folder.exists():
                folder.rmdir()
            continue
        yield folder
        folder.rmdir()
        return
    pytest.skip("this machine lets nobody make a control group of memory")


@variants("shell", [False, True], ids=["itself", "below a shell"], test=1)
def test_the_kernel_has_ended_a_task_of_its_own_group(
    tmp_path: Path, group: Path, shell: bool
) -> None:
    """Given a task in a control group that the agent does not count, when the kernel ends it, or
    the program that its shell has started, for want of memory, then the run says so."""
    go = tmp_path / "go"
    task = [*python_task(FILLS), str(group), str(go)]
    command = ["sh", "-c", '"$@"; exit $?', "sh", *task] if shell else task
    text = cluster_text(
        {"worker": 1}, command=command, workdir="", grace=1, start={"ready": {"worker": "started"}}
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.wait_for(lambda e: e["event"] == "run" and e["state"] == "running", "the task")
        assert run("stacks", up.run_id).returncode == 0  # its processes are known
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["kind"], verdict["sure"]) == ("out-of-memory", True), verdict
    assert "out of memory" in up.said


def test_a_kill_is_none(tmp_path: Path) -> None:
    """Given a task that somebody has killed, then nothing is said of memory."""
    text = cluster_text(
        {"worker": 1},
        command=python_task(KILLS),
        workdir="",
        grace=1,
        start={"ready": {"worker": "started"}},
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    assert up.of("run")[-1]["verdict"]["kind"] == "killed"


def test_a_failing_task_is_restarted_until_its_attempts_are_used_up(tmp_path: Path) -> None:
    """Given a worker that always fails and two restarts, when the third attempt fails, then so does
    the run; each attempt has its number, its part of the log, and nothing of the one before."""
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run='on_failure = "restart"\nmax_restarts = 2\ngrace = 1',
        modes={"worker": "fails orphan"},
        env={"FIRST": "worker:1", "FIRST_SECONDS": "fail ATTEMPT"},
    ) as up:
        for attempt in (1, 2, 3):
            up.wait_for(
                lambda e, n=attempt: (
                    e["event"] == "task"  # type: ignore[misc]
                    and (e["task"], e["attempt"], e["state"]) == ("worker:1", n, "ready")
                ),
                f"attempt {attempt}",
            )
            tags = [p.tag for p in FaultScenario.here(up.run_id) if "/worker:1/" in (p.tag or "")]
            assert set(tags) == {f"{up.run_id}/worker:1/{attempt};"}, tags
            tasks.tell(tmp_path / "ledger", up.run_id, f"fail {attempt}")
        assert up.wait() == 1, up.transcript()
        assert "worker:1 on localhost: exit 7" in up.said
        states = [(e["state"], e["attempt"]) for e in up.of("task") if e["task"] == "worker:1"]
        assert ("backoff", 1) in states and ("backoff", 2) in states
        assert ("backoff", 3) not in states and states[-1] == ("failed", 3)
        starts = [
            r["attempts"][-1]["log_start"]
            for r in records(RunFolder.find(up.run_id))
            if r["event"] == "task" and r["task"] == "worker:1" and "attempts" in r
        ]
        log = (RunFolder.find(up.run_id).path / "worker-1.log").read_bytes()
        assert len(set(starts)) == 3 and starts == sorted(starts)
        for number, start in enumerate(sorted(set(starts)), 1):
            assert log[start:].startswith(f"here is {up.run_id}.worker-1.{number}\n".encode())
        assert confirmed(up) and gone(up.run_id)


def test_a_restarted_task_that_recovers_ends_in_success(tmp_path: Path) -> None:
    """Given two workers that each fail once and may be restarted, when their second attempts end
    well, then the run is a success with a clean receipt."""
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run='on_failure = "restart"\ngrace = 1',
        modes={"worker": "fails"},
        env={"SECONDS": "1", "FAILURES": "1"},
    ) as up:
        assert up.wait() == 0, up.transcript()
        ended = {e["task"]: e["attempt"] for e in up.of("task") if e["state"] == "exited"}
        assert (ended["worker:0"], ended["worker:1"]) == (2, 2)
        assert confirmed(up) and gone(up.run_id)


RULES_HANGS = """
import os, socket, sys, time
server = socket.create_server(("", int(sys.argv[1])))
task = os.environ["TFMUX_TASK"].split("/")[1]
print("step 1", flush=True)
time.sleep(0.5 if task == "worker:1" else 1000)
"""


def test_a_program_that_hangs_at_its_end_is_named_and_ended(tmp_path: Path) -> None:
    """Given a chief that says nothing more once the other worker has ended well, when
    `finish_timeout` is over, then the chief is ended and has failed, for that reason."""
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run="finish_timeout = 2\ngrace = 1",
        words=["{python}", "-c", RULES_HANGS.replace("{", "{{").replace("}", "}}"), "{port}"],
    ) as up:
        assert up.wait() == 1, up.transcript()
        assert last_states(up)["worker:0"] == "failed" and last_states(up)["worker:1"] == "exited"
        assert "worker:0 on localhost: hangs at its end: no output for" in up.said
        assert confirmed(up) and gone(up.run_id)
