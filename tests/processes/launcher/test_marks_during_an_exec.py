"""Marks of processes that are in the middle of an exec when the agent looks: for a moment they show
neither arguments nor an environment."""

from __future__ import annotations

import os
import subprocess
import sys

from launcher.agent.processes import ProcessTracker

RUN_ID = "exec-20260101-000000-abcd"
BLANK = """\
import ctypes
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
begins, ends = map(int, (fields[45], fields[48]))
whole = ctypes.string_at(begins, ends - begins)
ctypes.memset(begins, 0, len(whole))
print("blank", flush=True)
input()
ctypes.memmove(begins, whole, len(whole))
print("whole", flush=True)
input()
"""
"""Looks like a process that is in an exec, and then like one whose exec is done: its arguments and
its environment lie one behind the other."""


def test_a_process_seen_in_an_exec_belongs_to_its_task_at_the_next_look() -> None:
    """Given a process of a run that shows neither arguments nor an environment, when it shows one
    at a later look, then it belongs to the task that is named there."""
    tracker = ProcessTracker(RUN_ID)
    environ = {**os.environ, "TFMUX_TASK": f"{RUN_ID}/worker:0/1;"}
    argv = [sys.executable, "-c", BLANK]
    with subprocess.Popen(
        argv,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "blank\n"
            tracker.scan()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "whole\n"
            assert tracker.scan()[process.pid][1] == "worker:0"
        finally:
            process.kill()
