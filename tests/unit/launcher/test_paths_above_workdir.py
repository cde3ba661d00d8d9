"""Words of commands that lead above the workdir: its copy on a host has nothing beside it."""

from __future__ import annotations

import json

import pytest

from launcher.files.needed import above_workdir
from tests.support.cluster_texts import cluster_text
from tests.support.plans import plan_of

NAMED: list[tuple[list[str], list[str]]] = [
    (["python3", "train.py", "--out=../results"], ["../results"]),
    (["python3", "train.py", "--out", "../../runs/x"], ["../../runs/x"]),
    (["sh", "-c", "python3 train.py > ../log.txt"], ["../log.txt"]),
    (["python3", "train.py", "out/../../results"], ["../results"]),
    (["python3", "../train.py", "../results", "../results/"], ["../train.py", "../results"]),
    (["python3", "train.py", "--out=out/../results", "..x", "a..b", "1..2"], []),
    (["python3", "train.py", "/data/../results", "~/../x"], []),
    (["sh", "-c", "cd src && python3 train.py ../out"], ["../out"]),
]


@pytest.mark.parametrize(("command", "paths"), NAMED)
def test_each_path_above_the_workdir_is_named_once(command: list[str], paths: list[str]) -> None:
    """However it is written; not what is below the workdir, nor absolute."""
    text = cluster_text({"worker": "far"}, hosts={"far": {"ssh": "far"}}, command=command)
    plan = plan_of(text)
    assert [path for _, path in above_workdir(plan, plan.host("far"))] == paths


@pytest.mark.parametrize("more", ['directory = "/srv"', 'setup = "cd src"', 'workdir = ""'])
def test_nothing_is_said_where_it_is_not_known(more: str) -> None:
    """Nothing is copied, or `setup` leads elsewhere."""
    command = ["python3", "train.py", "../results"]
    kept = {} if "workdir" in more or "directory" in more else {"workdir": "."}
    hosts = {"far": {"ssh": "far"}}
    text = cluster_text({"worker": "far"}, hosts=hosts, command=command, more=more, **kept)
    plan = plan_of(text)
    assert list(above_workdir(plan, plan.host("far"))) == []
    assert json.dumps(command) in text
