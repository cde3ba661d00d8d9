"""End of a run by its rules: whose end it is, what a person's end of one task makes of it, and
clusters that would never end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.plan.ending import server_name
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan
from launcher.run import events as ev
from launcher.run.states import Outcome, RunPhase, TaskState
from tests.support.run_driver import RunDriver, ends, kill, name, running


def _plan(jobs: str, run: str = "", commands: str = "{}") -> Plan:
    """The plan of jobs such as `ps worker worker board-`, helpers with a dash behind them."""
    names, own = jobs.split(), json.loads(commands)
    text = ""
    for job in dict.fromkeys(names):
        plain = job.rstrip("-")
        text += f"[jobs.{plain}]\ntasks = {['localhost:auto'] * names.count(job)}\n"
        text += f"in_cluster = {str(plain == job).lower()}\n"
        text += f"command = {json.dumps(own.get(plain, 'train').split())}\n"
    return make_plan(loads(f"{text}[run]\n{run}", "c", Path("/")), "r")


@pytest.mark.parametrize(
    ("jobs", "run", "text"),
    [
        ("worker", "", "ends when worker:0 has ended"),
        (
            "chief worker worker worker ps",
            "",
            "ends when chief:0 has ended; worker:0–2 may finish; ps:0 is stopped",
        ),
        (
            "ps ps master worker board-",
            "",
            "ends when master:0 has ended; worker:0 may finish; ps:0–1, board:0 are stopped",
        ),
        (
            "worker worker worker evaluator",
            "",
            "ends when worker:0 has ended; worker:1–2 may finish; evaluator:0 is stopped",
        ),
        (
            "worker worker ps",
            'success = "all"',
            "ends when worker:0–1 have ended; ps:0 is stopped",
        ),
        (
            "server- node- node- train",
            "",
            "ends when train:0 has ended; server:0, node:0–1 are stopped",
        ),
        ("ps evaluator", "", "ends when evaluator:0 has ended; ps:0 is stopped"),
        ("train train", "prepare = ['true']", "ends when train:0–1 have ended"),
        (
            "worker worker",
            'framework = "torch"',
            'ends when worker:0–1 have ended, all with 0 (by framework = "torch")',
        ),
        (
            "master worker ps",
            'framework = "jax"',
            "ends when master:0, worker:0 have ended, all with 0 "
            '(by framework = "jax"); ps:0 is stopped',
        ),
        (
            "worker worker evaluator",
            'framework = "mpi-like"',
            "ends when worker:0–1 have ended, all with 0 "
            '(by framework = "mpi-like"); evaluator:0 is stopped',
        ),
        ("worker", 'framework = "torch"', "ends when worker:0 has ended"),
        ("train train", 'framework = "torch"', "ends when train:0–1 have ended"),
        (
            "worker worker",
            'framework = "torch"\nsuccess = "chief"',
            "ends when worker:0 has ended; worker:1 may finish",
        ),
        (
            "worker worker",
            'framework = "torch"\nsuccess = "all"',
            "ends when worker:0–1 have ended",
        ),
        (
            "worker worker",
            'framework = "none"',
            "ends when worker:0 has ended; worker:1 may finish",
        ),
    ],
)
def test_what_ends_a_run_is_one_line(jobs: str, run: str, text: str) -> None:
    """Who decides, who may finish, and what is stopped then."""
    assert _plan(jobs, run).ending.text == text


@pytest.mark.parametrize(
    ("jobs", "commands", "found"),
    [
        ("scheduler train", '{"scheduler": "dask scheduler"}', ["scheduler:0"]),
        ("head node node", '{"head": "ray start --head --block", "node": "ray start"}', None),
        ("worker board", '{"board": "{python} -m tensorboard.main"}', []),  # the chief decides
        ("train board", '{"board": "{python} -u -m tensorboard.main"}', ["board:0"]),
        ("train board-", '{"board": "tensorboard --logdir=x"}', []),
        ("servers train", '{"servers": "python3 train.py --job_name=ps"}', ["servers:0"]),
        ("ps train", '{"ps": "python3 train.py --job_name=ps"}', []),
        ("ps ps", "{}", None),
        ("train", '{"train": "python3 ray.py start"}', []),
        ("train", '{"train": "dask run scheduler"}', []),
    ],
)
def test_a_run_that_waits_for_a_server_is_known(
    jobs: str, commands: str, found: list[str] | None
) -> None:
    """Where its end decides; None: all that decide serve, and no client is there."""
    endless = list(_plan(jobs, commands=commands).endless())
    if found is None:
        assert endless and all("add a job" in one.todo for one in endless)
    else:
        assert [str(task) for one in endless for task in one.tasks] == found
        assert all(f"false in [jobs.{one.tasks[0].job}]" in one.todo for one in endless)


def test_servers_are_known_by_their_first_words() -> None:
    """Behind what only starts them; a word elsewhere in a command says nothing."""
    assert server_name(["env", "A=1", "nice", "dask", "worker", "tcp://a:1"]) == "dask worker"
    assert server_name(["/opt/bin/tensorboard", "--logdir", "x"]) == "tensorboard"
    assert server_name(["{python}", "-m", "http.server"]) == "http.server"
    assert server_name(["python3", "train.py", "tensorboard"]) == ""
    assert server_name(["python3", "-m", "train", "-m", "tensorboard"]) == ""
    assert server_name(["env", "A=1"]) == ""


# --- a person ends one task ---------------------------------------------------------------------


def _end_by_person(driver: RunDriver, task: str) -> None:
    view = driver.task(task)
    assert driver.feed(ev.SignalTask, name(task), "TERM") == [kill(view.host, task, 5.0)]
    driver.exited(task, None, "TERM")
    assert driver.state(task) is TaskState.KILLED


@pytest.mark.parametrize("last", [True, False])
def test_a_run_is_no_success_without_a_task_that_a_person_has_ended(last: bool) -> None:
    """Given success = "all" and a person who ends one worker, then the others go on, a note says
    what that means, and the end of the last one is the run's end: ended by a person, not a
    success."""
    driver = running('success = "all"\n')
    others = ["worker:0", "worker:2"]
    for task in others if last else ():
        driver.exited(task)
    _end_by_person(driver, "worker:1")
    assert (
        driver.seen.notes[-1]
        == "worker:1 was ended by the user: without it the run is not a success"
    )
    if not last:
        assert driver.phase() is RunPhase.RUNNING
        for task in others:
            driver.exited(task)
    assert driver.phase() is RunPhase.KILLING
    assert ends(driver.confirmed()) == [(Outcome.KILLED, 130)]


def test_a_task_that_is_started_again_makes_good_for_its_end() -> None:
    """Given success = "all" and a worker that a person has ended and started again, then its second
    attempt counts."""
    driver = running('success = "all"\n')
    _end_by_person(driver, "worker:1")
    driver.feed(ev.Restart, name("worker:1"), hard=False)
    driver.receipt("b", tasks=["worker:1"])
    driver.begun("worker:1", attempt=2)
    for task in ("worker:0", "worker:2"):
        driver.exited(task)
    driver.exited("worker:1", attempt=2)
    assert ends(driver.confirmed()) == [(Outcome.SUCCESS, 0)]


def test_the_chief_alone_decides_where_the_rule_says_so() -> None:
    """Given the rule of the chief and a person who ends another worker, then the run is what the
    chief makes of it."""
    driver = running()
    _end_by_person(driver, "worker:1")
    assert not driver.seen.notes
    driver.exited("worker:0")
    driver.exited("worker:2")
    assert ends(driver.confirmed()) == [(Outcome.SUCCESS, 0)]


def test_a_failure_is_a_failure_also_beside_what_a_person_has_ended() -> None:
    """Given success = "all", a worker that a person has ended and one that fails, then the run has
    failed."""
    driver = running('success = "all"\n')
    _end_by_person(driver, "worker:1")
    driver.exited("worker:2", 1)
    assert ends(driver.confirmed()) == [(Outcome.FAILED, 1)]
