"""`[defaults.host]`: values that the hosts of a cluster file have in common."""

from __future__ import annotations

import tomllib
from pathlib import Path

import jsonschema
import pytest

from launcher.cluster.choices import Shell
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import load, loads
from launcher.cluster.reference import json_schema
from launcher.errors import ClusterFileError, Problem
from launcher.plan.planner import make_plan

JOBS = """\
[jobs.worker]
tasks = ["tf1:2222", "tf2:2222", "tf3:2222"]
[run]
command = ["{python}", "train.py"]
setup = "of run"
env = { A = "run", B = "run" }
"""
HOSTS = """\
[hosts.tf1]
ssh = "tf1"
[hosts.tf2]
ssh = "me@tf2:22"
python = "/own/python"
setup = ""
env = { B = "tf2", C = "tf2" }
[hosts.tf3]
via = ["podman", "exec", "-i", "tf3"]
address = "tf3"
"""
DEFAULTS = """\
[defaults.host]
python = "/opt/tf/bin/python"
user = "root"
identity = "key"
jump = "gate"
setup = "of all hosts"
shell = "login"
gpus = 2
env = { B = "all", C = "all" }
"""


def read(text: str) -> ClusterModel:
    """A text without a problem."""
    return loads(text, "cluster.toml", Path("/srv"))


def problems(text: str) -> list[Problem]:
    """Everything that is wrong in a text."""
    with pytest.raises(ClusterFileError) as caught:
        loads(text, "cluster.toml", Path("/srv"))
    return list(caught.value.problems)


def test_what_is_given_once_holds_for_every_host_that_says_nothing_else() -> None:
    """A host's own value wins, an empty one, too; variables are merged; options of SSH are for
    hosts with ssh."""
    text = JOBS + HOSTS + DEFAULTS
    jsonschema.validate(tomllib.loads(text), json_schema())
    plan = make_plan(read(text), "run-1")
    pythons = {host.name: host.python for host in plan.hosts}
    common = "/opt/tf/bin/python"
    assert pythons == {"tf1": common, "tf2": "/own/python", "tf3": common}
    assert [task.argv[0] for task in plan.tasks] == list(pythons.values())
    assert [task.setup for task in plan.tasks] == ["of all hosts", "", "of all hosts"]
    assert {task.shell for task in plan.tasks} == {Shell.LOGIN}
    seen = [[task.env[name] for name in "ABC"] for task in plan.tasks]
    assert seen == [["run", "all", "all"], ["run", "tf2", "tf2"], ["run", "all", "all"]]
    ways = [host.ssh for host in plan.hosts]
    assert ways[0] is not None and ways[1] is not None and ways[2] is None
    assert [(way.user, way.jump, way.identity) for way in ways[:2] if way is not None] == [
        ("root", "gate", "/srv/key"),
        ("me", "gate", "/srv/key"),
    ]
    assert [host.gpus for host in plan.hosts] == [2, 2, 2]


def test_a_job_wins_over_its_hosts() -> None:
    """As its variables do."""
    job = '[jobs.worker]\nsetup = "of the job"\nshell = "none"'
    plan = make_plan(read(JOBS.replace("[jobs.worker]", job) + HOSTS + DEFAULTS), "run-1")
    assert {(task.setup, task.shell) for task in plan.tasks} == {("of the job", Shell.NONE)}


def test_this_machine_has_them_where_it_has_a_table() -> None:
    """Its own Python else."""
    text = JOBS.replace("tf3:", "localhost:") + HOSTS.partition("[hosts.tf3]")[0] + DEFAULTS
    cluster = read(text + '[hosts.localhost]\naddress = "here"\n')
    assert cluster.hosts["localhost"].python == "/opt/tf/bin/python"
    assert cluster.hosts["localhost"].user is None


@pytest.mark.parametrize(
    ("defaults", "key", "said"),
    [
        ('pyhton = "/p"', "defaults.host.pyhton", 'did you mean "python"'),
        ('ssh = "tf1"', "defaults.host.ssh", "belongs in [hosts.NAME]"),
        ('python = "bin/python"', "defaults.host.python", "write an absolute path"),
        ('user = "a b"', "defaults.host.user", 'write such as "root"'),
        ('shell = "bash"', "defaults.host.shell", 'write "none" or "login"'),
        ("gpus = -1", "defaults.host.gpus", "from 0 on"),
        ('env = { A = "{nope}" }', "defaults.host.env.A", "unknown placeholder"),
        ('env = { TF_CONFIG = "x" }', "defaults.host.env.TF_CONFIG", "tfmux sets TF_CONFIG"),
        ('python = "~/python"', "defaults.host.python", '"~/" is not expanded through via'),
    ],
)
def test_a_bad_default_is_named_once_where_it_stands(defaults: str, key: str, said: str) -> None:
    """Not at each of the hosts, which have no such line."""
    text = f"{JOBS}{HOSTS}[defaults.host]\n{defaults}\n"
    (problem,) = problems(text)
    assert problem.key == key and said in problem.message
    assert problem.line == len(text.splitlines())


def test_a_host_s_own_value_is_named_at_the_host() -> None:
    """Although the defaults have the key, too."""
    own = HOSTS.replace('B = "tf2"', 'B = "{nope}"')
    (problem,) = problems(JOBS + own + DEFAULTS)
    assert problem.key == "hosts.tf2.env.B"


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ('[defaults]\npython = "/p"\n', "defaults.python", "belongs in [defaults.host]"),
        ('[defaults.hosts]\npython = "/p"\n', "defaults.hosts", 'did you mean "host"'),
        ('[default.host]\npython = "/p"\n', "default", 'did you mean "defaults"'),
        ("[defaults]\nhost = 3\n", "defaults.host", "write a table: [defaults.host]"),
    ],
)
def test_a_wrong_table_is_named(text: str, key: str, said: str) -> None:
    """With what was meant."""
    (problem,) = problems(JOBS + HOSTS + text)
    assert problem.key == key and said in problem.message and problem.line


@pytest.mark.parametrize(
    ("tasks", "table", "said"),
    [
        ("localhost:1", "", "the file has no [hosts.NAME]"),
        ("node0:1", '[slurm]\nnodes = 1\ntime = "1"\n', "the hosts come from Slurm"),
    ],
)
def test_defaults_that_no_host_would_have_are_refused(tasks: str, table: str, said: str) -> None:
    """They would be ignored without a word."""
    text = f'[jobs.worker]\ntasks = ["{tasks}"]\ncommand = ["x"]\n{table}{DEFAULTS}'
    (problem,) = problems(text)
    assert problem.key == "defaults.host" and said in problem.message and problem.line


def test_a_key_file_that_is_missing_is_named_at_the_defaults(tmp_path: Path) -> None:
    """Before a launch."""
    path = tmp_path / "c.toml"
    path.write_text(JOBS + HOSTS + DEFAULTS)
    with pytest.raises(ClusterFileError, match=r"defaults\.host\.identity: no such file"):
        load(path, for_launch=True)
