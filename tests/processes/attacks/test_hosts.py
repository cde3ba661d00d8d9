"""Hosts and their tasks against the agent and the launcher: no false receipt, no frame that does
harm, and a host is believed about its own tasks alone."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.agent import processes, wire
from tests.support.agent_client import (
    Client,
    answer_to,
    asked,
    family,
    hello,
    raw_channel,
    sleepers,
    state_folder,
    talk,
    unattended_run,
    watchdog_and_agent,
)
from tests.support.budgets import budget
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.frame_strategies import TO_AGENT, changed, rubbish, tries
from tests.support.paths import REPOSITORY, SUPPORT
from tests.support.patience import wait_until
from tests.testbed import proc
from tests.testbed.inprocess import SshServer

PAUSES = (500, 2_000, 5_000, 50_000)
"""Microseconds that a process of a chain lives."""

KILLS = budget(5, 500)
GRACES = (0.0, 0.05, 0.2)
MOST_ESCAPED = 2


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Path]:
    """The program, under a name that nothing else on this machine has; what is left of it is
    ended."""
    program = tmp_path / f"c{os.urandom(5).hex()}"
    source = SUPPORT / "chain.c"
    subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
    yield program
    for file in tmp_path.rglob(f"{program.name}*"):
        file.unlink()  # which ends them


def copy(program: Path, other: Path) -> Path:
    """A copy of the program as another file; its processes end when that is removed."""
    other.parent.mkdir(exist_ok=True)
    return Path(shutil.copy(program, other))


def alive(program: Path, looks: int = 1) -> set[int]:
    """Living processes of a program. One look may miss one that is just being forked, and one that
    has ended when its turn comes: the youngest are looked at first."""
    found: set[int] = set()
    for _ in range(looks):
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        newest = int(Path("/proc/loadavg").read_text().split()[-1])
        for pid in sorted(pids, key=lambda pid: (pid > newest, -pid)):
            try:
                stat = Path(f"/proc/{pid}/stat").read_bytes()
            except OSError:
                continue
            if f"({program.name}) ".encode() in stat and stat.split(b") ")[-1][:1] not in b"ZX":
                found.add(pid)
    return found


def start(client: Client, task: str, attempt: int, program: Path, *words: str | int) -> None:
    """Starts a chain, and waits until it forks."""
    argv = [str(program), *map(str, words)]
    assert client.start(task, argv, attempt=attempt)["error"] == ""
    client.get(wire.EXITED, task=task, attempt=attempt)  # its first process has


def judge(receipt: dict[str, object], program: Path, left: set[int]) -> None:
    """A receipt that says that nothing is left must be right; another names a survivor."""
    if receipt["confirmed"] and not receipt["survivors"]:
        assert not left, f"a false receipt: {sorted(left)} live, {receipt}"
    else:
        assert receipt["survivors"] or receipt["doubt"], receipt
        wait_until(lambda: not alive(program, looks=5), "the survivors have gone")


@pytest.mark.parametrize("words", [(), ("setsid",), ("empty",), ("setsid", "empty")], ids=str)
def test_chains_are_gone_when_the_receipt_says_so(
    client: Client, chain: Path, words: tuple[str, ...]
) -> None:
    """Given fork chains of four speeds that ignore TERM, when everything is killed, time and again,
    then each receipt confirms that nothing is left, and no process of a chain lives."""
    confirmed = 0
    for attempt in range(1, KILLS + 1):
        for number, pause in enumerate(PAUSES):
            start(client, f"w:{number}", attempt, chain, pause, *words)
        receipt = client.kill(grace=GRACES[attempt % len(GRACES)])
        judge(receipt, chain, alive(chain, looks=3))
        confirmed += receipt["confirmed"] and not receipt["survivors"]
    assert confirmed == KILLS
    assert not alive(chain, looks=10)
    assert len(family(client.run_id)) == 3  # watchdog, agent, bridge


@pytest.mark.parametrize("words", [(), ("setsid",), ("empty",), ("setsid", "empty")], ids=str)
def test_a_single_kill_claims_no_more_than_a_look(
    client: Client, chain: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Given tasks that are fork chains, when one is killed, then its receipt confirms nothing and
    its neighbours live; when everything is killed, then that is confirmed, and no chain lives.
    Of the chains that have got away only two live on: they take the processors of others."""
    other = copy(chain, tmp_path / f"{chain.name}n")
    programs = [copy(chain, tmp_path / f"{number}" / chain.name) for number in range(KILLS)]
    quiet = client.start("quiet:0", ["sleep", "1000"])
    start(client, "chain:0", 1, other, 2_000, *words)
    for attempt, program in enumerate(programs, 1):
        pause = PAUSES[attempt % len(PAUSES)]
        start(client, "w:0", attempt, program, pause, *words)
        receipt = client.kill(["w:0"], grace=GRACES[attempt % len(GRACES)])
        assert not receipt["confirmed"] and not receipt["survivors"], receipt
        if attempt > MOST_ESCAPED:
            programs[attempt - MOST_ESCAPED - 1].unlink()
    neighbour = proc.read(quiet["pid"])
    assert neighbour is not None and neighbour.alive
    wait_until(lambda: alive(other), "the neighbour's chain lives on")
    receipt = client.kill()
    assert receipt["confirmed"] and not receipt["survivors"]
    assert not alive(other, looks=10) and not alive(chain, looks=10)


def test_no_number_of_forks_keeps_an_agent_from_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a kernel in which there is always another dead child, when the agent reaps, then it
    comes to an end and says that some may be left. A real fork bomb would use up the pids here."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    monkeypatch.setattr(os, "wait4", lambda *_: (4711, 0, usage))
    reaped, none_left = processes.reap()
    assert {(each.pid, each.status) for each in reaped} == {(4711, 0)} and not none_left


def test_a_single_kill_ends_what_was_born_in_the_tasks_session(client: Client) -> None:
    """Given a task that has left a process with an empty environment, when the task is killed, then
    that process is found by its session and ended, with its child."""
    mark = f"mark-{client.run_id}"
    script = f'env -i sh -c "sleep 1000; :" {mark} >/dev/null 2>&1 &'
    client.start("w:0", ["sh", "-c", script])
    client.get(wire.EXITED, task="w:0", status=0)
    wait_until(lambda: any(proc.children(p.pid) for p in sleepers(mark)), "its sleep runs")
    receipt = client.kill(["w:0"])
    assert receipt["signalled"] == 2 and not receipt["survivors"], receipt
    assert not sleepers(mark)


def test_a_task_that_kills_its_parent_ends_all_tasks_of_its_host(
    client: Client, chain: Path
) -> None:
    """Given a task that kills its parent, which is the agent, when the watchdog notices that, then
    it ends all tasks of the host and itself, and nothing lives on."""
    quiet = client.start("quiet:0", ["sleep", "1000"])
    watchdog, _ = watchdog_and_agent(client.run_id)
    argv = [str(chain), "5000", "parent", "setsid", "empty"]
    client.send(wire.START, client.start_body("w:0", argv))
    assert proc.wait_gone(watchdog)
    assert not alive(chain, looks=10)
    neighbour = proc.read(quiet["pid"])
    assert neighbour is None or not neighbour.alive
    client.everything()


def test_chains_end_with_the_agent(client: Client, chain: Path) -> None:
    """Given fork chains of every speed, when their agent is killed, then its watchdog goes only
    when no process of a chain lives."""
    for number, pause in enumerate(PAUSES):
        start(client, f"w:{number}", 1, chain, pause, "setsid", "empty")
    watchdog, agent = watchdog_and_agent(client.run_id)
    proc.signal_process(agent, signal.SIGKILL)
    assert proc.wait_gone(watchdog)
    assert not alive(chain, looks=10)
    client.everything()


def test_a_program_of_the_agents_own_holds_up_no_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an agent whose own `nvidia-smi` hangs, when everything is killed, then the receipt is
    clean and counts the task alone; a question starts no second one, and `nvidia-smi` goes when
    the agent does."""
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\nexec sleep 3000\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Client() as client:
        client.hello()
        client.start("w:0", ["sleep", "1000"])
        wait_until(lambda: client.ask(wire.STATS, {}) and hanging(client), "nvidia-smi runs")
        for _ in range(3):
            client.ask(wire.STATS, {})
        assert len(hanging(client)) == 1
        client.send(wire.GPUS, {"id": 100})
        receipt = client.kill()
        assert receipt["survivors"] == [] and receipt["confirmed"] and receipt["signalled"] == 1
        assert "did not answer" in client.get(wire.REPLY, id=100)["why"]
        assert len(hanging(client)) == 1, "it is not the kill's business"
        client.leave()
        wait_until(lambda: not hanging(client), "it goes with the agent")


def hanging(client: Client) -> list[proc.Process]:
    """The programs of the agent's own."""
    return [p for p in family(client.run_id) if p.argv == ("sleep", "3000")]


@pytest.fixture
def fuzzed() -> Iterator[Client]:
    """A run with one task that has lost its launcher."""
    with unattended_run() as channel:
        yield channel


@given(frames=st.lists(changed(TO_AGENT) | rubbish(), min_size=1, max_size=8))
@tries(40)
def test_an_agent_survives_any_frames(fuzzed: Client, frames: list[bytes]) -> None:
    """Given an agent with a task, when any frames come from a launcher, then the task lives on, no
    log lies outside the run's folder, and the agent takes less than 150 MiB."""
    leave, kill = bytes([wire.LEAVE]), bytes([wire.KILL])
    frames = [f for f in frames if f[4:5] not in (leave, kill) or b"junk:0" in f]
    talk(fuzzed, wire.encode(wire.HELLO, hello(fuzzed.token)), *frames)
    held = answer_to(fuzzed, asked(fuzzed)).json()
    assert any(one["task"] == "w:0" and not one["ended"] for one in held["tasks"])
    home = Path(os.environ["HOME"])
    logs = {path.parent for path in home.rglob("*.log") if path.name != "agent.log"}
    assert logs <= {state_folder(fuzzed.run_id) / "logs"}
    _, agent = watchdog_and_agent(fuzzed.run_id)
    pages = int(Path(f"/proc/{agent.pid}/statm").read_text().split()[1])
    assert pages * resource.getpagesize() < 150 << 20


def test_the_name_of_a_task_is_no_path_on_a_host(fuzzed: Client) -> None:
    """Given an agent, when a launcher opens the log of the task `../../evil:0`, then no file of
    that name is made anywhere in the home."""
    opened = {"task": "../../evil:0", "number": 1, "offset": 0, "log_limit": 10}
    talk(fuzzed, wire.encode(wire.HELLO, hello(fuzzed.token)), wire.encode(wire.READ_LOG, opened))
    answer_to(fuzzed, asked(fuzzed))
    assert not list(Path(os.environ["HOME"]).rglob("*evil*"))


def test_a_launcher_that_does_not_read_is_let_go(fuzzed: Client) -> None:
    """Given an agent, when a launcher sends two million beats and reads no answer, then the agent
    hangs up, and its task lives on. Answers wait in memory only so far."""
    with raw_channel(fuzzed.run_id) as channel:
        channel.sendall(wire.encode(wire.HELLO, hello(fuzzed.token)))
        with pytest.raises((ConnectionError, BrokenPipeError)):
            for _ in range(2000):
                channel.sendall(wire.encode(wire.BEAT) * 1000)
    held = answer_to(fuzzed, asked(fuzzed)).json()
    assert any(one["task"] == "w:0" and not one["ended"] for one in held["tasks"])


PROXY = """#!{python}
import os, subprocess, sys, threading
sys.path.insert(0, {repository!r})
from launcher.agent import wire
from launcher.hosts.frames import Gone
child = subprocess.Popen([{python!r}, *sys.argv[1:]], stdin=-1, stdout=-1, bufsize=0)
def forward():
    while data := os.read(0, 65536):
        child.stdin.write(data)
    child.stdin.close()
threading.Thread(target=forward, daemon=True).start()
for _ in range(2):  # the magic number and the marker
    os.write(1, child.stdout.readline())
for _ in range(256):  # the values of a byte
    os.write(1, child.stdout.read(1))
decoder = wire.Decoder()
while data := os.read(child.stdout.fileno(), 65536):
    try:
        frames = list(decoder.feed(data))
    except wire.WireError:  # a short program's, for files: that is honest
        while data:
            os.write(1, data)
            data = os.read(child.stdout.fileno(), 65536)
        break
    for frame in frames:
        os.write(1, wire.encode_raw(frame.type, frame.body))
        if frame.type == wire.STARTED:
            for task in ("worker:0", "worker:1"):
                end = {{**frame.json(), "task": task, "ended": True, "status": 0, "size": 0}}
                os.write(1, wire.encode(wire.EXITED, end))
"""


def test_a_lying_agent_over_ssh_makes_no_success(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a run on two hosts over SSH, when one's agent says that the other's task has succeeded,
    then the liar is lost, and a kill exits with 4: the other host alone has confirmed."""
    proxy = tmp_path / "python"
    proxy.write_text(PROXY.format(python=sys.executable, repository=str(REPOSITORY)))
    proxy.chmod(0o755)
    hosts = ssh_server.host_toml("honest", sys.executable) + ssh_server.host_toml(
        "liar", str(proxy)
    )
    text = cluster_text(
        {"worker": "honest liar"},
        "lies",
        hosts,
        command=python_task("import time; time.sleep(600)"),
        workdir="",
        grace=0.5,
        lease=10,
        start={"ready": {"worker": "started"}},
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        lost = up.wait_for(
            lambda e: e["event"] == "host" and e["host"] == "liar" and e["state"] == "lost", "lost"
        )
        assert "liar broke the protocol: EXITED for worker:0, which is not" in lost["reason"]
        run_id = up.run_id
        up.press_ctrl_c()
        up.wait_for(lambda e: e.get("state") == "killing", "killing")
        up.press_ctrl_c_again()
        assert up.wait() == 4, up.transcript()
        (receipt,) = up.of("receipt")
        confirmed = {host["host"]: host["confirmed"] for host in receipt["hosts"]}
        assert confirmed == {"honest": True, "liar": False}
        assert not [e for e in up.of("task") if e["task"] == "worker:0" and e["state"] == "exited"]
    wait_until(lambda: not family(run_id), "the liar's task has ended by its lease")
