"""What a client tells the tasks that serve, with a real ps."""

from __future__ import annotations

import signal

import pytest

from tests.support.lazily import server, tf
from tests.support.trainer_tasks import DEADLINE, Cluster, Task, Tasks
from trainer.role import Role
from trainer.stop import Stop


def stopped_ps(tasks: Tasks) -> tuple[Task, Role]:
    """A ps that accepts connections and does not answer, and its only worker's role."""
    cluster = Cluster(tasks, "async", ps=1, worker=1)
    ps = cluster.start("ps")
    ps.says("listens on")
    ps.signal(signal.SIGSTOP)
    return ps, Role({job: tuple(hosts) for job, hosts in cluster.spec.items()}, "worker", 0)


@pytest.mark.soak
def test_a_slow_ps_is_told_that_its_worker_is_done(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ps that does not answer for longer than one attempt takes is told, and ends."""
    ps, me = stopped_ps(tasks)
    tell = server._tell_done

    def tell_and_wake(role: Role, task: tuple[str, int]) -> None:
        try:
            tell(role, task)
        except tf.errors.OpError:
            ps.signal(signal.SIGCONT)
            raise

    monkeypatch.setattr(server, "_tell_done", tell_and_wake)
    monkeypatch.setattr(server, "_TELL_SECONDS", DEADLINE)
    server.announce_done(me, [me.task], Stop(1.0))
    assert ps.wait() == 0


def test_a_frozen_ps_does_not_hold_its_worker(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that never answers is named, and the worker ends."""
    monkeypatch.setattr(server, "_TELL_SECONDS", 1.0)
    _, me = stopped_ps(tasks)
    server.announce_done(me, [me.task], Stop(1.0))
    assert f"worker:0 cannot tell {me.label(('ps', 0))} that it is done" in capsys.readouterr().out
