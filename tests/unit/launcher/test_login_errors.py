"""Logins in which the agent does not start: what was run there decides what is said."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from launcher.agent.threads import error_text
from launcher.errors import HostError
from launcher.hosts.bootstrap import ShellErrors, announced, split_magic

SHELL = b"tfmux-shell-00ff00ff\n"
PYTHON, ACCOUNT, RESTRICTED = 'python = "', "account that may run commands", "restricted shell"

ENDS = {
    "nologin": (1, b"This account is currently not available.\n", "", ACCOUNT),
    "/etc/nologin": (254, b"", "System is going down for maintenance.", ACCOUNT),
    "git-shell": (128, b"", "fatal: unrecognized command 'echo tfmux-shell-00ff00f…", ACCOUNT),
    "internal-sftp": (1, b"This service allows sftp connections only.\n", "", ACCOUNT),
    "ForceCommand date": (0, b"Sat Nov 28 19:41:43 UTC 2026\n", "", ACCOUNT),
    "ForceCommand false": (1, b"", "", ACCOUNT),
    "start-up file ends": (1, b"closed for today\n", "", ACCOUNT),
    "killed": (None, b"", "", ACCOUNT),
    "no python": (127, SHELL, "env: 'python3': No such file or directory", PYTHON),
    "no permission": (126, SHELL, "env: '/opt/python3': Permission denied", PYTHON),
    "broken python": (1, b"hi\n" + SHELL, "Fatal Python error: init_fs_encoding", PYTHON),
    "rbash": (1, SHELL, "rbash: line 1: exec: restricted", RESTRICTED),
    "other shell, no python": (127, b"", "sh: python3: not found", PYTHON),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_was_run_decides_what_helps(name: str) -> None:
    """A login that has not run the shell's part of our command needs another account; one that has
    needs another Python, or a shell that is not restricted."""
    status, seen, complaint, helps = ENDS[name]
    error = ShellErrors("tf1").ended(status, seen, complaint)
    assert helps in error.todo, error.reason
    assert (error.code == "python-missing") == (helps != ACCOUNT)
    assert "tfmux-shell-" not in error.what or name == "git-shell"
    assert ("Python 3.8" in error.todo) == (helps != ACCOUNT)


def test_a_forced_command_that_waits_is_thought_of() -> None:
    """Silence has other reasons where the shell has said that it runs commands."""
    errors = ShellErrors("tf1")
    forced: HostError = errors.silent(b"welcome\n", held=False, complaint="")
    waits = errors.silent(SHELL, held=False, complaint="")
    assert "ForceCommand" in forced.todo and "welcome" in forced.what
    assert "ForceCommand" not in waits.todo and "start-up files" in waits.todo


def test_what_the_shell_says_is_no_noise() -> None:
    """The line by which a shell says that it runs commands is ours, as is the magic number."""
    assert announced("exec env true", "0f").startswith("echo tfmux-shell-0f; exec env")
    before = b"hello\n" + SHELL + b"tfmux-agent-magic:a70d0d0a\n"
    assert split_magic(before) == (b"hello\n", bytes.fromhex("a70d0d0a"))


def test_a_limit_is_named_with_its_value() -> None:
    """An error that a limit of the host has caused names the limit, and what it is there."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    no_process = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    assert "ulimit -u" in error_text(no_process) and "pids.max" in error_text(no_process)
    assert f"ulimit -n is {files}" in error_text(OSError(errno.EMFILE, "Too many open files"))
    assert error_text(OSError(errno.ENOSPC, "No space", "/nowhere/at/all")).count("/nowhere") == 1
    assert error_text(ValueError("x")) == "x"
