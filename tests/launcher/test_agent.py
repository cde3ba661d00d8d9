"""The agent alone: real processes that misbehave, on this machine, and what it says of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from launcher.agent.folders import local_folder
from tests.launcher.agent_client import (
    Client,
    family,
    hello,
    state_folder,
    wait_until,
    watchdog_and_agent,
)
from tests.testbed import proc
from tests.testbed.proc import Process


@pytest.fixture
def client() -> Iterator[Client]:
    """A greeted channel to a fresh agent; whatever is left of it is ended."""
    with Client(f"t-{os.urandom(4).hex()}") as channel:
        channel.hello()
        yield channel
        if channel.process.poll() is None:
            channel.kill()
            channel.leave()


def sleepers(mark: str) -> list[Process]:
    """Living processes of this machine whose last argument is `mark`."""
    return [p for p in proc.scan() if p.alive and p.argv[-1:] == (mark,)]


DAEMON = """
import os, sys
mark = sys.argv[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.execve("/usr/bin/env", ["env", "-i", "/bin/sh", "-c", "sleep 1000; :", mark], {})
    os._exit(0)
os.wait()
print("born", flush=True)
"""
"""Leaves a daemon: in a session of its own, nobody's child, its environment empty."""


def test_a_task_that_ignores_term_is_killed_after_the_grace(client: Client) -> None:
    """TERM at once, KILL after the grace and not before; the receipt counts both processes."""
    script = "import signal, subprocess, time; signal.signal(15, signal.SIG_IGN);"
    script += "subprocess.Popen(['sleep', '1000']); print('up'); time.sleep(1000)"
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"up")
    receipt = client.kill(grace=0.5)
    assert receipt["survivors"] == []
    assert receipt["signalled"] == 2
    assert receipt["seconds"] >= 0.5
    assert len(family(client.run_id)) == 3  # watchdog, agent, bridge


def test_a_daemon_with_an_emptied_environment_is_found(client: Client) -> None:
    """Nothing ties it to the task but its birth below the agent; the kill still ends it."""
    mark = f"mark-{client.run_id}"
    client.python("w:0", DAEMON, mark)
    client.get(wire.EXITED, task="w:0", status=0)
    wait_until(lambda: sleepers(mark), "the daemon runs")
    assert all("TFMUX_TASK" not in p.environ for p in sleepers(mark))
    assert client.kill()["survivors"] == []
    assert sleepers(mark) == []


def test_a_task_that_stops_itself_gets_its_term(client: Client) -> None:
    """CONT follows TERM: a stopped task ends by its own handler, well within the grace."""
    script = "import os, signal, sys\n"
    script += "signal.signal(15, lambda *_: (print('bye'), sys.exit(3)))\n"
    script += "print('stopping'); os.kill(os.getpid(), signal.SIGSTOP)\n"
    script += "signal.pause()"
    started = client.python("w:0", script)
    wait_until(lambda: (p := proc.look(started["pid"])) and p.state == "T", "it is stopped")
    receipt = client.kill(grace=30.0)
    assert receipt["survivors"] == [] and receipt["seconds"] < 20
    client.follow("w:0")
    assert b"bye" in client.log_until(b"bye")


def test_a_process_whose_main_thread_has_ended_is_alive(client: Client) -> None:
    """The process table shows it as a zombie while its other thread works on: it is killed."""
    script = """
import ctypes, os, threading, time
def work():
    for number in range(100000):
        os.write(1, b"working %d\\n" % number)
        time.sleep(0.05)
threading.Thread(target=work).start()
libc = ctypes.CDLL(None)
libc.pthread_exit.restype = None
libc.syscall(60, 0)
"""
    started = client.python("w:0", script)
    client.follow("w:0")
    wait_until(lambda: (p := proc.look(started["pid"])) and p.state == "Z", "its leader is dead")
    client.log_until(b"working 20\n")
    receipt = client.kill()
    assert receipt["signalled"] == 1 and receipt["survivors"] == []
    client.get(wire.EOF, task="w:0")
    assert proc.look(started["pid"]) is None


def test_a_chain_of_forks_is_caught(client: Client) -> None:
    """A process that forks and exits all the time is never there when its pid is signalled:
    its group is."""
    script = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"chain\\n")
end = time.monotonic() + 60
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.0005)
"""
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"chain")
    receipt = client.kill()
    assert receipt["survivors"] == []
    assert len(family(client.run_id)) == 3


def test_many_forks_are_caught(client: Client) -> None:
    """Hundreds of children that ignore TERM and fork on are all gone after one kill."""
    script = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for depth in range(7):
    os.fork()
os.write(1, b"x")
while True:
    if os.fork() == 0:
        time.sleep(0.05)
        os._exit(0)
    os.wait()
"""
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"x" * 100)
    receipt = client.kill(grace=0.1)
    assert receipt["survivors"] == [] and receipt["signalled"] >= 128
    assert len(family(client.run_id)) == 3


def test_a_task_that_closes_its_output_is_still_a_task(client: Client) -> None:
    """The end of its output is not its end: it is killed, and only then told as ended."""
    script = "import os, time; os.closerange(0, 100); time.sleep(1000)"
    started = client.python("w:0", script)
    wait_until(lambda: not os.listdir(f"/proc/{started['pid']}/fd"), "its output is closed")
    assert client.kill()["signalled"] == 1
    assert client.get(wire.EXITED, task="w:0")["signal"] == "KILL"


def test_a_grandchild_that_holds_the_output_does_not_hide_the_end(client: Client) -> None:
    """The exit is told though the pipe is still open; the end of the output comes when the
    grandchild is killed, and its last words are in the log."""
    script = "import subprocess; print('leaving', flush=True);"
    script += "subprocess.Popen(['sh', '-c', 'trap \"echo ended; exit\" TERM; sleep 1000 & wait'])"
    client.python("w:0", script)
    assert client.get(wire.EXITED, task="w:0")["status"] == 0
    assert client.kill(grace=10.0)["survivors"] == []
    size = client.get(wire.EOF, task="w:0")["size"]
    client.follow("w:0")
    assert client.log_until(b"ended") == b"leaving\nended\n"
    assert size == len(b"leaving\nended\n")


def test_a_task_of_a_like_name_and_another_run_are_not_touched(client: Client) -> None:
    """`w:1` does not hit `w:10`, and nothing of a run hits another run's tasks, nor one whose
    id merely begins alike, nor somebody's process with a like command line."""
    others = [
        {"TFMUX_TASK": f"{client.run_id}x/w:1/1;"},
        {"TFMUX_TASK": "another-run/w:1/1;"},
        {"TFMUX_NOTE": f"TFMUX_TASK={client.run_id}/w:1/1;"},
        {},
    ]
    argv = ["sleep", "1000"]
    bystanders = [
        subprocess.Popen(argv, env={**os.environ, **env}, start_new_session=True) for env in others
    ]
    try:
        one, ten = client.start("w:1", argv), client.start("w:10", argv)
        client.kill(["w:1"])
        assert proc.look(one["pid"]) is None
        survivor = proc.look(ten["pid"])
        assert survivor is not None and survivor.alive
        client.kill()
        assert proc.look(ten["pid"]) is None
        assert [bystander.poll() for bystander in bystanders] == [None] * len(bystanders)
    finally:
        for bystander in bystanders:
            bystander.kill()
            bystander.wait()


def test_two_hosts_of_a_run_may_be_one_machine(client: Client) -> None:
    """An agent leaves alone what belongs to the run's other agent on the same machine, daemons
    included; when that one is dead, what it left is anybody's to end."""
    mark = f"other-{client.run_id}"
    client.start("w:0", ["sleep", "1000"])
    with Client(client.run_id, host="there", local=True) as other:
        other.hello()
        theirs = other.python("w:1", DAEMON + "\nimport time; time.sleep(1000)", mark)
        wait_until(lambda: sleepers(mark), "the daemon runs")
        assert client.kill()["signalled"] == 1
        process = proc.look(theirs["pid"])
        assert process is not None and process.alive and sleepers(mark)
        other.kill()
        other.leave()
    assert sleepers(mark) == []


def test_a_second_press_does_not_wait_for_the_grace(client: Client) -> None:
    """A kill with a long grace is hurried by the next one; one receipt answers all presses."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(99)"
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"up")
    for ident, grace in ((101, 600.0), (102, 600.0), (103, 0.0)):
        client.send(wire.KILL, {"id": ident, "tasks": None, "grace": grace})
    receipt = client.get(wire.RECEIPT)
    assert receipt["ids"] == [101, 102, 103]
    assert receipt["survivors"] == [] and receipt["signalled"] == 1


def test_nothing_starts_while_everything_is_being_killed(client: Client) -> None:
    """A start that arrives behind the kill is refused, not started and forgotten."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(99)"
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"up")
    client.send(wire.KILL, {"id": 1, "tasks": None, "grace": 1.0})
    late = client.start("w:1", ["sleep", "1000"])
    assert late["error"] == "the run is being ended" and late["pid"] == 0
    assert client.get(wire.RECEIPT)["signalled"] == 1


def test_a_receipt_that_nobody_heard_is_in_the_next(client: Client) -> None:
    """A kill that ended while the launcher was cut off: who asks again is told what that kill
    had signalled."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(99)"
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"up")
    client.send(wire.KILL, {"id": 1, "tasks": None, "grace": 0.3})
    client.close()
    wait_until(lambda: len(family(client.run_id)) == 2, "the task is dead")
    with Client(client.run_id) as again:
        again.hello()
        receipt = again.kill()
        assert receipt["signalled"] == 1 and receipt["survivors"] == []
        again.leave()


# --- the agent's and the watchdog's own death ---------------------------------------------------


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sh", ["sh", "-c", "trap '' TERM; sleep 1000; :", sys.argv[1]], {})
    os._exit(0)
os.wait()
print("up", flush=True)
time.sleep(1000)
"""


def stubborn(client: Client) -> str:
    """Starts a task that ignores TERM and has a daemon that does so, too; returns the daemon's
    mark."""
    mark = f"mark-{client.run_id}"
    client.python("w:0", STUBBORN, mark)
    client.follow("w:0")
    client.log_until(b"up")
    wait_until(lambda: sleepers(mark), "the daemon runs")
    return mark


def test_a_killed_agent_takes_everything_with_it(client: Client) -> None:
    """SIGKILL of the agent: its watchdog ends tasks and daemons and goes; the next agent tells
    that the last one died."""
    mark = stubborn(client)
    watchdog, agent = watchdog_and_agent(client.run_id)
    proc.signal_process(agent, signal.SIGKILL)
    client.everything()
    assert proc.wait_gone(watchdog, 20)
    assert sleepers(mark) == [] and family(client.run_id) == []
    with Client(client.run_id) as again:
        welcome = again.hello()
        assert welcome["previous_exit"] == {"reason": "died", "text": "the agent died"}
        assert [(t["task"], t["ended"], t["status"]) for t in welcome["tasks"]] == [
            ("w:0", True, None)
        ]
        assert again.kill()["signalled"] == 0
        again.leave()


def test_a_frozen_agent_is_ended_by_its_watchdog(client: Client) -> None:
    """SIGSTOP of the agent: nothing of the run lives after the watchdog has noticed."""
    mark = stubborn(client)
    watchdog, agent = watchdog_and_agent(client.run_id)
    proc.signal_process(agent, signal.SIGSTOP)
    assert proc.wait_gone(watchdog, 30)
    assert sleepers(mark) == []
    wait_until(lambda: family(client.run_id) == [], "bridges have gone, too")


def test_an_agent_without_a_watchdog_ends_the_run(client: Client) -> None:
    """SIGKILL of the watchdog: the agent cannot be trusted to live on unwatched, so it ends
    tasks and daemons with the grace, says so, and goes."""
    mark = stubborn(client)
    watchdog, _ = watchdog_and_agent(client.run_id)
    proc.signal_process(watchdog, signal.SIGKILL)
    assert "told to stop" in client.get(wire.NOTE)["text"]
    receipt = client.get(wire.RECEIPT)
    assert receipt["survivors"] == [] and receipt["signalled"] >= 2
    client.everything()
    assert sleepers(mark) == [] and family(client.run_id) == []


def test_what_outlives_agent_and_watchdog_is_ended_by_the_next_agent(client: Client) -> None:
    """Both killed at once: a daemon without a tag lives on, as the roster knows; the next agent
    of the run ends it and nothing else."""
    mark = stubborn(client)
    daemon = sleepers(mark)[0]
    state = state_folder(client.run_id) / "state.json"
    wait_until(lambda: f"[{daemon.pid}, " in state.read_text(), "the roster has the daemon")
    watchdog, agent = watchdog_and_agent(client.run_id)
    for process in (watchdog, agent):
        proc.signal_process(process, signal.SIGSTOP)
    for process in (watchdog, agent):
        proc.signal_process(process, signal.SIGKILL)
    client.everything()
    wait_until(lambda: family(client.run_id) == [], "what has a tag has gone with the agent")
    assert sleepers(mark), "the daemon was meant to live on"
    with Client(client.run_id) as again:
        again.hello()
        receipt = again.kill()
        assert receipt["signalled"] >= 1 and receipt["survivors"] == []
        assert sleepers(mark) == []
        again.leave()


def test_a_frozen_agent_without_a_watchdog_is_replaced(client: Client) -> None:
    """Watchdog killed while the agent is stopped: nobody there acts any more, so the next
    contact does: the frozen agent is ended, and a new one ends what it left."""
    mark = stubborn(client)
    daemon = sleepers(mark)[0]
    state = state_folder(client.run_id) / "state.json"
    wait_until(lambda: f"[{daemon.pid}, " in state.read_text(), "the roster has the daemon")
    watchdog, agent = watchdog_and_agent(client.run_id)
    proc.signal_process(agent, signal.SIGSTOP)
    proc.signal_process(watchdog, signal.SIGKILL)
    with Client(client.run_id) as again:
        again.hello()
        assert again.kill()["survivors"] == []
        assert sleepers(mark) == []
        again.leave()
    assert proc.wait_gone(agent, 10)


# --- the lease --------------------------------------------------------------------------------


def test_a_host_acts_by_itself_when_its_lease_ends() -> None:
    """No beat for the lease: TERM, the grace, KILL, and the agent goes, with nobody's help;
    who comes later is told why."""
    run_id = f"t-{os.urandom(4).hex()}"
    with Client(run_id, lease=1.0, grace=0.3) as client:
        client.hello()
        mark = stubborn(client)
    wait_until(lambda: family(run_id) == [], "nothing is left")
    assert sleepers(mark) == []
    with Client(run_id) as again:
        welcome = again.hello()
        assert welcome["previous_exit"]["reason"] == "lease_expired"
        assert welcome["previous_exit"]["text"].startswith("no launcher for ")
        assert [(t["task"], t["signal"]) for t in welcome["tasks"]] == [("w:0", "KILL")]
        again.follow("w:0")
        assert again.log_until(b"up\n") == b"up\n"
        again.leave()


def test_beats_keep_a_run_alive_beyond_the_lease() -> None:
    """As long as beats come nothing happens, however short the lease."""
    run_id = f"t-{os.urandom(4).hex()}"
    with Client(run_id, lease=1.0) as client:
        client.hello()
        started = client.start("w:0", ["sleep", "1000"])
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            client.send(wire.BEAT)
            client.get(wire.PONG)
            time.sleep(0.05)
        process = proc.look(started["pid"])
        assert process is not None and process.alive
        client.kill()
        client.leave()


def test_under_keep_tasks_outlive_the_lease() -> None:
    """`keep`: the lease ends and the tasks go on; who attaches finds them, and their log."""
    run_id = f"t-{os.urandom(4).hex()}"
    rules: dict[str, Any] = {"lease": 0.5, "on_disconnect": "keep"}
    with Client(run_id, **rules) as client:
        client.hello()
        started = client.start("w:0", ["sh", "-c", "echo one; sleep 2; echo two; sleep 1000"])
    with Client(run_id, **rules) as again:
        end = time.monotonic() + 1.5
        wait_until(lambda: time.monotonic() > end, "three leases are over")
        welcome = again.hello()
        assert [(t["task"], t["pid"], t["ended"]) for t in welcome["tasks"]] == [
            ("w:0", started["pid"], False)
        ]
        again.follow("w:0")
        assert again.log_until(b"two\n") == b"one\ntwo\n"
        again.kill()
        again.leave()


def test_on_the_launching_machine_the_end_of_the_channel_is_the_launchers_death() -> None:
    """A local agent does not wait for its lease."""
    run_id = f"t-{os.urandom(4).hex()}"
    with Client(run_id, lease=600.0, grace=0.2, local=True) as client:
        client.hello()
        mark = stubborn(client)
    wait_until(lambda: family(run_id) == [], "nothing is left")
    assert sleepers(mark) == []


def test_an_agent_that_never_started_anything_does_not_wait_for_its_lease() -> None:
    """A launcher that died or gave up before the first start leaves no agent for ten minutes."""
    run_id = f"t-{os.urandom(4).hex()}"
    with Client(run_id, lease=600.0) as client:
        client.hello()
    wait_until(lambda: family(run_id) == [], "the agent has gone", 20)


def test_staged_files_wait_for_the_launcher_as_tasks_do() -> None:
    """A cut between the files and the first start is longer than an idle agent waits."""
    run_id = f"t-{os.urandom(4).hex()}"
    with Client(run_id) as client:
        pid = client.hello()["pid"]
        entry = ["work", ".", "d", 0o755, 0, ""]
        manifest = {"entries": [entry], "first": True, "last": True, "key": ""}
        assert client.ask(wire.STAGE_MANIFEST, manifest)["built"]
        end = time.monotonic() + 6
        wait_until(lambda: time.monotonic() > end, "no beat for six seconds")
    time.sleep(0.3)  # an idle agent would go at once when its channel ends
    with Client(run_id) as again:
        assert again.hello()["pid"] == pid
        work = str(state_folder(run_id) / "stage" / "work")
        assert again.start("w:0", ["sleep", "1000"], cwd=work)["error"] == ""
        again.kill()
        again.leave()


def test_the_next_agent_begins_when_the_one_before_has_cleaned_up() -> None:
    """A launcher that comes while an agent removes its folder gets a new agent and a new folder."""
    run_id = f"t-{os.urandom(4).hex()}"
    with Client(run_id) as client:
        first = client.hello()["pid"]
        junk = state_folder(run_id) / "junk"
        junk.mkdir()
        for number in range(30_000):  # takes the agent some tenths of a second
            (junk / str(number)).touch()
        client.send(wire.LEAVE, {"remove": True})
        client.get(wire.GONE)
        with Client(run_id) as again:
            assert again.hello()["pid"] != first
            assert not junk.exists()
            logs = str(state_folder(run_id) / "logs")
            assert again.start("w:0", ["sleep", "1000"], cwd=logs)["error"] == ""
            again.kill()
            again.leave()
    wait_until(lambda: family(run_id) == [], "both have gone")


# --- one launcher after the other --------------------------------------------------------------


def test_the_second_launcher_takes_over_and_the_first_does_not_come_back(client: Client) -> None:
    """The first is told by whom it was replaced; when it comes again (a cut has healed), it is
    told once more instead of stealing the run back."""
    client.start("w:0", ["sleep", "1000"])
    with Client(client.run_id) as second:
        second.hello(launcher="elsewhere:7")
        assert client.get(wire.GONE)["by"] == "elsewhere:7"
        client.everything()
        with Client(client.run_id) as late:
            late.token = client.token
            late.send(wire.HELLO, hello(late.token))
            assert late.get(wire.GONE)["by"] == "elsewhere:7"
        second.send(wire.BEAT)
        second.get(wire.PONG)
        assert second.kill()["signalled"] == 1
        second.leave()


def test_who_only_asks_sends_nobody_away(client: Client) -> None:
    """A query is answered beside the launcher that tends the run."""
    client.start("w:0", ["sleep", "1000"])
    with Client(client.run_id) as asking:
        said = asking.hello(rules=None)
        assert [t["task"] for t in said["tasks"]] == ["w:0"]
        client.send(wire.BEAT)
        client.get(wire.PONG)
        with Client(client.run_id) as second:
            second.hello()
            client.everything()
            asking.hello(rules=None)  # not sent away either
            second.kill()
            second.leave()


# --- logs ---------------------------------------------------------------------------------------


FLOOD = """
import os, sys
block = b"".join(b"%08d %s\\n" % (n, sys.argv[1].encode() * 8) for n in range(3000))
while True:
    os.write(1, block)
"""


def test_a_receipt_does_not_queue_behind_log_bytes(client: Client) -> None:
    """Eight tasks flood and the launcher has stopped reading: when it reads again, the receipt
    stands behind no more log than the pipe between them already held, and one frame."""
    for number in range(8):
        client.python(f"w:{number}", FLOOD, str(number))
        client.follow(f"w:{number}", number)
    client.log_until(b"0000")
    logs = state_folder(client.run_id) / "logs"
    wait_until(
        lambda: sum(log.stat().st_size for log in logs.iterdir()) > 20 << 20, "much has piled up"
    )
    read = sum(len(log) for log in client.logs.values())
    client.send(wire.KILL, {"id": 1, "tasks": None, "grace": 0.0})
    wait_until(lambda: len(family(client.run_id)) == 3, "all tasks are dead")
    client.get(wire.RECEIPT)
    before = sum(len(log) for log in client.logs.values()) - read
    assert before <= client.pipe_bytes + 2 * wire.DATA_BYTES
    assert sum(log.stat().st_size for log in logs.iterdir()) > read + before + (1 << 20)


def test_every_byte_arrives_from_any_offset(client: Client) -> None:
    """A log read again from where a cut left it is the same log: no byte lost or doubled."""
    script = "import os; [os.write(1, b'%07d\\n' % n) for n in range(200000)]"
    client.python("w:0", script)
    client.get(wire.EXITED, task="w:0")
    client.follow("w:0")
    first = client.log_until(b"0050000\n")
    client.close()
    with Client(client.run_id) as again:
        again.hello()
        again.send(wire.READ_LOG, {"task": "w:0", "number": 0, "offset": len(first)})
        again.logs[0] = bytearray(first)
        again.send(wire.CREDIT, {"up_to": 1 << 40})
        whole = again.log_until(b"0199999\n")
        assert whole == b"".join(b"%07d\n" % n for n in range(200000))
        again.leave()


def test_no_byte_is_sent_beyond_the_credit(client: Client) -> None:
    """The launcher asks for the next bytes when it has stored the last: without credit, none."""
    client.python("w:0", "print('x' * 100000)")
    client.get(wire.EOF, task="w:0")
    client.logs[0] = bytearray()
    client.send(wire.READ_LOG, {"task": "w:0", "number": 0, "offset": 0})
    client.send(wire.CREDIT, {"up_to": 1000})
    client.send(wire.BEAT)
    client.send(wire.BEAT)
    client.get(wire.PONG)
    client.get(wire.PONG)
    while len(client.logs[0]) < 1000:
        assert client.receive()
    assert len(client.logs[0]) == 1000
    client.send(wire.CREDIT, {"up_to": 500})  # less than before: nothing is taken back
    client.send(wire.CREDIT, {"up_to": 100001})
    assert client.log_until(b"x\n") == b"x" * 100000 + b"\n"


def test_what_is_beyond_the_limit_is_cut_and_said(client: Client) -> None:
    """A task at its `log_limit` goes on; the launcher is told at once and how much at the end."""
    script = "import os, time; os.write(1, b'y' * 5001); time.sleep(1000)"
    client.python("w:0", script, log_limit=1000)
    assert "w:0" in (said := client.get(wire.NOTE)["text"]) and "limit" in said
    client.kill()
    end = client.get(wire.EOF, task="w:0")
    assert (end["size"], end["cut"]) == (1000, 4001)


def test_a_log_that_is_a_link_is_refused(client: Client, tmp_path: Path) -> None:
    """Nobody gets the agent to write through a link; the task is not started without a log."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    logs = state_folder(client.run_id) / "logs"
    (logs / "w-0.log").symlink_to(victim)
    said = client.start("w:0", ["echo", "gone"])
    assert "w-0.log" in said["error"] and said["pid"] == 0
    assert victim.read_text() == "precious"
    assert client.start("w:1", ["true"])["error"] == ""


def test_a_program_that_is_not_there_is_named(client: Client) -> None:
    """The reason names the program, or the directory, that is missing."""
    assert "no-such-program" in client.start("w:0", ["no-such-program"])["error"]
    assert "/no/such/dir" in client.start("w:1", ["true"], cwd="/no/such/dir")["error"]


def test_folders_and_socket_are_private(client: Client) -> None:
    """The run's folder on a host is 0700, its socket 0600."""
    run = state_folder(client.run_id)
    assert run.stat().st_mode & 0o777 == 0o700
    local = Path(local_folder())
    assert local.stat().st_mode & 0o777 == 0o700
    modes = []
    for socket in local.glob("*.sock"):
        with suppress(FileNotFoundError):  # those of tests that run beside this one come and go
            modes.append(socket.stat().st_mode & 0o777)
    assert set(modes) == {0o600}
    assert (run / "logs").stat().st_mode & 0o777 == 0o700


def test_a_task_inherits_no_terminal_nor_the_agents_environment(client: Client) -> None:
    """stdin is /dev/null, the session its own, signals are as at login, no descriptor leaks."""
    script = """
import os, signal
print(os.readlink("/proc/self/fd/0"), os.getsid(0) == os.getpid())
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1])
print(signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN, "TFMUX_AGENT" in os.environ)
"""
    client.start("w:0", [sys.executable, "-c", script])
    client.get(wire.EOF, task="w:0")
    client.follow("w:0")
    lines = client.log_until(b"False\n").decode().splitlines()
    assert lines[0] == "/dev/null True"
    assert lines[1] == "[0, 1, 2]"
