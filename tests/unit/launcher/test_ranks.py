"""Roles and ranks of tasks: by the names of jobs, and as a framework or an MPI library has them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.agent.asked import Said
from launcher.cluster.choices import Framework
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.placeholders import left_over, typed
from launcher.cluster.ranks import ranks
from launcher.cluster.read import loads
from launcher.cluster.readiness import Auto, PortListens, ProcessStarted, ready_value
from launcher.cluster.roles import Role
from launcher.errors import ClusterFileError
from launcher.ids import TaskId
from launcher.on_host import linked
from launcher.plan import mpi
from launcher.plan.facts import HostFacts
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan
from launcher.run.states import Outcome, RunPhase
from tests.support.run_driver import CLUSTER, RunDriver, ends, name

# Ranks of the tasks that train: placeholders, the variables of a framework, GPUs, the order.

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
        ('[run]\ncommand = ["x", "{ rank }"]', "{ rank } is no placeholder: did you mean {rank}?"),
        ('[run]\ncommand = ["x", "{rank.worker}"]', "unknown placeholder {rank.worker}"),
        ('[run]\ncommand = ["x", "{rank"]', "single { in {rank: write {rank}, or"),
        ('[run]\ncommand = ["x", "{{rank}"]', "single } in rank}: write {rank}, or"),
        ('[run]\ncommand = ["x", "a{"]', "single {: write {{ for a literal brace"),
        ('[run]\ncommand = ["x", "{world-size}"]', "did you mean {world_size}?"),
        ('[run]\ncommand = ["x", "{RANK}"]', "did you mean {rank}?"),
        ('[run]\ncommand = ["x", "{rank:02d}"]', "did you mean {rank}?"),
        ('[run]\ncommand = ["x", "{task_index}"]', "did you mean {index}?"),
        ('[run]\ncommand = ["x", "{job_name}"]', "did you mean {job}?"),
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


# Roles of jobs by their names: what starts first, listens, has a rank, decides, serves.


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
        ("local local", [["local:0", "local:1"]]),
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
        ("local local", None),
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
        "ps:0": PortListens(by_default=True),
        "master:0": PortListens(by_default=True),
        "workers:0": PortListens(by_default=True),
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
    assert problem.key == place and problem.line
    assert problem.message.startswith("a cluster has one chief")
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


# Programs of an MPI library under `framework = "mpi-like"`: what a plan's words and files say.

MPI_HOSTS = '[hosts.a]\nssh = "a"\n[hosts.b]\nssh = "b"\naddress = "b.lan"\n'


def cluster(folder: Path, *command: str, hosts: str = "localhost", more: str = "") -> ClusterModel:
    tasks = json.dumps([f"{host}:auto" for host in hosts.split()])
    table = MPI_HOSTS if hosts != "localhost" and not hosts.startswith("localhost") else ""
    text = f'{table}[jobs.worker]\ntasks = {tasks}\n[run]\nframework = "mpi-like"\n'
    return loads(f"{text}command = {json.dumps(command)}\n{more}", "c.toml", folder)


def found(model: ClusterModel) -> list[str]:
    plan = make_plan(model, "r")
    return [library for _, library in mpi.found_here(plan, plan.tasks)]


SCRIPTS = {
    "train.py": "import os\nfrom mpi4py import MPI\n",
    "late.py": "def main():\n    import mpi4py.MPI\n",
    "other.py": "# import mpi4py would be wrong\nimport mpi4pyx\n",
    "run.sh": "#!/bin/sh\nexec python3 train.py\n",
    "tool": "#!/usr/bin/env python3\nfrom mpi4py import MPI\n",
}


@pytest.mark.parametrize("hosts", ["localhost localhost", "a b"])
@pytest.mark.parametrize(
    ("command", "library"),
    [
        ("python3 train.py --steps 3", "mpi4py"),
        ("python3 -u late.py", "mpi4py"),
        ("{python} -m mpi4py.bench helloworld", "mpi4py"),
        ("python3 -c 'import os; from mpi4py import MPI'", "mpi4py"),
        ("./tool", "mpi4py"),
        ("./sim.x", "libmpi.so.40"),
        ("env OMP_NUM_THREADS=2 nice ./sim.x", "libmpi.so.40"),
        ("env A=1 python3 train.py", "mpi4py"),
        ("python3 other.py", ""),
        ("python3 missing.py", ""),
        ("python3 -m trainer", ""),
        ("sh run.sh", ""),
        ("sim.x", ""),
    ],
)
def test_what_is_here_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: str, command: str, library: str
) -> None:
    """The words of the command, a script of the workdir, a program there; each command once."""
    for script, text in {**SCRIPTS, "sim.x": "ELF"}.items():
        (tmp_path / script).write_text(text)
        (tmp_path / script).chmod(0o755)
    libraries = {str(tmp_path / "sim.x"): "libmpi.so.40"}
    monkeypatch.setattr(mpi, "mpi_library", lambda path: libraries.get(path, ""))
    assert found(cluster(tmp_path, *shlex.split(command), hosts=hosts)) == [library] * bool(library)


def test_one_rank_and_other_frameworks_are_right_as_they_are(tmp_path: Path) -> None:
    """Rank 0 of 1 is what one task is; a ps has no rank."""
    assert mpi.size_of(cluster(tmp_path, "x", hosts="a b a")) == 3
    assert mpi.size_of(cluster(tmp_path, "x", hosts="a")) == 0
    text = '[jobs.worker]\ntasks = ["localhost:1", "localhost:2"]\n[run]\ncommand = ["x"]\n'
    assert mpi.size_of(loads(text, "c", tmp_path)) == 0


def test_what_to_write_instead(tmp_path: Path) -> None:
    """A command that can be copied: with the hosts and slots of the file, by the first of them."""
    model = cluster(tmp_path, "x", hosts="localhost localhost")
    said = "start it by its own mpirun: tfmux run "
    assert mpi.advice(model, ["./x", "a b"]) == f"{said}-- mpirun -n 2 ./x 'a b'"
    model = cluster(tmp_path, "x", hosts="a a b")
    assert mpi.advice(model, ["x"]) == f"{said}-H a -- mpirun -n 3 -H a:2,b.lan:1 x"


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("\tlibmpi.so.40 => /lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f)", "libmpi.so.40"),
        ("\tlibmpi.so.12 => not found", "libmpi.so.12"),
        ("\tlibmpich.so.12 => /usr/lib/libmpich.so.12 (0x1)", "libmpich.so.12"),
        ("\tlibmpi_cxx.so.40 => /lib/libmpi_cxx.so.40 (0x1)", "libmpi_cxx.so.40"),
        ("\tlibmpifort.so.12 => /opt/intel/libmpifort.so.12 (0x1)", "libmpifort.so.12"),
        ("\t/opt/mpi/libmpi.so.40 (0x1)", "libmpi.so.40"),
        ("\tlibimpi.so.1 => /lib/libimpi.so.1 (0x1)", ""),
        ("\tlibmpiw.so => /lib/libmpiw.so (0x1)", ""),
        ("\tlibmpc.so.3 => /lib/libmpi.so.40/libmpc.so.3 (0x1)", ""),
        ("\tnot a dynamic executable", ""),
    ],
)
def test_lines_of_ldd(monkeypatch: pytest.MonkeyPatch, line: str, library: str) -> None:
    """Open MPI, MPICH and Intel's by their names, found or not; nothing that looks like one."""

    def ldd(*_: object, **options: object) -> Said:
        return Said(0, f"\tlinux-vdso.so.1 (0x1)\n{line}\n".encode(), b"")

    monkeypatch.setattr(linked, "ask_program", ldd)
    assert linked.mpi_library("x") == library


@pytest.mark.parametrize(
    ("command", "hosts", "said"),
    [
        ("mpirun -n 4 python3 train.py", "a b", "have one task: tfmux run -H a -n 1 -- mpirun …"),
        ("env A=1 mpiexec.hydra -n 4 sim.x", "localhost localhost", "tfmux run -n 1 -- mpiexec"),
        ("srun python3 train.py", "a a b", "tfmux run -H a -n 1 -- srun"),
        ("mpirun -n 4 sim.x", "a", ""),
        ("mpirun -n 4 sim.x --seed={rank}", "a b", ""),
        ("python3 mpirun", "a b", ""),
    ],
)
def test_a_launcher_of_mpi_is_one_task(command: str, hosts: str, said: str, tmp_path: Path) -> None:
    """Several with the same words would be several programs; whatever the framework is."""
    plan = make_plan(cluster(tmp_path, *command.split(), hosts=hosts), "r")
    found = [(str(task.id), why, todo) for task, why, todo in mpi.repeated(plan)]
    assert len(found) == bool(said)
    for task, why, todo in found:
        assert task == "worker:0" and said in todo
        assert f"{len(hosts.split())} tasks would start it as often" in why


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("{name}-{epoch}.ckpt", "{epoch} is passed on as it is, and {name} beside it is replaced"),
        ("{logdir}/ckpt-{step}", "and {logdir} beside it is replaced: write {{logdir}} for"),
        ("--rank={rank", "{rank is passed on as it is: write {rank} for the placeholder"),
        ("rank}", "rank} is passed on as it is: write {rank} for the placeholder"),
        ("{ rank }", "{ rank } is passed on as it is: write {rank}"),
        ("{RANK}", "{RANK} is passed on as it is: write {rank}"),
        ("{world-size}", "write {world_size}"),
        ("{rank:02d}", "write {rank}"),
        ("{task_index}", "write {index}"),
        ("{job_name}:{epoch}", "write {job}"),
    ],
)
def test_braces_that_are_not_replaced_are_said(word: str, said: str) -> None:
    """Beside one that is replaced, or nearly one."""
    assert said in next(left_over(word))
    assert typed(word).replace("{{", "{").replace("}}", "}") == word


@pytest.mark.parametrize(
    "word",
    [
        "{{rank}}",
        "{epoch}.ckpt",
        "${rank}",
        "${rank:-0}",
        '{"rank": 1}',
        "{rank: 1}",
        "{rank} of {num.worker}",
        "{{ message }}{% if rank %}",
        "awk '{print $1}'",
        "train-{000..099}.tar",
        "{'size': {rank}}",
        "def rank(): return {1, 2}",
    ],
)
def test_braces_of_other_programs_are_not_talked_about(word: str) -> None:
    """JSON, shells, templates, and what is written twice on purpose."""
    assert list(left_over(word)) == []
