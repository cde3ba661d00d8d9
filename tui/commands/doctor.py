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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

from launcher.errors import TfmuxError
from launcher.paths import cache_home, config_home, runs_home, state_home, tilde
from launcher.printable import printable
from launcher.quantities import size
from launcher.session.run_list import read_run
from launcher.store.runs import RunFolder
from tui import extras
from tui.config import config_path, load_config
from tui.exits import Exit
from tui.extras import Extra

_VARIABLES = ("TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL", "TERM_PROGRAM")
"""Variables whose values are shown; of the others in `_PRESENT` only that they are set."""
_PRESENT = ("TMUX", "STY", "SSH_CONNECTION", "SSH_AUTH_SOCK", "SLURM_JOB_ID", "VIRTUAL_ENV")
_PROGRAMS = {
    "ssh": ("ssh", "-V"),
    "slurm": ("sinfo", "--version"),
    "tmux": ("tmux", "-V"),
}
_PROGRAM_SECONDS = 5.0
_LONGEST = 120

Fact = str | Mapping[str, str]


def doctor(arguments: argparse.Namespace) -> int:
    """Prints what is known of this installation; asks no host and makes no file."""
    found = facts(host_names=arguments.host_names)
    wide = max(map(len, found)) + 2
    for name, fact in found.items():
        lines = [fact] if isinstance(fact, str) else [f"{key}: {fact[key]}" for key in fact]
        for at, text in enumerate(lines or ["none"]):
            sys.stdout.write(f"{'' if at else name:<{wide}}{printable(text)}\n")
    return Exit.SUCCESS


def facts(*, host_names: bool = False) -> dict[str, Fact]:
    """Collects the facts, in the order in which they are printed."""
    host = {"host": platform.node()} if host_names else {}
    return {
        "tfmux": metadata.version("tfmux"),
        "python": f"{platform.python_version()} {tilde(Path(sys.executable))}",
        "platform": _platform(),
        **host,
        "terminal": _terminal(),
        "environment": _environment(),
        "dependencies": _dependencies(),
        "extras": {extra.value: _state(extra) for extra in Extra},
        "programs": _programs(),
        "config": _config(),
        "folders": _folders(),
        "runs": _runs(),
    }


def _platform() -> str:
    libc = " ".join(filter(None, platform.libc_ver()))
    return " ".join(filter(None, (platform.system(), platform.release(), platform.machine(), libc)))


def _terminal() -> dict[str, str]:
    from rich.console import Console

    cells = shutil.get_terminal_size((0, 0))
    return {
        "on": ", ".join(filter(_is_terminal, ("stdin", "stdout", "stderr"))) or "none",
        "size": f"{cells.columns}x{cells.lines}",
        "colours": Console(stderr=not sys.stdout.isatty()).color_system or "none",
        "encoding": sys.stdout.encoding,
    }


def _is_terminal(stream: str) -> bool:
    file = getattr(sys, stream)
    return file is not None and bool(file.isatty())


def _environment() -> dict[str, str]:
    shown = {name: os.environ[name][:_LONGEST] for name in _VARIABLES if name in os.environ}
    return shown | {name: "set" for name in _PRESENT if name in os.environ}


def _dependencies() -> dict[str, str]:
    """The version of each package that tfmux or an extra of it asks for."""
    found = {}
    for text in metadata.requires("tfmux") or ():
        wanted, _, marker = text.partition(";")
        extra = re.search(r"extra == ['\"](\w+)", marker)
        name = re.split(r"[^\w.-]", wanted, maxsplit=1)[0]
        if extra is None or extra[1] in list(Extra):
            found[name] = _version(name)
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _state(extra: Extra) -> str:
    absent = extras.missing(extra)
    return f"not installed ({', '.join(absent)})" if absent else "installed"


def _programs() -> dict[str, str]:
    with ThreadPoolExecutor(len(_PROGRAMS)) as pool:
        return dict(zip(_PROGRAMS, pool.map(_program, _PROGRAMS.values()), strict=True))


def _program(argv: tuple[str, ...]) -> str:
    """The first line of what a program says of its version."""
    if shutil.which(argv[0]) is None:
        return "none"
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROGRAM_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{argv[0]}: {error}"
    if done.returncode:  # what it then says may name hosts
        return f"installed; {shlex.join(argv)} ended with status {done.returncode}"
    return done.stdout.decode(errors="replace").strip().partition("\n")[0][:_LONGEST]


def _config() -> dict[str, str]:
    path = config_path()
    problems = [each.replace(str(path), tilde(path)) for each in load_config().problems]
    return {
        "file": tilde(path) if path.exists() else f"{tilde(path)} does not exist",
        "problems": ", ".join(problems) or "none",
    }


def _folders() -> dict[str, str]:
    places = {
        "config": config_home(),
        "runs": runs_home(),
        "cache": cache_home(),
        "state": state_home(),
        "sockets": Path(f"/tmp/tfmux-{os.getuid()}"),  # `agent.folders` makes it
    }
    return {name: f"{tilde(path)} {_access(path)}" for name, path in places.items()}


def _access(path: Path) -> str:
    """Whether files can be written below a path, which need not exist."""
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        return f"not writable: {tilde(there)} is not a directory"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"not writable: {tilde(there)}"
    return f"writable, {size(shutil.disk_usage(there).free)} free"


def _runs() -> dict[str, str]:
    """Runs of this machine: by their records and locks alone."""
    folders, unreadable = RunFolder.scan()
    counts = {"stored": len(folders), "active": 0, "unsupervised": 0, "unreadable": len(unreadable)}
    for folder in folders:
        try:
            if folder.launcher_pid() is not None:
                counts["active"] += 1
            elif not read_run(folder).over:
                counts["unsupervised"] += 1
        except (TfmuxError, OSError, ValueError):
            counts["unreadable"] += 1
    return {name: str(count) for name, count in counts.items()}
