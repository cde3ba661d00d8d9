"""An agent that an engine has started, in the foreground of a job step."""

from __future__ import annotations

import os
import subprocess
import sys

from launcher.hosts import bootstrap
from launcher.hosts.bootstrap import LinkSettings
from launcher.hosts.frames import Rules
from tests.support.agent_client import Client
from tests.support.patience import PATIENCE

RULES = Rules(lease=60.0, grace=5.0, on_disconnect="stop")


class EngineAgent:
    """The first process of a step: watchdog of an agent that no launcher has reached yet."""

    def __init__(self, run_id: str, rules: Rules = RULES, python: str = sys.executable) -> None:
        config = LinkSettings(run_id, "here", rules, local=False).engine_config
        self.process = subprocess.Popen(
            [
                *("env", f"TFMUX_AGENT={run_id};"),
                *(python, "-IS", "-c", bootstrap.ENGINE_LINE, "here"),
            ],
            stdin=subprocess.PIPE,
            process_group=0,
            env={**os.environ, "SLURM_PROCID": "0", "SLURM_STEP_ID": "1", "SLURM_JOB_ID": "7"},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(bootstrap.engine_payload(config).encode() + b"\n")
        self.process.stdin.close()


def find(run_id: str) -> Client:
    """A bridge that looks for the agent, and makes none."""
    return Client(run_id, make=False, wait=PATIENCE, grace=5.0)
