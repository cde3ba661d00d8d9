"""The command line: what is wrong with it is said at once, in one line."""

from __future__ import annotations

import subprocess
import sys

CLUSTER = ["--ps_hosts=tf1:2222", "--worker_hosts=tf2:2222,tf3:2222"]


def test_help_names_a_default_once() -> None:
    """`--help` says each default once."""
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "async", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    defaults = [entry.count("default") for entry in done.stdout.split("\n  --")]
    assert set(defaults) == {0, 1}, done.stdout
    assert "(default: 10.0)" in done.stdout and "(default: embedded digits)" in done.stdout


def test_help_and_mistakes_answer_without_tensorflow() -> None:
    """`--help` and a usage error come from a process that has not imported TensorFlow."""
    script = (
        "import os, sys\n"
        "from trainer import __main__\n"
        "leave = os._exit\n"
        "os._exit = lambda status: leave(100 if 'tensorflow' in sys.modules else status)\n"
        "sys.argv = ['trainer', *sys.argv[1:]]\n"
        "__main__.main()\n"
    )
    for words, status, said in (
        (["async", "--help"], 0, "--worker-hosts"),
        (["--help"], 0, "asynchronous updates"),
        (["asink"], 2, "did you mean async?"),
        (["tf1", "--help"], 0, "tf1 SCRIPT ARGUMENTS…"),
        (["tour"], 2, "no tour given; one of hello, two-tasks"),
        (["tour", "--help"], 0, "tour two-tasks"),
        (["tour", "two_task"], 2, "did you mean tour two-tasks?"),
        (["async", "--job_name=ps", "--task_index=1", *CLUSTER], 2, "ps has 1 task"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        assert said in done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == (status == 2)
