"""The plan: exact commands, environments and the order, worked out without any host."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.choices import Framework
from launcher.cluster.read import loads
from launcher.cluster.readiness import After, LogMatches, PortListens, ProcessStarted
from launcher.cluster.roles import Role
from launcher.errors import ClusterFileError
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts, Resume
from launcher.plan.plan_record import plan_json
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan, SshTarget, TaskPlan
from launcher.plan.shell import split_python
from launcher.printable import printable
from tests.support.cluster_texts import cluster_text
from tests.support.plans import BASE, plan_of, task

MISSION = """\
name = "mnist"
[hosts.tf1]
ssh = "root@10.77.0.1:2200"
identity = "~/.ssh/key"
jump = "gate@door:22"
known_hosts = "keys/known"
address = "tf1.lan"
python = "~/tf/bin/python"
env = { B = "host", C = "host" }
[hosts.tf2]
ssh = "tf2"
[hosts.tf3]
ssh = "root@tf3"
[jobs.ps]
tasks = ["tf1:2222"]
[jobs.worker]
tasks = ["tf2:2222", "tf2:auto", "tf3:2222"]
env = { C = "job", D = "{port}" }
[jobs.evaluator]
tasks = ["tf3:3333"]
[jobs.board]
tasks = ["tf2:6006"]
in_cluster = false
forward = true
command = ["{python}", "-m", "tensorboard.main", "--logdir", "{logdir}", "--port", "{port}"]
[run]
command = ["{python}", "-m", "trainer", "--job_name={job}", "--task_index={index}",
           "--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}", "--logdir={logdir}"]
env = { A = "run", B = "run", C = "run" }
"""


def local(jobs: str, run: str = 'command = ["true"]') -> str:
    return f'name = "here"\n{jobs}\n[run]\n{run}\n'


def alone(run: str = 'command = ["true"]') -> TaskPlan:
    """The plan of a cluster's only task, on this machine."""
    (worker,) = plan_of(local('[jobs.worker]\ntasks = ["localhost:1"]', run)).tasks
    return worker


def stage_names(plan: Plan) -> list[list[str]]:
    return [[str(task) for task in stage] for stage in plan.stages]


def test_the_mission_is_planned_exactly() -> None:
    """Each task gets the classic flags, with the addresses that the other hosts use."""
    plan = plan_of(MISSION)
    assert task(plan, "worker:2").argv == (
        "python3",
        "-m",
        "trainer",
        "--job_name=worker",
        "--task_index=2",
        "--ps_hosts=tf1.lan:2222",
        "--worker_hosts=tf2:2222,tf2:auto,tf3:2222",
        "--logdir=~/tfmux-logs/mnist/mnist-1",
    )
    assert task(plan, "ps:0").argv[0] == "~/tf/bin/python"
    assert task(plan, "board:0").argv[-2:] == ("--port", "6006")
    assert stage_names(plan) == [
        ["ps:0"],
        ["worker:0"],
        ["worker:1", "worker:2", "evaluator:0", "board:0"],
    ]
    assert [host.name for host in plan.hosts] == ["tf1", "tf2", "tf3"]
    assert plan.cluster_spec == {
        "ps": ["tf1.lan:2222"],
        "worker": ["tf2:2222", "tf2:auto", "tf3:2222"],
    }
    assert plan.chief == TaskId("worker", 0)


def test_roles_and_readiness_have_their_defaults() -> None:
    """Cluster tasks are ready when they listen, onlookers when they have started."""
    plan = plan_of(MISSION)
    assert [(str(t.id), t.role, t.ready, t.in_cluster) for t in plan.tasks] == [
        ("ps:0", Role.PS, PortListens(by_default=True), True),
        ("worker:0", Role.CHIEF, PortListens(by_default=True), True),
        ("worker:1", Role.WORKER, PortListens(by_default=True), True),
        ("worker:2", Role.WORKER, PortListens(by_default=True), True),
        ("evaluator:0", Role.EVALUATOR, ProcessStarted(), False),
        ("board:0", Role.HELPER, ProcessStarted(), False),
    ]
    text = MISSION.replace("[jobs.ps]", "[jobs.ps]\nready = { log = 'up' }")
    plan = plan_of(text + '[start]\nready = { ps = "started", worker = { after = 2 } }\n')
    assert task(plan, "ps:0").ready == LogMatches("up")
    assert task(plan, "worker:1").ready == After(2.0)


@pytest.mark.parametrize(
    ("order", "stages"),
    [
        (
            '[["ps"], ["worker:0"], ["worker"], ["board"]]',
            [["ps:0"], ["worker:0"], ["worker:1", "worker:2"], ["board:0"], ["evaluator:0"]],
        ),
        (
            '[["worker"], ["worker:0", "ps"]]',
            [["worker:1", "worker:2"], ["worker:0", "ps:0"], ["evaluator:0", "board:0"]],
        ),
        ("[]", [["ps:0", "worker:0", "worker:1", "worker:2", "evaluator:0", "board:0"]]),
        (
            '[["worker:0", "worker:1"], [], ["worker:2"], ["worker"], ["ps"]]',
            [["worker:0", "worker:1"], ["worker:2"], ["ps:0"], ["evaluator:0", "board:0"]],
        ),
    ],
)
def test_an_order_names_jobs_and_tasks(order: str, stages: list[list[str]]) -> None:
    """A job stands for its tasks that are named nowhere; who is left out comes last."""
    assert stage_names(plan_of(MISSION + f"[start]\norder = {order}\n")) == stages


def test_env_of_the_job_wins_over_the_host_over_the_run() -> None:
    """Given one name in several tables, the nearest to the task wins."""
    plan = plan_of(MISSION)
    ps, worker = task(plan, "ps:0").env, task(plan, "worker:0").env
    assert (ps["A"], ps["B"], ps["C"]) == ("run", "host", "host")
    assert (worker["A"], worker["B"], worker["C"], worker["D"]) == ("run", "run", "job", "2222")


def test_what_tensorflow_needs_is_always_set() -> None:
    """TF_CONFIG of cluster tasks, also of the evaluator (which stays out of the cluster in it),
    not of helpers; unbuffered output; the run's id."""
    plan = plan_of(MISSION)
    for planned in plan.tasks:
        assert planned.env["PYTHONUNBUFFERED"] == "1"
        assert planned.env["TFMUX_RUN_ID"] == "mnist-1"
        assert "TFMUX_RESUME" not in planned.env
        if planned.role is Role.HELPER:
            assert "TF_CONFIG" not in planned.env
        else:
            config = json.loads(planned.env["TF_CONFIG"])
            assert config["cluster"] == plan.cluster_spec
            assert config["task"] == {"type": planned.id.job, "index": planned.id.index}


def test_a_resumed_run_has_the_log_directory_of_the_other() -> None:
    """Under resume, {logdir} is that of the first run and {run_id} the new one's; the checkpoint
    was written by the run in between."""
    text = MISSION.replace('"--logdir={logdir}"', '"{run_id}", "{logdir}"')
    worker = task(plan_of(text, resume=Resume("mnist-b", "mnist-a")), "worker:0")
    assert worker.argv[-2:] == ("mnist-1", "~/tfmux-logs/mnist/mnist-a")
    assert worker.env["TFMUX_RESUME"] == "mnist-b"
    assert worker.env["TFMUX_RUN_ID"] == "mnist-1"


def test_a_resumed_run_of_a_cluster_with_another_name_has_its_log_directory() -> None:
    """The file has got another name since: the checkpoints are where they were."""
    first = "digits-20261120-183002-7f3a"
    text = MISSION.replace('"--logdir={logdir}"', '"{name}", "{logdir}"')
    worker = task(plan_of(text, resume=Resume(first, first)), "worker:0")
    assert worker.argv[-2:] == ("mnist", f"~/tfmux-logs/digits/{first}")


@pytest.mark.parametrize(
    ("run", "made"),
    [
        ('command = ["a", "--logdir={logdir}"]', True),
        ('command = ["a"]\nenv = { LOGS = "{logdir}" }', True),
        ('command = ["a"]\ncollect = ["{logdir}"]', False),
        ('command = ["a", "{{logdir}}"]', False),
    ],
)
def test_a_log_directory_that_a_task_uses_is_made_for_all(run: str, made: bool) -> None:
    """The words of one task are enough: another one may write there for it."""
    jobs = '[jobs.ps]\ntasks = ["localhost:1"]\ncommand = ["b"]\n'
    jobs += '[jobs.worker]\ntasks = ["localhost:2"]'
    assert {one.makes_logdir for one in plan_of(local(jobs, run)).tasks} == {made}


def test_facts_of_the_hosts_are_put_in() -> None:
    """Home, folders and picked ports appear in commands, TF_CONFIG and the spec alike."""
    facts = {
        "tf1": HostFacts(home="/root", workdir="/s/w", trainer="/s/t", tools="/s/b"),
        "tf2": HostFacts(home="/home/u", ports={TaskId("worker", 1): 40123}),
    }
    plan = plan_of(MISSION, facts)
    ps, second = task(plan, "ps:0"), task(plan, "worker:1")
    assert ps.argv[0] == "/root/tf/bin/python"
    assert ps.logdir == "/root/tfmux-logs/mnist/mnist-1"
    assert (ps.cwd, ps.env["PYTHONPATH"]) == ("/s/w", "/s/b/stacks:/s/t")
    assert (second.port, second.address) == (40123, "tf2:40123")
    assert plan.cluster_spec["worker"][1] == "tf2:40123"
    assert "--worker_hosts=tf2:2222,tf2:40123,tf3:2222" in ps.argv
    assert json.loads(ps.env["TF_CONFIG"])["cluster"]["worker"][1] == "tf2:40123"


def test_how_to_log_in() -> None:
    """Paths of keys are absolute; what the file does not say is left to ssh_config."""
    hosts = {host.name: host for host in plan_of(MISSION).hosts}
    assert hosts["tf1"].ssh == SshTarget(
        user="root",
        host="10.77.0.1",
        port=2200,
        identity=os.path.expanduser("~/.ssh/key"),
        jump="gate@door:22",
        known_hosts="/srv/project/keys/known",
    )
    assert hosts["tf2"].ssh == SshTarget(None, "tf2", None)
    assert (hosts["tf1"].address, hosts["tf3"].address) == ("tf1.lan", "tf3")
    assert (hosts["tf1"].python, hosts["tf2"].python) == ("~/tf/bin/python", "python3")


def test_this_machine_needs_no_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the interpreter, the home, the directory of the file and the trainer are known."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    plan = plan_of(
        local('[jobs.worker]\ntasks = ["localhost:1"]', 'command = ["{python}"]\nworkdir = "code"')
    )
    (worker,) = plan.tasks
    assert worker.argv == (sys.executable,)
    assert worker.cwd == "/srv/project/code"
    assert worker.logdir == os.path.expanduser("~/tfmux-logs/here/mnist-1")
    stacks, trainer = map(Path, worker.env["PYTHONPATH"].split(":"))
    assert (trainer / "trainer" / "__main__.py").exists()
    assert [file.name for file in stacks.glob("*.py")] == ["sitecustomize.py"]
    assert plan.hosts[0].ssh is None
    assert plan.workdir == Path("/srv/project/code")


def test_no_workdir_copies_nothing() -> None:
    """With workdir = "" tasks start in the home, here in the directory of the file."""
    text = MISSION.replace("[run]", '[run]\nworkdir = ""').replace('"tf3:2222"', '"tf3:2222"')
    plan = plan_of(text, {"tf1": HostFacts(home="/root")})
    assert plan.workdir is None
    assert task(plan, "ps:0").cwd == "/root"
    assert alone('command = ["a"]\nworkdir = ""').cwd == "/srv/project"


def test_a_relative_log_directory_here_is_beside_the_file() -> None:
    """A task's own directory does not matter for where its logs go."""
    worker = alone('command = ["a"]\nlogdir = "l/{job}"')
    assert worker.logdir == "/srv/project/l/worker"


def test_every_placeholder_is_put_in() -> None:
    """Each name of the contract, with IPv6 in brackets wherever a port may follow."""
    text = cluster_text(
        {"ps": "a:1", "worker": "b:2 a:3"},
        "n",
        {"a": {"ssh": "x", "address": "fd00::1"}, "b": {"ssh": "y"}},
        command=[
            "{python} {name} {job} {index} {host} {port} {address} {ps_hosts} {worker_hosts}",
            "{hosts.worker} {num.worker} {host.worker.1} {port.worker.1} {address.worker.1}",
            "{cluster}",
            "{run_id} {logdir} {workdir} {{x}} {{{job}}}",
        ],
        workdir="",
        logdir="/l",
    )
    worker = task(plan_of(text, {"b": HostFacts(home="/h")}), "worker:0")
    assert worker.argv == (
        "python3 n worker 0 b 2 y [fd00::1]:1 y:2,[fd00::1]:3",
        "y:2,[fd00::1]:3 2 a 3 [fd00::1]",
        '{"ps": ["[fd00::1]:1"], "worker": ["y:2", "[fd00::1]:3"]}',
        "mnist-1 /l /h {x} {worker}",
    )
    assert not [name for name in worker.env if name.lower().endswith("_proxy")]


def test_what_is_put_in_is_not_expanded_again() -> None:
    """Braces that come out of a placeholder stay as they are."""
    assert alone("command = ['{logdir}']\nlogdir='/{{job}}'").argv == ("/{job}",)


def test_cluster_hosts_are_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a variable names a proxy: what the file or the host says of no_proxy is kept, the
    cluster's hosts are added, and both spellings agree; no_grpc_proxy, which gRPC prefers, is
    extended where it is set."""
    monkeypatch.setenv("no_proxy", "example.org")
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    text = MISSION.replace('C = "job"', 'no_grpc_proxy = "grid", HTTPS_PROXY = "http://p:1"')
    plan = plan_of(text, {"tf1": HostFacts(environ={"NO_PROXY": "lan, tf2"}, proxied=True)})
    assert task(plan, "ps:0").env["no_proxy"] == "lan,tf2,tf1.lan,tf3"
    assert task(plan, "ps:0").env["NO_PROXY"] == "lan,tf2,tf1.lan,tf3"
    assert "no_grpc_proxy" not in task(plan, "ps:0").env
    assert task(plan, "worker:0").env["no_grpc_proxy"] == "grid,tf1.lan,tf2,tf3"
    assert task(plan, "worker:0").env["no_proxy"] == "tf1.lan,tf2,tf3"
    assert alone().env["no_proxy"] == "example.org,localhost"


@pytest.mark.parametrize("name", ["grpc_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"])
@pytest.mark.parametrize("where", ["env", "env_from", "host"])
def test_a_proxy_is_known_wherever_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, name: str, where: str
) -> None:
    """The file's variables, those of the launching shell, those of the host."""
    settings = {"env": f'env = {{ {name} = "p:1" }}', "env_from": f'env_from = ["{name}"]'}
    if where == "host":
        monkeypatch.setenv(name, "p:1")
    worker = alone(f'command = ["true"]\n{settings.get(where, "")}')
    assert worker.env["no_proxy"] == worker.env["NO_PROXY"] == "localhost"


def test_without_a_proxy_its_variables_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX warns at each start of any that is set. An empty one names no proxy; a shell before the
    program may set one, and gets the hosts to append them itself."""
    monkeypatch.setenv("no_proxy", "example.org")
    monkeypatch.setenv("https_proxy", "")
    for settings in ("", 'env = { NO_PROXY = "x", http_proxy = "" }', 'setup = ":"'):
        worker = alone(f'command = ["true"]\n{settings}')
        assert "no_proxy" not in worker.env
        assert worker.env.get("NO_PROXY") == ("x" if "NO_PROXY" in settings else None)
        assert worker.env.get("TFMUX_NO_PROXY") == ("localhost" if "setup" in settings else None)


def test_the_trainer_comes_last_on_the_path() -> None:
    """A PYTHONPATH of the file or of the host goes before the bundled trainer, and behind what
    makes interpreters say where they stand."""
    facts = {
        "tf1": HostFacts(trainer="/t", tools="/b", environ={"PYTHONPATH": "/own"}),
        "tf2": HostFacts(trainer="/t", tools="/b", environ={"PYTHONPATH": "/own"}),
    }
    plan = plan_of(MISSION.replace('C = "job"', 'PYTHONPATH = "/mine"'), facts)
    assert task(plan, "ps:0").env["PYTHONPATH"] == "/b/stacks:/own:/t"
    assert task(plan, "worker:0").env["PYTHONPATH"] == "/b/stacks:/mine:/t"


def test_interpreters_are_left_alone_where_the_file_says_so() -> None:
    """For all tasks, those of a host, or a job; `prepare` lines are never touched."""
    facts = {"tf1": HostFacts(trainer="/t", tools="/b"), "tf2": HostFacts(trainer="/t", tools="/b")}
    off = plan_of(MISSION.replace('C = "job"', 'TFMUX_STACKS = "0"'), facts)
    assert task(off, "ps:0").env["PYTHONPATH"] == "/b/stacks:/t"
    assert task(off, "worker:0").env["PYTHONPATH"] == "/t"
    assert task(off, "worker:0").env["TFMUX_STACKS"] == "0"


@pytest.mark.parametrize("framework", Framework)
def test_who_gets_the_stop_signal_where_nothing_is_said(framework: Framework) -> None:
    """Everything of a task; with torch, as torchrun does, its first process."""
    jobs = '[jobs.worker]\ntasks = ["localhost:auto"]\n'
    run = f'command = ["a"]\nframework = "{framework}"\n'
    worker = task(plan_of(local(jobs, run)), "worker:0")
    wanted = "first" if framework is Framework.TORCH else "all"
    assert (worker.stop, worker.stop_signal) == (wanted, "TERM")
    worker = task(plan_of(local(jobs, run + 'stop = "all"\n')), "worker:0")
    assert worker.stop == "all"


def test_settings_of_a_job_win_over_the_run() -> None:
    jobs = """\
[jobs.ps]
tasks = ["localhost:1"]
[jobs.worker]
tasks = ["localhost:2"]
max_restarts = 0
setup = ""
pty = false
log_limit = 5
stop = "all"
stop_signal = "INT"
env_from = ["B", "A"]
collect = ["/x/{index}"]
data = ["d2"]
"""
    run = """\
command = ["a"]
max_restarts = 7
setup = "conda activate tf"
pty = true
log_limit = 9
stop = "first"
stop_signal = "USR1"
env_from = ["A"]
collect = ["{logdir}"]
logdir = "/l"
data = ["d1"]
prepare = ["pip install x"]
"""
    plan = plan_of(local(jobs, run))
    ps, worker = task(plan, "ps:0"), task(plan, "worker:0")
    assert (ps.max_restarts, ps.setup, ps.pty, ps.log_limit) == (7, "conda activate tf", True, 9)
    assert (worker.max_restarts, worker.setup, worker.pty, worker.log_limit) == (0, "", False, 5)
    assert (ps.stop, ps.stop_signal) == ("first", "USR1")
    assert (worker.stop, worker.stop_signal) == ("all", "INT")
    assert (ps.env_from, worker.env_from) == (("A",), ("A", "B"))
    (host,) = plan.hosts
    assert host.collect == ("/l", "/x/0")
    assert host.data == (BASE / "d1", BASE / "d2")
    assert host.prepare == ("pip install x",)


def test_secrets_are_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of a variable in env_from is nowhere in the plan."""
    monkeypatch.setenv("TOKEN", "hunter2")
    plan = plan_of(local('[jobs.a]\ntasks = ["localhost:1"]\nenv_from = ["TOKEN"]'))
    assert plan.tasks[0].env_from == ("TOKEN",)
    assert "hunter2" not in repr(plan)


def test_the_json_of_a_plan_is_documented() -> None:
    """The keys that scripts rely on, and nothing that a run alone knows but its id."""
    answer = plan_json(plan_of(MISSION + "[start.ready]\nps = { log = 'x' }\n"))
    assert list(answer) == ["name", "stages", "ends", "tasks"]
    assert answer["ends"] == {
        "decide": ["worker:0"],
        "may_finish": ["worker:1", "worker:2"],
        "stopped": ["ps:0", "evaluator:0", "board:0"],
        "because": "",
    }
    assert answer["stages"][0] == ["ps:0"]
    assert [list(entry) for entry in answer["tasks"]] == [
        ["task", "host", "address", "argv", "env", "ready", "cwd", "warm"]
    ] * 6
    assert answer["tasks"][0]["address"] == "tf1.lan:2222"
    assert answer["tasks"][0]["ready"] == {"log": "x"}
    assert answer["tasks"][5]["ready"] == "started"
    assert json.loads(json.dumps(answer)) == answer


@pytest.mark.parametrize(
    ("words", "split"),
    [
        (("python",), None),
        (("python", ""), None),
        (("python", "-u"), None),
        (("python", "-"), None),
        (("python", "--help"), None),
        (("python", "-m"), None),
        (("python", "-um", "x", "1"), (("-u",), ("-m", "x", "1"))),
        (("python", "-mx"), ((), ("-m", "x"))),
        (("python", "-z", "a.py"), None),
        (("python", "-uz", "a.py"), None),
        (("python", "-W", "error", "-u", "a.py", "-m"), (("-W", "error", "-u"), ("a.py", "-m"))),
        (("python", "-Werror", "a.py"), (("-Werror",), ("a.py",))),
    ],
)
def test_options_of_python_are_told_from_its_program(
    words: tuple[str, ...], split: tuple[tuple[str, ...], tuple[str, ...]] | None
) -> None:
    """In each form that Python takes them; what is not sure is no program."""
    assert split_python(words) == split


def test_a_warm_start_keeps_the_options_of_python() -> None:
    """They stand before the runner, and the program with its arguments behind the modules."""
    text = '[jobs.ps]\ntasks = ["localhost:1"]\n[jobs.worker]\ntasks = ["localhost:2"]\n'
    text += '[run]\ncommand = ["python3", "-u", "-Wi", "a.py", "1"]\n'
    worker = task(plan_of(text + '[start]\nwarm = ["numpy", "json"]\n'), "worker:0")
    start = worker.warm
    assert start is not None and start.modules == ("numpy", "json")
    words = start.argv(worker.argv)
    assert words[:3] == ("python3", "-u", "-Wi") and Path(words[3]).name == "warm.py"
    assert words[4:] == ("required", "numpy,json", "a.py", "1")


@pytest.mark.parametrize(
    ("program", "warm"),
    [('"{trainer}", "async"', True), ('"-m", "trainer", "async"', True), ('"a.py"', False)],
)
def test_a_warm_start_without_modules_is_for_the_trainer(program: str, warm: bool) -> None:
    """In both ways in which it is started; another program says itself what it imports."""
    text = '[jobs.ps]\ntasks = ["localhost:1"]\n[jobs.worker]\ntasks = ["localhost:2"]\n'
    text += f'[run]\ncommand = ["{{python}}", {program}]\n'
    start = task(plan_of(text + "[start]\nwarm = true\n"), "worker:0").warm
    assert (start is not None) is warm
    if start is not None:
        assert start.modules == ("tensorflow",) and "optional" in start.runner


def test_a_text_that_is_too_long_is_cut_to_the_limit() -> None:
    """One of exactly that length is left as it is."""
    assert printable("x" * 10, 10) == "x" * 10
    assert printable("x" * 11, 10) == "x" * 9 + "…"


# `directory` in a cluster file: where tasks start by the plan, and what it does not go with.

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
    found = problems(jobs, **settings)
    assert said in found and bool(said) is bool(found), found


# `~` in commands and variables: the home of the host, as far as a shell would see it.

FACTS = {"far": HostFacts(home="/home/their own", workdir="/w")}


def text(*command: str, **env: str) -> str:
    """A worker on the host `far` with this command and these variables."""
    pairs = ", ".join(f'{name} = "{value}"' for name, value in env.items())
    hosts = {"far": {"ssh": "10.0.0.1"}}
    return cluster_text(
        {"worker": "far:2222"}, "c", hosts, command=command, more=f"env = {{ {pairs} }}"
    )


@pytest.mark.parametrize(
    ("word", "there"),
    [
        ("~/out/{index}", "/home/their own/out/0"),
        ("~", "/home/their own"),
        ("~/{{x}}", "/home/their own/{x}"),
        ("--out={home}/x", "--out=/home/their own/x"),
        ("~other/x", "~other/x"),
        ("./~/x", "./~/x"),
        ("--out=~/x", "--out=~/x"),
        ("a~/x", "a~/x"),
    ],
)
def test_a_word_in_the_home_of_its_host(word: str, there: str) -> None:
    """Whatever characters the home has; before the host is known, `~` stays for it."""
    assert task(plan_of(text("prog", word), FACTS), "worker:0").argv[1] == there
    first = task(plan_of(text("prog", word)), "worker:0").argv[1]
    assert first == there.replace("/home/their own", "~")


def test_a_program_in_the_home_of_its_host() -> None:
    """Also of this machine."""
    assert task(plan_of(text("~/bin/prog"), FACTS), "worker:0").argv == (
        "/home/their own/bin/prog",
    )
    here = text("~/bin/prog").replace("far:2222", "localhost:2222")
    assert task(plan_of(here), "worker:0").argv == (f"{os.path.expanduser('~')}/bin/prog",)


SHELLS = [("sh", "-c"), ("/bin/bash", "-lc"), ("env", "A=1", "zsh", "-c")]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_left_to_its_shell(shell: tuple[str, ...]) -> None:
    """Which quotes as it must; an option `-c` of another program is no script."""
    script = "~/bin/a --x=~/y && ~/bin/b"
    assert task(plan_of(text(*shell, script), FACTS), "worker:0").argv[-1] == script
    words = task(plan_of(text("prog", "-c", "~/c.yaml"), FACTS), "worker:0").argv
    assert words[-1] == "/home/their own/c.yaml"


def test_variables_in_the_home_of_the_host() -> None:
    """Each part of a list with colons, as a shell has it in an assignment."""
    env = task(
        plan_of(text("prog", A="~/a", B="~/b:/usr/bin:~", C="http://~/c", D="x~/d"), FACTS),
        "worker:0",
    ).env
    home = "/home/their own"
    assert (env["A"], env["B"]) == (f"{home}/a", f"{home}/b:/usr/bin:{home}")
    assert (env["C"], env["D"]) == ("http://~/c", "x~/d")
