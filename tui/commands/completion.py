"""`tfmux completion`: a script that completes commands, options, demos, runs and files in a shell.

It is made from the parser of the command line. Runs are looked up by the shell each time, in the
directory where they are kept: no Python starts at a press of Tab.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shtab

from launcher.cluster import Framework
from tui import demos
from tui.exits import Exit

_FILE = shtab.glob("*.toml")
_RUNS = {
    "bash": "_tfmux_runs",
    "zsh": "_tfmux_runs",
    "fish": "(_tfmux_runs)",
    "preamble": {
        "bash": """\
_tfmux_runs() {
  compgen -W "$(command ls "${XDG_DATA_HOME:-$HOME/.local/share}/tfmux/runs" 2>/dev/null)" -- "$1"
}
""",
        "zsh": """\
_tfmux_runs() {
  local -a runs=("${XDG_DATA_HOME:-$HOME/.local/share}"/tfmux/runs/*(N/:t))
  compadd -a runs
}
""",
        "fish": """\
function _tfmux_runs
  set -l data ~/.local/share
  test -n "$XDG_DATA_HOME"; and set data $XDG_DATA_HOME
  command ls $data/tfmux/runs 2>/dev/null
end
""",
    },
}


_FILES = {
    "bash": "",  # offers files by itself where no command fits
    "zsh": """functions -c _shtab_tfmux_commands _tfmux_commands
_shtab_tfmux_commands() {
  _tfmux_commands
  _files -g '*.toml'
}
""",
    "fish": (
        "complete -c tfmux -n '_shtab_tfmux_using \"\"; and test $_shtab_tfmux_npos -eq 0' "
        f"-ka '{_FILE['fish']}'\n"
    ),
}
"""Cluster files beside the commands, for `tfmux FILE`."""


def completion(arguments: argparse.Namespace) -> int:
    """Prints the script of a shell."""
    parser: argparse.ArgumentParser = arguments.parser
    for command, each in _parsers(parser):
        for action in each._actions:
            _prepare(command, action)
    script = shtab.complete(parser, shell=arguments.shell).rstrip()
    sys.stdout.write(f"{script}\n{_FILES[arguments.shell]}")
    return Exit.SUCCESS


def _parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield "", parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _prepare(command: str, action: Any) -> None:
    """Says what the value of an argument is, and takes out what shtab writes as it stands."""
    metavar = action.metavar
    if (command, action.dest) == ("demo", "name"):
        action.choices = demos.names()
    elif action.dest == "framework":
        action.choices = list(Framework)
    elif metavar == "RUN":
        action.complete = _RUNS
    elif action.dest in ("file", "files"):
        action.complete = _FILE
    elif action.type is Path or action.dest in ("workdir", "directory"):
        directory = metavar == "DIR" or action.dest == "workdir"
        action.complete = shtab.DIRECTORY if directory else shtab.FILE
    if isinstance(metavar, str):
        action.metavar = re.sub(r"\W.*", "", metavar)  # zsh reads `:` and `[`
    # Such as -np: for fish, one dash is before one letter.
    action.option_strings = [o for o in action.option_strings if o[:2] == "--" or len(o) == 2]
