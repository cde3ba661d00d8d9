"""A host's GPUs are split between the tasks that train on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from launcher.cluster.read import loads
from launcher.plan.facts import HostFacts
from launcher.plan.planner import make_plan


def shares(
    workers: int,
    *,
    given: int | str | None = None,
    seen: int = 0,
    job: str = "",
    env: str = "",
    visible: str | None = None,
) -> dict[str, str | None]:
    """What CUDA_VISIBLE_DEVICES is for a ps and some workers on one host, None = unset."""
    tasks = ", ".join(f'"tf1:{2222 + n}"' for n in range(1, workers + 1))
    gpus = "" if given is None else f"gpus = {given}"
    text = f"""\
[hosts.tf1]
ssh = "tf1"
{gpus}
[jobs.ps]
tasks = ["tf1:2222"]
[jobs.worker]
tasks = [{tasks}]
{job}
[run]
command = ["true"]
{env}
"""
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    facts = {"tf1": HostFacts(gpus=seen, environ=environ)}
    plan = make_plan(loads(text, "c", Path("/")), "r", facts)
    return {str(t.id): t.env.get("CUDA_VISIBLE_DEVICES") for t in plan.tasks}


@pytest.mark.parametrize(
    ("workers", "gpus", "expected"),
    [
        (1, 1, ["0"]),
        (1, 4, ["0,1,2,3"]),
        (2, 2, ["0", "1"]),
        (2, 4, ["0,1", "2,3"]),
        (3, 4, ["0,1", "2", "3"]),
        (3, 2, ["0", "1", "0"]),
        (2, 0, [None, None]),
    ],
)
@pytest.mark.parametrize("said_by_the_file", [True, False])
def test_gpus_are_split_between_workers(
    workers: int, gpus: int, expected: list[str | None], said_by_the_file: bool
) -> None:
    """Whole GPUs, as evenly as they go, by the file's number or by what the host reports; the
    ps sees none."""
    split = shares(workers, given=gpus) if said_by_the_file else shares(workers, seen=gpus)
    assert split["ps:0"] == "-1"
    assert [split[f"worker:{n}"] for n in range(workers)] == expected


def test_a_job_may_ask_for_a_number() -> None:
    """Its tasks get that many each, none for 0, and others what is left."""
    asked = {"ps:0": "-1", "worker:0": "0,1", "worker:1": "2,3"}
    assert shares(2, given=5, job="gpus = 2") == asked
    assert shares(1, given=5, job="gpus = 0") == {"ps:0": "-1", "worker:0": "-1"}
    helper = 'gpus = 1\n[jobs.chief]\ntasks = ["tf1:9"]'
    split = shares(2, given=4, job=helper)
    assert (split["worker:0"], split["worker:1"], split["chief:0"]) == ("0", "1", "2,3")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("2,3", ["2", "3"]),
        ("3", ["3", "3"]),
        ("GPU-1a,GPU-2b,GPU-3c", ["GPU-1a,GPU-2b", "GPU-3c"]),
        ("-1", ["-1", "-1"]),
        ("", [None, None]),
    ],
)
def test_gpus_that_the_environment_there_hides_are_given_to_nobody(
    visible: str, expected: list[str | None]
) -> None:
    """On a shared machine they are somebody else's. What is unset is the host's own value."""
    split = shares(2, seen=4, visible=visible)
    assert [split["worker:0"], split["worker:1"]] == expected


def test_a_file_that_counts_more_gpus_than_are_shown_is_followed() -> None:
    """The file's author knows the host."""
    split = shares(2, given=4, seen=4, visible="3")
    assert (split["worker:0"], split["worker:1"]) == ("0,1", "2,3")
    split = shares(2, given=2, seen=4, visible="2,3")
    assert (split["worker:0"], split["worker:1"]) == ("2", "3")


def test_the_file_has_the_last_word() -> None:
    """A CUDA_VISIBLE_DEVICES of one's own is left alone."""
    split = shares(1, given=2, env='env = { CUDA_VISIBLE_DEVICES = "7" }')
    assert split == {"ps:0": "7", "worker:0": "7"}


@pytest.mark.parametrize(
    ("host", "job", "expected"),
    [
        ('"0,2"', "", ["0", "2"]),
        ('" 1, 3 , 5,7 "', "", ["1,3", "5,7"]),
        ('"GPU-1a, MIG-2b"', "", ["GPU-1a", "MIG-2b"]),
        ('"3,"', "", ["3", "3"]),
        ("4", '"0,2"', ["0", "2"]),
        ("4", '"MIG-GPU-8932f937/1/0,"', ["MIG-GPU-8932f937/1/0"] * 2),
        ('"4,5,6,7"', "2", ["4,5", "6,7"]),
    ],
)
def test_gpus_may_be_chosen_by_number_or_id(host: str, job: str, expected: list[str]) -> None:
    """GPUs of a host are for the cluster, GPUs of a job for its tasks there, which divide them."""
    split = shares(2, given=host, job=f"gpus = {job}" if job else "")
    assert [split["worker:0"], split["worker:1"]] == expected


@pytest.mark.parametrize(
    ("gpus", "env", "environ", "order"),
    [
        ("2", "", {}, "PCI_BUS_ID"),
        ('"1,3"', "", {}, "PCI_BUS_ID"),
        ('"GPU-1a,GPU-2b"', "", {}, None),
        ("2", 'CUDA_DEVICE_ORDER = "FASTEST_FIRST"', {}, "FASTEST_FIRST"),
        ("2", "", {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, None),
        ("0", "", {}, None),
    ],
)
def test_gpus_have_the_numbers_of_nvidia_smi(
    gpus: str, env: str, environ: dict[str, str], order: str | None
) -> None:
    """Given GPUs of several kinds, CUDA would begin with the fastest; an id needs no order, and
    what people or the host say stays."""
    text = f"""\
[hosts.a]
ssh = "a"
gpus = {gpus}
[jobs.worker]
tasks = ["a:1"]
command = ["x"]
env = {{ {env} }}
"""
    facts = {"a": HostFacts(environ=environ)}
    (task,) = make_plan(loads(text, "c", Path("/")), "r", facts).tasks
    assert task.env.get("CUDA_DEVICE_ORDER") == order


def test_gpus_that_a_job_has_chosen_are_no_others() -> None:
    """Given a job that has chosen GPUs, then other tasks get the rest, by number or by share."""
    helper = 'gpus = "0,2"\n[jobs.chief]\ntasks = ["tf1:9"]'
    split = shares(2, given=4, job=helper)
    assert (split["worker:0"], split["worker:1"], split["chief:0"]) == ("0", "2", "1,3")
    split = shares(2, given=4, job=f"{helper}\ngpus = 1")
    assert split["chief:0"] == "1"


def test_ranks_of_torch_count_among_chosen_gpus() -> None:
    """Each sees all of them, in their order, and takes that of its local rank."""
    env = 'framework = "torch"'
    split = shares(2, given=4, job='gpus = "3,1"', env=env)
    assert [split["worker:0"], split["worker:1"]] == ["3,1", "3,1"]


@pytest.mark.parametrize(
    ("framework", "tasks", "expected"),
    [
        ("jax", 2, "0.45"),
        ("jax", 3, "0.30"),
        ("none", 4, "0.22"),
        ("mpi-like", 2, "0.45"),
        ("torch", 2, None),
        ("tensorflow", 2, None),
        ("jax", 1, None),
    ],
)
def test_jax_is_told_its_share_of_a_gpu(framework: str, tasks: int, expected: str | None) -> None:
    """Together they may take nine tenths; a task alone has JAX's own default."""
    assert memory_of(framework, tasks) == [expected] * tasks


@pytest.mark.parametrize(
    "own",
    [
        "XLA_CLIENT_MEM_FRACTION",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "XLA_PYTHON_CLIENT_ALLOCATOR",
    ],
)
@pytest.mark.parametrize("on_host", [True, False])
def test_a_share_of_ones_own_is_left_alone(own: str, on_host: bool) -> None:
    """In the file or on the host: JAX refuses to start where both names of the fraction are set."""
    values = {own: "0.1"}
    expected = [None if on_host or own != "XLA_PYTHON_CLIENT_MEM_FRACTION" else "0.1"] * 2
    assert memory_of("jax", 2, {} if on_host else values, values if on_host else {}) == expected


def memory_of(
    framework: str,
    tasks: int,
    env: Mapping[str, str] = MappingProxyType({}),
    environ: Mapping[str, str] = MappingProxyType({}),
) -> list[str | None]:
    """JAX's share of tasks on a host with one GPU."""
    places = [f"a:{number}" for number in range(1, tasks + 1)]
    text = f"""\
[hosts.a]
ssh = "a"
[jobs.worker]
tasks = {places}
command = ["x"]
env = {{ {", ".join(f'{name} = "{value}"' for name, value in env.items())} }}
[run]
framework = "{framework}"
"""
    facts = {"a": HostFacts(gpus=1, environ=dict(environ))}
    plan = make_plan(loads(text, "c", Path("/")), "r", facts)
    return [task.env.get("XLA_PYTHON_CLIENT_MEM_FRACTION") for task in plan.tasks]


def test_shared_gpus_are_not_grabbed_whole() -> None:
    """Where workers must share a GPU, TensorFlow is told to take memory as it needs it."""
    text = (
        '[hosts.a]\nssh = "a"\ngpus = 1\n[jobs.worker]\ntasks = ["a:1", "a:2"]\ncommand = ["x"]\n'
    )
    for planned in make_plan(loads(text, "c", Path("/")), "r").tasks:
        assert planned.env["CUDA_VISIBLE_DEVICES"] == "0"
        assert planned.env["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
