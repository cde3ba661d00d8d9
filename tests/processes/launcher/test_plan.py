"""The plan: exact commands, environments and the order, worked out without any host."""

from __future__ import annotations

import subprocess
import sys


def test_planning_imports_neither_the_trainer_nor_tensorflow() -> None:
    """The trainer is only looked for."""
    code = (
        "import sys, pathlib; from launcher.cluster.read import loads\n"
        "from launcher.plan.planner import make_plan\n"
        'text = \'[jobs.a]\\ntasks = ["localhost:1"]\\ncommand = ["a"]\'\n'
        "plan = make_plan(loads(text, 'c', pathlib.Path('/')), 'r')\n"
        "assert plan.tasks[0].env['PYTHONPATH']\n"
        "print([m for m in ('trainer', 'tensorflow', 'textual') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
