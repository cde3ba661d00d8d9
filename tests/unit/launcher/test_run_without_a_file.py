"""The cluster file that `tfmux run` makes of hosts and a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.cluster.choices import Framework
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.generated import RunRequest, default_name, first_tasks, render
from launcher.cluster.read import loads
from launcher.cluster.shorthand import WORKER, ListedTask, understand
from launcher.errors import ClusterFileError
from launcher.plan.plan_record import plan_json
from launcher.plan.planner import make_plan


def made(
    command: Sequence[str] = ("python", "train.py"),
    framework: Framework = Framework.TENSORFLOW,
    addresses: dict[str, str] | None = None,
    **jobs: str,
) -> ClusterModel:
    """The cluster of the file for these lists of hosts."""
    lists = {job: understand(text).tasks()[WORKER] for job, text in jobs.items()}
    request = RunRequest(command, lists, "made", "", framework, addresses or {})
    return loads(render(request), "made", Path("/srv"))


def test_a_host_has_a_task_for_each_slot() -> None:
    """By the names that ssh knows; the port of each task is picked at the launch."""
    cluster = made(worker="tf1,me@tf2:2")
    assert {name: str(host.ssh) for name, host in cluster.hosts.items()} == {
        "tf1": "tf1",
        "tf2": "me@tf2",
    }
    assert [str(place) for place in cluster.jobs["worker"].tasks] == [
        "tf1:auto",
        "tf2:auto",
        "tf2:auto",
    ]


def test_equal_tasks_start_at_once_and_all_must_end_well() -> None:
    """As with `mpirun` and `torchrun`; a script may open no port."""
    for framework in Framework:
        plan = plan_json(make_plan(made(framework=framework, worker="localhost:3"), "r"))
        assert plan["stages"] == [["worker:0", "worker:1", "worker:2"]]
        assert {task["ready"] for task in plan["tasks"]} == {"auto"}
        assert len(plan["ends"]["decide"]) == 3


def test_parameter_servers_come_first() -> None:
    """With the order and the rules of TensorFlow, and a host in both lists is one host."""
    cluster = made(ps="tf1", worker="tf1,tf2")
    assert set(cluster.hosts) == {"tf1", "tf2"}
    plan = plan_json(make_plan(cluster, "r"))
    assert plan["stages"] == [["ps:0"], ["worker:0"], ["worker:1"]]
    assert {task["ready"] for task in plan["tasks"]} == {"listening"}
    assert '"cluster": {"ps": ["tf1:auto"]' in plan["tasks"][0]["env"]["TF_CONFIG"]


def test_addresses_have_names() -> None:
    """IPv6 with and without a number of slots; what an alias stands for is the address."""
    cluster = made(worker="fd00::1,[fd00::2]:2,10.0.0.1,far", addresses={"far": "10.9.9.9"})
    assert [str(host.ssh) for host in cluster.hosts.values()] == [
        "[fd00::1]",
        "[fd00::2]",
        "10.0.0.1",
        "far",
    ]
    assert list(cluster.hosts) == ["host1", "host2", "host3", "far"]
    assert cluster.address("far") == "10.9.9.9" and cluster.address("host2") == "fd00::2"


def test_logins_at_one_host_are_hosts() -> None:
    """Each has a name of its own, and `localhost` is never one that `ssh` reaches."""
    cluster = made(worker="me@tf1,you@tf1")
    assert [str(host.ssh) for host in cluster.hosts.values()] == ["me@tf1", "you@tf1"]
    addresses = {"localhost": "10.0.0.9", "me@localhost": "10.0.0.9"}
    cluster = made(worker="me@localhost,localhost,tf1", addresses=addresses)
    assert {name: str(host.ssh) for name, host in cluster.hosts.items()} == {
        "localhost1": "me@localhost",
        "localhost": "None",
        "tf1": "tf1",
    }
    assert cluster.address("localhost") == cluster.address("localhost1") == "10.0.0.9"


def test_any_command_is_kept_to_the_word() -> None:
    """Quotes, line breaks, and what is no ASCII."""
    words = ["sh", "-c", "echo \"$RANK\" 'x' \\ \n\t", "größe", "", "--lr=1", "{rank}"]
    assert made(words, worker="localhost").run.command == tuple(words)


def test_a_literal_brace_is_explained() -> None:
    """Placeholders hold in the command, as in every file."""
    with pytest.raises(ClusterFileError, match=r"write \{\{ and \}\} for literal braces"):
        made(["x", '{"lr": 1}'], worker="localhost")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "/a/train net.py", "x.py"], "train-net"),
        (["python", "-m", "package.train", "-m"], "train"),
        (["/usr/bin/true"], "true"),
        (["python", "-m"], "python"),
        (["…"], "run"),
        (["x" * 200], "x" * 32),
    ],
)
def test_the_name_is_that_of_the_script(command: list[str], name: str) -> None:
    assert default_name(command) == name


def places(tasks: Sequence[ListedTask]) -> str:
    return " ".join(task.login.host for task in tasks)


def test_the_first_slots_are_taken_first() -> None:
    """As `mpirun` does without options."""
    tasks = understand("tf1 slots=2\ntf2 slots=2 # fast\ntf1\n").tasks()[WORKER]
    assert places(first_tasks(tasks, None)) == "tf1 tf1 tf1 tf2 tf2"
    assert places(first_tasks(tasks, 4)) == "tf1 tf1 tf1 tf2"
    assert places(first_tasks(tasks, 2)) == "tf1 tf1"
    with pytest.raises(ValueError, match="6 tasks need 6 slots, and the hosts have 5: write such"):
        first_tasks(tasks, 6)


def test_ports_of_a_list_are_those_of_the_tasks() -> None:
    """Given `tf1:2222,tf2:2222`, when two tasks are run, then one is on each, with its port."""
    cluster = made(worker="tf1:2222,tf2:2222")
    assert [str(place) for place in cluster.jobs["worker"].tasks] == ["tf1:2222", "tf2:2222"]
