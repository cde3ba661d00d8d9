"""Import of asyncssh, for a command that a person waits for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.budgets import variants


@variants(
    "line",
    [
        "from launcher.hosts.ways import ssh_connector; ssh_connector()",
        "import tui.commands.run",
        "import launcher.preflight.preflight",
    ],
    test=1,
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


COMMAND = """
import tui.main
tui.main.main(["demo", "--list"])
from launcher.hosts.ways import ssh_connector
ssh_connector()
"""
LAUNCHER = """
import socket, launcher.session.process
link, other = socket.socketpair()
other.close()
launcher.session.process.main([str(link.detach()), "ssh"])
"""


@pytest.mark.parametrize("code", [COMMAND, LAUNCHER], ids=["command", "launcher process"])
def test_no_login_waits_for_certificates_that_openssh_lacks(code: str) -> None:
    """X.509 certificates would take a sixth of what asyncssh takes to import."""
    code += "import sys; print('asyncssh' in sys.modules, 'cryptography.x509' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split()[-2:] == ["True", "False"]


def test_a_program_that_imports_the_launcher_may_import_certificates() -> None:
    """Given a program that logs in to hosts as `collect` does, when it then imports asyncssh's
    certificates, which need pyOpenSSL, then Python looks for them as ever."""
    code = "import sys; from launcher.hosts.ways import ssh_connector; ssh_connector()\n"
    code += "print(sys.modules.get('asyncssh.crypto.x509', 'is looked for'))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == "is looked for\n"
