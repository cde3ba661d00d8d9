"""Hosts that no cluster file names: from a command line, lists of schedulers, a Slurm job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.cluster.addresses import SshDestination
from launcher.cluster.choices import Framework, HostSource
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.generated import RunRequest, default_name, first_tasks, render
from launcher.cluster.host_sources import parse, read, with_hosts
from launcher.cluster.read import loads
from launcher.cluster.shorthand import WORKER, ListedHost, ListedTask, understand
from launcher.errors import ClusterFileError
from launcher.plan.plan_record import plan_json
from launcher.plan.planner import make_plan
from launcher.slurm.login import SlurmError
from launcher.slurm.salloc import job_of, with_job_nodes
from tests.support.cluster_texts import SALLOC, UNLISTED_HOSTS

# The cluster file that `tfmux run` makes of hosts and a command.


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


# Hosts from lists of Open MPI and PBS, and from the shell of a Slurm job.


def host(name: str, slots: int = 1, user: str | None = None, port: int | None = None) -> ListedHost:
    return ListedHost(SshDestination(user, name, port), slots)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tf1\ntf2\n", [host("tf1"), host("tf2")]),
        ("tf1 slots=4 max_slots=8\ntf2:2\n", [host("tf1", 4), host("tf2", 2)]),
        ("tf1\ntf1\ntf2\ntf1\n", [host("tf1", 3), host("tf2")]),
        ("tf1 slots=2\nTF1 slots=1", [host("tf1", 3)]),
        ("# all\n\n  tf1   # the first\n\t#\n", [host("tf1")]),
        ("fd00::1\n[fd00::2]:4\n[FD00::1]\n", [host("fd00::1", 2), host("fd00::2", 4)]),
        ("me@tf1 slots=2 port=2222", [host("tf1", 2, "me", 2222)]),
        ("tf1 user=me", [host("tf1", 1, "me")]),
        (
            "me@tf1\nyou@tf1:2\ntf1\nme@TF1",
            [host("tf1", 2, "me"), host("tf1", 2, "you"), host("tf1")],
        ),
        ("10.0.0.1\r\n10.0.0.2\r\n", [host("10.0.0.1"), host("10.0.0.2")]),
    ],
)
def test_lists_as_they_are_written(text: str, expected: list[ListedHost]) -> None:
    """In the order in which the hosts come first."""
    assert list(parse(text, "list").hosts) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no host in it"),
        ("# nothing\n", "there is no host in it"),
        ("tf1 slots=x", "list: slots=x: write a whole number"),
        ("tf1\ntf2 slots=0", "list:2: slots=0"),
        ("tf1 slots=99999999", "whole number"),
        ("tf1:", "there is no host in it"),
        ("-oProxyCommand=x", "cannot begin with '-'"),
        ("tf1 -oProxyCommand=x", "'-oProxyCommand=x' is not a host"),
        ("[fd00::1", "is not a host"),
        ("fd00::zz", "not an IPv6 address"),
        ("$(x)@tf1", "is not a user name"),
        ("tf1 port=99999", "the highest port is 65535"),
        ("tf1 rack=3", "slots="),
        ("\x1b[2Jtf1", "is not a host"),
        ("\0", "is not a host"),
        (
            "\n".join(f"n{number}" for number in range(1025)),
            "more than 1,024 hosts, and a run has no more",
        ),
    ],
)
def test_lines_that_are_no_hosts(text: str, said: str) -> None:
    """With their number; nothing of them becomes an option of ssh."""
    with pytest.raises(ClusterFileError) as caught:
        parse(text, "list")
    assert said in str(caught.value)
    assert str(caught.value).isprintable()


def test_the_hosts_are_those_of_the_file() -> None:
    """The text that is stored with the run has them, so `attach` and `kill` need no list."""
    text = with_hosts(UNLISTED_HOSTS, "c.toml", parse("me@tf1 slots=2\nfd00::2\n", "list").hosts)
    cluster = loads(text, "c.toml", Path("/srv"))
    plan = make_plan(cluster, "c-1")
    assert [(h.name, str(h.ssh), h.address) for h in plan.hosts] == [
        ("node0", "me@tf1", "tf1"),
        ("node1", "[fd00::2]", "fd00::2"),
    ]
    assert [task.address for task in plan.tasks] == ["tf1:2222", "[fd00::2]:2222"]


@pytest.mark.parametrize("table", ["hosts.a", "slurm"])
def test_two_sources_of_hosts(table: str) -> None:
    """The error says which table to remove."""
    with pytest.raises(ClusterFileError, match=rf"remove \[{table.partition('.')[0]}\]"):
        with_hosts(f"{UNLISTED_HOSTS}\n[{table}]\n", "c.toml", parse("tf1", "list").hosts)


def test_the_list_is_named_by_the_scheduler(tmp_path: Path) -> None:
    """Without --hostfile; what cannot be read is said."""
    path = tmp_path / "nodes"
    path.write_text("tf1\ntf1\n")
    assert read(HostSource.HOSTFILE, None, {"PBS_NODEFILE": str(path)}).hosts == (host("tf1", 2),)
    assert read(HostSource.OPENMPI, path, {}).hosts == (host("tf1", 2),)
    for kind, found, said in (
        (HostSource.HOSTFILE, None, "PBS_NODEFILE is not set here"),
        (HostSource.OPENMPI, None, "OMPI_MCA_orte_default_hostfile or PRTE_MCA"),
        (HostSource.HOSTFILE, tmp_path / "none", "No such file"),
        (HostSource.HOSTFILE, tmp_path, "Is a directory"),
    ):
        with pytest.raises(ClusterFileError, match=said):
            read(kind, found, {})
    path.write_bytes(b"tf1\n" * (1 << 20))
    with pytest.raises(ClusterFileError, match="larger than 1 MiB"):
        read(HostSource.HOSTFILE, path, {})


def test_nodes_of_this_shells_job() -> None:
    """The job is in `[slurm]`, which asks for nothing any more."""
    text = UNLISTED_HOSTS + '\n[slurm]\nnodes = 2\ntime = "10"\npython = "/opt/python"\n'
    text += 'partition = "gpu"\noptions = ["--account=a"]\n'
    table = loads(text, "c.toml", Path("/srv")).slurm
    inside = with_job_nodes(text, "c.toml", table, SALLOC, lambda nodes: "n1\nn2\nn3\n")
    cluster = loads(inside, "c.toml", Path("/srv"))
    assert cluster.slurm is not None and table is not None
    asked = {"time": None, "partition": None, "options": (), "job": "8123"}
    assert cluster.slurm == table.model_copy(update=asked)
    bare = with_job_nodes(UNLISTED_HOSTS, "c.toml", None, SALLOC, lambda nodes: "n1\nn2\nn3\n")
    found = loads(bare, "c.toml", Path("/srv")).slurm
    assert found is not None and (found.nodes, found.job) == (3, "8123")


def test_shells_that_have_no_such_job() -> None:
    """Nothing is submitted in its place."""
    assert job_of(SALLOC) == "8123"
    assert job_of({"SLURM_JOB_ID": "x;y", "SLURM_JOB_NODELIST": "n1"}) == ""
    with pytest.raises(SlurmError, match="not in a Slurm job"):
        with_job_nodes(UNLISTED_HOSTS, "c.toml", None, {}, lambda nodes: "n1\n")
    for names in ("", "-oX\n", "a;b\n"):
        with pytest.raises(SlurmError, match="did not print names of nodes"):
            with_job_nodes(
                UNLISTED_HOSTS,
                "c.toml",
                None,
                SALLOC,
                {SALLOC["SLURM_JOB_NODELIST"]: names}.__getitem__,
            )
    text = UNLISTED_HOSTS + '\n[slurm]\nnodes = 2\ntime = "10"\n'
    table = loads(text, "c.toml", Path("/srv")).slurm
    with pytest.raises(SlurmError, match=r"has 1 nodes, \[slurm\] asks for 2"):
        with_job_nodes(text, "c.toml", table, SALLOC, lambda nodes: "n1\n")
