"""Roles of jobs by their names: what starts first, listens, has a rank, decides, serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster.choices import Framework
from launcher.cluster.ranks import ranks
from launcher.cluster.read import loads
from launcher.cluster.readiness import Auto, PortListens, ProcessStarted
from launcher.cluster.roles import Role
from launcher.errors import ClusterFileError
from launcher.ids import TaskId
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan
from launcher.run.states import Outcome, RunPhase
from tests.support.run_driver import CLUSTER, RunDriver, ends, name


def _text(jobs: str, run: str = "") -> str:
    """A file of this machine with tasks of these jobs, such as `ps worker worker`."""
    names = jobs.split()
    tables = [
        f"[jobs.{job}]\ntasks = {['localhost:auto'] * names.count(job)}\n"
        for job in dict.fromkeys(names)
    ]
    return f'{"".join(tables)}[run]\ncommand = ["true", "{{worker_hosts}}"]\n{run}'


def _plan(jobs: str, run: str = "") -> Plan:
    return make_plan(loads(_text(jobs, run), "c", Path("/")), "r")


@pytest.mark.parametrize(
    ("jobs", "stages"),
    [
        ("worker ps", [["ps:0"], ["worker:0"]]),
        ("worker worker chief ps", [["ps:0"], ["chief:0"], ["worker:0", "worker:1"]]),
        ("worker worker master ps", [["ps:0"], ["master:0"], ["worker:0", "worker:1"]]),
        ("workers workers ps", [["ps:0"], ["workers:0"], ["workers:1"]]),
        ("evaluator master", [["master:0"], ["evaluator:0"]]),
        ("train train ps", [["ps:0"], ["train:0", "train:1"]]),
    ],
)
def test_the_order_is_ps_chief_all_others(jobs: str, stages: list[list[str]]) -> None:
    """By roles, whatever the names and the order of the file are."""
    assert [[str(task) for task in stage] for stage in _plan(jobs).stages] == stages


@pytest.mark.parametrize(
    ("jobs", "chief"),
    [
        ("worker chief", "chief:0"),
        ("worker master", "master:0"),
        ("workers workers", "workers:0"),
        ("workers worker", "worker:0"),
        ("ps train", None),
    ],
)
def test_the_chief_is_the_task_that_is_called_so_else_a_worker(
    jobs: str, chief: str | None
) -> None:
    """And it alone has that role."""
    plan = _plan(jobs)
    assert plan.chief == (chief and TaskId.parse(chief))
    chiefs = [str(task.id) for task in plan.tasks if task.role is Role.CHIEF]
    assert chiefs == ([chief] if chief else [])


def test_ready_is_who_listens() -> None:
    """TensorFlow's jobs run a server, under either name; of other programs nothing is known."""
    plan = _plan("ps master workers evaluator train")
    assert {str(task.id): task.ready for task in plan.tasks} == {
        "ps:0": PortListens(),
        "master:0": PortListens(),
        "workers:0": PortListens(),
        "evaluator:0": ProcessStarted(),
        "train:0": Auto(),
    }


def test_rank_0_is_the_chief_by_its_name() -> None:
    """As a PyTorchJob's master is; the other ranks follow the file, and ps has none."""
    cluster = loads(_text("ps worker worker master", 'framework = "torch"'), "c", Path("/"))
    assert cluster.run.framework is Framework.TORCH
    assert list(map(str, ranks(cluster))) == ["master:0", "worker:0", "worker:1"]
    env = {str(task.id): task.env for task in make_plan(cluster, "r").tasks}
    assert [env[task].get("RANK") for task in ("master:0", "worker:1", "ps:0")] == ["0", "2", None]


def test_the_addresses_of_the_workers_are_found_by_either_name() -> None:
    """`{worker_hosts}` is a flag of TensorFlow's scripts."""
    for job in ("worker", "workers"):
        assert _plan(f"ps {job} {job}").tasks[0].argv[1] == "localhost:auto,localhost:auto"


@pytest.mark.parametrize(
    ("jobs", "place"),
    [
        ("chief chief worker", "jobs.chief.tasks[1]"),
        ("master master worker", "jobs.master.tasks[1]"),
        ("chief master worker", "jobs.master"),
    ],
)
def test_a_cluster_has_one_chief(jobs: str, place: str) -> None:
    """Under both names together, and with several tasks, it would be two."""
    with pytest.raises(ClusterFileError) as error:
        loads(_text(jobs), "c", Path("/"))
    (problem,) = error.value.problems
    assert problem.key == place and problem.message.startswith("a cluster has one chief")
    helper = _text(jobs).replace(f"[jobs.{jobs.split()[1]}]", "[jobs.helper]\nin_cluster = false")
    assert loads(helper, "c", Path("/"))


def test_the_end_of_a_master_is_the_end_of_the_run() -> None:
    """The workers serve it, as TensorFlow 1 has it: they end when they are silent."""
    driver = RunDriver(text=CLUSTER.replace("jobs.ps", "jobs.master"))
    driver.staged()
    driver.ready("master:0", "worker:0", "worker:1", "worker:2")
    driver.exited("master:0")
    assert driver.phase() is RunPhase.FINISHING
    assert [seen.id for seen in driver.seen.tasks if seen.is_chief] == [name("master:0")]
    for task in ("worker:0", "worker:1", "worker:2"):
        driver.exited(task)
    assert ends(driver.confirmed()) == [(Outcome.SUCCESS, 0)]
