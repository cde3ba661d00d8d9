"""Hosts from lists of Open MPI and PBS, and from the shell of a Slurm job."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster.addresses import SshDestination
from launcher.cluster.choices import HostSource
from launcher.cluster.host_sources import parse, read, with_hosts
from launcher.cluster.read import loads
from launcher.cluster.shorthand import ListedHost
from launcher.errors import ClusterFileError
from launcher.plan.planner import make_plan
from launcher.slurm.login import SlurmError
from launcher.slurm.salloc import job_of, with_job_nodes
from tests.support.cluster_texts import SALLOC, UNLISTED_HOSTS


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
