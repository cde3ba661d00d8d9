"""`tfmux completion`: a script by shtab that completes commands, options, demos, runs and files.

Runs are looked up by the shell each time, in the directory where they are kept and in the index of
living runs: no Python starts at a press of Tab. For commands that take active runs only these are
offered, as far as they have a launcher process, or had one that was killed.
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

_ENTER = 'cd "${XDG_DATA_HOME:-$HOME/.local/share}/tfmux/runs" 2>/dev/null || exit'
_NAMES = 'sed -E "p;s/-[0-9]{8}-[0-9]{6}-[0-9a-f]{4}$//" | sort -u'
"""Each id, and the name of its cluster."""
_INDEX = (
    'for file in /tmp/tfmux-$(id -u)*/*.launcher; do test -O "$file" && '
    r'sed -n "s/^{\"run\": \"\([A-Za-z0-9._-]*\)\".*/\1/p" "$file"; done'
)
_ACTIVE = f'{_INDEX} | while read -r run; do test -d "$run" && echo "$run"; done'
_ACTIVE_COMMANDS = frozenset(("attach", "kill", "stacks"))


def _from_shell(function: str, words: str) -> dict[str, Any]:
    """The completion of an argument by lines that `sh` writes in the directory of runs."""
    lines = f"sh -c '{_ENTER}; {{ {words}; }} | {_NAMES}'"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({function})",
        "preamble": {
            "bash": f'{function}() {{ compgen -W "$({lines})" -- "$1"; }}\n',
            "zsh": f"{function}() {{ compadd $({lines}) }}\n",
            "fish": f"function {function}; {lines}; end\n",
        },
    }


_RUNS = _from_shell("_tfmux_runs", "ls")
_ACTIVE_RUNS = _from_shell("_tfmux_active_runs", _ACTIVE)
# shtab's own pattern for zsh, (*.toml), is a list of glob qualifiers there.
_CLUSTERS = {**shtab.glob("*.toml"), "zsh": "_files -g '*.toml'"}
_VALUES = {"RUN": _RUNS, "FILE": shtab.FILE, "DIR": shtab.DIRECTORY}


def completion(arguments: argparse.Namespace) -> int:
    """Prints the script of a shell."""
    parser: argparse.ArgumentParser = arguments.parser
    for each in _parsers(parser):
        active = each.prog.rpartition(" ")[2] in _ACTIVE_COMMANDS
        for action in each._actions:
            _prepare(action)
            if active and action.dest == "run":
                action.complete = _ACTIVE_RUNS  # type: ignore[attr-defined]  # of shtab
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
