"""`tfmux doctor`: what a bug report needs, and nothing that is nobody's business."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster import loads
from launcher.errors import TfmuxError
from launcher.paths import config_home, runs_home, tilde
from launcher.store.launcher_lock import acquire
from launcher.store.runs import RunFolder
from tests.support.command import run
from tui import extras
from tui.commands import doctor

TEXT = '[jobs.worker]\ntasks = ["localhost:auto"]\n[run]\ncommand = ["true"]\n'


@pytest.fixture(autouse=True)
def no_programs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no program but where a test is about them."""
    if not request.node.get_closest_marker("processes"):
        monkeypatch.setattr(doctor, "_PROGRAMS", {"ssh": ("tfmux-no-such-program",)})


def table(name: str) -> Mapping[str, str]:
    """One of the facts that are tables."""
    fact = doctor.facts()[name]
    assert isinstance(fact, Mapping)
    return fact


def test_it_prints_the_facts(tfmux_home: Path) -> None:
    """A line for each, with its name."""
    done = run("doctor")
    assert done.returncode == 0 and not done.stderr, done.stderr
    for name in ("tfmux", "python", "platform", "terminal", "dependencies", "folders", "runs"):
        assert f"\n{name} " in f"\n{done.stdout}"
    assert "OpenSSH" in done.stdout
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert f"python        {platform.python_version()} {tilde(Path(sys.executable))}" in lines
    assert any(re.fullmatch(r"textual: \d+\.\d+\.\d+", line) for line in lines)
    assert any(line.endswith("trainer: installed") for line in lines)
    assert any(line.startswith("runs: ~/.local/share/tfmux/runs writable") for line in lines)
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
    environment = table("environment")
    assert environment["TERM"] == "xterm-256color"
    assert environment["SSH_CONNECTION"] == "set"
    assert doctor.facts(host_names=True)["host"] == "secret-of-mine"


def test_a_program_that_fails_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's complaint may name a host that it could not reach."""
    program = tmp_path / "sinfo"
    program.write_text("#!/bin/sh\necho cannot reach login7.example.org >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(doctor, "_PROGRAMS", {"slurm": (str(program), "--version")})
    assert table("programs")["slurm"].endswith("ended with status 1")


def test_problems_of_the_config_file_are_listed() -> None:
    """A file that is not valid, and an unknown key."""
    path = config_home() / "config.toml"
    assert table("config") == {
        "file": "~/.config/tfmux/config.toml does not exist",
        "problems": "none",
    }
    path.parent.mkdir(parents=True)
    path.write_text("colour = 3\n")
    assert table("config") == {
        "file": "~/.config/tfmux/config.toml",
        "problems": "~/.config/tfmux/config.toml: unknown key 'colour'",
    }


def test_folders_in_the_way_are_named(tfmux_home: Path) -> None:
    """A file where a folder should be: root may write anywhere else."""
    (tfmux_home / ".cache").mkdir()
    (tfmux_home / ".cache" / "tfmux").write_text("")
    assert (
        table("folders")["cache"]
        == "~/.cache/tfmux not writable: ~/.cache/tfmux is not a directory"
    )


def test_runs_are_counted_without_asking_hosts() -> None:
    """One with a launcher, one that nobody supervises, and a folder that is none of a run."""
    for _ in range(2):
        folder = RunFolder.create(f"mine-20261120-183002-7f3{_}", TEXT, loads(TEXT, "mine", Path()))
    lock = acquire(folder.path)
    assert lock is not None
    (runs_home() / "strange").write_text("")
    counts = {"stored": "2", "active": "1", "unsupervised": "1", "unreadable": "1"}
    assert table("runs") == counts
    os.close(lock)


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
