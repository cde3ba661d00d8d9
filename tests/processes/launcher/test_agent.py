"""The agent alone: its launchers, logs, starts, rules, sockets and open files, with real processes
on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import ports, processes, wire
from launcher.agent.folders import local_folder
from launcher.hosts.frames import Rules
from tests.support.agent_client import (
    Client,
    family,
    hello,
    raw_channel,
    socket_path,
    state_folder,
    watchdog_and_agent,
)
from tests.support.engine_agent import EngineAgent, find
from tests.support.nvidia_smi import FakeNvidiaSmi, gpu
from tests.support.patience import PATIENCE, wait_until
from tests.support.ports import free_ports
from tests.testbed import proc

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
    """A task at its `log_limit` goes on; the launcher is told at once and how much at the end, when
    the log has the last bytes, too."""
    script = "import os, time; os.write(1, b'q' * 5000 + b'z'); time.sleep(1000)"
    client.python("w:0", script, log_limit=1000)
    assert "w:0" in (said := client.get(wire.NOTE)["text"]) and "limit" in said
    client.kill()
    end = client.get(wire.EOF, task="w:0")
    log = (state_folder(client.run_id) / "logs/w-0.log").read_bytes()
    assert end["size"] == len(log) <= 1000
    assert log.endswith(b"qz") and log.count(b"q") + 1 == 5001 - end["cut"]
    assert f"{end['cut']} bytes are not kept here".encode() in log


@pytest.mark.parametrize("stays", ["", "sleep 1000 & "], ids=["alone", "a child has the output"])
def test_the_crash_behind_a_flood_is_in_the_log(client: Client, stays: str) -> None:
    """The last lines of a program that fails after more output than its log takes are there when
    its end is told, also where another process of the task still has the output open."""
    flood = "head -c 3000000 /dev/zero | tr '\\0' '\\n'; "
    script = f"{stays}{flood}echo 'RuntimeError: boom'; exit 3"
    client.start("w:0", ["bash", "-c", script], log_limit=100_000)
    end = client.get(wire.EXITED, task="w:0")
    log = (state_folder(client.run_id) / "logs/w-0.log").read_bytes()
    assert (end["status"], end["size"]) == (3, len(log))
    assert len(log) <= 100_000
    assert log.startswith(b"\n" * 40_000) and log.endswith(b"RuntimeError: boom\n")


def test_a_child_that_floods_delays_no_end(client: Client) -> None:
    """The end of a task is told that has left a process which goes on to write without end, and
    what is left of its log's limit takes in both."""
    script = "(while :; do echo noise; done) & head -c 200000 /dev/zero; exit 3"
    client.start("w:0", ["bash", "-c", script], log_limit=100_000)
    assert client.get(wire.EXITED, task="w:0")["status"] == 3
    assert client.kill()["confirmed"]
    logs = state_folder(client.run_id) / "logs"
    assert client.get(wire.EOF, task="w:0")["size"] == (logs / "w-0.log").stat().st_size <= 100_000
    assert [one.name for one in logs.iterdir()] == ["w-0.log"]


def test_a_flood_beyond_the_limit_is_counted(client: Client) -> None:
    """What a task writes of which nothing comes is told with the figures: it is no silence."""
    client.python("w:0", "while True: print('x' * 1000)", log_limit=10_000)
    assert "w:0" in client.get(wire.NOTE)["text"]

    def beyond() -> int:
        client.send(wire.STATS, {"id": 1})
        return int(client.get(wire.REPLY, id=1)["beyond"]["w:0"])

    before = beyond()
    wait_until(lambda: beyond() > before, "more output")


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
    for path in local.glob("*.sock"):
        with suppress(FileNotFoundError):  # those of tests that run beside this one come and go
            modes.append(path.stat().st_mode & 0o777)
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


LIVES = ["sleep", "4010"]
RULES: dict[str, Any] = {"lease": 600.0, "grace": 0.2, "on_disconnect": "stop"}


def begun(client: Client) -> int:
    """The process of a task that would go on for long."""
    client.hello()
    return int(client.start("w:0", LIVES)["pid"])


def question(ident: int, **rules: Any) -> bytes:
    """The frame that asks for other rules."""
    return wire.encode(wire.RULES, {"id": ident, "rules": {**RULES, **rules}})


def lives(pid: int) -> bool:
    """The process is there, and no zombie."""
    found = proc.read(pid)
    return found is not None and found.alive


def test_another_lease_is_confirmed_held_and_taken_back() -> None:
    """Given two agents with a long lease, of which one is asked for a short one, and one for that
    and the long one again, when both have lost their launchers, the latter first, then it still
    holds its task when the other has ended its own."""
    with Client(**RULES) as back, Client(**RULES) as short:
        kept, ended = begun(back), begun(short)
        back.write(question(1, lease=1.0) + question(2))
        assert back.get(wire.REPLY, id=1)["rules"] == {**RULES, "lease": 1.0}
        assert back.get(wire.REPLY, id=2)["rules"] == RULES
        back.close()
        short.write(question(1, lease=1.0))
        assert short.get(wire.REPLY, id=1)["rules"]["lease"] == 1.0
        short.close()
        wait_until(lambda: not lives(ended), "the short lease has ended")
        assert lives(kept)
        with Client(back.run_id, **RULES) as again:
            again.hello()
            again.kill()
            again.leave()


@pytest.mark.parametrize(
    "rules",
    [
        {"lease": -1.0},
        {"lease": 0},
        {"lease": 1e300},
        {"lease": float("nan")},
        {"lease": "long"},
        {"lease": None},
        {"grace": -1.0},
        {"grace": float("inf")},
    ],
    ids=str,
)
def test_rules_that_are_none_change_nothing(rules: dict[str, Any]) -> None:
    """The channel is closed, and the agent acts by the rules that it had."""
    with Client(**RULES) as client:
        pid = begun(client)
        client.write(question(1, on_disconnect="keep") + question(2, **rules))
        assert client.get(wire.REPLY, id=1)["rules"]["on_disconnect"] == "keep"
        assert client.get(wire.ERROR)["text"].split(": ")[1] == "RULES"
        with Client(client.run_id, **RULES) as again:
            again.hello()
            assert lives(pid)
            again.kill()
            again.leave()


SERVE = """
import socket, sys, time
for address in sys.argv[2:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family)
    if address == "::":
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, int(sys.argv[1])))
    s.listen()
    globals()[address] = s
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("addresses", "loopback"),
    [
        (("127.0.0.1",), "127.0.0.1"),
        (("127.0.1.1",), "127.0.1.1"),
        (("::1",), "::1"),
        (("::ffff:127.0.0.1",), "127.0.0.1"),
        (("127.0.0.1", "::1"), "127.0.0.1"),
        (("0.0.0.0",), ""),
        (("::",), ""),
    ],
)
def test_a_server_on_the_loopback_alone(
    client: Client, addresses: tuple[str, ...], loopback: str
) -> None:
    """Its address is told with its readiness; one that everybody reaches is not."""
    (port,) = free_ports(1)
    client.python("w:0", SERVE, str(port), *addresses, port=port)
    assert client.get(wire.LISTENING, task="w:0")["loopback"] == loopback


@pytest.mark.parametrize("address", ["127.0.1.1", "0.0.0.0", "::1"])
def test_both_ways_to_the_kernel_agree(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """`/proc` says the same as netlink, which some machines forbid."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        by_netlink = ports.listeners()[port]

        def refuse(family: int) -> None:
            raise OSError(1, "refused")

        monkeypatch.setattr(ports, "_by_netlink", refuse)
        assert ports.listeners()[port] == by_netlink
        found = ports.held([os.getpid()], by_netlink)
        assert {each for _, each in found} == {socket.inet_pton(family, address)}


SLEEP = ["sleep", "1000"]


@contextmanager
def limited(soft: int, hard: int, *before: str) -> Iterator[Client]:
    """An admitted channel to an agent whose login has these limits of open files."""
    limits = ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh"]
    with Client(before=[*limits, *before]) as client:
        client.hello()
        yield client
        client.kill()
        client.leave()
    wait_until(lambda: family(client.run_id) == [], "nothing is left")


def open_files(client: Client) -> set[int]:
    """Numbers of the agent's descriptors."""
    _, agent = watchdog_and_agent(client.run_id)
    return {int(name) for name in os.listdir(f"/proc/{agent.pid}/fd")}


def alive(pids: Iterable[Any]) -> list[int]:
    """Which of these processes live."""
    found = map(proc.read, pids)
    return [process.pid for process in found if process is not None and process.alive]


def beat(client: Client) -> None:
    """Has a beat answered."""
    client.send(wire.BEAT)
    client.get(wire.PONG)


def start_all(client: Client, count: int) -> list[dict[str, object]]:
    """Starts so many tasks; what the agent says of each."""
    said = []
    for number in range(count):
        said.append(client.start(f"w:{number}", SLEEP))
    return said


def test_a_start_without_a_descriptor_is_one_tasks_error() -> None:
    """Under a hard limit of 64 some of 40 tasks are refused with the reason. Beats, queries and a
    kill need descriptors that tasks may not have, and afterwards there is room again."""
    with limited(64, 64) as client:
        said = start_all(client, 40)
        refused = [one for one in said if one["error"]]
        started = [one for one in said if not one["error"]]
        assert len(started) >= 3 and len(refused) >= 10
        for one in refused:
            assert "too many open files" in str(one["error"]) and one["ended"], one
            assert "64" in str(one["error"])
        beat(client)
        with Client(client.run_id) as other:
            assert len(other.hello(rules=None)["tasks"]) == 40
        assert client.ask(wire.STATS, {})["tasks"]
        receipt = client.kill()
        assert receipt["confirmed"] and receipt["survivors"] == []
        assert receipt["signalled"] == len(started)
        pids = {one["pid"] for one in started}
        assert not alive(pids)
        assert client.start("w:0", SLEEP, attempt=2)["error"] == ""


def test_an_agent_has_no_more_descriptors_than_a_check_counts() -> None:
    """An agent and tasks at their gates hold what a check counts for them, or less."""
    with limited(400, 400) as client:
        wait_until(lambda: len(open_files(client)) <= processes.AGENT_FILES, "it has only its own")
        for number in range(4):
            client.start(f"w:{number}", SLEEP, gated=True)
        most = processes.AGENT_FILES + 4 * processes.TASK_FILES
        wait_until(lambda: len(open_files(client)) <= most, "and those of its tasks")


@pytest.mark.parametrize("count", [1, 3])
def test_a_check_and_an_agent_count_the_same_tasks(count: int) -> None:
    """Under the lowest limit with which so many tasks fit they start, whatever else the agent has
    open, and one more does not; under one less the last of them does not."""
    least = min(n for n in range(1, 1000) if processes.fits_descriptors(n, count))
    for limit, most in ((least, count), (least - 1, count - 1)):
        with limited(limit, limit) as client, Client(client.run_id) as other:
            other.hello(rules=None)
            said = [client.start(f"w:{n}", SLEEP, gated=True)["error"] for n in range(most + 1)]
            assert not any(said[:-1]) and "too many open files" in str(said[-1]), said


def test_restarts_keep_no_descriptor() -> None:
    """Forty ends of one task, and forty starts that fail, leave as many open files as one; their
    log can be read all the same."""
    with limited(64, 64) as client:
        client.follow("w:0")
        for attempt in range(1, 41):
            client.start("w:0", ["echo", f"line {attempt}"], attempt=attempt)
            client.get(wire.EOF, task="w:0", attempt=attempt)
            client.start(f"x:{attempt}", ["no-such-program"])
            if attempt == 1:
                client.log_until(b"line 1\n")
                wait_until(lambda: len(open_files(client)) < 32, "its end")
                first = len(open_files(client))
        client.log_until(b"line 40\n")
        wait_until(lambda: len(open_files(client)) <= first, "no descriptor is kept")


def test_tasks_have_the_logins_limit() -> None:
    """The agent raises its own soft limit as far as it may. Tasks have the login's."""
    with limited(200, 400) as client:
        _, agent = watchdog_and_agent(client.run_id)
        with open(f"/proc/{agent.pid}/limits") as file:
            assert [line.split()[3:5] for line in file if "open files" in line] == [["400", "400"]]
        for number in range(2):
            client.follow(f"w:{number}", number)
            client.start(f"w:{number}", ["sh", "-c", "ulimit -Sn; ulimit -Hn; echo end"])
            assert client.log_until(b"end\n", number) == b"200\n400\nend\n"


def test_a_kill_and_beats_go_on_without_any_descriptor() -> None:
    """Connections take all that are left: the agent lives on, beats, and kills its children. The
    receipt comes when it can look again."""
    with limited(64, 64) as client, ExitStack() as stack:
        pids = {client.start(f"w:{number}", SLEEP)["pid"] for number in range(3)}
        links = []

        def full() -> bool:
            link = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            link.setblocking(False)
            try:
                link.connect(socket_path(client.run_id))
            except BlockingIOError:  # the agent accepts no more
                link.close()
            else:
                links.append(link)
            return open_files(client) == set(range(64))

        wait_until(full, "no descriptor is left")
        beat(client)
        client.send(wire.KILL, {"id": 7, "tasks": None, "grace": 0.0})
        wait_until(lambda: not alive(pids), "they are dead")
        beat(client)
        for link in links:
            link.close()
        receipt = client.get(wire.RECEIPT, ids=[7])
        assert receipt["survivors"] == [] and receipt["tasks"] is None
        with Client(client.run_id) as other:
            assert len(other.hello(rules=None)["tasks"]) == 3


def test_a_scan_without_a_descriptor_is_an_error_and_not_an_empty_table() -> None:
    """Else a kill would confirm that nothing is left."""
    script = """
import os, resource
from launcher.agent import processes as proc
from launcher.agent.processes import ProcessTracker
tracker = ProcessTracker("nobody-20260101-000000-abcd")
everyone = proc.table()
assert os.getpid() in everyone
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for look in (lambda: proc.read_process(os.getpid()), proc.table, lambda: tracker.scan(everyone)):
    try:
        look()
    except OSError as error:
        print(error.errno)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.split() == ["24", "24", "24"], done.stderr


@pytest.fixture
def run_id() -> str:
    return f"t-{os.urandom(4).hex()}"


@pytest.fixture
def started(run_id: str) -> Iterator[EngineAgent]:
    """Such an agent, and nothing of it afterwards."""
    made = EngineAgent(run_id)
    yield made
    made.process.terminate()
    made.process.wait(PATIENCE)


def test_bridges_find_the_agent_of_an_engine(started: EngineAgent, run_id: str) -> None:
    """Tasks live below it; when the launcher leaves, the step's process ends: the engine gets its
    node back. What is of the step is not in a task's environment, what is of the job is."""
    with find(run_id) as client:
        client.hello()
        client.python("w:0", "import os; print(sorted(n for n in os.environ if 'SLURM' in n))")
        client.follow("w:0")
        assert client.log_until(b"]\n") == b"['SLURM_JOB_ID']\n"
        assert started.process.poll() is None
        client.kill()
        client.leave()
    assert started.process.wait(PATIENCE) == 0
    assert family(run_id) == []


def test_a_bridge_waits_for_an_agent_that_starts_later(run_id: str) -> None:
    """The steps of a batch script and of a bridge start in any order."""
    started: list[EngineAgent] = []
    timer = threading.Timer(0.7, lambda: started.append(EngineAgent(run_id)))
    timer.start()
    with find(run_id) as client:
        client.hello()
        client.kill()
        client.leave()
    assert started[0].process.wait(PATIENCE) == 0


def test_term_to_the_first_process_gives_tasks_their_grace(
    started: EngineAgent, run_id: str
) -> None:
    """`scancel` tells the step's first process only, and kills the step when that has ended."""
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print('saved', flush=True),"
        " sys.exit(0)))\n"
        "print('up', flush=True)\n"
        "signal.pause()\n"
    )
    with find(run_id) as client:
        client.hello()
        task = client.python("w:0", script)
        client.follow("w:0")
        client.log_until(b"up\n")
        started.process.send_signal(signal.SIGTERM)
        assert client.log_until(b"saved\n") == b"up\nsaved\n"
        assert started.process.wait(PATIENCE) == 0
        assert proc.read(task["pid"]) is None


def test_an_agent_without_a_launcher_waits_for_its_lease(run_id: str) -> None:
    """The launcher may have to wait in the queue longer than a bridge takes; when nobody comes,
    the allocation frees itself."""
    lease = 7.0  # longer than an agent without a task waits otherwise
    started = EngineAgent(run_id, Rules(lease=lease, grace=1.0, on_disconnect="stop"))
    began = time.monotonic()
    assert started.process.wait(PATIENCE) == 0
    assert time.monotonic() - began > lease - 1
    wait_until(lambda: family(run_id) == [], "nothing is left")
