"""`directory` in a cluster file: where tasks start by the plan, and what it does not go with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.read import loads
from launcher.errors import ClusterFileError
from launcher.plan.facts import HostFacts
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan
from tests.support.cluster_texts import cluster_text

HOSTS = {"a": {"ssh": "a"}, "b": {"ssh": "b"}}


def plan(jobs: Any = "a b", **settings: Any) -> Plan:
    """The plan of a cluster with these jobs, when homes of hosts are known."""
    given = jobs if isinstance(jobs, dict) else {"worker": jobs}
    text = cluster_text(given, hosts=HOSTS, **settings)
    facts = {name: HostFacts(home=f"/home/{name}") for name in HOSTS}
    return make_plan(loads(text, "c.toml", Path("/work")), "run-1", facts)


def problems(jobs: Any = "a b", **settings: Any) -> str:
    """What is said of such a file."""
    try:
        plan(jobs, **settings)
    except ClusterFileError as error:
        return " ".join(map(str, error.problems))
    return ""


def test_tasks_start_in_it_and_nothing_is_copied() -> None:
    """The directory is `{workdir}`, relative paths of results begin there, and `prepare` lines run
    there."""
    made = plan(
        directory="~/proj/{name}",
        name="mnist",
        command=["x", "{workdir}"],
        collect=["out", "~/other"],
        prepare=["make"],
    )
    for name in HOSTS:
        prepare, worker = made.on_host(name)
        assert worker.cwd == prepare.cwd == f"/home/{name}/proj/mnist"
        assert worker.argv == ("x", worker.cwd) and "lasting" in prepare.argv
        assert made.host(name).collect == (f"/home/{name}/other", f"{worker.cwd}/out")
        assert not made.copies(made.host(name))
    assert made.workdir is None


def test_a_job_may_have_its_own() -> None:
    """Beside others that start in the copy; a host without any of those gets no copy."""
    jobs = {"ps": "a", "worker": {"tasks": "a b", "directory": "/nfs/{job}"}}
    made = plan(jobs, workdir=".")
    starts = {str(task.id): task.cwd for task in made.tasks}
    assert starts["worker:0"] == starts["worker:1"] == "/nfs/worker"
    assert starts["ps:0"].endswith("/work")
    assert [made.copies(host) for host in made.hosts] == [True, False]


@pytest.mark.parametrize(
    ("jobs", "settings", "said"),
    [
        ("a b", {"directory": "~/x", "workdir": "."}, "exclude each other"),
        ("a b", {"directory": "~/x", "data": ["d"]}, "nothing is copied"),
        ({"worker": {"tasks": "a", "data": ["d"]}}, {"directory": "/x"}, "nothing is copied"),
        ("a b", {"directory": "proj"}, 'such as "~/proj" or "/nfs/proj"'),
        ("a b", {"directory": "$HOME/proj"}, "no shell reads it"),
        ("a b", {"directory": "~bob/proj"}, "no shell reads it"),
        ("a b", {"directory": ""}, "write"),
        ("a b", {"directory": "/x/{workdir}"}, "not available here"),
        ("a b", {"directory": "/x/{jbo}"}, "unknown placeholder"),
        ("a b", {"directory": "~/x", "workdir": ""}, ""),
        ("a b", {"directory": "~"}, ""),
    ],
)
def test_what_it_goes_with(jobs: Any, settings: dict[str, Any], said: str) -> None:
    """What it does not go with is named."""
    found = problems(jobs, **settings)
    assert said in found and bool(said) is bool(found), found
