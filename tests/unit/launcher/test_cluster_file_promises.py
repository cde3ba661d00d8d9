"""A cluster file with nearly every key: what the documents promise is read as they say."""

from __future__ import annotations

from pathlib import Path

from launcher.cluster.addresses import SshDestination, TaskAddress
from launcher.cluster.choices import OnDisconnect, OnFailure, OnHangup, Success
from launcher.cluster.file_model import DEFAULT_LOG_LIMIT
from launcher.cluster.read import loads
from launcher.cluster.readiness import PortListens, ProcessStarted
from launcher.ids import TaskId
from launcher.plan.planner import make_plan
from tests.support.cluster_texts import EXAMPLE, MORE


def test_the_example_is_read() -> None:
    """Every value of the documented example arrives where it belongs."""
    cluster = loads(EXAMPLE, "cluster.toml", Path("/"))
    tf1 = cluster.hosts["tf1"]
    assert tf1.ssh == SshDestination("root", "10.77.0.1", 22)
    assert (tf1.identity, tf1.address, tf1.gpus) == ("~/.ssh/id_ed25519", "tf1", 2)
    assert cluster.jobs["worker"].tasks == (TaskAddress("tf2", 2222), TaskAddress("tf2", None))
    assert cluster.jobs["tensorboard"].forward and not cluster.jobs["tensorboard"].in_cluster
    assert cluster.run.lease == 600.0
    assert cluster.start.ready == {"ps": PortListens(), "tensorboard": ProcessStarted()}
    assert cluster.metrics.total == 20000
    plan = make_plan(cluster, "r")
    assert [[str(task) for task in stage] for stage in plan.stages] == [
        ["ps:0"],
        ["worker:0"],
        ["worker:1"],
        ["tensorboard:0"],
    ]


def test_all_further_keys_are_read() -> None:
    """The keys that only some runs need."""
    cluster = loads(MORE, "cluster.toml", Path("/"))
    assert cluster.jobs["a"].env == {"B": "2", "C": "3"}
    assert cluster.run.on_hangup is OnHangup.DETACH
    assert cluster.run.env_from == ("TOKEN",)
    assert make_plan(cluster, "r").task(TaskId("a", 0)).address == "desk:auto"


def test_what_is_left_out_has_the_documented_default() -> None:
    """A file with one job has these settings."""
    run = loads('[jobs.a]\ntasks = ["localhost:1"]\ncommand = ["a"]', "c", Path("/")).run
    assert (run.workdir, run.logdir) == (".", "~/tfmux-logs/{name}/{run_id}")
    assert (run.success, run.framework.success) == (None, Success.CHIEF)
    assert run.on_failure is OnFailure.STOP
    assert (run.on_disconnect, run.max_restarts) == (OnDisconnect.STOP, 3)
    assert run.on_hangup is OnHangup.KILL
    assert (run.lease, run.grace, run.finish_timeout) == (600.0, 10.0, 60.0)
    assert run.log_limit == DEFAULT_LOG_LIMIT == 10 * 2**30
