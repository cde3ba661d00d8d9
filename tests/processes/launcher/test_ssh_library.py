"""Import of asyncssh, for a command that a person waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "line",
    [
        "from launcher.hosts.ways import ssh_connector; ssh_connector()",
        "import tui.commands.run",
        "import launcher.preflight.preflight",
    ],
)
def test_no_compiler_is_started_for_a_login(tmp_path: Path, line: str) -> None:
    """`ctypes` would have one look for libraries that asyncssh can use and few machines have."""
    marks = tmp_path / "marks"
    for name in ("gcc", "cc", "ld"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {name} >>{marks}\nexit 1\n")
        program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    subprocess.run([sys.executable, "-c", line], env={**env, "PATH": path}, check=True)
    assert not marks.exists()
