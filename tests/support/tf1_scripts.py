"""Runs scripts under `python -m trainer tf1`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.support.trainer_tasks import server


def tf1(folder: Path, *words: str, cold: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs the mode with these words; forked from a process that has imported TensorFlow, as a warm
    start does it, or `cold`."""
    argv = [sys.executable, "-P", "-m", "trainer", "tf1", *words]
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        if cold:
            process: Any = subprocess.Popen(argv, env=env, cwd=folder, stdout=out, stderr=err)
        else:
            process = server().start(
                argv, env=env, cwd=folder, stdout=out.fileno(), stderr=err.fileno()
            )
        status = process.wait()
        texts = [file.read() for file in (out, err) if not file.seek(0)]
    return subprocess.CompletedProcess(argv, status, *texts)
