"""Ranks of the tasks that train: placeholders, the variables of a framework, GPUs, the order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.cluster.readiness import ready_value
from launcher.errors import ClusterFileError
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan

HOSTS = """
[hosts.tf1]
ssh = "me@tf1"
address = "10.0.0.1"
[hosts.tf2]
ssh = "me@tf2"
address = "fd00::2"
"""
RANKS = [
    "{rank}",
    "{world_size}",
    "{local_rank}",
    "{local_world_size}",
    "{node_rank}",
    "{master_addr}",
    "{master_port}",
]
JOBS = f"""
[jobs.board]
tasks = ["tf1:6006"]
in_cluster = false
command = ["true"]
[jobs.ps]
tasks = ["tf1:2221"]
command = ["true"]
[jobs.train]
tasks = ["tf2:auto", "tf1:2222", "tf2:2223"]
command = {json.dumps(["train", *RANKS])}
[jobs.more]
tasks = ["tf1:2225"]
command = {json.dumps(["more", *RANKS])}
[jobs.evaluator]
tasks = ["tf1:2226"]
command = ["true"]
"""


def planned(text: str, facts: Mapping[str, HostFacts] | None = None) -> Plan:
    return make_plan(loads(text, "c", Path("/")), "r", facts or {})


def with_framework(word: str, more: str = "") -> str:
    return f'{HOSTS}{JOBS}[run]\nframework = "{word}"\n{more}'


def words(plan: Plan, task: str) -> list[str]:
    return list(plan.task(TaskId.parse(task)).argv[1:])


def env(plan: Plan, task: str) -> Mapping[str, str]:
    return plan.task(TaskId.parse(task)).env


@pytest.mark.parametrize("framework", ["tensorflow", "torch", "jax", "mpi-like", "none"])
def test_ranks_follow_the_order_of_the_file(framework: str) -> None:
    """All jobs in the cluster but ps have ranks; hosts are numbered as they come. Rank 0's port is
    the one where they meet."""
    facts = {"tf2": HostFacts(ports={TaskId("train", 0): 40000})}
    plan = planned(with_framework(framework), facts)
    assert words(plan, "train:0") == ["0", "4", "0", "2", "0", "[fd00::2]", "40000"]
    assert words(plan, "train:1") == ["1", "4", "0", "2", "1", "[fd00::2]", "40000"]
    assert words(plan, "train:2") == ["2", "4", "1", "2", "0", "[fd00::2]", "40000"]
    assert words(plan, "more:0") == ["3", "4", "1", "2", "1", "[fd00::2]", "40000"]


def test_before_the_launch_the_port_is_not_known() -> None:
    """The port reads `auto`, as every such port does."""
    assert words(planned(with_framework("torch")), "more:0")[-1] == "auto"


VARIABLES = {
    "torch": {
        "MASTER_ADDR": "fd00::2",
        "MASTER_PORT": "auto",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "NODE_RANK": "1",
    },
    "mpi-like": {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "PMI_RANK": "3",
        "PMI_SIZE": "4",
    },
    "jax": {
        "JAX_COORDINATOR_ADDRESS": "[fd00::2]:auto",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "3",
        "OMPI_MCA_orte_hnp_uri": "0.0;tcp://[fd00::2]:auto",
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    },
    "none": {},
}
COMMON = {"PYTHONUNBUFFERED", "TFMUX_RUN_ID", "PYTHONPATH"}


@pytest.mark.parametrize("framework", VARIABLES)
def test_the_variables_of_a_framework(framework: str) -> None:
    """Only tasks with ranks have them, and nobody has TF_CONFIG."""
    plan = planned(with_framework(framework))
    given = {k: v for k, v in env(plan, "more:0").items() if k not in COMMON}
    assert given == VARIABLES[framework]
    for other in ("ps:0", "board:0", "evaluator:0"):
        assert set(env(plan, other)) == {*COMMON, "CUDA_VISIBLE_DEVICES"}


def test_tensorflow_is_the_default() -> None:
    """TensorFlow sets TF_CONFIG alone, as ever."""
    before = planned(f"{HOSTS}{JOBS}")
    assert set(env(before, "train:0")) == {*COMMON, "TF_CONFIG"}
    assert planned(with_framework("tensorflow")) == before


def test_the_file_has_the_last_word() -> None:
    """A variable in env replaces that of the framework; TF_CONFIG is anybody's without it."""
    text = with_framework("torch", 'env = { MASTER_PORT = "29500", TF_CONFIG = "x" }')
    given = env(planned(text), "train:1")
    assert (given["MASTER_PORT"], given["TF_CONFIG"], given["RANK"]) == ("29500", "x", "1")


def shares(framework: str, job: str = "", gpus: int = 2) -> list[dict[str, str]]:
    """CUDA_VISIBLE_DEVICES, and what else says which GPU, of two tasks on one host."""
    text = f'[hosts.a]\nssh = "a"\ngpus = {gpus}\n[jobs.worker]\ntasks = ["a:1", "a:2"]\n{job}\n'
    text += f'[run]\ncommand = ["x"]\nframework = "{framework}"\n'
    names = ("CUDA_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS", "LOCAL_RANK")
    return [{n: t.env[n] for n in names if n in t.env} for t in planned(text).tasks]


def test_torch_sees_the_gpus_of_its_host_and_chooses_by_local_rank() -> None:
    """`cuda:LOCAL_RANK` is a GPU of its own; a task with a number gets no other's."""
    seen = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert shares("torch") == [seen | {"LOCAL_RANK": "0"}, seen | {"LOCAL_RANK": "1"}]
    assert shares("mpi-like") == [seen, seen]
    asked = shares("torch", "gpus = 1", gpus=4)
    assert [share["CUDA_VISIBLE_DEVICES"] for share in asked] == ["0,1", "0,1"]
    none = shares("torch", "gpus = 0")
    assert [share["CUDA_VISIBLE_DEVICES"] for share in none] == ["-1", "-1"]


def test_jax_uses_all_gpus_that_it_sees() -> None:
    """They are split; it numbers those that it sees from 0, and would else take one by its local
    rank."""
    first, second = shares("jax", gpus=3)
    assert first == {"CUDA_VISIBLE_DEVICES": "0,1", "JAX_LOCAL_DEVICE_IDS": "0,1"}
    assert second == {"CUDA_VISIBLE_DEVICES": "2", "JAX_LOCAL_DEVICE_IDS": "0"}
    assert shares("jax", gpus=0) == [{}, {}]


@pytest.mark.parametrize(
    ("framework", "stages"),
    [
        ("tensorflow", [["worker:0"], ["worker:1"]]),
        ("none", [["worker:0"], ["worker:1"]]),
        ("torch", [["worker:0", "worker:1"]]),
        ("jax", [["worker:0", "worker:1"]]),
        ("mpi-like", [["worker:0", "worker:1"]]),
    ],
)
def test_what_meets_by_itself_starts_at_once(framework: str, stages: list[list[str]]) -> None:
    """Only servers and a chief are waited for."""
    text = '[jobs.worker]\ntasks = ["localhost:1", "localhost:2"]\n[run]\ncommand = ["x"]\n'
    plan = planned(f'{text}framework = "{framework}"')
    assert [[str(task) for task in stage] for stage in plan.stages] == stages


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("tensorflow", {"ps": "listening", "worker": "listening", "trainer": "auto"}),
        ("torch", {"ps": "auto", "worker": "auto", "trainer": "auto"}),
        ("none", {"ps": "auto", "worker": "auto", "trainer": "auto"}),
    ],
)
def test_only_servers_of_tensorflow_must_listen(
    framework: str, expected: Mapping[str, str]
) -> None:
    """Nothing is known of other programs; what only looks on is ready when it has started, and the
    file's word counts."""
    text = f'[run]\ncommand = ["x"]\nframework = "{framework}"\n[start.ready]\nown = "listening"\n'
    for job in (*expected, "own", "evaluator"):
        text += f'[jobs.{job}]\ntasks = ["localhost:auto"]\n'
    found = {task.id.job: ready_value(task.ready) for task in planned(text).tasks}
    assert found == {**expected, "own": "listening", "evaluator": "started"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[run]\ncommand = ["x", "{rnk}"]', "unknown placeholder {rnk}: did you mean {rank}?"),
        ('[run]\ncommand = ["x", "{}"]', "{} is not a placeholder"),
        ('[run]\ncommand = ["x", "{ rank }"]', "{ rank } is not a placeholder"),
        ('[run]\ncommand = ["x", "{rank.worker}"]', "unknown placeholder {rank.worker}"),
        ('[run]\ncommand = ["x", "{rank"]', "single {"),
        (
            '[jobs.ps]\ntasks = ["localhost:1"]\n[run]\ncommand = ["x", "{rank}"]',
            "{rank} is only for tasks that train, and ps has none",
        ),
        (
            '[jobs.b]\nin_cluster = false\ntasks = ["localhost:1"]\ncommand = ["{master_addr}"]\n'
            '[run]\ncommand = ["x"]',
            "{master_addr} is only for tasks that train, and b has none",
        ),
        (
            '[jobs.b]\nin_cluster = false\ntasks = ["localhost:1"]\ncommand = ["x"]\n'
            '[run]\ncommand = ["x"]\nenv = { R = "{rank}" }',
            "and b has none",
        ),
        (
            '[run]\ncommand = ["x"]\nlogdir = "/l/{rank}"\nprepare = ["true"]',
            "and prepare has none",
        ),
        ('[run]\ncommand = ["x"]\nworkdir = "{rank}"', "{rank} is not available here"),
        ('[run]\ncommand = ["x"]\nframework = "pytorch"', 'did you mean "torch"?'),
        ('[run]\ncommand = ["x"]\nframework = 1', 'write "tensorflow" or "torch" or "jax"'),
    ],
)
def test_wrong_placeholders_are_named(text: str, said: str) -> None:
    """Each with what is wrong, and what to write."""
    with pytest.raises(ClusterFileError) as failure:
        planned(f'[jobs.worker]\ntasks = ["localhost:9"]\n{text}\n')
    assert said in str(failure.value)


def test_a_job_without_ranks_may_have_a_command_of_its_own() -> None:
    """Then the placeholders in that of `[run]` are only for the others."""
    text = '[jobs.worker]\ntasks = ["localhost:9"]\n[jobs.ps]\ntasks = ["localhost:1"]\n'
    plan = planned(text + 'command = ["y"]\n[run]\ncommand = ["x", "{rank}"]\n')
    assert words(plan, "worker:0") == ["0"]
