"""The agent alone: its launchers, logs and starts, with real processes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.agent import wire
from launcher.agent.folders import local_folder
from tests.support.agent_client import (
    Client,
    family,
    hello,
    raw_channel,
    state_folder,
    watchdog_and_agent,
)
from tests.support.nvidia_smi import FakeNvidiaSmi, gpu
from tests.support.patience import wait_until

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


def test_tasks_cost_no_process_of_ours(client: Client) -> None:
    """Given sixteen tasks, the host has their processes and three more: watchdog, agent, bridge."""
    tasks = {client.start(f"w:{number}", ["sleep", "1000"])["pid"] for number in range(16)}
    found = {process.pid for process in family(client.run_id)}
    assert len(tasks) == 16 and tasks < found and len(found - tasks) == 3
    assert client.kill()["confirmed"]


def test_a_greeting_of_a_launcher_that_is_dead_replaces_nobody(client: Client) -> None:
    """Given an agent that stands still while a launcher greets and dies, when it goes on, then the
    launcher that lives keeps the run; a launcher that answers the welcome takes it over."""
    client.start("w:0", ["sleep", "1000"])
    _, agent = watchdog_and_agent(client.run_id)
    os.kill(agent.pid, signal.SIGSTOP)
    with raw_channel(client.run_id) as dead:  # its bridge waits until the agent has taken it
        greeting = wire.encode(wire.HELLO, hello("dead", launcher="dead:1"))
        dead.sendall(greeting + wire.encode(wire.BEAT, {}))
        dead.close()
        os.kill(agent.pid, signal.SIGCONT)
        with Client(client.run_id) as asking:  # its descriptors come behind those of the dead one
            asking.hello(rules=None)
        client.send(wire.BEAT)
        client.get(wire.PONG)
    with Client(client.run_id) as second:
        second.hello(launcher="elsewhere:7")
        assert client.get(wire.GONE)["by"] == "elsewhere:7"
        second.kill()
        second.leave()


def test_an_end_between_welcome_and_answer_is_told(client: Client) -> None:
    """Given a launcher that has not answered its welcome yet, when a task ends, then it hears of
    it: the welcome had the task alive."""
    client.start("w:0", ["sleep", "1000"])
    with Client(client.run_id) as second:
        second.send(wire.HELLO, hello(second.token))
        assert [task["ended"] for task in second.get(wire.WELCOME)["tasks"]] == [False]
        client.kill(["w:0"])
        second.get(wire.EXITED, task="w:0")
        second.send(wire.CREDIT, {"up_to": 0})
        client.get(wire.GONE)
        second.kill()
        second.leave()


def test_an_end_is_told_with_its_age(client: Client) -> None:
    """Given a task that has ended, when its end is told again after a cut, then it says how long
    ago that was: hosts have clocks of their own, and last lines come late."""
    client.start("w:0", ["true"])
    told = client.get(wire.EXITED, task="w:0")
    assert told["status"] == 0 and told["ended_ago"] >= 0 and not told["out_of_memory"]
    with Client(client.run_id) as second:
        (again,) = second.hello()["tasks"]
        assert again["ended_ago"] > told["ended_ago"]
        second.kill()
        second.leave()


def test_who_only_asks_sends_nobody_away(client: Client) -> None:
    """A query is answered beside the launcher that supervises the run."""
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


def test_attempts_that_ended_long_ago_are_forgotten(client: Client) -> None:
    """A welcome has the last few of each task: with those of weeks it was too long for a message,
    and no launcher could come back."""
    client.start("w:1", ["sleep", "1000"])
    for attempt in range(1, 21):
        client.start("w:0", ["true"], attempt=attempt)
        client.get(wire.EOF, task="w:0", attempt=attempt)
    with Client(client.run_id) as second:
        held = second.hello()["tasks"]
        attempts = [one["attempt"] for one in held if one["task"] == "w:0"]
        assert attempts == [*range(attempts[0], 21)] and len(attempts) < 10
        assert [one["ended"] for one in held if one["task"] == "w:1"] == [False]
        assert second.kill()["confirmed"]
        second.leave()


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
import os
print(os.readlink("/proc/self/fd/0"), os.getsid(0) == os.getpid())
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1])
print("TFMUX_AGENT" in os.environ)
"""
    client.start("w:0", [sys.executable, "-c", script])
    client.get(wire.EOF, task="w:0")
    client.follow("w:0")
    lines = client.log_until(b"\nFalse\n").decode().splitlines()
    assert lines[0] == "/dev/null True"
    assert lines[1] == "[0, 1, 2]"
    signals = ["grep", "^Sig[BI]", "/proc/self/status"]  # Python itself ignores some
    login = subprocess.run(signals, stdout=subprocess.PIPE, check=True).stdout
    client.start("w:1", signals)
    client.get(wire.EOF, task="w:1")
    client.follow("w:1", 1)
    assert client.log_until(b"SigIgn", 1) == login


def test_an_agent_lists_the_gpus_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what nvidia-smi says of one that it does not list; one that was there stays named, also
    where nvidia-smi itself is gone."""
    smi = FakeNvidiaSmi(tmp_path)
    smi.say(gpu=[gpu(0, name="A100"), "GPU 1 is lost"], status=14)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Client() as client:
        client.hello()
        said = client.ask(wire.GPUS, {})
        assert [each["name"] for each in said["gpus"]] == ["A100"]
        assert said["why"] == "GPU 1 is lost"
        (tmp_path / "nvidia-smi").unlink()
        said = client.ask(wire.GPUS, {})
        assert [(each["name"], each["problem"]) for each in said["gpus"]] == [("A100", "")]
        assert said["why"] == "nvidia-smi is gone, or prints nothing"
        client.leave()
