"""The run as a pure machine, where an engine gives the hosts."""

from __future__ import annotations

from launcher.run import events as ev
from launcher.run.events import LeaseEnd
from launcher.run.instructions import (
    CheckHosts,
    ConnectHosts,
    End,
    KillHost,
    ReleaseAllocation,
    ReleaseHost,
    SetTimer,
)
from launcher.run.shutdown import KILL_PATIENCE
from launcher.run.states import HostState, Outcome, RunPhase
from tests.support.queue_driver import NODES, QueueDriver

AGREES = ev.EngineWord(True, "Slurm agrees")
SILENT = ev.EngineWord(False, "Slurm cannot confirm it: the node is down*")


def test_a_run_waits_in_the_queue_until_it_has_nodes() -> None:
    """The nodes are its hosts then, by their own names to the other tasks."""
    driver = QueueDriver()
    assert driver.phase() is RunPhase.QUEUED
    assert driver.queue(reason="Resources", expected=2000.0) == []
    allocation = driver.seen.allocation
    assert allocation is not None
    assert (allocation.title, allocation.reason) == ("Slurm 7", "Resources")
    assert driver.feed(ev.Allocated, NODES) == [ConnectHosts()]
    assert driver.phase() is RunPhase.CONNECTING
    assert [host.via for host in driver.run.data.plan.hosts] == [n.via for n in NODES.values()]
    assert driver.task("worker:1").address == "sl2:2222"
    assert driver.up("node0", "node1") == [CheckHosts(ports=True)]


def test_advice_is_noted_once() -> None:
    """The queue is looked at again and again."""
    driver = QueueDriver()
    for _ in range(3):
        driver.queue(reason="PartitionNodeLimit", advice="write a smaller nodes")
    assert driver.seen.notes == ("Slurm 7: write a smaller nodes",)


def test_a_kill_in_the_queue_ends_when_the_request_is_cancelled() -> None:
    """Nothing had started: the receipt has no host."""
    driver = QueueDriver()
    driver.queue()
    assert driver.feed(ev.KillAll) == [ReleaseAllocation()]
    assert driver.phase() is RunPhase.KILLING
    assert driver.feed(ev.Allocated, NODES) == []  # it came too late
    assert driver.released() == [End(Outcome.KILLED, 130)]
    assert driver.seen.receipt is not None and driver.seen.receipt.clean


def test_a_refused_request_is_a_failed_preflight() -> None:
    """Its words are the reason."""
    driver = QueueDriver()
    said = "Slurm: sbatch: error: invalid partition specified: x"
    assert driver.feed(ev.AllocationEnded, said, "REFUSED") == [ReleaseAllocation()]
    assert driver.released() == [End(Outcome.PREFLIGHT, 3)]
    assert driver.seen.notes == (said,)


def test_the_receipt_has_the_engines_word_beside_the_agents() -> None:
    """The hosts are released first: what is left of logs and results is there."""
    driver = QueueDriver()
    driver.begin()
    driver.feed(ev.KillAll)
    assert driver.confirm("node0") == []
    assert driver.confirm("node1") == [*map(ReleaseHost, NODES), ReleaseAllocation()]
    assert driver.confirm("node1") == []  # the second press has its receipt, too
    allocation = driver.seen.allocation
    assert allocation is not None and allocation.releasing
    assert driver.released(node0=AGREES, node1=SILENT) == [End(Outcome.KILLED, 130)]
    receipt = driver.seen.receipt
    assert receipt is not None and receipt.clean
    assert [host.engine for host in receipt.hosts] == [AGREES.text, SILENT.text]


def test_results_that_are_missing_make_a_success_none() -> None:
    """They are asked for before the nodes are given back, and the run ends after that."""
    driver = QueueDriver()
    driver.begin()
    driver.ready("worker:0", "worker:1")
    driver.exited("worker:0")
    driver.exited("worker:1")
    driver.confirm("node0", "node1")
    driver.feed(ev.ResultsMissing, "node0", "its disk is full", ("/scratch/run",))
    assert driver.released() == [End(Outcome.SUCCESS, 1)]


def test_only_a_word_that_counts_stands_for_an_agents() -> None:
    """A node that is down may have anything on it."""
    for word, code in ((AGREES, 130), (SILENT, 4)):
        driver = QueueDriver()
        driver.begin()
        driver.lost("node1")
        driver.feed(ev.KillAll)
        driver.confirm("node0")
        driver.ended()
        assert driver.released(node0=AGREES, node1=word) == [End(Outcome.KILLED, code)]
        receipt = driver.seen.receipt
        assert receipt is not None
        assert [(h.confirmed, h.by_engine) for h in receipt.hosts] == [
            (True, False),
            (word.gone, word.gone),
        ]


def test_a_node_without_an_agent_is_not_waited_for() -> None:
    """An engine starts an agent only once; nothing acts there when the lease ends."""
    driver = QueueDriver()
    driver.begin()
    driver.feed(ev.HostLost, "node0", "silence", driver.now + 60)
    said = driver.feed(ev.HostLost, "node0", "its agent is gone", driver.now + 60, True)
    assert said == [SetTimer(LeaseEnd("node0"), 5 + KILL_PATIENCE)]
    killed = driver.feed(ev.TimerFired, LeaseEnd("node0"))
    assert killed == driver.shut_down("node1")
    assert driver.failure.task.index == 0
    assert ReleaseAllocation() in driver.confirm("node1")
    assert driver.released(node0=SILENT, node1=AGREES) == [End(Outcome.FAILED, 4)]
    receipt = driver.seen.receipt
    assert receipt is not None and receipt.hosts[0].unreachable_until is None


def test_an_end_from_outside_ends_the_run() -> None:
    """What the agents said before they went is their receipt."""
    driver = QueueDriver()
    driver.begin()
    for host in NODES:
        driver.confirm(host)  # nobody has asked: TERM came from Slurm
        driver.lost(host)
    assert driver.phase() is not RunPhase.KILLING
    assert ReleaseAllocation() in driver.ended()
    assert driver.ended() == []
    released = driver.feed(
        ev.AllocationReleased,
        "Slurm 7 is released",
        {"node0": AGREES, "node1": SILENT},
        "TIMEOUT",
        "Slurm 7 has ended: TIMEOUT (TimeLimit)",
    )
    assert released == [End(Outcome.FAILED, 1)]
    receipt, allocation = driver.seen.receipt, driver.seen.allocation
    assert receipt is not None and receipt.clean
    assert not any(host.by_engine for host in receipt.hosts)
    assert allocation is not None and allocation.ended == "Slurm 7 has ended: TIMEOUT (TimeLimit)"


def test_an_agent_that_is_back_has_said_nothing_yet() -> None:
    """Its earlier receipt was for what had lived then."""
    driver = QueueDriver()
    driver.begin()
    driver.confirm("node0")
    driver.lost("node0")
    driver.up("node0")
    driver.lost("node0")
    driver.lost("node1")
    driver.ended()
    driver.released(node0=SILENT, node1=SILENT)
    receipt = driver.seen.receipt
    assert receipt is not None and not receipt.hosts[0].confirmed


def test_a_run_that_was_seen_in_the_queue_after_its_launchers_death_ends_at_once() -> None:
    """Its record has no end, so its hosts count as contacted; Slurm says once that it waits, before
    somebody kills it. The kill waited 75 s for hosts that there were not."""
    driver = QueueDriver()
    driver.queue()
    driver.feed(ev.Attached, False)
    driver.queue()
    assert driver.feed(ev.KillAll) == [ReleaseAllocation()]


def test_a_kill_by_who_has_no_record_of_the_run_finds_its_nodes_first() -> None:
    """Any host may hold something of it, until the engine has said which nodes they are."""
    driver = QueueDriver()
    driver.feed(ev.Attached, False)
    driver.feed(ev.KillAll)
    assert driver.phase() is RunPhase.KILLING and driver.run.data.awaits_nodes
    driver.queue("")
    assert ConnectHosts() in driver.feed(ev.Allocated, NODES)
    assert driver.phase() is RunPhase.KILLING and driver.run.data.nodes == NODES
    assert any(isinstance(told, KillHost) for told in driver.up("node0"))
    driver.up("node1")
    assert ReleaseAllocation() in driver.confirm("node0", "node1")


def test_a_kill_by_who_has_no_record_of_a_run_that_is_in_the_queue() -> None:
    """Nothing has started: no host is waited for."""
    driver = QueueDriver()
    driver.feed(ev.Attached, False)
    driver.feed(ev.KillAll)
    assert driver.queue("") == []
    assert driver.queue() == [ReleaseAllocation()]
    driver.released()
    assert driver.seen.exit_code == 130


def test_a_launcher_takes_a_run_up_in_the_queue_and_on_its_nodes() -> None:
    """The stream has the job and the nodes."""
    driver = QueueDriver()
    driver.queue()
    driver.feed(ev.Attached)
    assert driver.phase() is RunPhase.QUEUED
    driver.feed(ev.Allocated, NODES)
    driver.up("node0", "node1")
    driver.feed(ev.Attached)
    assert driver.phase() is RunPhase.CONNECTING
    assert {host.state for host in driver.seen.hosts} == {HostState.CONNECTING}
    assert driver.run.data.nodes == NODES
