"""Cluster files that are cut, hostile, odd, unreadable or huge."""

from __future__ import annotations

import json
import subprocess
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path

from launcher.cluster.read import loads
from launcher.errors import ClusterFileError, Problem
from tests.support.cluster_texts import problems


def test_addresses_that_linux_does_not_take_are_an_error() -> None:
    """A word or a variable of 128 KiB starts no program: it is said before anything is started,
    with the way out. The bound is exact: `TF_CONFIG` of one task less is taken."""

    name = "a" * 120

    def text(count: int, more: str = "", run: str = "") -> str:
        places = ",".join(f'"tf1:{number}"' for number in range(10000, 10000 + count))
        return (
            f'[hosts.tf1]\nssh = "tf1"\naddress = "{name}"\n[jobs.worker]\n'
            f"tasks = [{places}]\n{more}\n"
            f"[run]\ncommand = ['true', '{{index}}']\n{run}\n"
        )

    def wrong(text: str) -> list[Problem]:
        try:
            loads(text, "cluster.toml", Path("/"))
        except ClusterFileError as error:
            return list(error.problems)
        return []

    def taken(count: int) -> bool:
        spec = {"worker": [f"{name}:{number}" for number in range(10000, 10000 + count)]}
        config = {"cluster": spec, "task": {"type": "worker", "index": count - 1}}
        longest = len(f"TF_CONFIG={json.dumps(config)}")
        with suppress(OSError):
            return subprocess.run(["true"], env={"A": "x" * (longest - 2)}).returncode == 0
        return False

    most = bisect_left(range(2048), True, lo=500, key=lambda n: bool(wrong(text(n)))) - 1
    assert taken(most) and not taken(most + 1)
    (problem,) = wrong(text(most + 1))
    assert problem.key == "jobs.worker.tasks"
    assert "in_cluster = false" in problem.message and "131071" in problem.message
    assert not wrong(text(most + 1, "in_cluster = false"))
    assert not wrong(text(most + 1, run='framework = "none"'))
    env = "framework = 'none'\nenv = { ALL = 'a{worker_hosts}', NONE = '{{cluster}}' }"
    assert [p.key for p in problems(text(1100, run=env))] == ["run.env.ALL"]
