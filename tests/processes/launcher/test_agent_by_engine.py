"""Agent that an engine has started, in the foreground of a job step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from launcher.hosts.frames import Rules
from tests.support.agent_client import family
from tests.support.engine_agent import EngineAgent, find
from tests.support.patience import PATIENCE, wait_until
from tests.testbed import proc


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
