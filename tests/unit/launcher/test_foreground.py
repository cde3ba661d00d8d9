"""Commands whose words say that they would not stay in the foreground."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.plan.foreground import background_problem
from launcher.plan.planner import make_plan
from launcher.preflight import Check, Severity, evaluation

BACKGROUND = [
    "nohup python3 train.py > log 2>&1 &",
    "cd /nfs/proj; nohup python3 train.py > log 2>&1 &\n",
    "python3 train.py &\necho started $!",
    "(python3 train.py &)",
    "( python3 train.py & ) ; exit 0",
    "python3 train.py | tee log & # later",
    "{ python3 train.py; } &",
    "for i in 0 1; do python3 train.py $i & done",
    "python3 train.py & disown",
    "python3 train.py \\\n  --steps=3 &",
    "CUDA_VISIBLE_DEVICES=0 python3 train.py &",
    "nohup python3 train.py",
    "cd proj && ray start --head",
    "tmux new -d -s train 'python3 train.py'",
]
FOREGROUND = [
    "python3 train.py",
    "a & b & wait",
    "for i in 0 1; do python3 train.py $i & done; wait",
    "tensorboard & python3 train.py",
    "a && b",
    "python3 train.py > log 2>&1",
    "python3 train.py &> log",
    "python3 train.py >& log",
    "python3 train.py |& tee log",
    "python3 -c 'x & y'",
    'python3 -c "print(1) #&"',
    "a & pid=$!; trap 'kill $pid' TERM; wait $pid",
    "# a &\npython3 train.py",
    "echo 'not closed &",
    "",
]


@pytest.mark.parametrize("script", BACKGROUND)
@pytest.mark.parametrize("shell", [("sh", "-c"), ("/bin/bash", "-lc"), ("env", "A=b", "sh", "-ec")])
def test_scripts_that_end_in_the_background(script: str, shell: tuple[str, ...]) -> None:
    """The sentence says what becomes of it and what to write."""
    assert background_problem([*shell, script])


@pytest.mark.parametrize("script", FOREGROUND)
def test_scripts_that_stay(script: str) -> None:
    """An `&` that is waited for, stands in quotes or is a part of an operator is none."""
    assert background_problem(["sh", "-c", script]) == ""


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("setsid python3 train.py", True),
        ("setsid --wait python3 train.py", False),
        ("nohup python3 train.py", False),
        ("tmux new-session -d -s x python3", True),
        ("tmux new python3", False),
        ("screen -dmS train python3", True),
        ("screen -r", False),
        ("ray start --head", True),
        ("ray start --head --block", False),
        ("docker run --rm -d tf", True),
        ("docker run tf train -d", False),
        ("systemd-run --user python3", True),
        ("systemd-run --user --scope python3", False),
        ("at now", True),
        ("start-stop-daemon -S -b -x y", True),
        ("python3 train.py &", False),
    ],
)
def test_programs_that_start_others_in_the_background(command: str, found: bool) -> None:
    """By the options that keep them in the foreground."""
    assert bool(background_problem(command.split())) is found


def test_only_tasks_of_the_cluster_are_warned_of() -> None:
    """One warning for all tasks of a host; a job beside the cluster may start a daemon."""
    text = """
[hosts.a]
ssh = "a"
[jobs.worker]
tasks = ["a:1", "a:2"]
command = ["sh", "-c", "nohup python3 train.py &"]
[jobs.board]
tasks = ["a:3"]
command = ["sh", "-c", "nohup tensorboard &"]
in_cluster = false
"""
    plan = make_plan(loads(text, "x.toml", Path("/")), "check")
    (finding,) = evaluation.backgrounds(plan, "a", Check.COMMAND, "a")
    assert (finding.severity, finding.code) == (Severity.WARN, "command-background")
    assert "worker:0, worker:1" in finding.sentence and "ends in &, with nohup" in finding.sentence
