"""Import of asyncssh, for a command that a person waits for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "line",
    [
        "from launcher.hosts.ways import ssh_connector; ssh_connector()",
        "import tui.commands.run",
        "import launcher.preflight.preflight",
    ],
)
def test_no_program_is_started_for_a_login(line: str) -> None:
    """`ctypes` would have `ldconfig`, a compiler and linkers look for libraries that asyncssh can
    use and few machines have."""
    watch = (
        "import sys\n"
        "sys.addaudithook(lambda event, args: event == 'subprocess.Popen' and print(args[0]))\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", watch + line], env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == ""


def test_no_login_waits_for_certificates_that_openssh_lacks() -> None:
    """X.509 certificates would take a quarter of what asyncssh takes to import."""
    line = "from launcher.hosts.ways import ssh_connector; ssh_connector()"
    seen = (
        f"import sys; {line}; print('asyncssh' in sys.modules, 'cryptography.x509' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", seen], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split() == ["True", "False"]
