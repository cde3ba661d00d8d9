"""A real training as a cluster file: the bundled trainer on its embedded data."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.support.patience import PATIENCE

STEPS = 60


def training(hosts: str, places: Sequence[str], run: str = "") -> str:
    """A ps and two workers on three `places`; `hosts` are the tables that define them, `run` are
    further lines of `[run]`."""
    ps, *workers = (f"{place}:auto" for place in places)
    return f"""
name = "training"
{hosts}
[jobs.ps]
tasks = ["{ps}"]
[jobs.worker]
tasks = {json.dumps(workers)}
[run]
command = ["{{python}}", "-m", "trainer", "async", "--job_name={{job}}", "--task_index={{index}}",
           "--ps_hosts={{ps_hosts}}", "--worker_hosts={{worker_hosts}}", "--logdir={{logdir}}",
           "--steps={STEPS}"]
workdir = ""
{run}
[start]
timeout = {PATIENCE}
"""
