"""`tfmux doctor`: facts about this installation for a bug report; no secrets, no host names."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from launcher.masking import mask
from launcher.paths import runs_home, tilde
from launcher.printable import printable
from launcher.quantities import counted
from tui.config import config_path, load_config
from tui.exits import Exit
from tui.extras import Extra

_VARIABLES = ("TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL", "TERM_PROGRAM")
"""Variables whose values are shown; of those in `_PRESENT` only that they are set."""
_PRESENT = ("TMUX", "STY", "SSH_CONNECTION", "SSH_AUTH_SOCK", "SLURM_JOB_ID", "VIRTUAL_ENV")
_PROGRAMS = {"ssh": "ssh -V", "slurm": "sinfo --version", "tmux": "tmux -V"}
_PROGRAM_SECONDS = 5.0
_LONGEST = 120
_MOST_RUNS = 200
_MOST_LOG = 1 << 20
_FAULT = re.compile(rb"^fault in a look \((\w{1,20})\): ", re.MULTILINE)
"""A line of `launcher.log` (`launcher.process.bulkhead.FAULT`)."""

Table = Mapping[str, str]


def doctor(_: argparse.Namespace) -> int:
    """Prints what is known of this installation; asks no host and makes no file."""
    found = facts()
    wide = max(map(len, found)) + 2
    for name, table in found.items():
        for at, (key, text) in enumerate(table.items()):
            sys.stdout.write(f"{'' if at else name:<{wide}}{key}: {mask(printable(text))}\n")
    return Exit.SUCCESS


def facts() -> dict[str, Table]:
    """Collects the facts, in the order in which they are printed."""
    libc = " ".join(platform.libc_ver())
    return {
        "versions": {
            "tfmux": metadata.version("tfmux"),
            "python": f"{platform.python_version()} {tilde(Path(sys.executable))}",
            "system": f"{platform.system()} {platform.release()} {platform.machine()} {libc}",
            **{name: _version(name) for name in _dependencies()},
        },
        "terminal": _terminal(),
        "programs": {name: _program(shlex.split(line)) for name, line in _PROGRAMS.items()},
        "config": {"problems": ", ".join(_config_problems()) or "none"},
        "looks": _faults(),
    }


def _dependencies() -> list[str]:
    """The packages that tfmux or one of its extras asks for."""
    wanted = re.compile(r"([\w.-]+)(?:.*extra == ['\"](\w+))?")
    found = map(wanted.match, metadata.requires("tfmux") or ())
    return [each[1] for each in found if each and each[2] in (None, *Extra)]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _terminal() -> dict[str, str]:
    from rich.console import Console

    cells = shutil.get_terminal_size((0, 0))
    shown = {name: os.environ[name][:_LONGEST] for name in _VARIABLES if name in os.environ}
    return {
        "size": f"{cells.columns}x{cells.lines}",
        "colours": Console(stderr=not sys.stdout.isatty()).color_system or "none",
        "encoding": sys.stdout.encoding,
        **shown,
        **{name: "set" for name in _PRESENT if name in os.environ},
    }


def _program(argv: list[str]) -> str:
    """The first line of what a program says of its version."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROGRAM_SECONDS,
        )
    except FileNotFoundError:
        return "none"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:  # what it then says may name hosts
        return f"installed; {shlex.join(argv)} ended with status {done.returncode}"
    return done.stdout.decode(errors="replace").strip().partition("\n")[0][:_LONGEST]


def _faults() -> dict[str, str]:
    """Faults in looks at runs (`launcher.process.bulkhead`), by the kind of the look: how many the
    last runs have had."""
    found: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    with suppress(OSError):  # there is no run yet
        folders = sorted(runs_home().iterdir(), reverse=True)[:_MOST_RUNS]
        for folder in folders:
            here = Counter(_faults_in(folder / "launcher.log"))
            found.update(here)
            runs.update(here.keys())
    told = {f"{look}": counted(number, "fault") for look, number in sorted(found.items())}
    return {look: f"{text} in {counted(runs[look], 'run')}" for look, text in told.items()} or {
        "faults": "none"
    }


def _faults_in(log: Path) -> list[str]:
    """The kinds of looks whose faults a launcher process has written down."""
    try:
        with open(log, "rb") as file:
            data = file.read(_MOST_LOG)
    except OSError:
        return []
    return [name.decode() for name in _FAULT.findall(data)]


def _config_problems() -> list[str]:
    path = config_path()
    return [each.replace(str(path), tilde(path)) for each in load_config().problems]
