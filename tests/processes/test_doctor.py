"""`tfmux doctor`: what a bug report needs, and nothing that is nobody's business."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import TfmuxError
from launcher.paths import config_home, tilde
from tests.support.command import run
from tui import extras
from tui.commands import doctor


def test_it_prints_the_facts(tfmux_home: Path) -> None:
    """A table for each, with its name, and a line for each package that was asked for."""
    done = run("doctor")
    assert done.returncode == 0 and not done.stderr, done.stderr
    for name in ("versions", "terminal", "programs", "config", "looks"):
        assert f"\n{name} " in f"\n{done.stdout}"
    assert "ssh: OpenSSH" in done.stdout
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert f"python: {platform.python_version()} {tilde(Path(sys.executable))}" in lines
    for package in ("asyncssh", "textual", "tensorflow", "textual-serve"):
        assert f"{package}: {metadata.version(package)}" in lines
    assert not any(line.startswith(("pytest:", "tfmux[")) for line in lines)
    assert not list(tfmux_home.rglob("tfmux")), "it has made something"


def test_secrets_and_names_of_hosts_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment values beyond a few named ones, this machine's name, the home's path."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("API_TOKEN", "SSH_AUTH_SOCK", "SSH_CONNECTION", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "secret-of-mine")
    monkeypatch.setattr(platform, "node", lambda: "secret-of-mine")
    found = doctor.facts()
    text = str(found)
    assert "secret-of-mine" not in text and "API_TOKEN" not in text
    assert str(Path.home()) not in text
    assert found["terminal"]["TERM"] == "xterm-256color"
    assert found["terminal"]["SSH_CONNECTION"] == "set"


def test_a_program_that_fails_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's complaint may name a host that it could not reach."""
    program = tmp_path / "sinfo"
    program.write_text("#!/bin/sh\necho cannot reach login7.example.org >&2\nexit 1\n")
    program.chmod(0o755)
    programs = {"slurm": f"{program} --version", "ssh": "tfmux-no-such-program"}
    monkeypatch.setattr(doctor, "_PROGRAMS", programs)
    found = doctor.facts()["programs"]
    assert found["slurm"].endswith("ended with status 1") and found["ssh"] == "none"


def test_problems_of_the_config_file_are_listed() -> None:
    """An unknown key, by the file's name."""
    path = config_home() / "config.toml"
    assert doctor.facts()["config"] == {"problems": "none"}
    path.parent.mkdir(parents=True)
    path.write_text("colour = 3\n")
    said = "~/.config/tfmux/config.toml: unknown key 'colour'"
    assert doctor.facts()["config"] == {"problems": said}


@pytest.mark.parametrize(
    ("version", "prefix", "said"),
    [
        ((3, 13), "/usr", "pip install 'tfmux[trainer]'"),
        ((3, 13), "/home/a/.local/share/pipx/venvs/tfmux", "pipx inject tfmux 'tfmux[trainer]'"),
        ((3, 14), "/usr", "with Python 3.11, 3.12 or 3.13"),
    ],
)
def test_a_missing_extra_is_said_in_one_line(
    version: Any, prefix: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command of that installation; where TensorFlow has no wheel, that."""
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setitem(extras.MODULES, extras.Extra.TRAINER, ("tfmux_no_such_module",))
    with pytest.raises(TfmuxError) as error:
        extras.require(extras.Extra.TRAINER, "demos")
    assert said in str(error.value) and "\n" not in str(error.value)
