"""`tfmux completion`: a script by shtab that completes commands, options, demos, runs and files.

Runs are looked up by the shell each time, in the directory where they are kept: no Python starts
at a press of Tab.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from typing import Any

import shtab

from launcher.cluster.choices import Framework
from tui import demos
from tui.exits import Exit

_LIST = "sh -c 'ls \"${XDG_DATA_HOME:-$HOME/.local/share}/tfmux/runs\" 2>/dev/null'"
_RUNS = {
    "bash": "_tfmux_runs",
    "zsh": "_tfmux_runs",
    "fish": "(_tfmux_runs)",
    "preamble": {
        "bash": f'_tfmux_runs() {{ compgen -W "$({_LIST})" -- "$1"; }}\n',
        "zsh": f"_tfmux_runs() {{ compadd $({_LIST}) }}\n",
        "fish": f"function _tfmux_runs; {_LIST}; end\n",
    },
}
# shtab's own pattern for zsh, (*.toml), is a list of glob qualifiers there.
_CLUSTERS = {**shtab.glob("*.toml"), "zsh": "_files -g '*.toml'"}
_VALUES = {"RUN": _RUNS, "FILE": shtab.FILE, "DIR": shtab.DIRECTORY}


def completion(arguments: argparse.Namespace) -> int:
    """Prints the script of a shell."""
    parser: argparse.ArgumentParser = arguments.parser
    for each in _parsers(parser):
        for action in each._actions:
            _prepare(action)
    sys.stdout.write(f"{shtab.complete(parser, shell=arguments.shell).rstrip()}\n")
    return Exit.SUCCESS


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _prepare(action: Any) -> None:
    """Says what the value of an argument is, and takes out what shtab writes as it stands."""
    if action.dest == "name":
        action.choices = demos.names()
    elif action.dest == "framework":
        action.choices = list(Framework)
    elif action.dest in ("file", "files"):
        action.complete = _CLUSTERS
    elif action.metavar in _VALUES:
        action.complete = _VALUES[action.metavar]
    if isinstance(action.metavar, str):
        action.metavar = re.sub(r"\W.*", "", action.metavar)  # zsh reads `:` and `[`
    # Such as -np: for fish, one dash is before one letter.
    action.option_strings = [o for o in action.option_strings if o[:2] == "--" or len(o) == 2]
