"""Properties of any cluster file: valid ones survive, others are explained, nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import loads
from launcher.errors import ClusterFileError
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts, Resume
from launcher.plan.plan_record import plan_json
from launcher.plan.planner import make_plan
from tests.support.budgets import examples
from tests.support.cluster_strategies import cluster_tables

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
    """No text raises anything but the error that explains it."""
    try:
        loads(text, "cluster.toml", BASE)
    except ClusterFileError as error:
        assert error.problems and all(str(p).isprintable() for p in error.problems)
