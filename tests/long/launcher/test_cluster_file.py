"""Any cluster file: valid ones survive reading and edits, others are explained, however large."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.edit import ClusterDocument
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import load, loads
from launcher.errors import ClusterFileError
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts, Resume
from launcher.plan.plan_record import plan_json
from launcher.plan.planner import make_plan
from tests.support.budgets import examples
from tests.support.cluster_strategies import cluster_tables
from tests.support.cluster_texts import problems
from tests.support.plans import plan_of
from tests.support.plans import task as task_of

# Properties of any cluster file: valid ones survive, others are explained, nothing else.

BASE = Path("/srv/project")
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.booleans(),
        st.datetimes(),
        st.sampled_from(["localhost: 2222", "a:1", "[::1]:1", "{job", "$(reboot)", "-x", "../.."]),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab.- \x1bé", max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def read(tables: dict[str, Any]) -> ClusterModel:
    return loads(tomlkit.dumps(tables), "cluster.toml", BASE)


@given(cluster_tables(), st.integers(20_000, 30_000))
@examples(50)
def test_any_valid_cluster_is_read_and_planned(tables: dict[str, Any], first: int) -> None:
    """A valid file is read; its plan has each task once in the order, each address once in
    the cluster spec, and every task's TF_CONFIG says the same cluster. When the hosts have picked
    ports for `auto`, no text of the plan says `auto` for one. File → model → file → model gives the
    same model."""
    cluster = read(tables)
    assert read(cluster.model_dump(mode="json", exclude_none=True)) == cluster
    plan = make_plan(cluster, "run-1", resume=Resume("run-0", "run-0"))
    everybody = {TaskId(n, i) for n, j in tables["jobs"].items() for i in range(len(j["tasks"]))}
    ordered = [task for stage in plan.stages for task in stage]
    assert len(ordered) == len(everybody) and set(ordered) == everybody
    assert [task.id for task in plan.tasks] == ordered
    assert {task.host for task in plan.tasks} == {host.name for host in plan.hosts}
    places = [place for job in plan.cluster_spec.values() for place in job]
    fixed = [place for place in places if not place.endswith(":auto")]
    assert len(set(fixed)) == len(fixed)
    for task in plan.tasks:
        assert task.argv and task.env["TFMUX_RUN_ID"] == "run-1"
        assert task.address == f"{cluster.address(task.host)}:{task.port or 'auto'}"
        assert task.in_cluster == (task.id.job in plan.cluster_spec)
        if task.id.job == "board":
            assert "TF_CONFIG" not in task.env
        else:
            config = json.loads(task.env["TF_CONFIG"])
            assert config["cluster"] == plan.cluster_spec
            assert config["task"] == {"type": task.id.job, "index": task.id.index}
        if task.in_cluster:
            assert plan.cluster_spec[task.id.job][task.id.index] == task.address
    assert json.loads(json.dumps(plan_json(plan))) == plan_json(plan)
    wanted = [task for task in plan.tasks if task.port is None]
    ports = {task.id: first + number for number, task in enumerate(wanted)}
    facts = {host.name: HostFacts(home="/home/u", ports=ports) for host in plan.hosts}
    plan = make_plan(cluster, "run-1", facts)
    assert all(task.port for task in plan.tasks)
    assert ":auto" not in json.dumps(plan.cluster_spec)
    assert all(plan.task(task).port == port for task, port in ports.items())


@given(cluster_tables(), st.data())
@examples(60)
def test_a_file_with_anything_anywhere_is_read_or_explained(
    tables: dict[str, Any], data: st.DataObject
) -> None:
    """With one value or key replaced by anything, the file is read or refused with reasons,
    each printable, and with a line unless what is wrong is that something is missing."""
    table: Any = tables
    while True:
        keys = list(table) if isinstance(table, dict) else list(range(len(table)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(table[key], dict | list) and table[key] and data.draw(st.booleans()):
            table = table[key]
        else:
            break
    if isinstance(table, dict) and data.draw(st.booleans()):
        table[data.draw(st.text("abps.- \x1bé", max_size=5))] = table.pop(key)
    else:
        table[key] = data.draw(VALUES)
    try:
        read(tables)
    except ClusterFileError as error:
        assert error.problems
        for problem in error.problems:
            assert str(problem).isprintable() and problem.message
            assert problem.line or problem.key.startswith(("jobs", "name"))


@given(st.text(st.characters(codec="utf-8"), max_size=60))
@examples(80)
def test_any_text_is_read_or_explained(text: str) -> None:
    try:
        loads(text, "cluster.toml", BASE)
    except ClusterFileError as error:
        assert error.problems and all(str(p).isprintable() for p in error.problems)


# Cluster files that are cut, hostile, odd, unreadable or huge.


def test_a_large_file_is_read_and_a_huge_one_refused(tmp_path: Path) -> None:
    """500 tasks with 10,000-character values are read while one waits; 17 MB are not."""
    tasks = ", ".join(f'"h{n}:2222"' for n in range(500))
    hosts = "".join(f'[hosts.h{n}]\nssh = "h{n}"\nenv.A = "{"x" * 10_000}"\n' for n in range(500))
    text = f'[run]\ncommand = ["{"y" * 10_000}"]\n{hosts}[jobs.worker]\ntasks = [{tasks}]\n'
    began = time.process_time()
    assert len(loads(text, "c", Path("/")).jobs["worker"].tasks) == 500
    assert len(problems(text.replace('"h', '"g'))) == 101
    assert time.process_time() - began < 60  # a blow-up, not a measurement: it takes about a second
    file = tmp_path / "c.toml"
    file.write_bytes(b"#" * 17_000_000)
    with pytest.raises(ClusterFileError, match="16 MiB"):
        load(file)


# Editing a cluster file as a text: one value changes, comments and order stay.


def keys(value: Any) -> Any:
    """All keys in their order."""
    return [(k, keys(v)) for k, v in value.items()] if isinstance(value, dict) else None


@given(cluster_tables())
@examples(10)
def test_any_valid_cluster_survives_file_model_file(tables: dict[str, Any]) -> None:
    """What the model says, put into the file value by value, reads as the same model."""
    text = ClusterDocument(tomlkit.dumps(tables))
    cluster = loads(text.text, "cluster.toml", BASE)
    said = cluster.model_dump(mode="json", exclude_none=True)
    fresh = ClusterDocument("# made by hand\n")
    for table in ("hosts", "jobs"):
        for name, entry in said.pop(table).items():
            for key, value in entry.items():
                fresh = fresh.put((table, name, key), value)
    fresh = fresh.put(("name",), said.pop("name"))
    for table, entry in said.items():
        for key, value in entry.items():
            fresh = fresh.put((table, key), value)
    assert loads(fresh.text, "cluster.toml", BASE) == cluster
    assert fresh.text.startswith("# made by hand")


@given(cluster_tables(), st.data())
@examples(30)
def test_edits_keep_comments_and_order(tables: dict[str, Any], data: st.DataObject) -> None:
    """With a comment on every line, any value is changed: each comment stays, and so does the
    order of all keys."""
    lines = tomlkit.dumps(tables).split("\n")
    if any('"""' in line or "'''" in line for line in lines):
        return
    text = "\n".join(f"{line}  # c{i}" for i, line in enumerate(lines))
    before = ClusterDocument(text)
    path: list[str] = []
    value: Any = before.data
    while isinstance(value, dict) and value:
        path.append(data.draw(st.sampled_from(sorted(value))))
        value = value[path[-1]]
    if isinstance(value, dict):
        return
    if isinstance(value, list):
        words = st.lists(st.text(max_size=8).filter(lambda t: "\0" not in t), max_size=4)
        new: Any = data.draw(words)
    else:
        new = data.draw(st.one_of(st.text(max_size=8), st.integers(0, 99), st.booleans()))
    after = before.put(tuple(path), new)
    assert after.get(*path) == new
    assert keys(after.data) == keys(before.data)
    kept = [f"# c{i}" for i in range(len(lines))]
    assert [c for c in kept if c not in after.text] == []


# Plans of many tasks.


def test_five_hundred_tasks_are_planned() -> None:
    """A cluster of 500 tasks on 500 hosts is no matter of minutes."""
    hosts = "".join(f'[hosts.h{n}]\nssh = "h{n}"\n' for n in range(500))
    tasks = ", ".join(f'"h{n}:2222"' for n in range(500))
    text = f'{hosts}[jobs.worker]\ntasks = [{tasks}]\n[run]\ncommand = ["{{worker_hosts}}"]\n'
    plan = plan_of(text)
    assert len(plan.tasks) == len(plan.hosts) == 500
    assert plan.tasks[499].argv[0].endswith("h499:2222")


def test_the_cluster_is_held_once_for_all_tasks() -> None:
    """2,048 tasks know all addresses, in `TF_CONFIG` and in their commands, and their plan does
    not hold 2,048 copies of them."""
    hosts = "".join(f'[hosts.h{n}]\nssh = "h{n}"\n' for n in range(256))
    places = [f"h{n}:{2222 + k}" for n in range(256) for k in range(8)][:-1]
    command = '["{python}", "-m", "trainer", "async", "--workers={worker_hosts}", "{index}"]'
    text = f"{hosts}[jobs.worker]\ntasks = {json.dumps(places)}\n[jobs.ps]\ntasks = ['h1:1']\n"
    plan = plan_of(f"{text}[run]\ncommand = {command}\nenv = {{ ALL = '{{job}} {{cluster}}' }}\n")
    starts = [task for task in plan.tasks if task.warm]
    texts = [*(task.words for task in plan.tasks), *(t.variables.values() for t in plan.tasks)]
    parts = {id(p): len(p) for group in texts for text in group for p in text}
    assert len(starts) == 2047 and sum(parts.values()) < 3_000_000
    last = task_of(plan, "worker:2046")
    spec = json.dumps({"worker": places, "ps": ["h1:1"]})
    assert last.env["TF_CONFIG"] == (
        f'{{"cluster": {spec}, "task": {{"type": "worker", "index": 2046}}}}'
    )
    assert last.env["ALL"] == f"worker {spec}"
    assert last.argv[-2:] == (f"--workers={','.join(places)}", "2046")
    assert last.warm is not None and last.warm.argv(last.argv)[-2:] == last.argv[-2:]
